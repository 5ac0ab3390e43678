"""The processor, its caches, NUMA nodes and memory; those of Linux from /proc and /sys.

Nothing here needs a privilege; what only root may read (the memory modules) is None for others.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from ridgeline.machine.describe_mac import mac_cpu, mac_memory, mac_settings
from ridgeline.machine.limits import Limits, parse_cpu_list
from ridgeline.machine.probe import Probe, pairs
from ridgeline.machine.processor import Cache, Cpu, Memory, NumaNode, extensions
from ridgeline.provenance import cpu_name
from ridgeline.units import parse_bytes

CPUS = "/sys/devices/system/cpu"
NODES = "/sys/devices/system/node"
CACHE_KINDS = {"Data": "data", "Instruction": "instruction", "Unified": "unified"}
ARM_MAKERS = {
    "0x41": "ARM", "0x42": "Broadcom", "0x43": "Cavium", "0x46": "Fujitsu", "0x48": "HiSilicon",
    "0x4e": "NVIDIA", "0x50": "APM", "0x51": "Qualcomm", "0x61": "Apple", "0xc0": "Ampere",
}  # fmt: skip


def describe_cpu(probe: Probe, limits: Limits) -> Cpu:
    """The processor, on Linux or macOS."""
    model = cpu_name(run=probe.run, read=probe.read, system=probe.system)
    if probe.system == "Darwin":
        return mac_cpu(model, mac_settings(probe), architecture=probe.architecture)
    return _linux_cpu(probe, model, limits)


def describe_memory(probe: Probe, limits: Limits) -> Memory:
    """The main memory and the swap, on Linux or macOS."""
    if probe.system == "Darwin":
        return mac_memory(probe)
    sizes = parse_meminfo(probe.read("/proc/meminfo") or "")
    modules = parse_dmidecode(probe.run(("dmidecode", "--type", "memory")) or "")
    swap, free = sizes.get("SwapTotal"), sizes.get("SwapFree")
    return Memory(
        total_bytes=sizes.get("MemTotal"),
        available_bytes=sizes.get("MemAvailable"),
        limit_bytes=limits.memory_bytes,
        swap_bytes=swap,
        swap_used_bytes=None if swap is None or free is None else swap - free,
        kind=modules[0][0] if modules else None,
        modules=len(modules) or None,
        speed_transfers_per_s=min((speed for _, speed in modules if speed), default=None),
    )


# ---------------------------------------------------------------- Linux


def _linux_cpu(probe: Probe, model: str, limits: Limits) -> Cpu:
    info = parse_cpuinfo(probe.read("/proc/cpuinfo") or "")
    cpus = parse_cpu_list(probe.read(f"{CPUS}/online") or "") or tuple(range(len(info)))
    cores = _cores(probe, cpus, info)
    first = info[0] if info else {}
    allowed = [cpu for cpu in cpus if limits.allowed_cpus is None or cpu in limits.allowed_cpus]
    usable = limits.whole_cpus(len(allowed))
    sockets = {_socket(probe, cpu, info) for cpu in cpus} - {None}
    return Cpu(
        model=model,
        vendor=first.get("vendor_id") or ARM_MAKERS.get(first.get("CPU implementer", "")),
        architecture=probe.architecture,
        sockets=len(sockets) or None,
        physical_cores=len(set(cores.values())) or None,
        logical_cores=len(cpus) or None,
        usable_cores=min(usable, len({cores[cpu] for cpu in allowed})) or None,
        usable_threads=usable or None,
        threads_per_core=max(Counter(cores.values()).values(), default=None),
        kinds_of_cores={},
        extensions=extensions(first.get("flags") or first.get("Features") or ""),
        base_clock_hz=_base_clock_hz(probe, model),
        max_clock_hz=_clock_hz(probe, "cpufreq/cpuinfo_max_freq"),
        current_clock_hz=_clock_hz(probe, "cpufreq/scaling_cur_freq") or _listed_clock_hz(info),
        governor=probe.line(f"{CPUS}/cpu0/cpufreq/scaling_governor"),
        caches=_linux_caches(probe, cores),
    )


def parse_cpuinfo(text: str) -> list[dict[str, str]]:
    """A table of key and value for each logical CPU of /proc/cpuinfo."""
    blocks = [pairs(block) for block in text.split("\n\n")]
    return [block for block in blocks if "processor" in block]


def _cores(probe: Probe, cpus: Iterable[int], info: list[dict[str, str]]) -> dict[int, str]:
    """Which physical core each logical CPU belongs to: two threads of a core have equal names."""
    listed = {int(row["processor"]): row for row in info if row["processor"].isdigit()}

    def core(cpu: int) -> str:
        siblings = probe.line(f"{CPUS}/cpu{cpu}/topology/thread_siblings_list")
        if siblings:
            return siblings
        row = listed.get(cpu, {})
        return f"{row.get('physical id', '0')}/{row['core id']}" if "core id" in row else str(cpu)

    return {cpu: core(cpu) for cpu in cpus}


def _socket(probe: Probe, cpu: int, info: list[dict[str, str]]) -> str | None:
    named = probe.line(f"{CPUS}/cpu{cpu}/topology/physical_package_id")
    if named is not None and named != "-1":  # -1: the firmware does not say
        return named
    return info[cpu].get("physical id") if cpu < len(info) else None


def _base_clock_hz(probe: Probe, model: str) -> float | None:
    """By the driver, else by the processor's name: `… CPU @ 2.60GHz`."""
    known = _clock_hz(probe, "cpufreq/base_frequency")
    nominal_mhz = probe.number(f"{CPUS}/cpu0/acpi_cppc/nominal_freq")
    named = re.search(r"@ *([\d.]+) *GHz", model)
    if known is None and nominal_mhz:
        return nominal_mhz * 1e6
    return known if known or named is None else float(named[1]) * 1e9


