"""What is there: processor, memory, accelerators, system, drivers and libraries of a machine.

description = describe()
print(description.to_markdown())
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from ridgeline.machine.cpu import (
    Cache,
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
    library_versions,
)
from ridgeline.provenance import os_name
from ridgeline.sensors.nvidia import Gpu, Mig
from ridgeline.units import format_bytes, format_cache, si
from ridgeline.version import __version__


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """One machine, as this process sees it. None where the system does not say."""

    os: str
    kernel: str
    container: str | None  # "docker", "podman", "apptainer", "kubernetes"…
    virtualization: str | None  # "KVM", "WSL 2", …; None: bare metal, as far as can be seen
    cpu: Cpu
    limits: Limits
    numa_nodes: tuple[NumaNode, ...]
    memory: Memory
    gpus: tuple[Gpu, ...]
    drivers: Mapping[str, str]
    libraries: Mapping[str, str]
    python: str
    ridgeline: str
    notes: tuple[str, ...] = ()  # what is uncertain in the above

    @property
    def name(self) -> str:
        return machine_name(self)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; every quantity in an SI unit that its name ends with."""
        content = asdict(self)
        allowed = self.limits.allowed_cpus
        content["limits"]["allowed_cpus"] = None if allowed is None else sorted(allowed)
        return {"machine": self.name, **content}

    def to_markdown(self) -> str:
        """The environment notes of a report."""
        return to_markdown(self)


