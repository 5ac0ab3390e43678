"""The points that fit into a page. What does not fit is summed up and said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ridgeline.report.configurations import number_configurations, read_all_settings
from ridgeline.report.page.columns import Words, numbers
from ridgeline.report.study import Study
from ridgeline.roofline.roofs import LEVELS
from ridgeline.units import format_percent, format_time, si

if TYPE_CHECKING:
    import pandas as pd

MOST_KERNELS = 5_000
MOST_LAYERS = 6_000
TEXTS = ("grain", "name", "layer", "phase", "kind", "shapes", "provenance", "bound", "flag")
NUMBERS = (
    "flops", "dram_bytes", "least_bytes", "fused_bytes", "l3_bytes", "l2_bytes", "l1_bytes",
    "launches", "time_s", "floor_s", "compute_s", "memory_s",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The points of a page, and in words what was left out of it."""

    points: pd.DataFrame
    left_out: tuple[str, ...] = ()


def chosen(study: Study) -> Chosen:
    """All steps, phases and captures, layers of as many runs as fit, kernels that take longest."""
    import pandas as pd

    points = study.every_point
    if points.empty:
        return Chosen(points=points)
    whole = points[points["grain"].isin(["step", "phase", "capture"])]
    layers, about_layers = _layers(points[points["grain"].eq("layer")], study.runs)
    kernels, about_kernels = _kernels(points[points["grain"].eq("kernel")])
    kept = [table for table in (whole, layers, kernels) if len(table)]
    return Chosen(
        points=pd.concat(kept, ignore_index=True) if kept else points.iloc[:0],
        left_out=tuple(text for text in (about_layers, about_kernels) if text),
    )


def _layers(layers: pd.DataFrame, runs: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Runs are kept whole: a layer table with holes would mislead."""
    # One direction of a layer without a time of its own has no place in any figure.
    layers = layers[layers["phase"].eq("all") | layers["time_s"].notna()]
    if len(layers) <= MOST_LAYERS:
        return layers, ""
    sizes = layers.groupby("run_id", sort=False).size()
    order = _by_interest(layers, runs)
    kept: list[str] = []
    room = MOST_LAYERS
    for run_id in order:
        if sizes[run_id] <= room:
            kept.append(run_id)
            room -= int(sizes[run_id])
    left = len(order) - len(kept)
    text = (
        f"Layers of {len(kept)} of {len(order)} runs are here, every configuration's latest first"
        f" ({MOST_LAYERS:,} rows fit); {left} runs are here with their steps and phases only."
        " The CSV and Parquet tables beside this page have all."
    )
    return layers[layers["run_id"].isin(kept)], text


def _by_interest(layers: pd.DataFrame, runs: pd.DataFrame) -> list[str]:
    """Runs, the latest of each configuration before its earlier ones."""
    mine = runs.assign(configuration=number_configurations(read_all_settings(runs)))
    mine = mine[mine["run_id"].isin(layers["run_id"])].sort_values("run_id", ascending=False)
    turn = mine.groupby("configuration", sort=False).cumcount()
    return [str(run) for run in mine.loc[turn.sort_values(kind="stable").index, "run_id"]]


def _kernels(kernels: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    if len(kernels) <= MOST_KERNELS:
        return kernels, ""
    kept = kernels.nlargest(MOST_KERNELS, "time_s")
    rest = kernels.drop(kept.index)
    share = rest["time_s"].sum() / kernels["time_s"].sum()
    text = (
        f"Of {len(kernels):,} kernels the {len(kept):,} that take longest are here. The other"
        f" {len(rest):,} take {format_time(rest['time_s'].sum())} together, {format_percent(share)}"
        f" of all kernel time, do {si(rest['flops'].sum(), 'FLOP')} and move"
        f" {si(rest['dram_bytes'].sum(), 'B')}."
    )
    return kept, text


def point_columns(points: pd.DataFrame, runs: dict[str, int], words: Words) -> dict[str, Any]:
    """The columns of the payload; `run` is the row of the table of runs."""
    if points.empty:
        return {"count": 0}
    slowest = points.reindex(columns=[f"{level}_s" for level in LEVELS]).astype(float).max(axis=1)
    points = points.assign(memory_s=slowest)
    columns: dict[str, Any] = {"count": len(points)}
    columns["run"] = [runs[run_id] for run_id in points["run_id"]]
    for name in TEXTS:
        columns[name] = words.column(points[name]) if name in points else None
    for name in NUMBERS:
        columns[name] = numbers(points[name]) if name in points else None
    return columns
