"""From readings of meters to watts, joules and a table: arithmetic on lists, without a device.

A sensor renews its value every 20 to 100 ms and repeats it in between. What counts is when the
value changed: between the last reading of the old value and the first of the new one. Energy is
taken between two such moments inside one window, never across the gap to the next window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING

from ridgeline.sensors.sampler import Reading, within
from ridgeline.units import format_time, si

if TYPE_CHECKING:
    import pandas as pd

LEAST_UPDATES = 3  # fewer say nothing about an interval
STRETCH_S = 0.1  # watts from a counter: over so long at least, or they are mostly noise
STUCK_S = 1.0  # a counter that stands still for so long under load is broken
JUMP = 10.0  # times the usual step, and the usual power: more is no work of a steady load
BETWEEN = "between"  # a reading that belongs to no pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """A stretch of time with a name: "idle", "lead-in" or "window 1"."""

    name: str
    start_s: float
    end_s: float
    steps: int = 0

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """A moment at which a sensor had a new value."""

    time_s: float
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerSamples:
    """Watts as they were sampled. `std_w` is the sample's: divided by n − 1."""

    count: int
    mean_w: float
    std_w: float
    min_w: float
    max_w: float


def joules(reading: Reading) -> float | None:
    return reading.energy_j


def watts(reading: Reading) -> float | None:
    return reading.power_w


def updates(
    readings: Sequence[Reading], value_of: Callable[[Reading], float | None]
) -> list[Update]:
    """When the value changed, and to what; half-way between the two readings that show it."""
    known = [(r.time_s, value) for r in readings if (value := value_of(r)) is not None]
    return [
        Update(time_s=(before_s + now_s) / 2, value=now)
        for (before_s, before), (now_s, now) in pairwise(known)
        if now != before
    ]


def refresh_interval_s(readings: Sequence[Reading]) -> float | None:
    """How often the sensor has a new value: the counter's, or the power's where there is none.

    A load has to run meanwhile: idle watts may stay the same from one value to the next.
    """
    for value_of in (joules, watts):
        times_s = [update.time_s for update in updates(readings, value_of)]
        if len(times_s) >= LEAST_UPDATES:
            return median(later - earlier for earlier, later in pairwise(times_s))
    return None


def counter_power_w(readings: Sequence[Reading], start_s: float, end_s: float) -> float | None:
    """Mean power by the counter, from its first to its last update inside the window."""
    seen = updates(within(readings, start_s, end_s), joules)
    if len(seen) < 2:
        return None
    first, last = seen[0], seen[-1]
    return (last.value - first.value) / (last.time_s - first.time_s)


def sampled_power_w(readings: Sequence[Reading], start_s: float, end_s: float) -> float | None:
    """Mean power by the sensor, from its first update inside the window to the window's end.

    What it said before that update is from before the window. A value that never changes is one
    that stayed the same.
    """
    inside = within(readings, start_s, end_s)
    seen = updates(inside, watts)
    if not seen:
        known = [value for reading in inside if (value := watts(reading)) is not None]
        return fmean(known) if known else None
    ends_s = [*(update.time_s for update in seen[1:]), end_s]
    held_j = sum(
        update.value * (until_s - update.time_s)
        for update, until_s in zip(seen, ends_s, strict=True)
    )
    return held_j / (end_s - seen[0].time_s)


def powers_w(readings: Sequence[Reading], start_s: float, end_s: float) -> list[float]:
    """The watts sampled in a window: the sensor's, or the counter's over stretches of 0.1 s."""
    inside = within(readings, start_s, end_s)
    if sampled := [update.value for update in updates(inside, watts)]:
        return sampled
    slopes_w = []
    seen = updates(inside, joules)
    first = seen[0] if seen else None
    for update in seen:
        if first and update.time_s - first.time_s >= STRETCH_S:
            slopes_w.append((update.value - first.value) / (update.time_s - first.time_s))
            first = update
    return slopes_w


def power_samples(values_w: Sequence[float]) -> PowerSamples | None:
    """What many samples of power come to."""
    if not values_w:
        return None
    return PowerSamples(
        count=len(values_w),
        mean_w=fmean(values_w),
        std_w=stdev(values_w) if len(values_w) > 1 else 0.0,
        min_w=min(values_w),
        max_w=max(values_w),
    )


def counter_fault(readings: Sequence[Reading], start_s: float, end_s: float) -> str | None:
    """What is wrong with the counter under a steady load, or None."""
    inside = within(readings, start_s, end_s)
    seen = updates(inside, joules)
    if all(joules(reading) is None for reading in inside):
        return "did not answer"
    if len(seen) < 2:
        stood_s = end_s - start_s
        return f"did not advance in {format_time(stood_s)} of work" if stood_s >= STUCK_S else None
    steps = [(b.value - a.value, b.time_s - a.time_s) for a, b in pairwise(seen)]
    if (back_j := min(step_j for step_j, _ in steps)) < 0:
        return f"went backwards by {si(-back_j, 'J')}"
    usual_j = median(step_j for step_j, _ in steps)
    usual_w = median(step_j / step_s for step_j, step_s in steps)
    step_j, step_s = max(steps)
    if step_j > JUMP * usual_j and step_j / step_s > JUMP * usual_w:
        return f"jumped by {si(step_j, 'J')} at once, where {si(usual_j, 'J')} is usual"
    return None


def readings_table(readings: Sequence[Reading], passes: Sequence[Pass]) -> pd.DataFrame:
    """Columns time_s, pass, power_w, energy_j, clock_hz, memory_clock_hz, temperature_c and
    throttle_reasons (joined by "; ", empty where none held, absent where it was not asked).
    """
    import pandas as pd

    numbers = ("clock_hz", "memory_clock_hz", "temperature_c")
    seen = [reading.conditions for reading in readings]
    table = pd.DataFrame(
        {
            "time_s": [reading.time_s for reading in readings],
            "pass": [pass_at(reading.time_s, passes) for reading in readings],
            "power_w": [_power_w(reading) for reading in readings],
            "energy_j": [reading.energy_j for reading in readings],
            **{name: [getattr(one, name) for one in seen] for name in numbers},
        }
    ).astype(dict.fromkeys(("time_s", "power_w", "energy_j", *numbers), "float64"))
    return table.assign(throttle_reasons=["; ".join(one.throttle_reasons) for one in seen])


def _power_w(reading: Reading) -> float | None:
    """By the meter, or as the conditions have it where the meter was not asked."""
    return reading.conditions.power_w if reading.power_w is None else reading.power_w


def pass_at(time_s: float, passes: Sequence[Pass]) -> str:
    """The name of the pass at this time."""
    return next((one.name for one in passes if one.start_s <= time_s <= one.end_s), BETWEEN)
