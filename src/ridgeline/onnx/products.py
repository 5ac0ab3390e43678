"""Products of two programs for one network: which go together, and why one side has more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from itertools import product
from math import prod

from ridgeline.onnx.pieces import (
    BATCH_NORMS,
    BIAS_UNSEEN,
    COMPOSITE,
    FOLDED_NORM,
    FOLDED_WEIGHTS,
    MERGED,
    NO_BIAS,
    NOTHING,
    OF_VALUES,
    OF_ZEROS,
    OTHER_FORM,
    PADDED,
    PRODUCTS,
    SCALES,
    SPLIT,
    SUMS,
    UNEXPLAINED,
    UNUSED,
    Found,
    Piece,
    Place,
    form_of,
    has_macs,
    pairs_by,
    total,
)

SCALING = ("baddbmm", "addbmm")  # operators with two factors, which become nodes
BLOCK = 8  # channels, or twice as many
WITH_STATISTICS = ("norm.own", "norm.instance")  # norms of what they get: no product can hold one
WITH_BIAS = ("Gemm", "Conv", "ConvTranspose")  # nodes that may add one


def same_products(left: Place, *, has_modules: bool) -> Found:
    """Products of one kind and the same MACs: in a module, in its parent; convolutions anywhere."""
    has_folded_norms = bool(lost_norms(left))
    may_add = has_folded_norms or any(p.op.removesuffix("_") in SCALES for p in left.pytorch)
    found: list[tuple[str, Place]] = []
    scopes = (_module, _parent, _conv) if has_modules else (_anywhere,)
    for alike, scope in product((_widths, _results, _anywhere), scopes):
        rest = left.less(place for _, place in found)
        pairs = pairs_by(rest, partial(_product_key, scope, alike))
        near = rest.onnx if has_modules else []  # an Add of that size may be anything
        found += with_additions(pairs, near, has_folded_norms=has_folded_norms, may_add=may_add)
    return found, left.less(place for _, place in found)


def _module(piece: Piece) -> str | None:
    return piece.module


def _parent(piece: Piece) -> str | None:
    return piece.module.rpartition(".")[0] if piece.module else None


def _conv(piece: Piece) -> str | None:
    return "" if piece.kind == "conv" else None


def _anywhere(_: Piece) -> str | None:
    return ""


def _widths(piece: Piece) -> tuple[int, ...]:
    return piece.widths


def _results(piece: Piece) -> int:
    return piece.results


def _product_key(
    scope: Callable[[Piece], str | None], alike: Callable[[Piece], Hashable], piece: Piece
) -> Hashable:
    """Of convolutions of the same MACs those of the same channels first, then as large ones."""
    place = scope(piece)
    is_product = piece.kind in PRODUCTS and piece.cost.macs and place is not None
    return (place, piece.kind, piece.cost.macs, alike(piece)) if is_product else None


def with_additions(
    pairs: Iterable[Place],
    onnx: list[Piece],
    *,
    has_folded_norms: bool = False,
    may_add: bool = True,
) -> list[tuple[str, Place]]:
    """Why each pair differs; an addition of the bias that became a node goes with its product.

    `may_add`: the file may have a bias where the product of PyTorch has none.
    """
    found = []
    additions = [p for p in onnx if p.op == "Add"]
    for pair in sorted(pairs, key=_may_lack_its_bias):
        (ours,), (theirs,) = pair.pytorch, pair.onnx
        bias = ours.cost.other_flops - theirs.cost.other_flops
        bias = min(bias, ours.results) if ours.op in SCALING else bias
        added = [
            p for p in additions if p.cost.other_flops == bias > 0 and p.module == theirs.module
        ]
        added = [p for p in added if _is_of_vector(p)] or added[: ours.bias != OF_ZEROS]
        if added:
            additions = [p for p in additions if p is not added[0]]
            found.append((SPLIT, Place([ours], [theirs, added[0]])))
        elif has_folded_norms and _is_bias(pair):
            found.append((FOLDED_NORM, pair))
        else:
            found.append((_product_cause(ours, theirs, bias, may_add=may_add), pair))
    return found


def _is_of_vector(addition: Piece) -> bool:
    """Whether it reads less than two tensors of its size, and more than one and a number."""
    cost = addition.cost
    is_less = cost.read_bytes < 2 * cost.written_bytes and not addition.is_by_number
    return is_less or bool(addition.inside)


def _may_lack_its_bias(pair: Place) -> bool:
    """Those whose bias must be there choose first."""
    return pair.pytorch[0].bias == OF_ZEROS


def scaled(left: Place, *, by_module: Counter[str]) -> Found:
    """Factors of products that are nodes: `baddbmm` has one for what it adds, too."""
    budget = Counter({module: 2 * count for module, count in by_module.items()})
    places = []
    for node in left.onnx:
        if node.op == "Mul" and budget[node.module] > 0:
            budget[node.module] -= 1
            places.append(Place([], [node]))
    return [(SPLIT, place) for place in places], left.less(places)


def _product_cause(ours: Piece, theirs: Piece, bias: int, *, may_add: bool) -> str:
    if bias < 0 and not may_add and theirs.op in WITH_BIAS and not ours.bias:
        return UNEXPLAINED
    if bias <= 0 or not ours.bias:
        return OTHER_FORM
    return {OF_ZEROS: NO_BIAS, OF_VALUES: UNEXPLAINED}.get(ours.bias, BIAS_UNSEEN)


def _is_bias(pair: Place) -> bool:
    """Whether two products of the same MACs differ by the addition of a bias at most."""
    change = total(pair.onnx) - total(pair.pytorch)
    return change.other_flops >= 0 and change.written_bytes == 0 and pair.pytorch[0].kind == "conv"


def folded_norms(left: Place) -> Found:
    """A batch norm that the file has not, and that can be in the product before it."""
    places = [Place([norm], []) for norm in lost_norms(left)]
    return [(FOLDED_NORM, place) for place in places], left.less(places)


def lost_norms(left: Place) -> list[Piece]:
    """Batch norms less those that the file has: in the same module, else of the same size.

    PyTorch has no other operator for a norm that works its statistics out, as an instance norm is.
    """
    ours = [*filter(_is_of_stored_statistics, left.pytorch)]
    norms = Place(
        sorted(ours, key=lambda p: p.is_foldable),  # those that must be there come first
        [p for p in left.onnx if p.op in BATCH_NORMS],
    )
    for key in (lambda p: p.module or None, lambda p: (_made(p), p.cost.transcendentals), _made):
        norms = norms.less(pairs_by(norms, key))
    return [norm for norm in norms.pytorch if norm.is_foldable]


def padded(left: Place) -> Found:
    """Convolutions of onnxruntime's blocked layout on whole blocks of channels."""
    ours = [p for p in left.pytorch if p.kind == "conv"]
    choices = [
        (node, [p for p in ours if _is_padded(p, node)])
        for node in left.onnx
        if node.is_contributed and node.kind == "conv"
    ]
    places: list[Place] = []
    taken: set[int] = set()
    for node, some in sorted(choices, key=lambda choice: len(choice[1])):
        free = [p for p in some if id(p) not in taken]
        if free:
            nearest = max(free, key=lambda p: p.cost.macs)
            taken.add(id(nearest))
            places.append(Place([nearest], [node]))
    return [(PADDED, place) for place in places], left.less(places)


