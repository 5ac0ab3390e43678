"""The ceilings of the machine that runs this: measured once, then kept and looked at again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ridgeline.errors import RidgelineError
from ridgeline.machine.compare import another_machine
from ridgeline.machine.describe import Description
from ridgeline.machine.passport import Passport, Passports
from ridgeline.records import WorkloadSpec

OnProgress = Callable[[str], None]
NOISY = 0.25  # a roof that moved by so much while it was measured says little


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTask:
    """What will be run where, to be checked in a process of its own."""

    specs: tuple[WorkloadSpec, ...]
    backend: str
    device: int
    precisions: tuple[str, ...]


def device_task(task: DeviceTask, send: OnProgress) -> str:
    """The device that will be used: `cpu`, `cuda:0`, `mps`; an error if a model is not known."""
    from ridgeline.measure.worker import torch_needed

    with torch_needed():
        from ridgeline.measure.backends import choose_backend
        from ridgeline.measure.precision import choose_precision
        from ridgeline.workloads import resolve

    backend = choose_backend(task.backend, task.device)
    for precision in task.precisions:
        choose_precision(precision, backend)
    for spec in task.specs:
        resolve(spec)
    return f"cuda:{task.device}" if backend.kind == "cuda" else backend.kind


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
    from ridgeline.machine.compare import check_drift
    from ridgeline.machine.describe import describe, machine_name

    description = describe()
    passports = Passports(task.results)
    name = passport_name(machine_name(description), description, task.device)
    before = None if task.remeasure else _find_passport(passports, name, task, description)
    if before is not None:
        drift = check_drift(before, task.device)
        note = f"kept from {before.measured_at[:10]}" + (f"; {drift}" if drift is not None else "")
        return MachineAnswer(name=before.name, is_cached=True, note=note)
    name = _free_name(passports, name, description)
    passport = _measure(name, task, description, send)
    passports.write(passport)
    note = f"{len(passport.ceilings)} ceilings measured" + (", quickly" if task.quick else "")
    if passport.noise > NOISY:
        note += (
            f"; the machine was busy meanwhile (a roof moved by {100 * passport.noise:.0f} %):"
            " --remeasure when it is quiet"
        )
    return MachineAnswer(name=name, is_cached=False, note=note)


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
        if not known.startswith(name):
            continue
        try:
            passport = passports.read(known)
        except RidgelineError:
            continue
        has_device = any(c.device == task.device for c in passport.ceilings)
        is_same = another_machine(passport.description, description) is None
        if has_device and is_same and (task.quick or not passport.is_quick):
            return passport
    return None


def _free_name(passports: Passports, name: str, description: Description) -> str:
    """Never the name of another machine's passport, nor of one that cannot be read."""
    free, number = name, 2
    while free in passports.names():
        try:
            if another_machine(passports.read(free).description, description) is None:
                return free
        except RidgelineError:
            pass
        free, number = f"{name}-{number}", number + 1
    return free


def _measure(name: str, task: MachineTask, description: Description, send: OnProgress) -> Passport:
    from ridgeline.machine.measure import choose_devices, measure_machine
    from ridgeline.provenance import collect

    where = collect()
    return measure_machine(
        name,
        choose_devices([task.device]),
        quick=task.quick,
        progress=send,
        description=description,
        provenance=where,
        measured_at=where.time,
    )
