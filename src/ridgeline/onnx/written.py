"""Which nodes of a file each operator of PyTorch is, by the recipes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from math import inf

from ridgeline.onnx.pieces import Piece, Place
from ridgeline.onnx.recipes import (
    BY_NUMBER,
    JOINED_FORMS,
    JOINTLY,
    RECIPES,
    REWRITTEN,
    Form,
    is_of_many,
    node_name,
)

MOST_PADDED = 4  # times as many numbers: 4 channels in a block of 16
SPREADING = ("addcmul", "addcdiv", "lerp", "linalg_cross", "mul.complex")
GATES = ("silu", "glu", "mish", "hardswish")  # x·f(x): f(x) may be another's, the product is not


class Free:
    """Nodes that no operator has taken, by their names: a module may have thousands.

    `is_exact`: nodes of all modules are in it, so they must be of the operator's own size.
    """

    def __init__(self, nodes: Iterable[Piece], *, is_exact: bool = False) -> None:
        self.is_exact = is_exact
        self.by_name: dict[str, list[Piece]] = defaultdict(list)
        for node in nodes:
            self.by_name[node.function].append(node)

    def chosen(
        self, parts: Iterable[str], piece: Piece, own: Iterable[Piece] = ()
    ) -> list[Piece] | None:
        """Nodes for all parts, those of the operator's own size first; None if one is missing.

        `own`: nodes that it has already.
        """
        found: list[Piece] = []
        for part, times in Counter(parts).items():
            some = self._nearest(part, times, piece, _sizes(part, piece, own))
            if len(some) < times:
                return None
            found += some
        return found

    def _nearest(self, part: str, times: int, piece: Piece, sizes: set[int]) -> list[Piece]:
        nodes = _of_its_products(self.by_name.get(node_name(part), []), part, piece)
        if self.is_exact and sizes:
            exact = [node for node in nodes if node.results in sizes or not node.results]
            nodes = exact or [node for node in nodes if _is_padded(node, piece)]
        if part.endswith(BY_NUMBER):
            nodes = [node for node in nodes if node.is_by_number]
        same = list(islice((n for n in nodes if n.results == piece.results > 1), times))
        if len(same) == times:
            return same
        return sorted(nodes, key=lambda node: _distance(node, piece))[:times]

    def give_back(self, nodes: Iterable[Piece]) -> None:
        for node in nodes:
            self.by_name[node.function].append(node)

    def take(self, nodes: Iterable[Piece]) -> None:
        for node in nodes:
            some = self.by_name[node.function]
            del some[next(n for n, one in enumerate(some) if one is node)]


def _sizes(part: str, piece: Piece, own: Iterable[Piece]) -> set[int]:
    """How many numbers a node can make, if that is known.

    Operators by element make as many in each step, as far as no operand is smaller; to a softmax
    as many are added as it has.
    """
    if piece.kind == "pointwise" and piece.function not in SPREADING:
        return {piece.results, *(one.results for one in own)}
    if piece.kind == "attention" and part == "Add":
        return {node.results for node in own if node.function == "Softmax"}
    return set()


def _of_its_products(nodes: list[Piece], part: str, piece: Piece) -> list[Piece]:
    """Of an attention, if there are such: products of half its MACs, a softmax as large."""
    if piece.kind != "attention":
        return nodes
    if part == "Softmax":
        same = [n for n in nodes if n.cost.transcendentals == piece.cost.transcendentals]
    else:
        same = [n for n in nodes if n.cost.macs and 2 * n.cost.macs == piece.cost.macs]
    return same or nodes


def _is_padded(node: Piece, piece: Piece) -> bool:
    """Whether it may be as large in onnxruntime's layout of whole blocks of channels."""
    return node.is_contributed and piece.results <= node.results <= MOST_PADDED * piece.results


def _distance(node: Piece, piece: Piece) -> tuple[bool, float]:
    """One number is of a size, as the n - 1 of a variance, and comes last."""
    is_known = bool(node.results and piece.results)
    return node.results == 1, abs(node.results - piece.results) if is_known else inf


