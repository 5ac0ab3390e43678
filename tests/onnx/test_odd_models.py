"""Models that exporters of old wrote, and attributes that nobody should have written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from tests.onnx.models import ML, MS, count, int64, known, model, one_node, x

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
    ("made", "why"),
    [
        (one_node("Shape", [x(2, 3)], start="a"), "start is not a whole number"),
        (one_node("SplitToSequence", [x(4, 3)], axis="a"), "axis is not a whole number"),
        (one_node("LinearRegressor", [x(2, 4)], domain=ML, targets=-5), "shape of 'out0' is not"),
        (
            one_node("FeatureVectorizer", [x(2, 4)], domain=ML, inputdimensions=[-(2**63)]),
            "shape of 'out0' is not",
        ),
        (
            one_node("GroupNorm", [x(2, 3, 3, 4), x(4), x(4)], domain=MS, groups=-(2**63)),
            "its attributes make its size negative",
        ),
        (
            one_node("Split", [x(4)], outputs=2, num_outputs=1),
            "num_outputs is not the number of its results",
        ),
    ],
    ids=lambda made: "" if isinstance(made, str) else str(made.graph.node[0].op_type),
)
def test_a_node_with_odd_attributes_is_told_as_not_counted(
    made: Any, why: str, tmp_path: Path
) -> None:
    result = count(made, tmp_path)
    [note] = result.notes
    assert "'it' not counted: " in note and why in note
    assert (result.total.flops, result.coverage) == (0, 0)


def test_a_batch_that_the_file_does_not_have_is_refused(tmp_path: Path) -> None:
    made = model([helper.make_node("Relu", ["a"], ["y"])], {"a": x("seq_len", 4)}, ["y"])
    with pytest.raises(RidgelineError, match="batch"):
        count(made, tmp_path, batch_size=8, dims={"seq_len": 2})


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (one_node("Split", [x(4)], outputs=2, num_outputs=1),
         "num_outputs is not the number of its results"),
        (one_node("Split", [x(4), known([1, 1])], outputs=2),
         "onnx refuses it: Mismatch between the sum of 'split' (2) and the split dimension"),
        (one_node("Transpose", [x(4, 3)], perm=[0, 0]), "onnx refuses it: Attribute perm"),
        (one_node("Reshape", [x(4, 3), known([5, 5])]), "12 elements do not fit into 25"),
        (one_node("MatMul", [x(4, 3), x(5, 5)]), "onnx refuses it: Incompatible dimensions"),
    ],
    ids=["number of pieces", "sizes of pieces", "order", "shape", "product"],
)  # fmt: skip
def test_what_cannot_be_is_listed(made: Any, says: str, tmp_path: Path) -> None:
    # given a node that breaks its operator's rules, also one that would cost nothing
    result = count(made, tmp_path)
    # then it is not counted as nothing, but listed with what is wrong
    op = made.graph.node[0].op_type
    assert list(result.unknown) == [f"onnx::{op}"] and result.coverage == 0
    assert result.notes[0].startswith(f"onnx::{op} 'it' not counted: ") and says in result.notes[0]


def test_a_batch_that_a_shape_in_the_file_fixes_is_seen(tmp_path: Path) -> None:
    # given a network exported for one image: the batch is open, a shape in the middle is not
    nodes = [
        helper.make_node("Reshape", ["a", "shape"], ["b"], name="flat"),
        helper.make_node("MatMul", ["b", "w"], ["y"]),
    ]
    stored = {**WEIGHT, "shape": np.asarray([1, 8])}
    made = model(nodes, {"a": x("batch", 2, 4)}, ["y"], stored=stored)

    assert count(made, tmp_path, batch_size=1).total.macs == 8 * 5
    four = count(made, tmp_path, batch_size=4)
    assert sorted(four.unknown) == ["onnx::MatMul", "onnx::Reshape"]
    assert "Reshape 'flat' not counted" in four.notes[1]
    assert "32 elements do not fit into 8" in four.notes[1]


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (one_node("LayerNormalization", [x(3, 4), x(4)], axis=2**63 - 1),
         "its axis is none of its operand's"),
        (one_node("LayerNormalization", [x(3, 4), x(4)], axis=-(2**63)),
         "its axis is none of its operand's"),
        (one_node("GatherND", [x(3, 4), int64(2, 1)], batch_dims=-(2**31)),
         "does not have so many dimensions for a batch"),
        (one_node("Einsum", [x(3, 4)], equation="é" * 300), "its equation is not one"),
        (one_node("Split", [known([1, 2])], outputs=2, num_outputs=2**40),
         "num_outputs is not the number of its results"),
    ],
    ids=["a crash", "a crash below", "a crash of a batch", "no end", "no end of pieces"],
)  # fmt: skip
def test_what_onnx_itself_does_not_survive(made: Any, says: str, tmp_path: Path) -> None:
    result = count(made, tmp_path)

    assert result.coverage == 0 and says in result.notes[0]


def test_pieces_without_end_are_not_evaluated(tmp_path: Path) -> None:
    # given pieces whose shapes the file states, and a number of them that is not theirs
    made = one_node("Split", [known([1, 2])], outputs=2, num_outputs=2**40)
    for output in made.graph.output:
        output.type.tensor_type.elem_type = 7
        output.type.tensor_type.shape.dim.add().dim_value = 1

    assert list(count(made, tmp_path).unknown) == ["onnx::Split"]


def test_a_value_without_elements_and_with_sides_without_end(tmp_path: Path) -> None:
    # given a stored shape of 2^40 rows of nothing, which as a list would have 2^40 items
    made = one_node("ConstantOfShape", [known(np.zeros((0, 1)))])
    made.graph.initializer[0].dims[:] = [2**40, 0]

    assert count(made, tmp_path).unknown.keys() == {"onnx::ConstantOfShape"}
