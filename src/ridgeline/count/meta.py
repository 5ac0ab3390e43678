"""Models and inputs without data: copies whose tensors have shapes, and small ones their values."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from ridgeline.count.call import aten_names

META, REAL = "meta", "real"  # what a step is traced on: shapes alone, or tensors on the CPU


def copy_model(model: Callable[..., Any], traced_on: str) -> Callable[..., Any]:
    """A deep copy with every tensor changed: parameters, buffers, and those in attributes.

    A function of tensors is its own copy.
    """
    if not isinstance(model, nn.Module):
        return model
    inside = [value for part in model.modules() for value in vars(part).values()]
    attributes = [value for value in inside if isinstance(value, Tensor)]
    with torch.inference_mode(False):
        tensors = [*model.parameters(), *model.buffers(), *attributes]
        copies = {id(tensor): _changed(tensor, CHANGES[traced_on]) for tensor in tensors}
        return copy.deepcopy(model, copies)


def _changed(tensor: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    changed = change(tensor.detach())
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(changed, requires_grad=tensor.requires_grad)
    return changed.requires_grad_(tensor.requires_grad)


def _without_data(tensor: Tensor) -> Tensor:
    """On meta; whole numbers and truth values stay known if they are few."""
    if tensor.is_inference():  # made in the caller's inference mode: autograd would refuse it
        tensor = tensor.clone()
    if tensor.is_meta:
        return tensor
    if tensor.is_floating_point() or tensor.is_complex() or tensor.numel() > LARGEST:
        return tensor.detach().to("meta").requires_grad_(tensor.requires_grad)
    return with_value(tensor.to("cpu", copy=True))  # a model may count its batches in place


def is_on_meta(module: Callable[..., Any]) -> bool:
    """Whether all tensors of a module are without data already; it must have some."""
    if not isinstance(module, nn.Module):
        return False
    tensors = [*module.parameters(), *module.buffers()]
    return bool(tensors) and all(t.is_meta for t in tensors)


def copy_inputs(value: Any, traced_on: str) -> Any:
    """The same nested inputs: a model may write into them."""
    return change_tensors(value, CHANGES[traced_on])


def _with_data(tensor: Tensor) -> Tensor:
    """A real copy; zeros where there are no data."""
    if tensor.is_meta:
        real = torch.zeros_like(tensor, device="cpu")
    else:
        real = tensor.detach().to("cpu", copy=True)
    return real.requires_grad_(tensor.requires_grad)


CHANGES = {META: _without_data, REAL: _with_data}


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


# ---------------------------------------------------------------- small values beside meta tensors
# Models ask for data all the same: `.item()` on a mask, `nonzero` on a routing table. So what can
# be known is known: token ids, ranges, masks, and whatever follows from them alone, are computed on
# the side and hang on the meta tensor as `VALUE`. Where a choice follows from activations (the
# experts of a router), an even spread is assumed, and `assumed` tells that it was used.

VALUE = "_ridgeline_value"
LARGEST = 1 << 22  # elements; larger tensors are left without values
CHOICES = aten_names("topk sort argmax argmin max min")
_RANDOM = aten_names(
    "rand randn randint rand_like randn_like normal_ uniform_ random_ exponential_ bernoulli"
    " bernoulli_ native_dropout empty empty_like empty_strided new_empty new_empty_strided"
)
_make_tensor: Any = torch.tensor


def _tensor(data: Any, **settings: Any) -> Tensor:
    """`torch.tensor`, but what is made on meta remembers the numbers it was made from."""
    tensor: Tensor = _make_tensor(data, **settings)
    if not tensor.is_meta or isinstance(data, Tensor):
        return tensor
    twin = with_value(_make_tensor(data, **{**settings, "device": "cpu"}))
    return twin.requires_grad_(tensor.requires_grad)


@contextmanager
def literals_known() -> Iterator[None]:
    """Inside the block numbers written out in the model are known, also on meta."""
    with patch.object(torch, "tensor", _tensor):
        yield


class NoValueError(Exception):
    """A number was asked for that does not follow from the model's inputs alone."""


def with_value(tensor: Tensor) -> Tensor:
    """A meta twin of a real tensor that remembers its value if it is small."""
    twin = tensor.detach().to("meta")
    if tensor.numel() <= LARGEST:
        setattr(twin, VALUE, tensor.detach())
    return twin


