"""Tables and texts of Nsight Compute: three readers, one for each form.

read_wide   a row per kernel, a column per metric: `--csv --page raw`, and the UI's export
read_long   a row per kernel and metric: `--csv --page details`, and `--print-summary per-kernel`
read_text   a line per metric below a line for the kernel: what ncu prints without --csv

A regular wide file goes through pyarrow; one with ragged rows, another encoding or a second header
is read row by row. Only the columns that are needed are kept.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from math import isnan, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

from ridgeline.captures.capture import TEXT_COLUMNS, Counters, make_counters
from ridgeline.captures.ncu_messages import ReadingLog
from ridgeline.captures.normalise import (
    DISPLAY_NAMES,
    READ_TEXT,
    Normaliser,
    map_texts,
    read_launches,
    read_ranges,
    strip_groups,
    strip_label,
)
from ridgeline.captures.quantities import is_needed
from ridgeline.captures.table import (
    AVERAGE,
    INVOCATIONS,
    TEXT,
    WIDE,
    Header,
    OnBytes,
    Table,
    find_encoding,
    open_bytes,
    open_text,
    parse_next_header,
    read_cell,
    skip_lines,
)

if TYPE_CHECKING:
    import pandas as pd

# ---------------------------------------------------------------- wide tables

_BLOCK_BYTES = 2**20  # small ones stay in the processor's cache
_BLOCKS = 16  # that are turned into numbers at once
_BATCH_ROWS = 5000
_CAPABILITY = [f"device__attribute_compute_capability_{part}" for part in ("major", "minor")]
_NOT_NUMBERS = frozenset(
    ["ID", "Process ID", "Process", "Context", "Stream", "Device", "CC", "Grid Size", "Block Size",
     "Kernel Time", "Kernel Name", "Host Name", "Process Name"]
)  # fmt: skip


class _IrregularTableError(Exception):
    """The file is not regular enough for pyarrow."""


@dataclass(slots=True)
class _Batch:
    """Rows of a table by column, as arrow arrays of texts."""

    header: Header
    columns: dict[int, Any]
    is_first: bool  # below its header: its first row may hold units


def read_wide(table: Table, on_bytes: OnBytes | None = None) -> Counters:
    """The kernels of a wide table."""
    if table.header.find("ID") is not None:
        try:
            return _read_batches(table, _read_with_arrow(table, on_bytes))
        except _IrregularTableError:
            pass
    return _read_batches(table, _read_with_csv(table, on_bytes))


def _read_batches(table: Table, batches: Iterator[_Batch]) -> Counters:
    import pandas as pd

    normaliser = Normaliser.decide(_sample_wide(table))
    frames: list[tuple[pd.DataFrame, pd.DataFrame]] = []
    units: dict[int, str] = {}
    rows = 0
    for batch in batches:
        if batch.is_first:
            units, batch.columns = _take_units(batch)
        index = pd.RangeIndex(rows, rows + len(next(iter(batch.columns.values()), ())))
        if len(index):
            frames.append(
                (_read_texts(batch, index), _read_metrics(batch, units, normaliser, index))
            )
            rows += len(index)
    empty = (pd.DataFrame(columns=[*TEXT_COLUMNS, "launches"]), pd.DataFrame())
    kernels, metrics = (pd.concat(parts) for parts in zip(*(frames or [empty]), strict=True))
    return make_counters(
        table.path, table.header.kind, kernels, metrics, table.log, normaliser.notes(),
        unusable=tuple(normaliser.unusable),
    )  # fmt: skip


def _sample_wide(table: Table) -> Iterator[tuple[str, str, str]]:
    """Metric, unit and text of numbers in the first rows."""
    header, rows = table.header, table.sample_rows()
    units = header.units
    if rows and not read_cell(rows[0], header.find("ID")) and header.find("ID") is not None:
        units = tuple(own or read_cell(rows[0], n) for n, own in enumerate(units))
    for column, name in enumerate(header.names):
        if name not in _NOT_NUMBERS and "Domain:" not in name:
            cells = dict.fromkeys(row[column] for row in rows if len(row) > column)
            yield from ((name, units[column], text) for text in cells)


def _take_units(batch: _Batch) -> tuple[dict[int, str], dict[int, Any]]:
    """The units of all columns, from the header or the first row; and the rows that are left."""
    columns = batch.columns
    units = {column: batch.header.units[column] for column in columns}
    identifiers = columns.get(batch.header.find("ID") or 0, ())
    if len(identifiers) and not identifiers[0].as_py().strip():
        units = {column: str(cells[0]) for column, cells in columns.items()}
        columns = {column: cells[1:] for column, cells in columns.items()}
    return units, columns


def _read_texts(batch: _Batch, index: pd.RangeIndex) -> pd.DataFrame:
    """The texts of each launch."""
    import pandas as pd

    header, columns = batch.header, batch.columns
    texts: dict[str, Any] = {
        key: map_texts(columns[column], READ_TEXT.get(key, str.strip))
        for key, column in header.find_texts().items()
    }
    texts.setdefault("id", index.astype(str))
    ranges = [pd.Series(map_texts(columns[c], read_ranges)) for c in header.range_columns]
    if ranges:
        joined = ranges[0]
        for other in ranges[1:]:
            joined = (joined + "/" + other).str.strip("/")
        texts["nvtx"] = joined.to_numpy()
    parts = [columns[c] for c in map(header.find, _CAPABILITY) if c is not None]
    if "compute_capability" not in texts and len(parts) == 2:
        major, minor = (pd.Series(map_texts(part, strip_groups)) for part in parts)
        texts["compute_capability"] = (major + "." + minor).where(major.ne(""), "").to_numpy()
    named = {name: texts.get(name, "") for name in TEXT_COLUMNS}
    return pd.DataFrame({**named, "launches": 1}, index=index)


def _read_metrics(
    batch: _Batch, units: dict[int, str], normaliser: Normaliser, index: pd.RangeIndex
) -> pd.DataFrame:
    """The metrics that are needed; of a metric with several columns the first."""
    import pandas as pd

    metrics: dict[str, Any] = {}
    for column, cells in batch.columns.items():
        used = normaliser.read_column(batch.header.names[column], units[column], cells)
        if used is not None:
            metrics.setdefault(*used)
    return pd.DataFrame(metrics, index=index)


def needed_columns(header: Header) -> list[int]:
    """The columns to read: texts of launches, ranges and metrics."""
    names = enumerate(map(strip_label, header.names))
    metrics = {n for n, name in names if is_needed(name) or name in (*DISPLAY_NAMES, *_CAPABILITY)}
    return sorted({*header.find_texts().values(), *header.range_columns, *metrics})


def _read_with_arrow(table: Table, on_bytes: OnBytes | None) -> Iterator[_Batch]:
    import pyarrow as pa
    from pyarrow import csv

    header, columns = table.header, needed_columns(table.header)
    names = [str(column) for column in range(len(header.names))]
    with open_bytes(table.path, on_bytes) as stream:
        if find_encoding(stream.peek(4)) == "utf-16":
            raise _IrregularTableError
        skip_lines(stream, table.lines_before + 1)
        try:
            reader = csv.open_csv(
                _WholeLines(stream),
                read_options=csv.ReadOptions(column_names=names, block_size=_BLOCK_BYTES),
                parse_options=csv.ParseOptions(delimiter=header.delimiter),
                convert_options=csv.ConvertOptions(
                    include_columns=list(map(str, columns)),
                    column_types=dict.fromkeys(names, pa.string()),
                ),
            )
            is_first = True
            while batches := list(islice(reader, _BLOCKS)):
                whole = pa.Table.from_batches(batches).combine_chunks()
                arrays = (column.chunk(0) for column in whole.columns if column.num_chunks)
                batch = _Batch(header, dict(zip(columns, arrays, strict=True)), is_first)
                _check_regular(batch)
                yield batch
                is_first = False
        except pa.ArrowInvalid as error:
            raise _IrregularTableError from error


class _WholeLines:
    """A file for pyarrow; one whose last line has no end may be cut off and is not regular."""

    closed = False

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._last = stream, b"\n"

    def read(self, size: int) -> bytes:
        content = self._stream.read(size)
        if not content and self._last != b"\n":
            raise _IrregularTableError
        self._last = content[-1:] or self._last
        return content

    def close(self) -> None:
        self.closed = True


def _check_regular(batch: _Batch) -> None:
    """Every row but a first one with units must be that of a kernel."""
    import pyarrow.compute as pc

    identifiers = batch.columns[batch.header.find_texts()["id"]]
    if batch.is_first and len(identifiers) and not identifiers[0].as_py().strip():
        identifiers = identifiers[1:]
    is_number = pc.match_substring_regex(identifiers, r"^\d+(?:\.0)?$|^\d{1,3}(?:,\d{3})+$")
    if not pc.all(is_number, min_count=0).as_py():
        raise _IrregularTableError


def _read_with_csv(table: Table, on_bytes: OnBytes | None) -> Iterator[_Batch]:
    """Short rows are filled up, and lines that are not rows are skipped."""
    header, is_first = table.header, True
    rows: list[list[str]] = []
    for row in table.read_rows(on_bytes):
        another = parse_next_header(row, header.delimiter)
        if another is not None and another.kind not in WIDE:
            table.log.has_other_table = True
            break
        if another is not None or len(rows) >= _BATCH_ROWS:
            yield _make_batch(header, rows, is_first)
            rows, is_first = [], another is not None
        if another is not None:
            header = another
        elif _is_wide_row(row, header, may_be_units=is_first and not rows):
            rows.append(row)
        else:
            table.log.add_skipped(row)
    yield _make_batch(header, rows, is_first)


def _is_wide_row(row: list[str], header: Header, *, may_be_units: bool) -> bool:
    if header.is_too_long(row):
        return False
    texts = header.find_texts()
    kernel = read_cell(row, texts.get("kernel"))
    if "id" not in texts:
        return bool(kernel)
    number = read_cell(row, texts["id"])
    if may_be_units and not number:
        return len(row) == len(header.names)
    return strip_groups(number).isdigit() and (bool(kernel) or "kernel" not in texts)


def _make_batch(header: Header, rows: list[list[str]], is_first: bool) -> _Batch:
    import pyarrow as pa

    columns = {
        column: pa.array([row[column] if len(row) > column else "" for row in rows], pa.string())
        for column in needed_columns(header)
    }
    return _Batch(header, columns, is_first)


# ---------------------------------------------------------------- a metric per row or line

_AVERAGES = "a summary of ncu: averages over the launches of a kernel, times their number"
_TEXT_METRICS = {"device__attribute_display_name": "device", "profiler__replayer_passes": "passes"}


@dataclass(slots=True)
class _KernelRows:
    """Kernels of a file that has one metric per row or line, as they come."""

    normaliser: Normaliser
    texts: list[dict[str, Any]] = field(default_factory=list)
    metrics: dict[str, dict[int, float]] = field(default_factory=dict)  # by row
    has_rules: bool = False  # results of rules in place of metrics
    rows: dict[Hashable, int] = field(default_factory=dict)

    def add_kernel(self, key: Hashable, texts: Mapping[str, str], launches: int = 1) -> int:
        row = self.rows[key] = len(self.texts)
        read = {name: READ_TEXT.get(name, str.strip)(text) for name, text in texts.items()}
        self.texts.append({**read, "launches": launches})
        return row

    def add_metric(self, row: int, name: str, unit: str, value: str) -> None:
        """The first value of a metric counts: sections repeat some, with fewer digits."""
        column = _TEXT_METRICS.get(strip_label(name))
        if column is not None:
            self.texts[row][column] = value
        metric = self.normaliser.read_metric(name, unit, value)
        if metric is not None:
            values = self.metrics.setdefault(metric[0], {})
            if isnan(values.get(row, nan)):
                values[row] = metric[1]

    def to_counters(
        self, path: Path, kind: str, log: ReadingLog, notes: Iterable[str] = ()
    ) -> Counters:
        import pandas as pd

        names = (*TEXT_COLUMNS, "launches")
        kernels = pd.DataFrame({name: [row.get(name, "") for row in self.texts] for name in names})
        metrics = pd.DataFrame(self.metrics, index=range(len(kernels)), dtype=float)
        return make_counters(
            path, kind, kernels, metrics, log, [*self.normaliser.notes(), *notes],
            unusable=tuple(self.normaliser.unusable), has_rules=self.has_rules,
        )  # fmt: skip


def read_long(table: Table, on_bytes: OnBytes | None = None) -> Counters:
    """The kernels of a long table.

    The unit changes from row to row; rows may end before the header does. Rows of rules have a name
    and a text instead of a metric. In a summary, a row is the average over all launches of a kernel
    and shape, by device or NVTX range where these have columns.
    """
    columns = _LongColumns(table.header)
    samples = (columns.read_metric(row) for row in table.sample_rows())
    kernels = _KernelRows(Normaliser.decide(samples))
    for row in table.read_rows(on_bytes):
        another = parse_next_header(row, table.header.delimiter)
        if another is not None and another.kind != table.header.kind:
            table.log.has_other_table = True
            break
        if another is not None:
            columns = _LongColumns(another)
        elif not _add_long_row(kernels, columns, row):
            table.log.add_skipped(row)
    notes = [_AVERAGES] * columns.is_summary
    return kernels.to_counters(table.path, table.header.kind, table.log, notes)


class _LongColumns:
    """Where a row has its texts, its metric and its launches."""

    def __init__(self, header: Header) -> None:
        self.header, self.texts = header, header.find_texts()
        self.is_summary = "Metric Value" not in header.names
        value = AVERAGE if self.is_summary else "Metric Value"
        self.metric = [header.find(name) for name in ("Metric Name", "Metric Unit", value)]
        self.rule, self.invocations = header.find("Rule Name"), header.find(INVOCATIONS)
        self.key = [self.texts.get(name) for name in ("host", "process_id", "id", "kernel")]
        if self.is_summary:  # a row per kernel and all that stands before its metric
            first = min(c for c in (self.metric[0], header.find("Section Name")) if c)
            self.key = sorted({*range(first), *header.range_columns} - {self.invocations})

    def read_metric(self, row: list[str]) -> tuple[str, str, str]:
        """Name, unit and value."""
        name, unit, value = (read_cell(row, column) for column in self.metric)
        return name, unit, value

    def read_launches(self, row: list[str], mark: str) -> int | None:
        """The launches that a row stands for; None of a line that is not a row."""
        if self.header.is_too_long(row) or not read_cell(row, self.texts.get("kernel")):
            return None
        if self.is_summary:
            return read_launches(read_cell(row, self.invocations), mark)
        return 1 if strip_groups(read_cell(row, self.texts["id"])).isdigit() else None

    def read_texts(self, row: list[str]) -> dict[str, str]:
        ranges = (read_ranges(read_cell(row, n)) for n in self.header.range_columns)
        texts = {key: read_cell(row, column) for key, column in self.texts.items()}
        return {**texts, "nvtx": "/".join(filter(None, ranges))}


def _add_long_row(kernels: _KernelRows, columns: _LongColumns, row: list[str]) -> bool:
    """Whether it was a row; a launch is identified by its host, process, number and name."""
    launches = columns.read_launches(row, kernels.normaliser.mark)
    if launches is None:
        return False
    key = tuple(strip_groups(read_cell(row, column)) for column in columns.key)
    number = kernels.rows.get(key)
    if number is None:
        number = kernels.add_kernel(key, columns.read_texts(row), launches)
    name, unit, value = columns.read_metric(row)
    if name:
        kernels.add_metric(number, name, unit, value)
    kernels.has_rules |= not name and bool(read_cell(row, columns.rule))
    return True


# ---------------------------------------------------------------- text

KERNEL_LINE = re.compile(  # older versions leave out grid and block, or have a date
    r"\s*(?P<kernel>\S.*?)(?: \((?P<grid>[\d, ]+)\)x\((?P<block>[\d, ]+)\))?"
    r"(?:, \d{4}-\w{3}-\d{2} [\d:]+)?, Context \d+, Stream (?P<stream>\d+)"
    r"(?:, Device (?P<device_number>\d+))?(?:, CC (?P<compute_capability>\d+[.,]\d+))?\s*"
)
_PROCESS_LINE = re.compile(r"\[(\d+)\] \S.*@\S+\s*")
_METRIC_LINE = re.compile(  # a metric may have no unit, and a value may be `(!) n/a`
    rf"(?:[^_(]*\()?(?P<name>[a-z0-9]+__[\w.]+|{'|'.join(DISPLAY_NAMES)})"
    r"(?:\)| \([^()]*\))?\s+(?:(?P<unit>[^\s\d(!.,+-][^\s]*)\s+)?"
    r"(?P<value>(?:\(!\) )?(?:n/a|nan|[-+\d.,][-+\d.,'\u00a0\u202feE]*)(?: [{(].*)?)"
)
_DEVICE_LINE = re.compile(r"(device__attribute_display_name)(\s+)(\S.*)")
_RULES = ("INF ", "WRN ", "OPT ", "ERR ")
_LONGEST_LINE = 20_000  # characters
_SAMPLE_LINES = 10_000  # for the decimal mark


def read_text(path: Path, log: ReadingLog, on_bytes: OnBytes | None = None) -> Counters:
    """The kernels of a text: a line for a process, for each of its kernels, and their metrics.

    sgemm(int, const float *) (32, 32, 1)x(32, 32, 1), Context 1, Stream 7, Device 0, CC 7.5
      Duration                      msecond         96.32
    """
    with open_text(path) as stream:
        lines = islice(_read_lines(stream), _SAMPLE_LINES)
        kernels = _KernelRows(Normaliser.decide(filter(None, map(_parse_metric, lines))))
    process, number, row = "", 0, -1
    with open_text(path, on_bytes) as stream:
        for line in log.drop_messages(_read_lines(stream)):
            started = _PROCESS_LINE.fullmatch(line) if line.startswith("[") else None
            kernel = KERNEL_LINE.fullmatch(line) if ", Context " in line else None
            metric = _parse_metric(line)
            if started:
                process, number = started[1], 0
            elif kernel:
                texts = {**kernel.groupdict(""), "id": str(number), "process_id": process}
                row, number = kernels.add_kernel(len(kernels.texts), texts), number + 1
            elif metric and not line.endswith("\n"):
                log.is_cut = True  # its number may be half of one
            elif metric and row >= 0:
                kernels.add_metric(row, *metric)
            elif line.lstrip().startswith(_RULES):
                kernels.has_rules = True
    return kernels.to_counters(path, TEXT, log)


def _read_lines(stream: TextIO) -> Iterator[str]:
    """Lines; one that is longer than any of a capture comes in parts."""
    while line := stream.readline(_LONGEST_LINE):
        yield line


def _parse_metric(line: str) -> tuple[str, str, str] | None:
    """Name, unit and value of a line of a table."""
    if not line.startswith(" "):
        return None
    text = line.strip()
    if (device := _DEVICE_LINE.fullmatch(text)) is not None:
        return device[1], "", device[3]
    match = _METRIC_LINE.fullmatch(text)
    return (match["name"], match["unit"] or "", match["value"]) if match else None
