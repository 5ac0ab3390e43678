"""`ridgeline count FILE.onnx`: the command, its forms, and options that mean nothing for a file."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, helper
from tests.cli.analyzed_here import Printed, command
from tests.onnx.models import model, x

ridgeline = partial(command, "count")
SIZES = ["-b", "8", "--dim", "seq=5"]


def save(proto: ModelProto, folder: Path, name: str = "net.onnx") -> Path:
    path = folder / name
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """relu(a·w) of an open batch and length."""
    nodes = [
        helper.make_node("MatMul", ["a", "w"], ["h"], name="product"),
        helper.make_node("Relu", ["h"], ["y"], name="act"),
    ]
    weights = {"w": np.zeros((3, 4), np.float32)}
    return save(model(nodes, {"a": x("batch", "seq", 3)}, ["y"], stored=weights), tmp_path)


@pytest.fixture
def fan(tmp_path: Path) -> str:
    """300 Relu of a 3x8 input, and one Sum of them all: 24 FLOPs each, and 300·24 less 24."""
    nodes = [helper.make_node("Relu", ["x"], [f"a{n}"], name=f"relu{n}") for n in range(300)]
    nodes.append(helper.make_node("Sum", [f"a{n}" for n in range(300)], ["y"], name="sum"))
    return str(save(model(nodes, {"x": x(3, 8)}, ["y"]), tmp_path, "fan.onnx"))


def test_the_largest_rows_are_shown_and_no_cell_is_endless(fan: str, capsys: Printed) -> None:
    assert ridgeline(fan) == 0
    lines = capsys.readouterr().out.splitlines()
    # then there are the model, 198 of the equal ones, and the sum
    assert sum(" Relu " in line for line in lines) == 198
    assert sum(" Sum " in line for line in lines) == 1
    assert "the 200 largest rows; --depth 1 or -o FILE.csv has the other 102, too" in lines
    assert max(map(len, lines)) < 300
    # and all of them where a depth is named
    assert ridgeline(fan, "--depth", "1") == 0
    out = capsys.readouterr().out
    assert (out.count(" Relu "), "largest rows" in out) == (300, False)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "the file leaves 2 dimensions open: batch (of a[0]); seq (of a[1])"),
        (["-b", "8"], "the file leaves 1 dimension open: seq (of a[1])"),
        ([*SIZES, "--input-size", "3"], "--input-size means nothing for"),
        ([*SIZES, "--seq-len", "3"], "--seq-len means nothing for"),
        ([*SIZES, "--config", "a=1"], "--config means nothing for"),
        ([*SIZES, "--precision", "bf16"], "--precision means nothing for"),
        ([*SIZES, "--growth"], "--growth means nothing for"),
        (["-b", "8", "--dim", "seq"], "--dim 'seq' is not valid"),
        (["-b", "8", "--dim", "seq=6,7"], "--dim 'seq=6,7' is not valid"),
        (["-b", "8", "--dim", "seq=3000000000"], "--dim 'seq=3000000000' is not valid"),
        (
            ["-b", "8", "--dim", "sec=5"],
            "open: seq (of a[1])\n  hint: give --dim seq=N\n",
        ),
    ],
)
def test_errors(options: list[str], says: str, file: Path, capsys: Printed) -> None:
    assert ridgeline(str(file), *options, "-q") == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert says in captured.err and "hint:" in captured.err


def test_torch_is_not_needed(file: Path) -> None:
    script = f"""
import sys
from ridgeline.cli import main
try:
    main(["count", {str(file)!r}, "-b", "2", "--dim", "seq=2", "--json", "-q"])
except SystemExit as ended:
    sys.exit(ended.code or int("torch" in sys.modules))
"""

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A node that would colour the terminal and write its title, and make a line of its own."""
    names = {"name": "\x1b[31mred\nnote: fine", "domain": "own"}
    nodes = [
        helper.make_node("Evil\x1b]0;x\x07\r", ["a"], ["h"], **names),
        helper.make_node("Conv", ["a", "w"], ["y"], name="conv", auto_pad="VALID\x1b[1m"),
    ]
    proto = model(nodes, {"a": x(1, 1, 4, 4)}, ["y"],
                  stored={"w": np.zeros((1, 1, 3, 3), np.float32)})  # fmt: skip
    path = save(proto, tmp_path, "hostile.onnx")
    return path


@pytest.mark.parametrize("form", ["table", "markdown", "csv", "json"])
def test_what_a_terminal_would_obey_is_escaped(
    form: str, hostile: Path, tmp_path: Path, capsys: Printed
) -> None:
    files = [tmp_path / f"out.{ending}" for ending in ("csv", "md", "json")]
    outputs = [part for file in files for part in ("-o", str(file))]

    ridgeline(str(hostile), "--format", form, "--table", "ops", "--output-dir", str(tmp_path),
              *outputs, "-q")  # fmt: skip

    (text,) = tmp_path.glob("*.txt")
    for told in (capsys.readouterr().out, *(file.read_text() for file in (*files, text))):
        assert not set(told) & {"\x1b", "\x07", "\r"}
        assert r"own::Evil\x1b]0;x\x07\r" in told.replace(r"\\", "\\")
        assert not any(line.startswith("note: fine") for line in told.splitlines())
