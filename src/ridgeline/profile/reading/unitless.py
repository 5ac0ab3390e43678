"""Metrics without a unit: taken for bytes, nanoseconds and hertz, unless their values cannot be.

Sums are whole in base units, and so are times, in nanoseconds. One that is not shows that the table
was scaled to units which it does not tell: what has no unit is then not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ridgeline.profile.reading.launches import Launches
from ridgeline.profile.reading.metric_units import is_missing

WITHOUT_UNIT = "the table has no units: bytes, nanoseconds and hertz are taken for granted"
SCALED = "not used without their units"  # how such a remark begins
_NAMED = 5


def is_whole_in_base_units(metric: str) -> bool:
    """Whether a value with decimals shows that it is in another unit."""
    return metric.endswith(".sum") or metric.startswith("gpu__time_duration")


def first_with_decimals(values: Any) -> float | None:
    """Of an array."""
    import numpy as np

    found = values[(values != np.floor(values)) & np.isfinite(values)]
    return float(found[0]) if len(found) else None


class Unitless:
    """The metrics of a table that have no unit, and those of them whose values have decimals."""

    def __init__(self) -> None:
        self.metrics: dict[str, None] = {}
        self.scaled: dict[str, float] = {}  # and such a value

    def see(self, metric: str, value: float | None) -> None:
        """Take notice of a metric, and of a value with decimals where it has one."""
        self.metrics[metric] = None
        if value is not None and is_whole_in_base_units(metric):
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
            return [
                f"{SCALED}: {_listed(self._unknown)}; {metric} is {value:g} somewhere, which is not"
                " whole, so that the table is not in base units"
            ]
        return [WITHOUT_UNIT] * any(is_missing(metric, "") for metric in self.metrics)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (" and others" if len(names) > _NAMED else "")
