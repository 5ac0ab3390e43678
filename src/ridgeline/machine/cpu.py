"""The processor, its caches, NUMA nodes and memory: records, and readers for Linux and macOS.

Nothing here needs a privilege; what only root may read (the memory modules) is None for others.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ridgeline.machine.system import Limits, SystemIO, pairs, parse_cpu_list
from ridgeline.provenance import cpu_name
from ridgeline.units import parse_bytes

EXTENSIONS = (  # those that decide how fast arithmetic can be; by the names of /proc/cpuinfo
    "sse2", "sse4_2", "avx", "f16c", "fma", "avx2", "avx_vnni",
    "avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl", "avx512ifma", "avx512vbmi",
    "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16", "amx_fp16",
    "asimd", "asimdhp", "asimddp", "asimdfhm", "bf16", "i8mm", "sve", "sve2", "svebf16", "svei8mm",
    "sme", "sme2",
)  # fmt: skip
ARM_NAMES = {"asimd": "neon", "asimdhp": "neon-fp16", "asimddp": "neon-dot", "asimdfhm": "neon-fhm"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """All caches of one level that are alike."""

    level: int
    kind: str  # "data", "instruction" or "unified"
    size_bytes: int  # of one of them
    line_bytes: int | None
    shared_by_cores: int  # physical cores that use one of them
    instances: int

    @property
    def name(self) -> str:
        """`L1d`, `L1i`, `L2`."""
        return f"L{self.level}{'' if self.kind == 'unified' else self.kind[0]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """The processor of the machine; all sockets hold the same one."""

    model: str
    vendor: str | None
    architecture: str  # "x86_64", "aarch64", "arm64"
    sockets: int | None
    physical_cores: int | None
    logical_cores: int | None
    usable_cores: int | None  # physical ones, after affinity and the container's limits
    usable_threads: int | None  # logical ones, after the same
    threads_per_core: int | None
    kinds_of_cores: Mapping[str, int]  # {"Performance": 8, "Efficiency": 4} where they differ
    extensions: tuple[str, ...]
    base_clock_hz: float | None
    max_clock_hz: float | None
    current_clock_hz: float | None
    governor: str | None
    caches: tuple[Cache, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NumaNode:
    """Cores and memory that are near to each other."""

    index: int
    cpus: tuple[int, ...]  # logical ones
    memory_bytes: int | None
    distances: tuple[int, ...]  # to every node, as the firmware gives them; 10 is itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The main memory. What the modules are is known to root only, on most systems."""

    total_bytes: int | None
    available_bytes: int | None
    limit_bytes: int | None  # what the container or the batch system lets a job have
    swap_bytes: int | None
    swap_used_bytes: int | None
    kind: str | None  # "DDR5", "LPDDR5"
    modules: int | None
    speed_transfers_per_s: float | None


def extensions(flags: str) -> tuple[str, ...]:
    """Of all that a CPU can do, the instruction sets that matter for arithmetic."""
    found = set(flags.split())
    return tuple(ARM_NAMES.get(name, name) for name in EXTENSIONS if name in found)


MAC_EXTENSIONS = {  # the last part of hw.optional.arm.FEAT_…
    "AdvSIMD": "neon", "FP16": "neon-fp16", "DotProd": "neon-dot", "FHM": "neon-fhm",
    "BF16": "bf16", "I8MM": "i8mm", "SME": "sme", "SME2": "sme2",
}  # fmt: skip


def mac_settings(io: SystemIO) -> dict[str, str]:
    """Everything `sysctl hw machdep.cpu vm` tells."""
    names = ("hw", "machdep.cpu", "vm.swapusage")
    return pairs("\n".join(io.run(("sysctl", name)) or "" for name in names))


