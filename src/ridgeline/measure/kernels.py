"""How much of a step a GPU works: kernel time by the profiler, in a pass of its own.

The profiler slows the host down, not the kernels; so kernel time is taken under the profiler and
compared with the time of a step that nobody watched. Kernels that overlap count once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ridgeline.measure.covered import covered
from ridgeline.measure.marks import NoMarks
from ridgeline.measure.timing import Step

STEPS = 3
COPIES = ("Memcpy ", "Memset ")  # what the driver does, as the profiler names it


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTime:
    """Of one step, on average over a few."""

    time_s: float  # at least one kernel or copy was running
    kernels: float  # launches per step; copies are none
    steps: int


def kernel_time(
    step: Step, synchronize: Callable[[], None], *, steps: int = STEPS
) -> KernelTime | None:
    """Profile a few steps; None where the profiler sees no kernels (it may be forbidden)."""
    nobody = NoMarks()
    synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for _ in range(steps):
            step(nobody)
        synchronize()
    events = [
        event
        for event in profiler.events() or ()
        if event.device_type.name == "CUDA" and not event.is_user_annotation
    ]
    if not events:
        return None
    spans = ((event.time_range.start, event.time_range.end) for event in events)
    return KernelTime(
        time_s=1e-6 * covered(spans) / steps,
        kernels=sum(not event.name.startswith(COPIES) for event in events) / steps,
        steps=steps,
    )