def describe(io: SystemIO | None = None) -> Description:
    """Describe this machine. Nothing is measured and no setting is touched."""
    io = io or SystemIO()
    limits = find_limits(io)
    memory = describe_memory(io, limits)
    gpus = describe_gpus(io, ram_bytes=memory.total_bytes)
    return Description(
        os=os_name(io.read("/etc/os-release"), system=io.system),
        kernel=io.kernel,
        container=find_container(io),
        virtualization=find_virtualization(io),
        cpu=describe_cpu(io, limits),
        limits=limits,
        numa_nodes=describe_numa(io),
        memory=memory,
        gpus=gpus.found,
        drivers=driver_versions(io, gpus),
        libraries=library_versions(io),
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


T = TypeVar("T")
Rows = list[tuple[str, str | None]]


def to_markdown(description: Description) -> str:
    """Tables of the system, the processor, the memory, each accelerator, drivers and libraries."""
    d = description
    parts = [
        f"# {d.name}",
        _table("System", _system(d)),
        _table("Processor", _processor(d.cpu)),
        _caches(d.cpu.caches),
        _table("Memory", [*_memory(d.memory), *map(_numa, d.numa_nodes)]),
        *(_table(_gpu_title(gpu), _gpu(gpu)) for gpu in d.gpus),
        *(_slices(gpu.mig_instances) for gpu in d.gpus if gpu.mig_instances),
        "" if d.gpus else "## Accelerators\n\nNone was found.",
        _table("Drivers", list(d.drivers.items())),
        _table(
            "Libraries", [("Python", d.python), ("ridgeline", d.ridgeline), *d.libraries.items()]
        ),
        "\n".join(f"- Note: {note}." for note in d.notes),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(title: str, rows: Rows) -> str:
    known = [f"| {name} | {value} |" for name, value in rows if value]
    return "\n".join([f"## {title}", "", "| | |", "|---|---|", *known]) if known else ""


def _system(d: Description) -> Rows:
    quota = d.limits.cpu_quota
    return [
        ("operating system", d.os),
        ("kernel", d.kernel),
        ("virtual machine", d.virtualization),
        ("container", d.container),
        ("CPU quota", None if quota is None else f"{quota:g} CPUs"),
        ("memory limit", _known(d.limits.memory_bytes, format_bytes)),
    ]


def _processor(cpu: Cpu) -> Rows:
    kinds = ", ".join(f"{count} {kind.lower()}" for kind, count in cpu.kinds_of_cores.items())
    return [
        ("model", cpu.model),
        ("maker", cpu.vendor),
        ("architecture", cpu.architecture),
        ("sockets", _known(cpu.sockets, str)),
        ("cores", _known(cpu.physical_cores, lambda n: f"{n} ({kinds})" if kinds else str(n))),
        ("threads", _known(cpu.logical_cores, str)),
        ("usable here", _usable(cpu)),
        ("instruction sets", " ".join(cpu.extensions)),
        ("base clock", _known(cpu.base_clock_hz, _hz)),
        ("highest clock", _known(cpu.max_clock_hz, _hz)),
        ("clock when asked", _known(cpu.current_clock_hz, _hz)),
        ("governor", cpu.governor),
    ]  # fmt: skip


def _usable(cpu: Cpu) -> str | None:
    return _known(cpu.usable_cores, lambda cores: f"{cores} cores, {cpu.usable_threads} threads")


def _caches(caches: Iterable[Cache]) -> str:
    rows = [
        f"| {c.name} | {format_cache(c.size_bytes)} | {c.line_bytes or ''} | {c.shared_by_cores} |"
        f" {c.instances} | {format_cache(c.size_bytes * c.instances)} |"
        for c in caches
    ]
    if not rows:
        return ""
    header = "| cache | size of one | line, bytes | cores that share one | how many | in all |"
    return "\n".join(["## Caches", "", header, "|---|--:|--:|--:|--:|--:|", *rows])


def _memory(memory: Memory) -> Rows:
    modules = f"{memory.modules} × {memory.kind}" if memory.modules else memory.kind
    return [
        ("in all", _known(memory.total_bytes, format_bytes)),
        ("available when asked", _known(memory.available_bytes, format_bytes)),
        ("swap", _known(memory.swap_bytes, lambda n: format_bytes(n) if n else "none")),
        ("swap in use", format_bytes(memory.swap_used_bytes) if memory.swap_used_bytes else None),
        ("modules", modules),
        ("speed", _known(memory.speed_transfers_per_s, lambda rate: si(rate, "T/s"))),
    ]


def _numa(node: NumaNode) -> tuple[str, str]:
    size = _known(node.memory_bytes, format_bytes) or "memory not known"
    distances = ", ".join(map(str, node.distances))
    return (f"NUMA node {node.index}", f"{len(node.cpus)} threads, {size}, distances {distances}")


def _gpu_title(gpu: Gpu) -> str:
    if gpu.kind == "mps":
        return f"Accelerator: {gpu.name}"
    hidden = "divided" if gpu.mig_instances else "not visible to CUDA"
    return f"Accelerator {hidden if gpu.index is None else gpu.index}: {gpu.name}"


def _gpu(gpu: Gpu) -> Rows:
    unit = {"cuda": "multiprocessors", "rocm": "compute units"}.get(gpu.kind, "GPU cores")
    return [
        ("index for nvidia-smi", _known(gpu.system_index if gpu.kind == "cuda" else None, str)),
        ("UUID", gpu.uuid),
        ("PCI", gpu.pci_id),
        (unit, _known(gpu.compute_units, str)),
        ("compute capability", gpu.compute_capability),
        ("memory", _known(gpu.memory_bytes, format_bytes)),
        ("memory bus", _known(gpu.memory_bus_bits, lambda bits: f"{bits} bit")),
        ("L2", _known(gpu.l2_bytes, format_cache)),
        ("core clock", _pair(gpu.clock_hz, gpu.max_clock_hz, _hz)),
        ("memory clock", _pair(gpu.memory_clock_hz, gpu.max_memory_clock_hz, _hz)),
        ("power limit", _power(gpu)),
        ("ECC", _on(gpu.has_ecc)),
        ("MIG", _on(gpu.has_mig)),
        ("persistence mode", _on(gpu.is_persistent)),
        ("PCIe generation", _pair(gpu.pcie_generation, gpu.max_pcie_generation, str)),
        ("PCIe width", _pair(gpu.pcie_width, gpu.max_pcie_width, str)),
        ("driver", gpu.driver),
    ]


def _slices(instances: Iterable[Mig]) -> str:
    rows = [
        f"| {'' if mig.index is None else mig.index} | {mig.profile} | {mig.uuid} |"
        f" {mig.compute_units or ''} | {_known(mig.memory_bytes, format_bytes) or ''} |"
        for mig in instances
    ]
    header = "| CUDA index | slice | UUID | multiprocessors | memory |"
    return "\n".join(["### MIG slices", "", header, "|--:|---|---|--:|--:|", *rows])


def _known(value: T | None, show: Callable[[T], str]) -> str | None:
    return None if value is None else show(value)


def _pair(now: T | None, most: T | None, show: Callable[[T], str]) -> str | None:
    """`345 MHz when asked, at most 1.98 GHz`."""
    said = [
        _known(now, lambda v: f"{show(v)} when asked"),
        _known(most, lambda v: f"at most {show(v)}"),
    ]
    return ", ".join(part for part in said if part) or None


def _power(gpu: Gpu) -> str | None:
    limits = {"": gpu.power_limit_w, "default ": gpu.default_power_limit_w,
              "at most ": gpu.max_power_limit_w}  # fmt: skip
    said = [f"{name}{watts:g} W" for name, watts in limits.items() if watts is not None]
    return ", ".join(said) or None


def _on(mode: bool | None) -> str | None:
    return _known(mode, lambda is_on: "on" if is_on else "off")


def _hz(clock_hz: float) -> str:
    return si(clock_hz, "Hz")
