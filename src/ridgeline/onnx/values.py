"""Small values followed through the graph: the numbers that shapes are made of; and sequences.

Operators on few known elements are run by onnx's reference implementation. Nothing larger than a
few thousand elements is ever computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx.reference import ReferenceEvaluator
from onnx.reference.ops import load_op

from ridgeline.onnx.infer import from_array, is_small, make_tensor
from ridgeline.onnx.node import BOOL, NodeCall, Tensor, unknown_tensor

if TYPE_CHECKING:
    from onnx import NodeProto

Array = np.ndarray[Any, Any]
Items = tuple[Tensor, ...]

EVALUATED = frozenset({
    "Abs", "Add", "And", "ArgMax", "ArgMin", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr",
    "BitwiseXor", "Cast", "CastLike", "Ceil", "Clip", "Compress", "Concat", "ConstantOfShape",
    "CumSum", "Div", "Equal", "Exp", "Expand", "EyeLike", "Flatten", "Floor", "Gather",
    "GatherElements", "GatherND", "Greater", "GreaterOrEqual", "Identity", "IsInf", "IsNaN", "Less",
    "LessOrEqual", "Log", "Max", "Mean", "Min", "Mod", "Mul", "Neg", "NonZero", "Not", "OneHot",
    "Or", "Pad", "Pow", "Range", "Reciprocal", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "Relu", "Reshape", "Resize", "Round", "ScatterElements", "ScatterND", "Sign",
    "Slice", "Split", "Sqrt", "Squeeze", "Sub", "Sum", "Tile", "TopK", "Transpose", "Trilu",
    "Unique", "Unsqueeze", "Where", "Xor",
})  # fmt: skip
"""Operators that exporters compute shapes with; evaluated where all operands are known."""
GROWING = frozenset({
    "ConstantOfShape", "Expand", "OneHot", "Pad", "Range", "Reshape", "Resize", "Split", "Tile",
})  # fmt: skip
"""Their results may be large, so these must be known to be small."""


def evaluate_node(call: NodeCall, node: NodeProto) -> Sequence[Array | None]:
    """The values of the node's results; none where they are not known."""
    if call.domain:
        return ()
    if call.op_type in ("Shape", "Size"):
        return [_shape_value(call)]
    if call.op_type not in EVALUATED or call.refused or not call.inputs:
        return ()
    if any(t.value is None for t in call.inputs) or not all(_may_be_small(call)):
        return ()
    parameters = {"log": _log_nothing, "opsets": {"": call.version}, "verbose": 0,
                  "evaluator_cls": ReferenceEvaluator, "new_ops": None}  # fmt: skip
    try:
        with np.errstate(all="ignore", divide="raise"):
            operator = load_op("", call.op_type, call.version, evaluator_cls=ReferenceEvaluator)
            results = operator(node, parameters).run(*(t and t.value for t in call.operands))
    except Exception:  # a value that cannot be computed is not known
        return ()
    arrays = map(np.asarray, results)
    return [array if is_small(array.shape) else None for array in arrays]


def _log_nothing(*_: object) -> None:
    """The reference implementation's log."""


def _may_be_small(call: NodeCall) -> list[bool]:
    """Of each result; one of unknown size comes from small operands, and most do not grow."""
    return [
        is_small(t.dims) if t.dims is not None else call.op_type not in GROWING
        for t in call.outputs
    ]


def _shape_value(call: NodeCall) -> Array | None:
    """The value of Shape and Size, which need no operand's value."""
    x = call.get(0)
    if x is None or not x.is_known or x.items is not None:
        return None
    if call.op_type == "Size":
        return np.asarray(x.numel, np.int64)
    start, end = call.int_attr("start", 0), call.int_attr("end", len(x.shape))
    return np.asarray(x.shape[slice(start, end)], np.int64)


# ---------------------------------------------------------------- sequences


def make_sequence(name: str, items: Items) -> Tensor:
    tensor = unknown_tensor(name)
    tensor.items = items
    return tensor


def sequence_result(call: NodeCall, name: str) -> Tensor | None:
    """The result of an operator on sequences; None where another rule must tell."""
    x, kind = call.get(0), call.op_type
    if kind == "OptionalHasElement":
        return make_tensor(name, BOOL, ())
    if kind == "SequenceConstruct":
        return make_sequence(name, call.inputs)
    if kind == "SequenceEmpty":
        return make_sequence(name, ())
    if x is None:
        return None
    if kind == "SplitToSequence":
        return _split(call, x, name)
    if x.items is None:
        return None
    if kind in ("Identity", "Optional", "OptionalGetElement"):
        return make_sequence(name, x.items)
    if kind == "SequenceLength":
        return from_array(name, np.asarray(len(x.items), np.int64))
    if kind == "SequenceAt":
        return _item_at(x.items, call.get(1), name)
    if kind in ("SequenceInsert", "SequenceErase"):
        return make_sequence(name, _change_items(call, x.items))
    return _concatenate(call, x.items, name) if kind == "ConcatFromSequence" else None


def _index(operand: Tensor | None, default: int) -> int:
    known = operand.first_value if operand is not None else None
    return default if known is None else int(known)


def _item_at(items: Items, index: Tensor | None, name: str) -> Tensor:
    """The item at an index; where that is not known, the first."""
    if not items:
        return unknown_tensor(name)
    number = _index(index, 0)
    item = items[number] if -len(items) <= number < len(items) else items[0]
    return Tensor(name, item.dims, item.elem, item.dtype, item.value)


def _change_items(call: NodeCall, items: Items) -> Items:
    if call.op_type == "SequenceErase":
        number = _index(call.get(1), -1) % max(len(items), 1)
        return items[:number] + items[number + 1 :]
    number = _index(call.get(2), len(items))
    return (*items[:number], call.operand(1), *items[number:])


def _split(call: NodeCall, x: Tensor, name: str) -> Tensor | None:
    """Parts along an axis: of known lengths, of one length, or of one element each."""
    split = call.get(1)
    if not x.dims or (split is not None and split.value is None):
        return None
    axis, keeps = call.int_attr("axis", 0) % len(x.dims), True
    total = x.dims[axis]
    if split is not None and split.value is not None and split.value.ndim:
        lengths = [int(length) for length in split.value.ravel()]
    else:
        keeps = split is not None or bool(call.int_attr("keepdims", 1))
        each = max(_index(split, 1), 1)
        lengths = [min(each, total - start) for start in range(0, total, each)]
    before, after = x.dims[:axis], x.dims[axis + 1 :]
    shapes = [(*before, *((length,) if keeps else ()), *after) for length in lengths]
    items = [make_tensor(f"{name}[{n}]", x.elem, shape) for n, shape in enumerate(shapes)]
    return make_sequence(name, tuple(items))


def _concatenate(call: NodeCall, items: Items, name: str) -> Tensor | None:
    if not items or any(item.dims is None for item in items):
        return None
    first, is_new = items[0].shape, bool(call.attr("new_axis", 0))
    if not first and not is_new:
        return None
    axis = call.int_attr("axis", 0) % (len(first) + is_new)
    total = len(items) if is_new else sum(item.shape[axis] for item in items)
    return make_tensor(name, items[0].elem, (*first[:axis], total, *first[axis + (not is_new) :]))
