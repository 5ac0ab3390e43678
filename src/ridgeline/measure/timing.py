"""The warm-up and the timed loop, with marks, processor time and kernel time.

The device is waited for before the first and after the last timed step, never in between. Every
sample is kept, those of the warm-up too. Clock, device and readings come in as arguments. A mark
costs about a microsecond and waits for nothing. Where a device runs behind the host, each moment is
marked twice: on the host's clock and in the device's queue.
"""

from __future__ import annotations

import resource
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from statistics import median
from time import perf_counter
from typing import Any, Protocol

import torch

from ridgeline.measure.backends import Timeline
from ridgeline.records import KernelTime, ProcessStats, Usage
from ridgeline.records import WarmUp as WarmUp

OnProgress = Callable[[int, int], None]  # steps done, steps in all

SPLIT = ("data", "copy", "forward", "backward", "optimizer")
"""The phases of a step, in their order: waiting for data and host-to-device copy come first."""
WINDOW = 5  # steps that are compared with as many before them
STEADY = 0.02  # two windows are alike
LEAST_WARMUP = 3
LEAST_WARMUP_S = 0.5  # clocks and caches take this long, however short a step is
WARMUP_LIMIT_S = 10.0  # of waiting for steadiness, after the first LEAST_WARMUP steps
TARGET_S = 10.0  # a measurement of unstated length lasts about so long
LEAST_ITERS, MOST_ITERS = 6, 100
MARKS_PER_PART = 4
REPORT_EVERY_S = 0.25
RSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux KiB
KERNEL_STEPS = 3
COPIES = ("Memcpy ", "Memset ")  # what the driver does, as the profiler names it


# ---------------------------------------------------------------- marks of phases


class Marks(Protocol):
    """What a step tells about its progress."""

    def end(self, phase: str) -> None: ...


Step = Callable[[Marks], None]


class NoMarks:
    """For steps that nobody times."""

    def end(self, phase: str) -> None:
        """Nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Seconds of every step, in order, and of its phases."""

    steps_s: tuple[float, ...]
    phases_s: dict[str, tuple[float, ...]]


class StepRecorder:
    """Marks every phase of every step; steps follow one another without a gap."""

    def __init__(
        self, timeline: Timeline | None, clock: Callable[[], float] = perf_counter
    ) -> None:
        self._timeline, self._clock = timeline, clock
        self._phases: list[str] = []
        self._host: list[float] = []
        self._device: list[Any] = []
        self._ends: list[int] = []  # how many marks there were at the end of each step

    def prepare(self, marks: int) -> None:
        """Get ready for so many marks."""
        if self._timeline is not None:
            self._timeline.prepare(marks + 1)

    def start(self) -> None:
        """The moment before the first step; call it when the device is idle."""
        self.end("")

    def end(self, phase: str) -> None:
        if self._timeline is not None:
            self._device.append(self._timeline.mark())
        self._host.append(self._clock())
        self._phases.append(phase)

    def end_step(self) -> None:
        self._ends.append(len(self._phases))

    def host_times(self) -> StepTimes:
        """By the host: on a device with a queue, the time that giving out the work took."""
        return self._times([later - earlier for earlier, later in pairwise(self._host)])

    def device_times(self) -> StepTimes:
        """By the device's own time line, once it is idle; by the host where it has none."""
        if self._timeline is None:
            return self.host_times()
        seconds = self._timeline.seconds
        return self._times([seconds(earlier, later) for earlier, later in pairwise(self._device)])

    def _times(self, durations_s: list[float]) -> StepTimes:
        taken = list(zip(self._phases[1:], durations_s, strict=True))  # mark 0 is the start
        steps: list[float] = []
        split: dict[str, list[float]] = defaultdict(list)
        for first, end in pairwise([1, *self._ends]):
            sums: dict[str, float] = defaultdict(float)
            for phase, time_s in taken[first - 1 : end - 1]:
                sums[phase] += time_s
            for phase, time_s in sums.items():
                split[phase].append(time_s)
            steps.append(sum(sums.values()))
        return StepTimes(
            steps_s=tuple(steps), phases_s={name: tuple(times) for name, times in split.items()}
        )


# ---------------------------------------------------------------- the warm-up


def warm_up(
    step: Step,
    synchronize: Callable[[], None],
    *,
    steps: int | None = None,
    clock_hz: Callable[[], float | None] = lambda: None,
    limit_s: float = WARMUP_LIMIT_S,
    clock: Callable[[], float] = perf_counter,
    on_progress: OnProgress = lambda done, total: None,
) -> WarmUp:
    """Take exactly so many steps; without a number, step until times and clocks are alike.

    It then ends `limit_s` after the first LEAST_WARMUP steps, which are not held against it: in
    them torch.compile and cuDNN set up.
    """
    no_marks = NoMarks()
    times_s: list[float] = []
    clocks_hz: list[float] = []
    synchronize()
    began_s = set_up_s = start_s = clock()

    def is_enough() -> bool:
        if steps is not None:
            return len(times_s) >= steps
        settled = is_steady(times_s, clocks_hz) and start_s - began_s >= LEAST_WARMUP_S
        return len(times_s) >= LEAST_WARMUP and (bool(settled) or start_s - set_up_s > limit_s)

    while not is_enough():
        step(no_marks)
        synchronize()
        now_s = clock()
        times_s.append(now_s - start_s)
        if (reading := clock_hz()) is not None:
            clocks_hz.append(reading)
        on_progress(len(times_s), max(steps or LEAST_WARMUP, len(times_s)))
        start_s = clock()
        if len(times_s) <= LEAST_WARMUP:
            set_up_s = start_s
    return WarmUp(
        times_s=tuple(times_s), clocks_hz=tuple(clocks_hz), is_steady=is_steady(times_s, clocks_hz)
    )


