"""Which nodes of a file each operator of PyTorch is, by the recipes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import islice
from math import inf

from ridgeline.count.onnx.pieces import Piece, Place
from ridgeline.count.onnx.recipes import (
    BY_NUMBER,
    JOINTLY,
    RECIPES,
    Form,
    is_of_many,
    node_name,
)

GATES = ("silu", "glu", "mish", "hardswish")  # x·f(x): f(x) may be another's, the product is not


class Free:
    """Nodes that no operator has taken, by their names: a module may have thousands."""

    def __init__(self, nodes: Iterable[Piece]) -> None:
        self.by_name: dict[str, list[Piece]] = defaultdict(list)
        for node in nodes:
            self.by_name[node.function].append(node)

    def chosen(self, parts: Iterable[str], piece: Piece) -> list[Piece] | None:
        """Nodes for all parts, those of the operator's own size first; None if one is missing."""
        found: list[Piece] = []
        for part, times in Counter(parts).items():
            some = self._nearest(part, times, piece)
            if len(some) < times:
                return None
            found += some
        return found

    def _nearest(self, part: str, times: int, piece: Piece) -> list[Piece]:
        nodes = self.by_name.get(node_name(part), [])
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


def _distance(node: Piece, piece: Piece) -> tuple[bool, float]:
    """One number is of a size, as the n - 1 of a variance, and comes last."""
    is_known = bool(node.results and piece.results)
    return node.results == 1, abs(node.results - piece.results) if is_known else inf


def written(place: Place, nodes_there: Counter[str]) -> list[Place]:
    """Each operator of the table that the file has, with the nodes that it is there.

    `nodes_there`: all nodes of the module as `names_of` has them. Exporters merge what is the same
    in two operators, as the mean of `x - x.mean()` and `x.var()`: one node must be its own.
    """
    joint = _jointly(place)
    rest = place.less(joint)
    free = Free(rest.onnx)
    known = sorted((p for p in rest.pytorch if p.function in RECIPES), key=_freedom)
    taken = [found for piece in known if (found := _whole(piece, free))]
    done = {id(piece) for piece, _, _ in taken}
    others = [piece for piece in known if id(piece) not in done and is_of_many(piece)]
    taken += [found for piece in others if (found := _shared(piece, free, nodes_there))]
    for piece, form, nodes in taken:
        for part in form.may:
            more = free.chosen((part,), piece) or []
            free.take(more)
            nodes += more
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


def _jointly(place: Place) -> list[Place]:
    """Several operators that the exporter knows as one."""
    found: list[Place] = []
    for functions, form in JOINTLY:
        rest = place.less(found)
        ours = _nearest_parts(functions, rest.pytorch)
        if len(ours) == functions.total():
            nodes = Free(rest.onnx).chosen(form.must, ours[-1])
            found += [Place(ours, nodes)] if nodes is not None else []
    return found


def _nearest_parts(functions: Counter[str], some: list[Piece]) -> list[Piece]:
    """Operators of these functions: the first of the last function, others near before it."""
    last = [*functions][-1]
    end = next((n for n, p in enumerate(some) if p.function == last), None)
    if end is None:
        return []
    ordered = [*reversed(some[: end + 1]), *some[end + 1 :]]
    found: list[Piece] = []
    for function, times in functions.items():
        found += [p for p in ordered if p.function == function][:times]
    return found


def _freedom(piece: Piece) -> tuple[bool, int, int]:
    """Those with fewer forms choose first, then those of more nodes; last what may be folded."""
    forms = RECIPES[piece.function]
    return piece.is_of_weights, len(forms), -len(forms[0].must)


def _makes_as_many(piece: Piece, nodes: list[Piece]) -> bool:
    """A sum or a maximum makes as many numbers as one of its nodes; so does what may be gone."""
    if piece.is_of_weights and piece.results:
        return any(node.results == piece.results for node in nodes)
    made = {node.results for node in nodes if node.reduces and node.results}
    return not piece.reduces or not piece.results or not made or piece.results in made
