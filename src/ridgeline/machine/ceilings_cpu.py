"""The ceilings of the CPU: arithmetic, every level of memory, starting work.

Everything is sampled by turns: each round takes one short sample of every ceiling, so that a
neighbour who keeps the machine busy for a second costs each of them a few samples and none of
them its best. Caches are tried with working sets of several sizes, DRAM with several kernels; what
is fastest is the ceiling.

Copy and triad count the bytes read plus the bytes written; what a cache fetches only to overwrite
it is not counted. A working set is that of all threads together, all arrays included.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ridgeline.machine.cpu import has_arithmetic, read_caches, share_caches
from ridgeline.machine.cpu_kernels import (
    COMPUTE_KERNELS,
    DRAM_KERNELS,
    PATTERNS,
    Kernels,
    Probe,
    Team,
    build_kernels,
    choose_cpus,
)
from ridgeline.machine.passport import ONE_CORE, Ceiling, Missing
from ridgeline.machine.sampling import best_of_rounds, in_rounds, rate_probe, time_calls
from ridgeline.machine.system import SystemIO, find_limits
from ridgeline.provenance import read_text
from ridgeline.records import Conditions
from ridgeline.sensors.meters import cpu_reader
from ridgeline.sensors.sampler import summarise_conditions
from ridgeline.units import format_bytes

DEVICE = "cpu"
NO_INSTRUCTION = "this processor, or its compiler, has no instructions for it"
TORCH_NAMES = {"fp32": "float32", "fp64": "float64", "bf16": "bfloat16"}
UNDESCRIBED_BYTES = 2**28  # the largest working set where no cache is described
LAUNCHES, DISPATCHES = 100, 500  # samples, and calls in one of them

Progress = Callable[[str], None]
Probes = dict[str, tuple[Callable[[], float], dict[str, Any]]]  # a probe, and fields of its ceiling


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is done."""

    rounds: int
    longest_product_s: float  # larger matrices than the first that takes longer are not tried

    @property
    def steps(self) -> int:
        """How often progress is reported: the kernels, products, rounds, launches."""
        return 1 + len(TORCH_NAMES) + self.rounds + 1


QUICK = Plan(rounds=25, longest_product_s=0.03)
FULL = Plan(rounds=120, longest_product_s=0.1)


def cpu_steps(quick: bool) -> int:
    """How often `measure_cpu` will call `progress`."""
    return (QUICK if quick else FULL).steps


def measure_cpu(
    *, quick: bool, progress: Progress = lambda text: None
) -> tuple[list[Ceiling], list[Missing]]:
    """All ceilings of the CPU, and what could not be measured with its reason.

    One thread for each core that this process may use. Takes about two minutes, or twenty seconds
    if `quick`. BuildError where there is no C compiler.
    """
    kernels = build_kernels()
    cpus = choose_cpus()
    caches = read_caches(SystemIO(), cpus[0])
    described = share_caches(caches, cpus)
    alone_bytes = _limit_bytes(share_caches(caches, cpus[:1]), 1) // 2
    team_of_all = Team(cpus, _limit_bytes(described, len(cpus)), alone_bytes)
    with team_of_all as team, import_torch(len(cpus)) as torch:
        progress("CPU kernels")
        measurement = CpuCeilings(
            plan=QUICK if quick else FULL,
            team=team,
            kernels=kernels,
            torch=torch,
            progress=progress,
        )
        ceilings = [*measurement.measure_rates(described), *measurement.measure_dispatch()]
    return ceilings, measurement.missing


def _limit_bytes(described: Mapping[str, int], threads: int) -> int:
    """The largest working set: well beyond the caches, and at most half of the free memory.

    A container's limit is not in what the system calls free, and ends the process when reached.
    """
    import psutil

    last_bytes = max(described.values(), default=0)
    useful = 2 * DRAM_FACTOR * last_bytes or UNDESCRIBED_BYTES / threads
    limit_bytes = find_limits().memory_bytes
    free_bytes = min(psutil.virtual_memory().available, limit_bytes or math.inf)
    return int(max(2**20, min(max(useful, 2**24), free_bytes / 2 / threads)))


# ---------------------------------------------------------------- levels of memory

DRAM_FACTOR = 4  # a set of this many last-level caches is in DRAM
SHARES = (1 / 8, 1 / 4, 1 / 2, 3 / 4)  # of a cache: the working sets that are tried
BEYOND = 3  # times the nearer cache: sets in which it cannot help


