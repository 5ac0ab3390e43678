"""Kernel tables of `nsys stats --format csv`: time only.

cuda_gpu_kern_sum (gpukernsum in older versions) has a row per kernel with its number of launches;
cuda_gpu_trace (gputrace) a row per launch, and copies between them. cuda_kern_exec_sum and
cuda_kern_exec_trace have the same beside the calls that launched them. Of several tables in one
file, the first of kernels is read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from ridgeline.captures.capture import Capture
from ridgeline.captures.counters import common_device, make_time_capture, note_several_devices
from ridgeline.captures.normalise import (
    NANOSECOND,
    Decimals,
    parse_unit,
    read_dimensions,
    read_launches,
    read_number,
    strip_groups,
    to_base_units,
)
from ridgeline.captures.table import (
    COUNT,
    INSTANCES,
    KERNEL_AVERAGES,
    NSYS,
    OnBytes,
    Table,
    read_cell,
)

_NAMES = ("Name", "Kernel Name", "Demangled Name")
_TIMES = ("Total Time", "Duration", "Dur", "Kernel Dur", *KERNEL_AVERAGES)
_COPY = "[CUDA "
_NEXT_REPORT = re.compile(r"Processing \[|\*\* ")  # nsys prints it above each table
_DEVICE_NUMBER = re.compile(r" \(\d+\)$")  # behind the name of a device


def read_nsys(table: Table, on_bytes: OnBytes | None = None) -> Capture:
    """The kernels of the first kernel table in a file."""
    decimals = Decimals.decide(_sample_numbers(table))
    reader = _NsysReader(table, decimals.mark)
    rows = list(reader.read_kernels(on_bytes))
    if not rows:
        raise table.log.refusal(
            str(table.path),
            "is a table of nsys without any kernel",
            "see that the program ran on the GPU: nsys profile --trace cuda,nvtx …",
        )
    devices, names = (
        list(dict.fromkeys(row[key] for row in rows if row[key]))
        for key in ("device_and_number", "device")
    )
    notes = [*decimals.notes(), *note_several_devices(devices), *table.log.notes()]
    return make_time_capture(str(table.path), NSYS, rows, device=common_device(names), notes=notes)


def _sample_numbers(table: Table) -> Iterator[tuple[str, str, str]]:
    for row in table.sample_rows():
        yield from zip(table.header.names, table.header.units, row, strict=False)


class _NsysReader:
    def __init__(self, table: Table, mark: str) -> None:
        self.table, self.header, self.mark = table, table.header, mark
        self.name = self.header.find(*_NAMES)
        self.time = self.header.find(
            "Total Time", "Duration", "Dur", "Kernel Dur", *KERNEL_AVERAGES
        )
        assert self.time is not None
        self.is_average = self.header.names[self.time] in KERNEL_AVERAGES
        self.instances = self.header.find(COUNT if self.is_average else INSTANCES)
        unit = parse_unit(self.header.units[self.time] or "ns")
        self.unit_s = unit.factor if unit else NANOSECOND

    def read_kernels(self, on_bytes: OnBytes | None) -> Iterator[dict[str, Any]]:
        """Up to the next table: `nsys stats` puts calls and copies below."""
        for row in self.table.read_rows(on_bytes):
            if self._is_next_table(row):
                return
            name = read_cell(row, self.name)
            if name.startswith(_COPY):
                continue
            kernel = self._read_kernel(row, name) if name else None
            if kernel is not None and not self.header.is_too_long(row):
                yield kernel
            else:
                self.table.log.skipped += any(text.strip() for text in row)

    def _is_next_table(self, row: list[str]) -> bool:
        """Whether another table begins: words of nsys, or titles without a number among them."""
        if _NEXT_REPORT.match(read_cell(row, 0)):
            return True
        are_titles = (text.strip() and math.isnan(read_number(text, self.mark)) for text in row)
        return len(row) > 2 and all(are_titles)

    def _read_kernel(self, row: list[str], name: str) -> dict[str, Any] | None:
        launches: int | None = 1
        if self.instances is not None:
            launches = read_launches(read_cell(row, self.instances), self.mark)
        time = to_base_units(read_number(read_cell(row, self.time), self.mark), self.unit_s)
        if launches is None or not 0 <= time < math.inf:
            return None
        return {
            "kernel": name,
            "time_s": time * launches if self.is_average else time,
            "launches": launches,
            "grid": self._dimensions(row, "Grd", "GridXYZ"),
            "block": self._dimensions(row, "Blk", "BlockXYZ"),
            "stream": strip_groups(self._text(row, "Strm")),
            "id": strip_groups(self._text(row, "CorrId", "Corr ID")),
            "process_id": strip_groups(self._text(row, "PID")),
            "device_and_number": self._text(row, "Device", "DevId"),
            "device": _DEVICE_NUMBER.sub("", self._text(row, "Device")),
        }

    def _dimensions(self, row: list[str], prefix: str, together: str) -> str:
        parts = [strip_groups(self._text(row, f"{prefix}{axis}")) for axis in "XYZ"]
        return f"({', '.join(parts)})" if all(parts) else read_dimensions(self._text(row, together))

    def _text(self, row: list[str], *names: str) -> str:
        return read_cell(row, self.header.find(*names))
