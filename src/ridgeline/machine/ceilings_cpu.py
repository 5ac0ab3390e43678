"""The ceilings of the CPU: arithmetic, every level of memory, starting work, power.

First a curve of bandwidth over the working set shows which set of each cache is fastest. Then
everything is sampled by turns: each round takes one short sample of every ceiling, so that a
neighbour who keeps the machine busy for a second costs each of them a few samples and none of
them its best.

Copy and triad count the bytes read plus the bytes written; what a cache fetches only to overwrite
it is not counted. A working set is that of all threads together, all arrays included.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter, sleep
from typing import Any

from ridgeline.machine.cpu import read_caches, share_caches
from ridgeline.machine.cpu_kernels import (
    COMPUTE_KERNELS,
    DRAM_KERNELS,
    PATTERNS,
    BuildError,
    CKernels,
    Kernels,
    Probe,
    best_product,
    c_kernels,
    choose,
    matrix_precisions,
    numpy_kernels,
    processor,
    torch_threads,
)
from ridgeline.machine.cpu_threads import Team, Watch, cpus_to_use
from ridgeline.machine.passport import ONE_CORE, Ceiling, Missing
from ridgeline.machine.sampling import LEAST_SAMPLES, in_rounds, time_calls
from ridgeline.machine.system import SystemIO, find_limits
from ridgeline.sensors.conditions import Conditions
from ridgeline.units import format_bytes

DEVICE = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is done; `steps` is how often progress is told."""

    curve_rounds: int
    per_octave: int
    rounds: int
    power_samples: int

    @property
    def steps(self) -> int:
        return sum(self.stages().values())

    def stages(self) -> dict[str, int]:
        """The steps of each stage, in order."""
        return {
            "kernels": 1,
            "memory curve": self.curve_rounds,
            "matrix shapes": 3,
            "ceilings": self.rounds,
            "launch": 2,
            "power": 3,
        }


@dataclass(slots=True, kw_only=True)
class Session:
    """What the stages of one measurement share."""

    plan: Plan
    quick: bool
    cpus: tuple[int, ...]
    team: Team
    kernels: Mapping[str, Kernels]
    sources: Sequence[Kernels]
    watch: Watch
    missing: list[Missing] = field(default_factory=list)

    @property
    def threads(self) -> int:
        return len(self.cpus)


