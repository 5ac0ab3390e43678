"""Nodes on which onnx's own inference would end the process, or would not end."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ridgeline.count.onnx.load import MOST_DIMS
from ridgeline.count.onnx.node import Tensor

if TYPE_CHECKING:
    from onnx import NodeProto

Operands = Sequence[Tensor | None]
EQUATION = re.compile(r"[A-Za-z.,> -]{0,1000}")  # others may have no end in onnx


def fatal(node: NodeProto, operands: Operands) -> str:
    """What is wrong with a node that onnx must not see; empty for all others."""
    check = CHECKS.get(node.op_type)
    return check(node, operands) if check is not None else ""


def _split(node: NodeProto, _: Operands) -> str:
    wrong = any(a.name == "num_outputs" and a.i != len(node.output) for a in node.attribute)
    return "num_outputs is not the number of its results" if wrong else ""


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
    return "" if all(map(EQUATION.fullmatch, texts)) else "its equation is not one"


CHECKS: dict[str, Callable[[NodeProto, Operands], str]] = {
    "Split": _split,
    "LayerNormalization": _axis,
    "RMSNormalization": _axis,
    "GatherND": _batch_dims,
    "Einsum": _equation,
}
