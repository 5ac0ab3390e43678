"""Values of inputs that shapes depend on, as the caller gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from ridgeline.count.onnx.infer import MOST_ELEMENTS, from_array
from ridgeline.count.onnx.node import Tensor
from ridgeline.count.onnx.sequences import sequence
from ridgeline.errors import RidgelineError


def with_values(
    inputs: Mapping[str, Tensor], values: Mapping[str, Any], sizes: dict[str, int]
) -> dict[str, Tensor]:
    """The inputs with what is known of them; a single whole number may be given as a size."""
    strange = [name for name in values if name not in inputs]
    if strange:
        raise RidgelineError(
            f"no input is called {', '.join(map(repr, strange))}",
            hint=f"the inputs of this file: {', '.join(inputs)}",
        )
    return {name: _known(tensor, values, sizes) for name, tensor in inputs.items()}


def _known(tensor: Tensor, values: Mapping[str, Any], sizes: dict[str, int]) -> Tensor:
    if tensor.name in values:
        value = values[tensor.name]
        if tensor.each is not None and isinstance(value, list | tuple) and not value:
            return sequence(tensor.name, ())
        return _from(tensor.name, value)
    if tensor.name in sizes and tensor.is_known and tensor.numel == 1 and tensor.dtype.is_integer:
        kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem)
        size = sizes.pop(tensor.name)
        return replace(tensor, value=np.full(tensor.shape, size, kind))
    return tensor


def _from(name: str, value: Any) -> Tensor:
    """A tensor of these elements, or a sequence of tensors from a list."""
    if isinstance(value, list | tuple) and value and isinstance(value[0], np.ndarray):
        return sequence(name, tuple(_from(f"{name}[{n}]", v) for n, v in enumerate(value)))
    tensor = from_array(name, np.asarray(value))
    if tensor.numel > MOST_ELEMENTS:
        tensor.value = None
    return tensor
