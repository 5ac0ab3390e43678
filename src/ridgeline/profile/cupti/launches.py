"""The kernels that a process launches, in their order, each with the range it was launched in."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ctypes import CFUNCTYPE, POINTER, byref, c_int, c_uint32, c_void_p
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ridgeline.profile.cupti.library import Cupti, RefusedError
from ridgeline.profile.cupti.structures import (
    DRIVER_CALLS,
    ENTER,
    GRAPH_LAUNCHES,
    LAUNCHES,
    CallbackData,
)

_CALLBACK = CFUNCTYPE(None, c_void_p, c_int, c_uint32, POINTER(CallbackData))


class Launch(NamedTuple):
    """One kernel."""

    kernel: str  # as its file has it, mangled
    range: str  # the innermost around it, "" where there is none


@dataclass(slots=True)
class LaunchLog:
    """What was launched so far, on all threads."""

    launches: list[Launch] = field(default_factory=list)
    graphs: int = 0  # launches of CUDA graphs, whose kernels are not seen one by one
    _here: threading.local = field(default_factory=threading.local)

    @contextmanager
    def range(self, name: str) -> Iterator[None]:
        """Give what this thread launches in the block a name."""
        before = getattr(self._here, "name", "")
        self._here.name = name
        try:
            yield
        finally:
            self._here.name = before

    @contextmanager
    def listening(self, cupti: Cupti) -> Iterator[None]:
        """Hear of every launch that the block makes."""
        heard = _CALLBACK(self.hear)
        subscriber = c_void_p()
        cupti.ask("cuptiSubscribe", byref(subscriber), heard, None)
        try:
            for call in (*(one for two in LAUNCHES.values() for one in two), *GRAPH_LAUNCHES):
                enable = (c_uint32(1), subscriber, c_int(DRIVER_CALLS), c_uint32(call))
                cupti.ask("cuptiEnableCallback", *enable)
            yield
        finally:
            with suppress(RefusedError):  # what went wrong before is told
                cupti.ask("cuptiUnsubscribe", subscriber)

    def hear(self, _: Any, domain: int, call: int, about: Any) -> None:
        """What CUPTI calls before and after each launch."""
        if domain != DRIVER_CALLS or about.contents.site != ENTER:
            return
        if call in GRAPH_LAUNCHES:
            self.graphs += 1
        symbol = about.contents.symbol
        name = symbol.decode(errors="replace") if symbol else ""
        self.launches.append(Launch(name, getattr(self._here, "name", "")))

    def taken(self) -> list[Launch]:
        """What was launched since the last time."""
        launches, self.launches = self.launches, []
        return launches


def current_context() -> int:
    """The context of the device that this thread uses."""
    context = c_void_p()
    ctypes.CDLL("libcuda.so.1").cuCtxGetCurrent(byref(context))
    return context.value or 0
