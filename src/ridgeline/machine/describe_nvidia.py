"""NVIDIA devices: what each is, how it is set, and which index CUDA gives it.

NVIDIA's tools number devices by their place on the bus; CUDA numbers those it is shown, in an
order of its own. So the two are joined by UUID, never by index.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ridgeline.machine import ask_cuda
from ridgeline.machine.describe_nvml import gpus_from_nvml
from ridgeline.machine.gpu import Gpu, Gpus, Mig
from ridgeline.machine.system_io import SystemIO
from ridgeline.machine.visible import order_by_environment, parse_gpu_list
from ridgeline.provenance import NVIDIA_QUERY, Device, parse_nvidia_smi
from ridgeline.sensors.nvidia import throttle_reasons

FIELDS = (  # in the order of nvidia-smi's answer
    "index", "uuid", "pci.bus_id", "name", "driver_version", "compute_cap", "memory.total",
    "clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.memory", "power.limit",
    "power.default_limit", "power.max_limit", "ecc.mode.current", "mig.mode.current",
    "persistence_mode", "pcie.link.gen.current", "pcie.link.gen.max", "pcie.link.width.current",
    "pcie.link.width.max", "temperature.gpu", "clocks_throttle_reasons.active",
)  # fmt: skip
GPU_QUERY = ("nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits")
GPU_LIST = ("nvidia-smi", "-L")
ASK_CUDA = (sys.executable, "-I", str(Path(ask_cuda.__file__)))
_MIB = 2**20


def nvidia_gpus(io: SystemIO) -> Gpus:
    """The devices with their slices, numbered as CUDA numbers them."""
    nvidia = _list_gpus(io)
    if not nvidia:
        return Gpus()
    instances = parse_gpu_list(io.run(GPU_LIST) or "")
    nvidia = [
        replace(gpu, mig_instances=gpu.mig_instances or instances.get(gpu.uuid or "", ()))
        for gpu in nvidia
    ]
    return number_gpus(nvidia, cuda=_ask_cuda(io), environ=io.environ)


def _list_gpus(io: SystemIO) -> list[Gpu]:
    """By nvidia-smi; by a shorter question if it is an old one; by NVML where it is not there."""
    listed = parse_gpu_query(io.run(GPU_QUERY) or "")
    if listed:
        return listed
    devices = parse_nvidia_smi(io.run(NVIDIA_QUERY) or "")
    if devices:
        uuids = list(parse_gpu_list(io.run(GPU_LIST) or ""))
        return [_from_device(d, uuids[d.index : d.index + 1]) for d in devices]
    nvml = io.nvml()
    return [] if nvml is None else gpus_from_nvml(nvml)


def _from_device(device: Device, uuid: Sequence[str]) -> Gpu:
    return Gpu(
        kind="cuda",
        name=device.name,
        index=None,
        uuid=uuid[0] if uuid else None,
        system_index=device.index,
        compute_capability=device.compute_capability,
        max_clock_hz=device.max_core_clock_hz,
        max_memory_clock_hz=device.max_memory_clock_hz,
        power_limit_w=device.power_limit_w,
        memory_bytes=device.memory_bytes,
        driver=device.driver,
    )


def parse_gpu_query(text: str) -> list[Gpu]:
    """Devices from the answer to GPU_QUERY; what a driver does not know is `[N/A]`."""
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    return [
        _from_row(dict(zip(FIELDS, row, strict=True))) for row in rows if len(row) == len(FIELDS)
    ]


def _from_row(row: Mapping[str, str]) -> Gpu:
    def number(name: str, factor: float = 1) -> float | None:
        try:
            return float(row[name]) * factor
        except ValueError:
            return None

    def whole(name: str, factor: int = 1) -> int | None:
        value = number(name, factor)
        return None if value is None else round(value)

    def text(name: str) -> str | None:
        return None if not row[name] or row[name].startswith("[") else row[name]

    def switch(name: str) -> bool | None:
        return {"Enabled": True, "Disabled": False}.get(row[name])

    return Gpu(
        kind="cuda",
        name=row["name"],
        index=None,
        uuid=text("uuid"),
        pci_id=text("pci.bus_id"),
        system_index=whole("index"),
        compute_capability=text("compute_cap"),
        clock_hz=number("clocks.sm", 1e6),
        max_clock_hz=number("clocks.max.sm", 1e6),
        memory_clock_hz=number("clocks.mem", 1e6),
        max_memory_clock_hz=number("clocks.max.memory", 1e6),
        power_limit_w=number("power.limit"),
        default_power_limit_w=number("power.default_limit"),
        max_power_limit_w=number("power.max_limit"),
        temperature_c=number("temperature.gpu"),
        throttle_reasons=throttle_reasons(row["clocks_throttle_reasons.active"]),
        has_ecc=switch("ecc.mode.current"),
        has_mig=switch("mig.mode.current"),
        is_persistent=switch("persistence_mode"),
        memory_bytes=whole("memory.total", _MIB),
        pcie_generation=whole("pcie.link.gen.current"),
        max_pcie_generation=whole("pcie.link.gen.max"),
        pcie_width=whole("pcie.link.width.current"),
        max_pcie_width=whole("pcie.link.width.max"),
        driver=text("driver_version"),
    )


# ---------------------------------------------------------------- the order of CUDA


def _ask_cuda(io: SystemIO) -> Mapping[str, Any]:
    try:
        answer = json.loads(io.run(ASK_CUDA) or "{}")
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def number_gpus(
    gpus: Iterable[Gpu], *, cuda: Mapping[str, Any], environ: Mapping[str, str]
) -> Gpus:
    """Give each device its CUDA index, from the driver's answer or, without one, the settings."""
    gpus = list(gpus)
    if "devices" in cuda:
        found = _number_by_cuda(gpus, cuda["devices"])
        return Gpus(found=_in_order(found), cuda_version=cuda.get("cuda_version"))
    slots = [(gpu.uuid or "", gpu.mig_instances if gpu.has_mig else ()) for gpu in gpus]
    order = order_by_environment(slots, environ)
    numbered = [
        replace(gpu, index=order.get(gpu.uuid or "") if not gpu.has_mig else None,
                mig_instances=tuple(replace(mig, index=order.get(mig.uuid))
                                    for mig in gpu.mig_instances))
        for gpu in gpus
    ]  # fmt: skip
    notes = []
    if len({gpu.name for gpu in gpus}) > 1 and environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        notes.append(
            "the GPUs differ and CUDA did not answer, so their CUDA indices are a guess;"
            " set CUDA_DEVICE_ORDER=PCI_BUS_ID to make them certain"
        )
    return Gpus(found=_in_order(numbered), notes=tuple(notes))


