"""A mark around a piece of work, for a profiler that watches from outside.

Two marks at once: cudaProfilerStart and Stop, for `ncu --profile-from-start off` and
`nsys -c cudaProfilerApi`, and an NVTX range, for `ncu --nvtx --nvtx-include ridgeline_step`. The
range is one of the process, from a start to an end. The other kind, push and pop, belongs to one
thread, and the backward pass runs on threads of autograd: under it all of backward is lost.
The device is idle at both ends, so that nothing of other steps is inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ridgeline.measure.backends import Backend

STEP = "ridgeline_step"  # the name of the range


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkCalls:
    """What a mark asks of the device; tests bring their own."""

    synchronize: Callable[[], object]
    start_profiler: Callable[[], object]
    stop_profiler: Callable[[], object]
    start_range: Callable[[str], Any]
    end_range: Callable[[Any], object]


def mark_calls(backend: Backend) -> MarkCalls | None:
    """The calls of a CUDA device; None where no profiler listens for a mark."""
    if backend.kind != "cuda":
        return None
    from torch import cuda

    return MarkCalls(
        synchronize=backend.synchronize,
        start_profiler=cuda.profiler.start,
        stop_profiler=cuda.profiler.stop,
        start_range=cuda.nvtx.range_start,
        end_range=cuda.nvtx.range_end,
    )


@contextmanager
def marked(calls: MarkCalls | None, name: str = STEP) -> Iterator[None]:
    """Mark the block, all threads of it; without calls it just runs."""
    if calls is None:
        yield
        return
    calls.synchronize()
    calls.start_profiler()
    try:
        range_id = calls.start_range(name)
        try:
            yield
        finally:
            calls.synchronize()
            calls.end_range(range_id)
    finally:
        calls.stop_profiler()
