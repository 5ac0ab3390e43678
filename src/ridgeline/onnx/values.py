"""Small values followed through the graph: the numbers that shapes are made of.

The operators that exporters use for shapes are worked out with numpy here; any other on few
elements is run by onnx's reference evaluator. Nothing larger than a few thousand elements is
ever computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from ridgeline.onnx.infer import MOST_ELEMENTS, is_small
from ridgeline.onnx.node import MalformedError, NodeCall, Tensor
from ridgeline.onnx.shapes import range_length

if TYPE_CHECKING:
    from onnx import NodeProto, OperatorSetIdProto

Array = np.ndarray[Any, Any]
Rule = Callable[[NodeCall, list[Array]], Array]

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


def _filled(call: NodeCall, x: list[Array]) -> Array:
    shape = tuple(x[0].ravel().tolist())
    if not is_small(shape):
        raise MalformedError("it is too large")
    fill = _fill_of(call)
    return np.full(shape, fill[0], fill.dtype)


def _fill_of(call: NodeCall) -> Array:
    value = call.attr("value")
    if value is None:
        return np.zeros(1, np.float32)
    if value.data_location == onnx.TensorProto.EXTERNAL:
        raise MalformedError("its value is in another file")
    return onnx.numpy_helper.to_array(value).ravel()[:1]


def _reshape(call: NodeCall, x: list[Array]) -> Array:
    return x[0].reshape(call.out.shape)


RULES: dict[str, Rule] = {
    "Gather": lambda c, x: np.take(x[0], x[1], axis=c.attr("axis", 0)),
    "Concat": lambda c, x: np.concatenate(x, axis=c.attr("axis", 0)),
    "Where": lambda c, x: np.where(x[0], x[1], x[2]),
    "Expand": lambda c, x: np.broadcast_to(x[0], c.out.shape),
    "Transpose": lambda c, x: np.transpose(x[0], c.attr("perm")),
    "Unsqueeze": _unsqueeze, "Squeeze": _squeeze, "Slice": _slice, "Cast": _cast, "Div": _divide,
    "Range": _range, "ConstantOfShape": _filled, "Reshape": _reshape, "Flatten": _reshape,
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


MOVES = frozenset({"Slice", "Split", "Concat", "Expand", "Tile", "Reshape", "Unsqueeze", "Squeeze",
                   "Transpose", "Gather", "GatherND", "Flatten", "Resize"})  # fmt: skip
FILLING: dict[str, int | None] = {  # how many of its operands decide what is in the results
    **dict.fromkeys((*_BINARY, *_UNARY, "Where", "Cast", "Div")),
    **dict.fromkeys(MOVES, 1),
    "Concat": None,
    "ConstantOfShape": 0,
}


def filled(call: NodeCall) -> Array | None:
    """The one number that all elements of the results are; None where it is not known."""
    if call.domain or call.refused:
        return None
    if call.op_type not in FILLING or not call.inputs or _is_looked_up(call):
        return None
    taken = call.inputs[: FILLING[call.op_type]]
    numbers = [one for t in taken if (one := _one_number(t)) is not None]
    if len(numbers) != len(taken):
        return None
    try:
        with np.errstate(all="ignore"):
            return _worked_out(call, numbers)
    except Exception:  # a number that cannot be worked out is one that is not known
        return None


def _is_looked_up(call: NodeCall) -> bool:
    """Rows of a stored table that data choose: training makes them differ."""
    is_lookup = call.op_type in ("Gather", "GatherND") and call.inputs[0].is_weight
    return is_lookup and not all(t.is_fixed for t in call.inputs)


def _worked_out(call: NodeCall, numbers: list[Array]) -> Array | None:
    if call.op_type == "ConstantOfShape":
        return _fill_of(call)
    if call.attr("coordinate_transformation_mode") == "tf_crop_and_resize":
        return None  # what is outside is another number
    if call.op_type in MOVES:
        return numbers[0] if all(one == numbers[0] for one in numbers) else None
    return RULES[call.op_type](call, numbers)


def _one_number(tensor: Tensor) -> Array | None:
    if tensor.fill is not None or tensor.value is None:
        return tensor.fill
    first = tensor.value.ravel()[:1]
    is_one = first.size and first.dtype != object and bool((tensor.value == first).all())
    return first if is_one else None


def shape_value(call: NodeCall) -> Array | None:
    """The value of Shape and Size, which need no operand's value."""
    x = call.get(0)
    if x is None or not x.is_known or x.items is not None:
        return None
    if call.op_type == "Size":
        return np.asarray(x.numel, np.int64)
    start, end = call.whole("start", 0), call.whole("end", len(x.shape))
    return np.asarray(x.shape[slice(start, end)], np.int64)


def follow(
    call: NodeCall, node: NodeProto, opsets: list[OperatorSetIdProto]
) -> Sequence[Array | None]:
    """The values of the node's results, None where they are not known."""
    none = [None] * len(node.output)
    if call.domain:
        return none
    if call.op_type in ("Shape", "Size"):
        return [shape_value(call), *none[1:]]
    if call.refused or not call.inputs or any(t.value is None for t in call.inputs):
        return none
    if not all(_small(t) for t in call.outputs):
        return none
    values = [t.value for t in call.inputs if t.value is not None]
    try:
        with np.errstate(all="ignore"):
            if call.op_type in RULES and len(values) == len(call.operands):
                found: list[Array | None] = [RULES[call.op_type](call, values)]
            elif call.op_type in EVALUATED:
                found = _evaluate(node, values, call, opsets)
            else:
                return none
    except Exception:  # a value that cannot be worked out is a value that is not known
        return none
    fine = [v if v is not None and is_small(v.shape) else None for v in found]
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
    found = iter(ReferenceEvaluator(model).run(None, {name: arrays[name] for name in names}))
    return [np.asarray(next(found)) if name else None for name in node.output]


def _info(name: str, array: Array) -> Any:
    elem = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return onnx.helper.make_tensor_value_info(name, elem, array.shape)
