"""Traces of PyTorch's profiler (Kineto), in the trace format of Chrome: time of every kernel.

Events are decoded one by one, so that a trace of any size takes little memory. Durations are in
microseconds.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from ridgeline.captures.capture import Capture
from ridgeline.captures.counters import common_device, make_time_capture, note_several_devices
from ridgeline.captures.normalise import to_base_units
from ridgeline.captures.table import KINETO, OnBytes, open_text
from ridgeline.errors import RidgelineError

MICROSECOND = 1e-6
KERNEL = "kernel"
COPIES = ("gpu_memcpy", "gpu_memset", "memcpy", "memset")
_CHUNK = 2**20
_LONGEST = 2**24  # characters of one event
_LONGEST_HEAD = 2**22  # characters before the events
_START = re.compile(r'"traceEvents"\s*:\s*\[')
_DEVICES = re.compile(r'"(?:device|compute)Properties"\s*:\s*(?=\[)')
_BETWEEN = re.compile(r"[\s,]*")
_HALF_PAIR = re.compile("[\ud800-\udfff]")
NOT_WHOLE = "the trace is cut off or damaged: its end is missing"


def read_trace(path: Path, on_bytes: OnBytes | None = None) -> Capture:
    """The kernels of a trace, in the order in which they ran."""
    events, copies, kernels = _Events(), 0, []
    with open_text(path, on_bytes) as stream:
        for event in events.decode(stream):
            copies += _category(event) in COPIES
            if (row := _read_kernel(event)) is not None:
                kernels.append(row)
    if not events.has_list:
        raise RidgelineError(
            f"{path} is JSON, but no trace: it has no traceEvents",
            hint="export one with torch.profiler: profile.export_chrome_trace(FILE)",
        )
    timed = [row for row in kernels if row["time_s"] >= 0]
    if not timed:
        raise _no_kernels(path, events, has_some=bool(kernels))
    timed.sort(key=lambda row: row["start"])
    devices = events.used_devices([row["number"] for row in timed])
    notes = [
        *note_several_devices([device.label for device in devices]),
        *(
            f"{what} are left out: {count:,}"
            for what, count in (
                ("kernels without a valid duration", len(kernels) - len(timed)),
                ("copies and fills of memory, which are no kernels,", copies),
            )
            if count
        ),
        *[NOT_WHOLE] * (not events.is_whole),
    ]
    names = {device.name for device in devices if device.name}
    capabilities = {device.capability for device in devices if device.capability}
    return make_time_capture(
        str(path),
        KINETO,
        [{**row, "device": events.device_name(row["number"])} for row in timed],
        device=common_device(names, capabilities),
        compute_capability=capabilities.pop() if len(capabilities) == 1 else None,
        notes=notes,
    )


def _no_kernels(path: Path, events: _Events, *, has_some: bool) -> RidgelineError:
    number = f"{events.seen:,} event{'s' if events.seen != 1 else ''}"
    missing = f"no kernel of a GPU{' that has a duration' if has_some else ''} among them"
    if events.is_whole:
        return RidgelineError(
            f"{path} is a trace of {number} with {missing}",
            hint="profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
        )
    return RidgelineError(
        f"{path} is a trace that is damaged or cut off: {number} can be read, with {missing}",
        hint="copy or export it again",
    )


def _category(event: Any) -> str:
    return str(event.get("cat", "")).lower() if isinstance(event, dict) else ""


def _read_kernel(event: Any) -> dict[str, Any] | None:
    """A row for an event that is a kernel; its time is nan where it has none."""
    if _category(event) != KERNEL or event.get("ph") == "E":  # its end: it counts where it begins
        return None
    details = event.get("args")
    details = details if isinstance(details, dict) else {}
    return {
        "kernel": _text(event.get("name", "")),
        "time_s": to_base_units(_number(event.get("dur")), MICROSECOND),
        "start": _number(event.get("ts"), otherwise=0.0),
        "grid": _dimensions(details.get("grid")),
        "block": _dimensions(details.get("block")),
        "stream": _text(details.get("stream", event.get("tid", ""))),
        "id": _text(details.get("correlation", "")),
        "process_id": _text(event.get("pid", "")),
        "number": _text(details.get("device", "")),
    }


def _text(value: Any) -> str:
    """As text that can be stored: half of a surrogate pair, which JSON may hold, is replaced."""
    return _HALF_PAIR.sub("\ufffd", str(value))


def _number(value: Any, otherwise: float = math.nan) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return otherwise
    return number if math.isfinite(number) else otherwise


def _dimensions(value: Any) -> str:
    if not isinstance(value, list) or len(value) != 3:
        return ""
    return f"({', '.join(_text(part) for part in value)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Device:
    """A GPU as the trace describes it."""

    number: str = ""
    name: str | None = None
    capability: str | None = None

    @property
    def label(self) -> str:
        return f"{self.name} ({self.number})" if self.name else self.number


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
            devices = json.JSONDecoder().raw_decode(head, start.end())[0] if start else []
            known = [_read_device(position, device) for position, device in enumerate(devices)]
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
            return
        self.devices = {device.number: device for device in known}

    def used_devices(self, numbers: Sequence[str]) -> list[_Device]:
        """The devices that kernels ran on; where these have no number, the only one there is."""
        used = [self.devices.get(n, _Device(number=n)) for n in dict.fromkeys(numbers) if n]
        return used or list(self.devices.values()) * (len(self.devices) == 1)

    def device_name(self, number: str) -> str:
        return next((device.name or "" for device in self.used_devices([number])), "")


def _read_device(position: int, details: Any) -> _Device:
    parts = details.get("computeMajor"), details.get("computeMinor")
    is_known = all(isinstance(part, int) for part in parts)
    return _Device(
        number=_text(details.get("id", position)),
        name=_text(details["name"]),
        capability=f"{parts[0]}.{parts[1]}" if is_known else None,
    )
