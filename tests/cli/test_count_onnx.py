"""`ridgeline count FILE.onnx`: the command, its forms, and options that mean nothing for a file."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from onnx import helper
from tests.onnx.models import model, x

from ridgeline.cli import main
from ridgeline.store import ResultsFolder


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """relu(a·w) of an open batch and length."""
    nodes = [
        helper.make_node("MatMul", ["a", "w"], ["h"], name="product"),
        helper.make_node("Relu", ["h"], ["y"], name="act"),
    ]
    proto = model(nodes, {"a": x("batch", "seq", 3)}, ["y"],
                  stored={"w": np.zeros((3, 4), np.float32)})  # fmt: skip
    path = tmp_path / "net.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def ridgeline(*arguments: str) -> int:
    """Run the command line in this process; answers the exit code."""
    with pytest.raises(SystemExit) as stopped:
        main(["count", *arguments])
    return int(stopped.value.code or 0)


SIZES = ["-b", "8", "--dim", "seq=5"]


def test_the_table(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = ridgeline(str(file), *SIZES, "--formulas", "-q")

    out = capsys.readouterr().out
    assert code == 0
    assert "ONNX graph" in out and "product" in out
    assert "2·M·N·K = 2·40·4·3 = 960" in out
    assert "note: the batch of 8 is the dimension 'batch' (input 'a', axis 0)" in out


def test_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = ridgeline(str(file), "-b", "1,8", "--dim", "seq=5", "--json", "-q")

    one, eight = json.loads(capsys.readouterr().out)["models"]
    assert code == 0
    assert [(m["batch_size"], m["macs"], m["params"]) for m in (one, eight)] == [
        (1, 5 * 12, 12), (8, 40 * 12, 12),
    ]  # fmt: skip
    assert (eight["traced_on"], eight["coverage"], eight["precision"]) == ("onnx", 1.0, "fp32")


def test_a_row_for_each_node(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = ridgeline(str(file), *SIZES, "--format", "csv", "--table", "ops", "-q")

    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert code == 0
    assert [
        (r["path"], r["op"], r["kind"], r["input_shapes"], r["output_shapes"]) for r in rows
    ] == [
        ("product", "onnx::MatMul", "matmul", "8x5x3 3x4", "8x5x4"),
        ("act", "onnx::Relu", "pointwise", "8x5x4", "8x5x4"),
    ]


def test_markdown_and_a_results_folder(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results"
    code = ridgeline(str(file), *SIZES, "--format", "markdown", "--mode", "train",
                 "--results", str(results), "-q")  # fmt: skip

    assert code == 0
    assert "| weight-grad |" in capsys.readouterr().out
    assert len(list((results / "runs").iterdir())) == 1


def test_the_largest_batch(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = ridgeline(str(file), "--find-max-batch", "10kB", *SIZES, "-q")

    assert code == 0
    assert "the largest batch within 10.0 kB is" in capsys.readouterr().out


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
        (["-b", "8", "--dim", "seq=x"], "--dim 'seq=x' is not valid"),
        (
            ["-b", "8", "--dim", "seq=6,7"],
            "--dim 'seq=6,7' is not valid\n  hint: give one whole number of 0 or more:"
            " --dim NAME=128; several sizes take a command each\n",
        ),
        (
            ["-b", "8", "--dim", "seq=3000000000"],
            "--dim seq=3000000000 is too large\n  hint: 2147483648 is the largest\n",
        ),
        (
            ["-b", "8", "--dim", "seq=5", "--dim", " seq=6"],
            "--dim seq is given twice: 5 and 6\n  hint: give one of them\n",
        ),
        (
            ["-b", "8", "--dim", "sec=5"],
            "open: seq (of a[1])\n  hint: give --dim seq=N\n",
        ),
    ],
)
def test_errors(
    options: list[str], says: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = ridgeline(str(file), *options, "-q")

    captured = capsys.readouterr()
    assert (code, captured.out) == (2, "")
    assert says in captured.err and "hint:" in captured.err


def test_the_same_size_twice_is_one(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = ridgeline(str(file), *SIZES, "--dim", "seq=5", "--json", "-q")

    (found,) = json.loads(capsys.readouterr().out)["models"]
    assert (code, found["macs"]) == (0, 40 * 12)


def test_an_open_dimension_is_told_as_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = ridgeline(str(file), "-b", "8", "--json", "-q")

    captured = capsys.readouterr()
    problem, hint = "the file leaves 1 dimension open: seq (of a[1])", "give --dim seq=N"
    assert code == 2
    assert json.loads(captured.out) == {
        "schema": 1,
        "models": [],
        "errors": [{"model": str(file), "problem": problem, "hint": hint}],
    }
    assert captured.err == f"ridgeline: {problem}\n  hint: {hint}\n"


def test_the_least_bytes_of_a_row_are_no_more_than_it_moves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given relu(reshape(a, shape(b))) of 2x6 numbers
    nodes = [
        helper.make_node("Shape", ["b"], ["s"], name="shape"),
        helper.make_node("Reshape", ["a", "s"], ["v"], name="view"),
        helper.make_node("Relu", ["v"], ["y"], name="act"),
    ]
    proto = model(nodes, {"a": x(2, 6), "b": x(3, 4)}, ["y"])
    (tmp_path / "net.onnx").write_bytes(proto.SerializeToString())

    for mode in ("infer", "train"):
        code = ridgeline(str(tmp_path / "net.onnx"), "--format", "csv", "--mode", mode, "-q")

        rows = csv.DictReader(io.StringIO(capsys.readouterr().out))
        assert code == 0
        # then a view and a look at a shape move nothing; relu reads and writes 12 numbers
        assert {r["path"]: int(r["fused_bytes"]) for r in rows} == {
            "(model)": 96, "shape": 0, "view": 0, "act": 96,
        }  # fmt: skip


def test_dim_is_for_files(capsys: pytest.CaptureFixture[str]) -> None:
    code = ridgeline("resnet18", "--dim", "seq=3", "-q")

    assert code == 2
    assert "--dim is for .onnx files" in capsys.readouterr().err


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


def test_counts_beyond_64_bits_are_written(tmp_path: Path) -> None:
    # given a product of 2^70 multiply-adds
    proto = model([helper.make_node("MatMul", ["a", "b"], ["y"], name="product")],
                  {"a": x(2**20, 2**25), "b": x(2**25, 2**25)}, ["y"])  # fmt: skip
    path = tmp_path / "large.onnx"
    path.write_bytes(proto.SerializeToString())
    written = {form: tmp_path / f"table.{form}" for form in ("parquet", "csv", "json")}
    options = [option for file in written.values() for option in ("-o", str(file))]

    # when it is written in every form, and as a run
    code = ridgeline(str(path), *options, "--table", "ops", "--results", str(tmp_path / "r"), "-q")

    # then JSON and CSV are exact, and Parquet has the nearest floating-point number
    assert code == 0
    assert json.loads(written["json"].read_text())["models"][0]["macs"] == 2**70
    assert next(csv.DictReader(written["csv"].open()))["macs"] == str(2**70)
    table = pd.read_parquet(written["parquet"])
    assert (str(table["macs"].dtype), table["macs"][0]) == ("float64", 2.0**70)
    assert (str(table["read_bytes"].dtype), table["read_bytes"][0]) == ("int64", 2**47 + 2**52)
    run = ResultsFolder(tmp_path / "r")
    assert run.read_table(run.run_ids()[0], "ops")["macs"][0] == 2.0**70


def test_counts_without_end_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # given seven loops inside each other, 2^39 passes each
    proto = model([helper.make_node("Relu", ["a"], ["y"])], {"a": x(4)}, ["y"])
    for depth in range(7):
        body = proto.graph
        body.node.append(helper.make_node("Identity", [f"go{depth}"], [f"on{depth}"]))
        del body.input[:]
        body.input.extend([helper.make_tensor_value_info(f"i{depth}", 7, ()),
                           helper.make_tensor_value_info(f"go{depth}", 9, ())])  # fmt: skip
        body.output.insert(0, helper.make_tensor_value_info(f"on{depth}", 9, ()))
        del body.output[1:]
        loop = helper.make_node("Loop", ["n", ""], [], name=f"loop{depth}", body=body)
        proto = model([loop], {"a": x(4)}, [], stored={"n": np.asarray(2**39)})
        proto.graph.output.append(helper.make_tensor_value_info("a", 1, (4,)))
    path = tmp_path / "loops.onnx"
    path.write_bytes(proto.SerializeToString())

    code = ridgeline(str(path))

    err = capsys.readouterr().err
    assert code == 2
    assert "would take more than 2^256 FLOPs or bytes\n  hint: check the sizes" in err


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
    path = tmp_path / "hostile.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.mark.parametrize("form", ["table", "markdown", "csv", "json"])
def test_what_a_terminal_would_obey_is_escaped(
    form: str, hostile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
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


def test_an_error_of_several_is_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # given two files that leave a dimension open whose name rings the bell
    proto = model([helper.make_node("Relu", ["a"], ["y"])], {"a": x(2, "seq\x07")}, ["y"])
    paths = [tmp_path / f"{n}.onnx" for n in range(2)]
    for path in paths:
        path.write_bytes(proto.SerializeToString())

    code = ridgeline(*map(str, paths))

    assert code == 2
    assert (
        capsys.readouterr().err.splitlines()[-4:]
        == [
            r"ridgeline: the file leaves 1 dimension open: seq\x07 (of a[1])",
            r"  hint: give --dim 'seq\x07=N'",
        ]
        * 2
    )


def test_one_note_tells_where_shapes_are_lost_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given a node of an operator that nobody knows, and three after it
    nodes = [
        helper.make_node("Relu", ["a"], ["b"], name="first"),
        helper.make_node("Odd", ["b"], ["c"], name="odd", domain="some.one"),
        helper.make_node("MatMul", ["c", "w"], ["d"], name="product"),
        helper.make_node("Exp", ["d"], ["e"], name="exp"),
        helper.make_node("Exp", ["e"], ["y"], name="last"),
    ]
    proto = model(nodes, {"a": x(2, 3)}, ["y"], stored={"w": np.zeros((3, 3), np.float32)})
    path = tmp_path / "odd.onnx"
    path.write_bytes(proto.SerializeToString())

    # when it is counted
    code = ridgeline(str(path), "-q")

    # then that node is named as the cause, and no known operator is said to have no formula;
    # of 48 + 24 + 36 bytes that are known, Odd reads 24 and the product its 36 of weights
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note: ")]
    assert code == 0
    assert notes == [
        "note: some.one::Odd 'odd' has no formula, and the shape of its result is not known",
        "note: so 3 nodes are not counted further on, of operands without a shape: 'product',"
        " 'exp', 'last'",
        "note: some.one::Odd has no formula: 1 calls, 22.2 % of the bytes, FLOPs not counted",
        "note: 3 calls of operators that have a formula, 33.3 % of the bytes, are not counted:"
        " their shapes are not known or do not fit",
    ]
