"""NVIDIA devices through NVML: what they are, clocks, temperature, power, energy; by UUID only.

NVML numbers all devices of the machine, CUDA those it may see and in an order of its own: an index
of one is none of the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ridgeline.records import Conditions
from ridgeline.sensors.sampler import COUNTER, POWER, Meter, Meters
from ridgeline.serialize import Index

THROTTLES = {  # bits of nvmlClocksThrottleReasons, in nvml.h; an idle device is not throttled
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
}
NO_BINDINGS = "nvidia-ml-py is not installed: pip install 'ridgeline[nvidia]'"
NO_UUID = "NVML finds a device by its UUID only, and none was given"
LACKING = {
    COUNTER: "no NVML energy counter, which devices have since Volta",
    POWER: "no NVML power sensor",
}
IS_MIG = "this is a slice of a divided device (MIG), and the board's power is that of all slices"


# ---- devices -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One accelerator. None where its driver does not say."""

    kind: str = ""  # "cuda" or "mps"
    name: str = ""
    index: Index | None = None  # as CUDA numbers it in this process; None: not visible to CUDA
    uuid: str | None = None
    system_index: int | None = None  # as nvidia-smi and NVML number it
    compute_units: Index | None = None  # multiprocessors, compute units or GPU cores
    compute_capability: str | None = None
    max_clock_hz: float | None = None
    max_memory_clock_hz: float | None = None
    power_limit_w: float | None = None
    default_power_limit_w: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    has_ecc: bool | None = None
    l2_bytes: Index | None = None
    memory_bytes: Index | None = None
    max_pcie_generation: int | None = None
    max_pcie_width: int | None = None
    driver: str | None = None


def read_gpus(nvml: Any) -> list[Gpu]:
    """Every device of the machine, without the index that CUDA gives it."""
    driver = _query(nvml, nvml.nvmlSystemGetDriverVersion)
    return [
        _read_gpu(nvml, handle, system_index=index, driver=driver)
        for index, handle in _handles(nvml)
    ]


def _handles(nvml: Any) -> list[tuple[int, Any]]:
    """Number and handle of each device that this process may look at."""
    count = _query(nvml, nvml.nvmlDeviceGetCount) or 0
    handles = [(i, _query(nvml, nvml.nvmlDeviceGetHandleByIndex, i)) for i in range(count)]
    return [(index, handle) for index, handle in handles if handle is not None]


def _read_gpu(nvml: Any, handle: Any, *, system_index: int, driver: str | None) -> Gpu:
    ask = _make_query(nvml, handle)
    capability, memory = ask("CudaComputeCapability"), ask("MemoryInfo")
    ecc = ask("EccMode")  # now, and after the next start
    return Gpu(
        kind="cuda",
        name=ask("Name") or "NVIDIA GPU",
        index=None,
        uuid=ask("UUID"),
        system_index=system_index,
        compute_capability=None if capability is None else "{}.{}".format(*capability),
        max_clock_hz=ask("MaxClockInfo", nvml.NVML_CLOCK_SM, scale=1e6),
        max_memory_clock_hz=ask("MaxClockInfo", nvml.NVML_CLOCK_MEM, scale=1e6),
        power_limit_w=ask("PowerManagementLimit", scale=1e-3),
        default_power_limit_w=ask("PowerManagementDefaultLimit", scale=1e-3),
        throttle_reasons=throttle_reasons(ask("CurrentClocksThrottleReasons")),
        has_ecc=None if ecc is None else bool(ecc[0]),
        memory_bytes=None if memory is None else int(memory.total),
        max_pcie_generation=ask("MaxPcieLinkGeneration"),
        max_pcie_width=ask("MaxPcieLinkWidth"),
        driver=driver,
    )


def list_programs(nvml: Any) -> list[tuple[int, str]]:
    """Process id and program of everything that computes on a device."""
    ids = [
        int(process.pid)
        for _, handle in _handles(nvml)
        for process in _query(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle) or ()
    ]
    return [(pid, _query(nvml, nvml.nvmlSystemGetProcessName, pid) or "?") for pid in ids]


