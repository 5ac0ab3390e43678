"""Types and shapes of a node's results, from its operands: onnx's own inference, node by node.

Each node is inferred with the numbers of its operands' shapes and with the values that are known,
so a chain of Shape, Gather, Concat and Reshape never has to be guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.shape_inference import infer_node_outputs

from ridgeline.onnx.declared import LARGEST, length_of, shape_of, tensor_type
from ridgeline.onnx.dtypes import dtype_of
from ridgeline.onnx.fatal import fatal
from ridgeline.onnx.node import MalformedError, Shape, Tensor, new_number, unknown_tensor

if TYPE_CHECKING:
    from onnx import (
        AttributeProto,
        NodeProto,
        OperatorSetIdProto,
        SparseTensorProto,
        TensorProto,
        TypeProto,
    )
    from onnx.defs import OpSchema

LATER = 13  # by then every operator of the first set has inference
MOST_ELEMENTS = 1 << 12  # of a value that is followed

Kinds = tuple[tuple[int, Shape | None, bytes], ...]
Key = tuple[str, str, int, bytes, Kinds, tuple[bool, ...]]
# networks repeat themselves: the same operator on the same shapes has the same results
_SEEN: dict[Key, list[tuple[int, Shape | None]]] = {}
MOST_SEEN = 1 << 14  # results that are remembered, so that memory stays small
FEW = 64  # elements of a value that is part of a key
LONGEST_REASON = 200  # characters of what onnx says
LONGEST_SETTINGS = 1 << 12  # bytes of attributes likewise


# onnx has them from these versions on; onnxruntime knows them, and its fusions write them, in all
EARLIER_IN_ONNXRUNTIME = {
    "LayerNormalization": 17, "MeanVarianceNormalization": 9, "ThresholdedRelu": 10
}  # fmt: skip


@lru_cache(maxsize=4096)
def schema_of(op_type: str, version: int, domain: str) -> OpSchema | None:
    """The operator's schema; a first version without inference is read as the next."""
    if not domain:
        version = max(version, EARLIER_IN_ONNXRUNTIME.get(op_type, version))
    try:
        schema = onnx.defs.get_schema(op_type, version, domain)
        if schema.since_version == 1 and not schema.has_type_and_shape_inference_function:
            for later in range(version + 1, LATER + 1):
                newer = onnx.defs.get_schema(op_type, later, domain)
                if newer.has_type_and_shape_inference_function:
                    return newer
    except onnx.defs.SchemaError:
        return None
    return schema


@lru_cache(maxsize=1 << 15)
def _type_proto(elem: int, dims: Shape | None) -> TypeProto:
    return onnx.helper.make_tensor_type_proto(elem, dims)


def type_of(tensor: Tensor) -> TypeProto | None:
    """As onnx writes it; None where even the element type is not known."""
    if tensor.items is not None:
        inner = tensor.items[0] if tensor.items else None
        if inner is None or not inner.elem:
            return None
        same = {item.dims for item in tensor.items}
        dims = inner.dims if len(same) == 1 else None
        return onnx.helper.make_sequence_type_proto(_type_proto(inner.elem, dims))
    return _type_proto(tensor.elem, tensor.dims) if tensor.elem else None


def from_type(name: str, kind: TypeProto, sizes: Mapping[str, int]) -> Tensor:
    """A value of this type. The length of a sequence is not part of it, and may be a size."""
    tensor = tensor_type(kind)
    if tensor is not None:
        return make(name, tensor.elem_type, shape_of(kind, sizes))
    found = unknown_tensor(name)
    while kind.HasField("optional_type"):
        kind = kind.optional_type.elem_type
    if kind.HasField("sequence_type"):
        found.each = from_type(f"{name}[]", kind.sequence_type.elem_type, sizes)
        if length_of(name) in sizes:
            found.items = (found.each,) * sizes[length_of(name)]
    return found


def make(name: str, elem: int, dims: Shape | None) -> Tensor:
    """A value of this type; of a size that nothing can have, the shape is not known."""
    if dims and (
        min(dims) < 0 or max(dims) > LARGEST or (len(dims) > 2 and prod(dims) > LARGEST**2)
    ):
        dims = None
    return Tensor(name, dims, elem, dtype_of(elem))


def from_array(name: str, array: Any) -> Tensor:
    """A value that is known in full."""
    elem = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    tensor = make(name, elem, tuple(array.shape))
    tensor.value = array
    return tensor


def is_small(dims: Shape | None) -> bool:
    """Whether a value is followed; one without elements may still have sides without end."""
    return dims is not None and max(prod(dims), *dims, 0) <= MOST_ELEMENTS


def stored(proto: TensorProto) -> Tensor:
    """An initializer or a constant; its elements only where they are few and in the file."""
    tensor = as_stored(make(proto.name, proto.data_type, tuple(proto.dims)), proto)
    if proto.data_location == onnx.TensorProto.EXTERNAL:
        tensor.outside = proto.name if is_small(tensor.dims) else ""
        return tensor
    if is_small(tensor.dims):
        try:
            tensor.value = numpy_helper.to_array(proto)
        except Exception:  # broken or absent payload: onnx raises many kinds of error
            tensor.value = None
    else:
        tensor.fill = _one_number(proto)
    return tensor