def _is_padded(ours: Piece, node: Piece) -> bool:
    """Whether it has as many MACs with what it makes, or takes, in whole blocks."""
    pairs = [*zip(ours.widths, node.widths, strict=False)]
    is_of_blocks = all(b % BLOCK == 0 and a <= b < a + 2 * BLOCK for a, b in pairs if a != b)
    more = {prod(some) for some in product(*pairs)}
    macs = {ours.cost.macs * widths for widths in more - {prod(ours.widths)}}
    return is_of_blocks and node.cost.macs * prod(ours.widths) in macs


def kept_norms(left: Place) -> Found:
    """Batch norms that the file has in another form: in onnxruntime's, without their roots."""
    pairs = pairs_by(left, lambda p: p.results if _is_of_stored_statistics(p) else 0)
    return [(OTHER_FORM, pair) for pair in pairs], left.less(pairs)


def _is_of_stored_statistics(piece: Piece) -> bool:
    return piece.op in BATCH_NORMS and piece.function not in WITH_STATISTICS


def _made(piece: Piece) -> int:
    return piece.results or piece.cost.written_bytes


def written_as_sums(left: Place) -> Found:
    """A product that is a Mul of as many elements as it has MACs, and a ReduceSum of those."""
    found: list[Place] = []
    for piece in left.pytorch:
        rest = left.less(found).onnx if piece.cost.macs else []
        near = [p for p in rest if p.module in (piece.module, _parent(piece))]
        macs = piece.cost.macs
        factors = [p for p in near if p.op == "Mul" and p.cost.other_flops == macs]
        sums = [
            p for p in near if p.op == "ReduceSum" and macs <= 2 * p.cost.other_flops <= 2 * macs
        ]
        if factors and sums:
            found.append(Place([piece], [factors[0], sums[0]]))
    return [(SUMS, place) for place in found], left.less(found)