def mac_cpu(model: str, settings: Mapping[str, str], *, architecture: str) -> Cpu:
    """The processor from the answers of sysctl."""
    physical, logical = _setting(settings, "hw.physicalcpu"), _setting(settings, "hw.logicalcpu")
    kinds = {
        settings.get(f"hw.perflevel{level}.name", str(level)): cores
        for level in range(_setting(settings, "hw.nperflevels") or 0)
        if (cores := _setting(settings, f"hw.perflevel{level}.physicalcpu"))
    }
    return Cpu(
        model=model,
        vendor=settings.get("machdep.cpu.vendor") or model.partition(" ")[0],
        architecture=architecture,
        sockets=_setting(settings, "hw.packages"),
        physical_cores=physical,
        logical_cores=logical,
        usable_cores=physical,
        usable_threads=logical,
        threads_per_core=logical // physical if logical and physical else None,
        kinds_of_cores=kinds if len(kinds) > 1 else {},
        extensions=_mac_extensions(settings),
        base_clock_hz=_setting(settings, "hw.cpufrequency"),  # of Intel processors only
        max_clock_hz=_setting(settings, "hw.cpufrequency_max"),
        current_clock_hz=None,
        governor=None,
        caches=_mac_caches(settings),
    )


def _setting(settings: Mapping[str, str], name: str) -> int | None:
    text = settings.get(name, "")
    return int(text) if text.isdigit() else None


def _mac_extensions(settings: Mapping[str, str]) -> tuple[str, ...]:
    listed = ("machdep.cpu.features", "machdep.cpu.leaf7_features")
    flags = " ".join(settings.get(name, "") for name in listed)
    intel = flags.lower().replace("avx1.0", "avx").replace("sse4.2", "sse4_2")
    arm = tuple(
        name
        for feature, name in MAC_EXTENSIONS.items()
        if settings.get(f"hw.optional.arm.FEAT_{feature}") == "1"
        or settings.get(f"hw.optional.{feature}") == "1"
    )
    return extensions(intel) or arm