def stored_sparse(proto: SparseTensorProto) -> Tensor:
    """Taken to be dense."""
    values = proto.values
    return as_stored(make(values.name, values.data_type, tuple(proto.dims)), values)


def as_stored(tensor: Tensor, proto: TensorProto | AttributeProto) -> Tensor:
    """The tensor as one that is in the file: a weight."""
    tensor.is_weight = True
    tensor.ident = number_of(proto)
    return tensor


def number_of(proto: TensorProto | AttributeProto) -> int:
    """One for all passes of a loop and all calls of a function, written where notes were."""
    if not proto.doc_string:  # the skeleton has none
        proto.doc_string = str(new_number())
    return int(proto.doc_string)


def _one_number(proto: TensorProto) -> np.ndarray[Any, Any] | None:
    """What all elements are; None where they differ, and where they are not there."""
    data, elements = proto.raw_data, prod(proto.dims)
    is_there = bool(data or proto.float_data)
    if is_there and not any(proto.float_data) and not data.strip(b"\0"):
        return np.zeros(1)
    size = len(data) // elements if elements else 0
    if not size or size * elements != len(data) or data != data[:size] * elements:
        return None
    first = onnx.TensorProto(data_type=proto.data_type, dims=[1], raw_data=data[:size])
    try:
        return numpy_helper.to_array(first)
    except Exception:  # of a type that numpy has not
        return None


def infer(
    node: NodeProto,
    version: int,
    operands: Sequence[Tensor | None],
    opsets: list[OperatorSetIdProto],
) -> list[Tensor | None]:
    """The node's results as far as onnx can tell; what it refuses is a MalformedError."""
    results = unknown_results(node)
    schema = schema_of(node.op_type, version, node.domain)
    if schema is None:
        return results
    if wrong := fatal(node, operands):
        raise MalformedError(wrong)
    key = _key(node, version, operands)
    if key is not None and key in _SEEN:
        return [
            make(name, *kind) if name else None
            for name, kind in zip(node.output, _SEEN[key], strict=True)
        ]
    types = _types(node, operands)
    if types is None:
        return results
    data = _data(node, operands)
    try:
        found = infer_node_outputs(schema, node, types, data, None, opsets)
    except Exception as error:  # onnx's InferenceError, RuntimeError, KeyError, ValueError, …
        raise MalformedError(_said(error)) from error
    for kind in found.values():
        _check_possible(kind)
    results = [
        from_type(name, found[name], {}) if name and name in found else result
        for name, result in zip(node.output, results, strict=True)
    ]
    if key is not None and len(_SEEN) < MOST_SEEN:
        _SEEN[key] = [(t.elem, t.dims) if t is not None else (0, None) for t in results]
    return results


def _check_possible(kind: TypeProto) -> None:
    """onnx may come to sizes that nothing has; what the file says does not mend that."""
    for dim in kind.tensor_type.shape.dim:
        if not 0 <= dim.dim_value <= LARGEST:
            raise MalformedError(f"a side of its result would be {dim.dim_value}")


def unknown_results(node: NodeProto) -> list[Tensor | None]:
    """One for each name that the node gives."""
    return [unknown_tensor(name) if name else None for name in node.output]


def _types(node: NodeProto, operands: Sequence[Tensor | None]) -> dict[str, TypeProto] | None:
    """Of the operands, as onnx takes them; None where one is not known at all."""
    types: dict[str, TypeProto] = {}
    for name, operand in zip(node.input, operands, strict=False):
        if operand is None:
            continue
        kind = type_of(operand)
        if kind is None:
            return None
        types[name] = kind
    return types


def _data(node: NodeProto, operands: Sequence[Tensor | None]) -> dict[str, TensorProto]:
    """The operands whose elements are known."""
    return {
        name: numpy_helper.from_array(t.value, name)
        for name, t in zip(node.input, operands, strict=False)
        if t is not None and t.value is not None and t.value.dtype != object
    }


def _said(error: Exception) -> str:
    """What onnx says, without the names that it puts before."""
    text = " ".join(str(error).split()).rpartition("): ")[2]
    return f"onnx refuses it: {text.partition('Error] ')[2] or text}"[:LONGEST_REASON]


def _key(node: NodeProto, version: int, operands: Sequence[Tensor | None]) -> Key | None:
    """What the results depend on: operator, attributes, shapes, and values if they are few."""
    kinds: list[tuple[int, Shape | None, bytes]] = []
    for operand in operands:
        if operand is None:
            kinds.append((0, None, b""))
            continue
        value = operand.value
        if operand.items is not None or operand.dims is None:
            return None
        if value is not None and (value.size > FEW or value.dtype == object):
            return None
        kinds.append((operand.elem, operand.dims, value.tobytes() if value is not None else b""))
    settings = b"".join([a.SerializeToString(deterministic=True) for a in node.attribute])
    if len(settings) > LONGEST_SETTINGS:
        return None
    used = tuple(bool(name) for name in node.output)
    return node.domain, node.op_type, version, settings, tuple(kinds), used
