"""The ceilings of the machine that runs this: measured for an analysis, or anew as a passport."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from statistics import fmean
from time import perf_counter, sleep
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.machine.ceilings_cuda import DRAM_SHARE_OF_L2, PRODUCTS
from ridgeline.machine.compare import (
    another_device,
    another_machine,
    describe_drift,
    drift,
    sample_product_again,
)
from ridgeline.machine.describe import Description, describe, machine_name
from ridgeline.machine.energy_fit import fit_energy, read_energy_points
from ridgeline.machine.measure import choose_devices, measure_devices
from ridgeline.machine.passport import EnergyModel, EnergyPoint, Missing, Passport, Passports
from ridgeline.machine.sampling import Clock, host_clock, sample_seconds
from ridgeline.measure.energy import CallLoop, evaluate_passes, take_pass
from ridgeline.measure.worker import torch_needed
from ridgeline.pipeline.cases import Selection
from ridgeline.provenance import collect
from ridgeline.sensors.meters import find_meters
from ridgeline.sensors.sampler import FAST_S, Meters, Sampler
from ridgeline.store import ResultsFolder

OnProgress = Callable[[str], None]
NOISY = 0.25  # a roof that moved by so much while it was measured says little


def device_task(selection: Selection, send: OnProgress) -> str:
    """The device that will be used: `cpu`, `cuda:0`, `mps`; an error if a model is not known."""
    with torch_needed():
        from ridgeline.measure.backends import choose_backend, choose_precision
        from ridgeline.workloads import resolve

    first = selection.settings[0]
    backend = choose_backend(first.backend, first.device)
    for settings in selection.settings:
        choose_precision(settings.precision, backend)
    for spec in selection.specs():
        resolve(spec)
    return f"cuda:{first.device}" if backend.kind == "cuda" else backend.kind


# ---------------------------------------------------------------- for an analysis


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineAnswer:
    """The name of the passport, and whether it is from before."""

    name: str
    is_cached: bool
    note: str


def is_measured(results: Path, device: str, *, is_quick: bool) -> bool:
    """Whether `machine_task` will find a passport."""
    return find_passport(Passports(results), describe(), device, is_quick=is_quick) is not None


def machine_task(
    results: Path, send: OnProgress, *, device: str, quick: bool, remeasure: bool
) -> MachineAnswer:
    """Find the passport of this machine, or measure it; a look tells whether the old one holds."""
    description = describe()
    passports = Passports(results)
    before = None if remeasure else find_passport(passports, description, device, is_quick=quick)
    if before is not None:
        note = f"kept from {before.measured_at[:10]}"
        if product := sample_product_again(before, device):
            note += f"; {describe_drift(product, before.measured_at)}"
        return MachineAnswer(name=before.name, is_cached=True, note=note)
    name = _free_name(passports, passport_name(description, device), description)
    devices = choose_devices([device])
    passport = measure_passport(devices, results, name=name, quick=quick, on_progress=send).passport
    note = f"{len(passport.ceilings)} ceilings measured" + (", quickly" if quick else "")
    if passport.noise > NOISY:
        note += f"; {describe_noise(passport)}: --remeasure when it is quiet"
    return MachineAnswer(name=name, is_cached=False, note=note)


def drift_task(task: tuple[Path, str, int], send: OnProgress) -> tuple[str, bool] | None:
    """Whether the passport of this very machine still holds; None where there is none."""
    with torch_needed():
        from ridgeline.measure.backends import choose_backend

    folder, backend, number = task
    chosen = choose_backend(backend, number)
    device = f"cuda:{number}" if chosen.kind == "cuda" else chosen.kind
    passport = find_passport(Passports(folder), describe(), device, is_quick=True)
    product = None if passport is None else sample_product_again(passport, device)
    if passport is None or product is None:
        return None
    return describe_drift(product, passport.measured_at), product.has_drifted


def describe_noise(passport: Passport) -> str:
    return f"the machine was busy meanwhile (a roof moved by {100 * passport.noise:.0f} %)"


def passport_name(description: Description, device: str, name: str | None = None) -> str:
    """A device that the machine is not named after has a passport of its own.

    So measuring the processor of a GPU's host never replaces what is known of the GPU.
    """
    name = name or machine_name(description)
    return name if description.is_named_after(device) else f"{name}-{device.replace(':', '')}"


def find_passport(
    passports: Passports, description: Description, device: str, *, is_quick: bool
) -> Passport | None:
    """A passport of this very machine with ceilings of the device, as thorough as is asked."""
    name = passport_name(description, device)
    for known in passports.names():
        passport = _read_own(passports, known, description) if known.startswith(name) else None
        if passport is None or not any(c.device == device for c in passport.ceilings):
            continue
        if is_quick or not passport.is_quick:
            return passport
    return None


def _free_name(passports: Passports, name: str, description: Description) -> str:
    """Never the name of another machine's passport, nor of one that cannot be read."""
    free, number = name, 2
    while free in passports.names() and _read_own(passports, free, description) is None:
        free, number = f"{name}-{number}", number + 1
    return free