def _make_query(nvml: Any, handle: Any) -> Callable[..., Any]:
    """`ask("Name")` is nvmlDeviceGetName of this device, or None where there is no answer."""

    def ask(function: str, *arguments: Any, scale: float | None = None) -> Any:
        found = getattr(nvml, f"nvmlDeviceGet{function}", None)
        answer = _query(nvml, found, handle, *arguments)
        return answer if answer is None or scale is None else scale * answer

    return ask


def _query(nvml: Any, function: Callable[..., Any] | None, *arguments: Any) -> Any:
    """None where this device, driver or binding does not know."""
    if function is None:
        return None
    try:
        return function(*arguments)
    except nvml.NVMLError:
        return None


# ---- conditions ----------------------------------------------------------------------------------


def throttle_reasons(bits: int | None) -> tuple[str, ...]:
    """What holds the clock down, from NVML's bits."""
    return tuple(name for bit, name in THROTTLES.items() if (bits or 0) & bit)


def load_nvml() -> Any:
    """NVIDIA's bindings; ImportError where they are not installed."""
    import pynvml

    return pynvml


def start_nvml() -> Any:
    """NVIDIA's bindings, started; None if they are not installed or there is no driver."""
    try:
        nvml = load_nvml()
        nvml.nvmlInit()
    except Exception:  # NVMLError is known only where the bindings are
        return None
    return nvml


def nvml_handle(nvml: Any, uuid: str) -> Any:
    """The device or MIG slice of a UUID; torch leaves out the prefix that tells which it is."""
    if uuid.startswith(("GPU-", "MIG-")):
        return nvml.nvmlDeviceGetHandleByUUID(uuid)
    try:
        return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    except nvml.NVMLError:
        return nvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}")


def _conditions(nvml: Any, handle: Any) -> Conditions:
    ask = _make_query(nvml, handle)
    state = ask("PerformanceState")
    return Conditions(
        clock_hz=ask("ClockInfo", nvml.NVML_CLOCK_SM, scale=1e6),
        memory_clock_hz=ask("ClockInfo", nvml.NVML_CLOCK_MEM, scale=1e6),
        temperature_c=ask("Temperature", nvml.NVML_TEMPERATURE_GPU, scale=1.0),
        power_w=ask("PowerUsage", scale=1e-3),
        throttle_reasons=throttle_reasons(ask("CurrentClocksThrottleReasons")),
        power_state=None if state is None or state > 15 else f"P{state}",  # 32: unknown
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
    mode = _query(nvml, nvml.nvmlDeviceGetMigMode, handle)  # None: it cannot be divided
    is_slice = uuid.startswith("MIG-") or _query(nvml, nvml.nvmlDeviceIsMigDeviceHandle, handle)
    if is_slice or (mode and mode[0]):  # CUDA runs on a slice of it
        return Meters(reasons=(IS_MIG,), conditions=read)
    available, reasons = _find_meters(nvml, handle, scope)
    return Meters(available=available, reasons=reasons, conditions=read)


def _find_meters(nvml: Any, handle: Any, scope: str) -> tuple[tuple[Meter, ...], tuple[str, ...]]:
    """The counter, the power sensor that answers with the shortest delay, and what there is not."""

    def total_j() -> float:
        return 1e-3 * float(nvml.nvmlDeviceGetTotalEnergyConsumption(handle))

    def instant_w() -> float:
        (answer,) = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_POWER_INSTANT])
        if answer.nvmlReturn != nvml.NVML_SUCCESS:
            raise nvml.NVMLError(answer.nvmlReturn)
        return 1e-3 * float(answer.value.uiVal)

    found: dict[str, Meter] = {}
    reasons: dict[str, str] = {}
    for name, kind, read in (
        ("NVML energy counter", COUNTER, total_j),
        ("NVML instant power", POWER, instant_w),
        (
            "NVML power, averaged over up to 1 s",
            POWER,
            lambda: 1e-3 * float(nvml.nvmlDeviceGetPowerUsage(handle)),
        ),
    ):
        reasons[kind] = "it answers zero"  # as some drivers do for the instant field
        try:
            if read() > 0:
                found.setdefault(kind, Meter(name=name, scope=scope, kind=kind, read=read))
        except (nvml.NVMLError, AttributeError) as error:  # bindings older than the field
            reasons[kind] = str(error)
    lacking = tuple(f"{LACKING[kind]}: {why}" for kind, why in reasons.items() if kind not in found)
    return tuple(found.values()), lacking
