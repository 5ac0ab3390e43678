"""Stored counts, and which of them a run needs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ridgeline.records import RECOMPUTE, CountRequest, RunRequest
from ridgeline.store import MeasuredRun, ResultsIndex, StoredCount

if TYPE_CHECKING:
    import pandas as pd

EARLIER_NAME = "ideal_bytes"  # of the fused bytes, in counts of earlier versions
SAME_COUNT = ("model", "digest", "batch_size", "mode", "input_size", "seq_len", "config")


def stored_counts(index: ResultsIndex) -> dict[str, StoredCount]:
    """Stored counts by what was counted; a later one replaces an earlier."""
    return {
        count_key(count.request, count.request.precision): count
        for count in index.counts
        if (count.path / "ops.parquet").is_file()
    }


def name_recompute(ops: pd.DataFrame) -> pd.DataFrame:
    """The operators of a count, with recomputation in its own phase.

    Counts stored by earlier versions call it forward, and set it apart by `is_recomputed` alone.
    """
    if "is_recomputed" not in ops:
        return ops
    return ops.assign(phase=ops["phase"].mask(ops["is_recomputed"].eq(True), RECOMPUTE))


def rename_fused_of_layers(layers: pd.DataFrame, mode: str) -> pd.DataFrame:
    """The counted layers with `own_fused_bytes`, which earlier versions did not store.

    They had the bytes of the forward pass: in inference that is all, in training not enough.
    """
    if EARLIER_NAME not in layers or "own_fused_bytes" in layers:
        return layers
    fused = layers[EARLIER_NAME] if mode == "infer" else float("nan")
    return layers.assign(own_fused_bytes=fused)


def run_key(run: MeasuredRun) -> str:
    """Of the count that a run needs."""
    return count_key(run.request, run.result.precision)


def count_key(request: RunRequest | CountRequest, precision: str) -> str:
    """The same for a count and for the runs that it is the count of."""
    same = {name: getattr(request, name) for name in SAME_COUNT}
    optimizer = request.optimizer if request.mode == "train" else None
    return json.dumps([same, precision, optimizer], sort_keys=True, default=str)


def uncounted(index: ResultsIndex, run_ids: Sequence[str] | None = None) -> list[MeasuredRun]:
    """Completed runs without a stored count, one of each kind."""
    counts = stored_counts(index)
    missing: dict[str, MeasuredRun] = {}
    for run in index.runs:
        key = run_key(run)
        if key not in counts and (run_ids is None or run.run_id in run_ids):
            missing.setdefault(key, run)
    return list(missing.values())
