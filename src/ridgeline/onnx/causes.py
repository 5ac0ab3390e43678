"""Why two programs for the same network cost differently: rules from pieces to named causes.

Each rule takes what it can explain and leaves the rest; the last one leaves nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from functools import partial

from ridgeline.onnx import quantised
from ridgeline.onnx.natures import arithmetic_of, is_opaque, other_functions
from ridgeline.onnx.pieces import (
    ADDED,
    BATCH_NORMS,
    COMPOSITE,
    CONSTANT,
    COPIES,
    COPY_HERE,
    COPY_THERE,
    FOLDED_SCALE,
    FUSED,
    FUSED_ACTIVATION,
    INSTANCE_NORM,
    MOVES,
    NOT_IN_TABLE,
    OPTIMISED,
    OTHER_FORM,
    OTHER_WAY,
    PRODUCTS,
    QUANTISING,
    SCALES,
    SHAPES,
    SPLIT,
    UNEXPLAINED,
    Found,
    Piece,
    Place,
    form_of,
    has_macs,
    has_no_macs,
    is_plausible,
    pairs_by,
)
from ridgeline.onnx.products import (
    SCALING,
    balanced,
    folded_norms,
    folded_weights,
    kept_norms,
    needless,
    of_equal_macs,
    padded,
    repeated,
    same_macs,
    same_products,
    scaled,
    unused,
    with_additions,
    written_as_sums,
)
from ridgeline.onnx.recipes import JOINED, OTHER_WORK, RECIPES, is_of_many, names_of
from ridgeline.onnx.reductions import has_same_reductions
from ridgeline.onnx.ways import other_ways, windows_of_one
from ridgeline.onnx.written import joined, written
from ridgeline.records import Cost

MOST_OF_A_SIZE = 16  # bytes
Causes = list[tuple[str, Place]]


def explain(pytorch: Iterable[Piece], onnx: Iterable[Piece]) -> Causes:
    """Every piece that has no equal on the other side, under a cause."""
    left = Place([p for p in pytorch if p.cost != Cost()], [p for p in onnx if p.cost != Cost()])
    again = _done_again(left.pytorch)
    left.pytorch.sort(key=lambda p: _may_be_gone(p) or id(p) in again)
    left.onnx.sort(key=lambda p: p.is_nothing)
    has_boxes = any(p.kind == "boxes" for p in left.onnx)  # their steps are under other modules
    is_rewritten = _is_rewritten(left)
    if is_rewritten and not has_boxes:
        return _explained(_as_one_module(left), is_rewritten=True)
    found = _explained(left, is_rewritten=is_rewritten, has_boxes=has_boxes)
    if has_boxes or not _has_lost_nodes(found, _modules_of(left)):
        return found
    one = _explained(_as_one_module(left), is_rewritten=True)
    return found if any(cause == UNEXPLAINED for cause, _ in one) else one


def _is_rewritten(left: Place) -> bool:
    """Whether nodes are not those that an exporter wrote, in modules that it named."""
    is_optimised = any(p.is_contributed or p.op.startswith(OPTIMISED) for p in left.onnx)
    is_quantised = any(p.op.startswith(QUANTISING) for p in left.onnx)
    return is_optimised or is_quantised or not _has_modules(left)


def _has_modules(left: Place) -> bool:
    """Whether nodes say in which module they are, if the model has some."""
    return any(p.module for p in left.onnx) or not _modules_of(left)


def _modules_of(left: Place) -> set[str]:
    return {p.module for p in left.pytorch if p.module}


def _has_lost_nodes(found: Causes, known: set[str]) -> bool:
    """Whether nodes that are not explained are in no module: an optimizer may have made them."""
    strange = Place.of(place for cause, place in found if cause == UNEXPLAINED)
    return any(p.module not in known for p in strange.onnx)


def _explained(left: Place, *, is_rewritten: bool, has_boxes: bool = False) -> Causes:
    """By rules, one after another."""
    calls = Counter(p.value for p in left.pytorch if p.value)
    scales = Counter(p.module for p in left.pytorch if p.op in SCALING)
    shifts = quantised.shifts(left)
    left = quantised.with_needless_bounds(left)
    is_told = not has_boxes  # whose each function is
    has_modules = _has_modules(left)
    found, left = quantised.scales(left)
    others, left = other_functions(left, calls=calls) if is_told else ([], left)
    found += others
    nature = arithmetic_of if is_told else _any
    nodes_there = _nodes_there(left) if is_told else None
    left = _without_equals(left, lambda p: (p.module, p.cost, p.reduces, nature(p)))
    near = Place.of(pairs_by(left, _function) if is_told else [])  # better than one far away
    far = _without_equals(left.less([near]), lambda p: (p.kind, p.cost, p.reduces, nature(p)))
    left = left.only([near, far])
    for rule in (
        partial(same_products, has_modules=has_modules),
        padded,
        folded_norms,
        kept_norms,
        written_as_sums,
        folded_weights,
        unused,
        partial(repeated, calls, of=has_macs),
        other_ways,
        _boxes,
        quantised.pools,
        _integers,
        quantised.to_integers,
        _same_work,
        windows_of_one,
        partial(needless, of=_is_resize),  # of others the file may have a form
        partial(
            _by_module,
            has_modules=has_modules,
            is_rewritten=is_rewritten,
            nodes_there=nodes_there,
        ),
        partial(scaled, by_module=scales),
        same_macs,
        partial(balanced, is_rewritten=is_rewritten),
        partial(quantised.without_bounds, shifts=shifts),
        needless,
        partial(repeated, calls, of=has_no_macs),
        partial(_inside, unequal=left),
        partial(_beside_boxes, has_boxes=has_boxes and has_modules),
        partial(_fused, has_opaque=any(map(is_opaque, left.onnx))),
        _alone,
    ):
        places, left = rule(left)
        found += places
    assert not left.pytorch and not left.onnx, "the last rule leaves nothing"
    return found


def _as_one_module(left: Place) -> Place:
    """Where nodes have lost their modules, each function is one of all that there are."""
    return Place(
        [replace(p, module="") for p in left.pytorch], [replace(p, module="") for p in left.onnx]
    )


def _any(_: Piece) -> str:
    return ""


def _done_again(some: Iterable[Piece]) -> set[int]:
    """Pieces, by id, that work out what another one before them has."""
    seen: set[int] = set()
    again = set()
    for piece in some:
        if piece.value and piece.value in seen:
            again.add(id(piece))
        seen.add(piece.value)
    return again


def _may_be_gone(piece: Piece) -> bool:
    """These come last, as they may have no equal."""
    return piece.is_of_weights or piece.is_unused or piece.is_nothing


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


def _same_work(left: Place) -> Found:
    """Pooling, norms and their like, of the same FLOPs: a module called again has another name."""
    found: list[Place] = []
    for key in (lambda p: (p.module, _work(p)) if _work(p) else None, _work):
        found += pairs_by(left.less(found), key)
    return [(OTHER_FORM, pair) for pair in found], left.less(found)


def _work(piece: Piece) -> Hashable:
    """What one of a kind does; of the many pointwise ones this tells too little."""
    if piece.kind in MOVES or piece.kind == "pointwise" or piece.cost.macs:
        return None
    if piece.op == INSTANCE_NORM or is_of_many(piece):  # a part of other norms
        return None
    cost = piece.cost
    written = cost.written_bytes if not cost.flops else 0
    made = (piece.reduces, piece.results)
    return (piece.kind, *made, cost.other_flops, cost.transcendentals, written)


def _without_sizes(place: Place) -> Place:
    """Without nodes that are no part of what the model does with its input."""
    return place.less([Place([], [*filter(_is_size, place.onnx)])])


def _function(piece: Piece) -> Hashable:
    """The very function: of a number beside a tensor PyTorch reads nothing, a node some bytes."""
    name = arithmetic_of(piece)
    cost = piece.cost
    made = piece.results if piece.reduces else 0
    return (piece.module, name, cost.other_flops, cost.transcendentals, made) if name else None


def _nodes_there(left: Place) -> dict[str, Counter[str]]:
    """How many of each node are in each module."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for node in left.onnx:
        found[node.module].update(names_of(node))
    return found


