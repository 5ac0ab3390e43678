"""Counters of every kernel between two marks: CUPTI's range profiler.

Each launch is a range by itself. Counters that do not fit into one pass take several, and whoever
counts runs the same work once for each.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from ctypes import addressof, c_char_p, c_double, c_uint8
from dataclasses import dataclass
from typing import Any

from ridgeline.profile.cupti import structures as s
from ridgeline.profile.cupti.library import Cupti, RefusedError


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
