"""What calls of CUPTI take and give, as its headers of CUDA 13.0 have it.

A structure says its own size first, by which later versions, whose structures are longer, know
these; they may write behind them all the same (range_profiler.py).
"""

from __future__ import annotations

from ctypes import (
    POINTER,
    Structure,
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


class Parameters(Structure):
    """Of one call."""

    _fields_ = [("own_size", c_size_t), ("private", c_void_p)]

    def say_size(self) -> None:
        """As the headers do: without what fills up the end."""
        name, kind = self._fields_[-1][:2]
        self.own_size = getattr(type(self), name).offset + sizeof(kind)


class Initialize(Parameters):
    _fields_ = []

    def say_size(self) -> None:
        self.own_size = sizeof(self)


class ChipName(Parameters):
    _fields_ = [("device", c_size_t), ("name", c_char_p)]


class Availability(Parameters):
    _fields_ = [("context", c_void_p), ("image_size", c_size_t), ("image", c_void_p)]


class HostInitialize(Parameters):
    _fields_ = [
        ("profiler", c_int),
        ("chip", c_char_p),
        ("availability", c_void_p),
        ("host", c_void_p),
    ]


class HostDeinitialize(Parameters):
    _fields_ = [("host", c_void_p)]


class BaseMetrics(Parameters):
    _fields_ = [
        ("host", c_void_p),
        ("kind", c_int),
        ("names", POINTER(c_char_p)),
        ("count", c_size_t),
    ]


class AddMetrics(Parameters):
    _fields_ = [("host", c_void_p), ("names", POINTER(c_char_p)), ("count", c_size_t)]


class ConfigSize(Parameters):
    _fields_ = [("host", c_void_p), ("config_size", c_size_t)]


class Config(Parameters):
    _fields_ = [("host", c_void_p), ("config_size", c_size_t), ("config", c_void_p)]


class Passes(Parameters):
    _fields_ = [("config_size", c_size_t), ("config", c_void_p), ("passes", c_size_t)]


class Enable(Parameters):
    _fields_ = [("context", c_void_p), ("profiler", c_void_p)]


class OfProfiler(Parameters):
    """Of calls that start and disable a profiler."""

    _fields_ = [("profiler", c_void_p)]


class DataSize(Parameters):
    _fields_ = [
        ("profiler", c_void_p),
        ("names", POINTER(c_char_p)),
        ("count", c_size_t),
        ("most_ranges", c_size_t),
        ("most_nodes", c_uint32),
        ("data_size", c_size_t),
    ]


class InitializeData(Parameters):
    _fields_ = [("profiler", c_void_p), ("data_size", c_size_t), ("data", c_void_p)]


class SetConfig(Parameters):
    _fields_ = [
        ("profiler", c_void_p),
        ("config_size", c_size_t),
        ("config", c_void_p),
        ("data_size", c_size_t),
        ("data", c_void_p),
        ("range", c_int),
        ("replay", c_int),
        ("most_ranges", c_size_t),
        ("levels", c_uint16),
        ("least_level", c_uint16),
        ("pass_index", c_size_t),
        ("target_level", c_uint16),
    ]


class Stop(Parameters):
    _fields_ = [
        ("profiler", c_void_p),
        ("pass_index", c_size_t),
        ("target_level", c_size_t),
        ("is_all", c_uint8),
    ]


class Decode(Parameters):
    _fields_ = [("profiler", c_void_p), ("dropped", c_size_t)]


class DataInfo(Parameters):
    _fields_ = [("data", c_void_p), ("data_size", c_size_t), ("ranges", c_size_t)]


class Evaluate(Parameters):
    _fields_ = [
        ("host", c_void_p),
        ("data", c_void_p),
        ("data_size", c_size_t),
        ("range", c_size_t),
        ("names", POINTER(c_char_p)),
        ("count", c_size_t),
        ("values", POINTER(c_double)),
    ]


class CallbackData(Structure):
    """What a callback hears of the call it is about."""

    _fields_ = [
        ("site", c_int),
        ("function", c_char_p),
        ("parameters", c_void_p),
        ("returned", c_void_p),
        ("symbol", c_char_p),
    ]