def _by_module(
    left: Place,
    *,
    has_modules: bool,
    is_rewritten: bool,
    nodes_there: dict[str, Counter[str]] | None,
) -> Found:
    """Both sides do something in this module, and not the same: products, copies, the rest.

    `nodes_there`: all nodes, by module; None where nobody knows whose each is.
    """
    found: list[tuple[str, Place]] = []
    for place in _modules(left, has_modules=has_modules):
        products = with_additions(pairs_by(place, _macs), place.onnx)
        rest = place.less(pair for _, pair in products)
        copies = Place(
            [p for p in rest.pytorch if p.kind in MOVES], [p for p in rest.onnx if p.kind in MOVES]
        )
        others = of_equal_macs(rest.less([copies]))
        found += products
        found += [(COPIES, copies)] if copies.is_shared else []
        if nodes_there is not None:
            there = nodes_there[place.onnx[0].module]
            parts = _known_parts(_without_sizes(others), there, is_rewritten=is_rewritten)
            found += [(_part_cause(part), part) for part in parts]
            others = _of_unknown(others.less(parts), is_rewritten=is_rewritten)
        if others.is_shared:
            is_told = nodes_there is not None
            found.append((_loose_cause(others, is_rewritten=is_rewritten, is_told=is_told), others))
    return found, left.less(place for _, place in found)


