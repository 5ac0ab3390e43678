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
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ridgeline.profile.operators import RANGE, may_use_tensor_cores
from ridgeline.tracing import GRADIENTS, LOSS, MODEL, OPTIMIZER
from ridgeline.tracing.autograd import AutogradOwners, current_node, tensors_among
from ridgeline.tracing.modules import ModuleTracker, name_modules

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
        self._tracker = _StepTracker()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Number what the block runs, on every thread of it."""
        with self._tracker.watching(), self:
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
        layer, phase = self._tracker.locate(tensors_among((*args, *kwargs.values())))
        op = str(func._schema.name)
        self.calls.append(OpCall(index=index, op=op, layer=layer, phase=phase, like=like))
        with ExitStack() as around:
            around.enter_context(self._named(f"{RANGE}{index}"))
            if self._picked is not None and like == index and self._counts(op):
                around.enter_context(self._picked(str(index)))
            out = func(*args, **kwargs)
        self._tracker.on_results(tensors_among((out,)), layer)
        return out

    def _counts(self, op: str) -> bool:
        return not self._products_only or may_use_tensor_cores(op)


class _StepTracker(ModuleTracker):
    """Where the step is: in which module, in which phase."""

    def __init__(self) -> None:
        super().__init__(outside=LOSS)
        self._names: dict[int, str] = {}
        self._owners: AutogradOwners[str] = AutogradOwners()  # modules by their paths
        self._thread = threading.get_ident()
        self._is_after_backward = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        self._thread, self._owners = threading.get_ident(), AutogradOwners()
        try:
            with super().watching():
                yield
        finally:
            self._owners.remove_marks()

    def path_of(self, module: nn.Module) -> str:
        is_outermost = self.path == self.outside
        if is_outermost and id(module) not in self._names:  # or it is a part, recomputed
            self._names |= name_modules(module)  # it names all that are inside
        return self._names.get(id(module), MODEL if is_outermost else self.path)

    def locate(self, inputs: Iterable[Tensor]) -> tuple[str, str]:
        """Module and phase of the operator that runs now on this thread."""
        self._owners.propagate_results()
        tensors = list(inputs)
        layer, phase = self._find_place(current_node(), tensors)
        self._owners.on_operator(tensors, layer)
        return layer, phase

    def on_results(self, outs: Iterable[Tensor], layer: str) -> None:
        """The operator has ended with these results."""
        self._owners.on_results(outs, layer)

    def _find_place(self, node: Any, inputs: Sequence[Tensor]) -> tuple[str, str]:
        is_in_forward = self.is_inside and self.node is None
        if node is not None or threading.get_ident() != self._thread:
            self._is_after_backward = not is_in_forward  # a model may ask for gradients itself
            return self._layer_of(node), "forward" if is_in_forward else "backward"
        if self.is_inside:
            self._is_after_backward = False
            return self.path, "forward"
        is_of_loss = torch.is_grad_enabled() and any(one.requires_grad for one in inputs)
        if self._is_after_backward and not is_of_loss:
            return OPTIMIZER, "optimizer"
        return LOSS, "forward"

    def _layer_of(self, node: Any) -> str:
        if node is None or hasattr(node, "variable"):  # gradients of several uses are added up
            return GRADIENTS
        if self.node is node:  # recomputation
            return self.path
        return self._owners.owner_of(node) or LOSS


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
