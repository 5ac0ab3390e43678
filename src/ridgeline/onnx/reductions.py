"""What becomes of many numbers that are made one: a sum is no maximum, pooled or reduced.

An exporter may write a reduction as others, a mean as a sum and a division; it never writes a mean
as a maximum.
"""

from __future__ import annotations

from collections.abc import Iterable

from ridgeline.count.result import OpCost
from ridgeline.onnx.pieces import Piece, Place, has_macs

NAMES = {  # of PyTorch's operators and of nodes, without "Reduce"
    "sum": "sum", "nansum": "sum", "mean": "mean", "nanmean": "mean", "prod": "prod",
    "amax": "max", "max": "max", "amin": "min", "min": "min", "aminmax": "extremes",
    "argmax": "argmax", "argmin": "argmin", "logsumexp": "logsumexp",
    "norm": "norm", "linalg_vector_norm": "norm", "dist": "norm",
    "var": "variance", "var_mean": "variance", "std": "variance", "std_mean": "variance",
    "cumsum": "cumsum", "cumprod": "cumprod", "l1": "norm", "l2": "norm", "sumsquare": "sum",
    "logsum": "logsumexp",
}  # fmt: skip
POOLS = {"max": "max", "average": "mean", "avg": "mean", "lp": "norm"}  # by a part of the name
BAGS = ("sum", "mean", "max")  # by the number of an embedding bag's mode

WRITTEN_AS = {  # what each may be in the file
    "sum": {"sum"},
    "mean": {"mean", "sum"},
    "prod": {"prod"},
    "max": {"max", "argmax"},
    "min": {"min", "argmin"},
    "extremes": {"max", "min"},
    "argmax": {"argmax"},
    "argmin": {"argmin"},
    "logsumexp": {"logsumexp", "max", "sum"},
    "norm": {"norm", "sum", "max", "min"},
    "variance": {"variance", "mean", "sum"},
    "cumsum": {"cumsum"},
    "cumprod": {"cumprod"},
}
SCALED = ("Div", "Mul")  # what a sum needs to be a mean
WITHIN = {  # what other kinds of operators hold
    "norm": {"mean", "sum", "variance", "norm"},
    "softmax": {"max", "sum", "logsumexp"},
    "attention": {"max", "sum"},
    "loss": {"sum", "mean", "max", "logsumexp"},
    "distance": {"sum", "max", "norm"},
    "sort": {"max", "min", "argmax", "argmin"},
    "boxes": set(WRITTEN_AS),
    "linalg": set(WRITTEN_AS),
}
BY_PRODUCTS = {"sum", "mean", "cumsum"}  # what a product with ones can be


def reduction_of(op: OpCost) -> str:
    """`sum`, `mean`, `max` and so on; nothing where it is no reduction, or one of another kind."""
    name = op.op.rpartition("::")[2]
    if name.strip("_").startswith("embedding_bag"):
        mode = getattr(op.call, "get", lambda *_: 0)("mode", 0)
        return BAGS[mode] if isinstance(mode, int) and mode < len(BAGS) else ""
    if op.kind == "pool":
        return next((made for part, made in POOLS.items() if part in name.lower()), "")
    if op.kind != "reduce":
        return ""
    return NAMES.get(name.strip("_").lower().removeprefix("qlinear").removeprefix("reduce"), "")


def has_same_reductions(place: Place) -> bool:
    """Whether each reduction of one side can be one, or a part, of what the other side does."""
    live = [p for p in place.pytorch if not p.is_of_weights] or place.pytorch
    ours, theirs = _reductions(live), _reductions(place.onnx)
    return (
        _are_written(ours, place.onnx)
        and _are_meant(theirs, live)
        and _is_as_many(live, place.onnx)
    )


def _is_as_many(live: list[Piece], nodes: list[Piece]) -> bool:
    """Of one against one: both make as many numbers."""
    both = [[p.results for p in some if p.reduces] for some in (live, nodes)]
    if any(len(results) != 1 for results in both):
        return True
    (ours,), (theirs,) = both
    return ours == theirs or not ours or not theirs


def _reductions(pieces: Iterable[Piece]) -> set[str]:
    return {p.reduces for p in pieces if p.reduces}


def _held(pieces: Iterable[Piece]) -> set[str]:
    """Reductions that are a part of other operators."""
    held: set[str] = set()
    for piece in pieces:
        held |= WITHIN.get(piece.kind, set())
        held |= BY_PRODUCTS if has_macs(piece) else set()
    return held


def _are_written(ours: set[str], nodes: list[Piece]) -> bool:
    theirs = _reductions(nodes)
    is_scaled = any(p.op in SCALED for p in nodes)
    return all(
        WRITTEN_AS[one] & theirs and (one != "mean" or is_scaled or theirs != {"sum"})
        for one in ours - _held(nodes)
    )


def _are_meant(theirs: set[str], live: list[Piece]) -> bool:
    ours = _reductions(live)
    known = {made for one in ours for made in WRITTEN_AS[one]}
    is_all_known = all(p.reduces for p in live if p.kind in ("reduce", "pool"))
    return not is_all_known or not ours or theirs - _held(live) <= known
