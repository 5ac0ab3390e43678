"""Why two programs for the same network cost differently: rules from pieces to named causes.

Each rule takes what it can explain and leaves the rest; the last one leaves nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from functools import partial

from ridgeline.records import Cost

FOLDED_NORM = "folded batch norm"
SHAPES = "shape arithmetic"
SPLIT = "decomposed operator"
FUSED = "fused operators"
FUSED_ACTIVATION = "fused activation"
OTHER_FORM = "another operator for the same"
NO_BIAS = "a bias of zeros left out"
CONSTANT = "constant folding"
COPIES = "other copies"
COPY_HERE = "a copy in PyTorch alone"
COPY_THERE = "a copy where PyTorch has a view"
ADDED = "added by the exporter"
UNEXPLAINED = "not explained"

EXPLANATIONS = {
    FOLDED_NORM: "the batch norm's scale is in the weights of the convolution, its shift in the"
    " bias",
    SHAPES: "sizes and indices: with open dimensions the graph works them out each time",
    SPLIT: "one operator of PyTorch is several nodes, which write and read what lies between",
    FUSED: "several operators of PyTorch are one node, which keeps to itself what lies between",
    FUSED_ACTIVATION: "the activation is part of the node before it",
    OTHER_FORM: "the node takes or gives other operands",
    NO_BIAS: "the exporter drops an addition of zeros; untrained models have many",
    CONSTANT: "worked out once, when the file was made",
    COPIES: "the same data laid out anew in other steps",
    COPY_HERE: "the file has no node for it",
    COPY_THERE: "ONNX has no strides: a transposed or expanded tensor is a new one",
    ADDED: "PyTorch's step has nothing like it",
    UNEXPLAINED: "a product that the other side has not: another network, or other sizes",
}

MOVES = frozenset({"move", "gather", "view", "fill", "cast"})
BATCH_NORMS = ("native_batch_norm", "batch_norm", "BatchNormalization")
FUSED_NODES = ("Fused", "QLinear", "Skip")  # how onnxruntime names what it joined
PRODUCTS = frozenset({"conv", "matmul", "attention", "recurrent"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One operator call on one side."""

    op: str  # without its domain: "addmm", "MatMul"
    kind: str
    module: str  # the path of the module it belongs to; empty where that is not known
    cost: Cost
    is_float: bool = True


def total(some: Iterable[Piece]) -> Cost:
    return sum((piece.cost for piece in some), Cost())


# ---------------------------------------------------------------- from pieces to causes


@dataclass(slots=True)
class Place:
    """Pieces of both sides that are the same part of the network."""

    pytorch: list[Piece] = field(default_factory=list)
    onnx: list[Piece] = field(default_factory=list)

    @property
    def is_shared(self) -> bool:
        return bool(self.pytorch and self.onnx)

    def less(self, taken: Iterable[Place]) -> Place:
        """Without these very pieces."""
        gone = {id(piece) for place in taken for piece in (*place.pytorch, *place.onnx)}
        return Place(
            [p for p in self.pytorch if id(p) not in gone],
            [p for p in self.onnx if id(p) not in gone],
        )


def explain(pytorch: Iterable[Piece], onnx: Iterable[Piece]) -> list[tuple[str, Place]]:
    """Every piece that has no equal on the other side, under a cause."""
    left = Place([p for p in pytorch if p.cost != Cost()], [p for p in onnx if p.cost != Cost()])
    left = _without_equals(left, lambda p: (p.module, p.cost))
    left = _without_equals(left, lambda p: (p.kind, p.cost))
    found: list[tuple[str, Place]] = []
    is_fused = any(p.op.startswith(FUSED_NODES) for p in left.onnx)
    last = partial(_alone, is_fused=is_fused)
    for rule in (_folded_norms, _boxes, _integers, _by_module, _products, last):
        places, left = rule(left)
        found += places
    assert not left.pytorch and not left.onnx, "the last rule leaves nothing"
    return found


_Found = tuple[list[tuple[str, Place]], Place]


def _without_equals(place: Place, key: Callable[[Piece], Hashable]) -> Place:
    """What is left of both sides after pieces of the same key are set aside, one against one."""
    ours, theirs = Counter(map(key, place.pytorch)), Counter(map(key, place.onnx))
    return Place(
        _surplus(place.pytorch, ours & theirs, key), _surplus(place.onnx, ours & theirs, key)
    )


def _surplus(
    some: list[Piece], spent: Counter[Hashable], key: Callable[[Piece], Hashable]
) -> list[Piece]:
    budget = Counter(spent)
    kept = []
    for piece in some:
        if budget[key(piece)] > 0:
            budget[key(piece)] -= 1
        else:
            kept.append(piece)
    return kept


def _folded_norms(left: Place) -> _Found:
    """A batch norm that the file has not, and the convolution whose bias its shift became."""
    norms = [p for p in left.pytorch if p.op in BATCH_NORMS]
    if not norms or any(p.op in BATCH_NORMS for p in left.onnx):
        return [], left
    pairs = _pairs(left, lambda p: p.cost.macs if p.kind in PRODUCTS else 0)
    places = [*(Place([norm], []) for norm in norms), *(pair for pair in pairs if _is_bias(pair))]
    return [(FOLDED_NORM, place) for place in places], left.less(places)