def _number_by_cuda(gpus: Sequence[Gpu], devices: Sequence[Mapping[str, Any]]) -> list[Gpu]:
    by_uuid = {device["uuid"]: device for device in devices}

    def numbered(gpu: Gpu) -> Gpu:
        own = by_uuid.get((gpu.uuid or "").removeprefix("GPU-"))
        instances = tuple(_numbered_mig(mig, by_uuid) for mig in gpu.mig_instances)
        if own is None:
            return replace(gpu, mig_instances=instances)
        return replace(
            gpu,
            index=own["index"],
            compute_units=own.get("compute_units") or gpu.compute_units,
            l2_bytes=own.get("l2_bytes"),
            memory_bus_bits=own.get("memory_bus_bits") or gpu.memory_bus_bits,
            mig_instances=instances,
        )

    return [numbered(gpu) for gpu in gpus]


def _numbered_mig(mig: Mig, by_uuid: Mapping[str, Mapping[str, Any]]) -> Mig:
    own = by_uuid.get(mig.uuid.removeprefix("MIG-"), {})
    return replace(
        mig,
        index=own.get("index"),
        compute_units=own.get("compute_units"),
        memory_bytes=own.get("memory_bytes"),
        l2_bytes=own.get("l2_bytes"),
    )


def _in_order(gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """By CUDA index; those that CUDA does not show come last."""
    return tuple(sorted(gpus, key=lambda gpu: (_first_index(gpu), gpu.system_index or 0)))


def _first_index(gpu: Gpu) -> int:
    indices = (gpu.index, *(mig.index for mig in gpu.mig_instances))
    return min((index for index in indices if index is not None), default=sys.maxsize)
