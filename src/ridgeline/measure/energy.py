"""Joules of a step: an idle baseline, then windows of unbroken work on the best meter there is.

A window lasts for at least 20 refreshes of the sensor. Its power is the slope of the energy counter
between two of its updates, or the mean of the power sensor's; its energy is that power times its
length. Counter and sensor are both kept where both exist: they check each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import ceil
from statistics import fmean, median
from time import perf_counter, sleep
from typing import Any

from ridgeline.measure.energy_window import EnergyWindow, Pass, mean_power_w, outliers, weigh
from ridgeline.measure.power_maths import (
    PowerSamples,
    power_samples,
    powers_w,
    refresh_interval_s,
)
from ridgeline.measure.statistics import median_interval
from ridgeline.sensors.conditions import Conditions
from ridgeline.sensors.meter import Meter, Meters
from ridgeline.sensors.sampler import FAST_S, Reading, Sampler, summarise, within
from ridgeline.units import format_percent, si

WINDOW_S = 1.0
LEAST_WINDOWS = 3
REFRESHES = 20  # in a window at least: one more or less of them is then 5 %, and none is lost
LEAD_S = 1.0  # work before the first window: sensors average over up to a second
WIDE = 0.05  # windows that differ by more are called unstable
DISAGREE = 0.05  # counter and sensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """What steps took, by one meter. Every window is kept; `scope` says what the joules are of."""

    meter: str
    scope: str
    kind: str  # "counter" or "power"
    samples_per_step: int
    windows: tuple[EnergyWindow, ...]
    interval_j_per_step: tuple[float, float] | None  # of the median, 95 %, by bootstrap
    refresh_interval_s: float | None = None
    idle_power_w: float | None = None
    power: PowerSamples | None = None  # as sampled in the windows
    conditions: Conditions = field(default_factory=Conditions)  # in the windows
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    provenance: str = "measured"

    @property
    def duration_s(self) -> float:
        """Of all windows."""
        return sum(window.duration_s for window in self.windows)

    @property
    def energy_total_j(self) -> float:
        """Of all windows."""
        return sum(window.energy_j for window in self.windows)

    @property
    def step_time_s(self) -> float:
        """Of the steps in the windows, on average."""
        return self.duration_s / sum(window.steps for window in self.windows)

    @property
    def mean_power_w(self) -> float:
        return self.energy_total_j / self.duration_s

    @property
    def energy_j_per_step(self) -> float:
        """The median of the windows'."""
        return median(window.energy_j_per_step for window in self.windows)

    @property
    def energy_j_per_sample(self) -> float:
        return self.energy_j_per_step / self.samples_per_step

    @property
    def energy_above_idle_j_per_step(self) -> float | None:
        """What is left without the idle power. Beside the whole, never instead of it."""
        if (idle_w := self.idle_power_w) is None:
            return None
        return median((w.mean_power_w - idle_w) * w.duration_s / w.steps for w in self.windows)

    @property
    def counter_power_w(self) -> float | None:
        return _mean([window.counter_power_w for window in self.windows])

    @property
    def sampled_power_w(self) -> float | None:
        return _mean([window.sampled_power_w for window in self.windows])

    @property
    def counter_over_sampled(self) -> float | None:
        """The two meters' ratio: 1 where they agree, None where there is one only."""
        if self.counter_power_w is None or not self.sampled_power_w:
            return None
        return self.counter_power_w / self.sampled_power_w

    @property
    def outliers(self) -> tuple[int, ...]:
        """Indices of the windows that are far from the others."""
        return outliers([window.energy_j_per_step for window in self.windows])

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON, with what follows from the fields."""
        return {
            "meter": self.meter,
            "scope": self.scope,
            "kind": self.kind,
            "provenance": self.provenance,
            "refresh_interval_s": self.refresh_interval_s,
            "idle_power_w": self.idle_power_w,
            "energy_j_per_step": self.energy_j_per_step,
            "interval_j_per_step": _listed(self.interval_j_per_step),
            "energy_j_per_sample": self.energy_j_per_sample,
            "energy_above_idle_j_per_step": self.energy_above_idle_j_per_step,
            "mean_power_w": self.mean_power_w,
            "energy_total_j": self.energy_total_j,
            "duration_s": self.duration_s,
            "step_time_s": self.step_time_s,
            "samples_per_step": self.samples_per_step,
            "counter_power_w": self.counter_power_w,
            "sampled_power_w": self.sampled_power_w,
            "counter_over_sampled": self.counter_over_sampled,
            **power_fields(self.power),
            "windows": [window.to_dict() for window in self.windows],
            "outliers": list(self.outliers),
            "conditions": conditions_to_dict(self.conditions),
            "notes": list(self.notes),
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyMeasurement:
    """The energy, or the reasons why there is none; and all that was read on the way."""

    energy: Energy | None = None
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

    `run_for` takes steps for at least so many seconds, waits for the device, and answers how many
    it took. The device has to be idle at the call: what it draws then is the baseline. Without a
    number of `windows`, there are as many as last `total_s`, but no fewer than three.
    """
    if not meters.found:
        return EnergyMeasurement(reasons=meters.reasons)
    sampler = sampler or Sampler(meters, interval_s=FAST_S, clock=clock)

    def idle(length_s: float) -> int:
        rest(length_s)
        return 0

    def timed(name: str, work: Callable[[float], int], length_s: float) -> Pass:
        start_s = clock()
        steps = work(length_s)
        return Pass(name=name, start_s=start_s, end_s=clock(), steps=steps)

    with sampler:
        passes = [timed("idle", idle, idle_s), timed("lead-in", run_for, LEAD_S)]
        lead = passes[-1]
        refresh_s = refresh_interval_s(within(sampler.readings, lead.start_s, lead.end_s)) or 0.0
        length_s = max(window_s or WINDOW_S, REFRESHES * refresh_s)
        count = windows or max(LEAST_WINDOWS, round(total_s / length_s))
        passes += [timed(f"window {n}", run_for, length_s) for n in range(1, count + 1)]
    return evaluate(meters, sampler.readings, passes, samples_per_step)


