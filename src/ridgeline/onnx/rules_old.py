"""Shapes of operators as the first five operator sets had them, which onnx no longer infers."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import onnx

from ridgeline.onnx.dtypes import BOOL
from ridgeline.onnx.node import MalformedError, NodeCall, Shape
from ridgeline.onnx.rules import Type, like

NEWER = 7  # from here on onnx's own inference has all of these
SAME = frozenset({
    "Abs", "Add", "And", "BatchNormalization", "Ceil", "Clip", "Div", "Dropout", "Elu", "Exp",
    "Floor", "HardSigmoid", "Identity", "InstanceNormalization", "LeakyRelu", "Log", "Max",
    "Mean", "Min", "Mul", "Neg", "Not", "Or", "PRelu", "Pow", "Reciprocal", "Relu", "Selu",
    "Sigmoid", "Sqrt", "Sub", "Sum", "Tanh", "Xor",
})  # fmt: skip
COMPARED = frozenset({"Equal", "Greater", "Less"})  # the second operand fits into the first


def old_form(call: NodeCall) -> list[Type | None]:
    """Element type and shape of the first result; none where no rule is here."""
    if call.domain or call.version >= NEWER or not call.x.is_known:
        return []
    if call.op_type in SAME:
        return [like(call.x)]
    if call.op_type in COMPARED:
        return [(BOOL, call.x.shape)]
    rule = RULES.get(call.op_type)
    return [rule(call)] if rule is not None else []


def _cast(call: NodeCall) -> Type:
    """The type was a name: FLOAT."""
    to = call.attr("to")
    return (onnx.TensorProto.DataType.Value(to) if isinstance(to, str) else int(to)), call.x.shape


def _tile(call: NodeCall) -> Type:
    """So many times along one axis."""
    shape, tiles, axis = list(call.x.shape), _number(call, 1), _number(call, 2)
    shape[axis] *= tiles
    return call.x.elem, tuple(shape)


def _number(call: NodeCall, place: int) -> int:
    value = call.given(place).value
    if value is None or value.size != 1:
        raise MalformedError(f"operand {place} is not one number")
    return int(value.ravel()[0])


def _pad(call: NodeCall) -> Type:
    pads = call.wholes("paddings") or call.wholes("pads")
    shape = call.x.shape
    before, after = pads[: len(shape)], pads[len(shape) :]
    padded = [n + a + b for n, a, b in zip(shape, before, after, strict=True)]
    return call.x.elem, tuple(padded)


def _upsample(call: NodeCall) -> Type:
    *outer, height, width = call.x.shape
    scales = float(call.attr("height_scale")), float(call.attr("width_scale"))
    return call.x.elem, (*outer, int(height * scales[0]), int(width * scales[1]))


def _reshape(call: NodeCall) -> Type:
    """0 keeps a size, -1 is what is left."""
    asked = call.wholes("shape")
    kept = [call.x.shape[n] if size == 0 else size for n, size in enumerate(asked)]
    rest = prod(size for size in kept if size != -1)
    shape: Shape = tuple(call.x.numel // rest if size == -1 else size for size in kept)
    if prod(shape) != call.x.numel:
        raise MalformedError("the shape has another number of elements")
    return call.x.elem, shape


def _concat(call: NodeCall) -> Type:
    axis, shape = call.whole("axis", 1), list(call.x.shape)
    shape[axis] = sum(t.shape[axis] for t in call.inputs)
    return call.x.elem, tuple(shape)


RULES: dict[str, Callable[[NodeCall], Type]] = {
    "Cast": _cast, "Tile": _tile, "Pad": _pad, "Upsample": _upsample, "Reshape": _reshape,
    "Concat": _concat,
}  # fmt: skip
