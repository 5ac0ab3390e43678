"""Traces, which have the time of every kernel only: PyTorch's profiler (Kineto), nsys stats.

A Kineto trace is JSON in Chrome's format. Durations are in microseconds.

Of `nsys stats --format csv`, cuda_gpu_kern_sum (gpukernsum in older versions) has a row per kernel
with its number of launches; cuda_gpu_trace (gputrace) a row per launch, and copies between them.
Of several tables in one file, the first of kernels is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ridgeline.captures.capture import Counters, make_counters
from ridgeline.captures.ncu_messages import ReadingLog
from ridgeline.captures.normalise import DURATION, normalise, strip_groups, to_base_units
from ridgeline.captures.table import INSTANCES, KINETO, NSYS, Header, Table, open_text, read_cell
from ridgeline.errors import RidgelineError

# ---------------------------------------------------------------- Kineto

_MICROSECOND = 1e-6
_COPIES = ("gpu_memcpy", "gpu_memset", "memcpy", "memset")


def read_trace(path: Path) -> Counters:
    """The kernels of a trace, in the order in which they ran."""
    import pandas as pd

    content = _read_json(path)
    events = content.get("traceEvents") if isinstance(content, dict) else content
    if not isinstance(events, list):
        raise RidgelineError(
            f"{path} is JSON, but no trace: it has no traceEvents",
            hint="export one with torch.profiler: profile.export_chrome_trace(FILE)",
        )
    # the end of an event counts where it begins
    kernels = [one for one in events if _category(one) == "kernel" and one.get("ph") != "E"]
    if not kernels:
        number = f"{len(events):,} event{'s' if len(events) != 1 else ''}"
        raise RidgelineError(
            f"{path} is a trace of {number} with no kernel of a GPU among them",
            hint="profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
        )
    rows = pd.DataFrame(map(_read_kernel, kernels)).astype(str)
    rows["start"] = pd.to_numeric(rows["start"], errors="coerce").fillna(0)
    rows = rows.sort_values("start", kind="stable", ignore_index=True)
    devices = _read_devices(content)
    for name in ("device", "compute_capability"):
        rows[name] = [devices.get(number, {}).get(name, "") for number in rows["device_number"]]
    time_s = to_base_units(pd.to_numeric(rows["time"], errors="coerce"), _MICROSECOND)
    copies = sum(_category(one) in _COPIES for one in events)
    note = f"copies and fills of memory, which are no kernels, are left out: {copies:,}"
    notes = [note] * bool(copies)
    return make_counters(path, KINETO, rows, {DURATION: time_s}, ReadingLog(), notes)


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
    details = event.get("args")
    details = details if isinstance(details, dict) else {}
    texts = {
        "kernel": event.get("name", ""),
        "time": event.get("dur"),
        "start": event.get("ts"),
        "grid": details.get("grid", ""),
        "block": details.get("block", ""),
        "stream": details.get("stream", event.get("tid", "")),
        "id": details.get("correlation", ""),
        "process_id": event.get("pid", ""),
        "device_number": details.get("device", ""),
    }
    return {name: _to_text(value) for name, value in texts.items()}


def _to_text(value: Any) -> str:
    """As text that can be stored: JSON may hold half of a surrogate pair."""
    return str(value).encode(errors="replace").decode()


def _read_devices(content: Any) -> dict[str, dict[str, str]]:
    """The GPUs that the trace describes, by number."""
    described = content.get("deviceProperties") if isinstance(content, dict) else None
    devices: dict[str, dict[str, str]] = {}
    for one in described if isinstance(described, list) else ():
        if isinstance(one, dict) and {"id", "name", "computeMajor", "computeMinor"} <= one.keys():
            capability = _to_text(f"{one['computeMajor']}.{one['computeMinor']}")
            device = {"device": _to_text(one["name"]), "compute_capability": capability}
            devices[_to_text(one["id"])] = device
    return devices


# ---------------------------------------------------------------- nsys

_NAMES = ("Name", "Kernel Name")
_TIMES = ("Total Time", "Duration", "Dur")
_COPY = "[CUDA "
_DEVICE_NUMBER = re.compile(r" \(\d+\)$")  # behind the name of a device
_NUMBER = re.compile(r"[\d.,]+%?")
_COUNT = re.compile(r"[1-9]\d{0,14}")


def read_nsys(table: Table) -> Counters:
    """The kernels of the first kernel table in a file."""
    import pandas as pd
    import pyarrow as pa

    header, rows = table.header, list(_read_kernel_rows(table))
    if not rows:
        raise table.log.refusal(
            table.path,
            "is a table of nsys without any kernel",
            "see that the program ran on the GPU: nsys profile --trace cuda,nvtx …",
        )
    time = header.find(*_TIMES)
    columns = {  # others may tell the decimal mark
        (DURATION if n == time else name, unit): pa.array([read_cell(row, n) for row in rows])
        for n, (name, unit) in enumerate(zip(header.names, header.units, strict=True))
    }
    metrics, notes = normalise(columns)
    texts = pd.DataFrame([_read_texts(header, row) for row in rows])
    return make_counters(table.path, NSYS, texts, metrics, table.log, notes)


def _read_kernel_rows(table: Table) -> Iterator[list[str]]:
    """Up to the next table, since `nsys stats` puts calls and copies below; without copies."""
    header = table.header
    for row in table.read_rows():
        first, name = read_cell(row, 0), read_cell(row, header.find(*_NAMES))
        if first and not _NUMBER.fullmatch(first):
            return
        if not name or header.is_too_long(row) or not _COUNT.fullmatch(_launches(header, row)):
            table.log.add_skipped(row)
        elif not name.startswith(_COPY):
            yield row


def _launches(header: Header, row: Sequence[str]) -> str:
    """How many launches a row stands for."""
    column = header.find(INSTANCES)
    return "1" if column is None else strip_groups(read_cell(row, column))


def _read_texts(header: Header, row: Sequence[str]) -> dict[str, str]:
    def read(*names: str) -> str:
        return read_cell(row, header.find(*names))

    grid, block = ([read(f"{prefix}{axis}") for axis in "XYZ"] for prefix in ("Grd", "Blk"))
    return {
        "kernel": read(*_NAMES),
        "launches": _launches(header, row),
        "grid": ", ".join(filter(None, grid)),
        "block": ", ".join(filter(None, block)),
        "stream": read("Strm"),
        "id": read("CorrId", "Corr ID"),
        "device_number": read("Device"),
        "device": _DEVICE_NUMBER.sub("", read("Device")),
    }
