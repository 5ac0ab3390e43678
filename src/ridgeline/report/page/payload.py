"""What the page's scripts draw, as compact JSON.

A table becomes columns: numbers with five digits, texts by their place in one list of words. What
does not fit into a page (kernels, layers) is summed up in a sentence.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ridgeline.records import Provenance
from ridgeline.report.configurations import (
    PLACE,
    SETTINGS,
    describe_settings,
    find_differing_each,
    read_all_settings,
    samples_per_s,
)
from ridgeline.report.executed import flops_by_roof
from ridgeline.report.profiled import (
    describe_gap,
    describe_trust,
    launch_gap,
    profiled,
    programs,
    whole,
)
from ridgeline.report.study import BUSY, Machine, Study
from ridgeline.report.summary import floor_notes, summary
from ridgeline.report.sweeps import describe_for_page
from ridgeline.report.text import capped, number, records
from ridgeline.report.views import repeat_command
from ridgeline.roofline.causes import CAUSES
from ridgeline.roofline.floors import flops_columns, roof_of
from ridgeline.roofline.roofs import LEVELS, Roofs
from ridgeline.roofline.work import short_kernel
from ridgeline.store import MeasuredRun
from ridgeline.units import format_percent, format_time, si

if TYPE_CHECKING:
    import pandas as pd

DIGITS = 5  # people see three
# Inside a script element only `<` can end it; the others are escaped so that no reader of HTML, XML
# or old JavaScript can take data for anything else.
ESCAPES = {c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}
MOST_KERNELS = 5_000  # points
MOST_LAYERS = 6_000
MOST_RECONCILED = 6_000
MOST_KERNEL_ROWS = 60  # of a run

RUN_NUMBERS = {  # column of the payload: column of study.runs
    "batch": "batch_size", "step_s": "step_median_s", "step_low_s": "step_interval_low_s",
    "step_high_s": "step_interval_high_s", "step_std_s": "step_std_s", "clock_hz": "clock_hz",
    "temperature_c": "temperature_c", "step_j": "energy_j_per_step",
    "sample_j": "energy_j_per_sample", "power_w": "mean_power_w", "idle_w": "idle_power_w",
    "memory_bytes": "peak_memory_bytes", "flops": "flops", "iters": "measured_iters",
}  # fmt: skip
RUN_TEXTS = {
    "id": "run_id", "model": "model", "mode": "mode", "precision": "precision",
    "time": "timestamp", "host": "hostname", "limits": "throttle_reasons", "meter": "energy_meter",
    "count_id": "count_id", "label": "label",
}  # fmt: skip
CAPTURE_TEXTS = {
    "id": "run_id", "model": "label", "time": "timestamp", "device": "device_name",
    "label": "label", "command": "command", "files": "files", "warnings": "warnings",
}  # fmt: skip
STORED_TEXTS = ("status", "command", "versions", "warnings", "no_energy")  # only run.json has them
ALL_TEXTS = (*RUN_TEXTS, *STORED_TEXTS, "setting", "flags", "floor_note", "files", "device")
SHOWN = ("model", "mode", "precision")  # beside the machine and the batch, wherever a run is named
LIBRARIES = ("torch", "torchvision", "timm", "transformers", "triton")
POINT_TEXTS = ("grain", "name", "layer", "phase", "kind", "shapes", "provenance", "bound", "flag")
POINT_NUMBERS = (
    "flops", "dram_bytes", "least_bytes", "fused_bytes", "l3_bytes", "l2_bytes", "l1_bytes",
    "launches", "time_s", "floor_s", "compute_s", "memory_s",
)  # fmt: skip
RECONCILED_TEXTS = ("grain", "name", "kind", "cause", "where", "bytes_cause", "bytes_where")
RECONCILED_NUMBERS = (
    "launches", "time_s", "model_flops", "executed_flops", "model_products", "executed_products",
    "model_bytes", "dram_bytes",
)  # fmt: skip
KERNEL_TEXTS = ("kernel", "short", "family")
KERNEL_NUMBERS = ("launches", "time_s", "share", "flops", "dram_bytes", "l2_bytes", "l1_bytes")
COUNTED_LEVELS = ("dram", "l2", "l1")  # memory levels with a total


def make_payload(study: Study) -> tuple[dict[str, Any], list[str]]:
    """All that the scripts draw, and in sentences what was left out of it."""
    points, left_out = choose_points(study)
    words = Words()
    runs = make_run_columns(study, words)
    rows = {words.texts[text]: row for row, text in enumerate(runs.get("id", ()))}
    first = next((rows.get(str(finding["run_id"])) for finding in summary(study).findings), None)
    compared = study.reconciled.head(MOST_RECONCILED)
    sweeps = describe_for_page(study, rows, words.column)
    payload = {
        "machines": [_describe_roofs(study, machine) for machine in study.machines],
        "runs": runs,
        "points": to_columns(points, POINT_TEXTS, POINT_NUMBERS, words, rows),
        "executed": {
            "profiles": _list_profiles(study, rows),
            "reconciled": to_columns(compared, RECONCILED_TEXTS, RECONCILED_NUMBERS, words, rows),
            "kernels": _make_kernel_columns(study.kernels, words, rows),
            "causes": CAUSES,
        },
        "first_run": first,
        **({"sweeps": sweeps} if sweeps else {}),
        "words": words.texts,  # last: the columns above fill it
    }
    return payload, left_out


# ---------------------------------------------------------------- columns in few bytes


class Words:
    """Texts that are written once and named by number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {"": 0}

    def column(self, texts: Iterable[object]) -> list[int]:
        """The numbers of texts; what is missing is the empty text."""
        known = ("" if is_missing(text) else str(text) for text in texts)
        return [self._numbers.setdefault(text, len(self._numbers)) for text in known]

    @property
    def texts(self) -> list[str]:
        return list(self._numbers)


