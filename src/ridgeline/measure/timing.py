"""The warm-up and the timed loop.

The device is waited for before the first and after the last timed step, never in between. Every
sample is kept, those of the warm-up too. Clock, device and readings come in as arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median
from time import perf_counter

from ridgeline.measure.marks import Marks, NoMarks, StepRecorder, StepTimes
from ridgeline.measure.process import Stopwatch
from ridgeline.records import Usage
from ridgeline.records import WarmUp as WarmUp

Step = Callable[[Marks], None]
OnProgress = Callable[[int, int], None]  # steps done, steps in all

WINDOW = 5  # steps that are compared with as many before them
STEADY = 0.02  # two windows are alike
LEAST_WARMUP = 3
LEAST_WARMUP_S = 0.5  # clocks and caches take this long, however short a step is
WARMUP_LIMIT_S = 10.0  # of waiting for steadiness, after the first LEAST_WARMUP steps
TARGET_S = 10.0  # a measurement of unstated length lasts about so long
LEAST_ITERS, MOST_ITERS = 6, 100
MARKS_PER_PART = 4
REPORT_EVERY_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The timed steps."""

    elapsed_s: float  # from an idle device to an idle device, by the host's monotonic clock
    device: StepTimes  # by the device's events; by the host's clock where there are none
    host: StepTimes  # when the host had given the work out
    has_events: bool
    usage: Usage
    start_s: float  # on the host's clock: to find readings of other sensors
    end_s: float


def warm_up(
    step: Step,
    synchronize: Callable[[], None],
    *,
    least: int | None,
    clock_hz: Callable[[], float | None] = lambda: None,
    limit_s: float = WARMUP_LIMIT_S,
    clock: Callable[[], float] = perf_counter,
    on_progress: OnProgress = lambda done, total: None,
) -> WarmUp:
    """Step until the last times and clocks are alike, at least `least` times.

    It ends `limit_s` after the first LEAST_WARMUP steps, which are not held against it: in them
    torch.compile and cuDNN set up. What was asked for is always done.
    """
    least_steps = LEAST_WARMUP if least is None else least
    no_marks = NoMarks()
    times_s: list[float] = []
    clocks_hz: list[float] = []
    synchronize()
    began_s = set_up_s = start_s = clock()

    def is_enough() -> bool:
        settled = is_steady(times_s, clocks_hz) and start_s - began_s >= LEAST_WARMUP_S
        return len(times_s) >= least_steps and (bool(settled) or start_s - set_up_s > limit_s)

    while not is_enough():
        step(no_marks)
        synchronize()
        now_s = clock()
        times_s.append(now_s - start_s)
        if (reading := clock_hz()) is not None:
            clocks_hz.append(reading)
        on_progress(len(times_s), max(least_steps, len(times_s)))
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
    """What was asked, or as many steps as last about ten seconds: 6 to 100."""
    if requested is not None:
        return requested
    if not warmup.times_s:
        return MOST_ITERS
    step_s = median(warmup.times_s[-WINDOW:])
    return min(max(ceil(TARGET_S / step_s), LEAST_ITERS), MOST_ITERS)


def time_steps(
    step: Step,
    recorder: StepRecorder,
    synchronize: Callable[[], None],
    *,
    iters: int,
    has_events: bool,
    parts: int = 1,
    clock: Callable[[], float] = perf_counter,
    on_progress: OnProgress = lambda done, total: None,
) -> Timing:
    """Take `iters` steps, one after another, and time each of them."""
    recorder.prepare(iters * (MARKS_PER_PART * parts + 1))
    synchronize()
    stopwatch = Stopwatch()
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
    usage = stopwatch.usage()
    return Timing(
        elapsed_s=end_s - start_s,
        device=recorder.device_times(),
        host=recorder.host_times(),
        has_events=has_events,
        usage=usage,
        start_s=start_s,
        end_s=end_s,
    )