def evaluate(
    meters: Meters, readings: Sequence[Reading], passes: Sequence[Pass], samples_per_step: int
) -> EnergyMeasurement:
    """The energy of the passes named "window …", from readings alone."""
    loads = [one for one in passes if one.name.startswith("window")]
    weighed = weigh(meters, readings, loads)
    measurement = EnergyMeasurement(readings=tuple(readings), passes=tuple(passes))
    if weighed.meter is None:
        return replace(measurement, reasons=meters.reasons + weighed.notes)
    start_s, end_s = loads[0].start_s, loads[-1].end_s
    values_w = [value for one in loads for value in powers_w(readings, one.start_s, one.end_s)]
    energy = Energy(
        meter=weighed.meter.name,
        scope=weighed.meter.scope,
        kind=weighed.meter.kind,
        samples_per_step=samples_per_step,
        windows=weighed.windows,
        interval_j_per_step=median_interval([w.energy_j_per_step for w in weighed.windows]),
        refresh_interval_s=refresh_interval_s(within(readings, start_s, end_s)),
        idle_power_w=idle_power_w(weighed.meter, readings, passes),
        power=power_samples(values_w),
        conditions=summarise(readings, start_s, end_s),
        notes=weighed.notes,
    )
    return replace(measurement, energy=replace(energy, warnings=tuple(advice(energy))))


def idle_power_w(meter: Meter, readings: Sequence[Reading], passes: Sequence[Pass]) -> float | None:
    """By the second half of the idle pass: in the first a sensor may still average older work."""
    for one in passes:
        if one.name == "idle":
            middle_s = (one.start_s + one.end_s) / 2
            return mean_power_w(meter, readings, middle_s, one.end_s)
    return None


def advice(energy: Energy) -> list[str]:
    """What is doubtful about the joules, by how much, and what to do."""
    found = []
    each_j = [window.energy_j_per_step for window in energy.windows]
    for index in energy.outliers:
        others_j = median(each_j[:index] + each_j[index + 1 :])
        found.append(
            f"window {index + 1} took {si(each_j[index], 'J')} a step, the others "
            f"{si(others_j, 'J')}: a bad reading, or something else ran; measure again"
        )
    middle_j = median(each_j)  # nothing at all, where the device had no part in the work
    wide = (max(each_j) - min(each_j)) / middle_j if middle_j else 0.0
    if wide > WIDE and not found:
        longer_s = ceil(2 * energy.duration_s)
        found.append(
            f"windows differ by {format_percent(wide)}: run longer with "
            f"`ridgeline run … --energy-time {longer_s}`"
        )
    ratio = energy.counter_over_sampled
    if ratio is not None and abs(ratio - 1) > DISAGREE:
        found.append(
            f"the energy counter says {format_percent(abs(ratio - 1))} "
            f"{'more' if ratio > 1 else 'less'} than the power sensor "
            f"({energy.counter_power_w:.4g} W and {energy.sampled_power_w:.4g} W): take that for "
            "the uncertainty of the joules; a meter at the wall socket tells which is right"
        )
    return found


def power_fields(power: PowerSamples | None) -> dict[str, Any]:
    """The sampled watts under the names they have in tables."""
    fields = asdict(power) if power else {}
    return {
        "power_samples": fields.get("count", 0),
        **{f"power_{name}_w": fields.get(f"{name}_w") for name in ("mean", "std", "min", "max")},
    }


def conditions_to_dict(conditions: Conditions) -> dict[str, Any]:
    """Plain JSON."""
    return {**asdict(conditions), "throttle_reasons": list(conditions.throttle_reasons)}


def _listed(interval: tuple[float, float] | None) -> list[float] | None:
    return None if interval is None else list(interval)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
