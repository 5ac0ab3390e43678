"""Kernels and the values of their counters, as files have them: no quantities are made of them yet.

Metrics of one quantity may lie in several files, so files are joined in this form.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ridgeline.profile.capture import Capture
from ridgeline.profile.reading.log import Log

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """A row per kernel in both tables, in the same order."""

    file: str
    kind: str
    texts: pd.DataFrame
    metrics: pd.DataFrame  # in base units, only those that can take part in a quantity
    times: list[int]  # how many launches a row stands for
    about: Mapping[str, Collection[str]]  # the different values of what is told of the capture
    has_rules: bool  # remarks of the profiler in place of metrics
    remarks: tuple[str, ...]  # of reading them
    unsound: tuple[str, ...]  # those of them that say which values are not used
    left_out: tuple[str, ...]  # metrics that were there and cannot be used, some or all values
    logs: tuple[Log, ...]  # of each file

    @property
    def capability(self) -> str | None:
        """What all kernels agree on, or the first of several."""
        return next(iter(self.about["compute_capability"]), None)

    @property
    def is_of_several_chips(self) -> bool:
        return len(self.about["compute_capability"]) > 1

    @property
    def capabilities(self) -> str | pd.Series[str] | None:
        """The one of all kernels, or that of each."""
        return self.texts["compute_capability"] if self.is_of_several_chips else self.capability

    @property
    def names(self) -> frozenset[str]:
        """The metrics that have a value."""
        return frozenset(map(str, self.metrics.columns[self.metrics.notna().any()]))


Part = Counters | Capture  # a file by itself; traces have nothing to join
