"""NVIDIA devices through NVML: clocks, temperature, power, energy. Devices go by UUID only.

NVML numbers all devices of the machine, CUDA those it may see and in an order of its own: an index
of one is none of the other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ridgeline.sensors.conditions import Conditions
from ridgeline.sensors.meter import COUNTER, POWER, Meter, Meters

THROTTLES = {  # bits of nvmlClocksThrottleReasons, in nvml.h; an idle device is not throttled
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
}
NO_BINDINGS = "nvidia-ml-py is not installed: pip install 'ridgeline[nvidia]'"
NO_UUID = "NVML finds a device by its UUID only, and none was given"
IS_MIG = "this is a slice of a divided device (MIG), and the board's power is that of all slices"


def throttle_reasons(mask: str) -> tuple[str, ...]:
    """What holds the clock down, from `0x0000000000000044`."""
    try:
        bits = int(mask, 16)
    except ValueError:
        return ()
    return tuple(name for bit, name in THROTTLES.items() if bits & bit)


def load_nvml() -> Any:
    """NVIDIA's bindings; ImportError where they are not installed."""
    import pynvml

    return pynvml


def nvml_reader(uuid: str) -> Callable[[], Conditions] | None:
    """A function that reads the device with this UUID, or None where NVML is not there."""
    try:
        nvml = load_nvml()
        nvml.nvmlInit()
        handle = nvml_handle(nvml, uuid)
    except Exception:  # not installed, no driver, or a device that NVML does not show
        return None
    return partial(_conditions, nvml, handle)


def nvml_handle(nvml: Any, uuid: str) -> Any:
    """The device or MIG slice of a UUID; torch leaves out the prefix that tells which it is."""
    if uuid.startswith(("GPU-", "MIG-")):
        return nvml.nvmlDeviceGetHandleByUUID(uuid)
    try:
        return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    except nvml.NVMLError:
        return nvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}")


def _conditions(nvml: Any, handle: Any) -> Conditions:
    def ask(scale: float, question: Callable[..., Any], *args: Any) -> float | None:
        try:
            return float(question(handle, *args)) * scale
        except nvml.NVMLError:
            return None

    mask = ask(1, nvml.nvmlDeviceGetCurrentClocksThrottleReasons)
    state = ask(1, nvml.nvmlDeviceGetPerformanceState)
    return Conditions(
        clock_hz=ask(1e6, nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
        memory_clock_hz=ask(1e6, nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),
        temperature_c=ask(1, nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
        power_w=ask(1e-3, nvml.nvmlDeviceGetPowerUsage),
        throttle_reasons=throttle_reasons(f"{int(mask or 0):#x}"),
        power_state=None if state is None or state > 15 else f"P{state:.0f}",  # 32: unknown
    )


# ---- meters --------------------------------------------------------------------------------------


def nvidia_meters(uuid: str | None, load: Callable[[], Any] = load_nvml) -> Meters:
    """The energy counter and the power sensor of the device with this UUID."""
    if not uuid:
        return Meters(reasons=(NO_UUID,))
    try:
        nvml = load()
    except ImportError:
        return Meters(reasons=(NO_BINDINGS,))
    try:
        nvml.nvmlInit()
        handle = nvml_handle(nvml, uuid)
        scope = f"GPU {nvml.nvmlDeviceGetIndex(handle)}: the whole board"
    except nvml.NVMLError as error:
        return Meters(reasons=(f"NVML does not answer for {uuid}: {error}",))
    read = partial(_conditions, nvml, handle)
    if uuid.startswith("MIG-") or _is_divided(nvml, handle):
        return Meters(reasons=(IS_MIG,), conditions=read)
    found, reasons = [], []
    for find in (_counter, _power):
        meter, reason = find(nvml, handle, scope)
        found += [meter] if meter else []
        reasons += [reason] if reason else []
    return Meters(found=tuple(found), reasons=tuple(reasons), conditions=read)


def _is_divided(nvml: Any, handle: Any) -> bool:
    """A slice, or a device that is cut into slices: CUDA then runs on one of them."""
    try:
        if nvml.nvmlDeviceIsMigDeviceHandle(handle):
            return True
        current, _pending = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError:  # a device that cannot be divided
        return False
    return bool(current)


def _counter(nvml: Any, handle: Any, scope: str) -> tuple[Meter | None, str | None]:
    def read_j() -> float:
        return 1e-3 * float(nvml.nvmlDeviceGetTotalEnergyConsumption(handle))

    try:
        read_j()
    except nvml.NVMLError as error:
        return None, f"no NVML energy counter, which devices have since Volta: {error}"
    return Meter(name="NVML energy counter", scope=scope, kind=COUNTER, read=read_j), None


def _power(nvml: Any, handle: Any, scope: str) -> tuple[Meter | None, str | None]:
    def instant_w() -> float:
        (answer,) = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_POWER_INSTANT])
        if answer.nvmlReturn != nvml.NVML_SUCCESS:
            raise nvml.NVMLError(answer.nvmlReturn)
        return 1e-3 * float(answer.value.uiVal)

    def usage_w() -> float:
        return 1e-3 * float(nvml.nvmlDeviceGetPowerUsage(handle))

    reason = ""
    ways = (("NVML instant power", instant_w), ("NVML power, averaged over up to 1 s", usage_w))
    for name, read_w in ways:
        try:
            watts = read_w()
        except (nvml.NVMLError, AttributeError) as error:  # bindings older than the field
            reason = str(error)
            continue
        if watts > 0:  # some drivers answer the instant field with nothing
            return Meter(name=name, scope=scope, kind=POWER, read=read_w), None
        reason = "it answers 0 W"
    return None, f"no NVML power sensor: {reason}"
