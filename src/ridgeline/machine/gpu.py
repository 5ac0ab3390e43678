"""The records of accelerators. None where a driver does not say."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Mig:
    """One slice of a divided device."""

    profile: str  # "1g.10gb"
    uuid: str  # "MIG-…"
    index: int | None = None  # as CUDA numbers it; None: not visible
    compute_units: int | None = None
    memory_bytes: int | None = None
    l2_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One accelerator. None where its driver does not say."""

    kind: str  # "cuda", "rocm" or "mps"
    name: str
    index: int | None  # as CUDA numbers it in this process; None: not visible to CUDA
    uuid: str | None = None
    pci_id: str | None = None
    system_index: int | None = None  # as nvidia-smi and NVML number it
    compute_units: int | None = None  # multiprocessors, compute units or GPU cores
    compute_capability: str | None = None
    clock_hz: float | None = None
    max_clock_hz: float | None = None
    memory_clock_hz: float | None = None
    max_memory_clock_hz: float | None = None
    power_limit_w: float | None = None
    default_power_limit_w: float | None = None
    max_power_limit_w: float | None = None
    temperature_c: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    has_ecc: bool | None = None
    has_mig: bool | None = None  # the mode is on
    mig_instances: tuple[Mig, ...] = ()
    is_persistent: bool | None = None  # the driver stays loaded between programs
    l2_bytes: int | None = None
    memory_bytes: int | None = None
    memory_bus_bits: int | None = None
    pcie_generation: int | None = None  # now; it drops when the device is idle
    max_pcie_generation: int | None = None
    pcie_width: int | None = None
    max_pcie_width: int | None = None
    driver: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """The accelerators, in the order of their indices, and what is uncertain about them."""

    found: tuple[Gpu, ...] = ()
    cuda_version: str | None = None  # the newest that the driver supports
    notes: tuple[str, ...] = ()