def written(place: Place, nodes_there: Counter[str] | None) -> list[Place]:
    """Each operator of the table that the file has, with the nodes that it is there.

    `nodes_there`: all nodes of the module as `names_of` has them. Exporters merge what is the same
    in two operators, as the mean of `x - x.mean()` and `x.var()`: one node must be its own. None:
    the nodes are those of all modules.
    """
    free = Free(place.onnx, is_exact=nodes_there is None)
    joint = _jointly(place.pytorch, free, JOINTLY)
    rest = place.less(joint).pytorch
    known = sorted((p for p in rest if p.function in RECIPES), key=_freedom)
    taken = [found for piece in known if (found := _whole(piece, free))]
    done = {id(piece) for piece, _, _ in taken}
    others = [piece for piece in known if id(piece) not in done and is_of_many(piece)]
    there = nodes_there or Counter()
    taken += [found for piece in others if (found := _shared(piece, free, there))]
    done |= {id(piece) for piece, _, _ in taken}
    left = [p for p in rest if p.function in RECIPES and id(p) not in done]
    joint += _jointly(left, free, REWRITTEN)
    _take_more(taken, free)
    return joint + [Place([piece], nodes) for piece, _, nodes in taken]


Taken = tuple[Piece, Form, list[Piece]]


def _whole(piece: Piece, free: Free) -> Taken | None:
    """The first form of which all nodes are free."""
    for form in RECIPES[piece.function]:
        nodes = free.chosen(form.must, piece)
        if nodes is not None and _makes_as_many(piece, nodes):
            free.take(nodes)
            return piece, form, nodes
    return None


def _shared(piece: Piece, free: Free, nodes_there: Counter[str]) -> Taken | None:
    """The first form of which all nodes are in the module, and one at least is free."""
    for form in RECIPES[piece.function]:
        if Counter(form.must) - nodes_there:
            continue
        own: list[Piece] = []
        for part in form.must:
            nodes = free.chosen((part,), piece) or []
            free.take(nodes)
            own += nodes
        if own and (piece.function not in GATES or any(node.op == "Mul" for node in own)):
            return piece, form, own
        free.give_back(own)
    return None


def _jointly(
    operators: Sequence[Piece], free: Free, table: Iterable[tuple[Counter[str], Form]]
) -> list[Place]:
    """Several operators that the exporter, or an optimizer, knows as one."""
    found: list[Place] = []
    ours, places = Free(operators), {id(p): n for n, p in enumerate(operators)}
    for functions, form in table:
        while (some := _nearest_parts(functions, ours, places)) is not None:
            nodes = free.chosen(form.must, some[-1], some)
            if nodes is None:
                break
            ours.take(some)
            free.take(nodes)
            found.append(Place(some, nodes))
    return found


def _nearest_parts(
    functions: Counter[str], ours: Free, places: Mapping[int, int]
) -> list[Piece] | None:
    """Operators of these functions: the first of the last function, others near before it."""
    ends = ours.by_name.get([*functions][-1])
    if not ends:
        return None
    end = places[id(ends[0])]

    def way_back(piece: Piece) -> tuple[bool, int]:
        place = places[id(piece)]
        return place > end, abs(end - place)

    found: list[Piece] = []
    for function, times in functions.items():
        found += sorted(ours.by_name.get(function, ()), key=way_back)[:times]
    return found if len(found) == functions.total() else None


def joined(place: Place) -> list[Place]:
    """Nodes that are several operators at once, each with those that it is."""
    free = Free(place.pytorch, is_exact=True)
    taken: list[Taken] = []
    for node in place.onnx:
        for form in JOINED_FORMS.get(node.function, ()):
            operators = free.chosen(form.must, node)
            if operators is not None:
                free.take(operators)
                taken.append((node, form, operators))
                break
    _take_more(taken, free)
    return [Place(operators, [node]) for node, _, operators in taken]


def _take_more(taken: Iterable[Taken], free: Free) -> None:
    """What each may have besides, after all have what they must."""
    for piece, form, own in taken:
        for part in form.may:
            more = free.chosen((part,), piece, own) or []
            free.take(more)
            own += more


def _freedom(piece: Piece) -> tuple[bool, int, int]:
    """Those with fewer forms choose first, then those of more nodes; last what may be folded."""
    forms = RECIPES[piece.function]
    return piece.is_of_weights, len(forms), -len(forms[0].must)


def _makes_as_many(piece: Piece, nodes: list[Piece]) -> bool:
    """A sum or a maximum makes as many numbers as one of its nodes, and a mean as its division.

    So does what may be gone.
    """
    if piece.is_of_weights and piece.results:
        return any(node.results == piece.results for node in nodes)
    if piece.reduces == "mean" and any(n.results != piece.results for n in nodes if n.is_by_number):
        return False
    made = {node.results for node in nodes if node.reduces and node.results}
    return not piece.reduces or not piece.results or not made or piece.results in made
