"""The ceilings of the CPU: arithmetic, every level of memory, starting work, power.

First the curve of bandwidth over the working set shows where the levels are. Then everything is
sampled by turns: each round takes one short sample of every ceiling, so that a neighbour who keeps
the machine busy for a second costs each of them a few samples and none of them its best.

Copy and triad count the bytes read plus the bytes written; what a cache fetches only to overwrite
it is not counted. A working set is that of all threads together, all arrays included.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

from ridgeline.machine import cpu_levels, cpu_matrix
from ridgeline.machine.ceiling import ONE_CORE, Ceiling, Missing
from ridgeline.machine.cpu import read_caches
from ridgeline.machine.cpu_kernels import (
    COMPUTE_KERNELS,
    DRAM_KERNELS,
    PATTERNS,
    BuildError,
    CKernels,
    Kernels,
    Probe,
    c_kernels,
    choose,
    numpy_kernels,
    processor,
)
from ridgeline.machine.cpu_levels import Curve, Level
from ridgeline.machine.cpu_threads import Team, cpus_to_use
from ridgeline.machine.sampling import LEAST_SAMPLES, in_rounds, time_calls
from ridgeline.machine.system import find_limits
from ridgeline.machine.system_io import SystemIO
from ridgeline.sensors.conditions import Conditions
from ridgeline.sensors.cpu import (
    PROC,
    SYS,
    RaplMeter,
    cpufreq_hz,
    read_clock_hz,
    temperature_c,
    text_of,
)
from ridgeline.units import format_bytes


class Watch:
    """Notes the conditions of each thing that is measured, sample by sample."""

    def __init__(
        self,
        cpus: Sequence[int],
        *,
        cycles_per_s: Callable[[], float] | None = None,
        root: Path = SYS,
        proc: Path = PROC,
    ) -> None:
        self.meter = RaplMeter(root)
        self._cpus, self._cycles_per_s, self._root, self._proc = cpus, cycles_per_s, root, proc
        self._clocks_hz: dict[Hashable, list[float]] = defaultdict(list)
        self._temperatures_c: dict[Hashable, list[float]] = defaultdict(list)
        self._joules: dict[Hashable, float] = defaultdict(float)
        self._seconds: dict[Hashable, float] = defaultdict(float)
        self._throttled: set[Hashable] = set()
        self._start()

    def note(self, key: Hashable) -> None:
        """What happened since the last note, and how things are now, belongs to `key`."""
        energy_j, now_s = self.meter.energy_j(), perf_counter()
        if energy_j is not None and self._energy_j is not None:
            self._joules[key] += energy_j - self._energy_j
            self._seconds[key] += now_s - self._now_s
        if self._throttles() > self._throttle_count:
            self._throttled.add(key)
        for values, value in (
            (self._clocks_hz[key], self.clock_hz()),
            (self._temperatures_c[key], temperature_c(self._root)),
        ):
            if value is not None:
                values.append(value)
        self._start()

    def conditions(self, key: Hashable) -> Conditions:
        """The middle of what was noted for `key`."""
        clocks, temperatures = self._clocks_hz[key], self._temperatures_c[key]
        seconds = self._seconds[key]
        return Conditions(
            clock_hz=median(clocks) if clocks else None,
            temperature_c=median(temperatures) if temperatures else None,
            power_w=self._joules[key] / seconds if seconds else None,
            throttle_reasons=("thermal",) if key in self._throttled else (),
        )

    def clock_hz(self) -> float | None:
        """By cpufreq, or measured, or as /proc/cpuinfo has it; None where nothing tells."""
        clock_hz = cpufreq_hz(self._cpus, self._root)
        if clock_hz is None and self._cycles_per_s is not None:
            return self._cycles_per_s()
        return clock_hz or read_clock_hz(self._cpus, self._root, self._proc)

    def _start(self) -> None:
        self._energy_j = self.meter.energy_j()
        self._now_s = perf_counter()
        self._throttle_count = self._throttles()

    def _throttles(self) -> int:
        """How often the package was too hot, since the machine was started."""
        folder = self._root / "devices" / "system" / "cpu" / f"cpu{self._cpus[0]}"
        text = text_of(folder / "thermal_throttle" / "package_throttle_count").strip()
        return int(text) if text.isdigit() else 0


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
    described = cpu_levels.share_caches(caches, cpus)
    alone_bytes = _bytes_per_thread(cpu_levels.share_caches(caches, cpus[:1]), 1) // 2
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
        with cpu_matrix.torch_threads(len(cpus)):
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
    session: Session, described: Mapping[str, int], step: Callable[[], None]
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
    """The largest working set: well beyond the caches, and at most half of the free memory.

    A container's limit is not in what the system calls free, and ends the process when reached.
    """
    import psutil

    last_bytes = max(described.values(), default=0)
    wanted = 2 * cpu_levels.DRAM_FACTOR * last_bytes or UNDESCRIBED_BYTES / threads
    limit_bytes = find_limits().memory_bytes
    free_bytes = min(psutil.virtual_memory().available, limit_bytes or math.inf)
    return int(max(2**20, min(max(wanted, 2**24), free_bytes / 2 / threads)))
