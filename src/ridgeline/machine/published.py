"""What the makers publish for the devices of a passport: the second roof, always labelled."""

from __future__ import annotations

from typing import Any

from ridgeline.machine.ceiling import Ceiling
from ridgeline.machine.datasheets import datasheet_for
from ridgeline.machine.passport import Passport

Published = dict[str, list[dict[str, Any]]]


def published(passport: Passport) -> Published:
    """Datasheet ceilings of each device that has a datasheet, by the device's name."""
    found: Published = {}
    for gpu in passport.description.get("gpus") or ():
        sheet = datasheet_for(
            str(gpu.get("name")),
            units=gpu.get("compute_units"),
            memory_bytes=gpu.get("memory_bytes"),
        )
        if sheet is not None and gpu.get("index") is not None:
            device = "mps" if gpu.get("kind") == "mps" else f"cuda:{gpu['index']}"
            found[device] = list(sheet.ceilings(device))
    return found


def published_rate(ceiling: Ceiling, sheets: Published) -> float | None:
    """The published counterpart of a measured ceiling, where there is one."""
    for entry in sheets.get(ceiling.device, []):
        if entry["kind"] != ceiling.kind:
            continue
        if ceiling.kind == "bandwidth" and entry["level"] == ceiling.level:
            return float(entry["bytes_per_s"])
        same = (entry.get("path"), entry.get("precision")) == (ceiling.path, ceiling.precision)
        if ceiling.kind == "compute" and same:
            return float(entry["flops_per_s"])
    return None
