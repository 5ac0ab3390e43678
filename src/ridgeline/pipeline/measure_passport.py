"""`ridgeline machine measure`: the ceilings of this machine, kept as its passport."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ridgeline.errors import RidgelineError
from ridgeline.machine.compare import another_device, another_machine, drift
from ridgeline.machine.describe import Description, describe, machine_name
from ridgeline.machine.measure import measure_machine
from ridgeline.machine.passport import Passport, Passports
from ridgeline.provenance import collect
from ridgeline.store import ResultsFolder


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
    on_progress: Callable[[str], None] = lambda what: None,
) -> StoredPassport:
    """Measure the devices and store the passport; what would refuse it is checked before."""
    description = describe()
    passports = Passports(results)
    called = check_passport_name(name) if name else machine_name(description)
    before = _read_earlier(passports, called, description)
    ResultsFolder(results).check_writable()
    made = collect()
    passport = measure_machine(
        called,
        list(devices),
        quick=quick,
        progress=on_progress,
        description=description,
        provenance=made,
        measured_at=made.time,
    )
    path = passports.write(passport)
    changes = [] if before is None else drift(before, passport)
    other = before and another_device(before.description, passport.description)
    return StoredPassport(
        passport=passport, path=path, changes=tuple([other, *changes] if other else changes)
    )


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
    try:
        before = passports.read(name)
    except RidgelineError as error:  # its own hint is to measure again, which would end here
        raise RidgelineError(
            error.problem,
            hint=f"remove {passports.path(name)}, or keep this one under another name: --name NAME",
        ) from error
    other = another_machine(before.description, description)
    if other is not None:
        raise RidgelineError(
            f"{passports.path(name)} is the passport of another machine ({other})",
            hint="keep this one under another name: --name NAME",
        )
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
