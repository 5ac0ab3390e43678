"""A study in the terminal: steps, captures and layers under their roofs, flags and findings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ridgeline.cli.messages import name_run, show_message, show_notes
from ridgeline.cli.show_runs import run_to_json
from ridgeline.cli.tables import (
    NOT_KNOWN,
    Columns,
    make_grid,
    print_grid,
    print_text,
    to_records,
)
from ridgeline.findings import saving, saving_basis
from ridgeline.report.configurations import describe_settings
from ridgeline.report.study import BUSY
from ridgeline.report.summary import write_headline
from ridgeline.report.text import number
from ridgeline.roofline.floors import describe_balances
from ridgeline.roofline.work import short_kernel
from ridgeline.units import format_percent, format_time, si

if TYPE_CHECKING:
    import pandas as pd

    from ridgeline.pipeline.analyze import Analysis
    from ridgeline.report.study import Study

MOST_FLAGS = 5
MOST_WARNINGS = 2  # of a run
MARK = "*"
FINDING_KEYS = (
    "layer", "bound", "efficiency", "headroom_s", "advice", "meaning", "share", "time_s", "floor_s",
    "kind", "model", "batch_size", "precision", "run_id",
)  # fmt: skip

# ---------------------------------------------------------------- tables

Point = dict[Any, Any]


def _format_field(name: str, form: Callable[[Any], str] = str) -> Callable[[Point], str]:
    """The cell of a field; a dash where it is not known."""
    return lambda p: NOT_KNOWN if p[name] in ("", None) or p[name] != p[name] else form(p[name])


def _format_intensity(point: Point) -> str:
    """A range where there is one."""
    low, high = point["ai"], point.get("ai_high", point["ai"])
    if low != low:
        return NOT_KNOWN
    return f"{low:.3g}" if high != high or high <= low * 1.01 else f"{low:.3g}…{high:.3g}"


COLUMNS: Columns = {
    "model": _format_field("model"),
    "batch": _format_field("batch_size"),
    "precision": lambda p: f"{p['precision']} {p['mode']}",
    "settings": lambda p: str(p["settings"]) or NOT_KNOWN,
    "capture": _format_field("label"),
    "device": _format_field("device_name"),
    "kernels": _format_field("launches", "{:.0f}".format),
    "layer": _format_field("layer"),
    "kind": lambda p: str(p["kind"]),
    "work": _format_field("provenance"),
    "machine": _format_field("env"),
    "FLOP/B": _format_intensity,
    "attained": _format_field("attained_flops_per_s", lambda rate: si(rate, "FLOP/s")),
    "step": lambda p: COLUMNS["time"](p) + p["mark"],
    "kernel time": _format_field("time_s", format_time),
    "time": _format_field("time_s", format_time),
    "floor": _format_field("floor_s", format_time),
    "bound": _format_field("bound"),
    "efficiency": _format_field("efficiency", format_percent),
    "headroom": _format_field("headroom_s", format_time),
}


def _print_points(
    points: Iterable[Point], header: list[str], spare: tuple[str, ...], names: int = 1
) -> None:
    columns = {title: COLUMNS[title] for title in header}
    print_grid(make_grid(points, columns, names=names, spare=spare))


def print_steps(study: Study) -> None:
    """A row per run: where its step stands."""
    points = _select(study.points, "step").to_dict("records")
    if not points:
        return
    settings = _describe_settings(study)
    busy = study.disturbed
    for point in points:
        point["settings"] = settings.get(str(point["run_id"]), "")
        point["mark"] = MARK if point["run_id"] in busy else ""
    header = ["model", "batch", "precision", "settings", "work", "machine", "FLOP/B", "attained",
              "step", "floor", "bound", "efficiency", "headroom"]  # fmt: skip
    if sys.stdout.isatty():  # elsewhere the columns are always the same
        if not any(settings.values()):
            header.remove("settings")
        if all(point["provenance"] != "counter" for point in points):
            header.remove("work")  # all of it is counted from the graph
    _print_points(points, header, ("FLOP/B", "attained", "machine", "headroom", "precision"))
    for reason in dict.fromkeys(busy[p["run_id"]] for p in points if p["mark"]):
        print_text(f"{MARK} {BUSY}: {reason}")


def _describe_settings(study: Study) -> dict[str, str]:
    """Of each run the label and the threads, where they differ, and what tells it from others."""
    shown = [name for name in ("label", "threads")
             if len({case.settings[name] for case in study.cases}) > 1]  # fmt: skip
    return {
        run_id: ", ".join(dict.fromkeys([*describe_settings(case.settings, shown), *case.extras]))
        for run_id, case in study.case_of.items()
    }


def _select(points: pd.DataFrame, scope: str) -> pd.DataFrame:
    return points[points["grain"].eq(scope)] if len(points) else points


def print_captures(study: Study) -> None:
    """A row per imported capture: where all its kernels stand together."""
    if study.captures.empty:
        return
    header = ["capture", "device", "kernels", "machine", "FLOP/B", "attained", "kernel time",
              "floor", "bound", "efficiency"]  # fmt: skip
    spare = ("FLOP/B", "attained", "machine", "device")
    _print_points(study.captures.to_dict("records"), header, spare, names=2)
    print_text("The time of a capture is the sum of its kernels' times.")


def print_layers(study: Study, top: int) -> None:
    """The layers with the largest headroom, of all runs; by counters, where there are any."""
    layers = _select(study.points, "layer")
    if len(layers):
        layers = layers[layers["phase"].eq("all") & layers["headroom_s"].notna()]
    if layers.empty:
        show_notes(["no run has layers that were timed and counted (ridgeline run --layers)"])
        return
    best = layers.sort_values("provenance").drop_duplicates(["run_id", "layer"])  # counters first
    shown = best.sort_values("headroom_s", ascending=False).head(top)
    shown = shown.assign(model=[_name_run(study, p) for p in shown.to_dict("records")])
    header = ["model", "layer", "kind", "work", "time", "floor", "bound", "efficiency", "headroom"]
    _print_points(shown.to_dict("records"), header, ("kind", "floor", "work"), names=4)


def _name_run(study: Study, point: Point) -> str:
    """The network and the batch; all that tells its run from others where several have these."""
    name = f"{point['model']}, batch {point['batch_size']}"
    same = [case for case in study.cases if case.title.startswith(f"{name}, ")]
    case = study.case_of.get(str(point["run_id"]))
    return name if case is None or len(same) == 1 else case.title


ENERGY_COLUMNS: dict[str, Callable[[Point], str]] = {
    **{name: COLUMNS[name] for name in ("model", "batch", "precision", "layer", "machine", "time")},
    "joules": _format_field("energy_j", lambda energy_j: si(energy_j, "J")),
    "source": _format_field("energy_provenance"),
    "power": _format_field("power_w", lambda power_w: si(power_w, "W")),
    "floor": _format_field("energy_floor_j", lambda energy_j: si(energy_j, "J")),
    "efficiency": _format_field("energy_efficiency", format_percent),
    "FLOPs": _format_field("flops_share", format_percent),
    "bytes": _format_field("bytes_share", format_percent),
    "constant": _format_field("constant_share", format_percent),
}


def print_energies(study: Study, layers: int) -> None:
    """A row per step with joules, so many layers, balances of machines, and what stands out."""
    steps = _select(study.energies, "step")
    wholes = _select(study.energies, "layer")
    wholes = wholes[wholes["phase"].eq("all")].nlargest(layers, "energy_j")
    for table, dropped in ((steps, "layer"), (wholes, "precision")):
        columns = {name: cell for name, cell in ENERGY_COLUMNS.items() if name != dropped}
        spare = ("machine", "time", "power", "precision")
        if len(table):
            print_grid(make_grid(to_records(table), columns, spare=spare))
    for machine in study.machines:
        for line in describe_balances(machine.passport, machine.roofs):
            print_text(line)
    for line in study.energy_sentences:
        print_text(line)


# ---------------------------------------------------------------- flags


def print_flags(study: Study) -> None:
    """What physics forbids, in words."""
    lines = flag_lines(study)
    for line in lines[:MOST_FLAGS]:
        print_text(f"flag: {line}")
    if len(lines) > MOST_FLAGS:
        print_text(f"flag: and {len(lines) - MOST_FLAGS} more, in roofline_points.csv")


def flag_lines(study: Study) -> list[str]:
    """Of flags of the same cause, that of the work that takes longest."""
    lines: dict[tuple[str, str], str] = {}
    points = study.points
    flagged = points[points["flag"].ne("")] if len(points) else points
    for point in sorted(flagged.to_dict("records"), key=lambda p: -float(p["time_s"])):
        batch = number(point["batch_size"])  # a capture has none
        what = str(point["model"]) if batch is None else f"{point['model']}, batch {batch:.0f}"
        name = str(point["name"])
        name = short_kernel(name) if point["grain"] == "kernel" else name
        part = "" if name == what or point["grain"] == "step" else f", {name}"
        cause = str(point["flag"]).partition("likely cause: ")[2]
        lines.setdefault((what, cause), f"{what}{part}: {point['flag']}")
    found = list(lines.values())
    for run in study.runs.to_dict("records"):
        name = f"{run['model']}, batch {run['batch_size']}"
        found += [f"{name}: {run[column]}" for column in ("flag", "clock_flag") if run[column]]
    return list(dict.fromkeys(found))


# ---------------------------------------------------------------- the end of an analysis


def analysis_to_json(analysis: Analysis) -> dict[str, Any]:
    """The answer for programs."""
    study, page, runner = analysis.study, analysis.outputs.page, analysis.runner
    findings = [] if study is None else to_records(study.findings)
    return {
        "report": str(page) if page is not None else None,
        "machine": analysis.machine,
        "runs": [run_to_json(run, runner.results) for run in runner.runs],
        "findings": [{key: row.get(key) for key in FINDING_KEYS} for row in findings],
        "stages": [asdict(stage) for stage in analysis.stages],
        "problems": [*analysis.problems, *(study.problems if study is not None else ())],
    }


def show_analysis(analysis: Analysis, study: Study, *, quiet: bool) -> None:
    """How fast it could be, what holds it back, what to try; the report's path last."""
    for line in (*write_headline(study), ""):
        print_text(line)
    print_steps(study)
    if findings := study.top_findings().to_dict("records"):
        print_text("What to try first:")
        for line in finding_lines(findings):
            print_text(line)
    print_flags(study)
    if not quiet:
        _advise(analysis, study)
    if analysis.outputs.page is not None:
        print(analysis.outputs.page)


