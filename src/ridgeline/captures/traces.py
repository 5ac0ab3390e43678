"""Traces, which have the time of every kernel only: PyTorch's profiler (Kineto), nsys stats.

A Kineto trace is JSON in Chrome's format. Durations are in microseconds.

Of `nsys stats --format csv`, cuda_gpu_kern_sum (gpukernsum in older versions) has a row per kernel
with its number of launches; cuda_gpu_trace (gputrace) a row per launch, and copies between them.
Of several tables in one file, the first of kernels is read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ridgeline.captures.capture import Counters, make_trace
from ridgeline.captures.ncu_messages import ReadingLog
from ridgeline.captures.normalise import (
    NANOSECOND,
    Normaliser,
    parse_unit,
    read_number,
    strip_groups,
    to_base_units,
)
from ridgeline.captures.table import (
    INSTANCES,
    KINETO,
    NSYS,
    Table,
    open_text,
    read_cell,
)
from ridgeline.errors import RidgelineError

# ---------------------------------------------------------------- Kineto

_MICROSECOND = 1e-6
_COPIES = ("gpu_memcpy", "gpu_memset", "memcpy", "memset")
_HALF_PAIR = re.compile("[\ud800-\udfff]")


def read_trace(path: Path) -> Counters:
    """The kernels of a trace, in the order in which they ran."""
    content = _read_json(path)
    events = content.get("traceEvents") if isinstance(content, dict) else content
    if not isinstance(events, list):
        raise RidgelineError(
            f"{path} is JSON, but no trace: it has no traceEvents",
            hint="export one with torch.profiler: profile.export_chrome_trace(FILE)",
        )
    categories = [_category(event) for event in events]
    # the end of an event counts where it begins
    kernels = [
        _read_kernel(event)
        for event, category in zip(events, categories, strict=True)
        if category == "kernel" and event.get("ph") != "E"
    ]
    timed = sorted((row for row in kernels if row["time_s"] >= 0), key=lambda row: row["start"])
    if not timed:
        number = f"{len(events):,} event{'s' if len(events) != 1 else ''}"
        duration = " that has a duration" if kernels else ""
        raise RidgelineError(
            f"{path} is a trace of {number} with no kernel of a GPU{duration} among them",
            hint="profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
        )
    devices = _read_devices(content)
    rows = [{**row, **devices.get(row["device_number"], {})} for row in timed]
    left_out = {
        "kernels without a valid duration": len(kernels) - len(timed),
        "copies and fills of memory, which are no kernels,": sum(map(categories.count, _COPIES)),
    }
    notes = [f"{what} are left out: {count:,}" for what, count in left_out.items() if count]
    return make_trace(path, KINETO, rows, ReadingLog(), notes)


def _read_json(path: Path) -> Any:
    """The content of a trace; operators, which are most of a large one, are dropped at once."""

    def drop_operator(item: dict[str, Any]) -> dict[str, Any] | None:
        return item if "ph" not in item or _category(item) in ("kernel", *_COPIES) else None

    with open_text(path) as stream:
        text = stream.read()
    try:  # a name may hold a tab
        return json.loads(text, strict=False, object_hook=drop_operator)
    except (ValueError, RecursionError) as error:
        raise RidgelineError(
            f"{path} is a trace that is damaged or cut off", hint="copy or export it again"
        ) from error


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
        "device_number": _read_text(details.get("device", "")),
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


def _read_devices(content: Any) -> dict[str, dict[str, str]]:
    """The GPUs that the trace describes, by number."""
    described = content.get("deviceProperties") if isinstance(content, dict) else None
    devices: dict[str, dict[str, str]] = {}
    for one in described if isinstance(described, list) else ():
        if isinstance(one, dict) and {"id", "name", "computeMajor", "computeMinor"} <= one.keys():
            capability = _read_text(f"{one['computeMajor']}.{one['computeMinor']}")
            device = {"device": _read_text(one["name"]), "compute_capability": capability}
            devices[_read_text(one["id"])] = device
    return devices


# ---------------------------------------------------------------- nsys

_NAMES = ("Name", "Kernel Name")
_TIMES = ("Total Time", "Duration", "Dur")
_COPY = "[CUDA "
_NEXT_REPORT = re.compile(r"Processing \[|\*\* ")  # nsys prints it above each table
_DEVICE_NUMBER = re.compile(r" \(\d+\)$")  # behind the name of a device
_MOST_LAUNCHES = 2**53  # of a row: a float holds whole numbers up to here


def read_nsys(table: Table) -> Counters:
    """The kernels of the first kernel table in a file."""
    normaliser = Normaliser.decide(text for row in table.sample_rows() for text in row)
    rows = list(_read_nsys_kernels(table, normaliser.mark))
    if not rows:
        raise table.log.refusal(
            table.path,
            "is a table of nsys without any kernel",
            "see that the program ran on the GPU: nsys profile --trace cuda,nvtx …",
        )
    return make_trace(table.path, NSYS, rows, table.log, normaliser.notes())


def _read_nsys_kernels(table: Table, mark: str) -> Iterator[dict[str, Any]]:
    """Up to the next table: `nsys stats` puts calls and copies below."""
    name = table.header.find(*_NAMES)
    for row in table.read_rows():
        if _is_next_table(row, mark):
            return
        kernel = _read_nsys_kernel(table, row, mark) if read_cell(row, name) else None
        if kernel is None:
            table.log.add_skipped(row)
        elif not kernel["kernel"].startswith(_COPY):
            yield kernel


def _is_next_table(row: list[str], mark: str) -> bool:
    """Whether another table begins: words of nsys, or titles without a number among them."""
    are_titles = (text.strip() and math.isnan(read_number(text, mark)) for text in row)
    return bool(_NEXT_REPORT.match(read_cell(row, 0))) or (len(row) > 2 and all(are_titles))


def _read_nsys_kernel(table: Table, row: list[str], mark: str) -> dict[str, Any] | None:
    """A row of kernels; None of another line."""
    header = table.header
    time = header.find(*_TIMES)
    assert time is not None
    unit = parse_unit(header.units[time] or "ns")
    time_s = to_base_units(read_number(read_cell(row, time), mark), unit[1] if unit else NANOSECOND)
    instances = header.find(INSTANCES)
    launches = 1.0 if instances is None else read_number(read_cell(row, instances), mark)
    is_count = 1 <= launches < _MOST_LAUNCHES and launches.is_integer()
    if header.is_too_long(row) or not is_count or not 0 <= time_s < math.inf:
        return None

    def read(*names: str) -> str:
        return read_cell(row, header.find(*names))

    def read_size(prefix: str) -> str:
        parts = [strip_groups(read(f"{prefix}{axis}")) for axis in "XYZ"]
        return f"({', '.join(parts)})" if all(parts) else ""

    return {
        "kernel": read(*_NAMES),
        "time_s": time_s,
        "launches": launches,
        "grid": read_size("Grd"),
        "block": read_size("Blk"),
        "stream": strip_groups(read("Strm")),
        "id": strip_groups(read("CorrId", "Corr ID")),
        "device_number": read("Device"),
        "device": _DEVICE_NUMBER.sub("", read("Device")),
    }
