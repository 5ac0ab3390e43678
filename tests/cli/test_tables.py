"""Tables on terminals of every width: columns may go and names may fold, numbers stay whole."""

import sys
from io import StringIO

import pytest
from pytest import MonkeyPatch
from rich.console import Console
from tests.cli.analyzed_here import Printed, command

from ridgeline.api import count
from ridgeline.cli.tables import Grid, print_grid, to_markdown
from ridgeline.count import result as layers
from ridgeline.plain import plain_text
from ridgeline.units import format_flops

LAYERS = Grid(
    header=["module", "type", "params", "formula"],
    rows=[["  features.conv", "Conv2d", "9.41 k", "2·M·N·K = 2·1000·2048"]],
    text_columns=2,
    spare=("type", "params"),
)


def printed(grid: Grid, width: int) -> list[list[str]]:
    """The words of each line."""
    file = StringIO()
    print_grid(grid, Console(file=file, width=width, height=25, highlight=False))
    return [words for line in file.getvalue().splitlines() if (words := line.split("  "))]


@pytest.mark.parametrize(
    ("grid", "width", "expected"),
    [
        (LAYERS, 60, ["module type params formula",
                      "features.conv Conv2d 9.41 k 2·M·N·K = 2·1000·2048"]),
        (LAYERS, 53, ["module params formula", "features.conv 9.41 k 2·M·N·K = 2·1000·2048",
                      "hidden columns (terminal too narrow): type"]),
        (LAYERS, 44, ["module formula", "features.conv 2·M·N·K =", "2·1000·2048",
                      "hidden columns (terminal too narrow): type; params"]),
    ],
    ids=["fits", "a column goes", "a formula wraps"],
)  # fmt: skip
def test_a_table_shrinks_in_order(grid: Grid, width: int, expected: list[str]) -> None:
    lines = [" ".join(" ".join(words).split()) for words in printed(grid, width)]
    assert " ".join(line for line in lines if line.strip("─ ")) == " ".join(expected)


def test_markdown_cells_stay_cells() -> None:
    assert to_markdown(["name", "n"], [["a|b\n", "1"]]) == (
        "| name | n |\n| --- | --- |\n| a&#124;b\\\\n | 1 |"
    )


@pytest.mark.parametrize("width", [200, 80, 50])
def test_no_number_is_cut_on_a_terminal(
    width: int, monkeypatch: MonkeyPatch, capsys: Printed
) -> None:
    # given a terminal of this width
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "dumb")  # no colours
    # when a table is printed
    assert (
        command("count", "resnet18_cifar", "-b", "1,256", "--mode", "train", "--depth", "1", "-q")
        == 0
    )
    out = capsys.readouterr().out
    # then it fits, with the FLOPs of every row
    assert max(len(line) for line in out.splitlines()) <= width
    results = [count("resnet18_cifar", batch_size=batch, mode="train") for batch in (1, 256)]
    rows = [row["flops"] for r in results for row in layers.layer_rows(r, 1)]
    rows += [cost.flops for r in results for cost in (r.total, *r.phases.values())]
    flops = list(map(format_flops, rows))
    assert [cell for cell in flops if f" {cell} " not in out] == []
    assert ("hidden columns (terminal too narrow):" in out) == (width < 120)


def test_a_pipe_gets_everything(monkeypatch: MonkeyPatch, capsys: Printed) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert command("count", "resnet18_cifar", "--formulas", "--depth", "2", "-q") == 0
    out = capsys.readouterr().out
    assert "hidden columns" not in out
    assert "2·N·Cout·Hout·Wout·(Cin/g)·Kh·Kw = 2·1·64·32·32·3·3·3 = 3538944" in out


def test_a_text_that_no_terminal_obeys() -> None:
    assert plain_text("a\tb\nc é") == "a\tb\nc é"
    assert plain_text("\x1b[31mred\x07\r\x9b\u202e") == r"\x1b[31mred\x07\r\x9b\u202e"
