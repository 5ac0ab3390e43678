"""Time on a CUDA device, and what the device did meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from statistics import median
from typing import Any

from ridgeline.machine.ceiling import Conditions
from ridgeline.machine.gpu import throttle_reasons
from ridgeline.machine.sampling import Clock

METER_INTERVAL_S = 0.02


def event_clock(torch: Any, device: int) -> Clock:
    """Times with device events, synchronised outside of the timed region only."""

    def clock(call: Callable[[], object], times: int) -> float:
        with torch.cuda.device(device):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(times):
                call()
            end.record()
            end.synchronize()
        return float(start.elapsed_time(end)) / 1e3 / times

    return clock


class Meter:
    """Reads clocks, temperature, power and throttle reasons in a thread of its own."""

    def __init__(self, read: Callable[[], Conditions]) -> None:
        self._read = read
        self._seen: list[Conditions] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Read until the block ends; the first reading comes at once."""
        stop = threading.Event()
        self._seen = []

        def watch() -> None:
            with suppress(Exception):  # a meter that fails costs its readings, not the measurement
                while True:
                    self._seen.append(self._read())
                    if stop.wait(METER_INTERVAL_S):
                        return

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    @property
    def conditions(self) -> Conditions:
        """The middle of the second half of what was seen; every throttle reason that occurred.

        The power sensor averages over a tenth of a second or more, so early readings lag behind.
        """
        late = self._seen[len(self._seen) // 2 :]
        reasons = sorted({r for seen in self._seen for r in seen.throttle_reasons})
        return Conditions(
            clock_hz=_middle([seen.clock_hz for seen in late]),
            memory_clock_hz=_middle([seen.memory_clock_hz for seen in late]),
            temperature_c=_middle([seen.temperature_c for seen in late]),
            power_w=_middle([seen.power_w for seen in late]),
            throttle_reasons=tuple(reasons),
        )

    @property
    def powers_w(self) -> tuple[float, ...]:
        """Every power reading, in order."""
        return tuple(seen.power_w for seen in self._seen if seen.power_w is not None)


def _middle(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def nvml_reader(uuid: str) -> Callable[[], Conditions] | None:
    """A function that reads the device with this UUID, or None where NVML is not there."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = nvml_handle(pynvml, uuid)
    except Exception:  # not installed, no driver, or a device that NVML does not show
        return None
    return lambda: _read(pynvml, handle)


def nvml_handle(nvml: Any, uuid: str) -> Any:
    """The device or MIG slice of a UUID; torch leaves out the prefix that tells which it is."""
    if uuid.startswith(("GPU-", "MIG-")):
        return nvml.nvmlDeviceGetHandleByUUID(uuid)
    try:
        return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    except nvml.NVMLError:
        return nvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}")


def _read(nvml: Any, handle: Any) -> Conditions:
    def ask(scale: float, question: Callable[..., Any], *args: Any) -> float | None:
        try:
            return float(question(handle, *args)) * scale
        except nvml.NVMLError:
            return None

    mask = ask(1, nvml.nvmlDeviceGetCurrentClocksThrottleReasons)
    return Conditions(
        clock_hz=ask(1e6, nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
        memory_clock_hz=ask(1e6, nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),
        temperature_c=ask(1, nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
        power_w=ask(1e-3, nvml.nvmlDeviceGetPowerUsage),
        throttle_reasons=throttle_reasons(f"{int(mask or 0):#x}"),
    )