def list_working_sets(described: Mapping[str, int], largest_bytes: int) -> dict[str, list[int]]:
    """Bytes of one thread to try at each level."""
    sets = {}
    below_bytes = 0
    for name, size_bytes in described.items():
        sizes = [int(share * size_bytes) for share in SHARES]
        beyond = [size for size in sizes if size >= BEYOND * below_bytes] or [sizes[-1]]
        sets[name] = [min(size, largest_bytes) for size in beyond]
        below_bytes = size_bytes
    return {**sets, "dram": [largest_bytes]}


# ---------------------------------------------------------------- one measurement


@dataclass(slots=True, kw_only=True)
class CpuCeilings:
    """The stages of one measurement; each adds to `missing` what cannot be had."""

    plan: Plan
    team: Team
    kernels: Kernels
    torch: Any  # None: not installed
    progress: Progress = lambda text: None
    missing: list[Missing] = field(default_factory=list)

    @property
    def threads(self) -> int:
        return len(self.team.cpus)

    @property
    def thread_counts(self) -> list[int]:
        """All cores, and one where there are several."""
        return sorted({self.threads, 1}, reverse=True)

    def measure_rates(self, described: Mapping[str, int]) -> list[Ceiling]:
        """Arithmetic and memory, sampled by turns; of what has equal keys the fastest."""
        matrices = self._make_matrix_probes()
        memory = self._make_memory_probes(described)
        probes = {**self._make_compute_probes(), **matrices, **memory}
        read, seen = self._make_reader(), defaultdict(list)
        samples = in_rounds(
            {key: probe for key, (probe, _) in probes.items()},
            rounds=self.plan.rounds,
            after_probe=lambda key: seen[key].append(read()),
            after_round=lambda: self.progress("CPU ceilings"),
        )
        ceilings: dict[tuple[str, ...], Ceiling] = {}
        for key, (_, fields) in probes.items():
            conditions = summarise_conditions(seen[key])
            new = Ceiling(device=DEVICE, samples=samples[key], conditions=conditions, **fields)
            if new.key not in ceilings or new.best > ceilings[new.key].best:
                ceilings[new.key] = new
        return list(ceilings.values())

    def _make_reader(self) -> Callable[[], Conditions]:
        """Reads clock and temperature; where the system tells no clock, it is measured."""
        read = cpu_reader(self.team.cpus)
        if read().clock_hz is not None or "cycles" not in self.kernels.names:
            return read
        clock = Probe(self.team, self.kernels, "cycles", threads=1, sample_s=2e-4)
        return lambda: replace(read(), clock_hz=clock())

    def _miss(self, what: str, reason: str) -> None:
        self.missing.append(Missing(what=f"CPU {what}", reason=reason))

    # ------------------------------------------------------------ arithmetic

    def _make_compute_probes(self) -> Probes:
        """Chains of independent multiply-adds, on all cores and on one."""
        probes: Probes = {}
        for name, (path, precision, accumulator) in COMPUTE_KERNELS.items():
            if name not in self.kernels.names:
                what = f"{precision} {'tiles' if path == 'matrix' else 'vectors'}"
                self._miss(what, NO_INSTRUCTION)
                continue
            what = "tile products" if path == "matrix" else "multiply-add chains"
            for threads in self.thread_counts:
                probes[f"{name}/{threads}"] = (
                    Probe(self.team, self.kernels, name, threads=threads),
                    {"kind": "compute", "path": path, "precision": precision,
                     "accumulator": accumulator, "threads": threads,
                     "what": ONE_CORE if threads < self.threads else None,
                     "how": f"{what}, {self.kernels.how}"},
                )  # fmt: skip
        return probes

    def _make_matrix_probes(self) -> Probes:
        probes: Probes = {}
        cpuinfo = read_text("/proc/cpuinfo") or ""
        if self.torch is None:
            self._miss(
                "matrix products and dispatch", "needs torch: pip install 'ridgeline[torch]'"
            )
        for precision in TORCH_NAMES if self.torch is not None else ():
            if precision == "bf16" and not has_arithmetic("bf16", cpuinfo):
                reason = "no AVX512-BF16, AMX or Arm BF16: emulated, it is over 100 times slower"
                self._miss("bf16 matrix products", f"{reason} than fp32")
            else:
                longest_s = self.plan.longest_product_s
                probe, how = find_best_product(self.torch, precision, longest_s)
                fields = {"kind": "compute", "path": "matrix", "precision": precision,
                          "accumulator": "fp64" if precision == "fp64" else "fp32",
                          "threads": self.threads, "how": how}  # fmt: skip
                probes[f"matrix/{precision}"] = (probe, fields)
            self.progress("CPU matrix shapes")
        return probes

    # ------------------------------------------------------------ memory

    def _make_memory_probes(self, described: Mapping[str, int]) -> Probes:
        """A probe for each level, pattern, kernel and working set."""
        if not described:
            self._miss("bandwidth of caches", "the system does not describe them")
        probes: Probes = {}
        for level, sizes in list_working_sets(described, self.team.bytes_per_thread).items():
            for pattern in PATTERNS:
                others = DRAM_KERNELS[pattern] if level == "dram" else ()
                for name in sorted(self.kernels.names & {f"memory_{pattern}", *others}):
                    for threads in self.thread_counts:
                        for size_bytes in sizes:
                            probe, fields = self._make_memory_probe(
                                name, level, described.get(level), size_bytes, threads
                            )
                            key = f"{level}/{name}/{threads}/{size_bytes}"
                            probes[key] = (probe, {"pattern": pattern, **fields})
        return probes

    def _make_memory_probe(
        self, name: str, level: str, described_bytes: int | None, size_bytes: int, threads: int
    ) -> tuple[Probe, dict[str, Any]]:
        """A kernel on all cores or on one, which alone has all of the last cache to itself."""
        is_alone = threads < self.threads
        if is_alone and level == "dram":
            size_bytes = self.team.bytes_of_first
        how = [self.kernels.how, f"{format_bytes(size_bytes)} a thread"]
        if "_nt" in name:
            how.insert(1, "non-temporal stores")
        if name.endswith("_split"):
            how.insert(1, "eight streams a thread")
        if described_bytes is not None:
            share = format_bytes(described_bytes)
            how.append(f"a thread's share of the described cache {share}")
        fields = {
            "kind": "bandwidth", "level": level, "threads": threads,
            "what": ONE_CORE if is_alone else None, "working_set_bytes": size_bytes * threads,
            "how": ", ".join(how),
        }  # fmt: skip
        probe = Probe(self.team, self.kernels, name, threads=threads, size_bytes=size_bytes)
        return probe, fields

    # ------------------------------------------------------------ launches

    def measure_dispatch(self) -> list[Ceiling]:
        """Seconds to start an operator of torch that has nothing to do."""
        torch = self.torch
        self.progress("CPU launch")
        if torch is None:
            return []
        a, b, c = (torch.zeros(1) for _ in range(3))
        samples = tuple(
            time_calls(lambda: torch.add(a, b, out=c), DISPATCHES) / DISPATCHES
            for _ in range(LAUNCHES)
        )
        return [
            Ceiling(kind="launch", device=DEVICE, samples=samples, what="eager dispatch", threads=1,
                    how=f"torch.add of one element, out given, mean of {DISPATCHES} calls",
                    conditions=self._make_reader()())
        ]  # fmt: skip


