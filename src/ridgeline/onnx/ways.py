"""Operators that exporters write as other work of the same result, each with the nodes it may be.

ONNX has no such operators, and torch's exporters do not take them apart as PyTorch itself does: a
bag of embeddings is multiplied with weights of ones, a distance has powers for its squares.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

from ridgeline.onnx.pieces import (
    OTHER_WAY,
    Found,
    Piece,
    Place,
    form_of,
    is_near,
    total,
)

ANY = 10**9  # as many as there are: in a loop there are some for each sample


@dataclass(frozen=True, slots=True)
class Way:
    """Nodes that an operator may be, how many of each, and those of which it needs one."""

    may: Mapping[str, int]
    needs: frozenset[str]
    as_many: frozenset[str] = frozenset()  # those that make as many numbers as the operator

    def can_be(self, nodes: list[Piece]) -> bool:
        """A sum that is to be a mean is divided."""
        counts = Counter(node.op for node in nodes)
        is_mean = "ReduceMean" in self.may
        return bool(self.needs & set(counts)) and not (
            is_mean and counts["ReduceSum"] > counts["Div"]
        )


_SQUARES = {"Sub": 1, "Abs": 1, "Pow": 2, "ReduceSum": 1, "Sqrt": 1, "ReduceL1": 1, "ReduceL2": 1}
_AS_PRODUCT = {"MatMul": 1, "Pow": 2, "Mul": 3, "ReduceSum": 2, "Concat": 2, "Clip": 1, "Max": 1,
               "Sqrt": 1, "Expand": 2}  # fmt: skip
_IN_ONE = frozenset({"ReduceSum", "ReduceL1", "ReduceL2"})
_EXTREMES = frozenset({"ReduceMax", "ReduceMin", "ArgMax", "ArgMin"})
_BAG = {"Gather": 1, "Mul": 1, "Slice": ANY, "ConcatFromSequence": 1, "Concat": 1, "Cast": ANY}
_WINDOWS = {"GatherND": 1, "Gather": ANY, "Where": 2, "Add": ANY, "Div": 1}
_UNPOOLED = {"ConstantOfShape": 1, "Expand": 1, "ScatterND": 1, "ScatterElements": 1, "Concat": 1}

_SCATTERED = frozenset({"ScatterND", "ScatterElements"})
_DISTANCE = (  # √(|x|² − 2·x·y + |y|²) as one product, or √Σ(x − y)²
    Way(_AS_PRODUCT, frozenset({"MatMul"}), frozenset({"MatMul", "Clip", "Max", "Sqrt"})),
    Way(_SQUARES, _IN_ONE, _IN_ONE),
)

WAYS: dict[tuple[str, str], tuple[Way, ...]] = {  # by operator and reduction
    ("_cdist_forward", ""): _DISTANCE,
    ("_euclidean_dist", ""): _DISTANCE,
    ("_embedding_bag", "sum"): (Way({**_BAG, "ReduceSum": ANY}, frozenset({"ReduceSum"})),),
    ("_embedding_bag", "max"): (Way({**_BAG, "ReduceMax": ANY}, frozenset({"ReduceMax"})),),
    ("_embedding_bag", "mean"): (
        Way({**_BAG, "ReduceMean": ANY, "ReduceSum": ANY, "Div": ANY},
            frozenset({"ReduceMean", "Div"})),
    ),
    ("_adaptive_avg_pool2d", "mean"): (
        Way(_WINDOWS, frozenset({"Div"}), frozenset({"Add", "Div"})),
    ),
    ("abs", ""): (  # of a complex number
        Way({"ReduceL2": 1}, frozenset({"ReduceL2"}), frozenset({"ReduceL2"})),
    ),
    ("max", "max"): (Way({"ReduceMax": 1, "ArgMax": 1}, frozenset({"ReduceMax"}), _EXTREMES),),
    ("min", "min"): (Way({"ReduceMin": 1, "ArgMin": 1}, frozenset({"ReduceMin"}), _EXTREMES),),
    ("_upsample_nearest_exact2d", ""): (
        Way({"GatherND": 1, "Transpose": 2}, frozenset({"GatherND"}), frozenset({"GatherND"})),
    ),
    ("max_unpool2d", ""): (Way(_UNPOOLED, _SCATTERED),),
    ("max_unpool3d", ""): (Way(_UNPOOLED, _SCATTERED),),
}  # fmt: skip
FORWARD_ONLY = "_forward_only"  # the name of an embedding bag that keeps nothing for a gradient


def other_ways(left: Place) -> Found:
    """Operators of the table, with the nodes of their module that they may be."""
    found: list[tuple[str, Place]] = []
    for same in _calls(filter(_ways, left.pytorch)):
        rest = left.less(place for _, place in found)
        place = _written(same, rest)
        if place is not None:
            found.append((_cause(place), place))
    return found, left.less(place for _, place in found)


def _calls(pieces: Iterable[Piece]) -> list[list[Piece]]:
    """One by one; calls whose nodes are in loops, by module: of these no node says whose it is."""
    found: dict[Hashable, list[Piece]] = defaultdict(list)
    for number, piece in enumerate(pieces):
        is_looped = any(ANY in way.may.values() for way in _ways(piece))
        found[(piece.op, piece.reduces, piece.module) if is_looped else number].append(piece)
    return [*found.values()]


def _ways(piece: Piece) -> tuple[Way, ...]:
    return WAYS.get((piece.op.removesuffix(FORWARD_ONLY), piece.reduces), ())


def _written(same: list[Piece], left: Place) -> Place | None:
    """The first way of which the file has nodes for as much work as these calls are."""
    piece = same[0]
    modules = {p.module for p in left.pytorch}
    near = [p for p in left.onnx if _is_inside(p.module, piece.module, modules)]
    for way in _ways(piece):
        place = Place(same, _taken(near, way, piece, times=len(same)))
        if way.can_be(place.onnx) and is_near(_work(place.pytorch), _work(place.onnx)):
            return place
    return None


def _taken(near: list[Piece], way: Way, piece: Piece, *, times: int) -> list[Piece]:
    budget = Counter({name: most * times for name, most in way.may.items()})
    taken = []
    for node in near:
        is_fitting = node.is_float and node.cost.macs in (0, _macs(piece))
        is_fitting &= node.op not in way.as_many or node.results == piece.results
        if budget[node.op] > 0 and is_fitting:
            budget[node.op] -= 1
            taken.append(node)
    return taken


def _macs(piece: Piece) -> int:
    """Its own, or those of a distance as a product: PyTorch takes that for many points alone.

    It has three FLOPs for each pair and feature; the product has two features more.
    """
    if piece.op == "_cdist_forward":
        return piece.cost.other_flops // 3 + 2 * piece.results
    return piece.cost.macs


def _is_inside(node: str, module: str, modules: set[str]) -> bool:
    """Nodes of loops and branches have the names of these behind that of their module."""
    if node == module:
        return True
    return node.startswith(f"{module}.") if module else node not in modules


def _work(pieces: list[Piece]) -> int:
    cost = total(pieces)
    return cost.flops + cost.transcendentals or cost.written_bytes


def _cause(place: Place) -> str:
    """Decomposed, where it comes to the same products, other FLOPs and functions."""
    a, b = total(place.pytorch), total(place.onnx)
    is_same = (a.macs, a.other_flops) == (b.macs, b.other_flops)
    return form_of(place) if is_same and a.transcendentals == b.transcendentals else OTHER_WAY


def windows_of_one(left: Place) -> Found:
    """Poolings of one place each: torch's exporters number places with them, for the indices."""
    places = [Place([], [p]) for p in left.onnx if p.is_nothing and p.kind == "pool"]
    return [(OTHER_WAY, place) for place in places], left.less(places)
