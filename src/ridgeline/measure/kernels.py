"""How much of a step a GPU works: kernel time by the profiler, in a pass of its own.

The profiler slows the host down, not the kernels; so kernel time is taken under the profiler and
compared with the time of an unprofiled step. Kernels that overlap count once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ridgeline.records import KernelTime

if TYPE_CHECKING:
    from ridgeline.measure.timing import Step

STEPS = 3
COPIES = ("Memcpy ", "Memset ")  # what the driver does, as the profiler names it


def measure_kernel_time(
    step: Step, synchronize: Callable[[], None], *, steps: int = STEPS
) -> KernelTime | None:
    """Profile a few steps; None where the profiler sees no kernels (it may be forbidden)."""
    import torch  # here: who reads traces needs no torch

    from ridgeline.measure.marks import NoMarks

    marks = NoMarks()
    synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for _ in range(steps):
            step(marks)
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
        time_s=1e-6 * union_length(spans) / steps,
        kernels=sum(not event.name.startswith(COPIES) for event in events) / steps,
        steps=steps,
    )


def union_length(spans: Iterable[tuple[float, float]]) -> float:
    """The length of the union of intervals."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
