"""Metrics that come one by one, each with its name, its unit and its value as texts."""

from __future__ import annotations

from collections.abc import Sequence
from math import isclose, isfinite, isnan

from ridgeline.profile.counter_ways import is_needed
from ridgeline.profile.reading import metric_units
from ridgeline.profile.reading.decimals import read_number
from ridgeline.profile.reading.display_names import metric_of, without_label
from ridgeline.profile.reading.launches import Launches
from ridgeline.profile.reading.unitless import Unitless, is_scaled

_DEVICE, _PASSES = "device__attribute_display_name", "profiler__replayer_passes"
MISFITS = "not used, for their units"  # how such a remark begins
ROUNDED = 0.01  # of a value: sections show it in units of their own
_NAMED = 5  # of the metrics that could not be used


class NamedMetrics:
    """Puts what is needed of them into the rows of their kernels."""

    def __init__(self, launches: Launches, mark: str) -> None:
        self.launches, self.mark = launches, mark
        self.are_averages = False  # over launches: sums may have decimals
        self.again: set[int] = set()  # rows of kernels that were told before
        self._misfits: dict[str, None] = {}
        self._others: dict[str, None] = {}  # metrics that a kernel has several values of
        self._unitless = Unitless()
        self._fresh: set[str] = set()  # metrics since the kernel began
        self._places: set[tuple[str, str]] = set()  # and where they stood

    def begin(self) -> None:
        """A kernel comes. If it came before, what is known of it since then stays."""
        self._fresh.clear()
        self._places.clear()

    def add(self, row: int, name: str, unit: str, value: str, section: str | None = None) -> None:
        """A metric of a kernel; one that its section has twice begins the kernel again."""
        name = without_label(name)
        if name == _DEVICE:
            self.launches.name_device(row, value)
        elif name == _PASSES:
            self.launches.note({"passes": value})
        metric = metric_of(name, unit)
        if metric is None or not is_needed(metric):
            return
        factor = metric_units.factor(metric, unit)
        if factor is None:
            self._misfits[f"{name} in {unit}"] = None
            self.launches.left_out[metric] = None
            return
        number = read_number(value, self.mark)
        if not unit.strip() and isfinite(number):
            tells = is_scaled(metric, number, is_average=self.are_averages)
            self._unitless.see(metric, number if tells else None)
        if section is not None and (section, name) in self._places:
            self.begin()
        if self.launches.has(row, metric) and (metric not in self._fresh or not isfinite(number)):
            if isfinite(number):
                self.again.add(row)
            return
        self._fresh.add(metric)
        if section is not None:
            self._places.add((section, name))
        told, before = metric_units.scaled(number, factor), self.launches.get(row, metric)
        if isnan(before) or isclose(told, before, rel_tol=ROUNDED):  # with more digits, perhaps
            self.launches.set(row, metric, told)
        else:
            self._others[metric] = None

    def finish(self) -> list[str]:
        """Leave out what cannot be used after all; what is to be said."""
        self._unitless.forget(self.launches)
        others = told_twice(list(self._others), "with other values")
        return misfits_told(list(self._misfits)) + self._unitless.remarks() + others


def told_twice(metrics: Sequence[str], how: str) -> list[str]:
    """Metrics of which the first value is taken."""
    return [f"told again {how}, the first is used: {', '.join(metrics[:_NAMED])}"] * bool(metrics)


def misfits_told(misfits: Sequence[str]) -> list[str]:
    """Metrics whose unit is not one of what they measure, `NAME in UNIT`."""
    return [f"{MISFITS}: {', '.join(misfits[:_NAMED])}"] if misfits else []
