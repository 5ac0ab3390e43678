"""CUPTI by ctypes: counters read by the process that takes the step, with no tool around it.

PyTorch brings the library, so that Nsight Compute need not be there. The chip's counters are set up
once for all kernels, not anew for each as ncu does, and the step is run once for every pass: a
kernel costs a millisecond and not twenty, and nothing is saved and restored. Each launch is a range
by itself.

First what its calls take and give, as the headers of CUDA 13.0 have it. A structure has its own
size first, by which later versions, whose structures are longer, know these; they may write behind
them all the same (`Cupti.call`).
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    addressof,
    byref,
    c_char_p,
    c_double,
    c_int,
    c_size_t,
    c_uint8,
    c_uint16,
    c_uint32,
    c_void_p,
    sizeof,
)
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from ridgeline.machine.system import NoCuptiError, loaded_library

AUTO_RANGE = 1  # each kernel is a range
USER_REPLAY = 3  # who counts runs the step once for every pass
RANGE_PROFILER = 0
COUNTERS = 0  # the kind of metrics that are no ratios
DRIVER_CALLS = 1
ENTER = 0  # before a call

# calls of the driver that launch kernels; each also with a default stream for every thread
LAUNCHES = {
    "cuLaunchKernel": (307, 442),
    "cuLaunchCooperativeKernel": (477, 478),
    "cuLaunchKernelEx": (652, 653),
}
GRAPH_LAUNCHES = (514, 515)  # many kernels at once


_NAMES, _VALUES = POINTER(c_char_p), POINTER(c_double)
PARAMETERS: dict[str, tuple[tuple[str, Any], ...]] = {  # behind own_size and private
    "cuptiProfilerInitialize": (),
    "cuptiDeviceGetChipName": (("device", c_size_t), ("name", c_char_p)),
    "cuptiProfilerGetCounterAvailability": (
        ("context", c_void_p), ("image_size", c_size_t), ("image", c_void_p),
    ),
    "cuptiProfilerHostInitialize": (
        ("profiler", c_int), ("chip", c_char_p), ("availability", c_void_p), ("host", c_void_p),
    ),
    "cuptiProfilerHostDeinitialize": (("host", c_void_p),),
    "cuptiProfilerHostGetBaseMetrics": (
        ("host", c_void_p), ("kind", c_int), ("names", _NAMES), ("count", c_size_t),
    ),
    "cuptiProfilerHostConfigAddMetrics": (
        ("host", c_void_p), ("names", _NAMES), ("count", c_size_t),
    ),
    "cuptiProfilerHostGetConfigImageSize": (("host", c_void_p), ("config_size", c_size_t)),
    "cuptiProfilerHostGetConfigImage": (
        ("host", c_void_p), ("config_size", c_size_t), ("config", c_void_p),
    ),
    "cuptiProfilerHostGetNumOfPasses": (
        ("config_size", c_size_t), ("config", c_void_p), ("passes", c_size_t),
    ),
    "cuptiRangeProfilerEnable": (("context", c_void_p), ("profiler", c_void_p)),
    "cuptiRangeProfilerDisable": (("profiler", c_void_p),),
    "cuptiRangeProfilerStart": (("profiler", c_void_p),),
    "cuptiRangeProfilerStop": (
        ("profiler", c_void_p), ("pass_index", c_size_t), ("target_level", c_size_t),
        ("is_all", c_uint8),
    ),
    "cuptiRangeProfilerGetCounterDataSize": (
        ("profiler", c_void_p), ("names", _NAMES), ("count", c_size_t), ("most_ranges", c_size_t),
        ("most_nodes", c_uint32), ("data_size", c_size_t),
    ),
    "cuptiRangeProfilerCounterDataImageInitialize": (
        ("profiler", c_void_p), ("data_size", c_size_t), ("data", c_void_p),
    ),
    "cuptiRangeProfilerSetConfig": (
        ("profiler", c_void_p), ("config_size", c_size_t), ("config", c_void_p),
        ("data_size", c_size_t), ("data", c_void_p), ("range", c_int), ("replay", c_int),
        ("most_ranges", c_size_t), ("levels", c_uint16), ("least_level", c_uint16),
        ("pass_index", c_size_t), ("target_level", c_uint16),
    ),
    "cuptiRangeProfilerDecodeData": (("profiler", c_void_p), ("dropped", c_size_t)),
    "cuptiRangeProfilerGetCounterDataInfo": (
        ("data", c_void_p), ("data_size", c_size_t), ("ranges", c_size_t),
    ),
    "cuptiProfilerHostEvaluateToGpuValues": (
        ("host", c_void_p), ("data", c_void_p), ("data_size", c_size_t), ("range", c_size_t),
        ("names", _NAMES), ("count", c_size_t), ("values", _VALUES),
    ),
}  # fmt: skip


@cache
def structure_of(function: str) -> tuple[type[Structure], int]:
    """What a function takes, and its size in the headers: without what fills up the end."""
    fields = [("own_size", c_size_t), ("private", c_void_p), *PARAMETERS[function]]
    structure = type(function, (Structure,), {"_fields_": fields})
    name, kind = fields[-1]
    return structure, getattr(structure, name).offset + sizeof(kind)


class CallbackData(Structure):
    """What a callback gets of the call it is about."""

    _fields_ = [
        ("site", c_int),
        ("function", c_char_p),
        ("parameters", c_void_p),
        ("returned", c_void_p),
        ("symbol", c_char_p),
    ]


# ---------------------------------------------------------------- the library

NOT_PERMITTED = "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"
SPARE_BYTES = 512  # for a structure, whatever a later version writes behind what it is told of


class RefusedError(Exception):
    """Counting inside of the process is not possible, for this reason."""


@dataclass(frozen=True, slots=True)
class Cupti:
    """Each function answers with a code, and what it finds is in its parameters."""

    library: Any

    def call(self, function: str, **values: Any) -> Any:
        """Call a function that takes a structure, and have that back with what it found.

        Versions whose structures are longer than ours clear the rest of theirs, whatever size they
        are told: so there is room behind it.
        """
        structure, size = structure_of(function)
        parameters = structure.from_buffer(bytearray(SPARE_BYTES))
        for name, value in {"own_size": size, **values}.items():
            setattr(parameters, name, value)
        self.call_plain(function, byref(parameters))
        return parameters

    def call_plain(self, function: str, *arguments: Any) -> None:
        """Call any other."""
        try:
            code = getattr(self.library, function)(*arguments)
        except AttributeError as error:
            raise RefusedError(f"this CUPTI has no {function}") from error
        if code != 0:
            raise RefusedError(f"{function} answers {self._name_of(code)}")

    @property
    def version(self) -> int:
        number = c_uint32()
        self.call_plain("cuptiGetVersion", byref(number))
        return number.value

    def _name_of(self, code: int) -> str:
        name = c_char_p()
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
        """Record every launch that the block makes."""
        callback = _CALLBACK(self.on_launch)
        subscriber = c_void_p()
        cupti.call_plain("cuptiSubscribe", byref(subscriber), callback, None)
        try:
            for call in (*(one for two in LAUNCHES.values() for one in two), *GRAPH_LAUNCHES):
                enable = (c_uint32(1), subscriber, c_int(DRIVER_CALLS), c_uint32(call))
                cupti.call_plain("cuptiEnableCallback", *enable)
            yield
        finally:
            with suppress(RefusedError):  # what went wrong before is raised
                cupti.call_plain("cuptiUnsubscribe", subscriber)

    def on_launch(self, _: Any, domain: int, call: int, about: Any) -> None:
        """What CUPTI calls before and after each launch."""
        if domain != DRIVER_CALLS or about.contents.site != ENTER:
            return
        if call in GRAPH_LAUNCHES:
            self.graphs += 1
        symbol = about.contents.symbol
        name = symbol.decode(errors="replace") if symbol else ""
        self.launches.append(Launch(name, getattr(self._here, "name", "")))

    def take(self) -> list[Launch]:
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
        cupti.call("cuptiProfilerInitialize")
        name = cupti.call("cuptiDeviceGetChipName", device=device).name
        function = "cuptiProfilerGetCounterAvailability"
        size = cupti.call(function, context=context).image_size
        image = (c_uint8 * size)()
        cupti.call(function, context=context, image_size=size, image=addressof(image))
        return cls(cupti, context, name, image)

    def host(self) -> int:
        """A new object that knows the metrics of the chip."""
        found = self.cupti.call(
            "cuptiProfilerHostInitialize",
            profiler=RANGE_PROFILER, chip=self.name, availability=addressof(self.availability),
        )  # fmt: skip
        return int(found.host)

    def metrics(self) -> frozenset[str]:
        """The names of all counters, without their endings (.sum, .avg)."""
        host = self.host()
        base = self.cupti.call("cuptiProfilerHostGetBaseMetrics", host=host, kind=COUNTERS)
        names = frozenset(base.names[n].decode() for n in range(base.count))
        self.cupti.call("cuptiProfilerHostDeinitialize", host=host)
        return names


class RangeCounters:
    """Metrics that are counted together, of each kernel."""

    def __init__(self, chip: Chip, metrics: Sequence[str]) -> None:
        self.metrics = tuple(metrics)
        self._cupti, self._context = chip.cupti, chip.context
        self._host = chip.host()
        self._names = (c_char_p * len(metrics))(*(name.encode() for name in metrics))
        call = self._cupti.call
        names = {"names": self._names, "count": len(metrics)}
        call("cuptiProfilerHostConfigAddMetrics", host=self._host, **names)
        size = call("cuptiProfilerHostGetConfigImageSize", host=self._host).config_size
        self._config = (c_uint8 * size)()
        config = {"config_size": size, "config": addressof(self._config)}
        call("cuptiProfilerHostGetConfigImage", host=self._host, **config)
        self.passes = int(call("cuptiProfilerHostGetNumOfPasses", **config).passes)
        self._profiler: int | None = None
        self._data: Any = None

    @contextmanager
    def enabled(self, most_ranges: int, most_bytes: int) -> Iterator[None]:
        """Be able to count so many kernels in a pass, with so much memory for their counters."""
        call = self._cupti.call
        profiler = call("cuptiRangeProfilerEnable", context=self._context).profiler
        self._profiler = profiler
        try:
            size = call(
                "cuptiRangeProfilerGetCounterDataSize",
                profiler=profiler, names=self._names, count=len(self.metrics),
                most_ranges=most_ranges, most_nodes=most_ranges,
            ).data_size  # fmt: skip
            if size > most_bytes:
                raise RefusedError(
                    f"counters of {most_ranges:,} kernels need {size / 1e9:.1f} GB of memory"
                )
            self._data = (c_uint8 * size)()
            data = {"data_size": size, "data": addressof(self._data)}
            call("cuptiRangeProfilerCounterDataImageInitialize", profiler=profiler, **data)
            config = {"config_size": len(self._config), "config": addressof(self._config)}
            call(
                "cuptiRangeProfilerSetConfig",
                profiler=profiler, **config, **data, range=AUTO_RANGE, replay=USER_REPLAY,
                most_ranges=most_ranges, levels=1, least_level=1, pass_index=0, target_level=1,
            )  # fmt: skip
            yield
        finally:
            with suppress(RefusedError):  # what went wrong before is raised
                call("cuptiRangeProfilerDisable", profiler=profiler)
            self._profiler = None

    def start(self) -> None:
        """Begin a pass."""
        self._cupti.call("cuptiRangeProfilerStart", profiler=self._profiler)

    def stop(self) -> bool:
        """End a pass; whether it was the last."""
        stopped = self._cupti.call("cuptiRangeProfilerStop", profiler=self._profiler)
        return bool(stopped.is_all)

    def values(self) -> list[list[float]]:
        """The metrics of each kernel, after the last pass."""
        call = self._cupti.call
        dropped = call("cuptiRangeProfilerDecodeData", profiler=self._profiler).dropped
        if dropped:
            raise RefusedError(f"{dropped} kernels more were launched than the step has")
        data = {"data": addressof(self._data), "data_size": len(self._data)}
        count = call("cuptiRangeProfilerGetCounterDataInfo", **data).ranges
        return [self._values_of(n, data) for n in range(count)]

    def _values_of(self, number: int, data: dict[str, int]) -> list[float]:
        values = (c_double * len(self.metrics))()
        self._cupti.call(
            "cuptiProfilerHostEvaluateToGpuValues",
            host=self._host, **data, range=number, names=self._names, count=len(self.metrics),
            values=ctypes.cast(values, _VALUES),
        )  # fmt: skip
        return list(values)
