"""A number for every operator that runs, so that a kernel tells which operator launched it.

Profilers see kernels and the ranges around their launches. Each operator gets a range with its
number; the number leads to the operator's name, its module, and the phase of the step. Backward
operators belong to the module whose forward operator made their node in autograd's graph. The
operators are the same in every process that takes the same step, so the numbers join what different
profilers saw of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules import module as module_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from ridgeline.count.checkpoints import State, done_again_in
from ridgeline.count.owners import Owners, current_node, tensors_in
from ridgeline.profile.operators import (
    GRADIENTS,
    LOSS,
    MODEL,
    OPTIMIZER,
    RANGE,
    may_use_tensor_cores,
)

Ranges = Callable[[str], AbstractContextManager[Any]]
_COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)
_PLAIN = (  # arguments that mean what they look like
    bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format,
)  # fmt: skip
_ORDERS = {  # in which elements can lie in a row, by the dimensions it needs; 0: any
    0: torch.contiguous_format,
    4: torch.channels_last,
    5: torch.channels_last_3d,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OpCall:
    """One operator of a step."""

    index: int
    op: str
    layer: str
    phase: str
    like: int  # the first operator of the step that does the same work; itself, if it is that one


class OpMarks(TorchDispatchMode):
    """Numbers the operators of one step. `picked` surrounds the first of each kind of work."""

    def __init__(
        self, named: Ranges, picked: Ranges | None = None, *, products_only: bool = False
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[OpCall] = []
        self._named, self._picked, self._products_only = named, picked, products_only
        self._first: dict[Any, int] = {}  # the work → its first operator
        self._places = _Places()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Number what the block runs, on every thread of it."""
        with self._places.watching(), self:
            yield

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        index = len(self.calls)
        work = _work(func, args, kwargs)
        like = self._first.setdefault(work, index)
        layer, phase = self._places.now(tensors_in((*args, *kwargs.values())))
        op = str(func._schema.name)
        self.calls.append(OpCall(index=index, op=op, layer=layer, phase=phase, like=like))
        with ExitStack() as around:
            around.enter_context(self._named(f"{RANGE}{index}"))
            if self._picked is not None and like == index and self._counts(op):
                around.enter_context(self._picked(str(index)))
            out = func(*args, **kwargs)
        self._places.made(tensors_in((out,)), layer)
        return out

    def _counts(self, op: str) -> bool:
        return not self._products_only or may_use_tensor_cores(op)


class _Entered(NamedTuple):
    """A module that runs, and what backward worked on when it began: None in the forward pass."""

    name: str
    node: Any


class _Places:
    """Where the step is: in which module, in which phase."""

    def __init__(self) -> None:
        self._stack: list[_Entered] = []
        self._names: dict[int, str] = {}
        self._owners: Owners[str] = Owners()  # modules by their names
        self._thread = threading.get_ident()
        self._is_after_backward = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        self._thread, self._owners = threading.get_ident(), Owners()
        before = module_hooks.register_module_forward_pre_hook(self._enter)
        after = module_hooks.register_module_forward_hook(self._leave, always_call=True)
        try:
            with done_again_in(self._here):
                yield
        finally:
            self._owners.forget()
            before.remove()
            after.remove()

    def _here(self) -> State:
        """The module that runs now, to be entered again."""
        if not self._stack:
            return nullcontext
        name = self._stack[-1].name

        @contextmanager
        def inside() -> Iterator[None]:
            self._stack.append(_Entered(name, current_node()))
            try:
                yield
            finally:
                self._stack.pop()

        return inside

    def _enter(self, module: nn.Module, _: Any) -> None:
        if not self._stack and id(module) not in self._names:  # or it is a part, done again
            # the outermost one names all that are inside
            names = {id(part): name or MODEL for name, part in module.named_modules()}
            self._names |= names
        around = self._stack[-1].name if self._stack else MODEL
        self._stack.append(_Entered(self._names.get(id(module), around), current_node()))

    def _leave(self, *_: Any) -> None:
        if self._stack:
            self._stack.pop()

    def now(self, inputs: Iterable[Tensor]) -> tuple[str, str]:
        """Module and phase of the operator that runs now on this thread."""
        self._owners.settle_results()
        given = list(inputs)
        layer, phase = self._found(current_node(), given)
        self._owners.saw(given, layer)
        return layer, phase

    def made(self, outs: Iterable[Tensor], layer: str) -> None:
        """It has ended, and these are its results."""
        self._owners.made(outs, layer)

    def _found(self, node: Any, inputs: Sequence[Tensor]) -> tuple[str, str]:
        is_inside = bool(self._stack) and self._stack[-1].node is None
        if node is not None or threading.get_ident() != self._thread:
            self._is_after_backward = not is_inside  # a model may ask for gradients itself
            return self._of_node(node), "forward" if is_inside else "backward"
        if self._stack:
            self._is_after_backward = False
            return self._stack[-1].name, "forward"
        is_of_loss = torch.is_grad_enabled() and any(one.requires_grad for one in inputs)
        if self._is_after_backward and not is_of_loss:
            return OPTIMIZER, "optimizer"
        return LOSS, "forward"

    def _of_node(self, node: Any) -> str:
        if node is None or hasattr(node, "variable"):  # gradients of several uses are added up
            return GRADIENTS
        if self._stack and self._stack[-1].node is node:  # forward work, done again
            return self._stack[-1].name
        return self._owners.of(node) or LOSS


def _work(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What tells one operator's work from another's; elements one by one are only counted."""
    if torch.Tag.pointwise in func.tags or func in _COPIES:
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        if _are_flat(tensors) and kwargs.get("memory_format") in (None, torch.preserve_format):
            return (func, _described(args, is_flat=True), _described(kwargs, is_flat=True))
    return (func, _described(args), _described(kwargs))


def _are_flat(tensors: list[Tensor]) -> bool:
    """Whether a kernel sees nothing but so many elements in a row, beside single ones."""
    several = [tensor for tensor in tensors if tensor.numel() != 1]
    return all(
        tensor.layout is torch.strided
        and (tensor.shape, tensor.stride()) == (several[0].shape, several[0].stride())
        and any(_is_dense(tensor, dims, order) for dims, order in _ORDERS.items())
        for tensor in several
    )


def _is_dense(tensor: Tensor, dims: int, order: torch.memory_format) -> bool:
    return dims in (0, tensor.dim()) and tensor.is_contiguous(memory_format=order)


def _described(value: Any, *, is_flat: bool = False) -> Any:
    """What decides how much work an operator is: shapes, layouts, types and plain arguments."""
    if isinstance(value, Tensor):
        if is_flat:
            return (value.numel(), value.dtype, value.device)
        layout = value.stride() if value.layout is torch.strided else str(value.layout)
        return (tuple(value.shape), layout, value.dtype, value.device)
    if isinstance(value, list | tuple):
        return tuple(_described(item, is_flat=is_flat) for item in value)
    if isinstance(value, dict):
        items = sorted(value.items())
        return tuple((name, _described(item, is_flat=is_flat)) for name, item in items)
    if isinstance(value, torch.UntypedStorage):  # its repr would read every byte from the device
        return (type(value).__name__, value.nbytes(), value.device)
    if value is None or isinstance(value, _PLAIN):
        return (type(value).__name__, repr(value))
    return (type(value).__name__, id(value))  # another may be other work; all outlive the step