def _read_own(passports: Passports, name: str, description: Description) -> Passport | None:
    """A passport, if it can be read and is of this machine."""
    try:
        passport = passports.read(name)
    except RidgelineError:
        return None
    return None if another_machine(passport.description, description) else passport


# ---------------------------------------------------------------- for `ridgeline machine`


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPassport:
    """A new passport, its file, and what changed since the one that it replaces."""

    passport: Passport
    path: Path
    changes: tuple[str, ...]


def measure_passport(
    devices: Sequence[str],
    results: Path,
    *,
    name: str | None = None,
    quick: bool = False,
    on_progress: OnProgress = lambda what: None,
) -> StoredPassport:
    """Measure the devices and store the passport; what would refuse it is checked before."""
    description = describe()
    passports = Passports(results)
    own_name = _free_name(passports, machine_name(description), description)
    called = check_passport_name(name or own_name)
    before = _read_own(passports, called, description)
    if before is None and called in passports.names():
        raise RidgelineError(
            f"{passports.path(called)} is not a passport of this machine",
            hint="keep this one under another name: --name NAME",
        )
    ResultsFolder(results).check_writable()
    made = collect()
    ceilings, missing = measure_devices(devices, quick=quick, progress=on_progress)
    passport = Passport(
        name=called, measured_at=made.time, is_quick=quick, ceilings=tuple(ceilings),
        missing=tuple(missing), description=description, provenance=made,
        energy=before.energy if before else (),
    )  # fmt: skip
    changes = [] if before is None else drift(before, passport)
    other = before and another_device(before.description, passport.description)
    return StoredPassport(
        passport=passport,
        path=passports.write(passport),
        changes=tuple([other, *changes] if other else changes),
    )


# ---------------------------------------------------------------- loads of known work
# They span what the energy model tells apart: time alone (a device at working clocks without work),
# a busy GPU (reading L1), bytes of each level, FLOPs of each precision, and mixtures. On a GPU most
# also run for a part of the time, between spins, where the power cap does not reach them. Data are
# random: products of zeros draw far less.