def _mac_caches(settings: Mapping[str, str]) -> tuple[Cache, ...]:
    """Per kind of core on Apple chips, for all cores alike on Intel ones."""
    levels = _setting(settings, "hw.nperflevels") or 0
    prefixes = [f"hw.perflevel{level}." for level in range(levels)] or ["hw."]
    line = _setting(settings, "hw.cachelinesize")
    found = []
    for prefix in prefixes:
        cores = _setting(settings, f"{prefix}physicalcpu") or 1
        for level, kind, name in ((1, "data", "l1d"), (1, "instruction", "l1i"),
                                  (2, "unified", "l2"), (3, "unified", "l3")):  # fmt: skip
            size = _setting(settings, f"{prefix}{name}cachesize")
            if not size:
                continue
            everyone = cores if level == 3 else 1
            users = _setting(settings, f"{prefix}cpusper{name}") or everyone
            found.append(
                Cache(level=level, kind=kind, size_bytes=size, line_bytes=line,
                      shared_by_cores=users, instances=-(-cores // users))
            )  # fmt: skip
    return tuple(sorted(found, key=lambda cache: (cache.level, cache.kind)))


def mac_memory(io: SystemIO) -> Memory:
    settings = mac_settings(io)
    total_mib, used_mib = (
        re.search(rf"{word} = ([\d.]+)M", settings.get("vm.swapusage", ""))
        for word in ("total", "used")
    )
    return Memory(
        total_bytes=_setting(settings, "hw.memsize"),
        available_bytes=parse_vm_stat(io.run(("vm_stat",)) or ""),
        limit_bytes=None,
        swap_bytes=int(float(total_mib[1]) * 2**20) if total_mib else None,
        swap_used_bytes=int(float(used_mib[1]) * 2**20) if used_mib else None,
        kind=_mac_memory_kind(io.run(("system_profiler", "SPMemoryDataType", "-json"))),
        modules=None,
        speed_transfers_per_s=None,
    )


def parse_vm_stat(text: str) -> int | None:
    """Bytes that can be had without swapping: free, inactive and speculative pages."""
    page = re.search(r"page size of (\d+) bytes", text)
    pages = re.findall(r"^Pages (?:free|inactive|speculative):\s+(\d+)", text, re.MULTILINE)
    return sum(map(int, pages)) * int(page[1]) if page and pages else None


def _mac_memory_kind(text: str | None) -> str | None:
    try:
        kind = json.loads(text or "")["SPMemoryDataType"][0]["dimm_type"]
    except (ValueError, LookupError, TypeError):
        return None
    return str(kind)


CPUS = "/sys/devices/system/cpu"
NODES = "/sys/devices/system/node"
CACHE_KINDS = {"Data": "data", "Instruction": "instruction", "Unified": "unified"}
ARM_MAKERS = {
    "0x41": "ARM", "0x42": "Broadcom", "0x43": "Cavium", "0x46": "Fujitsu", "0x48": "HiSilicon",
    "0x4e": "NVIDIA", "0x50": "APM", "0x51": "Qualcomm", "0x61": "Apple", "0xc0": "Ampere",
}  # fmt: skip


def describe_cpu(io: SystemIO, limits: Limits) -> Cpu:
    """The processor, on Linux or macOS."""
    model = cpu_name(run=io.run, read=io.read, system=io.system)
    if io.system == "Darwin":
        return mac_cpu(model, mac_settings(io), architecture=io.architecture)
    return _linux_cpu(io, model, limits)


def describe_memory(io: SystemIO, limits: Limits) -> Memory:
    """The main memory and the swap, on Linux or macOS."""
    if io.system == "Darwin":
        return mac_memory(io)
    sizes = parse_meminfo(io.read("/proc/meminfo") or "")
    modules = parse_dmidecode(io.run(("dmidecode", "--type", "memory")) or "")
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


def _linux_cpu(io: SystemIO, model: str, limits: Limits) -> Cpu:
    info = parse_cpuinfo(io.read("/proc/cpuinfo") or "")
    cpus = parse_cpu_list(io.read(f"{CPUS}/online") or "") or tuple(range(len(info)))
    cores = _cores(io, cpus, info)
    first = info[0] if info else {}
    allowed = [cpu for cpu in cpus if limits.allowed_cpus is None or cpu in limits.allowed_cpus]
    usable = limits.whole_cpus(len(allowed))
    sockets = {_socket(io, cpu, info) for cpu in cpus} - {None}
    return Cpu(
        model=model,
        vendor=first.get("vendor_id") or ARM_MAKERS.get(first.get("CPU implementer", "")),
        architecture=io.architecture,
        sockets=len(sockets) or None,
        physical_cores=len(set(cores.values())) or None,
        logical_cores=len(cpus) or None,
        usable_cores=min(usable, len({cores[cpu] for cpu in allowed})) or None,
        usable_threads=usable or None,
        threads_per_core=max(Counter(cores.values()).values(), default=None),
        kinds_of_cores={},
        extensions=extensions(first.get("flags") or first.get("Features") or ""),
        base_clock_hz=_base_clock_hz(io, model),
        max_clock_hz=_clock_hz(io, "cpufreq/cpuinfo_max_freq"),
        current_clock_hz=_clock_hz(io, "cpufreq/scaling_cur_freq") or _listed_clock_hz(info),
        governor=io.line(f"{CPUS}/cpu0/cpufreq/scaling_governor"),
        caches=_linux_caches(io, cores),
    )


def parse_cpuinfo(text: str) -> list[dict[str, str]]:
    """A table of key and value for each logical CPU of /proc/cpuinfo."""
    blocks = [pairs(block) for block in text.split("\n\n")]
    return [block for block in blocks if "processor" in block]


def _cores(io: SystemIO, cpus: Iterable[int], info: list[dict[str, str]]) -> dict[int, str]:
    """Which physical core each logical CPU belongs to: two threads of a core have equal names."""
    listed = {int(row["processor"]): row for row in info if row["processor"].isdigit()}

    def core(cpu: int) -> str:
        siblings = io.line(f"{CPUS}/cpu{cpu}/topology/thread_siblings_list")
        if siblings:
            return siblings
        row = listed.get(cpu, {})
        return f"{row.get('physical id', '0')}/{row['core id']}" if "core id" in row else str(cpu)

    return {cpu: core(cpu) for cpu in cpus}


def _socket(io: SystemIO, cpu: int, info: list[dict[str, str]]) -> str | None:
    named = io.line(f"{CPUS}/cpu{cpu}/topology/physical_package_id")
    if named is not None and named != "-1":  # -1: the firmware does not say
        return named
    return info[cpu].get("physical id") if cpu < len(info) else None


def _base_clock_hz(io: SystemIO, model: str) -> float | None:
    """By the driver, else by the processor's name: `… CPU @ 2.60GHz`."""
    known = _clock_hz(io, "cpufreq/base_frequency")
    nominal_mhz = io.number(f"{CPUS}/cpu0/acpi_cppc/nominal_freq")
    named = re.search(r"@ *([\d.]+) *GHz", model)
    if known is None and nominal_mhz:
        return nominal_mhz * 1e6
    return known if known or named is None else float(named[1]) * 1e9


def _clock_hz(io: SystemIO, name: str) -> float | None:
    """A clock of the first core; the kernel gives kHz."""
    khz = io.number(f"{CPUS}/cpu0/{name}")
    return None if khz is None else khz * 1e3


def _listed_clock_hz(info: list[dict[str, str]]) -> float | None:
    """The fastest core of /proc/cpuinfo, where there is no frequency driver to ask."""
    return max((float(row["cpu MHz"]) * 1e6 for row in info if "cpu MHz" in row), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheOfCpu:
    """One cache as one logical CPU sees it."""

    level: int
    kind: str
    size_bytes: int
    line_bytes: int | None
    cpus: frozenset[int]  # logical ones that share it


def read_caches(io: SystemIO, cpu: int) -> list[CacheOfCpu]:
    """The caches of a logical CPU, nearest first; half described ones are left out."""
    if io.system == "Darwin":
        return _mac_caches_of_cpu(io)
    caches = []
    for folder in io.find(f"{CPUS}/cpu{cpu}/cache/index*"):
        level, size = io.number(f"{folder}/level"), io.line(f"{folder}/size")
        kind = CACHE_KINDS.get(io.line(f"{folder}/type") or "")
        if level is None or not size or kind is None:
            continue
        sharing = frozenset(parse_cpu_list(io.line(f"{folder}/shared_cpu_list") or str(cpu)))
        line = io.number(f"{folder}/coherency_line_size")
        caches.append(
            CacheOfCpu(level=level, kind=kind, size_bytes=_kib(size), line_bytes=line, cpus=sharing)
        )
    return sorted(caches, key=lambda cache: cache.level)


def _mac_caches_of_cpu(io: SystemIO) -> list[CacheOfCpu]:
    """macOS pins no thread and names no CPU: of cores of two kinds, the smaller caches hold."""
    smallest: dict[tuple[int, str], Cache] = {}
    for cache in sorted(_mac_caches(mac_settings(io)), key=lambda cache: -cache.size_bytes):
        smallest[cache.level, cache.kind] = cache
    return [
        CacheOfCpu(level=c.level, kind=c.kind, size_bytes=c.size_bytes, line_bytes=c.line_bytes,
                   cpus=frozenset(range(c.shared_by_cores)))
        for _, c in sorted(smallest.items())
    ]  # fmt: skip


def share_caches(caches: Iterable[CacheOfCpu], used: Iterable[int]) -> dict[str, int]:
    """Bytes of each data cache that one thread has to itself while all `used` CPUs work."""
    busy = set(used)
    return {
        f"l{cache.level}": cache.size_bytes // max(1, len(cache.cpus & busy))
        for cache in caches
        if cache.kind != "instruction" and cache.size_bytes > 0
    }


def _linux_caches(io: SystemIO, cores: Mapping[int, str]) -> tuple[Cache, ...]:
    """Caches of one level, size and way of sharing are one entry, as on processors of two kinds."""
    every = {cache for cpu in cores for cache in read_caches(io, cpu)}
    alike = Counter(
        (c.level, c.kind, c.size_bytes, c.line_bytes,
         len({cores.get(other, str(other)) for other in c.cpus}))
        for c in every
    )  # fmt: skip
    caches = [
        Cache(level=level, kind=kind, size_bytes=size, line_bytes=line, shared_by_cores=users,
              instances=instances)
        for (level, kind, size, line, users), instances in alike.items()
    ]  # fmt: skip
    return tuple(sorted(caches, key=lambda cache: (cache.level, cache.kind, -cache.size_bytes)))


def _kib(size: str) -> int:
    """`1024K`: here the kernel counts by powers of 1024."""
    return parse_bytes(f"{size}iB" if size[-1] in "KMG" else size)


def describe_numa(io: SystemIO) -> tuple[NumaNode, ...]:
    """The nodes of Linux; a Mac has none."""
    return tuple(
        NumaNode(
            index=index,
            cpus=parse_cpu_list(io.read(f"{NODES}/node{index}/cpulist") or ""),
            memory_bytes=parse_meminfo(io.read(f"{NODES}/node{index}/meminfo") or "").get(
                "MemTotal"
            ),
            distances=tuple(
                int(part) for part in (io.line(f"{NODES}/node{index}/distance") or "").split()
            ),
        )
        for index in parse_cpu_list(io.read(f"{NODES}/online") or "")
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