@contextmanager
def stage(plan: Plan, name: str, progress: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Tells progress as often as the plan says, whatever of the stage could be done."""
    left = plan.stages()[name]

    def step() -> None:
        nonlocal left
        if left > 0:
            left -= 1
            progress(f"CPU {name}")

    yield step
    while left > 0:
        step()


LAUNCH_LIMIT_S = 3.0

Launch = tuple[str, str, Callable[[], float] | None]  # what; how, or why not; seconds of one


def measure_launches(session: Session, step: Callable[[], None]) -> list[Ceiling]:
    """Seconds to start something that has nothing to do; what cannot be had is noted."""
    ceilings = []
    for what, how, sample in (_eager_dispatch(), _parallel_region(session)):
        if sample is not None:
            samples = _timed_samples(sample)
            session.watch.note(what)
            ceilings.append(
                Ceiling(kind="launch", device=DEVICE, samples=samples, how=how, what=what,
                        threads=1 if what == "eager dispatch" else session.threads,
                        conditions=session.watch.conditions(what))
            )  # fmt: skip
        else:
            session.missing.append(Missing(what=f"CPU {what}", reason=how))
        step()
    return ceilings


def _eager_dispatch() -> Launch:
    try:
        import torch
    except ImportError:
        return "eager dispatch", "needs torch (`pip install 'ridgeline[torch]'`)", None
    a, b, c = (torch.zeros(1) for _ in range(3))
    calls = 500
    how = f"torch.add of one element, out given, mean of {calls} calls"
    return (
        "eager dispatch",
        how,
        lambda: time_calls(lambda: torch.add(a, b, out=c), calls) / calls,
    )


def _parallel_region(session: Session) -> Launch:
    what, regions = "parallel region", 20
    source = next((s for s in session.sources if isinstance(s, CKernels)), None)
    if source is None:
        return what, "needs a C compiler", None
    if source.parallel_region_s(session.threads, 1) is None:
        return what, "the C compiler has no OpenMP", None
    how = f"empty OpenMP region of {session.threads} threads, mean of {regions}"
    return what, how, lambda: source.parallel_region_s(session.threads, regions) or 0.0


def _timed_samples(sample: Callable[[], float]) -> tuple[float, ...]:
    """A hundred samples, or as many as fit in some seconds, but never too few."""
    start_s = perf_counter()
    taken: list[float] = []
    while len(taken) < LEAST_SAMPLES or (
        len(taken) < 100 and perf_counter() - start_s < LAUNCH_LIMIT_S
    ):
        taken.append(sample())
    return tuple(taken)


def measure_powers(session: Session, step: Callable[[], None]) -> list[Ceiling]:
    """Watts while idle, computing and moving memory; nothing where there is no meter."""
    meter = session.watch.meter
    if meter.reason is not None:
        session.missing.append(Missing(what="CPU power", reason=meter.reason))
        return []
    loads: dict[str, tuple[str, Callable[[], object]]] = {"idle": ("sleeping", lambda: sleep(0.01))}
    for what, name in (("compute", "vector_fp32"), ("memory", "memory_read")):
        kernels = session.kernels.get(name)
        if kernels is not None:
            size_bytes = session.team.bytes_per_thread if what == "memory" else 0
            probe = Probe(session.team, kernels, name, threads=session.threads,
                          size_bytes=size_bytes, sample_s=0.01)  # fmt: skip
            loads[what] = (f"{name}, {kernels.how}", probe)
    ceilings = []
    for what, (how, load) in loads.items():
        samples = _watts(meter.energy_j, load, session.plan.power_samples)
        session.watch.note(what)
        if samples:
            ceilings.append(
                Ceiling(kind="power", device=DEVICE, samples=samples, what=what,
                        how=f"RAPL, all packages, without the memory; {how}",
                        threads=None if what == "idle" else session.threads,
                        conditions=Conditions(clock_hz=session.watch.conditions(what).clock_hz))
            )  # fmt: skip
        step()
    return ceilings


def _watts(
    energy_j: Callable[[], float | None], load: Callable[[], object], samples: int
) -> tuple[float, ...]:
    """Mean power of one tenth of a second each, under the load."""
    watts = []
    for _ in range(samples):
        start_j, start_s = energy_j(), perf_counter()
        while perf_counter() - start_s < 0.1:
            load()
        end_j, end_s = energy_j(), perf_counter()
        if start_j is not None and end_j is not None:
            watts.append((end_j - start_j) / (end_s - start_s))
    return tuple(watts)


NEEDS_KERNELS = "needs a C compiler: install gcc or clang"
NO_INSTRUCTION = {
    "vector_fp16": "AVX512-FP16 or Arm's half-precision vectors",
    "vector_bf16": "AVX512-BF16 or Arm's BF16",
    "vector_int8": "AVX512-VNNI, AVX-VNNI or Arm's DotProd",
    "tiles_bf16": "AMX",
    "tiles_int8": "AMX",
}
UNDESCRIBED_BYTES = 2**28  # the largest working set where no cache is described


QUICK = Plan(curve_rounds=4, per_octave=2, rounds=25, power_samples=10)
FULL = Plan(curve_rounds=12, per_octave=4, rounds=120, power_samples=20)


def cpu_steps(quick: bool) -> int:
    """How often `measure_cpu` will call `progress`."""
    return (QUICK if quick else FULL).steps


def measure_cpu(
    *,
    quick: bool,
    progress: Callable[[str], None] = lambda text: None,
    threads: int | None = None,
) -> tuple[list[Ceiling], list[Missing]]:
    """All ceilings of the CPU, and what could not be measured with its reason.

    One thread for each core that this process may use, unless `threads` says otherwise. Takes
    about two minutes, or twenty seconds if `quick`.
    """
    plan = QUICK if quick else FULL
    cpus = cpus_to_use(threads)
    caches = read_caches(SystemIO(), cpus[0])
    described = share_caches(caches, cpus)
    alone_bytes = _bytes_per_thread(share_caches(caches, cpus[:1]), 1) // 2
    sources, missing = find_kernels()
    with Team(cpus, _bytes_per_thread(described, len(cpus)), alone_bytes) as team:
        with stage(plan, "kernels", progress):
            kernels = choose(team, sources, len(cpus))
        cycles = kernels.get("cycles")
        clock = Probe(team, cycles, "cycles", threads=1, sample_s=2e-4) if cycles else None
        session = Session(
            plan=plan, quick=quick, cpus=cpus, team=team, kernels=kernels, sources=sources,
            watch=Watch(cpus, cycles_per_s=clock), missing=missing,
        )  # fmt: skip
        with torch_threads(len(cpus)):
            ceilings = _ceilings(session, described, progress)
            with stage(plan, "launch", progress) as step:
                ceilings += measure_launches(session, step)
            with stage(plan, "power", progress) as step:
                ceilings += measure_powers(session, step)
    return ceilings, missing


def find_kernels() -> tuple[list[Kernels], list[Missing]]:
    """The kernels in C; numpy's, and the reason, where they cannot be compiled."""
    try:
        return [*c_kernels()], []
    except BuildError as error:
        reason = f"{error}; {NEEDS_KERNELS}"
        return [numpy_kernels()], [Missing(what="CPU kernels in C", reason=reason)]


def _ceilings(
    session: Session, described: Mapping[str, int], progress: Callable[[str], None]
) -> list[Ceiling]:
    plan = session.plan
    with stage(plan, "memory curve", progress) as step:
        memory = _memory_probes(session, described, step)
    with stage(plan, "matrix shapes", progress) as step:
        matrices = _matrix_probes(session, step)
    probes = {**_compute_probes(session), **matrices, **memory}
    with stage(plan, "ceilings", progress) as step:
        samples = in_rounds(
            {key: probe for key, (probe, _) in probes.items()},
            rounds=plan.rounds,
            after_probe=session.watch.note,
            after_round=step,
        )
    ceilings: dict[tuple[str, ...], Ceiling] = {}
    for key, (_, fields) in probes.items():
        found = Ceiling(
            device=DEVICE, samples=samples[key], conditions=session.watch.conditions(key), **fields
        )
        if found.key not in ceilings or found.best > ceilings[found.key].best:
            ceilings[found.key] = found  # streaming stores where they win, tiles against torch
    return list(ceilings.values())


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


Probes = dict[str, tuple[Callable[[], float], dict[str, Any]]]  # a probe, and fields of its ceiling


def _compute_probes(session: Session) -> Probes:
    """Chains of independent multiply-adds, on all cores and on one."""
    probes: Probes = {}
    for name, (path, precision, accumulator) in COMPUTE_KERNELS.items():
        kernels = session.kernels.get(name)
        if kernels is None:
            session.missing.append(_no_compute(session, name, path, precision))
            continue
        what = "tile products" if path == "matrix" else "multiply-add chains"
        for threads in sorted({session.threads, 1}, reverse=True):
            probes[f"{name}/{threads}"] = (
                Probe(session.team, kernels, name, threads=threads),
                {"kind": "compute", "path": path, "precision": precision,
                 "accumulator": accumulator, "threads": threads,
                 "what": ONE_CORE if threads < session.threads else None,
                 "how": f"{what}, {kernels.how}"},
            )  # fmt: skip
    return probes


def _no_compute(session: Session, name: str, path: str, precision: str) -> Missing:
    what = f"CPU {precision} {'tiles' if path == 'matrix' else 'vectors'}"
    has_c = any(isinstance(source, CKernels) for source in session.sources)
    if name not in NO_INSTRUCTION or not has_c:
        return Missing(what=what, reason=NEEDS_KERNELS)
    reason = f"this processor, or its compiler, has no instructions for it: {NO_INSTRUCTION[name]}"
    return Missing(what=what, reason=reason)


def _matrix_probes(session: Session, step: Callable[[], None]) -> Probes:
    probes: Probes = {}
    wanted = matrix_precisions(set(processor().split()))
    for precision in wanted:
        found = best_product(precision, quick=session.quick)
        step()
        if found is None:
            session.missing.append(
                Missing(what=f"CPU {precision} matrix products", reason="needs torch")
            )
            continue
        probes[f"matrix/{precision}"] = (
            found.probe,
            {"kind": "compute", "path": "matrix", "precision": precision,
             "accumulator": "fp64" if precision == "fp64" else "fp32",
             "threads": session.threads, "how": found.how},
        )  # fmt: skip
    if "bf16" not in wanted:
        reason = "no AVX512-BF16, AMX or Arm BF16: emulated, it is over 100 times slower than fp32"
        session.missing.append(Missing(what="CPU bf16 matrix products", reason=reason))
    return probes


def _memory_probes(
    session: Session, described: Mapping[str, int], step: Callable[[], None]
) -> Probes:
    """The curve, the levels in it, and a probe for each level and pattern."""
    patterns = [p for p in PATTERNS if f"memory_{p}" in session.kernels]
    curves = _curves(session, patterns, step)
    levels = list_levels(described)
    if any(kernels.how.startswith("numpy") for kernels in session.sources):
        levels = [level for level in levels if level.name in ("l3", "dram")]  # of numpy's reach
    probes: Probes = {}
    for level in levels:
        for pattern in patterns:
            size_bytes = best_size(curves[pattern], level)
            others = DRAM_KERNELS[pattern] if level.name == "dram" else ()
            for name in (f"memory_{pattern}", *others):
                kernels = session.kernels.get(name)
                if kernels is None:
                    continue
                for threads in sorted({session.threads, 1}, reverse=True):
                    probes[f"{level.name}/{name}/{threads}"] = _memory_probe(
                        session, kernels, name, level, pattern, size_bytes, threads
                    )
    session.missing += _no_memory(levels, described, patterns)
    return probes


def _memory_probe(
    session: Session, kernels: Kernels, name: str, level: Level, pattern: str, size_bytes: int,
    threads: int,
) -> tuple[Probe, dict[str, Any]]:  # fmt: skip
    """A kernel on all cores or on one, which alone has all of the last cache to itself."""
    is_alone = threads < session.threads
    if is_alone and level.name == "dram":
        size_bytes = session.team.bytes_of_first
    fields = {
        "kind": "bandwidth", "level": level.name, "pattern": pattern, "threads": threads,
        "what": ONE_CORE if is_alone else None, "working_set_bytes": size_bytes * threads,
        "how": _memory_how(kernels, name, level, size_bytes),
    }  # fmt: skip
    return Probe(session.team, kernels, name, threads=threads, size_bytes=size_bytes), fields


def _curves(
    session: Session, patterns: Sequence[str], step: Callable[[], None]
) -> dict[str, Curve]:
    """Best rate by working set of one thread, for each pattern."""
    sizes = size_grid(session.team.bytes_per_thread, per_octave=session.plan.per_octave)
    probes = {
        (pattern, size): Probe(session.team, session.kernels[f"memory_{pattern}"],
                               f"memory_{pattern}", threads=session.threads, size_bytes=size,
                               sample_s=1e-3)
        for size in sizes
        if size <= session.team.bytes_per_thread
        for pattern in patterns
    }  # fmt: skip
    samples = in_rounds(probes, rounds=session.plan.curve_rounds, after_round=step)
    return {
        pattern: [(size, max(taken)) for (kind, size), taken in samples.items() if kind == pattern]
        for pattern in patterns
    }


def _memory_how(kernels: Kernels, name: str, level: Level, size_bytes: int) -> str:
    parts = [kernels.how, f"{format_bytes(size_bytes)} a thread"]
    if "_nt" in name:
        parts.insert(1, "non-temporal stores")
    if name.endswith("_split"):
        parts.insert(1, "eight streams a thread")
    if level.described_bytes is not None:
        parts.append(
            f"a thread's share of the described cache {format_bytes(level.described_bytes)}"
        )
    return ", ".join(parts)


def _no_memory(
    levels: Sequence[Level], described: Mapping[str, int], patterns: Sequence[str]
) -> list[Missing]:
    measured = {level.name for level in levels}
    expected = [*(described or ("l1", "l2", "l3")), "dram"]
    reason = (
        NEEDS_KERNELS
        if len(patterns) < len(PATTERNS)
        else "the system does not describe this cache"
    )
    missing = [
        Missing(what=f"CPU {name} bandwidth", reason=reason)
        for name in expected
        if name not in measured
    ]
    unreached = [p for p in PATTERNS if p not in patterns]
    return missing + [Missing(what=f"CPU {p} bandwidth", reason=NEEDS_KERNELS) for p in unreached]


def _bytes_per_thread(described: Mapping[str, int], threads: int) -> int:
    """The largest working set: well beyond the caches, and at most half of the free memory.

    A container's limit is not in what the system calls free, and ends the process when reached.
    """
    import psutil

    last_bytes = max(described.values(), default=0)
    wanted = 2 * DRAM_FACTOR * last_bytes or UNDESCRIBED_BYTES / threads
    limit_bytes = find_limits().memory_bytes
    free_bytes = min(psutil.virtual_memory().available, limit_bytes or math.inf)
    return int(max(2**20, min(max(wanted, 2**24), free_bytes / 2 / threads)))
