"""A row per run: what it measured, under which conditions, and how to repeat it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ridgeline.report.configurations import (
    PLACE,
    SETTINGS,
    describe_settings,
    find_differing_each,
    read_all_settings,
    samples_per_s,
)
from ridgeline.report.page.columns import Words, is_missing, numbers
from ridgeline.report.study import BUSY, Study
from ridgeline.report.summary import floor_notes
from ridgeline.report.text import records
from ridgeline.report.views import repeat_command
from ridgeline.roofline.floors import flops_columns, roof_of
from ridgeline.store import Run

if TYPE_CHECKING:
    import pandas as pd

FROM_TABLE = {  # column of the payload: column of study.runs
    "batch": "batch_size",
    "step_s": "step_median_s",
    "step_low_s": "step_interval_low_s",
    "step_high_s": "step_interval_high_s",
    "step_std_s": "step_std_s",
    "busy": "busy_fraction",
    "clock_hz": "clock_hz",
    "temperature_c": "temperature_c",
    "step_j": "energy_j_per_step",
    "sample_j": "energy_j_per_sample",
    "power_w": "mean_power_w",
    "idle_w": "idle_power_w",
    "memory_bytes": "peak_memory_bytes",
    "params": "params",
    "flops": "flops",
    "iters": "measured_iters",
}
TEXTS = {
    "model": "model",
    "mode": "mode",
    "precision": "precision",
    "time": "timestamp",
    "host": "hostname",
    "limits": "throttle_reasons",
    "meter": "energy_meter",
    "count_id": "count_id",
    "label": "label",
}
STORED = ("status", "command", "versions", "warnings", "no_energy")  # that only the run says
OF_CAPTURES = ("files", "device")
WORD_COLUMNS = ("id", *TEXTS, *STORED, "setting", "flags", "floor_note", *OF_CAPTURES)
SHOWN = ("model", "mode", "precision")  # beside the machine and the batch, wherever a run is named
LIBRARIES = ("torch", "torchvision", "timm", "transformers", "triton")


def run_columns(study: Study, words: Words) -> dict[str, Any]:
    """The columns of the payload."""
    runs = study.runs
    if runs.empty:
        return {"count": 0}
    raw = {run.run_id: run for run in study.raw_runs}
    ids = [str(run_id) for run_id in runs["run_id"]]
    told = [_told(raw.get(run_id)) for run_id in ids]
    columns: dict[str, Any] = {"count": len(runs), "id": words.column(ids)}
    for name, source in TEXTS.items():
        columns[name] = words.column(runs[source]) if source in runs else None
    for name in told[0]:
        columns[name] = words.column(one[name] for one in told)
    rows = records(runs)
    columns["setting"] = words.column(settings_told(runs))
    columns["flags"] = words.column(_flags(row) for row in rows)
    notes = floor_notes(study)
    columns["floor_note"] = words.column(notes.get(run_id, "") for run_id in ids)
    columns["machine"] = [machine_of(row, raw.get(row["run_id"]), study) for row in rows]
    for name, source in FROM_TABLE.items():
        columns[name] = numbers(runs[source]) if source in runs else None
    columns["samples_per_s"] = numbers(samples_per_s(row) for row in rows)
    used = roofs_used(study.points)
    columns["roofs"] = [words.column(used.get(run_id, ())) for run_id in ids]
    return columns


def _told(run: Run | None) -> dict[str, str]:
    """What only the stored run says."""
    if run is None:
        return dict.fromkeys(STORED, "")
    made = run.provenance
    return {
        "status": str(run.found.get("status") or ""),
        "command": repeat_command(run),
        "versions": _versions(made),
        "warnings": "\n".join(map(str, run.found.get("warnings") or ())),
        "no_energy": "\n".join(map(str, run.found.get("energy_reasons") or ())),
    }


def _versions(made: Mapping[str, Any]) -> str:
    libraries = made.get("libraries") or {}
    commit = (made.get("ridgeline_commit") or {}).get("sha")
    parts = [f"ridgeline {made.get('ridgeline')}" + (f" ({commit[:9]})" if commit else "")]
    parts += [f"{name} {libraries[name]}" for name in LIBRARIES if name in libraries]
    parts += [f"{name} {version}" for name, version in (made.get("backends") or {}).items()]
    return ", ".join([*parts, f"Python {made.get('python')}"])


def settings_told(runs: pd.DataFrame) -> list[str]:
    """What sets each run apart from others of its model, mode and precision, beside its batch."""
    found = read_all_settings(runs)
    among = [name for name in SETTINGS if name not in (*PLACE, *SHOWN, "batch_size")]
    told = find_differing_each(found, by=SHOWN, among=among)
    return [", ".join(describe_settings(*one)) for one in zip(found, told, strict=True)]


def _flags(row: Mapping[str, Any]) -> str:
    found = [row.get(name) for name in ("flag", "flags", "clock_flag")]
    if row.get("disturbed"):
        found.append(f"{BUSY}: {row['disturbed']}")
    return "\n".join(str(text) for text in found if text and not is_missing(text))


def machine_of(row: Mapping[str, Any], run: Run | None, study: Study) -> int:
    """The place of a run's machine in `study.machines`; -1 if it is not there."""
    number = (run.asked.get("device") if run else None) or 0
    devices = (f"{row['backend']}:{number}", str(row["backend"]))
    for place, machine in enumerate(study.machines):
        if machine.env == row["env"] and machine.roofs.device in devices:
            return place
    return -1


def roofs_used(points: pd.DataFrame) -> dict[str, list[str]]:
    """The compute roofs that the work of each run belongs under, the largest work first."""
    if points.empty:
        return {}
    columns = flops_columns(points)
    steps = points[points["grain"].isin(["step", "capture"])]
    work = (steps if len(steps) else points).groupby("run_id", sort=False)[columns].sum()
    found = {}
    for run_id, row in zip(work.index, work.to_dict("records"), strict=True):
        by_size = sorted(row, key=lambda name: -row[name])
        found[str(run_id)] = [" ".join(roof_of(str(n))) for n in by_size if row[n] > 0]
    return found
