"""Files as text, plain or packed with gzip, in UTF-8 or UTF-16; and the tables of Nsight tools.

A table is a header and rows of cells below it.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from ridgeline.captures.ncu_messages import ReadingLog
from ridgeline.captures.normalise import TIME, unit_kind
from ridgeline.errors import RidgelineError

GZIP_MARK = b"\x1f\x8b"
_CHUNK = 2**20
BinaryFile = io.BufferedReader  # or what behaves like it


@contextmanager
def explain_os_errors(path: Path) -> Iterator[None]:
    """Turn errors of the file system or of gzip into one that says what to do."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or "it is damaged or not whole"
        raise RidgelineError(
            f"{path} cannot be read: {reason}", hint="check the path, or copy the file again"
        ) from error


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryFile]:
    """The unpacked content of a file."""
    with explain_os_errors(path), io.BufferedReader(io.FileIO(path), _CHUNK) as raw:
        is_packed = raw.peek(2).startswith(GZIP_MARK)
        with gzip.GzipFile(fileobj=raw) if is_packed else nullcontext(raw) as stream:
            yield cast(BinaryFile, stream)


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """The content as text; bytes without a meaning in its encoding are replaced."""
    with open_bytes(path) as stream:
        encoding = find_encoding(stream.peek(4))
        yield io.TextIOWrapper(stream, encoding=encoding, errors="replace", newline="\n")


def skip_lines(stream: TextIO | BinaryIO, count: int) -> None:
    for _ in range(count):
        stream.readline()


def find_encoding(head: bytes) -> str:
    """By the byte order mark; UTF-8 without one."""
    is_utf_16 = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return "utf-16" if is_utf_16 else "utf-8-sig"


# ---------------------------------------------------------------- headers

RAW, DETAILS, UI, TEXT = "ncu-raw", "ncu-details", "ncu-ui", "ncu-text"
REPORT, KINETO, NSYS = "ncu-rep", "kineto", "nsys"
_DELIMITERS = (",", ";", "\t")
_KERNEL_NAMES = (  # the fullest first
    "Original Demangled Name", "Demangled Name", "Kernel Name", "Function Name",
)  # fmt: skip
_TITLES = {  # of the texts of a launch, by the names that versions and the UI give them
    "id": ("ID",),
    "process_id": ("Process ID", "Process"),
    "host": ("Host Name",),
    "kernel": _KERNEL_NAMES,
    "stream": ("Stream", "Stream ID", "launch__stream_id"),
    "grid": ("Grid Size",),
    "block": ("Block Size",),
    "device": ("device__attribute_display_name", "Device Name"),
    "device_number": ("Device",),
    "compute_capability": ("CC",),
}
INSTANCES = "Instances"  # of nsys
_MARKS = (*_KERNEL_NAMES, "Metric Name", "Duration", "Total Time")
_UNIT = re.compile(r"(?P<name>.*\S)\s*\[(?P<unit>[^\]]*)\]")
_TIME = re.compile(
    r"(?P<name>Total Time|Duration|Dur)"
    r"(?:\s*[(\[](?P<unit>[a-z\u00b5\u03bc]*)[)\]])?"  # the micro sign and the Greek letter
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The columns of a table, their units where the header has them, and their delimiter."""

    kind: str
    delimiter: str
    names: tuple[str, ...]  # without units
    units: tuple[str, ...]

    def find(self, *names: str) -> int | None:
        """The column of the first of these names that there is."""
        return next((self.names.index(name) for name in names if name in self.names), None)

    def find_texts(self) -> dict[str, int]:
        """The columns of the texts of a launch."""
        columns = {key: self.find(*names) for key, names in _TITLES.items()}
        return {key: column for key, column in columns.items() if column is not None}

    @property
    def text_columns(self) -> frozenset[int]:
        """All columns of texts."""
        return frozenset((*self.find_texts().values(), *self.range_columns))

    @property
    def range_columns(self) -> tuple[int, ...]:
        """The columns of NVTX ranges, a domain each."""
        return tuple(n for n, name in enumerate(self.names) if "_Range:" in name)

    def is_too_long(self, row: Sequence[str]) -> bool:
        """Whether a row has more cells than titles: quotes around a name were lost."""
        return any(text.strip() for text in row[len(self.names) :])


def parse_header(line: str) -> Header | None:
    """None where no table of kernels begins; program output may stand before `"ID"`."""
    if not any(mark in line for mark in _MARKS):
        return None
    line = line.rstrip("\r\n").lstrip("\ufeff")
    for start in {max(line.find('"ID"'), 0): None, 0: None}:
        for delimiter in _DELIMITERS:
            with suppress(csv.Error):
                header = _make_header(
                    next(csv.reader([line[start:]], delimiter=delimiter)), delimiter
                )
                if header is not None:
                    return header
    return None


def _make_header(cells: Sequence[str], delimiter: str) -> Header | None:
    names, units = zip(*(_split_unit(cell.strip()) for cell in cells), strict=True)
    kind = _find_kind(names, units)
    return Header(kind=kind, delimiter=delimiter, names=names, units=units) if kind else None


def _split_unit(cell: str) -> tuple[str, str]:
    """`gpu__time_duration.sum [us]` as name and unit; `Total Time (ns)` likewise."""
    match = _UNIT.fullmatch(cell)
    if match:
        return match["name"], match["unit"]
    time = _TIME.fullmatch(cell)
    if time is None:
        return cell, ""
    unit = time["unit"] or ""
    return time["name"], unit if unit_kind(unit) == TIME else "ns"


def _find_kind(names: Sequence[str], units: Sequence[str]) -> str | None:
    there = set(names)
    if "Metric Name" in there:
        return DETAILS if {"ID", "Metric Value"} <= there else None
    if "Total Time" in there and INSTANCES in there and there & {"Name", *_KERNEL_NAMES}:
        return NSYS
    if {"Duration", "Name"} <= there and {"CorrId", "Corr ID", "GrdX"} & there:
        return NSYS
    has_units = any(unit and "__" in name for name, unit in zip(names, units, strict=True))
    if has_units or there & {"Function Name", "Demangled Name"}:
        return UI if there & {*_KERNEL_NAMES} else None
    return RAW if {"ID", "Kernel Name"} <= there else None


# ---------------------------------------------------------------- rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table in a file."""

    path: Path
    header: Header
    lines_before: int  # the header
    log: ReadingLog = field(default_factory=ReadingLog)

    def read_rows(self) -> Iterator[list[str]]:
        """The rows below the header, up to another table; a line that is no row is skipped."""
        with open_text(self.path) as stream:
            skip_lines(stream, self.lines_before + 1)
            lines = _drop_cut_line(self.log.drop_messages(stream), self.log)
            reader = csv.reader(lines, delimiter=self.header.delimiter)
            while True:
                try:
                    row = next(reader)
                except StopIteration:
                    return
                except csv.Error:
                    self.log.skipped += 1
                    continue
                if len(row) > 2 and row[0].strip() in ("ID", *_KERNEL_NAMES):
                    self.log.has_other_table = True
                    return
                yield row


def _drop_cut_line(lines: Iterator[str], log: ReadingLog) -> Iterator[str]:
    """Without a last line that ends inside a cell: its number may be half of one."""
    for line in lines:
        if line.endswith(("\n", "\r", '"')):
            yield line.replace("\0", "")
        else:
            log.is_cut = True


def read_cell(row: Sequence[str], column: int | None) -> str:
    """The text in a column; "" without that column, or where the row ends before it."""
    return row[column].strip() if column is not None and len(row) > column else ""
