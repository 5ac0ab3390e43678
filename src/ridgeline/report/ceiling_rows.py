"""The roofs of a machine as rows of a table, each with its source and the clock it was seen at."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ridgeline.machine.ceiling import ONE_CORE, Ceiling
from ridgeline.report.study import Machine
from ridgeline.roofline.roofs import flat_unit
from ridgeline.units import format_time, si

MEASURED = "measured"


def ceiling_rows(machine: Machine) -> list[dict[str, Any]]:
    """Compute, bandwidth and launches; `rate` is in words, `rate_per_s` and `time_s` in SI."""
    roofs = machine.roofs
    rows = [
        *(_rate(machine, "compute", name, rate) for name, rate in roofs.flats.items()),
        *(_rate(machine, "bandwidth", name, rate) for name, rate in roofs.bandwidth.items()),
        *(_launch(machine, name, each) for name, each in roofs.launch_s.items()),
    ]
    return [{**_same(machine), **row} for row in rows]


def _same(machine: Machine) -> dict[str, Any]:
    roofs = machine.roofs
    return {
        "env": roofs.env,
        "device": roofs.device,
        "measured_at": roofs.measured_at,
        "is_quick": roofs.is_quick,
    }


def _rate(machine: Machine, kind: str, name: str, rate: float) -> dict[str, Any]:
    unit = flat_unit(name) if kind == "compute" else "B/s"
    sheet = machine.datasheet
    known = (sheet.flats if kind == "compute" else sheet.bandwidth) if sheet else {}
    published = known.get(name)
    return {
        "kind": kind,
        "roof": name if kind == "compute" else name.upper(),
        "rate_per_s": rate,
        "rate": si(rate, unit),
        "of_datasheet": rate / published if published else None,
        **_origin(machine, kind, name, rate),
    }


def _launch(machine: Machine, name: str, each_s: float) -> dict[str, Any]:
    return {
        "kind": "launch",
        "roof": f"launch: {name}",
        "time_s": each_s,
        "rate": format_time(each_s),
        **_origin(machine, "launch", name, each_s),
    }


def _origin(machine: Machine, kind: str, name: str, value: float) -> dict[str, Any]:
    """Where a roof is from; a given roof may replace one that the passport has, too."""
    source = machine.roofs.source
    if source == ONE_CORE:  # and not among those that were measured
        source = "scaled"
    for ceiling in _ceilings(machine, kind):
        if ceiling.best == value and _name(ceiling) == name:
            return {
                "source": MEASURED,
                "clock_hz": ceiling.conditions.clock_hz,
                "how": ceiling.how,
            }
    return {"source": source, "clock_hz": machine.roofs.clock_hz if source == MEASURED else None}


def _ceilings(machine: Machine, kind: str) -> Iterable[Ceiling]:
    if machine.passport is None:
        return ()
    device = machine.roofs.device
    return (c for c in machine.passport.ceilings if c.kind == kind and c.device == device)


def _name(ceiling: Ceiling) -> str:
    if ceiling.kind == "compute":
        return f"{ceiling.precision} {ceiling.path}"
    return str(ceiling.level if ceiling.kind == "bandwidth" else ceiling.what)
