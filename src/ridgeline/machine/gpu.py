"""The accelerators of a machine, by the libraries and tools of their makers.

NVML tells what each NVIDIA device is and how it is set. It numbers devices by their slot; CUDA
numbers those it is shown, in an order of its own. So the two are joined by UUID, never by index.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ridgeline.machine import cuda_driver
from ridgeline.machine.system import SystemIO
from ridgeline.sensors.nvidia import NO_BINDINGS, Gpu, read_gpus

LIST_CUDA_DEVICES = (sys.executable, "-I", str(Path(cuda_driver.__file__)))
AMD_QUERY = (
    "rocm-smi", "--showproductname", "--showuniqueid", "--showmeminfo", "vram",
    "--showdriverversion", "--json",
)  # fmt: skip
MAC_QUERY = ("system_profiler", "SPDisplaysDataType", "-json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """The accelerators, in the order of their indices, and what is uncertain about them."""

    gpus: tuple[Gpu, ...] = ()
    cuda_version: str | None = None  # the newest that the driver supports
    notes: tuple[str, ...] = ()


def describe_gpus(io: SystemIO, *, ram_bytes: int | None) -> Gpus:
    """Whatever accelerators there are."""
    if io.system == "Darwin":
        return Gpus(gpus=parse_mac_gpus(io.run(MAC_QUERY) or "", ram_bytes=ram_bytes))
    nvidia = describe_nvidia_gpus(io)
    return nvidia if nvidia.gpus else Gpus(gpus=parse_rocm_smi(io.run(AMD_QUERY) or ""))


# ---------------------------------------------------------------- NVIDIA


def describe_nvidia_gpus(io: SystemIO) -> Gpus:
    """Devices and their slices by NVML, numbered as CUDA numbers them; without NVML, CUDA's own."""
    nvml, cuda = io.nvml(), _list_cuda_devices(io)
    gpus, devices = read_gpus(nvml) if nvml else [], cuda.get("devices", [])
    notes = []
    if devices and not gpus:
        gpus = [_from_cuda(device) for device in devices]
        reason = "NVML does not start" if io.version("nvidia-ml-py") else NO_BINDINGS
        notes = [f"clocks, power and slices of the GPUs are not described: {reason}"]
    if gpus and "devices" not in cuda:
        reason = cuda.get("error", "no answer")
        notes = [f"the CUDA driver does not start, so no GPU has a CUDA index: {reason}"]
    numbered = _number_by_cuda(gpus, devices)
    return Gpus(gpus=numbered, cuda_version=cuda.get("cuda_version"), notes=tuple(notes))


def _list_cuda_devices(io: SystemIO) -> Mapping[str, Any]:
    try:
        answer = json.loads(io.run(LIST_CUDA_DEVICES) or "{}")
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _from_cuda(device: Mapping[str, Any]) -> Gpu:
    major, minor = device.get("capability_major"), device.get("capability_minor")
    return Gpu(
        kind="cuda",
        name=device["name"],
        index=None,
        uuid=f"GPU-{device['uuid']}",
        compute_capability=None if major is None else f"{major}.{minor}",
        memory_bytes=device.get("memory_bytes"),
    )


def _number_by_cuda(gpus: Iterable[Gpu], devices: Sequence[Mapping[str, Any]]) -> tuple[Gpu, ...]:
    """By CUDA index; those that CUDA does not show come last."""
    by_uuid = {device["uuid"]: device for device in devices}

    def select(uuid: str | None, *names: str) -> dict[str, Any]:
        own = by_uuid.get((uuid or "").removeprefix("GPU-").removeprefix("MIG-"), {})
        return {name: own.get(name) for name in ("index", "compute_units", "l2_bytes", *names)}

    def number(gpu: Gpu) -> Gpu:
        slices = (replace(m, **select(m.uuid, "memory_bytes")) for m in gpu.mig_instances)
        own = select(gpu.uuid, "memory_bus_bits")
        own["memory_bus_bits"] = own["memory_bus_bits"] or gpu.memory_bus_bits
        return replace(gpu, **own, mig_instances=tuple(slices))

    return tuple(sorted(map(number, gpus), key=lambda g: (_first_index(g), g.system_index or 0)))


