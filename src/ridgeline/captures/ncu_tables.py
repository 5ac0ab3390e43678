"""Tables and texts of Nsight Compute: three readers, one for each form.

read_wide   a row per kernel, a column per metric: `--csv --page raw`, and the UI's export
read_long   a row per kernel and metric: `--csv --page details`
read_text   a line per metric below a line for the kernel: what ncu prints without --csv

A wide file goes through pyarrow. Only the columns that are needed are kept.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ridgeline.captures.capture import TEXT_COLUMNS, Counters, make_counters
from ridgeline.captures.ncu_messages import ReadingLog
from ridgeline.captures.normalise import (
    DISPLAY_NAMES,
    READ_TEXT,
    Normaliser,
    map_texts,
    read_ranges,
    strip_groups,
    strip_label,
)
from ridgeline.captures.quantities import is_needed
from ridgeline.captures.table import (
    TEXT,
    Header,
    Table,
    find_encoding,
    open_bytes,
    open_text,
    parse_header,
    read_cell,
    skip_lines,
)

if TYPE_CHECKING:
    import pandas as pd

# ---------------------------------------------------------------- wide tables

_BLOCK_BYTES = 2**20  # small ones stay in the processor's cache
_BLOCKS = 16  # that are turned into numbers at once
_LAUNCH_NUMBER = r"^\d+$|^\d{1,3}(?:,\d{3})+$"
_CAPABILITY = [f"device__attribute_compute_capability_{part}" for part in ("major", "minor")]
_Batch = dict[int, Any]  # rows of a table by column, as arrow arrays of texts


def read_wide(table: Table) -> Counters:
    """The kernels of a wide table."""
    import pandas as pd

    header = table.header
    normaliser = Normaliser.decide(_sample_numbers(table))
    units = dict(enumerate(header.units))
    frames = [(pd.DataFrame(columns=TEXT_COLUMNS), pd.DataFrame())]
    rows = 0
    for batch in _read_batches(table):
        identifiers = batch.get(header.find("ID") or 0, ())
        if not rows and len(identifiers) and not identifiers[0].as_py().strip():
            units = {column: str(cells[0]) for column, cells in batch.items()}
            batch = {column: cells[1:] for column, cells in batch.items()}
        batch = _keep_launches(batch, header.find("ID"), table.log)
        index = pd.RangeIndex(rows, rows + len(next(iter(batch.values()), ())))
        metrics: dict[str, Any] = {}
        for column, cells in batch.items():
            used = normaliser.read_column(header.names[column], units[column], cells)
            if used is not None:  # of a metric with several columns the first
                metrics.setdefault(*used)
        frames.append((_read_texts(header, batch, index), pd.DataFrame(metrics, index=index)))
        rows += len(index)
    kernels, values = (pd.concat(parts) for parts in zip(*(frames[1:] or frames), strict=True))
    return make_counters(table.path, header.kind, kernels, values, table.log, normaliser.notes())


def _sample_numbers(table: Table) -> Iterator[str]:
    """The texts of metrics in the first rows."""
    rows = table.sample_rows()
    for column, name in enumerate(table.header.names):
        if "__" in name or name in DISPLAY_NAMES:
            yield from dict.fromkeys(row[column] for row in rows if len(row) > column)


def _read_texts(header: Header, batch: _Batch, index: pd.RangeIndex) -> pd.DataFrame:
    """The texts of each launch."""
    import pandas as pd

    texts: dict[str, Any] = {
        key: map_texts(batch[column], READ_TEXT.get(key, str.strip))
        for key, column in header.find_texts().items()
    }
    texts.setdefault("id", index.astype(str))
    for column in header.range_columns:
        ranges = pd.Series(map_texts(batch[column], read_ranges))
        texts["nvtx"] = (texts.get("nvtx", "") + "/" + ranges).str.strip("/").to_numpy()
    parts = [batch[c] for c in map(header.find, _CAPABILITY) if c is not None]
    if "compute_capability" not in texts and len(parts) == 2:
        major, minor = (pd.Series(map_texts(part, str.strip)) for part in parts)
        texts["compute_capability"] = (major + "." + minor).where(major.ne(""), "").to_numpy()
    return pd.DataFrame({name: texts.get(name, "") for name in TEXT_COLUMNS}, index=index)


def needed_columns(header: Header) -> list[int]:
    """The columns to read: texts of launches, ranges and metrics."""
    names = enumerate(map(strip_label, header.names))
    metrics = {n for n, name in names if is_needed(name) or name in (*DISPLAY_NAMES, *_CAPABILITY)}
    return sorted({*header.find_texts().values(), *header.range_columns, *metrics})


def _read_batches(table: Table) -> Iterator[_Batch]:
    """Rows with as many cells as there are titles; others are counted and left out."""
    import pyarrow as pa
    from pyarrow import csv

    header, columns = table.header, needed_columns(table.header)
    names = [str(column) for column in range(len(header.names))]

    def skip_row(row: csv.InvalidRow) -> str:
        table.log.add_other_line(row.text or "", is_header=parse_header(row.text or "") is not None)
        return "skip"

    with open_bytes(table.path) as stream:
        lines = _WholeLines(stream, table)
        try:
            reader = csv.open_csv(
                lines,
                read_options=csv.ReadOptions(column_names=names, block_size=_BLOCK_BYTES),
                parse_options=csv.ParseOptions(
                    delimiter=header.delimiter, invalid_row_handler=skip_row
                ),
                convert_options=csv.ConvertOptions(
                    include_columns=list(map(str, columns)),
                    column_types=dict.fromkeys(names, pa.string()),
                    check_utf8=False,  # _WholeLines gives nothing else
                ),
            )
            while batches := list(islice(reader, _BLOCKS)):
                whole = pa.Table.from_batches(batches).combine_chunks()
                arrays = [column.chunk(0) for column in whole.columns if column.num_chunks]
                if arrays:
                    yield dict(zip(columns, arrays, strict=True))
        except pa.ArrowInvalid as error:
            if not lines.is_empty:  # which it refuses, too
                raise table.log.refusal(
                    table.path, "is damaged: its rows cannot be read"
                ) from error


class _WholeLines:
    """A table's lines for pyarrow: below the header, in UTF-8, without a last one that is torn."""

    closed = False

    def __init__(self, stream: Any, table: Table) -> None:
        is_utf_16 = find_encoding(stream.peek(4)) == "utf-16"
        self._stream = codecs.EncodedFile(stream, "utf-8", "utf-16") if is_utf_16 else stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._is_plain = True  # nothing but ASCII so far
        self.is_empty = True
        self._log = table.log
        skip_lines(self._stream, table.lines_before + 1)
        self._next: bytes = self._stream.read(_BLOCK_BYTES)

    def read(self, size: int) -> bytes:
        content, self._next = self._next, self._stream.read(size)
        if not self._next:
            content = self._drop_torn(content)
        self._is_plain &= content.isascii()
        self.is_empty &= not content
        return content if self._is_plain else self._decoder.decode(content).encode()

    def _drop_torn(self, content: bytes) -> bytes:
        """Without a last line that ends inside a cell: its number may be half of one."""
        last = content[content.rfind(b"\n") + 1 :]
        if not last or (last.endswith(b'"') and last.count(b'"') % 2 == 0):
            return content
        self._log.is_cut = True
        return content.removesuffix(last)

    def close(self) -> None:
        self.closed = True


