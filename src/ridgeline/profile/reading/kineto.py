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

from ridgeline.errors import RidgelineError
from ridgeline.profile.capture import Capture
from ridgeline.profile.reading.header import KINETO
from ridgeline.profile.reading.metric_units import scaled
from ridgeline.profile.reading.opening import TellBytes, open_text
from ridgeline.profile.reading.traces import device_of_all, from_times, several

MICROSECOND = 1e-6
KERNEL = "kernel"
COPIES = ("gpu_memcpy", "gpu_memset", "memcpy", "memset")
_CHUNK = 2**20
_LONGEST = 2**24  # characters of one event
_START = re.compile(r'"traceEvents"\s*:\s*\[')
_DEVICES = re.compile(r'"(?:device|compute)Properties"\s*:\s*(?=\[)')
_NEXT = re.compile(r'\}\s*,\s*(?=\{\s*"(?:ph|name|cat|ts|pid)")')  # behind one that is damaged
_CLOSE = re.compile(r"\}\s*\][^\[\]{}]*\}?\s*\Z")  # of the events, and of the trace
_BETWEEN = re.compile(r"[\s,]*")
_HALF = re.compile("[\ud800-\udfff]")
_HEAD = 2**22  # characters before the events, or behind them
SEVERAL_TRACES = (
    "other traces follow in this file and are not read: import each as a file of its own"
)


def read_trace(path: Path, tell: TellBytes | None = None) -> Capture:
    """The kernels of a trace, in the order in which they ran."""
    events, copies = _Events(), 0
    with open_text(path, tell) as stream:
        kernels = []
        for event in events.of(stream):
            copies += _category(event) in COPIES
            if (row := _kernel(event)) is not None:
                kernels.append(row)
    if not events.has_list:
        raise RidgelineError(
            f"{path} is JSON, but no trace: it has no traceEvents",
            hint="export one with torch.profiler: profile.export_chrome_trace(FILE)",
        )
    found = [row for row in kernels if row["time_s"] >= 0]
    if not found:
        raise _no_kernels(path, events, has_some=bool(kernels))
    found.sort(key=lambda row: row["start"])
    devices = events.used([row["number"] for row in found])
    capabilities = {device.capability for device in devices}
    remarks = [
        *several([device.label for device in devices]),
        *_lost("kernels without a duration that can be used", len(kernels) - len(found)),
        *_lost("events that cannot be read", events.damaged),
        *_lost("copies and fills of memory, which are no kernels,", copies),
    ]
    if not events.is_whole:
        remarks.append("the trace is cut off or damaged: its end is missing")
    if events.has_more:
        remarks.append(SEVERAL_TRACES)
    return from_times(
        str(path),
        KINETO,
        [{**row, "device": events.name_of(row["number"])} for row in found],
        device=_device_of_all(devices),
        compute_capability=capabilities.pop() if len(capabilities) == 1 else None,
        remarks=remarks,
    )


def _no_kernels(path: Path, events: _Events, *, has_some: bool) -> RidgelineError:
    what = "kernel of a GPU that has a duration" if has_some else "kernel of a GPU"
    if events.is_whole and not events.damaged:
        return RidgelineError(
            f"{path} is a trace of {_events(events.seen)} with no {what} among them",
            hint="profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
        )
    read = f"of its {_events(events.seen)} that can be read, none is a {what}"
    return RidgelineError(
        f"{path} is a trace that is damaged or cut off: "
        + (read if events.seen else "none of its events can be read"),
        hint="copy or export it again",
    )


def _device_of_all(devices: Sequence[_Device]) -> str | None:
    """Not one of several; the same name may stand for several of a kind."""
    names = {device.name or "" for device in devices}
    if len(names) > 1:
        return None
    return device_of_all(names - {""}, {d.capability for d in devices if d.capability})


def _events(count: int) -> str:
    return f"{count:,} event{'s' if count != 1 else ''}"


def _lost(what: str, count: int) -> list[str]:
    return [f"{what} are left out: {count:,}"] * (count > 0)


def _category(event: Any) -> str:
    return str(event.get("cat", "")).lower() if isinstance(event, dict) else ""


def _kernel(event: Any) -> dict[str, Any] | None:
    """A row for an event that is a kernel; its time is nan where it tells none."""
    if _category(event) != KERNEL:
        return None
    if event.get("ph") == "E":  # the end of one that is counted at its beginning
        return None
    about = event.get("args")
    about = about if isinstance(about, dict) else {}
    return {
        "kernel": _text(event.get("name", "")),
        "time_s": scaled(_number(event.get("dur")), MICROSECOND),
        "start": _number(event.get("ts"), otherwise=0.0),
        "grid": _dimensions(about.get("grid")),
        "block": _dimensions(about.get("block")),
        "stream": _text(about.get("stream", event.get("tid", ""))),
        "id": _text(about.get("correlation", "")),
        "process_id": _text(event.get("pid", "")),
        "number": _text(about.get("device", "")),
    }


