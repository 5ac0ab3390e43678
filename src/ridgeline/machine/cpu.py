"""The processor and its caches: records, and one reader each for Linux and macOS."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ridgeline.machine.system import Limits, SystemIO, parse_cpu_list, parse_pairs
from ridgeline.provenance import cpu_name
from ridgeline.serialize import Index
from ridgeline.units import parse_bytes

CPUS = "/sys/devices/system/cpu"
EXTENSIONS = (  # that decide how fast arithmetic can be: beginnings of names in /proc/cpuinfo
    "sse4_2", "avx", "f16c", "fma", "amx", "asimd", "bf16", "i8mm", "sve", "sme",
)  # fmt: skip
CPU_FLAGS = {  # as /proc/cpuinfo has them, x86 and Arm; without one a format is emulated
    "bf16": ("avx512_bf16", "amx_bf16", "bf16"),
    "fp16": ("avx512_fp16", "fphp"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """All caches of one level that are alike."""

    level: Index
    kind: str = "unified"  # or "data", "instruction"
    size_bytes: Index = 0  # of one of them
    shared_by_cores: int = 1  # physical cores that use one of them
    instances: Index = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """The processor of the machine; all sockets hold the same one."""

    model: str = ""
    architecture: str = ""  # "x86_64", "aarch64", "arm64"
    sockets: int | None = None
    physical_cores: int | None = None
    logical_cores: int | None = None
    usable_cores: int | None = None  # physical ones, after affinity and the container's limits
    usable_threads: int | None = None  # logical ones, after the same
    extensions: tuple[str, ...] = ()
    max_clock_hz: float | None = None
    current_clock_hz: float | None = None
    governor: str | None = None
    caches: tuple[Cache, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheOfCpu:
    """One cache as one logical CPU sees it."""

    level: int
    kind: str
    size_bytes: int
    cpus: frozenset[int]  # logical ones that share it


def describe_cpu(io: SystemIO, limits: Limits) -> Cpu:
    """The processor, on Linux or macOS."""
    model = cpu_name(run=io.run, read=io.read, system=io.system)
    return _describe_mac(io, model) if io.system == "Darwin" else _describe_linux(io, model, limits)


def has_arithmetic(precision: str, cpuinfo: str) -> bool:
    """Whether the processor calculates in bf16 or fp16; emulated, they are 100 times slower."""
    return not {*cpuinfo.split()}.isdisjoint(CPU_FLAGS[precision])


def read_caches(io: SystemIO, cpu: int) -> list[CacheOfCpu]:
    """The caches of a logical CPU, nearest first; half described ones are left out."""
    if io.system == "Darwin":  # which pins no thread and names no CPU
        described = _read_mac_caches(parse_pairs(io.run(("sysctl", "hw")) or ""))
        return [CacheOfCpu(level=c.level, kind=c.kind, size_bytes=c.size_bytes,
                           cpus=frozenset(range(c.shared_by_cores)))
                for c in described]  # fmt: skip
    caches = []
    for folder in io.find(f"{CPUS}/cpu{cpu}/cache/index*"):
        level, size, kind = (io.line(f"{folder}/{name}") for name in ("level", "size", "type"))
        if not level or not size or not kind:
            continue
        size = f"{size}iB" if size[-1] in "KMG" else size  # here `K` is 1024
        sharing = parse_cpu_list(io.line(f"{folder}/shared_cpu_list") or str(cpu))
        caches.append(
            CacheOfCpu(level=int(level), kind=kind.lower(), size_bytes=parse_bytes(size),
                       cpus=frozenset(sharing))
        )  # fmt: skip
    return sorted(caches, key=lambda cache: cache.level)


def share_caches(caches: Iterable[CacheOfCpu], used: Iterable[int]) -> dict[str, int]:
    """Bytes of each data cache that one thread has to itself while all `used` CPUs work."""
    busy = set(used)
    return {
        f"l{cache.level}": cache.size_bytes // max(1, len(cache.cpus & busy))
        for cache in caches
        if cache.kind != "instruction" and cache.size_bytes > 0
    }


# ---------------------------------------------------------------- Linux


def _describe_linux(io: SystemIO, model: str, limits: Limits) -> Cpu:
    blocks = [parse_pairs(block) for block in (io.read("/proc/cpuinfo") or "").split("\n\n")]
    info = [block for block in blocks if "processor" in block]
    cpus = parse_cpu_list(io.read(f"{CPUS}/online") or "") or tuple(range(len(info)))
    cores = {cpu: find_core(io, cpu) for cpu in cpus}
    first = info[0] if info else {}
    flags = (first.get("flags") or first.get("Features") or "").split()
    allowed = [cpu for cpu in cpus if limits.allowed_cpus is None or cpu in limits.allowed_cpus]
    usable = limits.whole_cpus(len(allowed))
    packages = {io.line(f"{CPUS}/cpu{cpu}/topology/physical_package_id") for cpu in cpus}
    listed_hz = [float(row["cpu MHz"]) * 1e6 for row in info if "cpu MHz" in row]
    return Cpu(
        model=model,
        architecture=io.architecture,
        sockets=len(packages - {None, "-1"}) or None,  # -1: the firmware does not say
        physical_cores=len(set(cores.values())) or None,
        logical_cores=len(cpus) or None,
        usable_cores=min(usable, len({cores[cpu] for cpu in allowed})) or None,
        usable_threads=usable or None,
        extensions=tuple(name for name in flags if name.startswith(EXTENSIONS)),
        max_clock_hz=_read_clock_hz(io, "cpuinfo_max_freq"),
        current_clock_hz=_read_clock_hz(io, "scaling_cur_freq") or max(listed_hz, default=None),
        governor=io.line(f"{CPUS}/cpu0/cpufreq/scaling_governor"),
        caches=_read_linux_caches(io, cores),
    )


def find_core(io: SystemIO, cpu: int) -> str:
    """The physical core of a logical CPU: two threads of a core have equal names."""
    return io.line(f"{CPUS}/cpu{cpu}/topology/thread_siblings_list") or str(cpu)


def _read_clock_hz(io: SystemIO, name: str) -> float | None:
    """A clock of the first core; the kernel gives kHz."""
    khz = io.number(f"{CPUS}/cpu0/cpufreq/{name}")
    return None if khz is None else khz * 1e3


def _read_linux_caches(io: SystemIO, cores: Mapping[int, str]) -> tuple[Cache, ...]:
    """Caches of one level, size and way of sharing are one entry, as on processors of two kinds."""
    every = {cache for cpu in cores for cache in read_caches(io, cpu)}
    alike = Counter(
        Cache(level=c.level, kind=c.kind, size_bytes=c.size_bytes,
              shared_by_cores=len({cores.get(other, str(other)) for other in c.cpus}))
        for c in every
    )  # fmt: skip
    caches = [replace(cache, instances=count) for cache, count in alike.items()]
    return tuple(sorted(caches, key=lambda cache: (cache.level, cache.kind, -cache.size_bytes)))


# ---------------------------------------------------------------- macOS on Apple chips

MAC_CACHES = ((1, "data", "l1d"), (1, "instruction", "l1i"), (2, "unified", "l2"))


def _describe_mac(io: SystemIO, model: str) -> Cpu:
    settings = parse_pairs(io.run(("sysctl", "hw")) or "")
    physical, logical = (_number(settings, f"hw.{kind}cpu") for kind in ("physical", "logical"))
    return Cpu(
        model=model,
        architecture=io.architecture,
        sockets=_number(settings, "hw.packages"),
        physical_cores=physical,
        logical_cores=logical,
        usable_cores=physical,
        usable_threads=logical,
        caches=_read_mac_caches(settings),
    )


def _number(settings: Mapping[str, str], name: str) -> int | None:
    text = settings.get(name, "")
    return int(text) if text.isdigit() else None


def _read_mac_caches(settings: Mapping[str, str]) -> tuple[Cache, ...]:
    """Those of the faster kind of core."""
    prefix = "hw.perflevel0."
    cores = _number(settings, f"{prefix}physicalcpu") or 1
    caches = []
    for level, kind, name in MAC_CACHES:
        size_bytes = _number(settings, f"{prefix}{name}cachesize")
        users = _number(settings, f"{prefix}cpusper{name}") or 1
        if size_bytes:
            caches.append(Cache(level=level, kind=kind, size_bytes=size_bytes,
                                shared_by_cores=users, instances=-(-cores // users)))  # fmt: skip
    return tuple(caches)
