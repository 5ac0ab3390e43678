"""Joules: an idle baseline, then windows of unbroken work on the best meter there is.

A sensor renews its value every 20 to 100 ms and repeats it in between. What counts is when the
value changed: between the last reading of the old value and the first of the new one. A window
lasts for many refreshes. Its power is the slope of the energy counter between two of its updates,
or the mean of the power sensor's; its energy is that power times its length, never across the gap
to the next window. Counter and sensor are both kept where both exist: they check each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil
from statistics import fmean, median, stdev
from time import perf_counter, sleep
from typing import NamedTuple

from ridgeline.machine.sampling import median_interval
from ridgeline.records import EnergyResult, EnergyWindowResult
from ridgeline.sensors.sampler import (
    COUNTER,
    FAST_S,
    Meter,
    Meters,
    Reading,
    Sampler,
    summarise,
    within,
)
from ridgeline.units import format_percent, format_time, si

WINDOW_S = 1.0
LEAST_WINDOWS = 3
REFRESHES = 20  # in a window at least: one more or less of them is then 5 %, and none is lost
IDLE_S = 1.0
LEAD_S = 1.0  # work before the first window: sensors average over up to a second
WIDE = 0.05  # windows that differ by more are called unstable
DISAGREE = 0.05  # counter and sensor
LEAST_UPDATES = 3  # fewer say nothing about an interval
STRETCH_S = 0.1  # watts from a counter: over so long at least, or they are mostly noise
STUCK_S = 1.0  # a counter that stands still for so long under load is broken


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


class CallLoop:
    """Calls in batches; the device is waited for once a batch."""

    def __init__(
        self,
        call: Callable[[], object],
        synchronize: Callable[[], object],
        clock: Callable[[], float] = perf_counter,
        calls_per_batch: int = 1,
    ) -> None:
        self.call, self.synchronize, self.clock = call, synchronize, clock
        self.calls_per_batch = calls_per_batch

    def calibrate(self, batch_s: float) -> None:
        """Find how many calls fill a batch; this is the warm-up, too.

        The fastest of three batches counts: one that is slow by accident, as the first is when it
        compiles, would leave batches of a single call, and the device waiting after each.
        """
        while (taken_s := min(self._time_batch() for _ in range(3))) < batch_s / 2:
            growth = min(batch_s / max(taken_s, 1e-9), 100.0)
            self.calls_per_batch = max(2, round(growth)) * self.calls_per_batch

    def run_for(self, duration_s: float) -> int:
        """Batches for at least so long; how many calls they were."""
        calls, end_s = 0, self.clock() + duration_s
        while self.clock() < end_s:
            self._time_batch()
            calls += self.calls_per_batch
        return calls

    def _time_batch(self) -> float:
        start_s = self.clock()
        for _ in range(self.calls_per_batch):
            self.call()
        self.synchronize()
        return self.clock() - start_s


def take_pass(
    name: str, work: Callable[[float], int], length_s: float, clock: Callable[[], float]
) -> Pass:
    """Work for so long; `work` answers how many steps that were."""
    start_s = clock()
    steps = work(length_s)
    return Pass(name=name, start_s=start_s, end_s=clock(), steps=steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyMeasurement:
    """The energy, or the reasons why there is none; and all that was read on the way."""

    energy: EnergyResult | None = None
    reasons: tuple[str, ...] = ()
    readings: tuple[Reading, ...] = ()
    passes: tuple[Pass, ...] = ()


def measure_energy(
    run_for: Callable[[float], int],
    meters: Meters,
    *,
    samples_per_step: int,
    total_s: float,
    sampler: Sampler | None = None,
    clock: Callable[[], float] = perf_counter,
    rest: Callable[[float], object] = sleep,
) -> EnergyMeasurement:
    """Measure the energy of steps, in as many windows as last `total_s`, but no fewer than three.

    `run_for` takes steps for at least so many seconds, waits for the device, and returns how many
    it took. The device has to be idle at the call: what it draws then is the baseline.
    """
    if not meters.available:
        return EnergyMeasurement(reasons=meters.reasons)
    sampler = sampler or Sampler(meters, interval_s=FAST_S, clock=clock)

    def stay_idle(length_s: float) -> int:
        rest(length_s)
        return 0

    with sampler:
        idle = take_pass("idle", stay_idle, IDLE_S, clock)
        lead = take_pass("lead-in", run_for, LEAD_S, clock)
        refresh_s = refresh_interval_s(within(sampler.readings, lead.start_s, lead.end_s)) or 0.0
        length_s = max(WINDOW_S, REFRESHES * refresh_s)
        count = max(LEAST_WINDOWS, round(total_s / length_s))
        loads = [take_pass(f"window {n}", run_for, length_s, clock) for n in range(1, count + 1)]
    return evaluate_passes(meters, sampler.readings, [idle, lead, *loads], samples_per_step)


def evaluate_passes(
    meters: Meters, readings: Sequence[Reading], passes: Sequence[Pass], samples_per_step: int
) -> EnergyMeasurement:
    """The energy of the passes named "window …", from readings alone."""
    loads = [one for one in passes if one.name.startswith("window")]
    meter, windows, notes = _integrate_windows(meters, readings, loads)
    measurement = EnergyMeasurement(readings=tuple(readings), passes=tuple(passes))
    if meter is None:
        return replace(measurement, reasons=(*meters.reasons, *notes))
    start_s, end_s = loads[0].start_s, loads[-1].end_s
    energy = replace(
        summarise_windows(
            windows,
            samples_per_step=samples_per_step,
            idle_power_w=idle_power_w(meter, readings, passes),
            powers_w=[w for one in loads for w in powers_w(readings, one.start_s, one.end_s)],
        ),
        meter=meter.name,
        scope=meter.scope,
        kind=meter.kind,
        refresh_interval_s=refresh_interval_s(within(readings, start_s, end_s)),
        conditions=summarise(readings, start_s, end_s),
        notes=tuple(notes),
    )
    return replace(measurement, energy=replace(energy, warnings=tuple(advise_on_energy(energy))))


def summarise_windows(
    windows: Sequence[EnergyWindowResult],
    *,
    samples_per_step: int,
    idle_power_w: float | None = None,
    powers_w: Sequence[float] = (),
) -> EnergyResult:
    """What the windows come to. Energy per step is their median, power their mean."""
    each_j = [window.energy_j_per_step for window in windows]
    total_j = sum(window.mean_power_w * window.duration_s for window in windows)
    duration_s = sum(window.duration_s for window in windows)
    counter_w = _mean([window.counter_power_w for window in windows])
    sampled_w = _mean([window.sampled_power_w for window in windows])
    above_idle_j = None
    if idle_power_w is not None:  # beside the whole, never instead of it
        above_idle_j = median(
            (window.mean_power_w - idle_power_w) * window.duration_s / window.steps
            for window in windows
        )
    return EnergyResult(
        windows=tuple(windows),
        samples_per_step=samples_per_step,
        idle_power_w=idle_power_w,
        energy_j_per_step=median(each_j),
        interval_j_per_step=median_interval(each_j),
        energy_j_per_sample=median(each_j) / samples_per_step,
        energy_above_idle_j_per_step=above_idle_j,
        mean_power_w=total_j / duration_s,
        energy_total_j=total_j,
        duration_s=duration_s,
        step_time_s=duration_s / sum(window.steps for window in windows),
        counter_power_w=counter_w,
        sampled_power_w=sampled_w,
        counter_over_sampled=counter_w / sampled_w if counter_w is not None and sampled_w else None,
        power_samples=len(powers_w),
        power_mean_w=fmean(powers_w) if powers_w else None,
        power_std_w=(stdev(powers_w) if len(powers_w) > 1 else 0.0) if powers_w else None,
        power_min_w=min(powers_w, default=None),
        power_max_w=max(powers_w, default=None),
    )


def _integrate_windows(
    meters: Meters, readings: Sequence[Reading], passes: Sequence[Pass]
) -> tuple[Meter | None, list[EnergyWindowResult], list[str]]:
    """The windows by the first meter whose readings make sense; why others were passed over."""
    notes: list[str] = []
    for meter in meters.available:
        start_s, end_s = passes[0].start_s, passes[-1].end_s
        if meter.kind == COUNTER and (fault := counter_fault(readings, start_s, end_s)):
            notes.append(f"the {meter.name} {fault}: it is not used")
            continue
        windows = [_integrate(meter, readings, one) for one in passes]
        if complete := [window for window in windows if window is not None]:
            if lost := len(windows) - len(complete):
                notes.append(f"{lost} of {len(windows)} windows have no reading of their own")
            return meter, complete, notes
        notes.append(f"the {meter.name} did not answer")
    return None, [], notes


def _integrate(meter: Meter, readings: Sequence[Reading], one: Pass) -> EnergyWindowResult | None:
    counter_w = counter_power_w(readings, one.start_s, one.end_s)
    sampled_w = sampled_power_w(readings, one.start_s, one.end_s)
    power_w = counter_w if meter.kind == COUNTER else sampled_w
    if power_w is None:
        return None
    return EnergyWindowResult(
        start_s=one.start_s,
        end_s=one.end_s,
        steps=one.steps,
        energy_j=power_w * one.duration_s,
        mean_power_w=power_w,
        energy_j_per_step=power_w * one.duration_s / one.steps,
        counter_power_w=counter_w,
        sampled_power_w=sampled_w,
    )


def idle_power_w(meter: Meter, readings: Sequence[Reading], passes: Sequence[Pass]) -> float | None:
    """By the second half of the idle pass: in the first a sensor may still average older work."""
    power_w = counter_power_w if meter.kind == COUNTER else sampled_power_w
    halves = [((one.start_s + one.end_s) / 2, one.end_s) for one in passes if one.name == "idle"]
    return power_w(readings, *halves[0]) if halves else None


def advise_on_energy(energy: EnergyResult) -> list[str]:
    """What is doubtful about the joules, by how much, and what to do."""
    messages = []
    each_j = [window.energy_j_per_step for window in energy.windows]
    middle_j = median(each_j)  # nothing at all, where the device had no part in the work
    wide = (max(each_j) - min(each_j)) / middle_j if middle_j else 0.0
    if wide > WIDE:
        longer_s = ceil(2 * (energy.duration_s or 0.0))
        messages.append(
            f"windows differ by {format_percent(wide)}: run longer with "
            f"`ridgeline run … --energy-time {longer_s}`"
        )
    ratio = energy.counter_over_sampled
    if ratio is not None and abs(ratio - 1) > DISAGREE:
        messages.append(
            f"the energy counter says {format_percent(abs(ratio - 1))} "
            f"{'more' if ratio > 1 else 'less'} than the power sensor "
            f"({energy.counter_power_w:.4g} W and {energy.sampled_power_w:.4g} W): take that for "
            "the uncertainty of the joules; a meter at the wall socket tells which is right"
        )
    return messages


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


# ---------------------------------------------------------------- from readings to watts


class Update(NamedTuple):
    """A moment at which a sensor had a new value."""

    time_s: float
    value: float


def updates(readings: Sequence[Reading], name: str) -> list[Update]:
    """When the value changed, and to what; half-way between the two readings that show it."""
    known = [(one.time_s, value) for one in readings if (value := getattr(one, name)) is not None]
    return [
        Update((before_s + now_s) / 2, now)
        for (before_s, before), (now_s, now) in pairwise(known)
        if now != before
    ]


def refresh_interval_s(readings: Sequence[Reading]) -> float | None:
    """How often the sensor has a new value: the counter's, or the power's where there is none.

    A load has to run meanwhile: idle watts may stay the same from one value to the next.
    """
    for name in ("energy_j", "power_w"):
        times_s = [update.time_s for update in updates(readings, name)]
        if len(times_s) >= LEAST_UPDATES:
            return median(later - earlier for earlier, later in pairwise(times_s))
    return None


def counter_power_w(readings: Sequence[Reading], start_s: float, end_s: float) -> float | None:
    """Mean power by the counter, from its first to its last update inside the window."""
    seen = updates(within(readings, start_s, end_s), "energy_j")
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
    seen = updates(inside, "power_w")
    if not seen:
        known = [value for reading in inside if (value := reading.power_w) is not None]
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
    if sampled := [update.value for update in updates(inside, "power_w")]:
        return sampled
    slopes_w = []
    seen = updates(inside, "energy_j")
    first = seen[0] if seen else None
    for update in seen:
        if first and update.time_s - first.time_s >= STRETCH_S:
            slopes_w.append((update.value - first.value) / (update.time_s - first.time_s))
            first = update
    return slopes_w


def counter_fault(readings: Sequence[Reading], start_s: float, end_s: float) -> str | None:
    """What is wrong with the counter under a steady load, or None."""
    inside = within(readings, start_s, end_s)
    if all(reading.energy_j is None for reading in inside):
        return "did not answer"
    seen = updates(inside, "energy_j")
    if len(seen) < 2:
        stood_s = end_s - start_s
        return f"did not advance in {format_time(stood_s)} of work" if stood_s >= STUCK_S else None
    back_j = max(before.value - now.value for before, now in pairwise(seen))
    return f"went backwards by {si(back_j, 'J')}" if back_j > 0 else None
