"""How many rows `ridgeline count` prints of a file without modules, and which of them are JSON."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from tests.cli.analyzed_here import command


@pytest.fixture
def fan(tmp_path: Path) -> str:
    """300 Relu of a 3x8 input, and one Sum of them all: 24 FLOPs each, and 300·24 less 24."""
    nodes = [helper.make_node("Relu", ["x"], [f"a{n}"], name=f"relu{n}") for n in range(300)]
    nodes.append(helper.make_node("Sum", [f"a{n}" for n in range(300)], ["y"], name="sum"))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, 8]) for name in "xy")
    path = tmp_path / "fan.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [x], [y])), path)
    return str(path)


def test_the_largest_rows_are_shown_and_no_cell_is_endless(
    fan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("count", fan) == 0
    lines = capsys.readouterr().out.splitlines()
    # then there are the model, 198 of the equal ones, and the sum
    assert sum(" Relu " in line for line in lines) == 198
    assert sum(" Sum " in line for line in lines) == 1
    assert "the 200 largest rows; --depth 1 or -o FILE.csv has the other 102, too" in lines
    assert max(map(len, lines)) < 300


def test_all_rows_are_shown_where_a_depth_is_asked_for(
    fan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("count", fan, "--depth", "1") == 0
    said = capsys.readouterr().out
    assert said.count(" Relu ") == 300
    assert "largest rows" not in said


def test_json_has_the_rows_that_were_asked_for(
    fan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def model(*more: str) -> dict[str, object]:
        assert command("count", fan, "--json", *more) == 0
        [found] = json.loads(capsys.readouterr().out)["models"]
        assert isinstance(found, dict)
        return found

    plain = model()
    assert {"ops", "layers"}.isdisjoint(plain)
    ops = model("--table", "ops")["ops"]
    layers = model("--depth", "1")["layers"]
    assert isinstance(ops, list)
    assert isinstance(layers, list)
    assert [(row["path"], row["flops"]) for row in ops[-2:]] == [("relu299", 24), ("sum", 7176)]
    assert [(row["path"], row["flops"]) for row in layers[:2]] == [
        ("(model)", 14376),
        ("relu0", 24),
    ]