# ---------------------------------------------------------------- matrix products

SIDES = (384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192)
FORMS = ((1, 1, 1), (2, 2, 0.5), (1, 1, 4))  # square; a wide result; a long sum
SAMPLE_S = 0.003
SEARCH_ROUNDS = 5

Shape = tuple[int, int, int]  # M, N, K


def list_shapes() -> list[Shape]:
    """Shapes by the work they are, small first."""
    shapes = {
        (round(side * m), round(side * n), round(side * k)) for side in SIDES for m, n, k in FORMS
    }
    return sorted(shapes, key=lambda shape: (math.prod(shape), shape))


def find_best_product(
    torch: Any, precision: str, longest_s: float
) -> tuple[Callable[[], float], str]:
    """Try shapes until one product takes too long: the best one's probe, and what it runs."""
    dtype = getattr(torch, TORCH_NAMES[precision])
    probes: dict[Shape, Callable[[], float]] = {}
    for m, n, k in list_shapes():
        a, b, c = (torch.rand(size).to(dtype) for size in ((m, k), (k, n), (m, n)))
        call = partial(torch.mm, a, b, out=c)
        call()  # the first call of a shape sets things up
        time_s = min(time_calls(call, 1) for _ in range(2))
        probes[m, n, k] = rate_probe(call, 2.0 * m * n * k, sample_s=SAMPLE_S)
        if time_s > longest_s:
            break
    rates = best_of_rounds(probes, rounds=SEARCH_ROUNDS)
    best = max(rates, key=lambda shape: rates[shape])
    return probes[best], f"torch.mm {best[0]}x{best[1]}x{best[2]}"


@contextmanager
def import_torch(threads: int) -> Iterator[Any]:
    """Torch with this many threads, until the block ends; None where it is not installed."""
    try:
        import torch
    except ImportError:
        yield None
        return
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield torch
    finally:
        torch.set_num_threads(before)