def is_missing(value: object) -> bool:
    return value is None or value != value


def round_number(value: Any) -> float | int | None:
    """Five digits, whole where it is whole: `51750000` is shorter than `51750000.0`."""
    if is_missing(value) or not math.isfinite(value):
        return None
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short.is_integer() else short


def round_column(values: Iterable[Any]) -> list[float | int | None] | None:
    """A column of numbers; None stands for a column that says nothing."""
    column = [round_number(value) for value in values]
    return column if any(value is not None for value in column) else None


def to_columns(
    table: pd.DataFrame,
    texts: Sequence[str],
    numbers: Sequence[str],
    words: Words,
    rows: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """The columns of a table; `run` is the row of the table of runs, where `rows` has these."""
    if table.empty:
        return {"count": 0}
    return {
        "count": len(table),
        **({"run": [rows[run_id] for run_id in table["run_id"]]} if rows is not None else {}),
        **{name: words.column(table[name]) if name in table else None for name in texts},
        **{name: round_column(table[name]) if name in table else None for name in numbers},
    }


def to_script(payload: Mapping[str, Any]) -> str:
    """JSON that can stand in a script element whatever words are in it."""
    text = json.dumps(payload, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character, escape in ESCAPES.items():
        text = text.replace(character, escape)
    return text


# ---------------------------------------------------------------- machines


def name_machine(study: Study, machine: Machine) -> str:
    """Its name, with the device where several share a name."""
    same = [m for m in study.machines if m.env == machine.env]
    return machine.env if len(same) == 1 else f"{machine.env} {machine.roofs.device}"


def _describe_roofs(study: Study, machine: Machine) -> dict[str, Any]:
    """What the figure needs of a machine."""
    roofs, sheet = machine.roofs, machine.datasheet
    return {
        "title": name_machine(study, machine),
        "device": roofs.device,
        "source": roofs.source,
        "measured_at": roofs.measured_at,
        **_round_rates(roofs),
        "datasheet": None if sheet is None or sheet is roofs else _round_rates(sheet),
    }


def _round_rates(roofs: Roofs) -> dict[str, dict[str, float | int | None]]:
    rates = {"compute": roofs.flats, "bandwidth": roofs.bandwidth}
    return {kind: {name: round_number(rate) for name, rate in known.items()}
            for kind, known in rates.items()}  # fmt: skip


def _find_machine(study: Study, env: object, devices: Sequence[str]) -> int:
    """The place of a machine in `study.machines`; -1 if it is not there."""
    return next((index for index, machine in enumerate(study.machines)
                 if machine.env == env and machine.roofs.device in devices), -1)  # fmt: skip


# ---------------------------------------------------------------- runs and captures


def make_run_columns(study: Study, words: Words) -> dict[str, Any]:
    """A row for each run and, after the `measured` ones, for each capture."""
    import pandas as pd

    captures = [  # the figure places them, tables of runs leave them out
        {
            **{name: row.get(source) for name, source in CAPTURE_TEXTS.items()},
            "mode": "capture",
            "machine": _find_machine(study, row["env"], (str(row["device"]),)),
        }
        for row in records(study.captures)
    ]
    rows = [*_list_runs(study), *captures]
    columns = to_columns(pd.DataFrame(rows), ALL_TEXTS, (*RUN_NUMBERS, "samples_per_s"), words)
    columns["measured"] = len(rows) - len(captures)
    used = _list_used_roofs(study.every_point)
    columns["machine"] = [row["machine"] for row in rows]
    columns["roofs"] = [words.column(used.get(row["id"], ())) for row in rows]
    return columns


def _list_runs(study: Study) -> list[dict[str, Any]]:
    """Each run by column of the payload, with its machine."""
    stored = {run.run_id: run for run in study.raw_runs}
    notes = floor_notes(study)
    rows = []
    settings = describe_run_settings(study.runs) if len(study.runs) else []
    for row, setting in zip(records(study.runs), settings, strict=True):
        run_id, backend = str(row["run_id"]), str(row["backend"])
        run = stored.get(run_id)
        device = run.request.device if run else 0
        rows.append({
            **{name: row.get(source) for name, source in {**RUN_TEXTS, **RUN_NUMBERS}.items()},
            **(_read_stored_texts(run) if run else {}),
            "samples_per_s": samples_per_s(row),
            "setting": setting,
            "flags": _join_flags(row),
            "floor_note": notes.get(run_id, ""),
            "machine": _find_machine(study, row["env"], (f"{backend}:{device}", backend)),
        })  # fmt: skip
    return rows


def _read_stored_texts(run: MeasuredRun) -> dict[str, str]:
    return {
        "status": run.result.status,
        "command": repeat_command(run),
        "versions": _list_versions(run.made),
        "warnings": "\n".join(run.result.warnings),
        "no_energy": "\n".join(run.result.energy_reasons),
    }


def _list_versions(provenance: Provenance) -> str:
    commit, libraries = provenance.ridgeline_commit, provenance.libraries
    parts = [f"ridgeline {provenance.ridgeline}" + (f" ({commit.sha[:9]})" if commit else "")]
    parts += [f"{name} {libraries[name]}" for name in LIBRARIES if name in libraries]
    parts += [f"{name} {version}" for name, version in provenance.backends.items()]
    return ", ".join([*parts, f"Python {provenance.python}"])


def describe_run_settings(runs: pd.DataFrame) -> list[str]:
    """What sets each run apart from others of its model, mode and precision, beside its batch."""
    settings = read_all_settings(runs)
    among = [name for name in SETTINGS if name not in (*PLACE, *SHOWN, "batch_size")]
    differing = find_differing_each(settings, by=SHOWN, among=among)
    return [", ".join(describe_settings(*one)) for one in zip(settings, differing, strict=True)]


def _join_flags(row: Mapping[str, Any]) -> str:
    flags = [row.get(name) for name in ("flag", "flags", "clock_flag")]
    if row.get("disturbed"):
        flags.append(f"{BUSY}: {row['disturbed']}")
    return "\n".join(str(text) for text in flags if text and not is_missing(text))


def _list_used_roofs(points: pd.DataFrame) -> dict[str, list[str]]:
    """The compute roofs that the work of each run belongs under, the largest work first."""
    coarse = points[points["grain"].isin(["step", "capture"])]
    work = coarse.groupby("run_id", sort=False)[flops_columns(points)].sum()
    return {
        str(run_id): [" ".join(roof_of(str(name))) for name in row.sort_values(ascending=False,
                      kind="stable").index if row[name] > 0]
        for run_id, row in work.iterrows()
    }  # fmt: skip


# ---------------------------------------------------------------- points


def choose_points(study: Study) -> tuple[pd.DataFrame, list[str]]:
    """All steps, phases and captures, layers of as many runs as fit, kernels that take longest.

    Also, in sentences, what was left out.
    """
    import pandas as pd

    points = study.every_point
    if points.empty:
        return points, []
    scope = points["grain"]
    slowest = points.reindex(columns=[f"{level}_s" for level in LEVELS]).astype(float).max(axis=1)
    points = points.assign(memory_s=slowest)
    layers, about_layers = _choose_layers(points[scope.eq("layer")])
    kernels, about_kernels = _choose_kernels(points[scope.eq("kernel")])
    tables = [points[scope.isin(["step", "phase", "capture"])], layers, kernels]
    chosen = pd.concat([table for table in tables if len(table)] or tables, ignore_index=True)
    return chosen, [text for text in (about_layers, about_kernels) if text]


def _choose_layers(layers: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Layers of the latest runs that fit: a layer table with holes would mislead."""
    # One direction of a layer without a time of its own has no place in any figure.
    layers = layers[layers["phase"].eq("all") | layers["time_s"].notna()]
    sizes = layers.groupby("run_id").size().sort_index(ascending=False)
    chosen = sizes.index[sizes.cumsum().le(MOST_LAYERS)]
    if len(chosen) == len(sizes):
        return layers, ""
    text = (
        f"Layers of {len(chosen)} of {len(sizes)} runs are here, those of the latest"
        f" ({MOST_LAYERS:,} rows fit). The CSV and Parquet tables beside this page have all."
    )
    return layers[layers["run_id"].isin(chosen)], text


def _choose_kernels(kernels: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    if len(kernels) <= MOST_KERNELS:
        return kernels, ""
    longest = kernels.nlargest(MOST_KERNELS, "time_s")
    time_s = kernels["time_s"].drop(longest.index).sum()
    text = (
        f"Of {len(kernels):,} kernels the {len(longest):,} that take longest are here. The other"
        f" {len(kernels) - len(longest):,} take {format_time(time_s)} together,"
        f" {format_percent(time_s / kernels['time_s'].sum())} of all kernel time."
    )
    return longest, text


# ---------------------------------------------------------------- profiles


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


def _list_profiles(study: Study, rows: Mapping[str, int]) -> list[dict[str, Any]]:
    """What the hardware did in each profiled run, then in each capture."""
    profiles = [
        {
            "run": rows[one.run_id],
            "id": one.profile_id,
            "has_counters": bool(one.flops_by_roof) or one.dram_bytes is not None,
            "told": [
                f"{capped(text)}." for text in (describe_gap(one), describe_trust(one)) if text
            ],
            "warnings": list(one.warnings),
            "gap_s": round_number(one.gap_s),
            "launches": one.launches,
            **_list_amounts(one.flops_by_roof, one.kernel_time_s, asdict(one)),
        }
        for one in profiled(study)
    ]
    own, points = programs(study), study.capture_points
    for row, about in zip(records(study.captures), describe_captures(study), strict=True):
        run_id = str(row["run_id"])
        trust = describe_trust(own[run_id]) if run_id in own else ""
        flops = flops_by_roof(points[points["run_id"].eq(run_id) & points["grain"].eq("capture")])
        profiles.append({
            "run": rows[run_id],
            "id": run_id,
            "has_counters": bool(flops),
            "told": [about["text"], *([f"{capped(trust)}."] if trust else [])],
            "warnings": list(study.notes.get(run_id, ())),
            "gap_s": None,  # there is no step around it
            "launches": whole(row["launches"]),
            **_list_amounts(flops, row["time_s"], row),
        })  # fmt: skip
    return profiles


def _list_amounts(
    flops: Mapping[str, float], kernel_s: float | None, amounts: Mapping[str, Any]
) -> dict[str, Any]:
    levels = {level.upper(): amounts[f"{level}_bytes"] for level in COUNTED_LEVELS}
    return {
        "flops": [[roof, round_number(amount)] for roof, amount in flops.items()],
        "bytes": [[level, round_number(moved)] for level, moved in levels.items()],
        "kernel_s": round_number(kernel_s),
        "step_s": round_number(amounts["step_time_s"]),
    }


def _make_kernel_columns(
    kernels: pd.DataFrame, words: Words, rows: Mapping[str, int]
) -> dict[str, Any]:
    """The longest kernels of each run and capture, with how many there are in all."""
    if kernels.empty:
        return {"count": 0}
    by_run = kernels.groupby("run_id", sort=False)
    first = by_run.head(MOST_KERNEL_ROWS)
    first = first.assign(short=[short_kernel(str(name)) for name in first["kernel"]])
    columns = to_columns(first, KERNEL_TEXTS, KERNEL_NUMBERS, words, rows)
    return columns | {"all": {rows[str(run_id)]: len(table) for run_id, table in by_run}}
