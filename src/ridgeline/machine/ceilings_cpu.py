"""The ceilings of the CPU: arithmetic, every level of memory, starting work.

First a curve of bandwidth over the working set shows which set of each cache is fastest. Then
everything is sampled by turns: each round takes one short sample of every ceiling, so that a
neighbour who keeps the machine busy for a second costs each of them a few samples and none of
them its best.

Copy and triad count the bytes read plus the bytes written; what a cache fetches only to overwrite
it is not counted. A working set is that of all threads together, all arrays included.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import perf_counter
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
    choose_kernels,
)
from ridgeline.machine.passport import ONE_CORE, Ceiling, Missing
from ridgeline.machine.sampling import best_of_rounds, in_rounds, rate_probe, time_calls
from ridgeline.machine.system import SystemIO, find_limits
from ridgeline.provenance import read_text
from ridgeline.records import Conditions
from ridgeline.sensors.meters import SYS, RaplMeter, cpufreq_hz, temperature_c, text_of
from ridgeline.sensors.sampler import summarise_conditions
from ridgeline.units import format_bytes

DEVICE = "cpu"
NO_INSTRUCTION = "this processor, or its compiler, has no instructions for it"
INSTRUCTIONS = {  # that a kernel needs
    "vector_fp16": "AVX512-FP16 or Arm's half-precision vectors",
    "vector_bf16": "AVX512-BF16 or Arm's BF16",
    "vector_int8": "AVX512-VNNI, AVX-VNNI or Arm's DotProd",
    "tiles_bf16": "AMX",
    "tiles_int8": "AMX",
}
TORCH_NAMES = {"fp32": "float32", "fp64": "float64", "bf16": "bfloat16"}
UNDESCRIBED_BYTES = 2**28  # the largest working set where no cache is described
LAUNCHES, DISPATCHES = 100, 500  # samples, and calls in one of them

Progress = Callable[[str], None]
Probes = dict[str, tuple[Callable[[], float], dict[str, Any]]]  # a probe, and fields of its ceiling


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is done."""

    curve_rounds: int
    per_octave: int
    rounds: int
    longest_product_s: float  # larger matrices than the first that takes longer are not tried

    @property
    def steps(self) -> int:
        """How often progress is reported: the kernels, the curve, products, rounds, launches."""
        return 1 + self.curve_rounds + len(TORCH_NAMES) + self.rounds + 1


