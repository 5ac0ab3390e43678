"""Files that work with small integers: what of them is not of the network itself.

A product of integers that are made at run time is scaled by a node of its own, and the shift of a
batch norm that is folded into it is added by another. Where all numbers have bounds, a relu is one
of them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ridgeline.onnx.pieces import (
    QLINEAR,
    QUANTISED,
    TO_INTEGERS,
    Found,
    Piece,
    Place,
    pairs_by,
)
from ridgeline.onnx.products import lost_norms

INTEGER_PRODUCTS = ("MatMulInteger", "ConvInteger")
BOUNDED = ("QuantizeLinear", QLINEAR)  # how nodes begin that work with bounds known beforehand
BOUNDS = ("relu", "relu6", "hardtanh", "clamp", "clamp_min", "clamp_max")


def to_integers(left: Place) -> Found:
    """Nodes that make small integers of numbers, or numbers of such."""
    return _in_file(left, [p for p in left.onnx if p.op.startswith(TO_INTEGERS)])


def scales(left: Place) -> Found:
    """The scale of each product of integers: a node with as many results, and one for itself.

    It is the product of the scales of both operands, of which one is found as the file runs.
    """
    of_results = _integers(left)
    return _in_file(left, _some(left.onnx, "Mul", of_results + Counter({1: of_results.total()})))


def pools(left: Place) -> Found:
    """Poolings of integers, which have no FLOPs, or those of making numbers of them besides."""
    theirs = [p for p in left.onnx if not p.is_float or p.op.startswith(QLINEAR)]
    pairs = pairs_by(
        Place(left.pytorch, theirs), lambda p: (p.reduces, p.results) if p.kind == "pool" else None
    )
    return [(QUANTISED, pair) for pair in pairs], left.less(pairs)


def shifts(left: Place) -> Counter[int]:
    """How many norms of so many results can be in products of integers."""
    return Counter(norm.results for norm in lost_norms(left)) & _integers(left)


def with_needless_bounds(left: Place) -> Place:
    """Where all integers have bounds known beforehand, those of the model may be gone."""
    if not any((p.inside or p.op).startswith(BOUNDED) for p in left.onnx):
        return left
    ours = [replace(p, is_nothing=p.is_nothing or p.function in BOUNDS) for p in left.pytorch]
    return Place(ours, left.onnx)


def without_bounds(left: Place, *, shifts: Counter[int]) -> Found:
    """Bounds that those of the integers make needless, and shifts of norms."""
    ours = [p for p in left.pytorch if p.is_nothing and p.function in BOUNDS]
    found, rest = _in_file(left, _some(left.onnx, "Add", shifts))
    found += [(QUANTISED, Place([p], [])) for p in ours]
    return found, rest.less([Place(ours, [])])


def _integers(left: Place) -> Counter[int]:
    """How many products of integers make so many numbers; parts of nodes are scaled in there."""
    return Counter(p.results for p in left.onnx if p.op in INTEGER_PRODUCTS and not p.inside)


def _some(nodes: list[Piece], op: str, results: Counter[int]) -> list[Piece]:
    """As many nodes as there are to be of each number of results; those by one number first."""
    budget = Counter(results)
    found = []
    these = [node for node in nodes if node.op == op and node.is_float]
    for node in sorted(these, key=lambda p: not p.is_by_number):
        if budget[node.results] > 0:
            budget[node.results] -= 1
            found.append(node)
    return found


def _in_file(left: Place, nodes: list[Piece]) -> Found:
    return [(QUANTISED, Place([], [p])) for p in nodes], left.less([Place([], nodes)])