def _keep_launches(batch: _Batch, number: int | None, log: ReadingLog) -> _Batch:
    """The rows that are launches, up to another table."""
    import pyarrow.compute as pc

    if number is None or log.has_other_table:
        return {c: cells[:0] for c, cells in batch.items()} if log.has_other_table else batch
    is_launch = pc.match_substring_regex(batch[number], _LAUNCH_NUMBER)
    if pc.all(is_launch, min_count=0).as_py():
        return batch
    header = pc.index(batch[number], "ID").as_py()
    log.has_other_table = header >= 0
    if header >= 0:
        batch = {column: cells[:header] for column, cells in batch.items()}
        is_launch = is_launch[:header]
    log.skipped += len(is_launch) - (pc.sum(is_launch).as_py() or 0)
    return {column: cells.filter(is_launch) for column, cells in batch.items()}


# ---------------------------------------------------------------- a metric per row or line

_DEVICE_NAME = "device__attribute_display_name"
_Cells = dict[int, str]  # the texts of a metric by row
SAMPLE_CELLS = 400  # of each metric, for the decimal mark


@dataclass(slots=True)
class _KernelRows:
    """Kernels of a file that has one metric per row or line, as they come."""

    texts: list[dict[str, str]] = field(default_factory=list)
    cells: dict[tuple[str, str], _Cells] = field(default_factory=dict)  # by title and unit
    has_rules: bool = False  # results of rules in place of metrics
    rows: dict[Hashable, int] = field(default_factory=dict)

    def add_kernel(self, key: Hashable, texts: Mapping[str, str]) -> int:
        row = self.rows[key] = len(self.texts)
        self.texts.append({n: READ_TEXT.get(n, str.strip)(text) for n, text in texts.items()})
        return row

    def add_metric(self, row: int, title: str, unit: str, text: str) -> None:
        """The first value of a metric counts: sections repeat some, with fewer digits."""
        if strip_label(title) == _DEVICE_NAME:
            self.texts[row]["device"] = text
        else:
            self.cells.setdefault((title, unit), {}).setdefault(row, text)

    def to_counters(self, path: Path, kind: str, log: ReadingLog) -> Counters:
        import pandas as pd
        import pyarrow as pa

        rows = [{**dict.fromkeys(TEXT_COLUMNS, ""), **texts} for texts in self.texts]
        kernels = pd.DataFrame(rows, columns=TEXT_COLUMNS)
        normaliser = Normaliser.decide(
            text for cells in self.cells.values() for text in islice(cells.values(), SAMPLE_CELLS)
        )
        metrics: dict[str, pd.Series[float]] = {}
        for (title, unit), cells in self.cells.items():
            used = normaliser.read_column(title, unit, pa.array(cells.values(), pa.string()))
            if used is not None:
                values = pd.Series(used[1], index=list(cells), dtype=float)
                values = values.reindex(kernels.index)
                metrics[used[0]] = metrics.get(used[0], values).fillna(values)
        table = pd.DataFrame(metrics, index=kernels.index, dtype=float)
        notes = normaliser.notes()
        return make_counters(path, kind, kernels, table, log, notes, has_rules=self.has_rules)


