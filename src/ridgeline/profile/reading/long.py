"""Tables with a row per kernel and metric: `--csv --page details`.

The unit changes from row to row; columns differ by version; rows may end before the header does.
Rows of rules have a name and a text instead of a metric. With --print-summary, a row is the average
over all launches of a kernel and shape, by device or NVTX range where these have columns.
"""

from __future__ import annotations

from collections import Counter

from ridgeline.profile.reading import evidence
from ridgeline.profile.reading.decimals import read_number, ungrouped
from ridgeline.profile.reading.header import (
    INVOCATIONS,
    KERNEL_NAMES,
    Header,
    cell,
    header_among,
    header_of,
    rows,
    unglued,
)
from ridgeline.profile.reading.launches import (
    MOST,
    Launches,
    capability,
    dimensions,
    process_number,
    range_names,
)
from ridgeline.profile.reading.named_metrics import NamedMetrics
from ridgeline.profile.reading.opening import TellBytes, open_lines, skip_lines
from ridgeline.profile.reading.repeated import told_again
from ridgeline.profile.reading.source import Read, Source

_TEXTS = {
    "id": ("ID",),
    "process_id": ("Process ID",),
    "host": ("Host Name",),
    "kernel": KERNEL_NAMES,
    "stream": ("Stream",),
    "grid": ("Grid Size",),
    "block": ("Block Size",),
    "device": ("Device Name",),
    "device_number": ("Device",),
    "compute_capability": ("CC",),
}
_NUMBERS = ("id", "stream", "device_number")
_KEY = ("host", "process_id", "id", "kernel")
_SUMMARY_KEY = ("host", "process_id", "kernel", "grid", "block", "device_number")
UNCOUNTED = "rows of a summary that tell no number of launches are left out"  # how it begins
BY_ORDER = (
    "kernels have no numbers: launches of one kernel are told apart by the order of their rows"
)
AVERAGES = "a summary of ncu: averages over the launches of a kernel, times their number"


def read_long(source: Source, tell: TellBytes | None = None) -> Read:
    """The kernels of a long table."""
    clues = evidence.of_rows(source.header, source.lines_below)
    table = _Table(source.header, clues.mark)
    with open_lines(source.path, tell) as stream:
        skip_lines(stream, source.lines_before + 1)
        lines = source.log.sift(stream)
        for row in rows(lines, source.header.delimiter, source.log):
            another = header_among(row, source.header.delimiter)
            if another is not None and another.kind != source.header.kind:
                source.log.has_other_form = True
                break
            if table.is_row(row) and table.header.is_shifted(row, source.log):
                source.log.shifted += 1
            elif not table.add(row):
                source.log.leave_out(row)
    remarks = clues.remarks() + table.finish()
    return Read(launches=table.launches, remarks=tuple(remarks), has_rules=table.has_rules)


class _Order:
    """Numbers launches by how often a metric of their kernel was told before."""

    def __init__(self) -> None:
        self._told: Counter[tuple[str, ...]] = Counter()
        self._last: dict[tuple[str, ...], int] = {}  # launch of each kernel

    def of(self, kernel: tuple[str, ...], metric: tuple[str, ...]) -> int:
        """The launch that a row is of; rules, which are no metrics, go with the one before."""
        if not any(metric):
            return self._last.get(kernel, 0)
        self._last[kernel] = launch = self._told[kernel + metric]
        self._told[kernel + metric] += 1
        return launch

    def remarks(self) -> list[str]:
        return [BY_ORDER] * any(self._last.values())


