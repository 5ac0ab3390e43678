"""What onnx itself says of a node's results: types and shapes, and small values; sequences.

Each node is inferred with the numbers of its operands' shapes and with the values that are known,
so a chain of Shape, Gather, Concat and Reshape never has to be guessed. Operators on few known
elements are run by onnx's reference implementation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.ops import load_op
from onnx.shape_inference import infer_node_outputs

from ridgeline.costs.work import MalformedError, Shape
from ridgeline.onnx.dims import LARGEST, shape_of, tensor_type
from ridgeline.onnx.node import BOOL, RANDOM, NodeCall, Tensor, dtype_of, new_ident, unknown_tensor

if TYPE_CHECKING:
    from onnx import (
        AttributeProto,
        NodeProto,
        OperatorSetIdProto,
        TensorProto,
        TypeProto,
    )
    from onnx.defs import OpSchema

Array = np.ndarray[Any, Any]
Items = tuple[Tensor, ...]
Operands = Sequence[Tensor | None]

MOST_ELEMENTS = 1 << 12  # of a value that is followed
LONGEST_REASON = 200  # characters of onnx's message
# onnx has them from these versions on; onnxruntime knows them, and its fusions write them, in all
EARLIER_IN_ONNXRUNTIME = {
    "LayerNormalization": 17, "MeanVarianceNormalization": 9, "ThresholdedRelu": 10
}  # fmt: skip


# ---------------------------------------------------------------- values by type


def make_tensor(name: str, elem: int, dims: Shape | None) -> Tensor:
    """A value of this type; of a size that nothing can have, the shape is not known."""
    if dims and (
        min(dims) < 0 or max(dims) > LARGEST or (len(dims) > 2 and prod(dims) > LARGEST**2)
    ):
        dims = None
    return Tensor(name, dims, elem, dtype_of(elem))


def from_type(name: str, kind: TypeProto, sizes: Mapping[str, int]) -> Tensor:
    """A value of this type; of a sequence nothing is known."""
    tensor = tensor_type(kind)
    if tensor is None:
        return unknown_tensor(name)
    return make_tensor(name, tensor.elem_type, shape_of(kind, sizes))


def from_array(name: str, array: Any) -> Tensor:
    """A value that is known in full."""
    elem = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    tensor = make_tensor(name, elem, tuple(array.shape))
    tensor.value = array
    return tensor


def is_small(dims: Shape | None) -> bool:
    """Whether a value is followed; one without elements may still have very long sides."""
    return dims is not None and max(prod(dims), *dims, 0) <= MOST_ELEMENTS


def from_stored(proto: TensorProto) -> Tensor:
    """An initializer or a constant; its elements only where they are few and in the file."""
    tensor = _as_weight(make_tensor(proto.name, proto.data_type, tuple(proto.dims)), proto)
    if is_small(tensor.dims):
        try:
            is_here = proto.data_location != onnx.TensorProto.EXTERNAL
            tensor.value = numpy_helper.to_array(proto) if is_here else None
        except Exception:  # broken or absent payload: onnx raises many kinds of error
            tensor.value = None
    return tensor


def from_constant(node: NodeProto, name: str) -> Tensor:
    """The result of a Constant node: stored in the file as an initializer is."""
    for attribute in node.attribute:
        if attribute.name == "value":
            return from_stored(attribute.t)
        if attribute.name in CONSTANTS:
            value = onnx.helper.get_attribute_value(attribute)
            return _as_weight(
                from_array(name, np.asarray(value, CONSTANTS[attribute.name])), attribute
            )
    return unknown_tensor(name)


CONSTANTS: dict[str, type] = {
    "value_int": np.int64, "value_ints": np.int64, "value_float": np.float32,
    "value_floats": np.float32, "value_string": object, "value_strings": object,
}  # fmt: skip


def _as_weight(tensor: Tensor, proto: TensorProto | AttributeProto) -> Tensor:
    tensor.is_weight = True
    tensor.ident = ident_of(proto)
    return tensor


def ident_of(proto: TensorProto | AttributeProto) -> int:
    """The same for all calls of a function, written where notes were."""
    if not proto.doc_string:  # the skeleton has none
        proto.doc_string = str(new_ident())
    return int(proto.doc_string)


# ---------------------------------------------------------------- onnx's inference


def infer(
    node: NodeProto, version: int, operands: Operands, opsets: list[OperatorSetIdProto]
) -> list[Tensor | None]:
    """The node's results as far as onnx can tell; what it refuses is a MalformedError."""
    results = unknown_results(node)
    schema = find_schema(node.op_type, version, node.domain)
    if schema is None:
        return results
    if node.op_type == "STFT" and not any(a.name == "onesided" for a in node.attribute):
        node.attribute.append(onnx.helper.make_attribute("onesided", 1))  # onnx infers as if 0
    if problem := inference_hazard(node):
        raise MalformedError(problem)
    named = [(name, t) for name, t in zip(node.input, operands, strict=False) if t is not None]
    types = {name: kind for name, t in named if (kind := _as_type(t)) is not None}
    if any(name not in types for name, _ in named):  # one is not known at all
        return results
    data = {
        name: numpy_helper.from_array(t.value, name)
        for name, t in named
        if t.value is not None and t.value.dtype != object
    }
    try:
        kinds = infer_node_outputs(schema, node, types, data, None, opsets)
    except Exception as error:  # onnx's InferenceError, RuntimeError, KeyError, ValueError, …
        raise MalformedError(_onnx_reason(error)) from error
    for kind in kinds.values():
        for dim in kind.tensor_type.shape.dim:
            if not 0 <= dim.dim_value <= LARGEST:
                raise MalformedError(f"a side of its result would be {dim.dim_value}")
    return [
        from_type(name, kinds[name], {}) if name and name in kinds else result
        for name, result in zip(node.output, results, strict=True)
    ]


