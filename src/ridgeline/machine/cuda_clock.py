"""Time on a CUDA device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ridgeline.machine.sampling import Clock


def event_clock(torch: Any, device: int) -> Clock:
    """Times with device events, synchronised outside of the timed region only."""

    def clock(call: Callable[[], object], times: int) -> float:
        with torch.cuda.device(device):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(times):
                call()
            end.record()
            end.synchronize()
        return float(start.elapsed_time(end)) / 1e3 / times

    return clock