QUICK = Plan(curve_rounds=4, per_octave=2, rounds=25, longest_product_s=0.03)
FULL = Plan(curve_rounds=12, per_octave=4, rounds=120, longest_product_s=0.1)


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
    candidates = build_kernels()
    cpus = choose_cpus()
    caches = read_caches(SystemIO(), cpus[0])
    described = share_caches(caches, cpus)
    alone_bytes = _limit_bytes(share_caches(caches, cpus[:1]), 1) // 2
    team_of_all = Team(cpus, _limit_bytes(described, len(cpus)), alone_bytes)
    with team_of_all as team, import_torch(len(cpus)) as torch:
        kernels = choose_kernels(team, candidates)
        progress("CPU kernels")
        clock = None
        if "cycles" in kernels:  # of x86 and Arm only
            clock = Probe(team, kernels["cycles"], "cycles", threads=1, sample_s=2e-4)
        measurement = CpuCeilings(
            plan=QUICK if quick else FULL,
            team=team,
            kernels=kernels,
            torch=torch,
            watch=Watch(cpus, cycles_per_s=clock),
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

Curve = Sequence[tuple[int, float]]  # working set of one thread in bytes, rate; by size
SMALLEST_BYTES = 4096
DRAM_FACTOR = 4  # a set of this many last-level caches is in DRAM


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Where one level of memory is to be measured, in bytes per thread."""

    name: str
    first_bytes: int
    last_bytes: int
    described_bytes: int | None  # this thread's share of the cache; None for DRAM


def list_levels(described: Mapping[str, int]) -> list[Level]:
    """The described caches, each where the nearer one cannot help, and DRAM."""
    levels = []
    below_bytes = 0
    for name, size_bytes in described.items():
        first, last = 3 * below_bytes or SMALLEST_BYTES, int(0.8 * size_bytes)
        if last < 1.2 * first:  # caches of nearly one size
            first, last = int(1.25 * below_bytes), int(0.95 * size_bytes)
        levels.append(
            Level(name=name, first_bytes=first, last_bytes=last, described_bytes=size_bytes)
        )
        below_bytes = size_bytes
    dram = Level(name="dram", first_bytes=DRAM_FACTOR * below_bytes, last_bytes=2**62,
                 described_bytes=None)  # fmt: skip
    return [*levels, dram]


def size_grid(last_bytes: int, *, per_octave: int) -> list[int]:
    """Working sets from small to large, `per_octave` to each doubling, in whole KiB."""
    steps = math.ceil(per_octave * math.log2(max(2, last_bytes / SMALLEST_BYTES)))
    sizes = (SMALLEST_BYTES * 2 ** (step / per_octave) for step in range(steps + 1))
    return sorted({round(size / 1024) * 1024 for size in sizes})


def best_size(curve: Curve, level: Level) -> int:
    """The working set of this level that was fastest; of DRAM the largest, which no cache helps."""
    if level.name == "dram":
        return max(size for size, _ in curve)
    inside = [point for point in curve if level.first_bytes <= point[0] <= level.last_bytes]
    if not inside:  # a level narrower than the grid
        middle = math.sqrt(level.first_bytes * level.last_bytes)
        return min((size for size, _ in curve), key=lambda size: abs(math.log(size / middle)))
    return max(inside, key=lambda point: point[1])[0]


# ---------------------------------------------------------------- conditions


class Watch:
    """Notes the conditions of each thing that is measured, sample by sample."""

    def __init__(
        self,
        cpus: Sequence[int],
        *,
        cycles_per_s: Callable[[], float] | None = None,
        root: Path = SYS,
    ) -> None:
        self.meter = RaplMeter(root)
        self._cpus, self._cycles_per_s, self._root = cpus, cycles_per_s, root
        self._notes: dict[Hashable, list[Conditions]] = defaultdict(list)
        self._joules: defaultdict[Hashable, float] = defaultdict(float)
        self._seconds: defaultdict[Hashable, float] = defaultdict(float)
        self._before = self._look()

    def note(self, key: Hashable) -> None:
        """What happened since the last note, and how things are now, belongs to `key`."""
        (start_s, start_j, throttled), (end_s, end_j, throttled_now) = self._before, self._look()
        if start_j is not None and end_j is not None:
            self._joules[key] += end_j - start_j
            self._seconds[key] += end_s - start_s
        seen = Conditions(
            clock_hz=self.clock_hz(),
            temperature_c=temperature_c(self._root),
            throttle_reasons=("thermal",) if throttled_now > throttled else (),
        )
        self._notes[key].append(seen)
        self._before = self._look()

    def conditions(self, key: Hashable) -> Conditions:
        """The middle of what was noted for `key`, and the mean power."""
        seconds = self._seconds[key]
        power_w = self._joules[key] / seconds if seconds else None
        return replace(summarise_conditions(self._notes[key]), power_w=power_w)

    def clock_hz(self) -> float | None:
        """By cpufreq, or measured; None where neither can be."""
        clock_hz = cpufreq_hz(self._cpus, self._root)
        return self._cycles_per_s() if clock_hz is None and self._cycles_per_s else clock_hz

    def _look(self) -> tuple[float, float | None, int]:
        """The time, joules so far, and how often heat has slowed the package down."""
        folder = self._root / "devices" / "system" / "cpu" / f"cpu{self._cpus[0]}"
        text = text_of(folder / "thermal_throttle" / "package_throttle_count").strip()
        return perf_counter(), self.meter.energy_j(), int(text) if text.isdigit() else 0


# ---------------------------------------------------------------- one measurement


@dataclass(slots=True, kw_only=True)
class CpuCeilings:
    """The stages of one measurement; each adds to `missing` what cannot be had."""

    plan: Plan
    team: Team
    kernels: Mapping[str, Kernels]
    torch: Any  # None: not installed
    watch: Watch
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
        """Arithmetic and memory, sampled by turns."""
        memory = self._make_memory_probes(described)
        matrices = self._make_matrix_probes()
        probes = {**self._make_compute_probes(), **matrices, **memory}
        samples = in_rounds(
            {key: probe for key, (probe, _) in probes.items()},
            rounds=self.plan.rounds,
            after_probe=self.watch.note,
            after_round=lambda: self.progress("CPU ceilings"),
        )
        ceilings: dict[tuple[str, ...], Ceiling] = {}
        for key, (_, fields) in probes.items():
            conditions = self.watch.conditions(key)
            new = Ceiling(device=DEVICE, samples=samples[key], conditions=conditions, **fields)
            if new.key not in ceilings or new.best > ceilings[new.key].best:
                ceilings[new.key] = new  # streaming stores where they win, tiles against torch
        return list(ceilings.values())

    def _miss(self, what: str, reason: str) -> None:
        self.missing.append(Missing(what=f"CPU {what}", reason=reason))

    # ------------------------------------------------------------ arithmetic

    def _make_compute_probes(self) -> Probes:
        """Chains of independent multiply-adds, on all cores and on one."""
        probes: Probes = {}
        for name, (path, precision, accumulator) in COMPUTE_KERNELS.items():
            kernels = self.kernels.get(name)
            if kernels is None:
                what = f"{precision} {'tiles' if path == 'matrix' else 'vectors'}"
                self._miss(what, f"{NO_INSTRUCTION}: {INSTRUCTIONS[name]}")
                continue
            what = "tile products" if path == "matrix" else "multiply-add chains"
            for threads in self.thread_counts:
                probes[f"{name}/{threads}"] = (
                    Probe(self.team, kernels, name, threads=threads),
                    {"kind": "compute", "path": path, "precision": precision,
                     "accumulator": accumulator, "threads": threads,
                     "what": ONE_CORE if threads < self.threads else None,
                     "how": f"{what}, {kernels.how}"},
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
        """The curve, the levels in it, and a probe for each level and pattern."""
        if not described:
            self._miss("bandwidth of caches", "the system does not describe them")
        curves = self._measure_curves()
        probes: Probes = {}
        for level in list_levels(described):
            for pattern in PATTERNS:
                size_bytes = best_size(curves[pattern], level)
                others = DRAM_KERNELS[pattern] if level.name == "dram" else ()
                for name in (f"memory_{pattern}", *others):
                    for threads in self.thread_counts if name in self.kernels else ():
                        key = f"{level.name}/{name}/{threads}"
                        probes[key] = self._make_memory_probe(
                            name, level, pattern, size_bytes, threads
                        )
        return probes

    def _make_memory_probe(
        self, name: str, level: Level, pattern: str, size_bytes: int, threads: int
    ) -> tuple[Probe, dict[str, Any]]:
        """A kernel on all cores or on one, which alone has all of the last cache to itself."""
        is_alone = threads < self.threads
        if is_alone and level.name == "dram":
            size_bytes = self.team.bytes_of_first
        how = [self.kernels[name].how, f"{format_bytes(size_bytes)} a thread"]
        if "_nt" in name:
            how.insert(1, "non-temporal stores")
        if name.endswith("_split"):
            how.insert(1, "eight streams a thread")
        if level.described_bytes is not None:
            share = format_bytes(level.described_bytes)
            how.append(f"a thread's share of the described cache {share}")
        fields = {
            "kind": "bandwidth", "level": level.name, "pattern": pattern, "threads": threads,
            "what": ONE_CORE if is_alone else None, "working_set_bytes": size_bytes * threads,
            "how": ", ".join(how),
        }  # fmt: skip
        probe = Probe(self.team, self.kernels[name], name, threads=threads, size_bytes=size_bytes)
        return probe, fields

    def _measure_curves(self) -> dict[str, Curve]:
        """Best rate by working set of one thread, for each pattern."""
        sizes = size_grid(self.team.bytes_per_thread, per_octave=self.plan.per_octave)
        probes = {
            (pattern, size): Probe(self.team, self.kernels[f"memory_{pattern}"],
                                   f"memory_{pattern}", threads=self.threads, size_bytes=size,
                                   sample_s=1e-3)
            for size in sizes
            if size <= self.team.bytes_per_thread
            for pattern in PATTERNS
        }  # fmt: skip
        samples = in_rounds(probes, rounds=self.plan.curve_rounds,
                            after_round=lambda: self.progress("CPU memory curve"))  # fmt: skip
        curves: dict[str, list[tuple[int, float]]] = {pattern: [] for pattern in PATTERNS}
        for (pattern, size), rates in samples.items():
            curves[pattern].append((size, max(rates)))
        return {**curves}

    # ------------------------------------------------------------ launches

    def measure_dispatch(self) -> list[Ceiling]:
        """Seconds to start an operator of torch that has nothing to do."""
        torch, what = self.torch, "eager dispatch"
        self.progress("CPU launch")
        if torch is None:
            return []
        a, b, c = (torch.zeros(1) for _ in range(3))
        samples = tuple(
            time_calls(lambda: torch.add(a, b, out=c), DISPATCHES) / DISPATCHES
            for _ in range(LAUNCHES)
        )
        self.watch.note(what)
        return [
            Ceiling(kind="launch", device=DEVICE, samples=samples, what=what, threads=1,
                    how=f"torch.add of one element, out given, mean of {DISPATCHES} calls",
                    conditions=self.watch.conditions(what))
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
