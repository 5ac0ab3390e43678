"""What is there: processor, memory, accelerators, system, drivers and libraries of a machine.

description = describe()
print(description.to_markdown())
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ridgeline.machine.cpu import (
    Cpu,
    Memory,
    NumaNode,
    describe_cpu,
    describe_memory,
    describe_numa,
)
from ridgeline.machine.gpu import describe_gpus, driver_versions
from ridgeline.machine.system import (
    Limits,
    SystemIO,
    find_container,
    find_limits,
    find_virtualization,
)
from ridgeline.provenance import LIBRARIES, os_name
from ridgeline.sensors.nvidia import Gpu
from ridgeline.serialize import to_dict
from ridgeline.units import format_bytes, format_cache, si
from ridgeline.version import __version__


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """One machine, as one process saw it. None where the system does not say."""

    os: str = ""
    kernel: str = ""
    container: str | None = None  # "docker", "podman", "apptainer", "kubernetes"…
    virtualization: str | None = None  # "QEMU", "WSL 2", …; None: bare metal, as far as can be seen
    cpu: Cpu = field(default_factory=Cpu)
    limits: Limits = field(default_factory=Limits)
    numa_nodes: tuple[NumaNode, ...] = ()
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
        """The environment notes of a report."""
        return to_markdown(self)


def describe(io: SystemIO | None = None) -> Description:
    """Describe this machine. Nothing is measured and no setting is touched."""
    io = io or SystemIO()
    limits = find_limits(io)
    memory = describe_memory(io, limits)
    gpus = describe_gpus(io, ram_bytes=memory.total_bytes)
    libraries = {name: io.version(name) for name in (*LIBRARIES, "nvidia-ml-py")}
    return Description(
        os=os_name(io.read("/etc/os-release"), system=io.system),
        kernel=io.kernel,
        container=find_container(io),
        virtualization=find_virtualization(io),
        cpu=describe_cpu(io, limits),
        limits=limits,
        numa_nodes=describe_numa(io),
        memory=memory,
        gpus=gpus.gpus,
        drivers=driver_versions(io, gpus),
        libraries={name: version for name, version in libraries.items() if version is not None},
        python=platform.python_version(),
        ridgeline=__version__,
        notes=gpus.notes,
    )


# ---------------------------------------------------------------- a name

_NOISE = re.compile(
    r"\((?:r|tm|c)\)|\bcpu\b|\bgpu\b|\bprocessor\b|@.*"
    r"|\b\d+-core\b|\b\d+th gen\b|\b(?:with|w/) radeon.*",
    re.IGNORECASE,
)


def machine_name(description: Description) -> str:
    """A short name that stays the same: `nvidia-h200`, `nvidia-l4-x4`, `amd-epyc-2c`.

    By the accelerators that CUDA or ROCm shows, else by the processor and its usable cores:
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
    "_bytes": format_bytes,
    "_hz": lambda clock_hz: si(clock_hz, "Hz"),
    "_w": lambda power_w: f"{power_w:g} W",
    "_c": lambda temperature_c: f"{temperature_c:g} °C",
    "_bits": lambda bits: f"{bits} bit",
}
CACHE_FIELDS = ("size_bytes", "l2_bytes")  # known by powers of 1024


def to_markdown(description: Description) -> str:
    """Tables of the system, the processor, the memory, each accelerator, drivers and libraries."""
    d = to_dict(description)
    limits = {"cpu_quota": d["limits"]["cpu_quota"]}
    system = {name: d[name] for name in ("os", "kernel", "virtualization", "container")} | limits
    parts = [
        f"# {description.name}",
        _table("System", system),
        _table("Processor", d["cpu"]),
        _grid("Caches", d["cpu"]["caches"]),
        _table("Memory", d["memory"]),
        _grid("NUMA nodes", d["numa_nodes"]),
        *(part for gpu in d["gpus"] for part in _describe_gpu(gpu)),
        "" if d["gpus"] else "## Accelerators\n\nNone was found.",
        _table("Drivers", d["drivers"]),
        _table("Libraries", {name: d[name] for name in ("python", "ridgeline")} | d["libraries"]),
        "\n".join(f"- Note: {note}." for note in d["notes"]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _describe_gpu(gpu: Mapping[str, Any]) -> Iterable[str]:
    hidden = "divided" if gpu["mig_instances"] else "not visible to CUDA"
    index = hidden if gpu["index"] is None else gpu["index"]
    yield _table(f"Accelerator {index}: {gpu['name']}", gpu)
    yield _grid("MIG slices", gpu["mig_instances"])


def _table(title: str, fields: Mapping[str, Any]) -> str:
    """A row for each field that is known; lists of records have tables of their own."""
    rows = [
        f"| {_label(name)} | {_text(name, value)} |"
        for name, value in fields.items()
        if value not in (None, "", [], {}) and not _has_records(value)
    ]
    return "\n".join([f"## {title}", "", "| | |", "|---|---|", *rows]) if rows else ""


def _grid(title: str, records: list[dict[str, Any]]) -> str:
    """A row for each record, a column for each of its fields."""
    if not records:
        return ""
    header = " | ".join(map(_label, records[0]))
    rows = ["| " + " | ".join(_text(*item) for item in one.items()) + " |" for one in records]
    lines = [f"## {title}", "", f"| {header} |", "|---" * len(records[0]) + "|", *rows]
    return "\n".join(lines)


def _has_records(value: Any) -> bool:
    return isinstance(value, list) and isinstance(value[0], dict)


def _label(name: str) -> str:
    """`max_clock_hz` is `max clock`: the unit stands in the value."""
    suffix = next((suffix for suffix in FORMATS if name.endswith(suffix)), "")
    return name.removesuffix(suffix).replace("_", " ")


def _text(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{count} {kind.lower()}" for kind, count in value.items())
    if isinstance(value, list):
        return " ".join(map(str, value))
    if name in CACHE_FIELDS:
        return format_cache(value)
    show = next((show for suffix, show in FORMATS.items() if name.endswith(suffix)), str)
    return show(value)
