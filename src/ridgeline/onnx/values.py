"""Small values followed through the graph: the numbers that shapes are made of; and sequences.

The operators that exporters use for shapes are computed with numpy here; any other on few elements
is run by onnx's reference evaluator. Nothing larger than a few thousand elements is ever computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from ridgeline.costs.work import MalformedError
from ridgeline.onnx.dims import MOST_ITEMS
from ridgeline.onnx.infer import MOST_ELEMENTS, from_array, is_small, make_tensor, range_length
from ridgeline.onnx.node import BOOL, NodeCall, Tensor, unknown_tensor

if TYPE_CHECKING:
    from onnx import NodeProto, OperatorSetIdProto

Array = np.ndarray[Any, Any]
Rule = Callable[[NodeCall, list[Array]], Array]
Items = tuple[Tensor, ...]

_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Equal": np.equal, "Less": np.less,
    "Greater": np.greater, "LessOrEqual": np.less_equal, "GreaterOrEqual": np.greater_equal,
    "And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor,
}  # fmt: skip
_UNARY: dict[str, Callable[[Any], Any]] = {
    "Neg": np.negative, "Not": np.logical_not, "Floor": np.floor, "Ceil": np.ceil, "Sqrt": np.sqrt,
    "Abs": np.abs, "Identity": lambda x: x, "Relu": lambda x: np.maximum(x, 0),
}  # fmt: skip


def _divide(_: NodeCall, x: list[Array]) -> Array:
    if x[0].dtype.kind not in "iu":
        return np.asarray(np.divide(x[0], x[1]))
    if not np.all(x[1]):
        raise ZeroDivisionError
    return np.asarray(np.trunc(np.divide(x[0], x[1]))).astype(x[0].dtype)


def _cast(call: NodeCall, x: list[Array]) -> Array:
    return x[0].astype(onnx.helper.tensor_dtype_to_np_dtype(call.attr("to")))


def _axes(call: NodeCall, x: list[Array]) -> tuple[int, ...] | None:
    axes = x[1].ravel().tolist() if len(x) > 1 else call.attr("axes")
    return None if axes is None else tuple(int(a) for a in axes)


def _unsqueeze(call: NodeCall, x: list[Array]) -> Array:
    return np.expand_dims(x[0], _axes(call, x) or ())


def _squeeze(call: NodeCall, x: list[Array]) -> Array:
    return np.squeeze(x[0], _axes(call, x))


def _slice(call: NodeCall, x: list[Array]) -> Array:
    if len(x) == 1:
        starts, ends = call.attr("starts"), call.attr("ends")
        axes, steps = call.attr("axes") or range(len(starts)), [1] * len(starts)
    else:
        starts, ends = x[1].tolist(), x[2].tolist()
        axes = x[3].tolist() if len(x) > 3 else range(len(starts))
        steps = x[4].tolist() if len(x) > 4 else [1] * len(starts)
    cut = [slice(None)] * x[0].ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        size = x[0].shape[axis]
        last = None if step < 0 and end < -size else end
        cut[axis] = slice(start, last, step)
    return x[0][tuple(cut)]


def _range(_: NodeCall, x: list[Array]) -> Array:
    length = range_length(*x)
    if length > MOST_ELEMENTS:
        raise MalformedError("it is too long")
    places = np.arange(length).astype(x[0].dtype)
    return np.asarray(x[0].ravel()[0] + places * x[2].ravel()[0], x[0].dtype)


def _constant_of_shape(call: NodeCall, x: list[Array]) -> Array:
    shape = tuple(x[0].ravel().tolist())
    if not is_small(shape):
        raise MalformedError("it is too large")
    value = call.attr("value")
    if value is None:
        return np.zeros(shape, np.float32)
    if value.data_location == onnx.TensorProto.EXTERNAL:
        raise MalformedError("its value is in another file")
    first = onnx.numpy_helper.to_array(value).ravel()[:1]
    return np.full(shape, first[0], first.dtype)


def _reshape(call: NodeCall, x: list[Array]) -> Array:
    return x[0].reshape(call.out.shape)


RULES: dict[str, Rule] = {
    "Gather": lambda c, x: np.take(x[0], x[1], axis=c.attr("axis", 0)),
    "Concat": lambda c, x: np.concatenate(x, axis=c.attr("axis", 0)),
    "Where": lambda c, x: np.where(x[0], x[1], x[2]),
    "Expand": lambda c, x: np.broadcast_to(x[0], c.out.shape),
    "Transpose": lambda c, x: np.transpose(x[0], c.attr("perm")),
    "Unsqueeze": _unsqueeze, "Squeeze": _squeeze, "Slice": _slice, "Cast": _cast, "Div": _divide,
    "Range": _range, "ConstantOfShape": _constant_of_shape, "Reshape": _reshape,
    "Flatten": _reshape,
}  # fmt: skip
for _name, _function in _BINARY.items():
    RULES[_name] = lambda c, x, f=_function: np.asarray(f(x[0], x[1]))  # type: ignore[misc]
for _name, _one in _UNARY.items():
    RULES[_name] = lambda c, x, f=_one: np.asarray(f(x[0]))  # type: ignore[misc]

EVALUATED = frozenset({
    "Min", "Max", "Mod", "Tile", "Pad", "ReduceSum", "ReduceProd", "ReduceMin", "ReduceMax",
    "ReduceMean", "Clip", "Sign", "Round", "Split", "ScatterND", "ScatterElements", "GatherND",
    "GatherElements", "CumSum", "OneHot", "Trilu", "TopK", "ArgMax", "ArgMin", "NonZero",
    "Compress", "Unique", "Exp", "Log", "Pow", "Reciprocal", "CastLike", "BitShift",
    "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "EyeLike", "Sum", "Mean", "IsNaN",
    "IsInf", "Resize",
})  # fmt: skip
"""Run by the reference evaluator where all operands are known and small."""
GROWING = ("Tile", "Pad", "OneHot", "Resize", "Split")  # so their results must be known to be small


def _shape_value(call: NodeCall) -> Array | None:
    """The value of Shape and Size, which need no operand's value."""
    x = call.get(0)
    if x is None or not x.is_known or x.items is not None:
        return None
    if call.op_type == "Size":
        return np.asarray(x.numel, np.int64)
    start, end = call.int_attr("start", 0), call.int_attr("end", len(x.shape))
    return np.asarray(x.shape[slice(start, end)], np.int64)


