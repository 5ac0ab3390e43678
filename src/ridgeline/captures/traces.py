"""Traces, which have the time of every kernel only: PyTorch's profiler (Kineto), nsys stats.

A Kineto trace is JSON in Chrome's format. Events are decoded one by one, so that a trace of any
size takes little memory. Durations are in microseconds.

Of `nsys stats --format csv`, cuda_gpu_kern_sum (gpukernsum in older versions) has a row per kernel
with its number of launches; cuda_gpu_trace (gputrace) a row per launch, and copies between them.
cuda_kern_exec_sum and cuda_kern_exec_trace have the same with the calls that launched them. Of
several tables in one file, the first of kernels is read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from ridgeline.captures.capture import (
    Capture,
    common_device,
    make_time_capture,
    note_several_devices,
)
from ridgeline.captures.normalise import (
    NANOSECOND,
    Normaliser,
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
    KINETO,
    NSYS,
    OnBytes,
    Table,
    open_text,
    read_cell,
)
from ridgeline.errors import RidgelineError

# ---------------------------------------------------------------- Kineto

_MICROSECOND = 1e-6
_COPIES = ("gpu_memcpy", "gpu_memset", "memcpy", "memset")
_CHUNK = 2**20
_LONGEST = 2**24  # characters of one event
_LONGEST_HEAD = 2**22  # characters before the events
_START = re.compile(r'"traceEvents"\s*:\s*\[')
_DEVICES = re.compile(r'"(?:device|compute)Properties"\s*:\s*(?=\[)')
_BETWEEN = re.compile(r"[\s,]*")
_HALF_PAIR = re.compile("[\ud800-\udfff]")
_NOT_WHOLE = "the trace is cut off or damaged: its end is missing"


class _Device(NamedTuple):
    """A GPU as the trace describes it."""

    number: str
    name: str = ""
    capability: str = ""

    @property
    def label(self) -> str:
        return f"{self.name} ({self.number})" if self.name else self.number


def read_trace(path: Path, on_bytes: OnBytes | None = None) -> Capture:
    """The kernels of a trace, in the order in which they ran."""
    events, copies, kernels = _Events(), 0, []
    with open_text(path, on_bytes) as stream:
        for event in events.decode(stream):
            copies += _category(event) in _COPIES
            # the end of an event counts where it begins
            if _category(event) == "kernel" and event.get("ph") != "E":
                kernels.append(_read_kernel(event))
    timed = [row for row in kernels if row["time_s"] >= 0]
    if not events.has_list or not timed:
        raise _refuse_trace(path, events, has_kernels=bool(kernels))
    timed.sort(key=lambda row: row["start"])
    devices = events.find_devices(row["number"] for row in timed)
    for row in timed:
        row["device"] = devices.get(row["number"] or next(iter(devices), ""), _Device("")).name
    names = {device.name for device in devices.values() if device.name}
    capabilities = {device.capability for device in devices.values() if device.capability}
    left_out = {
        "kernels without a valid duration": len(kernels) - len(timed),
        "copies and fills of memory, which are no kernels,": copies,
    }
    return make_time_capture(
        path,
        KINETO,
        timed,
        device=common_device(names, capabilities),
        compute_capability=capabilities.pop() if len(capabilities) == 1 else None,
        notes=[
            *note_several_devices([device.label for device in devices.values()]),
            *(f"{what} are left out: {count:,}" for what, count in left_out.items() if count),
            *[_NOT_WHOLE] * (not events.is_whole),
        ],
    )


def _refuse_trace(path: Path, events: _Events, *, has_kernels: bool) -> RidgelineError:
    number = f"{events.seen:,} event{'s' if events.seen != 1 else ''}"
    missing = f"no kernel of a GPU{' that has a duration' if has_kernels else ''} among them"
    if not events.has_list:
        problem = "is JSON, but no trace: it has no traceEvents"
        hint = "export one with torch.profiler: profile.export_chrome_trace(FILE)"
    elif events.is_whole:
        problem = f"is a trace of {number} with {missing}"
        hint = "profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
    else:
        problem = f"is a trace that is damaged or cut off: {number} can be read, with {missing}"
        hint = "copy or export it again"
    return RidgelineError(f"{path} {problem}", hint=hint)


def _category(event: Any) -> str:
    return str(event.get("cat", "")).lower() if isinstance(event, dict) else ""


def _read_kernel(event: dict[str, Any]) -> dict[str, Any]:
    """A row for a kernel; its time is nan where it has none."""
    details = event.get("args")
    details = details if isinstance(details, dict) else {}
    start = _read_number(event.get("ts"))
    return {
        "kernel": _read_text(event.get("name", "")),
        "time_s": to_base_units(_read_number(event.get("dur")), _MICROSECOND),
        "start": 0.0 if math.isnan(start) else start,
        "grid": _read_size(details.get("grid")),
        "block": _read_size(details.get("block")),
        "stream": _read_text(details.get("stream", event.get("tid", ""))),
        "id": _read_text(details.get("correlation", "")),
        "process_id": _read_text(event.get("pid", "")),
        "number": _read_text(details.get("device", "")),
    }


def _read_text(value: Any) -> str:
    """As text that can be stored: half of a surrogate pair, which JSON may hold, is replaced."""
    return _HALF_PAIR.sub("\ufffd", str(value))


def _read_number(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
    return number if math.isfinite(number) else math.nan


def _read_size(value: Any) -> str:
    is_size = isinstance(value, list) and len(value) == 3
    return f"({', '.join(map(_read_text, value))})" if is_size else ""


class _Events:
    """Decodes the events of a stream, and the devices before them."""

    def __init__(self) -> None:
        self.seen = 0
        self.has_list = self.is_whole = False
        self.devices: dict[str, _Device] = {}  # by number

    def decode(self, stream: TextIO) -> Iterator[Any]:
        """Every event up to the end of their list, or up to one that is damaged."""
        text, at = self._skip_to_events(stream), 0
        decoder = json.JSONDecoder(strict=False)  # a name may hold a tab
        while self.has_list:
            at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr] # matches always
            if text.startswith("]", at):
                self.is_whole = True
                return
            try:
                event, at = decoder.raw_decode(text, at)
            except (ValueError, RecursionError):  # unfinished or damaged
                more = stream.read(_CHUNK) if len(text) - at <= _LONGEST else ""
                if not more:
                    return
                text, at = text[at:] + more, 0
                continue
            self.seen += 1
            yield event

    def _skip_to_events(self, stream: TextIO) -> str:
        """The text from the first event on."""
        text = stream.read(_CHUNK).lstrip("\ufeff \t\r\n")
        if text.startswith("["):
            self.has_list = True
            return text[1:]
        start = _START.search(text)
        while start is None and len(text) < _LONGEST_HEAD and (more := stream.read(_CHUNK)):
            text += more
            start = _START.search(text)
        if start is None:
            return ""
        self.has_list = True
        self._read_devices(text[: start.start()])
        return text[start.end() :]

    def _read_devices(self, head: str) -> None:
        start = _DEVICES.search(head)
        try:
            details = json.JSONDecoder().raw_decode(head, start.end())[0] if start else []
            for position, one in enumerate(details):
                parts = one.get("computeMajor"), one.get("computeMinor")
                is_known = all(isinstance(part, int) for part in parts)
                capability = f"{parts[0]}.{parts[1]}" if is_known else ""
                number = _read_text(one.get("id", position))
                self.devices[number] = _Device(number, _read_text(one["name"]), capability)
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
            self.devices = {}

    def find_devices(self, numbers: Iterator[str]) -> dict[str, _Device]:
        """The devices that kernels ran on; where these have no number, the only one there is."""
        used = {n: self.devices.get(n, _Device(n)) for n in dict.fromkeys(numbers) if n}
        return used or (self.devices if len(self.devices) == 1 else {})


# ---------------------------------------------------------------- nsys

_NAMES = ("Name", "Kernel Name", "Demangled Name")
_TIMES = ("Total Time", "Duration", "Dur", "Kernel Dur", *KERNEL_AVERAGES)
_COPY = "[CUDA "
_NEXT_REPORT = re.compile(r"Processing \[|\*\* ")  # nsys prints it above each table
_DEVICE_NUMBER = re.compile(r" \(\d+\)$")  # behind the name of a device


def read_nsys(table: Table, on_bytes: OnBytes | None = None) -> Capture:
    """The kernels of the first kernel table in a file."""
    header = table.header
    samples = (zip(header.names, header.units, row, strict=False) for row in table.sample_rows())
    normaliser = Normaliser.decide(sample for row in samples for sample in row)
    rows = list(_NsysReader(table, normaliser.mark).read_kernels(on_bytes))
    if not rows:
        raise table.log.refusal(
            table.path,
            "is a table of nsys without any kernel",
            "see that the program ran on the GPU: nsys profile --trace cuda,nvtx …",
        )
    devices, names = (
        list(dict.fromkeys(row[key] for row in rows if row[key]))
        for key in ("device_and_number", "device")
    )
    notes = [*normaliser.notes(), *note_several_devices(devices), *table.log.notes()]
    return make_time_capture(table.path, NSYS, rows, device=common_device(names), notes=notes)


class _NsysReader:
    """Rows of a table of nsys."""

    def __init__(self, table: Table, mark: str) -> None:
        self.table, self.header, self.mark = table, table.header, mark
        self.name, self.time = self.header.find(*_NAMES), self.header.find(*_TIMES)
        assert self.time is not None
        self.is_average = self.header.names[self.time] in KERNEL_AVERAGES
        self.instances = self.header.find(COUNT if self.is_average else INSTANCES)
        unit = parse_unit(self.header.units[self.time] or "ns")
        self.unit_s = unit[1] if unit else NANOSECOND

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
                self.table.log.add_skipped(row)

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
        time_s = to_base_units(read_number(read_cell(row, self.time), self.mark), self.unit_s)
        if launches is None or not 0 <= time_s < math.inf:
            return None
        return {
            "kernel": name,
            "time_s": time_s * launches if self.is_average else time_s,
            "launches": launches,
            "grid": self._read_size(row, "Grd", "GridXYZ"),
            "block": self._read_size(row, "Blk", "BlockXYZ"),
            "stream": strip_groups(self._read_text(row, "Strm")),
            "id": strip_groups(self._read_text(row, "CorrId", "Corr ID")),
            "process_id": strip_groups(self._read_text(row, "PID")),
            "device_and_number": self._read_text(row, "Device", "DevId"),
            "device": _DEVICE_NUMBER.sub("", self._read_text(row, "Device")),
        }

    def _read_size(self, row: list[str], prefix: str, together: str) -> str:
        parts = [strip_groups(self._read_text(row, f"{prefix}{axis}")) for axis in "XYZ"]
        whole = self._read_text(row, together)
        return f"({', '.join(parts)})" if all(parts) else read_dimensions(whole)

    def _read_text(self, row: list[str], *names: str) -> str:
        return read_cell(row, self.header.find(*names))
