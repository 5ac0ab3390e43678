"""Nsight Compute's plain text: what it prints without --csv.

      sgemm(int, const float *) (32, 32, 1)x(32, 32, 1), Context 1, Stream 7, Device 0, CC 7.5
        Section: GPU Speed Of Light Throughput
        ----------------------- ------------- -------------
        Metric Name               Metric Unit  Metric Value
        ----------------------- ------------- -------------
        Duration                      msecond         96.32

Older versions leave out grid and block, have a date in that line, or no line of titles. A metric
may have no unit, and a value may be `(!) n/a`. Lines of dashes tell how wide the columns are: cells
that fill them have but one blank in between.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from ridgeline.profile.reading.decimals import Evidence
from ridgeline.profile.reading.evidence import is_whole
from ridgeline.profile.reading.launches import Launches, capability, dimensions
from ridgeline.profile.reading.log import Log
from ridgeline.profile.reading.named_metrics import NamedMetrics
from ridgeline.profile.reading.opening import TellBytes, lines_of, open_lines
from ridgeline.profile.reading.repeated import told_again
from ridgeline.profile.reading.source import Read

_LINE = 20_000  # characters that a line may have; longer ones are no part of this
_PROCESS = re.compile(r"\[(\d+)\] \S.*@\S+\s*")
_KERNEL = re.compile(
    r"\s*(?P<name>\S.*?)(?: \((?P<grid>[\d, ]+)\)x\((?P<block>[\d, ]+)\))?"
    r"(?:, \d{4}-\w{3}-\d{2} [\d:]+)?, Context \d+, Stream (?P<stream>\d+)"
    r"(?:, Device (?P<device>\d+))?(?:, CC (?P<cc>\d+[.,]\d+))?\s*"
)
_RULE = re.compile(r"\s*-{3,}(?:\s+-{3,})*\s*")
_DASHES = re.compile(r"-+")
_VALUE = re.compile(r"(?:\(!\) )?(?:n/a|nan|[-+.,\d'\u00a0\u202f]+(?:[eE][-+]?\d+)?)(?: [{(].*)?")
_SPACES = re.compile(r"\s{2,}")
_COMMENT = re.compile(r"(?<=\S)\s+#\s.*")  # of who kept the text
_LOOKED_AT = 10_000  # lines, for the decimal mark
_DEVICE = "device__attribute_display_name"
_TITLES = ("Metric Name", "Metric Value")

Columns = tuple[int, ...]  # where each begins


def read_sections(path: Path, log: Log, tell: TellBytes | None = None) -> Read:
    """The kernels of a text."""
    clues = Evidence()
    with open_lines(path) as stream:
        for name, unit, value in _metrics(islice(lines_of(stream, _LINE), _LOOKED_AT)):
            clues.see([value], are_whole=is_whole(name, unit))
    reader = _Reader(clues.mark)
    with open_lines(path, tell) as stream:
        for line in log.watch_end(log.sift(lines_of(stream, _LINE))):
            if log.is_open and reader.may_be_cut(line):
                log.is_cut = True  # a line without an end: its number may be half of one
            else:
                reader.see(line)
    again = told_again(len(reader.metrics.again))
    remarks = clues.remarks() + reader.metrics.finish() + again
    return Read(launches=reader.launches, remarks=tuple(remarks), has_rules=reader.has_rules)


def _metrics(lines: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    columns: Columns = ()
    is_flat = False
    for line in lines:
        columns = columns_of(line) or columns
        is_flat = is_flat or _is_flat(line)
        found = parse_metric(line, columns, is_flat=is_flat)
        if found is not None:
            yield found


def _is_flat(line: str) -> bool:
    """Whether it is that of a kernel, in a text that lost its indentation."""
    return ", Context " in line and not line.startswith(" ") and bool(_KERNEL.fullmatch(line))


def columns_of(line: str) -> Columns:
    """The columns that a line of dashes tells; none for any other line."""
    if not _RULE.fullmatch(line):
        return ()
    return tuple(found.start() for found in _DASHES.finditer(line))


def parse_metric(
    line: str, columns: Columns = (), *, is_flat: bool = False
) -> tuple[str, str, str] | None:
    """Name, unit and value of a line of a table, by its columns if it keeps to them."""
    if not line.startswith(" ") and not is_flat:
        return None
    line = _COMMENT.sub("", line)
    return _by_columns(line, columns) or _by_spaces(line)


def _by_columns(line: str, columns: Columns) -> tuple[str, str, str] | None:
    if len(columns) != 3 or not all(line[start - 1 : start] == " " for start in columns[1:]):
        return None
    ends = (*columns[1:], len(line))
    name, unit, value = (line[start:end].strip() for start, end in zip(columns, ends, strict=True))
    is_one_each = name and not _SPACES.search(name) and not _SPACES.search(unit)
    return _checked(name, unit, value) if is_one_each else None


def _by_spaces(line: str) -> tuple[str, str, str] | None:
    parts = _SPACES.split(line.strip())
    if len(parts) == 2 and " " in parts[1]:  # the unit fills its column: `cycle 55,313,213.62`
        parts[1:] = parts[1].split(" ", 1) if not parts[1].startswith("(!)") else parts[1:]
    if len(parts) == 2:
        parts.insert(1, "")
    return _checked(*parts) if len(parts) == 3 else None


def _checked(name: str, unit: str, value: str) -> tuple[str, str, str] | None:
    if (name, value) == _TITLES:
        return None
    is_value = _VALUE.fullmatch(value) is not None or name == _DEVICE
    return (name, unit, value) if is_value else None


class _Reader:
    """Lines as they come: a process, its kernels, their tables."""

    def __init__(self, mark: str) -> None:
        self.launches = Launches()
        self.metrics = NamedMetrics(self.launches, mark)
        self.has_rules = False
        self.process = ""
        self.row: int | None = None
        self.columns: Columns = ()
        self.is_flat = False
        self.kernels = 0  # of the process, up to here

    def see(self, line: str) -> None:
        process = _PROCESS.fullmatch(line.rstrip("\r\n"))
        if process:  # where it comes again, its kernels do
            self.process, self.kernels = process[1], 0
        elif ", Context " in line and (kernel := _KERNEL.fullmatch(line.rstrip("\r\n"))):
            self.is_flat = not line.startswith(" ")
            self._kernel(kernel)
        elif columns := columns_of(line):
            self.columns = columns
        elif self.row is not None:
            found = parse_metric(line, self.columns, is_flat=self.is_flat)
            if found is not None:
                self.metrics.add(self.row, *found)
            elif line.lstrip().startswith(("INF ", "WRN ", "OPT ", "ERR ")):
                self.has_rules = True

    def may_be_cut(self, line: str) -> bool:
        """Whether it is the beginning of a line of a table or of a kernel."""
        if _RULE.fullmatch(line) or _KERNEL.fullmatch(line):
            return False
        is_metric = parse_metric(line, self.columns, is_flat=self.is_flat) is not None
        return line.startswith("  ") or is_metric

    def _kernel(self, found: re.Match[str]) -> None:
        number = str(self.kernels if self.process else len(self.launches))
        self.kernels += 1
        texts = {
            "kernel": found["name"],
            "id": number,
            "process_id": self.process,
            "stream": found["stream"],
            "grid": dimensions(found["grid"] or ""),
            "block": dimensions(found["block"] or ""),
            "device_number": found["device"] or "",
            "compute_capability": capability(found["cc"] or ""),
        }
        self.row = self.launches.row((self.process, number, found["name"]), texts)
        self.metrics.begin()
