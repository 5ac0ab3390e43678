"""Kernel tables of `nsys stats --format csv`: time only.

cuda_gpu_kern_sum (gpukernsum in older versions) has a row per kernel with its number of launches;
cuda_gpu_trace (gputrace) has a row per launch, and copies between them. cuda_kern_exec_sum and
cuda_kern_exec_trace tell the same beside the calls that launched them. Several tables may stand in
one file, with words in between: the first of kernels is read. Other tables are of other things,
some with columns of the same names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from ridgeline.profile.capture import Capture
from ridgeline.profile.reading import evidence
from ridgeline.profile.reading.decimals import read_number, ungrouped
from ridgeline.profile.reading.header import (
    AVERAGES,
    COUNT,
    INSTANCES,
    NSYS,
    Header,
    cell,
    rows,
)
from ridgeline.profile.reading.launches import MOST, dimensions
from ridgeline.profile.reading.log import Log
from ridgeline.profile.reading.metric_units import NANOSECOND, parse_unit, scaled
from ridgeline.profile.reading.opening import TellBytes, open_lines, skip_lines
from ridgeline.profile.reading.source import Source
from ridgeline.profile.reading.traces import device_of_all, from_times, several

_NAMES = ("Name", "Kernel Name", "Demangled Name")
_COPIES = "[CUDA "
_WORDS = re.compile(r"Processing \[|\*\* ")  # of nsys, above each table
_INDEX = re.compile(r" \(\d+\)$")  # behind the name of a device


def read_nsys(source: Source, tell: TellBytes | None = None) -> Capture:
    """The kernels of the first kernel table in a file."""
    clues = evidence.of_rows(source.header, source.lines_below)
    table = _Table(source.header, clues.mark)
    with open_lines(source.path, tell) as stream:
        skip_lines(stream, source.lines_before + 1)
        found = list(_kernels(rows(stream, source.header.delimiter, source.log), table, source.log))
    source.log.is_cut |= source.log.is_open and table.is_last_short
    if not found:
        raise source.log.refusal(
            str(source.path),
            "is a table of nsys without any kernel",
            "see that the program ran on the GPU: nsys profile --trace cuda,nvtx …",
        )
    devices, names = (
        list(dict.fromkeys(row[key] for row in found if row[key]))
        for key in ("device_and_number", "device")
    )
    remarks = [
        *clues.remarks(),
        *table.remarks(source.log),
        *several(devices),
        *source.log.remarks(),
    ]
    return from_times(str(source.path), NSYS, found, device=device_of_all(names), remarks=remarks)


def _kernels(table_rows: Iterator[list[str]], table: _Table, log: Log) -> Iterator[dict[str, Any]]:
    """Up to the next table: `nsys stats` puts calls and copies below."""
    for row in table_rows:
        if table.ends_with(row):
            return
        if table.header.is_shifted(row, log):
            log.shifted += 1
            continue
        found = table.kernel(row)
        if found is not None:
            yield found


class _Table:
    def __init__(self, header: Header, mark: str) -> None:
        self.header, self.mark = header, mark
        self.name = header.find(*_NAMES)
        self.time = header.find("Total Time", "Duration", "Dur", "Kernel Dur", *AVERAGES)
        self.is_average = self.time is not None and header.names[self.time] in AVERAGES
        self.instances = header.find(COUNT if self.is_average else INSTANCES)
        assert self.time is not None
        unit = parse_unit(header.units[self.time] or "ns")
        self.unit_s = unit.factor if unit else NANOSECOND
        self.is_last_short = False  # the row that was read last
        self.short = 0  # rows that end before the name of their kernel
        self.odd = 0  # rows whose time or number of launches cannot be

    def ends_with(self, row: list[str]) -> bool:
        """Whether another table begins here: words of nsys, or titles, none of them a number."""
        if _WORDS.match(cell(row, 0)):
            return True
        are_titles = (text.strip() and math.isnan(read_number(text, self.mark)) for text in row)
        return len(row) > 2 and all(are_titles)

    def kernel(self, row: list[str]) -> dict[str, Any] | None:
        name = cell(row, self.name)
        is_begun = math.isfinite(read_number(cell(row, 0), self.mark))
        self.is_last_short = is_begun and len(row) < len(self.header.names)
        time = read_number(cell(row, self.time), self.mark)
        if not name:
            self.short += is_begun and len(row) > 1
            return None
        if name.startswith(_COPIES) or _COPIES.startswith(name):  # where a file ends in it
            return None
        launches = 1.0
        if self.instances is not None:
            launches = read_number(ungrouped(cell(row, self.instances)), self.mark)
        time_s = scaled(time * launches if self.is_average else time, self.unit_s)
        if not 1 <= launches < MOST or not 0 <= time_s < math.inf:
            self.odd += 1
            return None
        return {
            "kernel": name,
            "time_s": time_s,
            "launches": int(launches),
            "grid": self._sizes(row, "Grd", "GridXYZ"),
            "block": self._sizes(row, "Blk", "BlockXYZ"),
            "stream": ungrouped(self._named(row, "Strm")),
            "id": ungrouped(self._named(row, "CorrId", "Corr ID")),
            "process_id": ungrouped(self._named(row, "PID")),
            "device_and_number": self._named(row, "Device", "DevId"),
            "device": _INDEX.sub("", self._named(row, "Device")),
        }

    def remarks(self, log: Log) -> list[str]:
        short = self.short - log.is_cut  # which is said of the last
        said = [f"rows that end before the name of their kernel are left out: {short:,}"]
        odd = [f"rows without a time that can be used are left out: {self.odd:,}"]
        return said * (short > 0) + odd * (self.odd > 0)

    def _sizes(self, row: list[str], prefix: str, together: str) -> str:
        parts = [ungrouped(self._named(row, f"{prefix}{axis}")) for axis in "XYZ"]
        if all(parts):
            return f"({', '.join(parts)})"
        return dimensions(self._named(row, together))

    def _named(self, row: list[str], *names: str) -> str:
        return cell(row, self.header.find(*names))
