"""Kernels while they are being read: texts and metrics, row by row or many rows at once.

Metrics are kept as plain arrays and repeated texts once, so that hundreds of thousands of kernels
take little memory.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan, nan
from typing import TYPE_CHECKING, Any

from ridgeline.profile.reading.decimals import ungrouped

if TYPE_CHECKING:
    import pandas as pd

IDENTITY = (
    "kernel", "id", "process_id", "host", "stream", "grid", "block", "nvtx", "device",
    "compute_capability",
)  # fmt: skip
# of the capture, told with every kernel
ABOUT = ("device", "device_number", "compute_capability", "passes")
MOST = 2**53  # launches of a row: beyond it a float does not tell whole numbers apart
_CAPABILITY = re.compile(r"(\d+)(?:[.,](\d+))?")
_NUMBERS = re.compile(r"\d+")
_RANGE = re.compile(r'"([^"]*)"')
_PROCESS = re.compile(r"\[(\d[^\]]*)\]")
_DETAILS = 6  # payload, colour and message, after domain and name


@dataclass(slots=True)
class Launches:
    """Rows in the order in which their kernels were first seen."""

    texts: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in IDENTITY})
    times: list[int] = field(default_factory=list)  # how many launches a row stands for
    metrics: dict[str, array[float]] = field(default_factory=dict)
    about: dict[str, dict[str, None]] = field(
        default_factory=lambda: {name: {} for name in ABOUT}
    )  # the different values, in order
    left_out: dict[str, None] = field(default_factory=dict)  # metrics that cannot be used
    _rows: dict[Any, int] = field(default_factory=dict)
    _once: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.texts["kernel"])

    def known(self, key: Any) -> int | None:
        """The row of a kernel that was seen before."""
        return self._rows.get(key)

    def row(self, key: Any, texts: Mapping[str, str], times: int = 1) -> int:
        """The row of a kernel: the one it has, or a new one."""
        if key not in self._rows:
            self._rows[key] = len(self)
            self.times.append(times)
            for name in IDENTITY:
                self.texts[name].append(self._shared(texts.get(name, "")))
            self.note(texts)
        return self._rows[key]

    def note(self, texts: Mapping[str, str]) -> None:
        """What a row says about the capture as a whole."""
        for name in ABOUT:
            if texts.get(name):
                self.about[name][texts[name]] = None

    def set(self, row: int, metric: str, value: float) -> None:
        values = self.metrics.setdefault(metric, array("d"))
        values.extend([nan] * (row + 1 - len(values)))
        values[row] = value

    def name_device(self, row: int, name: str) -> None:
        """The GPU of a kernel, where it is told apart from the rest of it."""
        self.texts["device"][row] = self._shared(name)
        self.note({"device": name})

    def forget(self, metric: str, first: int = 0) -> None:
        """What is known of a metric, of rows from `first` on."""
        self.left_out[metric] = None
        values = self.metrics.get(metric, array("d"))
        values[first:] = array("d", [nan]) * (len(values) - first)

    def has(self, row: int, metric: str) -> bool:
        """Whether a value of the metric is known."""
        return not isnan(self.get(row, metric))

    def get(self, row: int, metric: str) -> float:
        """The value of a metric; not a number where that is not known."""
        values = self.metrics.get(metric, ())
        return values[row] if row < len(values) else nan

    def add_texts(self, count: int, columns: Mapping[str, Sequence[str]]) -> int:
        """Many new rows; the first of them."""
        first = len(self)
        self.times.extend([1] * count)
        for name in IDENTITY:
            found = columns.get(name)
            if not found:
                self.texts[name].extend([""] * count)
            elif name == "id":  # all different
                self.texts[name].extend(found)
            else:
                shared = {text: self._shared(text) for text in dict.fromkeys(found)}
                self.texts[name].extend(map(shared.__getitem__, found))
        return first

    def add_numbers(self, first: int, metric: str, values: Iterable[float] | bytes) -> None:
        """Values of a metric for rows from `first` on; bytes are doubles."""
        found = self.metrics.setdefault(metric, array("d"))
        found.extend([nan] * (first - len(found)))
        if isinstance(values, bytes):
            found.frombytes(values)
        else:
            found.extend(values)

    def times_of(self, rows: Collection[int]) -> list[int]:
        """How many launches each of these rows stands for."""
        return self.times if len(rows) == len(self) else [self.times[row] for row in rows]

    def frames(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The texts and the metrics as tables."""
        import numpy as np
        import pandas as pd

        count = len(self)
        metrics = {}
        for name, values in self.metrics.items():
            values.extend([nan] * (count - len(values)))
            metrics[name] = np.frombuffer(values, dtype=float)
        return pd.DataFrame(self.texts), pd.DataFrame(metrics, index=range(count), copy=False)

    def _shared(self, text: str) -> str:
        return self._once.setdefault(text, text)


def dimensions(text: str) -> str:
    """`(128, 1, 1)`, from that or from `128, 1, 1`; any other text as it is."""
    numbers = _NUMBERS.findall(text)
    return f"({', '.join(numbers)})" if len(numbers) == 3 else text.strip()


def process_number(text: str) -> str:
    """`4711`, from that, from `4,711` or from the UI's `[4711] python3.12`."""
    found = _PROCESS.match(text)
    return ungrouped(found[1] if found else text)


def capability(text: str) -> str:
    """`9.0`, from that, from `9,0` or from a spreadsheet's `9`; any other text as it is."""
    found = _CAPABILITY.fullmatch(text.strip())
    return f"{found[1]}.{found[2] or 0}" if found else text.strip()


def range_names(text: str) -> str:
    """The NVTX ranges in a cell, outer/inner: `658  "<default domain>:step:none:…"` → `step`.

    A name may itself hold colons; what surrounds it has a fixed number of fields.
    """
    names = []
    for content in _RANGE.findall(text):
        fields = content.split(":")
        if len(fields) >= _DETAILS + 2:
            fields = fields[1:-_DETAILS]
        names.append(":".join(fields))
    return "/".join(names) or (text.strip() if '"' not in text else "")