def _text(value: Any) -> str:
    """As text that can be stored: half of a surrogate pair, which JSON may hold, is replaced."""
    return _HALF.sub("\ufffd", str(value))


def _number(value: Any, otherwise: float = math.nan) -> float:
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return otherwise
    return found if math.isfinite(found) else otherwise


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
    """Decodes the events of a stream; what was seen on the way."""

    def __init__(self) -> None:
        self.seen = self.damaged = 0
        self.has_list = self.is_whole = False
        self.is_bare = False  # a list of events and nothing around it
        self.has_more = False  # another trace behind the first
        self.devices: dict[str, _Device] = {}  # by number

    def of(self, stream: TextIO) -> Iterator[Any]:
        text = self._skip_to_events(stream)
        decoder = json.JSONDecoder(strict=False)  # a name may hold a tab
        at = 0
        is_all = False  # of the stream
        while self.has_list:
            at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]
            if at < len(text) and text[at] == "]":
                self.is_whole = True
                self._see_rest(text[at + 1 :], stream)
                return
            try:
                event, at = decoder.raw_decode(text, at)
            except (ValueError, RecursionError):
                is_enough = is_all or len(text) - at > _CHUNK  # to tell damaged from unfinished
                if is_enough and (following := _NEXT.search(text, at)):
                    at = following.end()
                    self.damaged += 1
                    continue
                if is_all or len(text) - at > _LONGEST:
                    self.is_whole = is_all and _CLOSE.search(text, at) is not None
                    self.damaged += self.is_whole
                    return
                more = stream.read(_CHUNK)
                text, at, is_all = text[at:] + more, 0, not more
                continue
            self.seen += 1
            yield event

    def _skip_to_events(self, stream: TextIO) -> str:
        """The text from the first event on."""
        text = stream.read(_CHUNK).lstrip("\ufeff \t\r\n")
        if text.startswith("["):
            self.has_list = self.is_bare = True
            return text[1:]
        while text and (start := _START.search(text)) is None and len(text) < _HEAD:
            more = stream.read(_CHUNK)
            if not more:
                break
            text += more
        start = _START.search(text)
        if start is None:
            return ""
        self.has_list = True
        self._see_devices(text[: start.start()])
        return text[start.end() :]

    def _see_devices(self, head: str) -> None:
        found = _DEVICES.search(head)
        try:
            devices = json.JSONDecoder().raw_decode(head, found.end())[0] if found else []
        except (ValueError, RecursionError):
            return
        self._describe(devices)

    def _describe(self, devices: Any) -> None:
        try:
            described = [_device(position, device) for position, device in enumerate(devices)]
        except (KeyError, TypeError, AttributeError):
            return
        self.devices = self.devices or {device.number: device for device in described}

    def _see_rest(self, rest: str, stream: TextIO) -> None:
        """Behind the events: what else the trace tells, and whether another one follows."""
        about, rest = ({}, rest) if self.is_bare else _object(rest, stream)
        self._describe(about.get("deviceProperties", about.get("computeProperties", ())))
        while not rest.strip() and (more := stream.read(_CHUNK)):
            rest = more
        self.has_more = bool(about.get("traceEvents")) or rest.lstrip().startswith(("{", "["))

    def used(self, numbers: Sequence[str]) -> list[_Device]:
        """The devices that kernels ran on; where these do not tell, the only one there is."""
        found = [self.devices.get(n, _Device(number=n)) for n in dict.fromkeys(numbers) if n]
        if found or len(self.devices) != 1:
            return found
        return list(self.devices.values())

    def name_of(self, number: str) -> str:
        """Of the device that a kernel ran on; "" where it is not told."""
        return next((device.name or "" for device in self.used([number])), "")


def _object(rest: str, stream: TextIO) -> tuple[dict[str, Any], str]:
    """An object of which the first list is read, and what follows it; nothing if it has no end."""
    start = '{"traceEvents": []'
    while True:
        try:
            found, end = json.JSONDecoder(strict=False).raw_decode(start + rest)
        except (ValueError, RecursionError):
            more = stream.read(_CHUNK) if len(rest) < _HEAD else ""
            if not more:
                return {}, ""
            rest += more
        else:
            return found, rest[end - len(start) :]


def _device(position: int, about: Any) -> _Device:
    parts = about.get("computeMajor"), about.get("computeMinor")
    is_known = all(isinstance(part, int) for part in parts)
    return _Device(
        number=_text(about.get("id", position)),
        name=_text(about["name"]),
        capability=f"{parts[0]}.{parts[1]}" if is_known else None,
    )
