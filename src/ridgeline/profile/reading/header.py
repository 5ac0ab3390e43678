"""The first line of a table: what it is a table of, and what its columns are."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from ridgeline.profile.reading.log import Log
from ridgeline.profile.reading.metric_units import parse_unit

RAW, DETAILS, UI, TEXT = "ncu-raw", "ncu-details", "ncu-ui", "ncu-text"
REPORT, KINETO, NSYS = "ncu-rep", "kineto", "nsys"
DELIMITERS = (",", ";", "\t")
KERNEL_NAMES = (  # the fullest first
    "Original Demangled Name", "Demangled Name", "Kernel Name", "Function Name",
)  # fmt: skip
_TRIED = 3  # places where it may begin behind other text
_MARKS = (*KERNEL_NAMES, "Metric Name", "Duration", "Total Time")
_UNIT = re.compile(r"(?P<name>.*\S)\s*\[(?P<unit>[^\]]*)\]")
_TIME = re.compile(
    r"(?P<what>Total Time|Duration|Dur|Kernel Dur|KAvg|Kernel Avg)"
    r"\s*[(\[]?(?P<unit>[a-z\u00b5\u03bc]*)[)\]]?"  # the micro sign and the Greek letter
)
_NSYS_UNITS = {"nsec": "ns", "usec": "us", "msec": "ms", "sec": "s", "": "ns"}
INVOCATIONS = "Invocations"  # of `ncu --print-summary`: averages over launches
INSTANCES = "Instances"
COUNT, AVERAGES = "Count", ("KAvg", "Kernel Avg")  # of cuda_kern_exec_sum
_FIRST = re.compile(  # column, also behind other text, never behind another column
    r"""(?<![,;\t])(?:"ID"|"Process ID"|"?(?:Time ?\(%\)|(?:API )?Start ?\(\w+\)|PID)"?)[,;\t]"""
)
_NUMBER = re.compile(r"[-+.,'\d\sEe]*")  # also the beginning of one
_TOO_LONG = "field limit"  # in what the csv module says
_END = "\x1aend of file\x1a"  # a line below the last: only an open quote takes it into a cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The columns of a table, their units where the header has them, and what separates them."""

    kind: str
    delimiter: str
    names: tuple[str, ...]  # without units
    units: tuple[str | None, ...]

    def find(self, *names: str) -> int | None:
        """The first column of any of these names, the first of them preferred."""
        return next((self.names.index(name) for name in names if name in self.names), None)

    def is_shifted(self, row: Sequence[str], log: Log) -> bool:
        """Whether the row that was read last has its cells cut at commas, for lack of quotes."""
        if self.delimiter != "," or log.has_quotes:
            return False
        name = cell(row, self.find("Name", *KERNEL_NAMES))
        is_cut = name.count("(") > name.count(")") and not name.endswith(("..", "…"))
        return is_cut or any(text.strip() for text in row[len(self.names) :])

    @property
    def ranges(self) -> tuple[int, ...]:
        """The columns of NVTX ranges, a domain each."""
        return tuple(n for n, name in enumerate(self.names) if "_Range:" in name)


def parse_header(line: str) -> Header | None:
    """None where no table of kernels begins in the line; program output may stand before it."""
    if not any(mark in line for mark in _MARKS):
        return None
    line = line.rstrip("\r\n")
    starts = [*(found.start() for found in islice(_FIRST.finditer(line), _TRIED)), 0]
    headers = (
        header_of(_cells(line[start:], delimiter), delimiter)
        for start in dict.fromkeys(starts)
        for delimiter in DELIMITERS
    )
    return next(filter(None, headers), None)


def header_of(cells: Sequence[str], delimiter: str) -> Header | None:
    """The same for a row that is already in cells."""
    names, units = zip(*(split_unit(cell.strip()) for cell in cells), strict=True)
    kind = _kind(names, units)
    if kind is None:
        return None
    return Header(kind=kind, delimiter=delimiter, names=names, units=units)


