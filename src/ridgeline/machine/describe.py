"""What is there: processor, memory, accelerators, system, drivers and libraries of a machine.

description = describe()
print(description.to_markdown())
"""

from __future__ import annotations

import json
import platform
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ridgeline.machine import cuda_driver
from ridgeline.machine.cpu import Cpu, describe_cpu
from ridgeline.machine.system import (
    Limits,
    SystemIO,
    find_container,
    find_limits,
    find_virtualization,
)
from ridgeline.provenance import LIBRARIES, os_name
from ridgeline.sensors.nvidia import NO_BINDINGS, Gpu, read_gpus
from ridgeline.serialize import Index, to_dict
from ridgeline.units import format_bytes, format_cache, si
from ridgeline.version import __version__


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The main memory."""

    total_bytes: Index | None = None
    available_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """One machine, as one process saw it. None where the system does not say."""

    os: str = ""
    kernel: str = ""
    container: str | None = None  # "docker", "podman", "apptainer", "kubernetes"…
    virtualization: str | None = None  # "QEMU", "WSL 2", …; None: bare metal, as far as can be seen
    cpu: Cpu = field(default_factory=Cpu)
    limits: Limits = field(default_factory=Limits)
    memory: Memory = field(default_factory=Memory)
    gpus: tuple[Gpu, ...] = ()
    drivers: Mapping[str, str | None] = field(default_factory=dict)
    libraries: Mapping[str, str | None] = field(default_factory=dict)
    python: str = ""
    ridgeline: str = ""
    notes: tuple[str, ...] = ()  # what is uncertain in the above

    @property
    def name(self) -> str:
        return machine_name(self)

    def find_gpu(self, device: str) -> Gpu | None:
        """The GPU that is called `cuda:0` or `mps`."""
        kind, _, number = device.partition(":")
        return next(
            (gpu for gpu in self.gpus if gpu.kind == kind and gpu.index == int(number or 0)), None
        )

    def is_named_after(self, device: str) -> bool:
        """Whether the machine's name is that of this device: of its first GPU, or its processor."""
        has_gpus = any(gpu.index is not None for gpu in self.gpus)
        return device in ("cuda:0", "mps") if has_gpus else device == "cpu"

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; every quantity in an SI unit that its name ends with."""
        return {"machine": self.name, **to_dict(self)}

    def to_markdown(self) -> str:
        """Tables of the system, the processor, the memory, each accelerator, drivers, libraries."""
        return to_markdown(self)


def describe(io: SystemIO | None = None) -> Description:
    """Describe this machine. Nothing is measured and no setting is touched."""
    io = io or SystemIO()
    limits = find_limits(io)
    total_bytes, available_bytes = io.memory_bytes()
    gpus = describe_gpus(io, ram_bytes=total_bytes)
    libraries = {name: io.version(name) for name in (*LIBRARIES, "nvidia-ml-py")}
    return Description(
        os=os_name(io.read("/etc/os-release"), system=io.system),
        kernel=io.kernel,
        container=find_container(io),
        virtualization=find_virtualization(io),
        cpu=describe_cpu(io, limits),
        limits=limits,
        memory=Memory(total_bytes=total_bytes, available_bytes=available_bytes),
        gpus=gpus.gpus,
        drivers=driver_versions(io, gpus),
        libraries={name: version for name, version in libraries.items() if version is not None},
        python=platform.python_version(),
        ridgeline=__version__,
        notes=gpus.notes,
    )


# ---------------------------------------------------------------- accelerators
# NVML tells what each NVIDIA device is and how it is set. It numbers devices by their slot; CUDA
# numbers those it is shown, in an order of its own. So the two are joined by UUID, never by index.

LIST_CUDA_DEVICES = (sys.executable, "-I", str(Path(cuda_driver.__file__)))
MAC_QUERY = ("system_profiler", "SPDisplaysDataType", "-json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """The accelerators, in the order of their indices, and what is uncertain about them."""

    gpus: tuple[Gpu, ...] = ()
    cuda_version: str | None = None  # the newest that the driver supports
    notes: tuple[str, ...] = ()


def _run_json(io: SystemIO, command: Sequence[str]) -> dict[str, Any]:
    """What a command prints as JSON; nothing where it is not there or fails."""
    try:
        return dict(json.loads(io.run(command) or "{}"))
    except ValueError:
        return {}


def describe_gpus(io: SystemIO, *, ram_bytes: int | None = None) -> Gpus:
    """Devices and their slices by NVML, numbered as CUDA numbers them; without NVML, CUDA's own."""
    if io.system == "Darwin":
        return Gpus(gpus=_list_apple_gpus(_run_json(io, MAC_QUERY), ram_bytes=ram_bytes))
    nvml, cuda = io.nvml(), _run_json(io, LIST_CUDA_DEVICES)
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
        return replace(gpu, **select(gpu.uuid), mig_instances=tuple(slices))

    def order(gpu: Gpu) -> tuple[int, int]:
        indices = (gpu.index, *(mig.index for mig in gpu.mig_instances))
        first = min((index for index in indices if index is not None), default=sys.maxsize)
        return first, gpu.system_index or 0

    return tuple(sorted(map(number, gpus), key=order))


def _list_apple_gpus(profile: Mapping[str, Any], *, ram_bytes: int | None) -> tuple[Gpu, ...]:
    """The GPU of an Apple chip. Those of older Macs are left out: torch does not use them."""
    return tuple(
        Gpu(
            kind="mps",
            name=card["sppci_model"],
            index=0,
            compute_units=int(card["sppci_cores"]) if card.get("sppci_cores") else None,
            memory_bytes=ram_bytes,  # the chip's GPU has no memory of its own
        )
        for card in profile.get("SPDisplaysDataType", ())
        if card.get("sppci_model", "").startswith("Apple")
    )


