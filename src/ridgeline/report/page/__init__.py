"""The report as one HTML file that opens anywhere: no server, no network, no library.

Here template, styles and scripts are put together into the file, with the words of the template:
headline, largest headrooms, machines with their ceilings. The rest is in

payload.py  what the scripts draw, as compact JSON: runs, points, profiles and kernels
assets/     template.html.j2, page.css, and the scripts in the order below
"""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.findings import NO_BOUND, saving, saving_basis
from ridgeline.machine.passport import Ceiling
from ridgeline.report.page.payload import describe_captures, make_payload, name_machine, to_script
from ridgeline.report.study import Machine, Study
from ridgeline.report.summary import WORDS, sentence, summary
from ridgeline.report.text import counted, listed, number
from ridgeline.roofline.roofs import LEVELS, Roofs, flat_unit
from ridgeline.store import atomic_write_text
from ridgeline.units import format_percent, format_time, si
from ridgeline.version import __version__

if TYPE_CHECKING:
    import jinja2

__all__ = ["describe_captures", "describe_machine", "write_page"]
SCRIPTS = (  # in this order they become one script: a later one uses what earlier ones define
    "format.js", "data.js", "dom.js", "provenance.js", "scales.js", "roofs.js", "views.js",
    "marks.js", "plot.js", "pointer.js", "filters.js", "table.js", "layers.js", "charts.js",
    "sections.js", "executed.js", "runs.js", "main.js",
)  # fmt: skip
MOST_NAMES = 3  # in the title
COUNTED = {"static": "counted from the graph", "counter": "that hardware counters saw"}
SOURCES = {
    "measured": "measured on this machine",
    "datasheet": "the maker's published figures; this device was not measured",
    "given": "given by hand",
    "none": "no roofs are known",
}
UNITS = {"bandwidth": "B/s", "launch": "s", "power": "W"}  # of a ceiling


def write_page(study: Study, path: Path, *, title: str | None = None) -> Path:
    """Write the report of a study as one HTML file that needs nothing else."""
    from markupsafe import Markup

    payload, left_out = make_payload(study)
    style, script = read_asset("page.css"), join_scripts()
    text = (
        _make_environment()
        .get_template("template.html.j2")
        .render(
            page=_describe_page(study, title=title),
            left_out=left_out,
            has_points=bool(payload["points"]["count"]),
            style=Markup(style),
            script=Markup(script),
            payload=Markup(to_script(payload)),
            style_hash=_hash_text(style),
            script_hash=_hash_text(script),
        )
    )
    atomic_write_text(path, text)
    return path


@cache
def join_scripts() -> str:
    """All scripts in one scope of their own: nothing leaks but the hook that tests read."""
    parts = "\n".join(read_asset(name) for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}\n}})();'


@cache
def read_asset(name: str) -> str:
    """The text of a file under assets/."""
    file = resources.files("ridgeline.report.page").joinpath("assets", name)
    return file.read_text(encoding="utf-8")


def _hash_text(text: str) -> str:
    """By which the page's own policy knows its script and style, and refuses any other."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _make_environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FunctionLoader(read_asset),
        autoescape=True,  # every word of the results folder is text
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )


# ---------------------------------------------------------------- headline and headrooms


def _describe_page(study: Study, *, title: str | None) -> dict[str, Any]:
    """What the template shows of a study, beside the payload of the scripts."""
    short = summary(study)
    titles = {one.run_id: one.title for one in short.configurations}
    # sentences are known by their text: the same numbers are of the same run
    sources = {sentence(one): _name_source(study, one.run_id, one.work)
               for one in short.configurations}  # fmt: skip
    headline = [{"text": text, "provenance": sources.get(text, "")} for text in short.headline]
    return {
        "title": title or _make_title(study),
        "made_by": f"ridgeline {__version__}",
        "headline": describe_captures(study) if study.runs.empty else headline,
        "headrooms": [_describe_finding(study, row, titles) for row in short.findings],
        "no_bound": NO_BOUND,
        "energies": study.energy_sentences,
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


def _describe_finding(
    study: Study, row: Mapping[str, Any], titles: Mapping[str, str]
) -> dict[str, Any]:
    """One of the largest headrooms."""
    run_id, bound, points = str(row["run_id"]), row["bound"], study.points
    mine = points[points["run_id"].eq(run_id) & points["name"].eq(str(row["layer"]))]
    work = mine.loc[mine["grain"].isin(["layer", "phase"]), "provenance"].min()  # counters first
    return {
        "name": str(row["layer"]),
        "where": f"{titles.get(run_id, row['model'])}, on {row['env']}",
        "saves": saving(row),
        "basis": saving_basis(row),
        "floor_share": min(1.0, max(0.0, number(row["efficiency"]) or 0.0)),  # of its time
        "held_by": WORDS.get(bound, bound) if isinstance(bound, str) else "not known",
        "meaning": str(row["meaning"]),
        "advice": str(row["advice"]),
        "provenance": _name_source(study, run_id, work),
    }


def _name_source(study: Study, run_id: str, work: object) -> str:
    """Where the numbers of a run are from."""
    floor = "; floor: derived from the work {} and the roofs of the machine"
    of_floor = floor.format(COUNTED[work]) if isinstance(work, str) and work in COUNTED else ""
    return f"time: measured, run {run_id}{of_floor} (results in {study.results.name})"


# ---------------------------------------------------------------- machines


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
    clock = "" if roofs.clock_hz is None else si(roofs.clock_hz, "Hz")
    facts = [("measured", roofs.measured_at), ("highest clock", clock)]
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
    rates = {**sheet.flats, **sheet.bandwidth} if sheet is not None else {}
    published = rates.get(f"{c.precision} {c.path}" if c.kind == "compute" else str(c.level))
    at = c.conditions
    conditions = (
        (at.clock_hz, si(at.clock_hz or 0.0, "Hz")),
        (at.power_w if c.kind != "power" else None, si(at.power_w or 0.0, "W")),
        (at.temperature_c, f"{at.temperature_c or 0.0:.0f} °C"),
    )
    known = [text for value, text in conditions if value is not None]
    return {
        "what": _name_ceiling(c),
        "best": si(c.best, unit),
        "sustained": si(c.sustained, unit),
        "spread": format_percent(c.spread),
        "of_datasheet": format_percent(c.best / published) if published else "",
        "conditions": ", ".join([*known, *at.throttle_reasons]),
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