class _Table:
    """Rows as they come; a kernel is known by its process and number."""

    def __init__(self, header: Header, mark: str) -> None:
        self.launches = Launches()
        self.metrics = NamedMetrics(self.launches, mark)
        self.has_rules = False
        self.uncounted = 0  # rows of a summary without a number of launches
        self.order = _Order()  # where kernels have no numbers
        self.row: int | None = None  # of the kernel that was told last
        self._see(header)

    def _see(self, header: Header) -> None:
        self.header = header
        found = {key: header.find(*names) for key, names in _TEXTS.items()}
        self.texts = {key: column for key, column in found.items() if column is not None}
        self.name = header.names.index("Metric Name")
        self.section, self.unit = header.find("Section Name"), header.find("Metric Unit")
        self.value = header.find("Metric Value", "Average")
        self.is_summary = self.metrics.are_averages = "Metric Value" not in header.names
        self.key = self._key_columns()
        self.row = None

    def _key_columns(self) -> list[int | None]:
        """The columns that tell kernels apart; those of a summary depend on what it is by."""
        if not self.is_summary:
            return [self.texts.get(name) for name in _KEY]
        known = [self.texts.get(name) for name in _SUMMARY_KEY]
        before = min(self.name if self.section is None else self.section, self.name)
        others = {*range(before), *self.header.ranges} - {self.header.find(INVOCATIONS), *known}
        return [*known, *sorted(others)]

    def finish(self) -> list[str]:
        """What is to be said when all rows are there."""
        under = "process, device and shape" if self.is_summary else "process and number"
        said = told_again(len(self.metrics.again), under)
        said += [f"{UNCOUNTED}: {self.uncounted:,}"] * (self.uncounted > 0)
        said += self.order.remarks()
        return self.metrics.finish() + [AVERAGES] * self.is_summary + said

    def add(self, row: list[str]) -> bool:
        """Whether it was a row of the table."""
        if len(row) <= self.name:
            return False
        if not self.is_row(row):
            return self._is_another_header(row)
        self._add(row)
        return True

    def is_row(self, row: list[str]) -> bool:
        """Whether it begins like a row of the table."""
        identifier = self.texts.get("id")
        return identifier is None or ungrouped(cell(row, identifier)).isdigit()

    def _is_another_header(self, row: list[str]) -> bool:
        """Files that were put together have their headers in between."""
        if "Metric Name" not in row:
            return False
        header = header_of(unglued(row), self.header.delimiter)
        if header is None or header.kind != self.header.kind:
            return False
        self._see(header)
        return True

    def _add(self, row: list[str]) -> None:
        key = tuple(ungrouped(cell(row, column)) for column in self.key)
        if "id" not in self.texts and not self.is_summary:
            key = (*key, str(self.order.of(key, self._metric(row))))
        number = self.launches.known(key)
        if number is None:
            times = self._times(row)
            if times is None:
                self.uncounted += 1
                return
            number = self.launches.row(key, self._identity(row), times)
        if number != self.row:
            self.row = number
            self.metrics.begin()
        name = cell(row, self.name)
        if name:
            section = cell(row, self.section) if self.section is not None else None
            self.metrics.add(number, name, cell(row, self.unit), cell(row, self.value), section)
        elif self._named(row, "Rule Name"):
            self.has_rules = True

    def _metric(self, row: list[str]) -> tuple[str, ...]:
        """What tells a metric of a launch from others; nothing where the row has none."""
        name = cell(row, self.name)
        return (name, cell(row, self.section), cell(row, self.unit)) if name else ()

    def _times(self, row: list[str]) -> int | None:
        """How many launches the row is of; None where a summary does not tell."""
        if not self.is_summary:
            return 1
        found = read_number(ungrouped(self._named(row, INVOCATIONS)), self.metrics.mark)
        return int(found) if 1 <= found < MOST and found.is_integer() else None

    def _named(self, row: list[str], name: str) -> str:
        return cell(row, self.header.find(name))

    def _identity(self, row: list[str]) -> dict[str, str]:
        texts = {key: cell(row, column) for key, column in self.texts.items()}
        ranges = (range_names(cell(row, column)) for column in self.header.ranges)
        numbers = {key: ungrouped(texts[key]) for key in _NUMBERS if key in texts}
        return (
            texts
            | numbers
            | {
                "process_id": process_number(texts.get("process_id", "")),
                "nvtx": "/".join(filter(None, ranges)),
                "grid": dimensions(texts.get("grid", "")),
                "block": dimensions(texts.get("block", "")),
                "compute_capability": capability(texts.get("compute_capability", "")),
            }
        )
