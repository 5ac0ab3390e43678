"""Why two programs for the same network cost differently: rules from pieces to named causes.

Each rule takes what it can explain and leaves the rest; the last one leaves nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable
from functools import partial

from ridgeline.count.onnx.pieces import (
    ADDED,
    CONSTANT,
    COPIES,
    COPY_HERE,
    COPY_THERE,
    FUSED_ACTIVATION,
    FUSED_NODES,
    MOVES,
    SHAPES,
    UNEXPLAINED,
    Found,
    Piece,
    Place,
    form_of,
    pairs_by,
)
from ridgeline.count.onnx.products import (
    balanced,
    folded_norms,
    folded_weights,
    has_macs,
    has_no_macs,
    of_equal_macs,
    repeated,
    same_macs,
    same_products,
    with_additions,
    written_as_sums,
)
from ridgeline.records import Cost


def explain(pytorch: Iterable[Piece], onnx: Iterable[Piece]) -> list[tuple[str, Place]]:
    """Every piece that has no equal on the other side, under a cause."""
    left = Place([p for p in pytorch if p.cost != Cost()], [p for p in onnx if p.cost != Cost()])
    left.pytorch.sort(key=lambda p: p.is_of_weights)  # last, as these may have no equal
    calls = Counter(p.value for p in left.pytorch if p.value)
    left = _without_equals(left, lambda p: (p.module, p.cost))
    left = _without_equals(left, lambda p: (p.kind, p.cost))
    found: list[tuple[str, Place]] = []
    is_fused = any(p.op.startswith(FUSED_NODES) for p in left.onnx)
    last = partial(_alone, is_fused=is_fused)
    for rule in (
        same_products,
        folded_norms,
        written_as_sums,
        folded_weights,
        partial(repeated, calls, of=has_macs),
        _boxes,
        _integers,
        _by_module,
        same_macs,
        balanced,
        partial(repeated, calls, of=has_no_macs),
        last,
    ):
        places, left = rule(left)
        found += places
    assert not left.pytorch and not left.onnx, "the last rule leaves nothing"
    return found


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


def _boxes(left: Place) -> Found:
    """A detector's choice of boxes, which the two sides make under different modules."""
    place = Place(
        [p for p in left.pytorch if p.kind == "boxes"], [p for p in left.onnx if p.kind == "boxes"]
    )
    return ([(form_of(place), place)], left.less([place])) if place.is_shared else ([], left)


def _integers(left: Place) -> Found:
    """Sizes, positions, masks: no floating point in it."""
    place = Place(
        [p for p in left.pytorch if _is_integer(p)], [p for p in left.onnx if _is_integer(p)]
    )
    found = [(SHAPES, Place([p], [])) for p in place.pytorch]
    found += [(SHAPES, Place([], [p])) for p in place.onnx]
    return found, left.less([place])


def _is_integer(piece: Piece) -> bool:
    return not piece.is_float and not piece.cost.macs


def _by_module(left: Place) -> Found:
    """Both sides do something in this module, and not the same: products, copies, the rest."""
    found: list[tuple[str, Place]] = []
    for place in _modules(left):
        products = with_additions(pairs_by(place, lambda p: p.cost.macs), place.onnx)
        rest = place.less(pair for _, pair in products)
        copies = Place(
            [p for p in rest.pytorch if p.kind in MOVES], [p for p in rest.onnx if p.kind in MOVES]
        )
        others = of_equal_macs(rest.less([copies]))
        found += products
        found += [(COPIES, copies)] if copies.is_shared else []
        found += [(form_of(others), others)] if others.is_shared else []
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


def _family(piece: Piece) -> str:
    """Where nodes do not say their module, like is compared with like."""
    if piece.kind in MOVES:
        return "moves"
    return "products" if piece.cost.macs else "rest"


def _alone(left: Place, *, is_fused: bool) -> Found:
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
    if piece.kind == "fill" or piece.is_of_weights:
        return CONSTANT
    if piece.kind in MOVES:
        return COPY_HERE
    return FUSED_ACTIVATION if is_fused and piece.kind == "pointwise" else CONSTANT
