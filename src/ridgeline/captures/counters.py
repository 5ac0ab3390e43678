"""Kernels and the values of their counters as files have them, before quantities are derived.

Metrics of one quantity may lie in several files, so files are joined in this form.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan, nan
from typing import TYPE_CHECKING

from ridgeline.captures.capture import Capture, in_words
from ridgeline.captures.reading_log import ReadingLog

if TYPE_CHECKING:
    import pandas as pd

TEXT_COLUMNS = (
    "kernel", "id", "process_id", "host", "stream", "grid", "block", "nvtx", "device",
    "device_number", "compute_capability", "passes",
)  # fmt: skip
TEXT_METRICS = {"device__attribute_display_name": "device", "profiler__replayer_passes": "passes"}
LAUNCH = ["host", "process_id", "id", "kernel"]  # columns that identify one
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """A row per kernel in both tables, in the same order."""

    file: str
    kind: str
    kernels: pd.DataFrame  # TEXT_COLUMNS, and the launches that a row stands for
    metrics: pd.DataFrame  # in base units, only those that can take part in a quantity
    notes: tuple[str, ...]
    invalid: tuple[str, ...]  # those of the notes that name invalid values
    unusable: tuple[str, ...]  # metrics that the file has and that cannot be used
    has_rules: bool  # results of rules in place of metrics
    log: ReadingLog

    @property
    def capability(self) -> str | None:
        """The only compute capability, or the first of several."""
        return next(iter(self.different("compute_capability")), None)

    @property
    def capabilities(self) -> str | pd.Series[str] | None:
        """The one of all kernels, or that of each."""
        is_one = len(self.different("compute_capability")) < 2
        return self.capability if is_one else self.kernels["compute_capability"]

    @property
    def metric_names(self) -> frozenset[str]:
        """The metrics that have a value."""
        return frozenset(map(str, self.metrics.columns[self.metrics.notna().any()]))

    def different(self, column: str) -> list[str]:
        """The different texts of a column, without the empty one."""
        return [text for text in self.kernels[column].unique() if text]


Part = Counters | Capture  # one file; a trace has nothing to join


@dataclass(slots=True)
class KernelRows:
    """Kernels of a file that has one metric per line."""

    texts: list[dict[str, str | int]] = field(default_factory=list)
    metrics: dict[str, dict[int, float]] = field(default_factory=dict)  # by row
    _rows: dict[Hashable, int] = field(default_factory=dict)

    def find_row(self, key: Hashable) -> int | None:
        return self._rows.get(key)

    def add_row(self, key: Hashable, texts: Mapping[str, str], launches: int = 1) -> int:
        row = self._rows[key] = len(self.texts)
        self.texts.append({**texts, "launches": launches})
        return row

    def add_value(self, row: int, metric: str, value: float) -> None:
        """The first value of a metric counts: sections repeat some, with fewer digits."""
        values = self.metrics.setdefault(metric, {})
        if isnan(values.get(row, nan)):
            values[row] = value

    def frames(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The kernels and their metrics as tables."""
        import pandas as pd

        names = (*TEXT_COLUMNS, "launches")
        kernels = pd.DataFrame({name: [row.get(name, "") for row in self.texts] for name in names})
        return kernels, pd.DataFrame(self.metrics, index=range(len(kernels)), dtype=float)


def make_counters(
    file: str,
    kind: str,
    frames: tuple[pd.DataFrame, pd.DataFrame],
    log: ReadingLog,
    *,
    notes: Sequence[str],
    unusable: Sequence[str] = (),
    has_rules: bool = False,
) -> Counters:
    """Each launch once, without invalid values; a file without kernels is refused."""
    kernels, collected = frames
    if not len(kernels):
        raise log.refusal(file, "holds no kernels")
    metrics, invalid = drop_invalid(collected)
    lost = [str(name) for name in collected if collected[name].count() > metrics[name].count()]
    kernels, metrics, repeated = merge_repeated(kernels, metrics)
    return Counters(
        file=file,
        kind=kind,
        kernels=kernels,
        metrics=metrics,
        notes=(*notes, *invalid, *repeated),
        invalid=tuple(invalid),
        unusable=(*unusable, *lost),
        has_rules=has_rules,
        log=log,
    )


def drop_invalid(table: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Nothing in place of numbers that no counter can have, and notes on them."""
    import numpy as np

    negative = [name for name in table.columns if bool((table[name] < 0).any())]
    infinite = [name for name in table.columns if bool((table[name] == np.inf).any())]
    valid = {
        str(name): table[name].where(table[name].between(0, np.inf, inclusive="left"))
        for name in dict.fromkeys([*negative, *infinite])
    }
    notes = [
        f"values that are {problem} are not used: {', '.join(map(in_words, names[:_MOST_NAMED]))}"
        for problem, names in (("negative", negative), ("too large for a number", infinite))
        if names
    ]
    return (table.assign(**valid) if valid else table), notes


def merge_repeated(
    kernels: pd.DataFrame, metrics: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """Rows of the same process, launch number and name as one, with the first values."""
    is_numbered = kernels["id"].ne("") & kernels["process_id"].ne("")
    is_repeated = kernels.duplicated(LAUNCH) & is_numbered
    if not is_repeated.any():
        return kernels, metrics, []
    keys = [kernels[name] for name in LAUNCH]
    keys.append(kernels.index.to_series().where(~is_numbered, -1))  # others stay by themselves
    firsts = metrics.groupby(keys, sort=False).first().reset_index(drop=True)
    kernels = kernels[~is_repeated].reset_index(drop=True)
    note = f"rows of the same process and launch number are one kernel: {is_repeated.sum():,}"
    return kernels, firsts, [note]