def evaluate_node(
    call: NodeCall, node: NodeProto, opsets: list[OperatorSetIdProto]
) -> Sequence[Array | None]:
    """The values of the node's results, None where they are not known."""
    none = [None] * len(node.output)
    if call.domain:
        return none
    if call.op_type in ("Shape", "Size"):
        return [_shape_value(call), *none[1:]]
    if call.refused or not call.inputs or any(t.value is None for t in call.inputs):
        return none
    if not all(_small(t) for t in call.outputs):
        return none
    values = [t.value for t in call.inputs if t.value is not None]
    try:
        with np.errstate(all="ignore"):
            if call.op_type in RULES and len(values) == len(call.operands):
                results: list[Array | None] = [RULES[call.op_type](call, values)]
            elif call.op_type in EVALUATED:
                results = _evaluate(node, values, call, opsets)
            else:
                return none
    except Exception:  # a value that cannot be computed is not known
        return none
    fine = [v if v is not None and is_small(v.shape) else None for v in results]
    return [*fine, *none[len(fine) :]]


def _small(tensor: Tensor) -> bool:
    """Unknown results may be tried: they come from small operands by operators that do not grow."""
    return tensor.dims is None or is_small(tensor.dims)


def _evaluate(
    node: NodeProto, values: list[Array], call: NodeCall, opsets: list[OperatorSetIdProto]
) -> list[Array | None]:
    from onnx.reference import ReferenceEvaluator

    if call.op_type in GROWING and not all(t.is_known for t in call.outputs):
        return []
    names = [name for name in dict.fromkeys(node.input) if name]
    arrays = dict(zip([n for n in node.input if n], values, strict=True))
    graph = onnx.helper.make_graph(
        [node],
        "one",
        [_info(name, arrays[name]) for name in names],
        [onnx.helper.make_value_info(name, onnx.TypeProto()) for name in node.output if name],
    )
    model = onnx.helper.make_model(graph, opset_imports=opsets)
    results = iter(ReferenceEvaluator(model).run(None, {name: arrays[name] for name in names}))
    return [np.asarray(next(results)) if name else None for name in node.output]