def _is_bias(pair: Place) -> bool:
    """Whether two products of the same MACs differ by the addition of a bias at most."""
    change = total(pair.onnx) - total(pair.pytorch)
    return change.other_flops >= 0 and change.written_bytes == 0 and pair.pytorch[0].kind == "conv"


def _pairs(left: Place, key: Callable[[Piece], int]) -> list[Place]:
    """One against one by a key that is not zero, in the order of the network."""
    waiting: dict[int, list[Piece]] = defaultdict(list)
    for piece in reversed(left.onnx):
        waiting[key(piece)].append(piece)
    return [
        Place([piece], [waiting[key(piece)].pop()])
        for piece in left.pytorch
        if key(piece) and waiting[key(piece)]
    ]


def _boxes(left: Place) -> _Found:
    """A detector's choice of boxes, which the two sides make under different modules."""
    place = Place(
        [p for p in left.pytorch if p.kind == "boxes"], [p for p in left.onnx if p.kind == "boxes"]
    )
    return ([(_form(place), place)], left.less([place])) if place.is_shared else ([], left)


def _integers(left: Place) -> _Found:
    """Sizes, positions, masks: no floating point in it."""
    place = Place(
        [p for p in left.pytorch if _is_integer(p)], [p for p in left.onnx if _is_integer(p)]
    )
    found = [(SHAPES, Place([p], [])) for p in place.pytorch]
    found += [(SHAPES, Place([], [p])) for p in place.onnx]
    return found, left.less([place])


def _is_integer(piece: Piece) -> bool:
    return not piece.is_float and not piece.cost.macs


def _by_module(left: Place) -> _Found:
    """Both sides do something in this module, and not the same: products, copies, the rest."""
    found: list[tuple[str, Place]] = []
    for place in _modules(left):
        products = _products_in(place)
        rest = place.less(pair for _, pair in products)
        copies = Place(
            [p for p in rest.pytorch if p.kind in MOVES], [p for p in rest.onnx if p.kind in MOVES]
        )
        others = rest.less([copies])
        found += products
        found += [(COPIES, copies)] if copies.is_shared else []
        found += [(_form(others), others)] if others.is_shared else []
    return found, left.less(place for _, place in found)


def _modules(left: Place) -> Iterable[Place]:
    """What both sides do in one module; where nodes name none, like goes with like."""
    has_modules = any(p.module for p in left.onnx)
    places: dict[str, Place] = defaultdict(Place)
    for piece in left.pytorch:
        places[piece.module if has_modules else _family(piece)].pytorch.append(piece)
    for piece in left.onnx:
        places[piece.module if has_modules else _family(piece)].onnx.append(piece)
    return [place for place in places.values() if place.is_shared]


def _products_in(place: Place) -> list[tuple[str, Place]]:
    """Products of the same MACs; an addition of the bias that became a node goes with its product.

    A product with another part of its own that differs is left to what comes after.
    """
    found = []
    additions = [p for p in place.onnx if p.op == "Add"]
    for pair in _pairs(place, lambda p: p.cost.macs):
        (ours,), (theirs,) = pair.pytorch, pair.onnx
        bias = ours.cost.other_flops - theirs.cost.other_flops
        added = [p for p in additions if p.cost.other_flops == bias > 0]
        if added:
            additions.remove(added[0])
            found.append((SPLIT, Place([ours], [theirs, added[0]])))
        else:
            found.append((_product_cause(theirs, bias), pair))
    return found


def _product_cause(theirs: Piece, bias: int) -> str:
    if theirs.op.startswith(FUSED_NODES):
        return FUSED_ACTIVATION
    return NO_BIAS if bias > 0 else OTHER_FORM


def _family(piece: Piece) -> str:
    """Where nodes do not say their module, like is compared with like."""
    if piece.kind in MOVES:
        return "moves"
    return "products" if piece.cost.macs else "rest"


def _form(place: Place) -> str:
    ours, theirs = len(place.pytorch), len(place.onnx)
    if any(p.op.startswith(FUSED_NODES) for p in place.onnx) and theirs < ours:
        return FUSED_ACTIVATION
    if theirs > ours:
        return SPLIT
    return FUSED if theirs < ours else OTHER_FORM


def _products(left: Place) -> _Found:
    """Products that the two sides have under different modules."""
    pairs = _pairs(left, lambda p: p.cost.macs)
    return [(OTHER_FORM, pair) for pair in pairs], left.less(pairs)


def _alone(left: Place, *, is_fused: bool) -> _Found:
    """What one side has and the other has not."""
    ours = [(_missing_cause(p, is_fused=is_fused), Place([p], [])) for p in left.pytorch]
    theirs = [(_added_cause(p), Place([], [p])) for p in left.onnx]
    return ours + theirs, Place()


def _added_cause(piece: Piece) -> str:
    if piece.cost.macs:
        return UNEXPLAINED
    return COPY_THERE if piece.kind in MOVES else ADDED


def _missing_cause(piece: Piece, *, is_fused: bool) -> str:
    if piece.cost.macs:
        return UNEXPLAINED
    if piece.kind == "fill":
        return CONSTANT
    if piece.kind in MOVES:
        return COPY_HERE
    return FUSED_ACTIVATION if is_fused and piece.kind == "pointwise" else CONSTANT
