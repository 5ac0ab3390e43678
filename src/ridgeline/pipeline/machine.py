"""The ceilings of the machine that runs this: measured for an analysis, or anew as a passport."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ridgeline.errors import RidgelineError
from ridgeline.machine.compare import (
    another_device,
    another_machine,
    describe_drift,
    drift,
    sample_product_again,
)
from ridgeline.machine.describe import Description, describe, machine_name
from ridgeline.machine.measure import choose_devices, measure_devices
from ridgeline.machine.passport import Passport, Passports
from ridgeline.measure.worker import torch_needed
from ridgeline.pipeline.cases import Selection
from ridgeline.provenance import collect
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


def machine_task(
    results: Path, send: OnProgress, *, device: str, quick: bool, remeasure: bool
) -> MachineAnswer:
    """Find the passport of this machine, or measure it; a look tells whether the old one holds."""
    description = describe()
    passports = Passports(results)
    name = passport_name(machine_name(description), description, device)
    before = None
    if not remeasure:
        before = _find_passport(passports, description, device, is_quick=quick)
    if before is not None:
        note = f"kept from {before.measured_at[:10]}"
        if product := sample_product_again(before, device):
            note += f"; {describe_drift(product, before.measured_at)}"
        return MachineAnswer(name=before.name, is_cached=True, note=note)
    name = _free_name(passports, name, description)
    passport = _measure(name, choose_devices([device]), description, send, quick=quick)
    passports.write(passport)
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
    passport = _find_passport(Passports(folder), describe(), device, is_quick=True)
    product = None if passport is None else sample_product_again(passport, device)
    if passport is None or product is None:
        return None
    return describe_drift(product, passport.measured_at), product.has_drifted


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
    passports: Passports, description: Description, device: str, *, is_quick: bool
) -> Passport | None:
    """A passport of this very machine with ceilings of the device, as thorough as is asked."""
    name = passport_name(machine_name(description), description, device)
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


def _measure(
    name: str,
    devices: Sequence[str],
    description: Description,
    on_progress: OnProgress,
    *,
    quick: bool,
) -> Passport:
    made = collect()
    ceilings, missing = measure_devices(devices, quick=quick, progress=on_progress)
    return Passport(
        name=name,
        measured_at=made.time,
        is_quick=quick,
        ceilings=tuple(ceilings),
        missing=tuple(missing),
        description=description,
        provenance=made,
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
    own_name = _free_name(passports, machine_name(description), description)
    called = check_passport_name(name or own_name)
    before = _read_own(passports, called, description)
    if before is None and called in passports.names():
        raise RidgelineError(
            f"{passports.path(called)} is not a passport of this machine",
            hint="keep this one under another name: --name NAME",
        )
    ResultsFolder(results).check_writable()
    passport = _measure(called, devices, description, on_progress, quick=quick)
    changes = [] if before is None else drift(before, passport)
    other = before and another_device(before.description, passport.description)
    return StoredPassport(
        passport=passport,
        path=passports.write(passport),
        changes=tuple([other, *changes] if other else changes),
    )


def check_passport_name(name: str) -> str:
    """The name, if a file can have it."""
    if not name or not all(c.isalnum() or c in "._-" for c in name) or name.startswith("."):
        raise RidgelineError(
            f"{name!r} cannot be the name of a passport",
            hint="use letters, digits, '.', '_' and '-'",
        )
    return name


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
