"""One window of work on the meter: how many steps, how many joules, by which meter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from ridgeline.measure.power_maths import counter_fault, counter_power_w, sampled_power_w
from ridgeline.sensors.meter import COUNTER, Meter, Meters
from ridgeline.sensors.sampler import Reading

OUTLIER_MADS = 5
OUTLIER_SHARE = 0.10


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
class EnergyWindow:
    """The mean power of one pass under load, by the meter that was chosen and by both."""

    start_s: float
    end_s: float
    steps: int
    mean_power_w: float
    counter_power_w: float | None = None
    sampled_power_w: float | None = None

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s

    @property
    def energy_j(self) -> float:
        return self.mean_power_w * self.duration_s

    @property
    def energy_j_per_step(self) -> float:
        return self.energy_j / self.steps

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON, with what follows from the fields."""
        return {
            "start_s": self.start_s,
            "end_s": self.end_s,
            "steps": self.steps,
            "energy_j": self.energy_j,
            "mean_power_w": self.mean_power_w,
            "energy_j_per_step": self.energy_j_per_step,
            "counter_power_w": self.counter_power_w,
            "sampled_power_w": self.sampled_power_w,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """The windows by the best meter that works, or why none does."""

    meter: Meter | None = None
    windows: tuple[EnergyWindow, ...] = ()
    notes: tuple[str, ...] = ()  # meters that were passed over, and why


def weigh(meters: Meters, readings: Sequence[Reading], passes: Sequence[Pass]) -> Weighed:
    """The energy of each pass, by the first meter whose readings make sense."""
    notes: list[str] = []
    for meter in meters.found:
        if fault := _fault(meter, readings, passes):
            notes.append(f"the {meter.name} {fault}: it is not used")
            continue
        windows = [_window(meter, readings, one) for one in passes]
        if whole := tuple(window for window in windows if window is not None):
            if lost := len(windows) - len(whole):
                notes.append(f"{lost} of {len(windows)} windows have no reading of their own")
            return Weighed(meter=meter, windows=whole, notes=tuple(notes))
        notes.append(f"the {meter.name} did not answer")
    return Weighed(notes=tuple(notes))


def mean_power_w(
    meter: Meter, readings: Sequence[Reading], start_s: float, end_s: float
) -> float | None:
    """Watts in a window, by this meter."""
    power_w = counter_power_w if meter.kind == COUNTER else sampled_power_w
    return power_w(readings, start_s, end_s)


def _fault(meter: Meter, readings: Sequence[Reading], passes: Sequence[Pass]) -> str | None:
    if meter.kind != COUNTER or not passes:
        return None
    return counter_fault(readings, passes[0].start_s, passes[-1].end_s)


def _window(meter: Meter, readings: Sequence[Reading], one: Pass) -> EnergyWindow | None:
    power_w = mean_power_w(meter, readings, one.start_s, one.end_s)
    if power_w is None:
        return None
    return EnergyWindow(
        start_s=one.start_s,
        end_s=one.end_s,
        steps=one.steps,
        mean_power_w=power_w,
        counter_power_w=counter_power_w(readings, one.start_s, one.end_s),
        sampled_power_w=sampled_power_w(readings, one.start_s, one.end_s),
    )


def outliers(values: Sequence[float]) -> tuple[int, ...]:
    """Which values are far from the others: by over 5 of their median deviations, and 10 %."""
    if len(values) < 3:
        return ()
    found = []
    for index, value in enumerate(values):
        others = [*values[:index], *values[index + 1 :]]
        middle = median(others)
        deviation = median(abs(other - middle) for other in others)
        if abs(value - middle) > max(OUTLIER_MADS * deviation, OUTLIER_SHARE * middle):
            found.append(index)
    return tuple(found)