def _part_cause(part: Place) -> str:
    is_other = any(p.function in OTHER_WORK for p in part.pytorch)
    return OTHER_WAY if is_other else form_of(part)


def _known_parts(place: Place, nodes_there: Counter[str], *, is_rewritten: bool) -> list[Place]:
    """Operators with the nodes that they are: the very function, else by the table."""
    found = pairs_by(place, _function)
    found += joined(place.less(found)) if is_rewritten else []
    return found + written(place.less(found), None if is_rewritten else nodes_there)


def _of_unknown(place: Place, *, is_rewritten: bool) -> Place:
    """What nobody knows: operators that are not in the table, nodes that are several at once."""
    names = {p.function for p in place.pytorch}
    joint = [parts for p in place.onnx for parts in JOINED.get(p.function, ())]
    if not is_rewritten and any(parts <= names for parts in joint):
        return place
    unknown = [p for p in place.pytorch if p.function not in RECIPES]
    return Place(unknown, place.onnx) if unknown else Place()


def _is_unknown(piece: Piece) -> bool:
    return piece.function not in RECIPES and has_no_macs(piece)


def _loose_cause(place: Place, *, is_rewritten: bool, is_told: bool) -> str:
    """Sets of operators of which one may be the other."""
    is_strange = (is_told or not is_rewritten) and not any(map(has_macs, place.pytorch))
    is_strange &= not is_plausible(place)
    is_strange |= not has_same_reductions(place)
    if is_strange:
        return UNEXPLAINED
    is_unknown = is_told and any(map(_is_unknown, place.pytorch))
    return NOT_IN_TABLE if is_unknown else form_of(place)


def _macs(piece: Piece) -> Hashable:
    """Of a product alone, not of what holds one and more; of two in one, of others like it."""
    is_product = piece.kind in PRODUCTS and piece.cost.macs
    return (piece.cost.macs, piece.kind in COMPOSITE) if is_product else None


def _modules(left: Place, *, has_modules: bool) -> Iterable[Place]:
    """What both sides do in one module; where nodes name none, like goes with like."""
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


