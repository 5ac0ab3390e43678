"""From a call with its cost to the piece that is compared: of PyTorch, or of a file."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from ridgeline.count.result import OpCost
from ridgeline.onnx.fused import OWN_DOMAINS
from ridgeline.onnx.natures import function_of
from ridgeline.onnx.node import Constants, NodeCall
from ridgeline.onnx.other_dtype import FLOATS
from ridgeline.onnx.pieces import OF_VALUES, OF_ZEROS, Piece
from ridgeline.onnx.reductions import reduction_of

TRUTHS = ("any", "all", "logical_and", "logical_or", "logical_xor", "logical_not")
ALONG_ONE_AXIS_SINCE = 13  # opset; before, a softmax is along all axes from the one given on
BIASES = 3  # the place of a recurrent node's biases among its operands


def operator_piece(op: OpCost, module: str) -> Piece:
    """An operator of PyTorch, or what a node has in common with one."""
    return Piece(
        op=op.op.rpartition("::")[2],
        kind=op.kind,
        module=module,
        cost=op.cost,
        is_float=op.dtype.startswith(FLOATS) and function_of(op) not in TRUTHS,
        is_contributed=op.op.startswith(OWN_DOMAINS),
        reduces=reduction_of(op),
        function=function_of(op),
        results=_results(op),
        widths=_widths(op),
        is_by_number=any(prod(tensor.shape) == 1 for tensor in op.call.inputs),
        along=_along(op) if op.kind == "softmax" else 0,
    )


def node_piece(op: OpCost, module: str, constants: Constants) -> Piece:
    """A node of the file."""
    return replace(
        operator_piece(op, module),
        is_nothing=any(is_it(op) for is_it in CHANGE_NOTHING),
        bias=_bias_of_cells(op),
        is_of_weights=all(tensor in constants for tensor in op.call.inputs),
    )


def _is_window_of_one(op: OpCost) -> bool:
    """A maximum of one number each: as many comparisons as there are numbers."""
    if op.op != "onnx::MaxPool" or not op.call.inputs or not op.call.outputs:
        return False
    shape = op.call.inputs[0].shape
    return shape == op.call.outputs[0].shape and op.cost.other_flops == prod(shape)


def _is_sum_with_zeros(op: OpCost) -> bool:
    """An addition of a mask that masks nothing: exporters write it, PyTorch leaves it out."""
    if op.op != "onnx::Add" or len(op.call.inputs) != 2 or not op.call.outputs:
        return False
    first, second = op.call.inputs
    made = op.call.outputs[0].shape
    return (_is_zeros(first) and second.shape == made) or (
        _is_zeros(second) and first.shape == made
    )


def _is_resize_to_same_size(op: OpCost) -> bool:
    """A resize to the same size."""
    if op.kind != "interpolate" or not op.call.inputs or not op.call.outputs:
        return False
    return bool(op.call.inputs[0].shape == op.call.outputs[0].shape)


def _is_zeros(tensor: Any) -> bool:
    return bool(getattr(tensor, "is_zero", False))


def _widths(op: OpCost) -> tuple[int, ...]:
    is_convolution = op.kind == "conv" and len(op.call.inputs) > 1
    return tuple(op.call.inputs[1].shape[:2]) if is_convolution else ()


def _results(op: OpCost) -> int:
    """How many numbers it makes, without the padding of onnxruntime's blocked layout."""
    if not op.call.outputs:
        return 0
    made = op.call.outputs[0]
    channels = getattr(made, "channels", None)
    shape = made.shape if channels is None else (*made.shape[:1], channels, *made.shape[2:])
    return prod(shape)


def _along(op: OpCost) -> int:
    """Over how many numbers a softmax goes; 0 where that is not known."""
    call: Any = op.call
    shape = call.inputs[0].shape if call.inputs else ()
    is_node = isinstance(call, NodeCall)
    is_flat = is_node and call.version < ALONG_ONE_AXIS_SINCE
    axis = call.attr("axis", 1 if is_flat else -1) if is_node else call.get("dim")
    if not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
        return 0
    return prod(shape[axis:]) if is_flat else int(shape[axis])


def _bias_of_cells(op: OpCost) -> str:
    """What the biases of a recurrent node are, as that of a product."""
    call: Any = op.call
    bias = call.get(BIASES) if op.kind == "recurrent" and isinstance(call, NodeCall) else None
    if bias is None:
        return ""
    return OF_ZEROS if bias.is_zero else OF_VALUES


CHANGE_NOTHING = (_is_window_of_one, _is_sum_with_zeros, _is_resize_to_same_size)