def header_among(row: list[str], delimiter: str) -> Header | None:
    """The header of another table, where files were put together."""
    row = unglued(row)
    if not row or row[0].strip() not in ("ID", *KERNEL_NAMES) or len(row) < 3:
        return None
    return header_of(row, delimiter)


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        cells = next(csv.reader([line.lstrip("\ufeff")], delimiter=delimiter), [])
    except csv.Error:
        cells = []
    return cells or [""]


def split_unit(cell: str) -> tuple[str, str | None]:
    """`gpu__time_duration.sum [us]` as name and unit; `Total Time (ns)` likewise."""
    found = _UNIT.fullmatch(cell)
    if found:
        return found["name"], found["unit"]
    time = _TIME.fullmatch(cell)
    if time and ("(" in cell or "[" in cell or cell == time["what"]):
        unit = _NSYS_UNITS.get(time["unit"], time["unit"])
        return time["what"], unit if parse_unit(unit) else "ns"
    return cell, None


def _kind(names: tuple[str, ...], units: tuple[str | None, ...]) -> str | None:
    found = set(names)
    has_values = "Metric Value" in found or {"Average", INVOCATIONS} <= found
    if "Metric Name" in found and has_values and found & {"ID", *KERNEL_NAMES}:
        return DETAILS
    if "Total Time" in found and INSTANCES in found and found & {"Name", *KERNEL_NAMES}:
        return NSYS
    if {"Duration", "Name"} <= found and {"CorrId", "Corr ID", "GrdX"} & found:
        return NSYS
    has_times = "Kernel Dur" in found or (COUNT in found and found & {*AVERAGES})
    if has_times and "Kernel Name" in found:
        return NSYS
    has_units = any(
        unit is not None and "__" in name for name, unit in zip(names, units, strict=True)
    )
    if has_units or found & {"Function Name", "Demangled Name"}:
        return UI if found & {"ID", *KERNEL_NAMES} else None
    return RAW if {"ID", "Kernel Name"} <= found else None


def rows(lines: Iterator[str], delimiter: str, log: Log | None = None) -> Iterator[list[str]]:
    """Rows of a table. A line that cannot be read is left out, a cell that is cut off empty."""
    log = log or Log()
    shown = map(_shown, log.watch_end(lines))
    reader = csv.reader(chain(shown, [_END]), delimiter=delimiter)
    while True:
        try:
            row = next(reader)
        except StopIteration:  # the end was lost in a cell that is too long
            log.is_cut = True
            return
        except csv.Error as error:
            if _TOO_LONG in str(error):
                log.too_long += 1
            else:
                log.skipped += 1
            continue
        if row and row[-1].endswith(_END):
            break
        yield _last_row(row, log) if log.is_open else row
    if row != [_END]:
        log.is_cut = True
        yield [*row[:-1], ""]


def _last_row(row: list[str], log: Log) -> list[str]:
    """Of a line without an end, a number that no quote closes may be half of one."""
    if len(row) < 2 or log.open_end == '"':
        return row
    log.is_bare = True
    return [*row[:-1], ""] if _NUMBER.fullmatch(row[-1]) else row


def _shown(line: str) -> str:
    """As a terminal shows it: what stands before a carriage return is written over."""
    if "\r" in line:
        line = line[line.rstrip("\r\n").rfind("\r") + 1 :]
    if line[:1] in " \t" and line.lstrip(" \t").startswith('"'):  # quotes count at the beginning
        line = line.lstrip(" \t")
    return line.replace("\0", "")


def unglued(row: list[str]) -> list[str]:
    """A row of titles without the unfinished output that its first cell may begin with."""
    return ["ID", *row[1:]] if row and row[0].endswith('"ID"') else row


def cell(row: Sequence[str], column: int | None) -> str:
    """What stands in a column; nothing where there is no such column, or the row ends before it."""
    return row[column].strip() if column is not None and len(row) > column else ""
