"""The largest batch that fits: tried out on a device with memory of its own, counted for a CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

from ridgeline.count.capacity import max_batch
from ridgeline.measure.isolation import Outcome, Work
from ridgeline.measure.worker import Task, memory_task

SAFE_SHARE = 0.8  # of a CPU's free memory: torch and its workspaces need some, too
WITHIN = 0.01  # of the largest batch: a try takes seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestBatch:
    """The largest batch that fits, and how that was found."""

    batch_size: int
    is_counted: bool  # else it was tried
    fails: int | None = None  # the smallest batch that was tried in vain
    reason: str | None = None  # of its failure

    def __str__(self) -> str:
        if self.is_counted:
            share = f"{100 * SAFE_SHARE:.0f} %"
            return f"{self.batch_size} (counted, for {share} of the free memory; not tried)"
        if self.fails is None:
            return str(self.batch_size)
        return f"{self.batch_size} (batch {self.fails} fails: {self.reason})"


@dataclass(frozen=True, slots=True)
class BatchSearch:
    """The search for the largest batch of one configuration."""

    task: Callable[[int], Task]  # of a batch size
    do: Callable[[Work[Any], Task], Outcome[Any]]
    on_try: Callable[[int], None]  # hears which batch is looked at

    def find(self) -> LargestBatch:
        self.on_try(1)
        one_bytes, total_bytes = self.do(memory_task, self.task(1)).value()
        return self._tried(one_bytes, total_bytes) if total_bytes else self._counted()

    def _tried(self, one_bytes: int, total_bytes: int) -> LargestBatch:
        """Whatever makes a batch fail, it does not fit: libraries have limits of their own."""
        peaks: dict[int, float] = {1: one_bytes}
        reasons: dict[int, str] = {}

        def peak_bytes(batch_size: int) -> float:
            if batch_size in peaks:
                return peaks[batch_size]
            self.on_try(batch_size)
            outcome = self.do(memory_task, self.task(batch_size))
            if outcome.failure is None:
                return float(outcome.value()[0])
            if outcome.failure.is_input:
                raise outcome.failure.error()
            reasons[batch_size] = outcome.failure.reason.split(". ")[0]
            return inf

        found = max_batch(peak_bytes, total_bytes, within=WITHIN)
        fails = min(reasons, default=None)
        reason = None if fails is None else reasons[fails]
        return LargestBatch(batch_size=found, is_counted=False, fails=fails, reason=reason)

    def _counted(self) -> LargestBatch:
        """For a CPU: a batch that does not fit would make the system kill somebody."""
        import psutil

        from ridgeline.count.counting import Settings as CountSettings
        from ridgeline.count.counting import count_workload
        from ridgeline.measure.backends import choose_backend
        from ridgeline.measure.precision import choose_precision

        spec, settings = self.task(1).spec, self.task(1).settings
        counting = CountSettings(
            mode=spec.mode,
            precision=choose_precision(settings.precision, choose_backend(settings.backend)).used,
            optimizer=settings.optimizer,
            optimizer_options=settings.optimizer_options,
        )

        def peak_bytes(batch_size: int) -> int:
            self.on_try(batch_size)
            return count_workload(self.task(batch_size).spec, counting).memory.peak_bytes

        free_bytes = int(SAFE_SHARE * psutil.virtual_memory().available)
        return LargestBatch(batch_size=max_batch(peak_bytes, free_bytes), is_counted=True)