def _first_index(gpu: Gpu) -> int:
    indices = (gpu.index, *(mig.index for mig in gpu.mig_instances))
    return min((index for index in indices if index is not None), default=sys.maxsize)


# ---------------------------------------------------------------- Apple and AMD


def parse_mac_gpus(text: str, *, ram_bytes: int | None) -> tuple[Gpu, ...]:
    """The GPU of an Apple chip, from `system_profiler SPDisplaysDataType -json`.

    Those of older Macs are left out: torch does not compute on them.
    """
    try:
        listed = json.loads(text)["SPDisplaysDataType"]
    except (ValueError, KeyError, TypeError):
        return ()
    return tuple(
        Gpu(
            kind="mps",
            name=str(card["sppci_model"]),
            index=0,
            compute_units=int(card["sppci_cores"]) if card.get("sppci_cores") else None,
            memory_bytes=ram_bytes,  # the chip's GPU has no memory of its own
        )
        for card in listed
        if str(card.get("sppci_model", "")).startswith("Apple")
    )


def parse_rocm_smi(text: str) -> tuple[Gpu, ...]:
    """AMD devices, from the JSON of rocm-smi; the spelling of its keys differs by version."""
    try:
        listed = json.loads(text)
    except ValueError:
        return ()
    lowered = {
        card: {str(key).lower(): str(value) for key, value in row.items()}
        for card, row in listed.items()
    }
    driver = lowered.get("system", {}).get("driver version")
    cards = [(card, row) for card, row in lowered.items() if card.startswith("card")]
    return tuple(
        Gpu(
            kind="rocm",
            name=row.get("card series") or row.get("device name") or "AMD GPU",
            index=index,
            uuid=row.get("unique id"),
            system_index=int(card.removeprefix("card")),
            memory_bytes=int(row.get("vram total memory (b)", 0)) or None,
            driver=driver,
        )
        for index, (card, row) in enumerate(cards)
    )


# ---------------------------------------------------------------- drivers

RUNTIME_PACKAGES = {  # what pip installs beside torch, by the names of CUDA 13 and 12
    "CUDA runtime": ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12"),
    "cuDNN": ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12"),
    "cuBLAS": ("nvidia-cublas", "nvidia-cublas-cu12"),
    "NCCL": ("nvidia-nccl-cu13", "nvidia-nccl-cu12"),
}


def driver_versions(io: SystemIO, gpus: Gpus) -> dict[str, str]:
    """Drivers and CUDA libraries: what the system has and what came with torch."""
    build = torch_build(io)
    versions = {
        "NVIDIA driver": next((g.driver for g in gpus.gpus if g.kind == "cuda"), None)
        or kernel_driver(io),
        "AMD driver": next((g.driver for g in gpus.gpus if g.kind == "rocm"), None),
        "CUDA, newest that the driver supports": gpus.cuda_version,
        "CUDA, that torch is built with": build.get("cuda"),
        "ROCm, that torch is built with": build.get("hip"),
        **{name: _first_version(io, names) for name, names in RUNTIME_PACKAGES.items()},
    }
    return {name: version for name, version in versions.items() if version}


def kernel_driver(io: SystemIO) -> str | None:
    """The NVIDIA driver that the kernel has loaded, even where nvidia-smi does not work."""
    text = io.read("/proc/driver/nvidia/version") or ""
    version = re.search(r"Kernel Module.*?(\d+\.\d+(?:\.\d+)?)", text)
    return version[1] if version else None


def torch_build(io: SystemIO) -> dict[str, str]:
    """What torch was built with, from its own version.py: torch is not imported."""
    folder = io.folder("torch")
    text = io.read(f"{folder}/version.py") or "" if folder else ""
    return dict(re.findall(r"^(__version__|cuda|hip)\b.*?= *'([^']+)'", text, re.MULTILINE))


def _first_version(io: SystemIO, names: tuple[str, ...]) -> str | None:
    return next((version for name in names if (version := io.version(name))), None)