def _info(name: str, array: Array) -> Any:
    elem = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return onnx.helper.make_tensor_value_info(name, elem, array.shape)


# ---------------------------------------------------------------- sequences


def make_sequence(name: str, items: Items) -> Tensor:
    tensor = unknown_tensor(name)
    tensor.items = items
    return tensor


def sequence_result(call: NodeCall, name: str) -> Tensor | None:
    """The result of an operator on sequences; None where another rule must tell."""
    x = call.get(0)
    if call.op_type == "OptionalHasElement":
        return make_tensor(name, BOOL, ())
    if call.op_type == "SequenceConstruct":
        return make_sequence(name, call.inputs)
    if call.op_type == "SequenceEmpty":
        return make_sequence(name, ())
    if call.op_type == "SplitToSequence" and x is not None:
        return _split(call, x, name)
    if x is None:
        return None
    if call.op_type in ("Identity", "Optional", "OptionalGetElement") and x.items is not None:
        return make_sequence(name, x.items)
    if x.items is None and x.each is not None and call.op_type == "SequenceAt":
        return _item_at((x.each,), None, name)
    if x.items is None:
        return None
    if call.op_type == "SequenceLength":
        return from_array(name, np.asarray(len(x.items), np.int64))
    if call.op_type == "SequenceAt":
        return _item_at(x.items, call.get(1), name)
    if call.op_type in ("SequenceInsert", "SequenceErase"):
        return make_sequence(name, _change_items(call, x.items))
    if call.op_type == "ConcatFromSequence":
        return _concatenate(call, x.items, name)
    return None


def _place(index: Tensor | None, default: int) -> int:
    if index is None or index.value is None:
        return default
    return int(index.value.ravel()[0])


def _item_at(items: Items, index: Tensor | None, name: str) -> Tensor:
    """The item at a place; where the place is not known, the first."""
    if not items:
        return unknown_tensor(name)
    place = _place(index, 0)
    item = items[place] if -len(items) <= place < len(items) else items[0]
    return Tensor(name, item.dims, item.elem, item.dtype, item.value)


def _change_items(call: NodeCall, items: Items) -> Items:
    if call.op_type == "SequenceErase":
        place = _place(call.get(1), len(items) - 1) % max(len(items), 1)
        return items[:place] + items[place + 1 :]
    place = _place(call.get(2), len(items))
    return (*items[:place], call.operand(1), *items[place:])


def _split(call: NodeCall, x: Tensor, name: str) -> Tensor | None:
    """Parts along an axis: of known lengths, of one length, or of one element each."""
    if not x.dims:
        return None
    axis, split, keep = call.int_attr("axis", 0) % len(x.dims), call.get(1), True
    total = x.dims[axis]
    if split is None:
        each, keep = 1, bool(call.int_attr("keepdims", 1))
    elif split.value is None:
        return None
    else:
        each = 0 if split.value.ndim else max(int(split.value), 1)
    if each and total // each > MOST_ITEMS:
        return None
    if each:
        lengths = [each] * (total // each) + ([total % each] if total % each else [])
    else:
        assert split is not None and split.value is not None
        lengths = [int(n) for n in split.value.ravel()]
    if len(lengths) > MOST_ITEMS:
        return None
    before, after = x.dims[:axis], x.dims[axis + 1 :]
    parts = [
        make_tensor(f"{name}[{n}]", x.elem, (*before, *((length,) if keep else ()), *after))
        for n, length in enumerate(lengths)
    ]
    return make_sequence(name, tuple(parts))


def _concatenate(call: NodeCall, items: Items, name: str) -> Tensor | None:
    if not items or any(item.dims is None for item in items):
        return None
    first = items[0].shape
    if call.attr("new_axis", 0):
        axis = call.int_attr("axis", 0) % (len(first) + 1)
        return make_tensor(name, items[0].elem, (*first[:axis], len(items), *first[axis:]))
    if not first:
        return None
    axis = call.int_attr("axis", 0) % len(first)
    total = sum(item.shape[axis] for item in items)
    return make_tensor(name, items[0].elem, (*first[:axis], total, *first[axis + 1 :]))