RUNTIME_PACKAGES = {  # what pip installs beside torch, by the names of CUDA 13 and 12
    "CUDA runtime": ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12"),
    "cuDNN": ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12"),
    "cuBLAS": ("nvidia-cublas", "nvidia-cublas-cu12"),
    "NCCL": ("nvidia-nccl-cu13", "nvidia-nccl-cu12"),
}


def driver_versions(io: SystemIO, gpus: Gpus) -> dict[str, str]:
    """Drivers and CUDA libraries: what the system has and what came with torch."""
    build = torch_build(io)
    drivers = {gpu.kind: gpu.driver for gpu in reversed(gpus.gpus)}
    packages = {name: map(io.version, names) for name, names in RUNTIME_PACKAGES.items()}
    versions = {
        "NVIDIA driver": drivers.get("cuda") or kernel_driver(io),
        "CUDA, newest that the driver supports": gpus.cuda_version,
        "CUDA, that torch is built with": build.get("cuda"),
        "ROCm, that torch is built with": build.get("hip"),
        **{name: next(filter(None, found), None) for name, found in packages.items()},
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


# ---------------------------------------------------------------- a name

_NOISE = re.compile(
    r"\((?:r|tm|c)\)|\bcpu\b|\bgpu\b|\bprocessor\b|@.*"
    r"|\b\d+-core\b|\b\d+th gen\b|\b(?:with|w/) radeon.*",
    re.IGNORECASE,
)


def machine_name(description: Description) -> str:
    """A short name that stays the same: `nvidia-h200`, `nvidia-l4-x4`, `amd-epyc-2c`.

    By the accelerators that CUDA shows, else by the processor and its usable cores:
    with other cores the ceilings are others, too.
    """
    accelerators = [
        name for gpu in description.gpus if gpu.kind != "mps" for name in _visible_names(gpu)
    ]
    if accelerators:
        count = f"-x{len(accelerators)}" if len(accelerators) > 1 else ""
        return slug(accelerators[0]) + count
    cores = description.cpu.usable_cores
    return slug(description.cpu.model) + (f"-{cores}c" if cores else "")


def _visible_names(gpu: Gpu) -> list[str]:
    slices = [f"{gpu.name} MIG {mig.profile}" for mig in gpu.mig_instances if mig.index is not None]
    return slices or ([gpu.name] if gpu.index is not None else [])


def slug(model: str) -> str:
    """A name as a part of a file name: `Intel(R) Core(TM) i7-1360P` is `intel-core-i7-1360p`."""
    plain = _NOISE.sub(" ", model).lower()
    return re.sub(r"[^a-z0-9.]+", "-", plain).strip("-.") or "unknown"


# ---------------------------------------------------------------- Markdown

FORMATS: Mapping[str, Callable[[Any], str]] = {  # by the end of a field's name
    "size_bytes": format_cache,
    "l2_bytes": format_cache,  # known by powers of 1024
    "_bytes": format_bytes,
    "_hz": lambda clock_hz: si(clock_hz, "Hz"),
    "_w": lambda power_w: f"{power_w:g} W",
}
UNITS = ("_bytes", "_hz", "_w")


def to_markdown(description: Description) -> str:
    """A table of what stands by itself, and one of each record in it."""
    content = to_dict(description)
    gpus, notes = content.pop("gpus"), content.pop("notes")
    content["caches"] = content["cpu"].pop("caches")
    del content["limits"]["allowed_cpus"]  # hundreds, perhaps
    system = {name: value for name, value in content.items() if not isinstance(value, dict | list)}
    parts = [f"# {description.name}", *_tables("system", system)]
    for name, value in content.items():
        parts += _tables(name, value) if isinstance(value, dict | list) else []
    for gpu in gpus:
        hidden = "divided" if gpu["mig_instances"] else "not visible to CUDA"
        index, slices = gpu["index"], gpu.pop("mig_instances")
        parts += _tables(f"accelerator {hidden if index is None else index}: {gpu['name']}", gpu)
        parts += _tables("MIG slices", slices)
    parts += [] if gpus else ["## Accelerators\n\nNone was found."]
    return "\n\n".join([*parts, *(f"- Note: {note}." for note in notes)]) + "\n"


def _tables(title: str, value: dict[str, Any] | list[dict[str, Any]]) -> list[str]:
    """A row for each field that is known; of several records one for each record."""
    if isinstance(value, dict):
        known = {name: one for name, one in value.items() if one not in (None, "", [])}
        rows = [["", ""], *([_label(name), _text(name, one)] for name, one in known.items())]
    else:
        rows = [[_label(name) for name in record] for record in value[:1]]
        rows += [[_text(name, one) for name, one in record.items()] for record in value]
    if len(rows) < 2:
        return []
    rows.insert(1, ["---"] * len(rows[0]))
    lines = (f"| {' | '.join(row)} |" for row in rows)
    return ["\n".join([f"## {title[0].upper()}{title[1:]}", "", *lines])]


def _label(name: str) -> str:
    """`max_clock_hz` is `max clock`: the unit stands in the value."""
    suffix = next((suffix for suffix in UNITS if name.endswith(suffix)), "")
    return name.removesuffix(suffix).replace("_", " ")


def _text(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " ".join(map(str, value))
    show = next((show for suffix, show in FORMATS.items() if name.endswith(suffix)), str)
    return show(value)
