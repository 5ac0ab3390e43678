"""What a file says of its results' shapes: it fills in what is unknown, and mends nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper
from tests.onnx.models import Operand, count, int64, known, model, one_node, x

Sizes = tuple[int | str, ...]


def stating(proto: onnx.ModelProto, *shapes: Sizes) -> onnx.ModelProto:
    """The model, with shapes of its outputs as exporters write them."""
    for output, shape in zip(proto.graph.output, shapes, strict=True):
        output.CopyFrom(helper.make_tensor_value_info(output.name, TensorProto.FLOAT, shape))
    return proto


@pytest.mark.parametrize(
    ("op", "operands", "attributes", "stated", "why"),
    [
        ("Add", [x("s", 3), x(5, 3)], {}, [("s", 3)], "Incompatible dimensions"),
        ("Concat", [x("s", 3), x(5, 6)], {"axis": 1}, [("s", 9)], "Inferred=5 Declared=6"),
        ("MatMul", [x(2, "s"), x(5, 4)], {}, [(2, 4)], "Incompatible dimensions"),
        ("Split", [x("s", 3), known([2, 3])], {}, [(2, 3), (3, 3)], "the sum of 'split' (5)"),
        ("Split", [x("s", 3), known([8, -2])], {}, [(8, 3), (2, 3)],
         "a side of its result would be -2"),
        ("TopK", [x("s", 3), known([7])], {"axis": 0}, [(7, 3), (7, 3)],
         "Axis has less than the requested k elements"),
    ],
)  # fmt: skip
def test_operands_that_do_not_fit_are_refused_all_the_same(
    op: str,
    operands: Sequence[Operand],
    attributes: Mapping[str, Any],
    stated: list[Sizes],
    why: str,
    tmp_path: Path,
) -> None:
    silent = one_node(op, operands, outputs=len(stated), **attributes)
    proto = stating(one_node(op, operands, outputs=len(stated), **attributes), *stated)
    dims = {"s": 6} if any("s" in operand.shape for operand in operands) else {}
    result = count(proto, tmp_path, dims=dims)
    # then it is as in a file that says nothing
    assert why in result.notes[-1]
    assert (list(result.unknown), result.coverage) == ([f"onnx::{op}"], 0)
    assert result.notes == count(silent, tmp_path, dims=dims).notes


def test_what_is_not_known_is_filled_in(tmp_path: Path) -> None:
    # given a shape that is data, of a result that the file calls (s, 4)
    nodes = [helper.make_node("Reshape", ["a", "shape"], ["y"]),
             helper.make_node("Relu", ["y"], ["z"])]  # fmt: skip
    proto = model(nodes, {"a": x(4, "s"), "shape": int64(2)}, ["z"])
    stated = helper.make_tensor_value_info("y", TensorProto.FLOAT, ("s", 4))
    proto.graph.value_info.append(stated)
    result = count(proto, tmp_path, dims={"s": 3})
    assert (result.total.flops, result.notes, result.coverage) == (12, (), 1)
