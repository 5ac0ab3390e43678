"""Tables and texts of Nsight Compute: three readers, one for each form.

read_wide   a row per kernel, a column per metric: `--csv --page raw`, and the UI's export
read_long   a row per kernel and metric: `--csv --page details`
read_text   a line per metric below a line for the kernel: what ncu prints without --csv

A wide file goes through pyarrow. Only the columns that are needed are kept.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any, TextIO

from ridgeline.captures.capture import Counters, make_counters
from ridgeline.captures.ncu_messages import ReadingLog
from ridgeline.captures.normalise import DISPLAY_NAMES, normalise, strip_groups, strip_label
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

# ---------------------------------------------------------------- wide tables

_BLOCK_BYTES = 2**20  # small ones stay in the processor's cache
_LAUNCH_NUMBER = r"^\d+$|^\d{1,3}(?:,\d{3})+$"


def read_wide(table: Table) -> Counters:
    """The kernels of a wide table."""
    import pandas as pd

    header, number = table.header, table.header.find("ID")
    cells, units = _read_cells(table), dict(enumerate(header.units))
    if number is not None and len(cells[number]) and not cells[number][0].as_py().strip():
        units = {column: str(texts[0]) for column, texts in cells.items()}
        cells = {column: texts[1:] for column, texts in cells.items()}
    cells = _keep_launches(cells, number, table.log)
    texts = {key: cells[column].to_pandas() for key, column in header.find_texts().items()}
    if header.range_columns:
        ranges = [cells[column].to_pandas() for column in header.range_columns]
        texts["nvtx"] = reduce(lambda outer, inner: outer + " " + inner, ranges)
    columns: dict[tuple[str, str], Any] = {}
    for column, values in cells.items():
        if column not in header.text_columns:
            columns.setdefault((header.names[column], units[column]), values)
    metrics, notes = normalise(columns)
    return make_counters(table.path, header.kind, pd.DataFrame(texts), metrics, table.log, notes)


def needed_columns(header: Header) -> list[int]:
    """The columns to read: texts of launches, ranges and metrics."""
    names = enumerate(map(strip_label, header.names))
    metrics = {n for n, name in names if is_needed(name) or name in DISPLAY_NAMES}
    return sorted({*header.text_columns, *metrics})


def _read_cells(table: Table) -> dict[int, Any]:
    """Arrow arrays of texts by column; rows with another number of cells are left out."""
    import pyarrow as pa
    from pyarrow import csv

    header, columns = table.header, needed_columns(table.header)
    names = [str(column) for column in range(len(header.names))]

    def skip_row(row: csv.InvalidRow) -> str:
        table.log.add_other_line(row.text or "", is_header=parse_header(row.text or "") is not None)
        return "skip"

    with open_bytes(table.path) as stream:
        lines = _WholeLines(stream, table)
        if not lines.has_more:  # which pyarrow refuses
            return {column: pa.array([], pa.string()) for column in columns}
        try:
            read = csv.read_csv(
                lines,
                csv.ReadOptions(column_names=names, block_size=_BLOCK_BYTES),
                csv.ParseOptions(delimiter=header.delimiter, invalid_row_handler=skip_row),
                csv.ConvertOptions(
                    include_columns=list(map(str, columns)),
                    column_types=dict.fromkeys(names, pa.string()),
                    check_utf8=False,  # _WholeLines gives nothing else
                ),
            )
        except pa.ArrowInvalid as error:
            raise table.log.refusal(table.path, "is damaged: its rows cannot be read") from error
    return dict(zip(columns, read.columns, strict=True))


class _WholeLines:
    """A table's lines for pyarrow: below the header, in UTF-8, without a last one that is torn."""

    closed = False

    def __init__(self, stream: Any, table: Table) -> None:
        encoding = find_encoding(stream.peek(4))
        self._stream = codecs.EncodedFile(stream, "utf-8", encoding, errors="replace")
        self._log = table.log
        skip_lines(self._stream, table.lines_before + 1)
        self._next: bytes = self._stream.read(_BLOCK_BYTES)

    @property
    def has_more(self) -> bool:
        return bool(self._next)

    def read(self, size: int) -> bytes:
        content, self._next = self._next, self._stream.read(size)
        if self._next or content.endswith((b"\n", b'"')):
            return content
        self._log.is_cut |= bool(content)  # the number in its last cell may be half of one
        return content[: content.rfind(b"\n") + 1]

    def close(self) -> None:
        self.closed = True


def _keep_launches(cells: dict[int, Any], number: int | None, log: ReadingLog) -> dict[int, Any]:
    """The rows that are launches, up to another table."""
    import pyarrow.compute as pc

    if number is None:
        return cells
    header = pc.index(cells[number], "ID").as_py()
    if header >= 0:
        log.has_other_table = True
        cells = {column: texts[:header] for column, texts in cells.items()}
    is_launch = pc.match_substring_regex(cells[number], _LAUNCH_NUMBER)
    if pc.all(is_launch).as_py():
        return cells
    log.skipped += len(is_launch) - (pc.sum(is_launch).as_py() or 0)
    return {column: texts.filter(is_launch) for column, texts in cells.items()}


# ---------------------------------------------------------------- a metric per row or line

DEVICE_NAME = "device__attribute_display_name"


@dataclass(slots=True)
class _KernelRows:
    """Kernels of a file that has one metric per row or line, as they come."""

    texts: list[dict[str, str]] = field(default_factory=list)
    cells: dict[tuple[str, str], dict[int, str]] = field(default_factory=dict)  # title, unit; row
    has_rules: bool = False  # results of rules in place of metrics

    def add_kernel(self, texts: dict[str, str]) -> int:
        self.texts.append(texts)
        return len(self.texts) - 1

    def add_metric(self, row: int, title: str, unit: str, text: str) -> None:
        """The first value of a metric counts: sections repeat some, with fewer digits."""
        if strip_label(title) == DEVICE_NAME:
            self.texts[row]["device"] = text
        else:
            self.cells.setdefault((title, unit), {}).setdefault(row, text)

    def to_counters(self, path: Path, kind: str, log: ReadingLog) -> Counters:
        import pandas as pd
        import pyarrow as pa

        kernels = pd.DataFrame(self.texts).fillna("")
        metrics, notes = normalise(
            {
                title: pa.array([cells.get(row, "") for row in range(len(kernels))], pa.string())
                for title, cells in self.cells.items()
            }
        )
        return make_counters(path, kind, kernels, metrics, log, notes, has_rules=self.has_rules)


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
    kernels, numbers = _KernelRows(), dict[tuple[str, ...], int]()
    for row in table.read_rows():
        key = tuple(strip_groups(read_cell(row, column)) for column in identity)
        if header.is_too_long(row) or not key[2].isdigit() or not key[3]:
            table.log.add_skipped(row)
            continue
        if key not in numbers:
            cells = {text: read_cell(row, column) for text, column in texts.items()}
            ranges = " ".join(read_cell(row, column) for column in header.range_columns)
            numbers[key] = kernels.add_kernel({**cells, "nvtx": ranges})
        metric = read_cell(row, name)
        if metric:
            kernels.add_metric(numbers[key], metric, read_cell(row, unit), read_cell(row, value))
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
_DEVICE_LINE = re.compile(rf"({DEVICE_NAME})\s+(\S.*)")
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
                row, number = kernels.add_kernel(texts), number + 1
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
