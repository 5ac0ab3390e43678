"""Metrics without a unit: taken for bytes, nanoseconds and hertz, unless their values cannot be.

Sums are whole in base units, and so are times, in nanoseconds; rates are large: of a kernel that
takes a millisecond, one byte is 1000 in a second. A value that is not so shows that the table was
scaled to units which it does not tell: what has no unit is then not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ridgeline.profile.reading.launches import Launches
from ridgeline.profile.reading.metric_units import is_missing

WITHOUT_UNIT = "the table has no units: bytes, nanoseconds and hertz are taken for granted"
SCALED = "not used without their units"  # how such a remark begins
SCALED_RATES = 1000  # scaled numbers are below it, rates in base units are not
_NAMED = 5


def is_whole_in_base_units(metric: str) -> bool:
    """Whether a value with decimals shows that it is in another unit."""
    return metric.endswith(".sum") or metric.startswith("gpu__time_duration")


def is_large_in_base_units(metric: str) -> bool:
    """Whether a small value shows that it is in another unit."""
    return metric.endswith(".per_second")


def is_scaled(metric: str, value: float, *, is_average: bool = False) -> bool:
    """Whether a value cannot be one in base units; averages of sums may have decimals."""
    if is_large_in_base_units(metric):
        return 0 < value < SCALED_RATES
    return is_whole_in_base_units(metric) and not is_average and not value.is_integer()


def first_scaled(metric: str, values: Any) -> float | None:
    """The first value of an array that cannot be one in base units."""
    import numpy as np

    if is_large_in_base_units(metric):
        found = values[(values > 0) & (values < SCALED_RATES)]
    elif is_whole_in_base_units(metric):
        found = values[(values != np.floor(values)) & np.isfinite(values)]
    else:
        return None
    return float(found[0]) if len(found) else None


class Unitless:
    """The metrics of a table that have no unit, and those of them whose values are scaled."""

    def __init__(self) -> None:
        self.metrics: dict[str, None] = {}
        self.scaled: dict[str, float] = {}  # and such a value

    def see(self, metric: str, value: float | None) -> None:
        """Take notice of a metric, and of a value that is scaled where it has one."""
        self.metrics[metric] = None
        if value is not None:
            self.scaled.setdefault(metric, value)

    def forget(self, launches: Launches, first: int = 0) -> None:
        """What is not known, of rows from `first` on."""
        for metric in self._unknown:
            launches.forget(metric, first)

    @property
    def _unknown(self) -> list[str]:
        """All that need a unit; also counts, which seldom have one, if one of them is scaled."""
        if not self.scaled:
            return []
        with_counts = not all(is_missing(metric, "") for metric in self.scaled)
        return [metric for metric in self.metrics if with_counts or is_missing(metric, "")]

    def remarks(self) -> list[str]:
        if self.scaled:
            metric, value = next(iter(self.scaled.items()))
            small = is_large_in_base_units(metric)
            why = f"less than {SCALED_RATES} a second" if small else "not whole"
            return [
                f"{SCALED}: {_listed(self._unknown)}; {metric} is {value:g} somewhere, which is"
                f" {why}, so that the table is not in base units"
            ]
        return [WITHOUT_UNIT] * any(is_missing(metric, "") for metric in self.metrics)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (" and others" if len(names) > _NAMED else "")
