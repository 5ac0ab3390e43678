"""The model's inputs: their types, and values that shapes depend on, as the caller gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from ridgeline.errors import RidgelineError
from ridgeline.onnx.asking import shown
from ridgeline.onnx.declared import is_open, item_type, real_inputs, shape_of, unnamed
from ridgeline.onnx.dims import Bound
from ridgeline.onnx.infer import MOST_ELEMENTS, from_array, from_type
from ridgeline.onnx.node import Tensor
from ridgeline.onnx.sequences import sequence

if TYPE_CHECKING:
    from onnx import GraphProto, TypeProto, ValueInfoProto


def input_tensors(graph: GraphProto, bound: Bound, values: Mapping[str, Any]) -> dict[str, Tensor]:
    """The inputs by name, with the sizes that are bound and the values that are known."""
    found: dict[str, Tensor] = {}
    for value in real_inputs(graph):
        kind = _named(value)
        found[value.name] = from_type(value.name, kind, bound.sizes)
        dims = shape_of(kind, bound.sizes)
        if found[value.name].dims is None and dims is not None:
            raise RidgelineError(
                f"the input {shown(value.name)!r} is too large: {'·'.join(map(str, dims))}",
                hint="give smaller sizes, or check those in the file",
            )
    return with_values(found, values, bound)


def _named(value: ValueInfoProto) -> TypeProto:
    """An input's type, with our names for the dimensions that have none."""
    kind = onnx.TypeProto()
    kind.CopyFrom(value.type)
    tensor = item_type(kind)
    if tensor is not None:
        for index, dim in enumerate(tensor.shape.dim):
            if is_open(dim) and not dim.dim_param:
                dim.dim_param = unnamed(value.name, index)
    return kind


def with_values(
    inputs: Mapping[str, Tensor], values: Mapping[str, Any], bound: Bound
) -> dict[str, Tensor]:
    """The inputs with what is known of them; a single whole number may be given as a size."""
    strange = [name for name in values if name not in inputs]
    if strange:
        raise RidgelineError(
            f"no input is called {', '.join(map(repr, strange))}",
            hint=f"the inputs of this file: {', '.join(map(shown, inputs))}",
        )
    return {name: _known(tensor, values, bound) for name, tensor in inputs.items()}


def _known(tensor: Tensor, values: Mapping[str, Any], bound: Bound) -> Tensor:
    if tensor.name in values:
        value = values[tensor.name]
        if tensor.each is not None and isinstance(value, list | tuple) and not value:
            return sequence(tensor.name, ())
        return _from(tensor.name, value)
    if tensor.is_known and tensor.numel == 1 and tensor.dtype.is_integer:
        given = bound.take_value(tensor.name)
        if given is not None:
            kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem)
            return replace(tensor, value=np.full(tensor.shape, given, kind))
    return tensor


def _from(name: str, value: Any) -> Tensor:
    """A tensor of these elements, or a sequence of tensors from a list."""
    if isinstance(value, list | tuple) and value and isinstance(value[0], np.ndarray):
        return sequence(name, tuple(_from(f"{name}[{n}]", v) for n, v in enumerate(value)))
    tensor = from_array(name, np.asarray(value))
    if tensor.numel > MOST_ELEMENTS:
        tensor.value = None
    return tensor
