"""Machines: roofs for the figure, and every ceiling for the table."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

from ridgeline.machine.describe import Description
from ridgeline.machine.passport import Ceiling, Passport
from ridgeline.report.page.columns import rates
from ridgeline.report.study import Machine, Study
from ridgeline.roofline.roofs import LEVELS, Roofs, flat_unit
from ridgeline.units import format_percent, format_time, si

SOURCES = {
    "measured": "measured on this machine",
    "datasheet": "the maker's published figures; this device was not measured",
    "given": "given by hand",
    "none": "no roofs are known",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One ceiling as text, with where it comes from."""

    what: str
    best: str
    sustained: str
    spread: str
    of_datasheet: str
    conditions: str
    how: str
    provenance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A machine as the page tells it."""

    title: str
    device_name: str
    device: str
    source: str
    facts: tuple[tuple[str, str], ...]
    rows: tuple[Row, ...]
    missing: tuple[tuple[str, str], ...]


def title(machine: Machine, study: Study) -> str:
    """Its name, with the device where several share a name."""
    same = [m for m in study.machines if m.env == machine.env]
    return machine.env if len(same) == 1 else f"{machine.env} {machine.roofs.device}"


def roofs_payload(machine: Machine, study: Study) -> dict[str, Any]:
    """What the figure needs of a machine."""
    roofs, sheet = machine.roofs, machine.datasheet
    is_own = sheet is None or sheet is roofs
    return {
        "title": title(machine, study),
        "device": roofs.device,
        "device_name": roofs.device_name,
        "source": roofs.source,
        "measured_at": roofs.measured_at,
        "compute": rates(roofs.flats),
        "bandwidth": rates(roofs.bandwidth),
        "datasheet": None if is_own else _rates(sheet),
    }


def _rates(roofs: Roofs | None) -> dict[str, Any]:
    assert roofs is not None
    return {"compute": rates(roofs.flats), "bandwidth": rates(roofs.bandwidth)}


def card(machine: Machine, study: Study) -> Card:
    """What the table of a machine shows."""
    roofs, passport = machine.roofs, machine.passport
    mine = [c for c in passport.ceilings if c.device == roofs.device] if passport else []
    is_measured = passport is not None and roofs.source == "measured" and not roofs.basis
    rows = [_row(c, machine, passport) for c in mine] if passport and is_measured else []
    return Card(
        title=title(machine, study),
        device_name=roofs.device_name,
        device=study.device_label(machine),
        source=roofs.basis or SOURCES.get(roofs.source, roofs.source),
        facts=tuple(_facts(machine)),
        rows=tuple(rows or _plain_rows(roofs)),
        missing=tuple((m.what, m.reason) for m in passport.missing) if passport else (),
    )


def _facts(machine: Machine) -> list[tuple[str, str]]:
    roofs, passport = machine.roofs, machine.passport
    found = [("measured", roofs.measured_at), ("highest clock", _si(roofs.clock_hz, "Hz"))]
    if passport is None:
        return [(name, text) for name, text in found if text]
    described, made = passport.description, passport.provenance
    found += [
        ("depth", "quick" if passport.is_quick else "full"),
        ("noise", format_percent(passport.noise)),
        ("driver", _driver(described) if roofs.device != "cpu" else ""),
        ("system", described.os),
        ("torch", made.libraries.get("torch", "")),
        ("repeat with", shlex.join(made.command)),
    ]
    return [(name, text) for name, text in found if text]


def _driver(described: Description) -> str:
    return next((gpu.driver for gpu in described.gpus if gpu.driver), "")


def _row(c: Ceiling, machine: Machine, passport: Passport) -> Row:
    units = {"bandwidth": "B/s", "launch": "s", "power": "W"}
    unit = flat_unit(str(c.precision)) if c.kind == "compute" else units[c.kind]
    return Row(
        what=_what(c),
        best=si(c.best, unit),
        sustained=si(c.sustained, unit),
        spread=format_percent(c.spread),
        of_datasheet=_share(c, machine.datasheet),
        conditions=_conditions(c),
        how=c.how,
        provenance=f"measured: {len(c.samples)} samples, {passport.measured_at}; {c.how}",
    )


def _what(c: Ceiling) -> str:
    if c.kind == "compute":
        into = f" into {c.accumulator}" if c.accumulator else ""
        return f"{c.precision} {c.path}{into}{_only(c)}"
    if c.kind == "bandwidth":
        level = str(c.level)
        name = level.upper() if level in LEVELS else level
        return f"{name} {c.pattern or ''}".rstrip() + _only(c)
    return f"{c.kind}: {c.what}"


def _only(c: Ceiling) -> str:
    """Where a ceiling is not of the whole device: `, one core`."""
    return f", {c.what}" if c.what else ""


def _share(c: Ceiling, sheet: Roofs | None) -> str:
    if sheet is None:
        return ""
    by_kind = {
        "compute": sheet.flats.get(f"{c.precision} {c.path}"),
        "bandwidth": sheet.bandwidth.get(str(c.level)),
    }
    published = by_kind.get(c.kind)
    return format_percent(c.best / published) if published else ""


def _conditions(c: Ceiling) -> str:
    at = c.conditions
    parts = [
        _si(at.clock_hz, "Hz"),
        _si(at.power_w, "W") if c.kind != "power" else "",
        f"{at.temperature_c:.0f} °C" if at.temperature_c is not None else "",
        *at.throttle_reasons,
    ]
    return ", ".join(part for part in parts if part)


def _plain_rows(roofs: Roofs) -> list[Row]:
    """Roofs without a passport: published or given."""
    found = [(name, si(rate, flat_unit(name))) for name, rate in roofs.flats.items()]
    found += [(level.upper(), si(rate, "B/s")) for level, rate in roofs.bandwidth.items()]
    found += [(f"launch: {what}", format_time(time_s)) for what, time_s in roofs.launch_s.items()]
    return [
        Row(what=name, best=text, sustained="", spread="", of_datasheet="", conditions="",
            how=roofs.source, provenance=f"{roofs.source}: {roofs.device_name}")
        for name, text in found
    ]  # fmt: skip


def _si(value: float | None, unit: str) -> str:
    return "" if value is None else si(value, unit)
