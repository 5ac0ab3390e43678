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
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ridgeline.findings import NO_BOUND, saving, saving_basis
from ridgeline.report.convolutions import describe_totals, largest_losses, whole_networks
from ridgeline.report.figures import TRAINING, write_figures
from ridgeline.report.page.payload import (
    HEADINGS,
    describe_captures,
    make_payload,
    name_machine,
    to_script,
)
from ridgeline.report.predictions import PREDICTION, describe_predictions
from ridgeline.report.study import Machine, Study
from ridgeline.report.summary import MOST_SENTENCES, WORDS, find_fastest, name_study, write_headline
from ridgeline.report.tables import (
    SHOWN,
    for_people,
    formatted,
    known_columns,
    list_ceilings,
    share,
    text,
    trainings_table,
)
from ridgeline.report.text import number, records
from ridgeline.store import atomic_write_text
from ridgeline.units import format_percent, si
from ridgeline.version import __version__

if TYPE_CHECKING:
    import jinja2
    import pandas as pd

__all__ = ["describe_captures", "describe_machine", "write_page"]
SCRIPTS = (  # in this order they become one script: a later one uses what earlier ones define
    "format.js", "data.js", "dom.js", "provenance.js", "scales.js", "roofs.js", "views.js",
    "names.js", "marks.js", "plot.js", "pointer.js", "filters.js", "table.js", "layers.js",
    "charts.js", "sections.js", "executed.js", "runs.js", "sweeps.js", "main.js",
)  # fmt: skip
COUNTED = {"static": "counted from the graph", "counter": "that hardware counters saw"}
SOURCES = {
    "measured": "measured on this machine",
    "datasheet": "the maker's published figures; this device was not measured",
    "given": "given by hand",
    "none": "no roofs are known",
}
CEILINGS = (
    text("roof", "Ceiling"), text("rate", "Best"), text("sustained", "Sustained"),
    share("spread", "Spread"), share("of_datasheet", "Of datasheet"), text("conditions", "Under"),
    text("how", "How"),
)  # fmt: skip


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
            headings=HEADINGS,
            has_points=bool(payload["points"]["count"]),
            has_sweeps="sweeps" in payload,
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
    fastest = find_fastest(study)[:MOST_SENTENCES]
    sources = [_name_source(study, case.run_id, case.work) for case in fastest]
    pairs = zip_longest(write_headline(study), sources, fillvalue="")
    headline = [{"text": text, "provenance": source} for text, source in pairs]
    return {
        "title": title or name_study(study),
        "made_by": f"ridgeline {__version__}",
        "headline": describe_captures(study) if study.runs.empty else headline,
        "headrooms": [_describe_finding(study, row) for row in records(study.top_findings())],
        "no_bound": NO_BOUND,
        "energies": study.energy_sentences,
        "machines": [describe_machine(study, machine) for machine in study.machines],
        "convolutions": {
            "sentences": describe_totals(study.convolutions),
            "tables": _list_convolutions(study),
        },
        "predictions": {
            "sentences": describe_predictions(study.predictions),
            "tables": _list_rows("Predictions", "predictions", study.predictions),
            "figures": _draw(study, PREDICTION) if len(study.predictions) else [],
        },
        "trainings": {
            "tables": _list_rows("Trainings", "trainings", trainings_table(study.trainings)),
            "figures": _draw(study, TRAINING) if study.trainings else [],
        },
        "stages": study.stages,
        "problems": study.problems,
    }


def _describe_finding(study: Study, row: Mapping[str, Any]) -> dict[str, Any]:
    """One of the largest headrooms."""
    run_id, bound, points = str(row["run_id"]), row["bound"], study.points
    mine = points[points["run_id"].eq(run_id) & points["name"].eq(str(row["layer"]))]
    work = mine.loc[mine["grain"].isin(["layer", "phase"]), "provenance"].min()  # counters first
    return {
        "name": str(row["layer"]),
        "where": f"{study.case_of[run_id].title}, on {row['env']}",
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


# ---------------------------------------------------------------- tables and pictures


def _list_convolutions(study: Study) -> list[dict[str, Any]]:
    tables = {
        "Layers that lose most": largest_losses(study.convolutions),
        "Whole networks": whole_networks(study.convolutions),
    }
    return [
        {"title": title, "headers": [*rows[0]], "rows": [[*row.values()] for row in rows]}
        for title, rows in tables.items()
        if rows
    ]


def _list_rows(title: str, name: str, table: pd.DataFrame) -> list[dict[str, Any]]:
    """A table of the study, if it has rows."""
    columns = known_columns(table, SHOWN[name])
    headers = [column.header for column in columns]
    rows = formatted(for_people(name, table), columns)
    return [{"title": title, "headers": headers, "rows": rows}] if rows else []


def _draw(study: Study, kind: str) -> list[dict[str, str]]:
    """The figure of a kind as pictures that stand in the page."""
    with TemporaryDirectory() as folder:
        figures = write_figures(study, Path(folder), formats=["svg"], kinds=[kind])
        return [
            {
                "title": figure.title,
                "caption": figure.caption,
                "content": base64.b64encode(figure.path.read_bytes()).decode(),
            }
            for figure in figures
        ]


# ---------------------------------------------------------------- machines


def describe_machine(study: Study, machine: Machine) -> dict[str, Any]:
    """A machine with the table of its ceilings."""
    import pandas as pd

    roofs, passport = machine.roofs, machine.passport
    rows = list_ceilings(machine)
    return {
        "title": name_machine(study, machine),
        "device_name": roofs.device_name,
        "device": study.device_label(machine),
        "source": roofs.basis or SOURCES.get(roofs.source, roofs.source),
        "facts": [(name, text) for name, text in _list_facts(machine) if text],
        "headers": [column.header for column in CEILINGS],
        "rows": [
            (cells, f"{row['source']}: {roofs.device_name}, {roofs.measured_at}")
            for row, cells in zip(rows, formatted(pd.DataFrame(rows), CEILINGS), strict=True)
        ],
        "missing": [(m.what, m.reason) for m in passport.missing] if passport else [],
    }


def _list_facts(machine: Machine) -> list[tuple[str, str]]:
    roofs, passport = machine.roofs, machine.passport
    clock = "" if roofs.clock_hz is None else si(roofs.clock_hz, "Hz")
    facts = [("note", machine.note), ("measured", roofs.measured_at), ("highest clock", clock)]
    if passport is None or not passport.ceilings:
        return facts
    described, provenance = passport.description, passport.provenance
    drivers = [gpu.driver for gpu in described.gpus if gpu.driver and roofs.device != "cpu"]
    return [
        *facts,
        ("depth", "quick" if passport.is_quick else "full"),
        ("noise", format_percent(passport.noise)),
        ("driver", next(iter(drivers), "")),
        ("system", described.os),
        ("torch", provenance.libraries.get("torch", "")),
        ("repeat with", shlex.join(provenance.command)),
    ]