def map_tensors(value: Any, change: Callable[[Tensor], Any]) -> Any:
    """The arguments or results of an operator with every tensor changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)(map_tensors(item, change) for item in value)
    return value


class Values:
    """Follows values through the operators of one trace."""

    def __init__(self) -> None:
        self.assumed: set[str] = set()  # choices that were assumed before a value was asked for
        self._choices: set[str] = set()
        # Values overwritten with something unknown, by address; kept, so that none is given twice.
        self._stale: dict[int, Tensor] = {}

    def follow(self, func: Any, name: str, args: Any, kwargs: Any, out: Any) -> None:
        """Attach the value of `out` if all inputs are known; forget what was overwritten."""
        if name in _RANDOM:
            return self._forget(out)
        try:
            self._attach(out, self._compute(func, args, kwargs))
        except NoValueError:
            if name in CHOICES and not _is_extreme_value(name, out):
                self._assume(name, args, kwargs, out)
            elif name.endswith("_") or name == "aten::copy":
                self._forget(out)

    def _compute(self, func: Any, args: Any, kwargs: Any) -> Any:
        real_args, real_kwargs = self.real(args, kwargs)
        try:
            return func(*real_args, **real_kwargs)
        except (RuntimeError, TypeError) as error:  # a kernel that the CPU does not have
            raise NoValueError from error

    def real(self, args: Any, kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """The arguments as real tensors on the CPU; NoValueError where one is not known."""
        real_kwargs = {key: map_tensors(item, self._usable) for key, item in kwargs.items()}
        if real_kwargs.get("device") is not None:
            real_kwargs["device"] = torch.device("cpu")
        return map_tensors(args, self._usable), real_kwargs

    def _usable(self, tensor: Tensor) -> Tensor:
        value: Tensor | None = getattr(tensor, VALUE, None) if tensor.is_meta else tensor
        if value is None or value.untyped_storage().data_ptr() in self._stale:
            raise NoValueError
        return value

    def _attach(self, out: Any, value: Any) -> None:
        if isinstance(out, Tensor) and isinstance(value, Tensor):
            if out.is_meta and out.numel() <= LARGEST:
                setattr(out, VALUE, value)
        elif isinstance(out, list | tuple):
            for item, item_value in zip(out, value, strict=False):
                self._attach(item, item_value)

    def _forget(self, out: Any) -> None:
        for tensor in out if isinstance(out, list | tuple) else (out,):
            value = getattr(tensor, VALUE, None)
            if value is not None and value.numel():
                self._stale[value.untyped_storage().data_ptr()] = value

    def _assume(self, name: str, args: Any, kwargs: Any, out: Any) -> None:
        """Spread the choice evenly: neighbouring rows choose neighbouring places."""
        chosen = [t for t in (out if isinstance(out, list | tuple) else (out,)) if _is_index(t)]
        if not chosen or chosen[-1].numel() > LARGEST:
            return
        index = chosen[-1]
        dim = _dimension(name, args, kwargs)
        source = args[0]
        places = source.shape[dim] if source.dim() else 1
        value = even_choice(tuple(index.shape), places, dim, keeps_dim=index.dim() == source.dim())
        self._choices.add(name)
        setattr(index, VALUE, value)

    def evaluate(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """Run an operator whose result's shape depends on values, if they are known."""
        self.assumed |= self._choices
        if name == "aten::_local_scalar_dense":
            return self._usable(args[0]).item()
        if name == "aten::_to_copy":  # to a device
            return func(self._usable(args[0]), **kwargs)
        if name in ("aten::index", "aten::index_put_", "aten::index_put", "aten::_index_put_impl_"):
            indices = [position for index in args[1] for position in self._positions(index)]
            return func(args[0], indices, *args[2:], **kwargs)
        if name == "aten::masked_select":
            chosen = int(torch.count_nonzero(self._usable(args[1])))
            return args[0].new_empty((chosen,))
        return map_tensors(self._compute(func, args, kwargs), with_value)

    def _positions(self, index: Tensor | None) -> list[Tensor | None]:
        """A boolean index as the positions of its true entries, one list for each dimension."""
        if index is None or index.dtype not in (torch.bool, torch.uint8):
            return [index]
        places = self._usable(index).nonzero()
        return [with_value(column) for column in places.unbind(1)]


def _is_extreme_value(name: str, out: Any) -> bool:
    """`x.max()` is a number out of x, where `x.max(dim)` also tells its place."""
    return name in ("aten::max", "aten::min") and isinstance(out, Tensor)


def _is_index(tensor: Any) -> bool:
    return isinstance(tensor, Tensor) and tensor.is_meta and tensor.dtype == torch.int64


def _dimension(name: str, args: Any, kwargs: Any) -> int:
    position = 2 if name == "aten::topk" else 1
    dim = kwargs.get("dim", args[position] if len(args) > position else -1)
    return dim if isinstance(dim, int) and not isinstance(dim, bool) else -1


def even_choice(shape: tuple[int, ...], places: int, dim: int, *, keeps_dim: bool) -> Tensor:
    """Indices below `places`, distinct along `dim`, each place chosen equally often."""
    if not keeps_dim or not shape:
        return (torch.arange(prod(shape)) % max(places, 1)).reshape(shape)
    picks = shape[dim]
    rows = prod(shape) // max(picks, 1)
    flat = torch.arange(rows * picks).reshape(rows, picks) % max(places, 1)
    moved = [size for axis, size in enumerate(shape) if axis != dim % len(shape)]
    return flat.reshape(*moved, picks).movedim(-1, dim)
