"""Predicted steps beside the runs of the same steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import mean, median
from typing import TYPE_CHECKING, Any

from ridgeline.predict.stored import StoredPrediction, is_comparable
from ridgeline.report.stored import count_key, run_key
from ridgeline.report.text import counted, no_rows
from ridgeline.store import MeasuredRun
from ridgeline.units import format_percent
from ridgeline.workloads.workload import size_text

if TYPE_CHECKING:
    import pandas as pd

PREDICTION = "prediction"  # the kind of figure
CURVE = ("model", "mode", "precision", "optimizer", "input_size", "seq_len", "machine",
         "compile")  # fmt: skip


def join_predictions(
    stored: Sequence[StoredPrediction], runs: Iterable[MeasuredRun]
) -> pd.DataFrame:
    """A row per prediction, in the order of models and batches, with the median of its runs."""
    import pandas as pd

    if not stored:
        return no_rows()
    by_key: dict[str, list[MeasuredRun]] = {}
    for run in runs:
        by_key.setdefault(run_key(run), []).append(run)
    rows = [_make_row(one, by_key) for one in stored]
    order = ["model", "mode", "precision", "machine", "what_if", "batch_size"]
    return pd.DataFrame(rows).sort_values(order, kind="stable").reset_index(drop=True)


def _make_row(one: StoredPrediction, runs: dict[str, list[MeasuredRun]]) -> dict[str, Any]:
    request, step = one.request, one.prediction
    same = [run for run in runs.get(count_key(request, request.precision), ())
            if is_comparable(run.request, run.result, one)]  # fmt: skip
    measured_s = median(run.result.step_time_s.median for run in same) if same else None
    low_s, high_s = step.interval_s
    basis = [] if step.source == "measured" else [step.source]
    basis += [f"{format_percent(share)} {name}" for name, share in step.provenance.items()]
    return {
        "model": request.model, "batch_size": request.batch_size, "mode": request.mode,
        "precision": request.precision,
        "optimizer": request.optimizer if request.mode == "train" else None,
        "input_size": size_text(request.input_size or ()), "seq_len": request.seq_len,
        "machine": step.machine, "compile": one.compile_mode or "", "what_if": one.what_if,
        "time_s": step.time_s, "low_s": low_s, "high_s": high_s,
        "samples_per_s": request.batch_size / step.time_s,
        "confidence": step.confidence, "kernel_time_s": step.kernel_time_s,
        "host_time_s": step.host_time_s, "bound": step.bound, "memory_bytes": step.memory_bytes,
        "fits": step.fits, "power_w": step.power_w, "energy_j": step.energy_j,
        "basis": ", ".join(basis),
        "measured_s": measured_s,
        "error": step.time_s / measured_s - 1 if measured_s else None,
        "is_inside": low_s <= measured_s <= high_s if measured_s else None,
        "runs": len(same), "run_id": same[-1].run_id if same else "", "made_at": one.made_at,
    }  # fmt: skip


def describe_predictions(predictions: pd.DataFrame) -> list[str]:
    """How good predictions of steps that were run are, in sentences."""
    if predictions.empty:
        return []
    known = predictions[predictions["measured_s"].notna()]
    if known.empty:
        return [f"{counted(len(predictions), 'prediction')}; none of these steps was run here"]
    errors = [abs(float(error)) for error in known["error"]]
    inside = int(known["is_inside"].astype(bool).sum())
    return [
        f"{counted(len(known), 'predicted step')} also ran: mean error"
        f" {format_percent(mean(errors))}, largest {format_percent(max(errors))};"
        f" {inside} of {len(known)} measured times are inside the"
        f" {100 * float(known['confidence'].iloc[0]):.0f} % interval"
    ]


def name_curve(curve: pd.DataFrame) -> str:
    """`resnet50, train, amp on my-server`."""
    first = curve.iloc[0]
    parts = [first["model"], first["mode"], first["precision"], first["compile"]]
    return f"{', '.join(filter(None, map(str, parts)))} on {first['machine']}"


def list_curves(predictions: pd.DataFrame) -> list[pd.DataFrame]:
    """Predictions that differ in the batch alone, of two batches at least."""
    if predictions.empty:
        return []
    filled = predictions.fillna(dict.fromkeys(CURVE, ""))
    groups = filled.groupby(list(CURVE), sort=False)
    curves = [same.drop_duplicates("batch_size").sort_values("batch_size") for _, same in groups]
    return [curve for curve in curves if len(curve) > 1]