def unknown_results(node: NodeProto) -> list[Tensor | None]:
    """One for each name that the node gives."""
    return [unknown_tensor(name) if name else None for name in node.output]


@lru_cache(maxsize=4096)
def find_schema(op_type: str, version: int, domain: str) -> OpSchema | None:
    """The operator's schema; None where onnx has none."""
    if not domain:
        version = max(version, EARLIER_IN_ONNXRUNTIME.get(op_type, version))
    try:
        return onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return None


@lru_cache(maxsize=1 << 15)
def _type_proto(elem: int, dims: Shape | None) -> TypeProto:
    return onnx.helper.make_tensor_type_proto(elem, dims)


def _as_type(tensor: Tensor) -> TypeProto | None:
    """As onnx writes it; None where even the element type is not known."""
    if tensor.items is not None:
        inner = tensor.items[0] if tensor.items else None
        if inner is None or not inner.elem:
            return None
        dims = inner.dims if len({item.dims for item in tensor.items}) == 1 else None
        return onnx.helper.make_sequence_type_proto(_type_proto(inner.elem, dims))
    return _type_proto(tensor.elem, tensor.dims) if tensor.elem else None


def _onnx_reason(error: Exception) -> str:
    """onnx's message, without the names that it puts before."""
    text = " ".join(str(error).split()).rpartition("): ")[2]
    return f"onnx refuses it: {text.partition('Error] ')[2] or text}"[:LONGEST_REASON]


# ---------------------------------------------------------------- hazards of onnx's inference

LONGEST_EQUATION = 1000  # characters
TERM = r"[A-Za-z]*(?:\.\.\.[A-Za-z]*)?"
EQUATION = re.compile(rf"{TERM}(?:,{TERM})*(?:->{TERM})?")  # others may never end in onnx


def inference_hazard(node: NodeProto) -> str:
    """A node on which onnx's inference would crash or hang; empty for all others."""
    for attribute in node.attribute:
        if node.op_type == "GatherND" and attribute.name == "batch_dims" and attribute.i < 0:
            return "its batch_dims are negative"
        if node.op_type == "Einsum" and attribute.name == "equation":
            text = attribute.s.decode(errors="replace").replace(" ", "")
            if len(text) > LONGEST_EQUATION or not EQUATION.fullmatch(text):
                return "its equation is not valid"
    return ""


# ---------------------------------------------------------------- small values


def evaluate_node(call: NodeCall, node: NodeProto) -> Sequence[Array | None]:
    """The values of the node's results; none where they are not known."""
    if call.domain:
        return ()
    if call.op_type in ("Shape", "Size"):
        return [_shape_value(call)]
    if call.refused or not call.inputs:
        return ()
    if call.op_type.startswith(RANDOM) or "Sequence" in call.op_type:
        return ()
    if any(t.value is None for t in call.inputs) or not all(is_small(t.dims) for t in call.outputs):
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