def read_long(table: Table) -> Counters:
    """The kernels of a long table: a launch is identified by its host, process, number and name.

    The unit changes from row to row; rows may end before the header does. Rows of rules have a name
    and a text instead of a metric.
    """
    header, texts = table.header, table.header.find_texts()
    name, unit, value, rule = map(
        header.find, ("Metric Name", "Metric Unit", "Metric Value", "Rule Name")
    )
    identity = [texts.get(key) for key in ("host", "process_id", "id", "kernel")]
    kernels = _KernelRows()
    for row in table.read_rows():
        key = tuple(strip_groups(read_cell(row, column)) for column in identity)
        if header.is_too_long(row) or not key[2].isdigit() or not key[3]:
            table.log.add_skipped(row)
            continue
        number = kernels.rows.get(key)
        if number is None:
            ranges = (read_ranges(read_cell(row, column)) for column in header.range_columns)
            cells = {text: read_cell(row, column) for text, column in texts.items()}
            number = kernels.add_kernel(key, {**cells, "nvtx": "/".join(filter(None, ranges))})
        metric = read_cell(row, name)
        if metric:
            kernels.add_metric(number, metric, read_cell(row, unit), read_cell(row, value))
        kernels.has_rules |= not metric and bool(read_cell(row, rule))
    return kernels.to_counters(table.path, header.kind, table.log)


# ---------------------------------------------------------------- text

KERNEL_LINE = re.compile(  # older versions leave out grid and block, or have a date
    r"\s*(?P<kernel>\S.*?)(?: \((?P<grid>[\d, ]+)\)x\((?P<block>[\d, ]+)\))?"
    r"(?:, \d{4}-\w{3}-\d{2} [\d:]+)?, Context \d+, Stream (?P<stream>\d+)"
    r"(?:, Device (?P<device_number>\d+))?(?:, CC (?P<compute_capability>\d+[.,]\d+))?\s*"
)
_PROCESS_LINE = re.compile(r"\[(\d+)\] \S.*@\S+\s*")
_METRIC_LINE = re.compile(  # a metric may have no unit, and a value may be `(!) n/a`
    rf"(?:[^_(]*\()?(?P<name>[a-z0-9]+__[\w.]+|{'|'.join(map(re.escape, DISPLAY_NAMES))})"
    r"(?:\)| \([^()]*\))?\s+(?:(?P<unit>[^\s\d(!.,+-][^\s]*)\s+)?"
    r"(?P<value>(?:\(!\) )?(?:n/a|nan|[-+\d.,][-+\d.,'\u00a0\u202feE]*)(?: [{(].*)?)"
)
_DEVICE_LINE = re.compile(rf"({_DEVICE_NAME})\s+(\S.*)")
_RULES = ("INF ", "WRN ", "OPT ", "ERR ")
_LONGEST_LINE = 20_000  # characters


def read_text(path: Path, log: ReadingLog) -> Counters:
    """The kernels of a text: a line for a process, for each of its kernels, and their metrics.

    sgemm(int, const float *) (32, 32, 1)x(32, 32, 1), Context 1, Stream 7, Device 0, CC 7.5
      Duration                      msecond         96.32
    """
    kernels, process, number, row = _KernelRows(), "", 0, -1
    with open_text(path) as stream:
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
        return device[1], "", device[2]
    match = _METRIC_LINE.fullmatch(text)
    return (match["name"], match["unit"] or "", match["value"]) if match else None
