"""NVIDIA devices as NVML tells them, where there is no nvidia-smi: in many containers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ridgeline.machine.gpu import Gpu, Mig
from ridgeline.sensors.nvidia import throttle_reasons

SMALL_SM = ("6.0", "7.0", "7.2", "7.5", "8.0")  # 64 CUDA cores per multiprocessor; the others 128


def gpus_from_nvml(nvml: Any) -> list[Gpu]:
    """Every device of the machine, without the index that CUDA gives it."""
    handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    driver = _asked(nvml, nvml.nvmlSystemGetDriverVersion)
    return [
        _from_nvml(nvml, handle, system_index=i, driver=_text(driver))
        for i, handle in enumerate(handles)
    ]


def _from_nvml(nvml: Any, handle: Any, *, system_index: int, driver: str | None) -> Gpu:
    def ask(function: str, *arguments: Any) -> Any:
        return _asked(nvml, getattr(nvml, f"nvmlDeviceGet{function}", None), handle, *arguments)

    def scaled(value: Any, factor: float) -> float | None:
        return None if value is None else value * factor

    def switch(value: Any) -> bool | None:
        return None if value is None else bool(value)

    capability = ask("CudaComputeCapability")
    capability = None if capability is None else "{}.{}".format(*capability)
    limits_mw = ask("PowerManagementLimitConstraints")
    memory, pci = ask("MemoryInfo"), ask("PciInfo")
    ecc, mig = ask("EccMode"), ask("MigMode")
    cores = ask("NumGpuCores")
    return Gpu(
        kind="cuda",
        name=_text(ask("Name")) or "NVIDIA GPU",
        index=None,
        uuid=_text(ask("UUID")),
        pci_id=None if pci is None else _text(pci.busId),
        system_index=system_index,
        compute_units=cores and cores // (64 if capability in SMALL_SM else 128),
        compute_capability=capability,
        clock_hz=scaled(ask("ClockInfo", nvml.NVML_CLOCK_SM), 1e6),
        max_clock_hz=scaled(ask("MaxClockInfo", nvml.NVML_CLOCK_SM), 1e6),
        memory_clock_hz=scaled(ask("ClockInfo", nvml.NVML_CLOCK_MEM), 1e6),
        max_memory_clock_hz=scaled(ask("MaxClockInfo", nvml.NVML_CLOCK_MEM), 1e6),
        power_limit_w=scaled(ask("PowerManagementLimit"), 1e-3),
        default_power_limit_w=scaled(ask("PowerManagementDefaultLimit"), 1e-3),
        max_power_limit_w=scaled(limits_mw[1] if limits_mw else None, 1e-3),
        temperature_c=ask("Temperature", nvml.NVML_TEMPERATURE_GPU),
        throttle_reasons=throttle_reasons(hex(ask("CurrentClocksThrottleReasons") or 0)),
        has_ecc=switch(ecc[0] if ecc else None),
        has_mig=switch(mig[0] if mig else None),
        mig_instances=_nvml_mig(nvml, ask) if mig and mig[0] else (),
        is_persistent=switch(ask("PersistenceMode")),
        memory_bytes=None if memory is None else int(memory.total),
        memory_bus_bits=ask("MemoryBusWidth"),
        pcie_generation=ask("CurrPcieLinkGeneration"),
        max_pcie_generation=ask("MaxPcieLinkGeneration"),
        pcie_width=ask("CurrPcieLinkWidth"),
        max_pcie_width=ask("MaxPcieLinkWidth"),
        driver=driver,
    )


def _nvml_mig(nvml: Any, ask: Callable[..., Any]) -> tuple[Mig, ...]:
    handles = [ask("MigDeviceHandleByIndex", i) for i in range(ask("MaxMigDeviceCount") or 0)]
    return tuple(
        Mig(
            profile=(_text(_asked(nvml, nvml.nvmlDeviceGetName, handle)) or "").rpartition(" ")[2],
            uuid=_text(_asked(nvml, nvml.nvmlDeviceGetUUID, handle)) or "",
        )
        for handle in handles
        if handle is not None
    )


def _asked(nvml: Any, function: Callable[..., Any] | None, *arguments: Any) -> Any:
    """None where this device, driver or binding does not know."""
    if function is None:
        return None
    try:
        return function(*arguments)
    except nvml.NVMLError:
        return None


def _text(value: Any) -> str | None:
    """Older bindings answer in bytes."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return None if value is None else str(value)
