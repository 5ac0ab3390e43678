"""The words of the page's template: headline, largest headrooms, machines with their ceilings."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from ridgeline.findings import NO_BOUND, saving, saving_basis
from ridgeline.machine.passport import Ceiling
from ridgeline.report.profiled import launch_gap
from ridgeline.report.study import Machine, Study
from ridgeline.report.summary import WORDS, sentence, summary
from ridgeline.report.text import counted, listed, number, records
from ridgeline.roofline.roofs import LEVELS, Roofs, flat_unit
from ridgeline.units import format_percent, format_time, si
from ridgeline.version import __version__

MOST_NAMES = 3  # in the title
COUNTED = {"static": "counted from the graph", "counter": "that hardware counters saw"}
SOURCES = {
    "measured": "measured on this machine",
    "datasheet": "the maker's published figures; this device was not measured",
    "given": "given by hand",
    "none": "no roofs are known",
}
UNITS = {"bandwidth": "B/s", "launch": "s", "power": "W"}  # of a ceiling


def describe_page(study: Study, *, title: str | None) -> dict[str, Any]:
    """What the template shows of a study, beside the payload of the scripts."""
    short = summary(study)
    titles = {one.run_id: one.title for one in short.configurations}
    if study.runs.empty:
        headline = describe_captures(study)
    else:  # sentences are known by their text: the same numbers are of the same run
        runs = {sentence(one): one for one in short.configurations}
        sources = [runs.get(text) for text in short.headline]
        headline = [
            {"text": text, "provenance": _name_source(study, one.run_id, one.work) if one else ""}
            for text, one in zip(short.headline, sources, strict=True)
        ]
    return {
        "title": title or _make_title(study),
        "made_by": f"ridgeline {__version__}",
        "headline": headline,
        "headrooms": [_describe_finding(study, row, titles) for row in short.findings],
        "no_bound": NO_BOUND,
        "machines": [describe_machine(study, machine) for machine in study.machines],
        "stages": study.stages,
        "problems": study.problems,
    }


def _make_title(study: Study) -> str:
    if study.runs.empty and len(study.captures):
        return _list_few(study.captures["label"], "capture")
    if study.runs.empty:
        return "Roofline report"
    models, machines = study.runs["model"], study.runs["env"]
    return f"{_list_few(models, 'model')} on {_list_few(machines, 'machine')}"


def _list_few(names: Any, kind: str) -> str:
    """Up to three names; of more, how many there are."""
    unique = list(dict.fromkeys(map(str, names)))
    return listed(unique) if len(unique) <= MOST_NAMES else counted(len(unique), kind)


# ---------------------------------------------------------------- runs and captures


def _describe_finding(
    study: Study, row: Mapping[str, Any], titles: Mapping[str, str]
) -> dict[str, Any]:
    """One of the largest headrooms."""
    run_id, name, bound = str(row["run_id"]), str(row["layer"]), row["bound"]
    points = study.points
    mine = points[points["run_id"].eq(run_id) & points["grain"].isin(["layer", "phase"])]
    work = sorted(set(mine.loc[mine["name"].eq(name), "provenance"]))  # counters come first
    return {
        "name": name,
        "where": f"{titles.get(run_id, row['model'])}, on {row['env']}",
        "saves": saving(row),
        "basis": saving_basis(row),
        "floor_share": min(1.0, max(0.0, number(row["efficiency"]) or 0.0)),  # of its time
        "held_by": WORDS.get(bound, bound) if isinstance(bound, str) else "not known",
        "meaning": str(row["meaning"]),
        "advice": str(row["advice"]),
        "provenance": _name_source(study, run_id, str(work[0]) if work else None),
    }


def _name_source(study: Study, run_id: str, work: str | None) -> str:
    """Where the numbers of a run are from."""
    where = f"(results in {study.results.name})"
    if work not in COUNTED:
        return f"time: measured, run {run_id} {where}"
    return (
        f"time: measured, run {run_id}; floor: derived from the work {COUNTED[work]} and the roofs"
        f" of the machine {where}"
    )


def describe_captures(study: Study) -> list[dict[str, str]]:
    """How near each capture is to its roofs, with its source."""
    sentences = []
    for row in records(study.captures):
        text = f"{row['label']}, on {row['env']}: {_describe_time(row)}."
        reached = number(row["efficiency"])
        if reached is not None:
            they = "It reaches" if number(row["launches"]) == 1 else "They reach"
            text += f" {they} {format_percent(reached)} of what the roofs allow."
        source = f"capture: {row.get('files')}, stored as {row.get('run_id')}"
        where = f"{source} (results in {study.results.name})"
        sentences.append({"text": text, "provenance": where})
    return sentences


def _describe_time(row: Mapping[str, Any]) -> str:
    launches, time_s, step_s = (number(row[n]) for n in ("launches", "time_s", "step_time_s"))
    if step_s and time_s:
        busy_s, copy_s = number(row["busy_time_s"]), number(row["copy_time_s"])
        return launch_gap(time_s, step_s, round(launches or 0), busy_s=busy_s, copy_s=copy_s)
    taken = "an unknown time" if time_s is None else format_time(time_s)
    if launches == 1:
        return f"1 kernel launch takes {taken} (the step around it was not timed)"
    return (
        f"{si(launches or 0)} kernel launches take {taken} together (the sum of their times; the"
        " step around them was not timed)"
    )


# ---------------------------------------------------------------- machines


def name_machine(study: Study, machine: Machine) -> str:
    """Its name, with the device where several share a name."""
    same = [m for m in study.machines if m.env == machine.env]
    return machine.env if len(same) == 1 else f"{machine.env} {machine.roofs.device}"


def describe_machine(study: Study, machine: Machine) -> dict[str, Any]:
    """A machine with the table of its ceilings: those of its passport, or its roofs alone."""
    roofs, passport = machine.roofs, machine.passport
    rows = []
    if passport and roofs.source == "measured" and not roofs.basis:
        mine = [c for c in passport.ceilings if c.device == roofs.device]
        rows = [_describe_ceiling(c, machine.datasheet, passport.measured_at) for c in mine]
    return {
        "title": name_machine(study, machine),
        "device_name": roofs.device_name,
        "device": study.device_label(machine),
        "source": roofs.basis or SOURCES.get(roofs.source, roofs.source),
        "facts": [(name, text) for name, text in _list_facts(machine) if text],
        "rows": rows or _describe_roofs(roofs),
        "missing": [(m.what, m.reason) for m in passport.missing] if passport else [],
    }


def _list_facts(machine: Machine) -> list[tuple[str, str]]:
    roofs, passport = machine.roofs, machine.passport
    facts = [
        ("measured", roofs.measured_at),
        ("highest clock", _format_known(roofs.clock_hz, "Hz")),
    ]
    if passport is None:
        return facts
    described, provenance = passport.description, passport.provenance
    drivers = [gpu.driver for gpu in described.gpus if gpu.driver]
    return [
        *facts,
        ("depth", "quick" if passport.is_quick else "full"),
        ("noise", format_percent(passport.noise)),
        ("driver", drivers[0] if drivers and roofs.device != "cpu" else ""),
        ("system", described.os),
        ("torch", provenance.libraries.get("torch", "")),
        ("repeat with", shlex.join(provenance.command)),
    ]


def _describe_ceiling(c: Ceiling, sheet: Roofs | None, measured_at: str) -> dict[str, str]:
    unit = flat_unit(str(c.precision)) if c.kind == "compute" else UNITS[c.kind]
    published = None
    if sheet is not None and c.kind == "compute":
        published = sheet.flats.get(f"{c.precision} {c.path}")
    elif sheet is not None and c.kind == "bandwidth":
        published = sheet.bandwidth.get(str(c.level))
    at = c.conditions
    conditions = [
        _format_known(at.clock_hz, "Hz"),
        _format_known(at.power_w, "W") if c.kind != "power" else "",
        f"{at.temperature_c:.0f} °C" if at.temperature_c is not None else "",
        *at.throttle_reasons,
    ]
    return {
        "what": _name_ceiling(c),
        "best": si(c.best, unit),
        "sustained": si(c.sustained, unit),
        "spread": format_percent(c.spread),
        "of_datasheet": format_percent(c.best / published) if published else "",
        "conditions": ", ".join(part for part in conditions if part),
        "how": c.how,
        "provenance": f"measured: {len(c.samples)} samples, {measured_at}; {c.how}",
    }


def _name_ceiling(c: Ceiling) -> str:
    only = f", {c.what}" if c.what else ""  # where it is not of the whole device: `, one core`
    if c.kind == "compute":
        into = f" into {c.accumulator}" if c.accumulator else ""
        return f"{c.precision} {c.path}{into}{only}"
    if c.kind == "bandwidth":
        level = str(c.level).upper() if c.level in LEVELS else str(c.level)
        return f"{level} {c.pattern or ''}".rstrip() + only
    return f"{c.kind}: {c.what}"


def _describe_roofs(roofs: Roofs) -> list[dict[str, str]]:
    """Roofs without a passport: published or given."""
    texts = {
        **{name: si(rate, flat_unit(name)) for name, rate in roofs.flats.items()},
        **{level.upper(): si(rate, "B/s") for level, rate in roofs.bandwidth.items()},
        **{f"launch: {what}": format_time(time_s) for what, time_s in roofs.launch_s.items()},
    }
    empty = dict.fromkeys(("sustained", "spread", "of_datasheet", "conditions"), "")
    source = {"how": roofs.source, "provenance": f"{roofs.source}: {roofs.device_name}"}
    return [{"what": name, "best": text, **empty, **source} for name, text in texts.items()]


def _format_known(value: float | None, unit: str) -> str:
    return "" if value is None else si(value, unit)
