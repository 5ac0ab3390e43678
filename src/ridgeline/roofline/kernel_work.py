"""Pieces of work from hardware counters: a row per kernel, and sums of kernels.

A table of kernels has these columns; what a capture did not hold is absent or not a number:

    kernel       its name                     layer, phase, op   where it belongs, where known
    launches     how often (1 if absent)      time_s             of all its launches
    flops_P_matrix, flops_P_vector            executed FLOPs of precision P
    dram_bytes, l2_bytes, l1_bytes            bytes at each level
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ridgeline.errors import RidgelineError
from ridgeline.roofline.floors import flops_columns
from ridgeline.roofline.kernel_names import family

if TYPE_CHECKING:
    import pandas as pd

OPTIMIZER = "(optimizer)"  # the layer of kernels that update parameters, whose modules are many
LEVEL_BYTES = ("dram_bytes", "l3_bytes", "l2_bytes", "l1_bytes")
TOLD = ("kernel", "layer", "phase", "op", "input_shapes")


def find_kernel_work(kernels: pd.DataFrame) -> pd.DataFrame:
    """A piece for every kernel."""
    if "kernel" not in kernels or "time_s" not in kernels:
        raise RidgelineError(
            "a table of kernels needs the columns kernel and time_s",
            hint=f"it has {', '.join(map(str, kernels.columns)) or 'none'}",
        )
    columns = flops_columns(kernels)
    pieces = kernels[[name for name in TOLD if name in kernels]].copy()
    for name in ("layer", "phase", "op", "input_shapes"):
        pieces[name] = pieces[name].fillna("") if name in pieces else ""
    is_update = pieces["layer"].eq("") & pieces["phase"].eq("optimizer")
    pieces["layer"] = pieces["layer"].mask(is_update, OPTIMIZER)
    families = {name: family(str(name)) for name in pieces["kernel"].unique()}
    pieces["kind"] = pieces["op"].mask(pieces["op"].eq(""), pieces["kernel"].map(families))
    pieces["flops"] = kernels[columns].astype(float).sum(axis=1, min_count=1)
    for name in (*columns, *(name for name in LEVEL_BYTES if name in kernels)):
        pieces[name] = kernels[name].astype(float)
    pieces["launches"] = kernels["launches"].fillna(1) if "launches" in kernels else 1
    pieces["time_s"] = kernels["time_s"].astype(float)
    return pieces


def has_work(pieces: pd.DataFrame) -> bool:
    """Whether FLOPs and bytes were counted; a capture of times alone has neither."""
    if "dram_bytes" not in pieces:
        return False
    return bool(pieces["flops"].notna().any() and pieces["dram_bytes"].notna().any())


def sum_work(pieces: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Kernels of the same `by` as one piece; a sum of nothing known is not known."""
    columns = ["flops", *flops_columns(pieces), "launches", "time_s"]
    columns += [name for name in LEVEL_BYTES if name in pieces]
    return pieces.groupby(list(by), sort=False)[columns].sum(min_count=1).reset_index()
