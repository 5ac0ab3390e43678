"""The modules that ran: shapes, calls, and where an error arose."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from torch import nn

from ridgeline.count.parts import ModuleCall, Shapes
from ridgeline.tracing.modules import ModuleTracker, name_modules, tensors_in
from ridgeline.tracing.recomputation import RECOMPUTATION_ENDS


@dataclass(frozen=True, slots=True)
class Failed:
    """Where an error arose: the module's path, and the shapes that it got."""

    path: str
    input_shapes: Shapes


class ModuleRecorder(ModuleTracker):
    """Also a record of every module that ran, and of the one in which an error arose."""

    def __init__(self, root: nn.Module | None) -> None:
        super().__init__()
        self._names = name_modules(root, "")
        self.calls: dict[str, ModuleCall] = {}
        self.failed: Failed | None = None  # the innermost module in which an error arose
        self._error_before = sys.exc_info()[1]  # what the caller may be handling already

    def path_of(self, module: nn.Module) -> str:
        return self._names.get(id(module), self.path)

    def on_enter(self, path: str, module: nn.Module, args: Any) -> None:
        call = self.calls.get(path)
        if call is None:
            call = self.calls[path] = ModuleCall(type(module).__name__)
            call.input_shapes = shapes_of(args)
        call.calls += 1

    def on_leave(self, path: str, args: Any, output: Any) -> None:
        if self.failed is None and self._is_failing():
            self.failed = Failed(path, shapes_of(args))
        call = self.calls.get(path)
        if call is not None and not call.output_shapes:
            call.output_shapes = shapes_of(output)

    def _is_failing(self) -> bool:
        """Whether an error is on its way; recomputation that has done enough ends by one."""
        error = sys.exc_info()[1]
        is_new = error not in (None, self._error_before)
        return is_new and not isinstance(error, RECOMPUTATION_ENDS)


def shapes_of(value: Any) -> Shapes:
    """Shapes of all tensors in a nested value."""
    return tuple(tuple(tensor.shape) for tensor in tensors_in(value))
