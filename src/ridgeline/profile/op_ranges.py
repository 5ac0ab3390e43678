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
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ridgeline.tracing import GRADIENTS, LOSS, MODEL, OPTIMIZER, RANGE
from ridgeline.tracing.tracker import (
    AutogradOwners,
    ModuleTracker,
    current_node,
    name_modules,
    tensors_among,
)

Ranges = Callable[[str], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpCall:
    """One operator of a step."""

    index: int
    op: str
    layer: str
    phase: str


class OpRanges(TorchDispatchMode):
    """Numbers the operators of one step, with a range of its number around each."""

    def __init__(self, named: Ranges) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[OpCall] = []
        self._named = named
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
        layer, phase = self._tracker.locate(tensors_among((*args, *kwargs.values())))
        op = str(func._schema.name)
        self.calls.append(OpCall(index=index, op=op, layer=layer, phase=phase))
        with self._named(f"{RANGE}{index}"):
            out = func(*args, **kwargs)
        self._tracker.on_results(tensors_among((out,)), layer)
        return out


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
        layer, phase = self._find_phase(current_node(), tensors)
        self._owners.on_operator(tensors, layer)
        return layer, phase

    def on_results(self, outs: Iterable[Tensor], layer: str) -> None:
        """The operator has ended with these results."""
        self._owners.on_results(outs, layer)

    def _find_phase(self, node: Any, inputs: Sequence[Tensor]) -> tuple[str, str]:
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
