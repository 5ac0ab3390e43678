"""What the page's scripts draw, as compact JSON.

A table becomes columns: numbers with five digits, texts by their place in one list of words. What
does not fit into a page (kernels, layers) is summed up in a sentence.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ridgeline.report.executed import describe_capture, describe_times, describe_trust
from ridgeline.report.study import BUSY, Machine, Study
from ridgeline.report.sweeps import describe_for_page
from ridgeline.report.text import capped, records
from ridgeline.report.views import repeat_command, versions_text
from ridgeline.roofline.causes import CAUSES
from ridgeline.roofline.floors import flops_columns, roof_of
from ridgeline.roofline.roofs import LEVELS, Roofs
from ridgeline.roofline.work import short_kernel
from ridgeline.store import MeasuredRun
from ridgeline.units import format_percent

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
    "samples_per_s": "samples_per_s",
}  # fmt: skip
RUN_TEXTS = {
    "id": "run_id", "model": "model", "mode": "mode", "precision": "precision",
    "time": "timestamp", "host": "hostname", "limits": "throttle_reasons", "meter": "energy_meter",
    "count_id": "count_id", "label": "label", "status": "status", "command": "command",
    "versions": "versions", "warnings": "warnings", "no_energy": "no_energy", "setting": "setting",
    "flags": "flags", "files": "files", "device": "device_name",
}  # fmt: skip
RUN_COLUMNS = {**RUN_TEXTS, **RUN_NUMBERS}
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
HEADINGS = {  # what the columns of the page's tables mean
    "Layer": "a module by its name; what belongs to none is in brackets",
    "Kind": "the type of the module, or of its work",
    "Time": "of one step, measured; of a capture: when it was taken in",
    "Of step": "its time as a share of the step",
    "Floor": "the least time that the roofs allow",
    "Headroom": "measured time less the floor",
    "Efficiency": "floor over measured time",
    "Bound": "what sets the floor: arithmetic, a level of memory, launches",
    "FLOPs": "additions and multiplications; a multiply-add is two",
    "Bytes moved": "every operator reads its operands and writes its results",
    "Shapes": "of the tensors that go in",
    "what if": "how it differs from a step that was to be run",
    "predicted (ms)": "time of a step, from operators that were measured alone",
    "from (ms)": "lower end of the interval of the prediction",
    "to (ms)": "upper end of the interval of the prediction",
    "inside": "whether the measured time is inside the interval",
    "operators": "where the predicted times of its operators are from",
    "Marked": "what cannot be right, or is doubtful, and its likely cause",
    "Phase": "of a step: forward, backward by input and weight gradients, optimizer",
    "Model": "FLOPs that the mathematics needs, counted from the graph",
    "Executed": "FLOPs that the hardware did, by its counters",
    "Ratio": "executed over model, or DRAM over operators",
    "Products": "executed over model FLOPs of convolutions, matrix products and attention alone",
    "Difference": "executed less model FLOPs",
    "Cause": "why the two differ; point at it",
    "Operators": "bytes that the operators read and write, counted from the graph",
    "DRAM": "bytes from and to the device's memory, by its counters",
    "L2": "bytes that pass the L2 cache, by its counters",
    "L1": "bytes that pass the L1 caches, by their counters",
    "Launches": "kernels that were started",
    "Kernel time": "time in which its kernels ran, added up",
    "Mostly in": "the layer or kernel with most of the difference",
    "Kernel": "a program that ran on the GPU, all its launches together",
    "Family": "what a kernel does, by its name",
    "Of all kernels": "its time as a share of that of all kernels",
    "Configuration": "a model with the settings in which repeats agree",
    "Machine": "the name of its passport",
    "Batch": "samples in one batch",
    "Samples/s": "throughput of the median step",
    "Step": "the median time of one step",
    "95 % interval": "in which the median lies, half its width over the median",
    "Scaling": "throughput over that of the smallest batch of the same configuration",
    "Peak memory": "the most that the device's allocator, or the process, held",
    "J/sample": "measured joules of a step over its samples",
    "J/step": "measured joules of one step",
    "Mean power": "joules over seconds while energy was measured",
    "Idle": "power before, without work",
    "Model FLOPs per joule": "model FLOPs of a step over its joules",
    "Meter": "what measured the joules, and of what",
    "Ceiling": "a roof: arithmetic of a precision, a level of memory, launches, power",
    "Best": "the best sample",
    "Sustained": "the median sample",
    "Spread": "the middle 80 % of the samples, over their median",
    "Of datasheet": "the best sample over what the maker publishes",
    "Under": "clock, power and limits while it was measured",
    "How": "what ran",
    "Run": "one measurement; open it for its settings",
    "Status": "whether it was completed, and if not, why",
    "Clock": "of the device while steps were timed",
    "Warnings": "what to know about its numbers; open the row",
    "Command": "that repeats it",
    "Capture": "kernels that a profiler recorded",
    "File or program": "where a capture is from",
    "Device": "that ran it",
    "Case": "one configuration of the sweep",
    "Stage": "a part of the sweep with its own cases",
    "Node": "the computer that ran it",
    "Reason": "why there is no result",
    "network": "the model, its batch and input size",
    "layer": "a convolution of it",
    "chosen": "the algorithm and kernels that PyTorch took",
    "its time": "of the chosen algorithm",
    "best": "the fastest algorithm that was verified",
    "best time": "of the fastest algorithm",
    "lost": "what the best would save, as a share of the chosen time",
    "algorithm": "of all convolutions that can do it",
    "step": "the median time of one step",
    "energy": "measured joules of a step",
    "not its own": "convolutions that ran under another algorithm",
}
KERNEL_TEXTS = ("kernel", "short", "family")
KERNEL_NUMBERS = ("launches", "time_s", "share", "flops", "dram_bytes", "l2_bytes", "l1_bytes")


def make_payload(study: Study) -> tuple[dict[str, Any], list[str]]:
    """All that the scripts draw, and in sentences what was left out of it."""
    points, left_out = choose_points(study)
    words = Words()
    runs = make_run_columns(study, words)
    rows = {words.texts[text]: row for row, text in enumerate(runs.get("id", ()))}
    first = next((rows.get(str(run_id)) for run_id in study.top_findings(1)["run_id"]), None)
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
        "headings": HEADINGS,
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
    return column if set(column) != {None} else None


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
    roofs = machine.roofs
    return {
        "title": name_machine(study, machine),
        "device": roofs.device,
        "source": roofs.source,
        "measured_at": roofs.measured_at,
        **_round_rates(roofs),
        "datasheet": machine.published and _round_rates(machine.published),
    }


def _round_rates(roofs: Roofs) -> dict[str, dict[str, float | int | None]]:
    rates = {"compute": roofs.flats, "bandwidth": roofs.bandwidth}
    return {kind: {name: round_number(rate) for name, rate in known.items()}
            for kind, known in rates.items()}  # fmt: skip


def _find_machine(study: Study, env: str, device: str) -> int:
    """The place of a machine in `study.machines`; -1 if it is not there."""
    here = [(machine.env, machine.roofs.device) for machine in study.machines]
    return here.index((env, device)) if (env, device) in here else -1


# ---------------------------------------------------------------- runs and captures


def make_run_columns(study: Study, words: Words) -> dict[str, Any]:
    """A row for each run and, after the `measured` ones, for each capture."""
    import pandas as pd

    stored = {run.run_id: run for run in study.raw_runs}
    rows = [
        {
            **row,
            **(_read_stored_texts(stored[row["run_id"]]) if row["run_id"] in stored else {}),
            "setting": ", ".join(study.case_of[row["run_id"]].extras),
            "flags": _join_flags(row),
        }
        for row in records(study.runs)
    ]
    rows += [{**row, "model": row["label"], "mode": "capture"} for row in records(study.captures)]
    table = pd.DataFrame(rows, columns=list(RUN_COLUMNS.values())).set_axis([*RUN_COLUMNS], axis=1)
    used = _list_used_roofs(study.points)
    return to_columns(table, list(RUN_TEXTS), list(RUN_NUMBERS), words) | {
        "measured": len(study.runs),  # the figure places captures, tables of runs leave them out
        "machine": [_find_machine(study, row["env"], row["device"]) for row in rows],
        "roofs": [words.column(used.get(row["run_id"], ())) for row in rows],
    }


def _read_stored_texts(run: MeasuredRun) -> dict[str, str]:
    """What only run.json has."""
    return {
        "status": run.result.status,
        "command": repeat_command(run),
        "versions": versions_text(run.made),
        "warnings": "\n".join(run.result.warnings),
        "no_energy": "\n".join(run.result.energy_reasons),
    }


def _join_flags(row: Mapping[str, Any]) -> str:
    flags = [row.get(name) for name in ("flag", "flags", "clock_flag")]
    if row.get("disturbed"):
        flags.append(f"{BUSY}: {row['disturbed']}")
    return "\n".join(str(text) for text in flags if text and not is_missing(text))


def _list_used_roofs(points: pd.DataFrame) -> dict[str, list[str]]:
    """The compute roofs that the work of each run belongs under, the largest work first."""
    coarse = points[points["grain"].isin(["step", "capture"])]
    work = coarse.groupby("run_id", sort=False)[flops_columns(points)].sum()
    used = {}
    for run_id, row in work.iterrows():
        known = row[row > 0].sort_values(ascending=False, kind="stable")
        used[str(run_id)] = [" ".join(roof_of(str(name))) for name in known.index]
    return used


# ---------------------------------------------------------------- points


def choose_points(study: Study) -> tuple[pd.DataFrame, list[str]]:
    """All steps, phases and captures, layers of as many runs as fit, kernels that take longest.

    Also, in sentences, what was left out.
    """
    import pandas as pd

    points = study.points
    if points.empty:
        return points, []
    scope = points["grain"]
    slowest = points.reindex(columns=[f"{level}_s" for level in LEVELS]).astype(float).max(axis=1)
    points = points.assign(memory_s=slowest)
    coarse = points[scope.isin(["step", "phase", "capture"])]
    layers, about_layers = _choose_layers(points[scope.eq("layer")])
    kernels, about_kernels = _choose_kernels(points[scope.eq("kernel")])
    tables = [table for table in (coarse, layers, kernels) if len(table)]
    return pd.concat(tables, ignore_index=True), list(filter(None, (about_layers, about_kernels)))


def _choose_layers(layers: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Layers of the latest runs that fit: a layer table with holes would mislead."""
    # One direction of a layer without a time of its own has no place in any figure.
    layers = layers[layers["phase"].eq("all") | layers["time_s"].notna()]
    sizes = layers.groupby("run_id").size().sort_index(ascending=False)
    chosen = sizes.index[sizes.cumsum().le(MOST_LAYERS)]
    text = (
        f"Layers of {len(chosen)} of {len(sizes)} runs are here, those of the latest"
        f" ({MOST_LAYERS:,} rows fit). The CSV and Parquet tables beside this page have all."
    )
    return layers[layers["run_id"].isin(chosen)], text if len(chosen) < len(sizes) else ""


