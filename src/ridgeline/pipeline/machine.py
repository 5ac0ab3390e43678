"""The ceilings of the machine that runs this: measured for an analysis, or anew as a passport."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from time import perf_counter, sleep

from ridgeline.errors import RidgelineError
from ridgeline.machine.compare import another_device, another_machine, check_drift, drift
from ridgeline.machine.describe import Description, describe, machine_name
from ridgeline.machine.energy_fit import fit_energy, read_energy_points
from ridgeline.machine.energy_loads import (
    CPU,
    CUDA,
    Load,
    Loads,
    open_cpu_loads,
    open_cuda_loads,
)
from ridgeline.machine.measure import choose_devices, measure_machine
from ridgeline.machine.passport import EnergyModel, EnergyPoint, Missing, Passport, Passports
from ridgeline.measure.energy import CallLoop, integrate_windows, take_pass
from ridgeline.measure.worker import torch_needed
from ridgeline.pipeline.cases import Selection
from ridgeline.provenance import collect
from ridgeline.sensors.meter import Meters
from ridgeline.sensors.meters import find_meters
from ridgeline.sensors.sampler import FAST_S, Sampler, summarise
from ridgeline.serialize import to_dict
from ridgeline.store import ResultsFolder, atomic_write_text, to_json

OnProgress = Callable[[str], None]
NOISY = 0.25  # a roof that moved by so much while it was measured says little


def device_task(selection: Selection, send: OnProgress) -> str:
    """The device that will be used: `cpu`, `cuda:0`, `mps`; an error if a model is not known."""
    with torch_needed():
        from ridgeline.measure.backends import choose_backend
        from ridgeline.measure.precision import choose_precision
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
class MachineTask:
    """What to measure, for a process of its own."""

    results: Path
    device: str  # "cpu", "cuda:0", "mps"
    quick: bool
    remeasure: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineAnswer:
    """The name of the passport, and whether it is from before."""

    name: str
    is_cached: bool
    note: str


def machine_task(task: MachineTask, send: OnProgress) -> MachineAnswer:
    """Find the passport of this machine, or measure it; a look tells whether the old one holds."""
    description = describe()
    passports = Passports(task.results)
    name = passport_name(machine_name(description), description, task.device)
    before = None if task.remeasure else _find_passport(passports, name, task, description)
    if before is not None:
        moved = check_drift(before, task.device)
        note = f"kept from {before.measured_at[:10]}" + (f"; {moved}" if moved is not None else "")
        return MachineAnswer(name=before.name, is_cached=True, note=note)
    name = _free_name(passports, name, description)
    devices = choose_devices([task.device])
    passport = _measure(name, devices, description, send, quick=task.quick)
    earlier = _read_own(passports, name, description)
    passports.write(replace(passport, energy=earlier.energy if earlier else ()))
    note = f"{len(passport.ceilings)} ceilings measured" + (", quickly" if task.quick else "")
    if passport.noise > NOISY:
        note += f"; {describe_noise(passport)}: --remeasure when it is quiet"
    return MachineAnswer(name=name, is_cached=False, note=note)


def describe_noise(passport: Passport) -> str:
    return f"the machine was busy meanwhile (a roof moved by {100 * passport.noise:.0f} %)"


def passport_name(name: str, description: Description, device: str) -> str:
    """A device that the machine is not named after has a passport of its own.

    So measuring the processor of a GPU's host never replaces what is known of the GPU.
    """
    if description.is_named_after(device):
        return name
    return f"{name}-{device.replace(':', '')}"


def _find_passport(
    passports: Passports, name: str, task: MachineTask, description: Description
) -> Passport | None:
    """A passport of this very machine with ceilings of the device, as thorough as is asked."""
    for known in passports.names():
        passport = _read_own(passports, known, description) if known.startswith(name) else None
        if passport is None or not any(c.device == task.device for c in passport.ceilings):
            continue
        if task.quick or not passport.is_quick:
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


def _measure(
    name: str,
    devices: Sequence[str],
    description: Description,
    on_progress: OnProgress,
    *,
    quick: bool,
) -> Passport:
    made = collect()
    return measure_machine(
        name,
        list(devices),
        quick=quick,
        progress=on_progress,
        description=description,
        provenance=made,
        measured_at=made.time,
    )


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
    called = check_passport_name(name) if name else machine_name(description)
    before = _read_earlier(passports, called, description)
    ResultsFolder(results).check_writable()
    passport = _measure(called, devices, description, on_progress, quick=quick)
    passport = replace(passport, energy=before.energy if before else ())
    changes = [] if before is None else drift(before, passport)
    other = before and another_device(before.description, passport.description)
    return StoredPassport(
        passport=passport,
        path=passports.write(passport),
        changes=tuple([other, *changes] if other else changes),
    )


# ---------------------------------------------------------------- energy coefficients

LEAD_S = 1.0  # of a load before its window: sensors average over up to a second
LOAD_S = 2.5  # a counter refreshes about every tenth of a second
BATCH_S = 0.05
POINTS_FILE = "energy-loads.json"  # where loads are kept that give no coefficients


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
    passport = _find_energy_passport(Passports(results), device, description, name)
    with open_loads(kind, int(number or 0)) as loads:
        points, missing = measure_loads(loads, meters, on_progress=on_progress)
    how = f"{meters.available[0].name}, {meters.available[0].scope}"
    try:
        models = fit_energy(points, device=device, how=how, measured_at=collect().time,
                            power_cap_w=gpu.power_limit_w if gpu else None)  # fmt: skip
    except RidgelineError as error:
        raise _keep_points(error, points, missing, results / POINTS_FILE) from None
    return _store_energy(Passports(results), passport, models)


def _keep_points(
    error: RidgelineError, points: Sequence[EnergyPoint], missing: Sequence[Missing], path: Path
) -> RidgelineError:
    """Store what was measured; the error with the file, and with what could not be measured."""
    atomic_write_text(path, to_json([to_dict(point) for point in points]))
    why = "; ".join([error.hint, *(f"{one.what}: {one.reason}" for one in missing)])
    return RidgelineError(error.problem, hint=f"{why}; what was measured is in {path}")


def _find_energy_passport(
    passports: Passports, device: str, description: Description, name: str | None
) -> Passport:
    """The passport of this machine with ceilings of the device."""
    called = check_passport_name(name) if name else machine_name(description)
    for one in (called, passport_name(called, description, device)):
        passport = _read_earlier(passports, one, description)
        if passport is not None and any(c.device == device for c in passport.ceilings):
            return passport
    raise RidgelineError(
        f"{called} has no ceilings of {device} yet, which its energy is to stand with",
        hint=f"measure them first: ridgeline machine measure --device {device}",
    )


def open_loads(kind: str, number: int) -> AbstractContextManager[Loads]:
    """The loads of a kind of device."""
    if kind == CUDA:
        return open_cuda_loads(number)
    if kind == CPU:
        return open_cpu_loads()
    raise RidgelineError(
        f"there are no loads for {kind} devices", hint="measure the energy of a GPU or of a CPU"
    )


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
        point = _measure_load(load, loads.synchronize, meters, sampler, clock, rest)
        if point is None:
            missing.append(Missing(what=load.label, reason="the meter did not answer"))
        else:
            points.append(point)
    return points, missing


def _measure_load(
    load: Load,
    synchronize: Callable[[], object],
    meters: Meters,
    sampler: Sampler,
    clock: Callable[[], float],
    rest: Callable[[float], object],
) -> EnergyPoint | None:
    def stay_idle(length_s: float) -> int:
        rest(length_s)
        return 1

    run_for: Callable[[float], int] = stay_idle
    if load.call is not None:
        loop = CallLoop(load.call, synchronize, clock)
        loop.calibrate(BATCH_S)
        run_for = loop.run_for
    with sampler:
        take_pass("lead-in", run_for, LEAD_S, clock)
        window = take_pass("window", run_for, LOAD_S, clock)
    found = integrate_windows(meters, sampler.readings, [window]).windows
    if not found or found[0].energy_j <= 0:
        return None
    seen = summarise(sampler.readings, window.start_s, window.end_s)
    return EnergyPoint(
        label=load.label,
        time_s=window.duration_s,
        energy_j=found[0].energy_j,
        flops={name: amount * window.steps for name, amount in load.flops.items()},
        moved_bytes={name: amount * window.steps for name, amount in load.moved_bytes.items()},
        clock_hz=seen.clock_hz,
        temperature_c=seen.temperature_c,
    )


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
    models = fit_energy(
        points,
        device=device,
        power_cap_w=gpu.power_limit_w if gpu else None,
        how=f"figures of {file.name}",
        measured_at=made.time,
        provenance="imported",
    )
    return _store_energy(passports, passport, models)


def _store_energy(
    passports: Passports, passport: Passport, models: Sequence[EnergyModel]
) -> StoredPassport:
    """The passport with these models instead of those of the same device."""
    others = [one for one in passport.energy if one.device != models[0].device]
    new = replace(passport, energy=(*others, *models))
    return StoredPassport(passport=new, path=passports.write(new), changes=())


def check_passport_name(name: str) -> str:
    """The name, if a file can have it."""
    if not name or not all(c.isalnum() or c in "._-" for c in name) or name.startswith("."):
        raise RidgelineError(
            f"{name!r} cannot be the name of a passport",
            hint="use letters, digits, '.', '_' and '-'",
        )
    return name


def _read_earlier(passports: Passports, name: str, description: Description) -> Passport | None:
    """The passport that will be replaced; one of another machine is not."""
    if name not in passports.names():
        return None
    hint = "keep this one under another name: --name NAME"
    try:
        before = passports.read(name)
    except RidgelineError as error:  # its own hint is to measure again, which would end here
        raise RidgelineError(error.problem, hint=hint) from error
    other = another_machine(before.description, description)
    if other is not None:
        problem = f"{passports.path(name)} is the passport of another machine ({other})"
        raise RidgelineError(problem, hint=hint)
    return before


def draw_passport(passport: Passport, path: Path) -> None:
    """Draw the ceilings of its first device into a .png or .svg file."""
    from ridgeline.machine.datasheets import find_published_roofs
    from ridgeline.report.figures import write_machine
    from ridgeline.roofline.roofs import datasheet_roofs, measured_roofs

    if path.suffix not in (".png", ".svg"):
        raise RidgelineError(f"{path} is no picture", hint="name a .png or .svg file")
    device = passport.ceilings[0].device if passport.ceilings else ""
    roofs = measured_roofs(passport, device)
    if not roofs.compute or not roofs.bandwidth:
        raise RidgelineError(
            f"{passport.name} has no roofs to draw", hint="measure it: ridgeline machine measure"
        )
    entries = find_published_roofs(passport).get(device)
    sheet = datasheet_roofs(entries, env=roofs.env, device=device) if entries else None
    write_machine(roofs, sheet, path, title=f"{passport.name}, {passport.measured_at[:10]}")
