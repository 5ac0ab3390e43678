"""Tables on terminals of every width: columns may go and names may fold, numbers stay whole."""

import sys

import pytest

from ridgeline.api import count
from ridgeline.cli import main, show
from ridgeline.cli.tables import (
    FORMULA_BREAKS,
    NAME_BREAKS,
    Grid,
    fit,
    folded,
    total_width,
)
from ridgeline.plain import plain_text

LAYERS = Grid(
    header=["module", "type", "params", "FLOPs"],
    rows=[["features.conv", "Conv2d", "9.41 k", "236 MFLOP"]],
    text_columns=2,
    spare=(("type",), ("params",)),
)


def test_columns_go_in_order_and_then_names_fold() -> None:
    assert total_width(LAYERS) == 1 + 13 + 3 + 6 + 3 + 6 + 3 + 9 + 1
    assert fit(LAYERS, 45) == [LAYERS]
    (narrow,) = fit(LAYERS, 44)
    assert narrow.header == ["module", "params", "FLOPs"]
    assert narrow.left_out == ("type",)
    (narrowest,) = fit(LAYERS, 24)
    assert narrowest.left_out == ("type", "params")
    assert narrowest.rows == [["features.\nconv", "236 MFLOP"]]


def test_a_table_that_turns_loses_nothing() -> None:
    grid = Grid(
        header=["model", "params", "FLOPs", "bytes"],
        rows=[
            ["first", "1 k", "1 M", "1 B"],
            ["second", "2 k", "2 M", "2 B"],
            ["c", "3", "3", "3"],
        ],
        turns=True,
    )
    # 6 for the names of the columns, then 5, 6 and 1 for the models, 3 between and 2 around
    assert total_width(grid) == 6 + 6 + 5 + 5 + 3 * 3 + 2
    assert [(part.header, part.rows) for part in fit(grid, 6 + 6 + 5 + 2 * 3 + 1)] == [
        (["model", "first"], [["params", "1 k"], ["FLOPs", "1 M"], ["bytes", "1 B"]]),
        (
            ["model", "second", "c"],
            [["params", "2 k", "3"], ["FLOPs", "2 M", "3"], ["bytes", "2 B", "3"]],
        ),
    ]


def test_folds_keep_indent_and_numbers() -> None:
    assert folded("  a.long.name", 9, NAME_BREAKS) == "  a.long.\n  name"
    assert folded("2·M·N = 2·1000·2048", 11, FORMULA_BREAKS) == "2·M·N = 2·\n1000·2048"


@pytest.mark.parametrize("width", [200, 120, 80, 60, 40])
def test_no_number_is_cut_on_a_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # given a terminal of this width
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "dumb")  # no colours
    # when a table is printed
    with pytest.raises(SystemExit):
        main(["count", "resnet18_cifar", "-b", "1,256", "--mode", "train", "-q"])
    out = capsys.readouterr().out
    # then it fits, with every number of the summary and the phases, and the layers' FLOPs
    assert max(len(line) for line in out.splitlines()) <= width
    results = [count("resnet18_cifar", batch_size=batch, mode="train") for batch in (1, 256)]
    rows = [*show.summary_rows(results), *(row for r in results for row in show.phase_rows(r))]
    assert [cell for row in rows for cell in row[1:] if f" {cell} " not in out] == []
    flops = [row[6] for r in results for row in show.layer_rows(r, 1, formulas=False)]
    assert [cell for cell in flops if f" {cell} " not in out] == []
    assert ("left out at this width: input, output" in out) == (width < 120)


def test_a_pipe_gets_everything(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    with pytest.raises(SystemExit):
        main(["count", "resnet18_cifar", "--formulas", "--depth", "2", "-q"])
    out = capsys.readouterr().out
    assert "left out" not in out
    assert "2·N·Cout·Hout·Wout·(Cin/g)·Kh·Kw = 2·1·64·32·32·3·3·3 = 3538944" in out


def test_a_text_that_no_terminal_obeys() -> None:
    assert plain_text("a\tb\nc é") == "a\tb\nc é"
    assert plain_text("\x1b[31mred\x07\r\x9b\u202e") == r"\x1b[31mred\x07\r\x9b\u202e"