def _inside(left: Place, *, unequal: Place) -> Found:
    """The gates or the softmax between products that on the other side are inside of one node.

    So are sums and maxima by which boxes of many classes are compared at once.
    """
    ours = _between(left.pytorch, unequal.pytorch, unequal.onnx)
    theirs = _between(left.onnx, unequal.onnx, unequal.pytorch)
    found = [(FUSED, Place([p], [])) for p in ours]
    found += [(SPLIT, Place([], [p])) for p in theirs]
    return found, left.less([Place(ours, theirs)])


def _is_resize(piece: Piece) -> bool:
    return piece.kind == "interpolate"


def _between(some: list[Piece], mine: list[Piece], others: list[Piece]) -> list[Piece]:
    if not any(p.kind in COMPOSITE and p.function not in RECIPES for p in others):
        return []
    modules = {p.module for p in mine if has_macs(p) or p.kind == "boxes"}
    return [p for p in some if _is_work(p) and p.module in modules]


def _beside_boxes(left: Place, *, has_boxes: bool) -> Found:
    """Nodes without a module beside a choice of boxes, and what they may stand for."""
    place = Place(
        [p for p in left.pytorch if _is_work(p) and not p.is_of_weights],
        [p for p in left.onnx if _is_nobodys(p)],
    )
    if not has_boxes or not place.is_shared or not has_same_reductions(place):
        return [], left
    return [(form_of(place), place)], left.less([place])


def _fused(left: Place, *, has_opaque: bool) -> Found:
    """Activations, sums and norms that onnxruntime put into a node that is not known here."""
    kinds = ("pointwise", "norm") if has_opaque else ()
    ours = [p for p in left.pytorch if p.kind in kinds and p.op not in BATCH_NORMS]
    return [(FUSED_ACTIVATION, Place([p], [])) for p in ours], left.less([Place(ours, [])])


def _is_nobodys(piece: Piece) -> bool:
    return not piece.module and _is_work(piece)


def _is_work(piece: Piece) -> bool:
    return has_no_macs(piece) and piece.kind not in MOVES


def _alone(left: Place) -> Found:
    """What one side has and the other has not; work in place of other work is told as that."""
    strange = Place(
        [p for p in left.pytorch if has_no_macs(p) and _missing_cause(p) == UNEXPLAINED],
        [p for p in left.onnx if has_no_macs(p) and _added_cause(p) == UNEXPLAINED],
    )
    instead = [*_modules(strange, has_modules=True)]
    rest = left.less(instead)
    found = [(UNEXPLAINED, place) for place in instead]
    found += [(_missing_cause(p), Place([p], [])) for p in rest.pytorch]
    found += [(_added_cause(p), Place([], [p])) for p in rest.onnx]
    return found, Place()


def _added_cause(piece: Piece) -> str:
    if piece.kind in MOVES:
        return COPY_THERE
    if _is_size(piece) or (piece.op == "Where" and piece.is_of_weights):  # a mask of sizes
        return SHAPES
    is_work = bool(piece.cost.flops or piece.cost.transcendentals) or piece.op == "Where"
    return UNEXPLAINED if is_work else ADDED


def _is_size(piece: Piece) -> bool:
    """A few numbers, with nothing of the input in them: sizes, though floating-point ones."""
    is_small = piece.cost.written_bytes <= MOST_OF_A_SIZE and not piece.inside  # a part has none
    return is_small and not piece.cost.macs and piece.is_of_weights


def _missing_cause(piece: Piece) -> str:
    if not piece.cost.macs and (piece.kind == "fill" or piece.is_of_weights):
        return CONSTANT
    if piece.is_with_weights and piece.op in SCALES:
        return FOLDED_SCALE
    if piece.op in SCALES and piece.results == 1:  # another one is as large, with a weight of 1
        return SHAPES
    return COPY_HERE if piece.kind in MOVES else UNEXPLAINED