def is_steady(times_s: Sequence[float], clocks_hz: Sequence[float] = ()) -> bool | None:
    """Whether the last two windows of times, and of clocks, are alike; None: too few to tell."""
    if len(times_s) < 2 * WINDOW:
        return None
    return _alike(times_s) and (len(clocks_hz) < 2 * WINDOW or _alike(clocks_hz))


def _alike(samples: Sequence[float]) -> bool:
    before, after = median(samples[-2 * WINDOW : -WINDOW]), median(samples[-WINDOW:])
    return abs(after - before) <= STEADY * before


def choose_iters(requested: int | None, warmup: WarmUp) -> int:
    """What was asked, or as many steps as last about ten seconds: 6 to 100.

    Without a warm-up, nothing says how long a step is.
    """
    if requested is not None or not warmup.times_s:
        return requested or LEAST_ITERS
    step_s = median(warmup.times_s[-WINDOW:])
    return min(max(ceil(TARGET_S / step_s), LEAST_ITERS), MOST_ITERS)


# ---------------------------------------------------------------- the timed loop


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The timed steps."""

    elapsed_s: float  # from an idle device to an idle device, by the host's monotonic clock
    device: StepTimes  # by the device's events; by the host's clock where there are none
    host: StepTimes  # when the host had given the work out
    usage: Usage
    start_s: float  # on the host's clock: to find readings of other sensors
    end_s: float


def time_steps(
    step: Step,
    recorder: StepRecorder,
    synchronize: Callable[[], None],
    *,
    iters: int,
    parts: int = 1,
    clock: Callable[[], float] = perf_counter,
    on_progress: OnProgress = lambda done, total: None,
) -> Timing:
    """Take `iters` steps, one after another, and time each of them."""
    recorder.prepare(iters * (MARKS_PER_PART * parts + 1))
    synchronize()
    before = resource.getrusage(resource.RUSAGE_SELF)
    start_s = reported_s = clock()
    recorder.start()
    for number in range(iters):
        step(recorder)
        recorder.end_step()
        if clock() - reported_s > REPORT_EVERY_S and number + 1 < iters:
            reported_s = clock()
            on_progress(number + 1, iters)
    synchronize()
    end_s = clock()
    return Timing(
        elapsed_s=end_s - start_s,
        usage=usage_since(before, end_s - start_s),
        device=recorder.device_times(),
        host=recorder.host_times(),
        start_s=start_s,
        end_s=end_s,
    )


# ---------------------------------------------------------------- what the process cost


def usage_since(before: resource.struct_rusage, elapsed_s: float) -> Usage:
    now = resource.getrusage(resource.RUSAGE_SELF)
    user_s, system_s = now.ru_utime - before.ru_utime, now.ru_stime - before.ru_stime
    return Usage(
        user_time_s=user_s,
        system_time_s=system_s,
        elapsed_s=elapsed_s,
        involuntary_switches=now.ru_nivcsw - before.ru_nivcsw,
        cores=(user_s + system_s) / elapsed_s if elapsed_s else 0.0,
    )


def process_stats() -> ProcessStats:
    """What the process cost up to now: what `/usr/bin/time -v` tells, on Linux and macOS."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ProcessStats(
        user_time_s=own.ru_utime + children.ru_utime,
        system_time_s=own.ru_stime + children.ru_stime,
        peak_rss_bytes=own.ru_maxrss * RSS_UNIT_BYTES,
        peak_child_rss_bytes=children.ru_maxrss * RSS_UNIT_BYTES,
        minor_faults=own.ru_minflt + children.ru_minflt,
        major_faults=own.ru_majflt + children.ru_majflt,
        voluntary_switches=own.ru_nvcsw + children.ru_nvcsw,
        involuntary_switches=own.ru_nivcsw + children.ru_nivcsw,
    )


# ---------------------------------------------------------------- how much of a step a GPU works
# The profiler slows the host down, not the kernels; so kernel time is taken under the profiler, in
# a pass of its own, and compared with the time of an unprofiled step.


def measure_kernel_time(
    step: Step, synchronize: Callable[[], None], *, steps: int = KERNEL_STEPS
) -> KernelTime | None:
    """Profile a few steps; None where the profiler sees no kernels (it may be forbidden)."""
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
    """The length of the union of intervals: kernels that overlap count once."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
