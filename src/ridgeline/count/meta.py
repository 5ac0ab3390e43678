"""Models and inputs without data: copies whose tensors have shapes only."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from ridgeline.count.values import LARGEST, with_value

_LAZY: Any = (nn.parameter.UninitializedParameter, nn.parameter.UninitializedBuffer)


class _CopyTensors(TorchFunctionMode):
    """While a module is deep-copied, copy each tensor by `change` instead."""

    def __init__(self, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self._change = change

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not Tensor.__deepcopy__:
            return func(*args, **(kwargs or {}))
        tensor, memo = args
        if id(tensor) not in memo:
            memo[id(tensor)] = self.copy(tensor)
        return memo[id(tensor)]

    def copy(self, tensor: Tensor) -> Tensor:
        if isinstance(tensor, _LAZY):  # no shape yet: the first run will give it one
            device = self._change(torch.empty(0)).device
            lazy: Tensor = type(tensor)(requires_grad=tensor.requires_grad, device=device)
            return lazy
        if isinstance(tensor, nn.Parameter):
            return nn.Parameter(self._change(tensor.data), requires_grad=tensor.requires_grad)
        return self._change(tensor.detach()).requires_grad_(tensor.requires_grad)


Model = Callable[..., Any]  # a module, or a function of tensors, which is its own copy


def copy_to_meta(model: Model) -> Model:
    """A copy that costs no memory; small buffers keep their values."""
    return _copy(model, _without_data)


def copy_to_cpu(model: Model) -> Model:
    """A real copy, so that counting leaves the user's model as it was."""
    return _copy(model, lambda tensor: tensor.to("cpu", copy=True))


def _copy(module: Model, change: Callable[[Tensor], Tensor]) -> Model:
    """A deep copy with every tensor changed.

    A parameter copies itself unseen by the mode, so those are handed over beforehand.
    """
    if not isinstance(module, nn.Module):
        return module
    with torch.inference_mode(False), _CopyTensors(change) as copying:
        memo: dict[int, Any] = {id(p): copying.copy(p) for p in module.parameters()}
        return copy.deepcopy(module, memo)


def _without_data(tensor: Tensor) -> Tensor:
    if tensor.is_inference():  # made in the caller's inference mode: autograd would refuse it
        tensor = tensor.clone()
    if tensor.is_meta:
        return tensor
    if tensor.is_floating_point() or tensor.is_complex() or tensor.numel() > LARGEST:
        return tensor.detach().to("meta").requires_grad_(tensor.requires_grad)
    return with_value(tensor.to("cpu", copy=True))  # a model may count its batches in place


def is_on_meta(module: Model) -> bool:
    """Whether all tensors of a module are without data already; it must have some."""
    if not isinstance(module, nn.Module):
        return False
    tensors = [*module.parameters(), *module.buffers()]
    return bool(tensors) and all(t.is_meta for t in tensors)


def inputs_without_data(value: Any) -> Any:
    """The same nested inputs on meta; whole numbers and truth values stay known."""
    return change_tensors(value, _without_data)


def inputs_on_cpu(value: Any) -> Any:
    """Real copies of the inputs, zeros where there are no data: a model may write into them."""
    return change_tensors(value, _with_data)


def _with_data(tensor: Tensor) -> Tensor:
    if tensor.is_meta:
        real = torch.zeros_like(tensor, device="cpu")
    else:
        real = tensor.detach().to("cpu", copy=True)
    return real.requires_grad_(tensor.requires_grad)


def cast_floats(value: Any, dtype: torch.dtype) -> Any:
    """Floating-point tensors in another precision; everything else as it is."""

    def cast(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tensor
        return tensor.detach().to(dtype).requires_grad_(tensor.requires_grad)

    return change_tensors(value, cast)


def change_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A nested value with every tensor replaced; one that appears twice is still the same one."""
    changed: dict[int, Tensor] = {}

    def change_once(tensor: Tensor) -> Tensor:
        if id(tensor) not in changed:
            changed[id(tensor)] = change(tensor)
        return changed[id(tensor)]

    return tree_map_only(Tensor, change_once, value)
