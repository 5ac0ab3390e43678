"""Models that exporters of old wrote, and attributes that nobody should have written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from tests.count.onnx.models import ML, count, model, one_node, x

from ridgeline.errors import RidgelineError

WEIGHT = {"w": np.zeros((8, 5), np.float32)}


def test_a_batch_stored_as_minus_one_is_open(tmp_path: Path) -> None:
    # given an input of [-1, 3, 8, 8], as older exporters write a batch that is not fixed
    nodes = [helper.make_node("Conv", ["a", "w"], ["y"])]
    weight = np.zeros((4, 3, 3, 3), np.float32)
    made = model(nodes, {"a": x(-1, 3, 8, 8)}, ["y"], stored={"w": weight})
    # then it is asked for, and used: 2 · 4 · 6 · 6 results of 3 · 3 · 3 multiply-adds
    with pytest.raises(RidgelineError, match="leaves 1 dimension open"):
        count(made, tmp_path)
    assert count(made, tmp_path, batch_size=2).total.macs == 2 * 4 * 6 * 6 * 27


@pytest.mark.parametrize("op", ["Relu", "Sigmoid"])
def test_the_first_versions_of_operators_have_shapes(op: str, tmp_path: Path) -> None:
    nodes = [helper.make_node(op, ["a"], ["b"]), helper.make_node("MatMul", ["b", "w"], ["y"])]
    made = model(nodes, {"a": x("N", 8)}, ["y"], stored=WEIGHT, opset=1)
    assert count(made, tmp_path, batch_size=2).total.macs == 2 * 8 * 5


@pytest.mark.parametrize(
    ("open_size", "dims", "macs"),
    [
        ("2*batch", {}, 6 * 8 * 5),  # derived from the batch of 3
        ("batch + 1", {}, 4 * 8 * 5),
        ("past", {"past": 0}, 0),  # an empty past is a legal one
    ],
)
def test_sizes_that_are_expressions_or_zero(
    open_size: str, dims: dict[str, int], macs: int, tmp_path: Path
) -> None:
    nodes = [helper.make_node("MatMul", ["b", "w"], ["y"]), helper.make_node("Relu", ["a"], ["z"])]
    inputs = {"a": x("batch", 2), "b": x(open_size, 8)}
    made = model(nodes, inputs, ["y", "z"], stored=WEIGHT)
    assert count(made, tmp_path, batch_size=3, dims=dims).total.macs == macs


@pytest.mark.parametrize(
    "made",
    [
        one_node("Shape", [x(2, 3)], start="a"),
        one_node("SplitToSequence", [x(4, 3)], axis="a"),
        one_node("LinearRegressor", [x(2, 4)], domain=ML, targets=-5),
        one_node("FeatureVectorizer", [x(2, 4)], domain=ML, inputdimensions=[-(2**63)]),
        one_node("GroupNormalization", [x(2, 4, 3), x(4), x(4)], num_groups=-(2**63)),
        one_node("Split", [x(4)], outputs=2, num_outputs=1),
    ],
    ids=lambda made: str(made.graph.node[0].op_type),
)
def test_odd_attributes_end_in_a_count_or_our_error(made: Any, tmp_path: Path) -> None:
    try:
        result = count(made, tmp_path)
    except RidgelineError:
        return
    for cost in result.op_costs:
        assert min(cost.cost.macs, cost.cost.other_flops, cost.cost.moved_bytes) >= 0


def test_a_batch_that_the_file_does_not_have_is_refused(tmp_path: Path) -> None:
    made = model([helper.make_node("Relu", ["a"], ["y"])], {"a": x("seq_len", 4)}, ["y"])
    with pytest.raises(RidgelineError, match="batch"):
        count(made, tmp_path, batch_size=8, dims={"seq_len": 2})
