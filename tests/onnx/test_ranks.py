"""Inputs of which the file tells no shape: they are asked for where a count depends on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper
from tests.onnx.models import Operand, count, model, weight, x

from ridgeline.errors import RidgelineError


def without_shape(nodes: list[Any], **inputs: Operand) -> Any:
    """A model of these nodes on `a`, of which only the type is told."""
    made = model(nodes, inputs, ["y"], stored={"w": weight(8, 4)})
    made.graph.input.insert(0, helper.make_tensor_value_info("a", TensorProto.FLOAT, None))
    return made


PRODUCT = [helper.make_node("MatMul", ["a", "w"], ["y"], name="product")]
ASKED = (
    "the file has no shape, not even the number of dimensions, of 'a'\n"
    "  hint: give all sizes in order: --dim a_0=N --dim a_1=N and so on"
    " (--dim a_rank=0 if it is a single number)"
)


def asked(made: Any, folder: Path, **settings: Any) -> str:
    with pytest.raises(RidgelineError) as raised:
        count(made, folder, **settings)
    return str(raised.value)


def test_the_shape_is_asked_for(tmp_path: Path) -> None:
    made = without_shape(PRODUCT)

    assert asked(made, tmp_path) == asked(made, tmp_path, batch_size=3) == ASKED


@pytest.mark.parametrize(
    ("settings", "rows"),
    [
        ({"dims": {"a_0": 3, "a_1": 8}}, 3),
        ({"batch_size": 3, "dims": {"a_1": 8}}, 3),
        ({"dims": {"a_0": 3, "a_1": 5, "a_2": 8}}, 3 * 5),
        ({"dims": {"a_rank": 2, "a_0": 3, "a_1": 8}}, 3),
    ],
)
def test_the_sizes_that_are_given_make_the_shape(
    settings: dict[str, Any], rows: int, tmp_path: Path
) -> None:
    result = count(without_shape(PRODUCT), tmp_path, **settings)

    assert (result.total.macs, result.coverage, result.batch_size) == (rows * 8 * 4, 1, 3)


def test_a_size_between_is_asked_for(tmp_path: Path) -> None:
    assert asked(without_shape(PRODUCT), tmp_path, batch_size=3, dims={"a_2": 8}) == (
        "the file leaves 1 dimension open: a_1 (of a[1])\n  hint: give --dim a_1=N"
    )


def test_a_single_number(tmp_path: Path) -> None:
    made = without_shape([helper.make_node("Mul", ["b", "a"], ["y"])], b=x(5, 6))

    assert count(made, tmp_path, dims={"a_rank": 0}).total.other_flops == 5 * 6


def test_it_may_be_needed_further_on(tmp_path: Path) -> None:
    made = without_shape([helper.make_node("Transpose", ["a"], ["t"]),
                          helper.make_node("MatMul", ["t", "w"], ["y"])])  # fmt: skip

    assert asked(made, tmp_path) == ASKED
    assert count(made, tmp_path, dims={"a_0": 8, "a_1": 3}).total.macs == 3 * 8 * 4


def test_items_of_a_sequence(tmp_path: Path) -> None:
    items = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    made = model([helper.make_node("ConcatFromSequence", ["a"], ["y"], axis=0)], {}, ["y"])
    made.graph.input.append(helper.make_value_info("a", helper.make_sequence_type_proto(items)))
    length = {"a_length": 5}

    assert asked(made, tmp_path, dims=length) == ASKED
    result = count(made, tmp_path, dims={**length, "a_0": 2, "a_1": 3})
    assert result.modules[""].output_shapes == ((10, 3),)


@pytest.mark.parametrize(
    "reads",
    [
        [],
        [helper.make_node("Shape", ["a"], ["s"])],
        [helper.make_node("Odd", ["a"], ["s"], domain="some.one")],
    ],
    ids=["nobody", "its shape alone", "an operator without a formula"],
)
def test_it_is_not_asked_for_where_no_count_depends_on_it(reads: list[Any], tmp_path: Path) -> None:
    made = without_shape([helper.make_node("MatMul", ["b", "w"], ["y"]), *reads], b=x(2, 8))

    assert count(made, tmp_path).total.macs == 2 * 8 * 4