def unused(left: Place) -> Found:
    """What nobody reads."""
    places = [Place([p], []) for p in left.pytorch if p.is_unused]
    return [(UNUSED, place) for place in places], left.less(places)


def needless(left: Place, *, of: Callable[[Piece], bool] = lambda piece: True) -> Found:
    """What changes nothing, on either side."""
    places = [Place([p], []) for p in left.pytorch if p.is_nothing and of(p)]
    places += [Place([], [p]) for p in left.onnx if p.is_nothing and of(p)]
    return [(NOTHING, place) for place in places], left.less(places)


def folded_weights(left: Place) -> Found:
    """Products that the file has not because no input is in them; their bias it may add.

    One whose module has as many MACs on both sides is in a node of several, as of an LSTM.
    """
    missing: Counter[str] = Counter()
    for piece in left.pytorch:
        missing[piece.module] += piece.cost.macs
    for node in left.onnx:
        missing[node.module] -= node.cost.macs
    places: list[Place] = []
    for piece in left.pytorch:
        if piece.is_of_weights and piece.cost.macs and missing[piece.module]:
            taken = {id(p) for place in places for p in place.onnx}
            bias = [p for p in left.onnx
                    if p.op == "Add" and p.module == piece.module and id(p) not in taken
                    and p.cost.other_flops == piece.cost.other_flops]  # fmt: skip
            places.append(Place([piece], bias[:1]))
    return [(FOLDED_WEIGHTS, place) for place in places], left.less(places)


def repeated(calls: Counter[int], left: Place, *, of: Callable[[Piece], bool]) -> Found:
    """What PyTorch works out several times over; once it must be in the file."""
    spent = Counter(dict.fromkeys(calls, 1))
    places = []
    for piece in filter(of, left.pytorch):
        if spent[piece.value] < calls[piece.value]:
            spent[piece.value] += 1
            places.append(Place([piece], []))
    return [(MERGED, place) for place in places], left.less(places)


def of_equal_macs(place: Place) -> Place:
    """All of it, or all but its products where those are not the same."""
    if total(place.pytorch).macs == total(place.onnx).macs:
        return place
    return Place(
        [p for p in place.pytorch if not p.cost.macs], [p for p in place.onnx if not p.cost.macs]
    )


def same_macs(left: Place) -> Found:
    """Products that the two sides have under different modules."""
    pairs = pairs_by(left, lambda p: (p.cost.macs, p.kind in COMPOSITE) if p.cost.macs else None)
    return [(OTHER_FORM, pair) for pair in pairs], left.less(pairs)


def balanced(left: Place, *, is_rewritten: bool) -> Found:
    """Other products on both sides, under different modules, that come to the same MACs.

    One of them holds several, or the file was rewritten by an optimizer.
    """
    place = Place([*filter(has_macs, left.pytorch)], [*filter(has_macs, left.onnx)])
    is_same = place.is_shared and total(place.pytorch).macs == total(place.onnx).macs
    is_same &= is_rewritten or any(p.kind in COMPOSITE for p in (*place.pytorch, *place.onnx))
    is_same &= not _lacks_functions(place)
    return ([(form_of(place), place)], left.less([place])) if is_same else ([], left)


def _lacks_functions(place: Place) -> bool:
    """Whether products of PyTorch have functions in them, a softmax, and those of the file none."""
    return total(place.onnx).transcendentals == 0 < total(place.pytorch).transcendentals
