"""A description as the environment notes of a report, in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from ridgeline.machine.describe import Description
from ridgeline.machine.gpu import Gpu, Mig
from ridgeline.machine.processor import Cache, Cpu, Memory, NumaNode
from ridgeline.units import format_bytes, format_cache, si

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
