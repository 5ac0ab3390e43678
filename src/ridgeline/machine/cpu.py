"""The ceilings of the CPU: arithmetic, every level of memory, starting work, power.

First the curve of bandwidth over the working set shows where the levels are. Then everything is
sampled by turns: each round takes one short sample of every ceiling, so that a neighbour who keeps
the machine busy for a second costs each of them a few samples and none of them its best.

Copy and triad count the bytes read plus the bytes written; what a cache fetches only to overwrite
it is not counted. A working set is that of all threads together, all arrays included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter, sleep
from typing import Any

from ridgeline.machine import cpu_levels, cpu_matrix
from ridgeline.machine.ceiling import Ceiling, Conditions, Missing
from ridgeline.machine.cpu_build import BuildError, processor
from ridgeline.machine.cpu_conditions import Watch
from ridgeline.machine.cpu_cores import cpus_to_use
from ridgeline.machine.cpu_kernels import (
    COMPUTE_KERNELS,
    DRAM_KERNELS,
    PATTERNS,
    CKernels,
    Kernels,
    Probe,
    c_kernels,
    choose,
    numba_kernels,
    numpy_kernels,
)
from ridgeline.machine.cpu_levels import Curve, Level
from ridgeline.machine.cpu_team import Team
from ridgeline.machine.sampling import LEAST_SAMPLES, in_rounds, time_calls
from ridgeline.units import format_bytes

DEVICE = "cpu"
ONE_CORE = "one core"  # in `what`: a ceiling of one thread beside that of all
NEEDS_KERNELS = "needs a C compiler (gcc or clang) or numba (`pip install 'ridgeline[fast]'`)"
NO_INSTRUCTION = {
    "vector_fp16": "AVX512-FP16 or Arm's half-precision vectors",
    "vector_bf16": "AVX512-BF16 or Arm's BF16",
    "vector_int8": "AVX512-VNNI, AVX-VNNI or Arm's DotProd",
    "tiles_bf16": "AMX",
    "tiles_int8": "AMX",
}
UNDESCRIBED_BYTES = 2**28  # the largest working set where no cache is described
LAUNCH_LIMIT_S = 3.0


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


QUICK = Plan(curve_rounds=4, per_octave=2, rounds=25, power_samples=10)
FULL = Plan(curve_rounds=12, per_octave=4, rounds=120, power_samples=20)


@dataclass(slots=True, kw_only=True)
class _Session:
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
    described = cpu_levels.shares(cpu_levels.read_caches(cpus[0]), cpus)
    sources, missing = find_kernels()
    with Team(cpus, _bytes_per_thread(described, len(cpus))) as team:
        with _stage(plan, "kernels", progress):
            kernels = choose(team, sources, len(cpus))
        cycles = kernels.get("cycles")
        clock = Probe(team, cycles, "cycles", threads=1, sample_s=2e-4) if cycles else None
        session = _Session(
            plan=plan, quick=quick, cpus=cpus, team=team, kernels=kernels, sources=sources,
            watch=Watch(cpus, cycles_per_s=clock), missing=missing,
        )  # fmt: skip
        with cpu_matrix.torch_threads(len(cpus)):
            ceilings = _ceilings(session, described, progress)
            with _stage(plan, "launch", progress) as step:
                ceilings += _launches(session, step)
            with _stage(plan, "power", progress) as step:
                ceilings += _powers(session, step)
    return ceilings, missing


def find_kernels() -> tuple[list[Kernels], list[Missing]]:
    """The best kernels there are: C, else numba, else numpy; and why not better ones."""
    try:
        return [*c_kernels()], []
    except BuildError as error:
        no_c = str(error)
    try:
        return [numba_kernels()], [Missing(what="CPU kernels in C", reason=no_c)]
    except ImportError:
        reason = f"{no_c}, and numba is not installed; {NEEDS_KERNELS}"
        return [numpy_kernels()], [Missing(what="CPU kernels in C or numba", reason=reason)]


# ---- arithmetic and memory -----------------------------------------------------------------------


def _ceilings(
    session: _Session, described: Mapping[str, int], progress: Callable[[str], None]
) -> list[Ceiling]:
    plan = session.plan
    with _stage(plan, "memory curve", progress) as step:
        memory = _memory_probes(session, described, step)
    with _stage(plan, "matrix shapes", progress) as step:
        matrices = _matrix_probes(session, step)
    probes = {**_compute_probes(session), **matrices, **memory}
    with _stage(plan, "ceilings", progress) as step:
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


Probes = dict[str, tuple[Callable[[], float], dict[str, Any]]]  # a probe, and fields of its ceiling


def _compute_probes(session: _Session) -> Probes:
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


def _no_compute(session: _Session, name: str, path: str, precision: str) -> Missing:
    what = f"CPU {precision} {'tiles' if path == 'matrix' else 'vectors'}"
    has_c = any(isinstance(source, CKernels) for source in session.sources)
    if name not in NO_INSTRUCTION or not has_c:
        return Missing(what=what, reason=NEEDS_KERNELS)
    reason = f"this processor, or its compiler, has no instructions for it: {NO_INSTRUCTION[name]}"
    return Missing(what=what, reason=reason)


def _matrix_probes(session: _Session, step: Callable[[], None]) -> Probes:
    probes: Probes = {}
    wanted = cpu_matrix.precisions(set(processor().split()))
    for precision in wanted:
        found = cpu_matrix.best_product(precision, quick=session.quick)
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
    session: _Session, described: Mapping[str, int], step: Callable[[], None]
) -> Probes:
    """The curve, the levels in it, and a probe for each level and pattern."""
    patterns = [p for p in PATTERNS if f"memory_{p}" in session.kernels]
    curves = _curves(session, patterns, step)
    if any(kernels.how.startswith("numpy") for kernels in session.sources):
        levels = [x for x in cpu_levels.name_levels([], described) if x.name in ("l3", "dram")]
    else:
        levels = cpu_levels.name_levels(cpu_levels.plateaus(curves["read"]), described)
    probes: Probes = {}
    for level in levels:
        for pattern in patterns:
            size_bytes = cpu_levels.best_size(curves[pattern], level)
            others = DRAM_KERNELS[pattern] if level.name == "dram" else ()
            for name in (f"memory_{pattern}", *others):
                kernels = session.kernels.get(name)
                if kernels is None:
                    continue
                probes[f"{level.name}/{name}"] = (
                    Probe(session.team, kernels, name, threads=session.threads,
                          size_bytes=size_bytes),
                    {"kind": "bandwidth", "level": level.name, "pattern": pattern,
                     "threads": session.threads,
                     "working_set_bytes": size_bytes * session.threads,
                     "how": _memory_how(kernels, name, level, size_bytes)},
                )  # fmt: skip
    session.missing += _no_memory(levels, described, patterns)
    return probes


def _curves(
    session: _Session, patterns: Sequence[str], step: Callable[[], None]
) -> dict[str, Curve]:
    """Best rate by working set of one thread, for each pattern."""
    sizes = cpu_levels.grid(session.team.bytes_per_thread, per_octave=session.plan.per_octave)
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
    if level.plateau is None:
        parts.append("no plateau of its own in the curve")
    else:
        first, last = level.plateau.first_bytes, level.plateau.last_bytes
        parts.append(f"curve level from {format_bytes(first)} to {format_bytes(last)}")
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
        NEEDS_KERNELS if len(patterns) < len(PATTERNS) else "the measured curve shows no such level"
    )
    missing = [
        Missing(what=f"CPU {name} bandwidth", reason=reason)
        for name in expected
        if name not in measured
    ]
    unreached = [p for p in PATTERNS if p not in patterns]
    return missing + [Missing(what=f"CPU {p} bandwidth", reason=NEEDS_KERNELS) for p in unreached]


def _bytes_per_thread(described: Mapping[str, int], threads: int) -> int:
    """The largest working set: well beyond the caches, and at most half of the free memory."""
    import psutil

    last_bytes = max(described.values(), default=0)
    wanted = 2 * cpu_levels.DRAM_FACTOR * last_bytes or UNDESCRIBED_BYTES / threads
    free = psutil.virtual_memory().available / 2 / threads
    return int(max(2**20, min(max(wanted, 2**24), free)))


# ---- launch and power ----------------------------------------------------------------------------


def _launches(session: _Session, step: Callable[[], None]) -> list[Ceiling]:
    ceilings = []
    for what, how, sample in (_eager_dispatch(session), _parallel_region(session)):
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


Launch = tuple[str, str, Callable[[], float] | None]  # what; how, or why not; seconds of one


def _eager_dispatch(session: _Session) -> Launch:
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


def _parallel_region(session: _Session) -> Launch:
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


def _powers(session: _Session, step: Callable[[], None]) -> list[Ceiling]:
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


@contextmanager
def _stage(plan: Plan, name: str, progress: Callable[[str], None]) -> Iterator[Callable[[], None]]:
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
