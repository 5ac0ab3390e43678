"""Nodes on which onnx's own inference would end the process, or not end, or overflow."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ridgeline.onnx.declared import MOST_DIMS
from ridgeline.onnx.node import Tensor
from ridgeline.onnx.shapes import range_length

if TYPE_CHECKING:
    from onnx import NodeProto

Operands = Sequence[Tensor | None]
LONGEST_EQUATION = 1000  # characters
TERM = r"[A-Za-z]*(?:\.\.\.[A-Za-z]*)?"
EQUATION = re.compile(rf"{TERM}(?:,{TERM})*(?:->{TERM})?")  # others may have no end in onnx


def fatal(node: NodeProto, operands: Operands) -> str:
    """What is wrong with a node that onnx must not see; empty for all others.

    A check may as well raise a MalformedError.
    """
    check = CHECKS.get(node.op_type)
    return check(node, operands) if check is not None else ""


def _split(node: NodeProto, operands: Operands) -> str:
    """By their number pieces are equal but for the last, which is not empty."""
    given, pieces = {a.name: a.i for a in node.attribute}, len(node.output)
    if "num_outputs" not in given:
        return ""
    if given["num_outputs"] != pieces:
        return "num_outputs is not the number of its results"
    dims, axis = operands[0].dims if operands and operands[0] else None, given.get("axis", 0)
    if dims is None or not pieces or any(operands[1:]) or not -len(dims) <= axis < len(dims):
        return ""
    before_last = -(-dims[axis] // pieces) * (pieces - 1)
    return "" if before_last < dims[axis] else f"a size of {dims[axis]} is not split into {pieces}"


def _axis(node: NodeProto, operands: Operands) -> str:
    rank = _rank(operands)
    axes = [a.i for a in node.attribute if a.name == "axis"]
    return "" if all(-rank <= axis < rank for axis in axes) else "its axis is none of its operand's"


def _batch_dims(node: NodeProto, operands: Operands) -> str:
    given = [a.i for a in node.attribute if a.name == "batch_dims"]
    fine = all(0 <= count < max(_rank(operands), 1) for count in given)
    return "" if fine else "its operand does not have so many dimensions for a batch"


def _rank(operands: Operands) -> int:
    """Of the first operand; the most there is where it is not known."""
    x = operands[0] if operands else None
    return len(x.dims) if x is not None and x.dims is not None else MOST_DIMS


def _equation(node: NodeProto, _: Operands) -> str:
    texts = [a.s.decode(errors="replace") for a in node.attribute if a.name == "equation"]
    return "" if all(map(_is_equation, texts)) else "its equation is not one"


def _is_equation(text: str) -> bool:
    """Blanks mean nothing; dots are three together, once in a term."""
    return len(text) <= LONGEST_EQUATION and EQUATION.fullmatch(text.replace(" ", "")) is not None


def _range(_: NodeProto, operands: Operands) -> str:
    values = [t.value for t in operands if t is not None and t.value is not None]
    if len(values) == 3 and all(value.size == 1 for value in values):
        range_length(*values)
    return ""


def _sizes(place: int) -> Callable[[NodeProto, Operands], str]:
    """This operand has a number for each dimension of the result."""

    def check(_: NodeProto, operands: Operands) -> str:
        sizes = operands[place] if place < len(operands) else None
        fits = sizes is None or sizes.numel <= MOST_DIMS
        return "" if fits else f"its result would have more than {MOST_DIMS} dimensions"

    return check


CHECKS: dict[str, Callable[[NodeProto, Operands], str]] = {
    "Split": _split,
    "LayerNormalization": _axis,
    "RMSNormalization": _axis,
    "GatherND": _batch_dims,
    "Einsum": _equation,
    "Range": _range,
    "Expand": _sizes(1),
    "Reshape": _sizes(1),
    "Unsqueeze": _sizes(1),
    "ConstantOfShape": _sizes(0),
    "Col2Im": _sizes(1),
}
