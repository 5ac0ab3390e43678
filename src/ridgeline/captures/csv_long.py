"""Tables with a row per kernel and metric: `--csv --page details`.

The unit changes from row to row; rows may end before the header does. Rows of rules have a name and
a text instead of a metric. With --print-summary, a row is the average over all launches of a kernel
and shape, by device or NVTX range where these have columns.
"""

from __future__ import annotations

from ridgeline.captures.counters import TEXT_METRICS, Counters, KernelRows, make_counters
from ridgeline.captures.normalise import (
    READ_TEXT,
    Decimals,
    Normaliser,
    read_launches,
    read_ranges,
    strip_groups,
    strip_label,
)
from ridgeline.captures.table import (
    AVERAGE,
    INVOCATIONS,
    Header,
    OnBytes,
    Table,
    make_next_header,
    read_cell,
)

AVERAGES = "a summary of ncu: averages over the launches of a kernel, times their number"


def read_long(table: Table, on_bytes: OnBytes | None = None) -> Counters:
    """The kernels of a long table."""
    columns = _Columns(table.header)
    samples = (columns.metric(row) for row in table.sample_rows())
    reader = _LongReader(Normaliser(Decimals.decide(samples)), columns)
    for row in table.read_rows(on_bytes):
        another = make_next_header(row, table.header.delimiter)
        if another is not None and another.kind != table.header.kind:
            table.log.has_other_table = True
            break
        if another is not None:
            reader.columns = _Columns(another)
        elif not reader.add(row):
            table.log.skipped += any(text.strip() for text in row)
    normaliser = reader.normaliser
    return make_counters(
        str(table.path), table.header.kind, reader.rows.frames(), table.log,
        notes=[*normaliser.notes(), *[AVERAGES] * columns.is_summary],
        unusable=tuple(normaliser.unusable), has_rules=reader.has_rules,
    )  # fmt: skip


class _Columns:
    """Where a row has its texts, its metric and its launches."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.texts = header.find_texts()
        self.is_summary = "Metric Value" not in header.names
        self.name, self.unit = header.find("Metric Name"), header.find("Metric Unit")
        self.value = header.find(AVERAGE if self.is_summary else "Metric Value")
        self.rule, self.invocations = header.find("Rule Name"), header.find(INVOCATIONS)
        self.key = [self.texts.get(name) for name in ("host", "process_id", "id", "kernel")]
        if self.is_summary:  # a row per kernel and all that stands before its metric
            first = min(column for column in (self.name, header.find("Section Name")) if column)
            others = {*range(first), *header.range_columns} - {self.invocations}
            self.key = [*sorted(others)]

    def metric(self, row: list[str]) -> tuple[str, str, str]:
        """Name, unit and value."""
        return read_cell(row, self.name), read_cell(row, self.unit), read_cell(row, self.value)

    def is_row(self, row: list[str]) -> bool:
        if self.header.is_too_long(row) or not read_cell(row, self.texts.get("kernel")):
            return False
        return self.is_summary or strip_groups(read_cell(row, self.texts["id"])).isdigit()


class _LongReader:
    """Rows as they come; a launch is identified by its host, process, number and name."""

    def __init__(self, normaliser: Normaliser, columns: _Columns) -> None:
        self.normaliser, self.columns = normaliser, columns
        self.rows = KernelRows()
        self.has_rules = False

    def add(self, row: list[str]) -> bool:
        """Whether it was a row of the table."""
        if not self.columns.is_row(row):
            return False
        key = tuple(strip_groups(read_cell(row, column)) for column in self.columns.key)
        number = self.rows.find_row(key)
        if number is None:
            launches = self._launches(row)
            if launches is None:
                return False
            number = self.rows.add_row(key, self._texts(row), launches)
        name, unit, value = self.columns.metric(row)
        self.has_rules |= not name and bool(read_cell(row, self.columns.rule))
        column = TEXT_METRICS.get(strip_label(name))
        if column is not None:
            self.rows.texts[number][column] = value
        metric = self.normaliser.read_metric(name, unit, value) if name else None
        if metric is not None:
            self.rows.add_value(number, *metric)
        return True

    def _launches(self, row: list[str]) -> int | None:
        if not self.columns.is_summary:
            return 1
        text = read_cell(row, self.columns.invocations)
        return read_launches(text, self.normaliser.decimals.mark)

    def _texts(self, row: list[str]) -> dict[str, str]:
        texts = {
            key: READ_TEXT.get(key, str.strip)(read_cell(row, column))
            for key, column in self.columns.texts.items()
        }
        ranges = (read_ranges(read_cell(row, n)) for n in self.columns.header.range_columns)
        return {**texts, "nvtx": "/".join(filter(None, ranges))}