CPU, CUDA = "cpu", "cuda"
SPIN_CYCLES = 2_000_000  # about a millisecond
PRECISIONS = ("bf16", "fp16", "tf32", "fp32")
SIDE, SLOW_SIDE = 8192, 4096  # of matrices; fp32 takes longer
SMALL_SIDE = 2048
L1_BYTES = 32 << 10  # of an SM
CPU_SIDE = 2048
CHAINS = ("fp32", "fp64")
OPERAND_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2}
CALL_S = 0.05  # of a CPU's kernel: starting its threads does not count beside it
L2_SHARE, L2_PASSES = 4, 64  # a quarter of the cache, so that all of it stays there


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A call that is repeated, and the work of one; without a call, the device rests."""

    label: str
    call: Callable[[], object] | None = field(default=None, repr=False)
    flops: Mapping[str, float] = field(default_factory=dict)  # by precision
    moved_bytes: Mapping[str, float] = field(default_factory=dict)  # by memory level
    busy: float | None = None  # the share of the time that kernels run on all of a GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Loads:
    """The loads of a device, how to wait for it, and what it cannot run."""

    loads: tuple[Load, ...]
    synchronize: Callable[[], object]
    missing: tuple[Missing, ...] = ()


def run_by_turns(label: str, first: Load, second: Load, clock: Clock) -> Load:
    """Two loads one after the other, each for about half of the time."""
    assert first.call is not None and second.call is not None
    times_s = [min(sample_seconds(one.call, clock, samples=3)) for one in (first, second)
               if one.call is not None]  # fmt: skip
    longest_s = max(times_s)
    turns = [max(1, round(longest_s / time_s)) for time_s in times_s]
    spent_s = [turn * time_s for turn, time_s in zip(turns, times_s, strict=True)]
    shares = [one.busy for one in (first, second) if one.busy is not None]
    calls = [first.call] * turns[0] + [second.call] * turns[1]

    def call() -> None:
        for one in calls:
            one()

    return Load(
        label=label,
        call=call,
        flops=_add_work((first.flops, turns[0]), (second.flops, turns[1])),
        moved_bytes=_add_work((first.moved_bytes, turns[0]), (second.moved_bytes, turns[1])),
        busy=fmean(shares, spent_s) if len(shares) == 2 else None,
    )


def _add_work(*parts: tuple[Mapping[str, float], int]) -> dict[str, float]:
    total: dict[str, float] = {}
    for amounts, turns in parts:
        for name, amount in amounts.items():
            total[name] = total.get(name, 0.0) + turns * amount
    return total


def make_product(torch: Any, device: str, precision: str, side: int) -> Load:
    """A square matrix product of random numbers; its bytes are those of operands and result."""
    product = next(one for one in PRODUCTS if one.precision == precision)
    return Load(
        label=f"{precision} products",
        busy=None if device == CPU else 1.0,
        call=product.make(torch, side, side, side, device),
        flops={precision: 2.0 * side**3},
        moved_bytes={"dram": 3.0 * OPERAND_BYTES[precision] * side**2},
    )


@contextmanager
def open_cuda_loads(number: int) -> Iterator[Loads]:
    """The loads of a CUDA device; streams and chains need Triton."""
    import torch

    device = f"cuda:{number}"
    with torch.cuda.device(number):
        synchronize = partial(torch.cuda.synchronize, number)
        clock = host_clock(synchronize)
        spin = Load(label="spinning", call=lambda: torch.cuda._sleep(SPIN_CYCLES), busy=0.0)
        loads, missing = [Load(label="idle", busy=0.0), spin], []

        def run_half(load: Load) -> Load:
            return run_by_turns(f"{load.label}, half of the time", load, spin, clock)

        try:
            kernels = _make_kernel_loads(torch, number)
            chains, dram = kernels["fp32 chains"], kernels["DRAM read"]
            mixed = [run_by_turns(f"fp32 chains and {one.label} by turns", chains, one, clock)
                     for one in (dram, kernels["L2 read"])]  # fmt: skip
            halves = ("fp32 chains", "DRAM read", "L2 read", "L1 read")
            loads += [*kernels.values(), *mixed, *(run_half(kernels[name]) for name in halves)]
        except ImportError as error:
            missing.append(Missing(what="loads of DRAM, L2 and vector units", reason=str(error)))
        for precision in PRECISIONS:
            side = SLOW_SIDE if precision == "fp32" else SIDE
            try:
                product = make_product(torch, device, precision, side)
                small = make_product(torch, device, precision, SMALL_SIDE)
                small = replace(small, label=f"{small.label} of {SMALL_SIDE}")
                loads += [product, run_half(product), run_half(small)]
            except RuntimeError as error:  # a precision that the device lacks, too little memory
                reason = " ".join(str(error).split())[:200]
                missing.append(Missing(what=f"{precision} products", reason=reason))
        yield Loads(loads=tuple(loads), synchronize=synchronize, missing=tuple(missing))
        torch.cuda.empty_cache()


def _make_kernel_loads(torch: Any, number: int) -> dict[str, Load]:
    """Streams of DRAM and L2, reads of L1, which keep a GPU busy with little else, and chains.

    FLOPs of chains have a price of their own: products also feed the units from shared memory.
    """
    from ridgeline.machine import cuda_kernels

    properties = torch.cuda.get_device_properties(number)
    l2_bytes = int(getattr(properties, "L2_cache_size", 0)) or (40 << 20)
    stream = partial(cuda_kernels.stream, device=number, fill=torch.randn)
    large = partial(stream, size_bytes=DRAM_SHARE_OF_L2 * l2_bytes, rounds=1)
    cached = partial(stream, size_bytes=l2_bytes // L2_SHARE, rounds=L2_PASSES)
    loads = []
    for level, make in (("dram", large), ("l2", cached)):
        for pattern in ("read", "copy"):
            launch = make(pattern)
            loads.append(Load(label=f"{level.upper()} {pattern}", call=launch.call,
                              moved_bytes={level: launch.work}, busy=1.0))  # fmt: skip
    nearest = cuda_kernels.read_l1(number, L1_BYTES)
    chain = cuda_kernels.fma_chain(torch.float32, number, is_alternating=True)
    flops = {"fp32 vector": chain.work}
    loads += [
        Load(label="L1 read", call=nearest.call, busy=1.0),
        Load(label="fp32 chains", call=chain.call, flops=flops, busy=1.0),
    ]
    return {load.label: load for load in loads}


def count_bytes(points: Sequence[EnergyPoint], loads: Loads, number: int) -> list[EnergyPoint]:
    """The points with bytes of hardware counters, where loads have any: of L2 those that DRAM does
    not supply, too."""
    from ridgeline.profile.count_calls import CallCounter

    declared = {load.label: load for load in loads.loads if load.call and load.moved_bytes}
    calls = {label: load.call for label, load in declared.items() if load.call}
    counted = CallCounter(number, "fp32").count(calls)
    found = []
    for point in points:
        if point.label in counted.index:
            one, load = counted.loc[point.label].to_dict(), declared[point.label]
            level = next(iter(load.moved_bytes))
            calls_made = point.moved_bytes[level] / load.moved_bytes[level]
            l2_bytes = max(0.0, one["l2_bytes"] - one["dram_bytes"])
            moved = {"dram": one["dram_bytes"], "l2": l2_bytes}
            known = {name: calls_made * float(amount) for name, amount in moved.items()}
            point = replace(point, moved_bytes=known)
        found.append(point)
    return found


@contextmanager
def open_cpu_loads() -> Iterator[Loads]:
    """The loads of all cores; the team of threads lives as long as the block."""
    from ridgeline.machine.ceilings_cpu import import_torch
    from ridgeline.machine.cpu import read_caches, share_caches
    from ridgeline.machine.cpu_kernels import Team, build_kernels, choose_cpus
    from ridgeline.machine.system import SystemIO

    cpus = choose_cpus()
    shares = share_caches(read_caches(SystemIO(), cpus[0]), cpus)  # of one thread
    last, last_bytes = max(shares.items(), key=lambda one: one[1], default=("l2", 1 << 20))
    team_of_all = Team(cpus, max(4 * last_bytes, 1 << 26))
    with team_of_all as team, import_torch(len(cpus)) as torch:
        team.run(_fill_memory, len(cpus))
        kernels = build_kernels()
        sizes = {"dram": team.bytes_per_thread, last: last_bytes // 2}
        loads = _make_cpu_loads(team, kernels, sizes)
        missing = []
        if torch is None:
            missing.append(Missing(what="products", reason="pip install 'ridgeline[torch]'"))
        else:
            loads += [make_product(torch, CPU, name, CPU_SIDE) for name in ("fp32", "fp64")]
        yield Loads(loads=tuple(loads), synchronize=lambda: None, missing=tuple(missing))


def _fill_memory(worker: Any) -> None:
    """Random numbers: zeros would draw less."""
    import numpy as np

    numbers = worker.memory.view(np.float32)
    numbers[:] = np.random.default_rng(worker.index).random(len(numbers), dtype=np.float32)


def _make_cpu_loads(team: Any, kernels: Any, sizes: Mapping[str, int]) -> list[Load]:
    """Rest, spinning, reads of each size, a copy in DRAM, chains, and both by turns."""
    from ridgeline.machine.cpu_kernels import Probe

    rows = [  # label, kernel, precision of its FLOPs, level of its bytes
        ("spinning", "cycles", "", ""),
        *((f"{level.upper()} read", "memory_read", "", level) for level in sizes),
        ("DRAM copy", "memory_copy", "", "dram"),
        *((f"{precision} chains", f"vector_{precision}", precision, "") for precision in CHAINS),
    ]
    loads = {}
    for label, name, precision, level in rows:
        if name in kernels.names:
            probe = Probe(team, kernels, name, threads=len(team.cpus),
                          size_bytes=sizes.get(level, 0), sample_s=CALL_S)  # fmt: skip
            work = probe.work_per_call()
            loads[label] = Load(
                label=label,
                call=probe,
                flops={precision: work} if precision else {},
                moved_bytes={level: work} if level else {},
            )
    mixed = run_by_turns("fp32 chains and DRAM read by turns", loads["fp32 chains"],
                         loads["DRAM read"], host_clock(lambda: None))  # fmt: skip
    return [Load(label="idle"), *loads.values(), mixed]


def open_loads(kind: str, number: int) -> AbstractContextManager[Loads]:
    """The loads of a kind of device."""
    if kind == CUDA:
        return open_cuda_loads(number)
    if kind == CPU:
        return open_cpu_loads()
    raise RidgelineError(
        f"there are no loads for {kind} devices", hint="measure the energy of a GPU or of a CPU"
    )


# ---------------------------------------------------------------- energy coefficients

LEAD_S = 0.5  # of a load before its window: it heats the device and sets its clock
LOAD_S = 2.5  # a counter refreshes about every tenth of a second
BATCH_S = 0.05


def measure_energy(
    device: str,
    results: Path,
    *,
    name: str | None = None,
    on_progress: OnProgress = lambda what: None,
) -> StoredPassport:
    """Measure the joules of known loads on a device; its coefficients go to its passport."""
    description = describe()
    gpu = description.find_gpu(device)
    kind, _, number = device.partition(":")
    meters = find_meters(kind, uuid=gpu.uuid if gpu else None)
    if not meters.available:
        raise RidgelineError(
            f"there is no energy meter for {device}: {'; '.join(meters.reasons)}",
            hint="figures of another meter can be fitted: --energy --from FILE.csv",
        )
    passports = Passports(results)
    if name:
        passport = _read_own(passports, check_passport_name(name), description)
    else:
        passport = find_passport(passports, description, device, is_quick=True)
    if passport is None or all(c.device != device for c in passport.ceilings):
        raise RidgelineError(
            f"{name or machine_name(description)} has no ceilings of {device} yet, which its energy"
            " is to stand with",
            hint=f"measure them first: ridgeline machine measure --device {device}",
        )
    with open_loads(kind, int(number or 0)) as loads:
        points, missing = measure_loads(loads, meters, on_progress=on_progress)
        how = f"{meters.available[0].name}, {meters.available[0].scope}"
        if kind == CUDA:
            on_progress("bytes by counters")
            try:
                points = count_bytes(points, loads, int(number or 0))
                how += "; bytes by hardware counters"
            except RidgelineError as error:
                how += f"; bytes by the sizes of the loads: {error.problem}"
    try:
        model = fit_energy(points, device=device, how=how, measured_at=collect().time,
                           power_cap_w=gpu.power_limit_w if gpu else None)  # fmt: skip
    except RidgelineError as error:
        why = "; ".join([error.hint, *(f"{one.what}: {one.reason}" for one in missing)])
        raise RidgelineError(error.problem, hint=why) from None
    return _store_energy(passports, passport, model)


def measure_loads(
    loads: Loads,
    meters: Meters,
    *,
    sampler: Sampler | None = None,
    clock: Callable[[], float] = perf_counter,
    rest: Callable[[float], object] = sleep,
    on_progress: OnProgress = lambda what: None,
) -> tuple[list[EnergyPoint], list[Missing]]:
    """Joules of each load by differences of the counter; in random order, for heat adds leakage."""
    sampler = sampler or Sampler(meters, interval_s=FAST_S, clock=clock)
    points, missing = [], [*loads.missing]
    for load in Random(0).sample(loads.loads, len(loads.loads)):
        on_progress(load.label)
        run_for = _make_loop(load, loads.synchronize, clock, rest)
        with sampler:
            take_pass("lead-in", run_for, LEAD_S, clock)
            window = take_pass("window", run_for, LOAD_S, clock)
        found = evaluate_passes(meters, sampler.readings, [window], 1).energy
        if found is None or not found.energy_total_j:
            missing.append(Missing(what=load.label, reason="the meter did not answer"))
            continue
        point = EnergyPoint(
            label=load.label,
            time_s=window.duration_s,
            energy_j=found.energy_total_j,
            flops=_add_work((load.flops, window.steps)),
            moved_bytes=_add_work((load.moved_bytes, window.steps)),
            busy_s=None if load.busy is None else load.busy * window.duration_s,
            clock_hz=found.conditions.clock_hz,
            temperature_c=found.conditions.temperature_c,
        )
        points.append(point)
    return points, missing


def _make_loop(
    load: Load,
    synchronize: Callable[[], object],
    clock: Callable[[], float],
    rest: Callable[[float], object],
) -> Callable[[float], int]:
    """The function that repeats a load for a while and counts its calls."""

    def stay_idle(length_s: float) -> int:
        rest(length_s)
        return 1

    if load.call is None:
        return stay_idle
    loop = CallLoop(load.call, synchronize, clock)
    loop.calibrate(BATCH_S)
    return loop.run_for


def import_energy(
    file: Path, results: Path, *, name: str | None = None, device: str | None = None
) -> StoredPassport:
    """Fit the figures of a file; store the coefficients in the passport of this name.

    Without a name it is that of the file, so that no passport of this machine is changed.
    """
    passports = Passports(results)
    called = check_passport_name(name or file.stem)
    points = read_energy_points(file)
    made = collect()
    if called in passports.names():
        passport = passports.read(called)
    else:
        passport = Passport(name=called, measured_at=made.time, is_quick=False, ceilings=(),
                            provenance=made)  # fmt: skip
    accelerators = sorted({c.device for c in passport.ceilings}, key=lambda d: (d == CPU, d))
    device = device or next(iter(accelerators), f"{CUDA}:0")
    gpu = passport.description.find_gpu(device)
    model = fit_energy(
        points,
        device=device,
        power_cap_w=gpu.power_limit_w if gpu else None,
        how=f"figures of {file.name}",
        measured_at=made.time,
        provenance="imported",
    )
    return _store_energy(passports, passport, model)


def _store_energy(passports: Passports, passport: Passport, model: EnergyModel) -> StoredPassport:
    """The passport with this model instead of that of the same device."""
    others = [one for one in passport.energy if one.device != model.device]
    new = replace(passport, energy=(*others, model))
    return StoredPassport(passport=new, path=passports.write(new), changes=())


def check_passport_name(name: str) -> str:
    """The name, if a file can have it."""
    if not name or not all(c.isalnum() or c in "._-" for c in name) or name.startswith("."):
        raise RidgelineError(
            f"{name!r} cannot be the name of a passport",
            hint="use letters, digits, '.', '_' and '-'",
        )
    return name
