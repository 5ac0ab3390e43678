"""CUPTI in this process: its calls and refusals, what is launched, and the counters of each launch.

Each launch is a range by itself. Counters that do not fit into one pass take several, and whoever
counts runs the same work once for each.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from ctypes import (
    CFUNCTYPE,
    POINTER,
    addressof,
    byref,
    c_char_p,
    c_double,
    c_int,
    c_uint8,
    c_uint32,
    c_void_p,
    memmove,
    sizeof,
)
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from ridgeline.machine.profilers import NoCuptiError, loaded_library
from ridgeline.profile.cupti import structures as s
from ridgeline.profile.cupti.structures import (
    DRIVER_CALLS,
    ENTER,
    GRAPH_LAUNCHES,
    LAUNCHES,
    CallbackData,
    Parameters,
)

NOT_PERMITTED = "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"
ROOM_BYTES = 512  # for a structure, whatever a later version writes behind what it is told of
P = TypeVar("P", bound=Parameters)


class RefusedError(Exception):
    """Counting inside of the process is not possible, for this reason."""


@dataclass(frozen=True, slots=True)
class Cupti:
    """Each function answers with a code, and what it finds is in its parameters."""

    library: Any

    def call(self, function: str, parameters: P) -> P:
        """Call a function that takes a structure, and have that back with what it found.

        Versions whose structures are longer than ours clear the rest of theirs, whatever size they
        are told: so the call gets a copy with room behind it.
        """
        parameters.say_size()
        roomy = type(parameters).from_buffer(bytearray(ROOM_BYTES))
        memmove(addressof(roomy), addressof(parameters), sizeof(parameters))
        self.ask(function, byref(roomy))
        return roomy

    def ask(self, function: str, *arguments: Any) -> None:
        """Call any other."""
        try:
            code = getattr(self.library, function)(*arguments)
        except AttributeError as error:
            raise RefusedError(f"this CUPTI has no {function}") from error
        if code != 0:
            raise RefusedError(f"{function} answers {self._name_of(code)}")

    @property
    def version(self) -> int:
        found = ctypes.c_uint32()
        self.ask("cuptiGetVersion", byref(found))
        return found.value

    def _name_of(self, code: int) -> str:
        name = ctypes.c_char_p()
        self.library.cuptiGetResultString(code, byref(name))
        return name.value.decode() if name.value else f"error {code}"


def loaded_cupti() -> Cupti:
    """The one that PyTorch has loaded."""
    try:
        return Cupti(loaded_library())
    except NoCuptiError as error:
        raise RefusedError(str(error)) from error


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


@dataclass(slots=True)
class Chip:
    """What a device can count."""

    cupti: Cupti
    context: int
    name: bytes
    availability: Any  # an image that its driver gives

    @classmethod
    def of(cls, cupti: Cupti, context: int, device: int) -> Chip:
        """Ask; without permission this is refused."""
        cupti.call("cuptiProfilerInitialize", s.Initialize())
        name = cupti.call("cuptiDeviceGetChipName", s.ChipName(device=device)).name
        function = "cuptiProfilerGetCounterAvailability"
        size = cupti.call(function, s.Availability(context=context)).image_size
        image = (c_uint8 * size)()
        asked = s.Availability(context=context, image_size=size, image=addressof(image))
        cupti.call(function, asked)
        return cls(cupti, context, name, image)

    def host(self) -> int:
        """A new object that knows the metrics of the chip."""
        wanted = s.HostInitialize(
            profiler=s.RANGE_PROFILER, chip=self.name, availability=addressof(self.availability)
        )
        return int(self.cupti.call("cuptiProfilerHostInitialize", wanted).host)

    def metrics(self) -> frozenset[str]:
        """The names of all counters, without their endings (.sum, .avg)."""
        host = self.host()
        asked = s.BaseMetrics(host=host, kind=s.COUNTERS)
        found = self.cupti.call("cuptiProfilerHostGetBaseMetrics", asked)
        names = frozenset(found.names[n].decode() for n in range(found.count))
        self.cupti.call("cuptiProfilerHostDeinitialize", s.HostDeinitialize(host=host))
        return names


class RangeCounters:
    """Metrics that are counted together, of each kernel."""

    def __init__(self, chip: Chip, metrics: Sequence[str]) -> None:
        self.metrics = tuple(metrics)
        self._cupti, self._context = chip.cupti, chip.context
        self._host = chip.host()
        self._names = (c_char_p * len(metrics))(*(name.encode() for name in metrics))
        call = self._cupti.call
        call(
            "cuptiProfilerHostConfigAddMetrics",
            s.AddMetrics(host=self._host, names=self._names, count=len(metrics)),
        )
        asked = s.ConfigSize(host=self._host)
        size = call("cuptiProfilerHostGetConfigImageSize", asked).config_size
        self._config = (c_uint8 * size)()
        given = {"config_size": size, "config": addressof(self._config)}
        call("cuptiProfilerHostGetConfigImage", s.Config(host=self._host, **given))
        self.passes = int(call("cuptiProfilerHostGetNumOfPasses", s.Passes(**given)).passes)
        self._profiler: int | None = None
        self._data: Any = None

    @contextmanager
    def enabled(self, most_ranges: int, most_bytes: int) -> Iterator[None]:
        """Be able to count so many kernels in a pass, with so much memory for their counters."""
        call = self._cupti.call
        profiler = call("cuptiRangeProfilerEnable", s.Enable(context=self._context)).profiler
        self._profiler = profiler
        try:
            asked = s.DataSize(
                profiler=profiler, names=self._names, count=len(self.metrics),
                most_ranges=most_ranges, most_nodes=most_ranges,
            )  # fmt: skip
            size = call("cuptiRangeProfilerGetCounterDataSize", asked).data_size
            if size > most_bytes:
                raise RefusedError(
                    f"counters of {most_ranges:,} kernels need {size / 1e9:.1f} GB of memory"
                )
            self._data = (c_uint8 * size)()
            data = {"data_size": size, "data": addressof(self._data)}
            function = "cuptiRangeProfilerCounterDataImageInitialize"
            call(function, s.InitializeData(profiler=profiler, **data))
            config = {"config_size": len(self._config), "config": addressof(self._config)}
            wanted = s.SetConfig(
                profiler=profiler, **config, **data, range=s.AUTO_RANGE, replay=s.USER_REPLAY,
                most_ranges=most_ranges, levels=1, least_level=1, pass_index=0, target_level=1,
            )  # fmt: skip
            call("cuptiRangeProfilerSetConfig", wanted)
            yield
        finally:
            with suppress(RefusedError):  # what went wrong before is told
                call("cuptiRangeProfilerDisable", s.OfProfiler(profiler=profiler))
            self._profiler = None

    def start(self) -> None:
        """Begin a pass."""
        self._cupti.call("cuptiRangeProfilerStart", s.OfProfiler(profiler=self._profiler))

    def stop(self) -> bool:
        """End a pass; whether it was the last."""
        stopped = self._cupti.call("cuptiRangeProfilerStop", s.Stop(profiler=self._profiler))
        return bool(stopped.is_all)

    def values(self) -> list[list[float]]:
        """The metrics of each kernel, after the last pass."""
        call = self._cupti.call
        dropped = call("cuptiRangeProfilerDecodeData", s.Decode(profiler=self._profiler)).dropped
        if dropped:
            raise RefusedError(f"{dropped} kernels more were launched than the step has")
        data = {"data": addressof(self._data), "data_size": len(self._data)}
        count = call("cuptiRangeProfilerGetCounterDataInfo", s.DataInfo(**data)).ranges
        return [self._values_of(n, data) for n in range(count)]

    def _values_of(self, number: int, data: dict[str, int]) -> list[float]:
        values = (c_double * len(self.metrics))()
        asked = s.Evaluate(
            host=self._host, **data, range=number, names=self._names, count=len(self.metrics),
            values=ctypes.cast(values, ctypes.POINTER(c_double)),
        )  # fmt: skip
        self._cupti.call("cuptiProfilerHostEvaluateToGpuValues", asked)
        return list(values)