def _clock_hz(probe: Probe, name: str) -> float | None:
    """A clock of the first core; the kernel gives kHz."""
    khz = probe.number(f"{CPUS}/cpu0/{name}")
    return None if khz is None else khz * 1e3


def _listed_clock_hz(info: list[dict[str, str]]) -> float | None:
    """The fastest core of /proc/cpuinfo, where there is no frequency driver to ask."""
    return max((float(row["cpu MHz"]) * 1e6 for row in info if "cpu MHz" in row), default=None)


def _linux_caches(probe: Probe, cores: Mapping[int, str]) -> tuple[Cache, ...]:
    """Caches of one level, size and way of sharing are one entry, as on processors of two kinds."""
    seen: set[tuple[int, str, str]] = set()
    alike: Counter[tuple[int, str, int, int | None, int]] = Counter()
    for cpu in cores:
        for folder in probe.find(f"{CPUS}/cpu{cpu}/cache/index*"):
            level, size = probe.number(f"{folder}/level"), probe.line(f"{folder}/size")
            kind = CACHE_KINDS.get(probe.line(f"{folder}/type") or "")
            sharing = probe.line(f"{folder}/shared_cpu_list") or str(cpu)
            if level is None or not size or kind is None or (level, kind, sharing) in seen:
                continue
            seen.add((level, kind, sharing))
            users = {cores.get(other, str(other)) for other in parse_cpu_list(sharing)}
            line = probe.number(f"{folder}/coherency_line_size")
            alike[level, kind, _kib(size), line, len(users)] += 1
    caches = [
        Cache(level=level, kind=kind, size_bytes=size, line_bytes=line, shared_by_cores=users,
              instances=instances)
        for (level, kind, size, line, users), instances in alike.items()
    ]  # fmt: skip
    return tuple(sorted(caches, key=lambda cache: (cache.level, cache.kind, -cache.size_bytes)))


def _kib(size: str) -> int:
    """`1024K`: here the kernel counts by powers of 1024."""
    return parse_bytes(f"{size}iB" if size[-1] in "KMG" else size)


def describe_numa(probe: Probe) -> tuple[NumaNode, ...]:
    """The nodes of Linux; a Mac has none."""
    return tuple(
        NumaNode(
            index=index,
            cpus=parse_cpu_list(probe.read(f"{NODES}/node{index}/cpulist") or ""),
            memory_bytes=parse_meminfo(probe.read(f"{NODES}/node{index}/meminfo") or "").get(
                "MemTotal"
            ),
            distances=tuple(
                int(part) for part in (probe.line(f"{NODES}/node{index}/distance") or "").split()
            ),
        )
        for index in parse_cpu_list(probe.read(f"{NODES}/online") or "")
    )


def parse_meminfo(text: str) -> dict[str, int]:
    """Bytes by name, from /proc/meminfo or from that of a NUMA node."""
    rows = re.findall(r"^(?:Node \d+ )?(\w+):\s+(\d+) kB", text, re.MULTILINE)
    return {name: int(size) * 1024 for name, size in rows}


def parse_dmidecode(text: str) -> list[tuple[str, float | None]]:
    """Kind and speed of each memory module that is in its socket."""
    modules = []
    for block in text.split("\n\n"):
        row = pairs(block)
        if "Memory Device" not in block or not row.get("Size", "No")[0].isdigit():
            continue
        speed = re.match(r"(\d+) MT/s", row.get("Configured Memory Speed", ""))
        modules.append((row.get("Type", "unknown"), float(speed[1]) * 1e6 if speed else None))
    return modules
