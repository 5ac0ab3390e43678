"""Tensors in whatever a module takes or returns, and batches to the device.

Batches take the form that was requested: precision and memory layout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ridgeline.workloads import Inputs


def with_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same nest of tuples, lists and dictionaries with every tensor changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: with_tensors(item, change) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(with_tensors(item, change) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(with_tensors(item, change) for item in value)
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where tensors go and what becomes of them there."""

    device: torch.device
    dtype: torch.dtype | None = None  # of floats; None: as they are
    memory_format: torch.memory_format | None = None  # of images; None: as they are
    non_blocking: bool = False  # with pinned memory, the copy runs beside the host

    def inputs(self, batch: Inputs) -> Inputs:
        return Inputs(
            args=self.moved(batch.args),
            kwargs=self.moved(batch.kwargs),
            targets=self.moved(batch.targets),
        )

    def moved(self, value: Any) -> Any:
        """Every tensor in a nest of tuples, lists and dictionaries."""
        return with_tensors(value, self._tensor)

    def _tensor(self, tensor: Tensor) -> Tensor:
        dtype = self.dtype if tensor.is_floating_point() else None
        moved = tensor.to(self.device, dtype=dtype or tensor.dtype, non_blocking=self.non_blocking)
        if self.memory_format and moved.dim() == 4 and moved.is_floating_point():
            moved = moved.contiguous(memory_format=self.memory_format)
        return moved


def pinned(batch: Inputs) -> Inputs:
    """The batch in page-locked memory, from where a device copies by itself."""
    args, kwargs, targets = (
        with_tensors(part, Tensor.pin_memory) for part in (batch.args, batch.kwargs, batch.targets)
    )
    return Inputs(args=args, kwargs=kwargs, targets=targets)
