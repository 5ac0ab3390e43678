"""Imported captures after the runs: the figure places them, tables of runs leave them out."""

from __future__ import annotations

from typing import Any

from ridgeline.report.executed import launch_gap
from ridgeline.report.page.columns import Words
from ridgeline.report.page.runs import WORD_COLUMNS, roofs_used
from ridgeline.report.study import Study
from ridgeline.report.text import number, records
from ridgeline.units import format_percent, format_time, si


def with_captures(columns: dict[str, Any], study: Study, words: Words) -> dict[str, Any]:
    """The columns of the runs with a row for each capture after them; `measured` are the others."""
    measured = int(columns["count"])
    rows = records(study.captures)
    if not rows:
        return {**columns, "measured": measured}
    used = roofs_used(study.capture_points)
    texts: dict[str, list[Any]] = {
        "id": [str(row["run_id"]) for row in rows],
        "model": [str(row["label"]) for row in rows],
        "mode": ["capture"] * len(rows),
        "time": [row.get("timestamp") for row in rows],
        "label": [str(row["label"]) for row in rows],
        "command": [str(row["command"]) for row in rows],
        "files": [str(row["files"]) for row in rows],
        "device": [str(row["device_name"]) for row in rows],
        "warnings": [str(row["warnings"]) for row in rows],
    }
    new = {**columns, "count": measured + len(rows), "measured": measured}
    for name in WORD_COLUMNS:
        before = columns.get(name) or words.column([""] * measured)
        new[name] = [*before, *words.column(texts.get(name, [""] * len(rows)))]
    new["machine"] = [*columns.get("machine", ()), *(_machine(row, study) for row in rows)]
    new["roofs"] = [*columns.get("roofs", ()),
                    *(words.column(used.get(str(row["run_id"]), ())) for row in rows)]  # fmt: skip
    return new


def _machine(row: dict[str, Any], study: Study) -> int:
    places = [n for n, machine in enumerate(study.machines) if machine.env == row["env"]]
    return next((n for n in places if study.machines[n].roofs.device == row["device"]), -1)


def capture_sentences(study: Study) -> list[str]:
    """How near each capture is to its roofs, for the headline of a page without runs."""
    found = []
    for row in records(study.captures):
        text = f"{row['label']}, on {row['env']}: {_time_told(row)}."
        reached = number(row["efficiency"])
        if reached is not None:
            they = "It reaches" if number(row["launches"]) == 1 else "They reach"
            text += f" {they} {format_percent(reached)} of what the roofs allow."
        found.append(text)
    return found


def capture_sources(study: Study) -> list[str]:
    """Where the numbers of each capture are from."""
    return [f"capture: {row['files']}, stored as {row['run_id']} (results in {study.results.name})"
            for row in records(study.captures)]  # fmt: skip


def _time_told(row: dict[str, Any]) -> str:
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
