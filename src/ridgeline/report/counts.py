"""Stored counts, and which of them a run needs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ridgeline.errors import RidgelineError
from ridgeline.fields import FieldError
from ridgeline.records import RECOMPUTE
from ridgeline.report.checked import check_count
from ridgeline.report.views import measured_runs
from ridgeline.store import ResultsFolder, Run

if TYPE_CHECKING:
    import pandas as pd

EARLIER_NAME = "ideal_bytes"  # of the fused bytes, in counts of earlier versions
SAME_COUNT = ("model", "digest", "batch_size", "mode", "input_size", "seq_len", "config")


def stored_counts(results: ResultsFolder, problems: list[str] | None = None) -> dict[str, Run]:
    """Stored counts by what was counted; a later one replaces an earlier.

    What is wrong with others goes to `problems`.
    """
    found = {}
    for run_id in results.run_ids():
        try:
            run = rename_fused(results.read_run(run_id))
        except RidgelineError:
            continue
        has_ops = (run.path / "ops.parquet").is_file()
        if run.asked.get("command") != "count" or not has_ops:
            continue
        try:
            check_count(run)
        except FieldError as error:
            if problems is not None:
                problems.append(f"count {run_id} is passed over: {error}")
        else:
            found[count_key(run.asked, str(run.asked.get("precision")))] = run
    return found


def name_recompute(ops: pd.DataFrame) -> pd.DataFrame:
    """The operators of a count, with recomputation in its own phase.

    Counts stored by earlier versions call it forward, and set it apart by `is_recomputed` alone.
    """
    if "is_recomputed" not in ops:
        return ops
    return ops.assign(phase=ops["phase"].mask(ops["is_recomputed"].eq(True), RECOMPUTE))


def rename_fused(count: Run) -> Run:
    """A stored count with the present name of its fused bytes."""
    if EARLIER_NAME not in count.found:
        return count
    found = {("fused_bytes" if k == EARLIER_NAME else k): v for k, v in count.found.items()}
    return replace(count, found=found)


def rename_fused_of_layers(layers: pd.DataFrame, mode: str) -> pd.DataFrame:
    """The counted layers with `own_fused_bytes`, which earlier versions did not store.

    They had the bytes of the forward pass: in inference that is all, in training not enough.
    """
    if EARLIER_NAME not in layers or "own_fused_bytes" in layers:
        return layers
    fused = layers[EARLIER_NAME] if mode == "infer" else float("nan")
    return layers.assign(own_fused_bytes=fused)


def stored_keys(results: ResultsFolder) -> set[str]:
    """What has been counted and stored, by `count_key`."""
    return set(stored_counts(results))


def run_key(run: Run) -> str:
    """Of the count that a run needs."""
    return count_key(run.asked, str(run.found.get("precision")))


def count_key(asked: Mapping[str, Any], precision: str) -> str:
    """The same for a count and for the runs that it is the count of."""
    same = {name: asked.get(name) for name in SAME_COUNT}
    if isinstance(same["input_size"], tuple):
        same["input_size"] = list(same["input_size"])
    optimizer = asked.get("optimizer") if asked.get("mode") == "train" else None
    return json.dumps([same, precision, optimizer], sort_keys=True, default=str)


def uncounted(results: ResultsFolder, run_ids: Sequence[str] | None = None) -> list[Run]:
    """Completed runs without a stored count, one of each kind."""
    runs, _ = measured_runs(results)
    counts = stored_counts(results)
    found: dict[str, Run] = {}
    for run in runs:
        key = run_key(run)
        if key not in counts and (run_ids is None or run.run_id in run_ids):
            found.setdefault(key, run)
    return list(found.values())
