"""The records of processor and memory. None where the system does not say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