def _choose_kernels(kernels: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    if len(kernels) <= MOST_KERNELS:
        return kernels, ""
    longest = kernels.nlargest(MOST_KERNELS, "time_s")
    share = 1 - longest["time_s"].sum() / kernels["time_s"].sum()
    text = (
        f"Of {len(kernels):,} kernels the {len(longest):,} that take longest are here. The others"
        f" take {format_percent(share)} of all kernel time."
    )
    return longest, text


# ---------------------------------------------------------------- profiles


def describe_captures(study: Study) -> list[dict[str, str]]:
    """How near each capture is to its roofs, with its source."""
    executed = study.executed
    return [
        {
            "text": describe_capture(executed[row["run_id"]], row),
            "provenance": f"capture: {row['files']}, stored as {row['run_id']}"
            f" (results in {study.results.name})",
        }
        for row in records(study.captures)
    ]


def _list_profiles(study: Study, rows: Mapping[str, int]) -> list[dict[str, Any]]:
    """What the hardware did in each profiled run, then in each capture."""
    captures = {str(row["run_id"]): row for row in records(study.captures)}
    profiles = []
    for run_id, one in study.executed.items():
        capture = captures.get(run_id)
        times = describe_capture(one, capture) if capture else f"{capped(describe_times(one))}."
        trust = describe_trust(one)
        profiles.append({
            "run": rows[run_id],
            "id": one.profile_id,
            "has_counters": one.has_counters,
            "notes": [times, *([f"{capped(trust)}."] if trust else [])],
            "warnings": list(study.notes.get(run_id, ())),
            "gap_s": round_number(one.gap_s),
            "launches": one.launches,
            "flops": [[roof, round_number(n)] for roof, n in one.flops_by_roof.items()],
            "bytes": [[level.upper(), round_number(n)] for level, n in one.bytes_by_level.items()],
            "kernel_s": round_number(one.kernel_time_s),
            "step_s": round_number(one.step_time_s),
        })  # fmt: skip
    return profiles


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
