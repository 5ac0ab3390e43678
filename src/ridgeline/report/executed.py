"""What the hardware did, as tables: kernels by name, captures, work by precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ridgeline.captures.capture import sources_of
from ridgeline.report.text import number, records, times
from ridgeline.report.views import capture_command
from ridgeline.roofline.causes import AGREE, PARTLY, UNEXPLAINED, UNKNOWN
from ridgeline.roofline.floors import flops_columns, roof_of
from ridgeline.roofline.work import OPTIMIZER, family
from ridgeline.store import StoredCapture

if TYPE_CHECKING:
    import pandas as pd


OPTIMIZER_PHASE = "optimizer"
AMOUNTS = ("launches", "time_s", "flops", "dram_bytes", "l2_bytes", "l1_bytes")
WORTH_A_WORD = 0.1  # by which executed work differs from the model's
NO_WORDS = (AGREE, UNKNOWN, PARTLY, UNEXPLAINED, "not attributed", "no model work", "no counter")
CAPTURE_COLUMNS = (
    "run_id", "label", "env", "device_name", "files", "format", "busy_time_s", "copy_time_s",
    "step_time_s", "warnings", "timestamp", "command",
)  # fmt: skip


def run_kernels(kernels: pd.DataFrame) -> pd.DataFrame:
    """A row per kernel, its launches added up, the longest first; sums of what is known.

    Adds `family` (work.py), `phases` and `layers` (how many), and `share` of all kernels'
    time.
    """
    columns = flops_columns(kernels)
    table = kernels.assign(
        launches=kernels["launches"].fillna(1) if "launches" in kernels else 1,
        flops=kernels[columns].astype(float).sum(axis=1, min_count=1),
    )
    amounts = [name for name in (*AMOUNTS, *columns) if name in table]
    sums = table.groupby("kernel", sort=False)[amounts].sum(min_count=1)
    for name in ("layer", "phase"):
        if name in table:
            known = table[table[name].fillna("").ne("")]
            sums[f"{name}s"] = known.groupby("kernel")[name].nunique()
    sums = sums.reset_index().sort_values("time_s", ascending=False, kind="stable")
    sums.insert(1, "family", [family(str(name)) for name in sums["kernel"]])
    return sums.assign(share=sums["time_s"] / sums["time_s"].sum()).reset_index(drop=True)


def with_optimizer_kernels(layers: pd.DataFrame, kernels: pd.DataFrame) -> pd.DataFrame:
    """Layer times with the optimizer's kernels instead of its time.

    A loss scaler waits for the device inside the optimizer, so that it cannot be held back and its
    time has the host's gaps in it, unlike that of all other layers.
    """
    if "phase" not in kernels:
        return layers
    mine = kernels[kernels["phase"].eq(OPTIMIZER_PHASE)]
    time_s = float(mine["time_s"].sum())
    is_optimizer = layers["layer"].eq(OPTIMIZER) & (layers["time_s"] > time_s)
    if not time_s or not is_optimizer.any():
        return layers
    return layers.assign(time_s=layers["time_s"].mask(is_optimizer, time_s))


def captures_table(captures: Sequence[StoredCapture], points: pd.DataFrame) -> pd.DataFrame:
    """A row per capture that has kernels, with the columns of its point."""
    import pandas as pd

    whole = points[points["grain"].eq("capture")]
    known = {str(row["run_id"]): row for row in records(whole)}
    rows = [_capture_row(run, known[run.run_id]) for run in captures if run.run_id in known]
    table = pd.DataFrame(rows, columns=list(CAPTURE_COLUMNS))
    more = [name for name in whole.columns if name not in ("env", "label")]
    return table.merge(whole[more], on="run_id", how="left")


def _capture_row(run: StoredCapture, point: Mapping[str, Any]) -> dict[str, Any]:
    result = run.result
    return {
        "run_id": run.run_id,
        "label": point["label"],
        "env": point["env"],
        "device_name": result.device_name or "",
        "files": ", ".join(sources_of(run)),
        "format": result.kind or "",
        "busy_time_s": result.busy_time_s,
        "copy_time_s": result.copies.time_s if result.copies else None,
        "step_time_s": result.step_time_s,
        "warnings": "\n".join(result.warnings),
        "timestamp": run.made.time or None,
        "command": capture_command(run),
    }


def why_executed(reconciled: pd.DataFrame | None) -> dict[str, str]:
    """Of each layer and phase that differs and whose cause is known: `executes 1.33 times …`."""
    texts: dict[str, str] = {}
    for row in records(reconciled) if reconciled is not None else ():
        parts = []
        flops, moved = number(row["flops_ratio"]), number(row["bytes_ratio"])
        if flops and abs(flops - 1) >= WORTH_A_WORD and row["cause"] not in NO_WORDS:
            parts.append(f"executes {times(flops)} the model's FLOPs ({row['cause']})")
        if moved and moved >= 1 + WORTH_A_WORD and row["bytes_cause"] not in NO_WORDS:
            # less, which a cache spares, is no reason to be slow
            parts.append(f"moves {times(moved)} the bytes of its operators ({row['bytes_cause']})")
        if parts:
            texts[str(row["name"])] = " and ".join(parts)
    return texts


def flops_by_roof(kernels: pd.DataFrame) -> dict[str, float]:
    """Executed FLOPs by roof (`fp16 matrix`), the largest first; those that were counted."""
    sums = {name: number(kernels[name].sum(min_count=1)) for name in flops_columns(kernels)}
    known = {" ".join(roof_of(name)): value for name, value in sums.items() if value}
    return dict(sorted(known.items(), key=lambda item: -item[1]))
