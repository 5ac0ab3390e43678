"""Pieces of work from counted operators.

A piece that was counted knows how much it must do, and its bytes as a range. `dram_bytes` are the
moved bytes: every operator moves all its operands. What an operator touches may still be in the
last cache, or stay there, if all of it fits. All operators are counted at the cache's level, and
only those that do not fit in `least_bytes`, which DRAM must deliver. A cache may keep a tensor
between two uses, so `least_bytes` may be below the fused bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ridgeline.roofline.floors import flops_column, flops_columns

if TYPE_CHECKING:
    import pandas as pd

FLOATS = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8")
PRODUCTS = ("aten::mm", "aten::addmm")  # of two matrices, of which the second is the last operand
IN_NO_LAYER = "(model)"
OUTSIDE = (IN_NO_LAYER, "(forward)", "(loss)")
"""The model's own operators and its loss: a count, a clock and a profile tell them apart in
different ways, and a loss may be computed inside of the model, so they are one."""
SUMMED = ("flops", "dram_bytes", "least_bytes", "l3_bytes", "l2_bytes", "launches")


def find_static_work(
    ops: pd.DataFrame,
    *,
    precision: str,
    cache_level: str | None = None,
    cache_bytes: int | None = None,
    parts: int = 1,
    is_fused: bool = False,
) -> pd.DataFrame:
    """A piece for every counted operator of a step that has `parts` batches.

    `is_fused` says that a compiler merged the model's operators: they then tell their FLOPs, and
    nothing about launches or about bytes that must move. The optimizer is not compiled.
    """
    pieces = ops[["path", "op", "kind", "phase", "input_shapes"]].copy()
    times = ops["phase"].ne("optimizer") * (parts - 1) + 1
    moved = (ops["read_bytes"] + ops["written_bytes"]).astype(float)
    pieces["flops"] = ops["flops"].astype(float) * times
    for column, flops in _by_roof(ops, precision).items():
        pieces[column] = flops * times
    pieces["dram_bytes"] = moved * times
    fits = _footprint(moved, ops["phase"]).le(cache_bytes or 0)
    is_unknown = ops["phase"].ne("optimizer") & is_fused
    pieces["least_bytes"] = (moved * times).mask(fits | is_unknown, 0.0)
    if cache_level is not None:
        pieces[f"{cache_level}_bytes"] = (moved * times).mask(is_unknown, 0.0)
    pieces["product_sides"] = _product_sides(ops)
    pieces["launches"] = _launches(ops, is_fused=is_fused) * times
    pieces["layer"] = _layer(ops)
    return pieces


def _footprint(moved: pd.Series, phase: pd.Series) -> pd.Series:
    """What passes through the cache before an operand could be met again.

    An optimizer visits every parameter once, so what counts is all of it, not one operator's.
    """
    is_optimizer = phase.eq("optimizer")
    return moved.mask(is_optimizer, moved[is_optimizer].sum())


def _by_roof(ops: pd.DataFrame, precision: str) -> dict[str, pd.Series]:
    """FLOPs by roof: products on the matrix path of their precision, the rest on the vector's."""
    dtype = ops["dtype"].where(ops["dtype"].isin(FLOATS), "fp32")
    product = dtype.mask(dtype.eq("fp32"), "tf32") if precision == "tf32" else dtype
    found = {}
    for name in sorted(set(product)):
        found[flops_column(name, "matrix")] = 2.0 * ops["macs"].where(product.eq(name), 0)
    for name in sorted(set(dtype)):
        found[flops_column(name, "vector")] = ops["other_flops"].where(dtype.eq(name), 0) * 1.0
    return found


def _launches(ops: pd.DataFrame, *, is_fused: bool) -> pd.Series:
    """At least one kernel for each operator that moves anything.

    An operator that gives both gradients is one, though it has a row for each.
    Optimizers update many parameters with one kernel, so their operators are no kernels; of a
    fused step nothing is known.
    """
    moves = (ops["read_bytes"] + ops["written_bytes"]).gt(0)
    if is_fused:
        return moves * 0
    where = ops["path"] + "\n" + ops["op"]
    both = ops["phase"].eq("weight-grad") & where.isin(where[ops["phase"].eq("input-grad")])
    return (moves & ops["phase"].ne("optimizer") & ~both) * 1


def _product_sides(ops: pd.DataFrame) -> pd.Series:
    """Both sides of the second matrix of each forward product, as `768x50257`: the weights."""
    is_product = ops["op"].isin(PRODUCTS) & ops["phase"].eq("forward")
    return ops["input_shapes"].str.split(" ").str[-1].where(is_product, "").fillna("")


def _layer(ops: pd.DataFrame) -> pd.Series:
    """The row of the layer table that an operator's time is in."""
    layer = ops["path"].mask(ops["path"].eq(""), IN_NO_LAYER)
    return layer.mask(ops["phase"].eq("optimizer"), "(optimizer)")


def in_layers(names: pd.Series) -> pd.Series:
    """Names of layers, with all that is in none of them as one."""
    return names.mask(names.isin(OUTSIDE), IN_NO_LAYER)


def grouped(pieces: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Pieces of the same `by` as one, with the kind and the shapes of the largest among them."""
    columns = [name for name in SUMMED if name in pieces] + flops_columns(pieces)
    total = pieces.groupby(list(by), sort=False, observed=True)[columns].sum().reset_index()
    weight = pieces["flops"] + pieces["dram_bytes"]
    largest = pieces.assign(_weight=weight).sort_values("_weight", ascending=False)
    told = [name for name in ("kind", "input_shapes") if name in pieces and name not in by]
    first = largest.drop_duplicates(list(by))[[*by, *told]]
    return total.merge(first, on=list(by), how="left")