def finding_lines(findings: Sequence[dict[Any, Any]]) -> list[str]:
    """A numbered line for each."""
    lines = []
    for place, row in enumerate(findings, start=1):
        where = f"{row['layer']} of {row['model']} (batch {row['batch_size']}, {row['precision']})"
        estimate = f"An estimate of what it could save: {saving(row)}, {saving_basis(row)}."
        lines.append(f"{place}. {where} {row['meaning']}. {estimate} Try: {row['advice']}.")
    return lines


def warning_lines(study: Study) -> list[str]:
    """What the measurements themselves warn of, the first few of each run."""
    lines = []
    for run in study.raw_runs:
        warnings, name = run.result.warnings, name_run(run)
        lines += [f"{name}: {text}" for text in warnings[:MOST_WARNINGS]]
        if len(warnings) > MOST_WARNINGS:
            lines.append(f"{name}: and {len(warnings) - MOST_WARNINGS} more, in the report")
    return lines


def _advise(analysis: Analysis, study: Study) -> None:
    """Beside the answer: what was skipped, what to know, where else to look."""
    for stage in analysis.stages:
        if stage.status in ("skipped", "failed", "cached") or "busy meanwhile" in stage.reason:
            show_message(f"{stage.stage}: {stage.status}: {stage.reason}")
    outputs = analysis.outputs
    show_notes([*analysis.problems, *outputs.notes, *study.problems, *warning_lines(study)])
    if outputs.markdown is not None:
        figures = study.results / "figures"
        show_message(f"also {outputs.markdown}, {outputs.points}, {figures}")
