"""Joules of a step: an idle baseline, then windows of unbroken work on the best meter there is.

A window lasts for at least 20 refreshes of the sensor. Its power is the slope of the energy counter
between two of its updates, or the mean of the power sensor's; its energy is that power times its
length. Counter and sensor are both kept where both exist: they check each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from statistics import fmean, median
from time import perf_counter, sleep

from ridgeline.measure.power import (
    Pass,
    counter_fault,
    counter_power_w,
    power_samples,
    powers_w,
    refresh_interval_s,
    sampled_power_w,
)
from ridgeline.measure.statistics import median_interval
from ridgeline.records import EnergyResult, EnergyWindowResult
from ridgeline.sensors.meter import COUNTER, Meter, Meters
from ridgeline.sensors.sampler import FAST_S, Reading, Sampler, summarise, within
from ridgeline.units import format_percent, si

WINDOW_S = 1.0
LEAST_WINDOWS = 3
REFRESHES = 20  # in a window at least: one more or less of them is then 5 %, and none is lost
LEAD_S = 1.0  # work before the first window: sensors average over up to a second
WIDE = 0.05  # windows that differ by more are called unstable
DISAGREE = 0.05  # counter and sensor
OUTLIER_MADS = 5
OUTLIER_SHARE = 0.10


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowEnergies:
    """The windows by the best meter that works, or why none does."""

    meter: Meter | None = None
    windows: tuple[EnergyWindowResult, ...] = ()
    notes: tuple[str, ...] = ()  # meters that were passed over, and why

    @property
    def each_j(self) -> list[float]:
        """Joules of a step, window by window."""
        return [window.energy_j_per_step for window in self.windows]


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
    window_s: float | None = None,
    windows: int | None = 5,
    total_s: float = 0.0,
    idle_s: float = 1.0,
    sampler: Sampler | None = None,
    clock: Callable[[], float] = perf_counter,
    rest: Callable[[float], object] = sleep,
) -> EnergyMeasurement:
    """Measure the energy of steps.

    `run_for` takes steps for at least so many seconds, waits for the device, and returns how many
    it took. The device has to be idle at the call: what it draws then is the baseline. Without a
    number of `windows`, there are as many as last `total_s`, but no fewer than three.
    """
    if not meters.available:
        return EnergyMeasurement(reasons=meters.reasons)
    sampler = sampler or Sampler(meters, interval_s=FAST_S, clock=clock)

    def stay_idle(length_s: float) -> int:
        rest(length_s)
        return 0

    def time_pass(name: str, work: Callable[[float], int], length_s: float) -> Pass:
        start_s = clock()
        steps = work(length_s)
        return Pass(name=name, start_s=start_s, end_s=clock(), steps=steps)

    with sampler:
        passes = [time_pass("idle", stay_idle, idle_s), time_pass("lead-in", run_for, LEAD_S)]
        lead = passes[-1]
        refresh_s = refresh_interval_s(within(sampler.readings, lead.start_s, lead.end_s)) or 0.0
        length_s = max(window_s or WINDOW_S, REFRESHES * refresh_s)
        count = windows or max(LEAST_WINDOWS, round(total_s / length_s))
        passes += [time_pass(f"window {n}", run_for, length_s) for n in range(1, count + 1)]
    return evaluate_passes(meters, sampler.readings, passes, samples_per_step)


def evaluate_passes(
    meters: Meters, readings: Sequence[Reading], passes: Sequence[Pass], samples_per_step: int
) -> EnergyMeasurement:
    """The energy of the passes named "window …", from readings alone."""
    loads = [one for one in passes if one.name.startswith("window")]
    energies = integrate_windows(meters, readings, loads)
    measurement = EnergyMeasurement(readings=tuple(readings), passes=tuple(passes))
    if energies.meter is None:
        return replace(measurement, reasons=meters.reasons + energies.notes)
    start_s, end_s = loads[0].start_s, loads[-1].end_s
    energy = replace(
        summarise_windows(
            energies.windows,
            samples_per_step=samples_per_step,
            idle_power_w=idle_power_w(energies.meter, readings, passes),
            powers_w=sampled_watts(readings, loads),
        ),
        meter=energies.meter.name,
        scope=energies.meter.scope,
        kind=energies.meter.kind,
        refresh_interval_s=refresh_interval_s(within(readings, start_s, end_s)),
        conditions=summarise(readings, start_s, end_s),
        notes=energies.notes,
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
    power = power_samples(powers_w)
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
        power_samples=power.count if power else 0,
        power_mean_w=power.mean_w if power else None,
        power_std_w=power.std_w if power else None,
        power_min_w=power.min_w if power else None,
        power_max_w=power.max_w if power else None,
        outliers=find_outliers(each_j),
    )


def sampled_watts(readings: Sequence[Reading], passes: Sequence[Pass]) -> list[float]:
    """Every sample of power in the passes."""
    return [value for one in passes for value in powers_w(readings, one.start_s, one.end_s)]


def integrate_windows(
    meters: Meters, readings: Sequence[Reading], passes: Sequence[Pass]
) -> WindowEnergies:
    """The energy of each pass, by the first meter whose readings make sense."""
    notes: list[str] = []
    for meter in meters.available:
        if fault := _find_fault(meter, readings, passes):
            notes.append(f"the {meter.name} {fault}: it is not used")
            continue
        windows = [_integrate(meter, readings, one) for one in passes]
        if complete := tuple(window for window in windows if window is not None):
            if lost := len(windows) - len(complete):
                notes.append(f"{lost} of {len(windows)} windows have no reading of their own")
            return WindowEnergies(meter=meter, windows=complete, notes=tuple(notes))
        notes.append(f"the {meter.name} did not answer")
    return WindowEnergies(notes=tuple(notes))


def _find_fault(meter: Meter, readings: Sequence[Reading], passes: Sequence[Pass]) -> str | None:
    if meter.kind != COUNTER or not passes:
        return None
    return counter_fault(readings, passes[0].start_s, passes[-1].end_s)


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
    for one in passes:
        if one.name == "idle":
            return power_w(readings, (one.start_s + one.end_s) / 2, one.end_s)
    return None


def find_outliers(values: Sequence[float]) -> tuple[int, ...]:
    """Which values are far from the others: by over 5 of their median deviations, and 10 %."""
    if len(values) < 3:
        return ()
    far = []
    for index, value in enumerate(values):
        others = [*values[:index], *values[index + 1 :]]
        middle = median(others)
        deviation = median(abs(other - middle) for other in others)
        if abs(value - middle) > max(OUTLIER_MADS * deviation, OUTLIER_SHARE * middle):
            far.append(index)
    return tuple(far)


def advise_on_energy(energy: EnergyResult) -> list[str]:
    """What is doubtful about the joules, by how much, and what to do."""
    messages = []
    each_j = [window.energy_j_per_step for window in energy.windows]
    for index in energy.outliers:
        others_j = median(each_j[:index] + each_j[index + 1 :])
        messages.append(
            f"window {index + 1} took {si(each_j[index], 'J')} a step, the others "
            f"{si(others_j, 'J')}: a bad reading, or something else ran; measure again"
        )
    middle_j = median(each_j)  # nothing at all, where the device had no part in the work
    wide = (max(each_j) - min(each_j)) / middle_j if middle_j else 0.0
    if wide > WIDE and not messages:
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
