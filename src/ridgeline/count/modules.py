"""Which module is running: a stack of paths kept by global forward hooks."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.modules import module as module_hooks

from ridgeline.count.checkpoints import DONE, State, done_again_in
from ridgeline.count.owners import current_node
from ridgeline.count.parts import ModuleCall, Shapes


@dataclass(frozen=True, slots=True)
class Failed:
    """Where an error arose: the module's path, and the shapes that it got."""

    path: str
    input_shapes: Shapes


class Entered(NamedTuple):
    """A module that runs, and the node of autograd's graph that ran when it began, if any."""

    path: str
    node: Any


class ModuleStack:
    """The path of the module that is running now, and a record of every module that ran."""

    def __init__(self, root: nn.Module | None) -> None:
        named = root.named_modules() if root is not None else ()
        self._names = {id(module): name for name, module in named}
        self._stack = [Entered("", None)]
        self.calls: dict[str, ModuleCall] = {}
        self.failed: Failed | None = None  # the innermost module in which an error arose
        self._error_before = sys.exc_info()[1]  # what the caller may be handling already

    @property
    def path(self) -> str:
        return self._stack[-1].path

    @property
    def node(self) -> Any:
        """What backward worked on when the module began; None in the forward pass."""
        return self._stack[-1].node

    @property
    def is_inside(self) -> bool:
        """Whether the forward of any module is running."""
        return len(self._stack) > 1

    @contextmanager
    def watching(self) -> Iterator[None]:
        before = module_hooks.register_module_forward_pre_hook(self._enter)
        after = module_hooks.register_module_forward_hook(self._leave, always_call=True)
        try:
            with done_again_in(self._here):
                yield
        finally:
            before.remove()
            after.remove()

    def _here(self) -> State:
        """The place where the model is now, to be entered again."""
        path = self.path

        @contextmanager
        def inside() -> Iterator[None]:
            self._stack.append(Entered(path, current_node()))
            try:
                yield
            finally:
                self._stack.pop()

        return inside

    def _enter(self, module: nn.Module, args: Any) -> None:
        path = self._names.get(id(module), self.path)
        self._stack.append(Entered(path, current_node()))
        call = self.calls.get(path)
        if call is None:
            call = self.calls[path] = ModuleCall(type(module).__name__)
            call.input_shapes = shapes_of(args)
        call.calls += 1

    def _is_failing(self) -> bool:
        """Whether an error is on its way; a checkpoint that has done enough again ends by one."""
        error = sys.exc_info()[1]
        return error not in (None, self._error_before) and not isinstance(error, DONE)

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        if len(self._stack) > 1:
            path = self._stack.pop().path
            if self.failed is None and self._is_failing():
                self.failed = Failed(path, shapes_of(args))
            call = self.calls.get(path)
            if call is not None and not call.output_shapes:
                call.output_shapes = shapes_of(output)


def shapes_of(value: Any) -> Shapes:
    """Shapes of all tensors in a nested value."""
    return tuple(tuple(tensor.shape) for tensor in tensors_in(value))


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """All tensors of a nested value: tuples, lists, dictionaries, model outputs."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, list | tuple | set):
        for item in value:
            yield from tensors_in(item)
    elif hasattr(value, "to_tuple"):
        yield from tensors_in(value.to_tuple())
    elif is_dataclass(value) and not isinstance(value, type):
        for part in fields(value):
            yield from tensors_in(getattr(value, part.name))
