"""Joules of one layer: the same call again and again, until the sensor has seen enough of it.

A layer lasts microseconds and a sensor answers every 20 to 100 ms: nothing can be read off during
one call. Repeated alone, a layer finds its data in caches that it would share in the network, and
draws what it draws under its own load; `attribution` says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any

from ridgeline.measure.energy import conditions_to_dict, power_fields
from ridgeline.measure.energy_window import EnergyWindow, Pass, weigh
from ridgeline.measure.power_maths import PowerSamples, power_samples, powers_w
from ridgeline.measure.statistics import median_interval
from ridgeline.sensors.conditions import Conditions
from ridgeline.sensors.meter import Meters
from ridgeline.sensors.sampler import FAST_S, Reading, Sampler, summarise

REFRESHES = 10  # in a window
LEAST_WINDOWS = 6  # fewer have no interval
LEAST_WINDOW_S = 0.2
LEAD_REFRESHES = 3
BATCH_S = 0.05  # the device is waited for so often: not for every call, nor for millions at once
ALONE = "repeated alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedEnergy:
    """What one call took, from windows of many calls; a window's steps are calls."""

    meter: str
    scope: str
    kind: str
    windows: tuple[EnergyWindow, ...]
    interval_j_per_call: tuple[float, float] | None  # of the median, 95 %, by bootstrap
    target: float  # how narrow the interval was to be, as a share of the median
    calls_per_batch: int
    power: PowerSamples | None
    conditions: Conditions = field(default_factory=Conditions)  # clocks explain odd times
    attribution: str = ALONE
    notes: tuple[str, ...] = ()
    provenance: str = "measured"

    @property
    def energy_j_per_call(self) -> float:
        """The median of the windows'."""
        return median(window.energy_j_per_step for window in self.windows)

    @property
    def time_s_per_call(self) -> float:
        return median(window.duration_s / window.steps for window in self.windows)

    @property
    def calls(self) -> int:
        return sum(window.steps for window in self.windows)

    @property
    def mean_power_w(self) -> float:
        energy_j = sum(window.energy_j for window in self.windows)
        return energy_j / sum(window.duration_s for window in self.windows)

    @property
    def has_reached_target(self) -> bool:
        interval, enough = self.interval_j_per_call, len(self.windows) >= LEAST_WINDOWS
        return enough and is_narrow(interval, self.target * self.energy_j_per_call)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON, with what follows from the fields."""
        interval = self.interval_j_per_call
        return {
            "meter": self.meter,
            "scope": self.scope,
            "kind": self.kind,
            "provenance": self.provenance,
            "attribution": self.attribution,
            "energy_j_per_call": self.energy_j_per_call,
            "interval_j_per_call": None if interval is None else list(interval),
            "target": self.target,
            "has_reached_target": self.has_reached_target,
            "time_s_per_call": self.time_s_per_call,
            "calls": self.calls,
            "mean_power_w": self.mean_power_w,
            **power_fields(self.power),
            "conditions": conditions_to_dict(self.conditions),
            "windows": [window.to_dict() for window in self.windows],
            "notes": list(self.notes),
        }


def repeat_energy(
    call: Callable[[], object],
    sync: Callable[[], object],
    meters: Meters,
    *,
    refresh_s: float,
    target: float = 0.05,
    limit_s: float = 10.0,
    batch_s: float = BATCH_S,
    sampler: Sampler | None = None,
    clock: Callable[[], float] = perf_counter,
) -> RepeatedEnergy | None:
    """Repeat a call until the 95 % interval of its joules is narrower than `target`, or time is up.

    `refresh_s` is the sensor's, as found with the whole step. None where no meter has an answer.
    """
    if not meters.found:
        return None
    sampler = sampler or Sampler(meters, interval_s=FAST_S, clock=clock)
    loop = _Loop(call, sync, clock, batch_s)
    length_s = min(max(REFRESHES * refresh_s, LEAST_WINDOW_S), limit_s / LEAST_WINDOWS)
    with sampler:
        loop.calibrate()
        loop.run_for(LEAD_REFRESHES * refresh_s)
        passes = _windows(loop, meters, sampler, length_s, target, limit_s)
    return _result(meters, sampler.readings, passes, target, loop.calls_per_batch)


class _Loop:
    """Calls in batches; the device is waited for once a batch."""

    def __init__(
        self,
        call: Callable[[], object],
        sync: Callable[[], object],
        clock: Callable[[], float],
        batch_s: float,
    ) -> None:
        self._call, self._sync, self.clock, self._batch_s = call, sync, clock, batch_s
        self.calls_per_batch = 1

    def calibrate(self) -> None:
        """Find how many calls fill a batch; this is the warm-up, too.

        The fastest of three batches counts: one that is slow by accident, as the first is when it
        compiles, would leave batches of a single call, and the device waiting after each.
        """
        while (taken_s := min(self._batch() for _ in range(3))) < self._batch_s / 2:
            growth = min(self._batch_s / max(taken_s, 1e-9), 100.0)
            self.calls_per_batch = max(2, round(growth)) * self.calls_per_batch

    def run_for(self, duration_s: float) -> int:
        """Batches for at least so long; how many calls they were."""
        calls, start_s = 0, self.clock()
        while self.clock() - start_s < duration_s:
            self._batch()
            calls += self.calls_per_batch
        return calls

    def _batch(self) -> float:
        start_s = self.clock()
        for _ in range(self.calls_per_batch):
            self._call()
        self._sync()
        return self.clock() - start_s


def _windows(
    loop: _Loop, meters: Meters, sampler: Sampler, length_s: float, target: float, limit_s: float
) -> list[Pass]:
    """Windows until they agree or the limit is reached."""
    passes: list[Pass] = []
    began_s = loop.clock()
    while True:
        start_s = loop.clock()
        calls = loop.run_for(length_s)
        passes.append(
            Pass(name=f"window {len(passes) + 1}", start_s=start_s, end_s=loop.clock(), steps=calls)
        )
        if len(passes) < LEAST_WINDOWS:
            continue
        windows = weigh(meters, sampler.readings, passes).windows
        each_j = [window.energy_j_per_step for window in windows]
        is_late = loop.clock() + length_s - began_s > limit_s
        if is_late or not each_j or is_narrow(median_interval(each_j), target * median(each_j)):
            return passes


def is_narrow(interval: tuple[float, float] | None, width: float) -> bool:
    return interval is not None and interval[1] - interval[0] <= width


def _result(
    meters: Meters,
    readings: tuple[Reading, ...],
    passes: list[Pass],
    target: float,
    calls_per_batch: int,
) -> RepeatedEnergy | None:
    weighed = weigh(meters, readings, passes)
    if weighed.meter is None:
        return None
    values_w = [value for one in passes for value in powers_w(readings, one.start_s, one.end_s)]
    return RepeatedEnergy(
        meter=weighed.meter.name,
        scope=weighed.meter.scope,
        kind=weighed.meter.kind,
        windows=weighed.windows,
        interval_j_per_call=median_interval([w.energy_j_per_step for w in weighed.windows]),
        target=target,
        calls_per_batch=calls_per_batch,
        power=power_samples(values_w),
        conditions=summarise(readings, passes[0].start_s, passes[-1].end_s),
        notes=weighed.notes,
    )
