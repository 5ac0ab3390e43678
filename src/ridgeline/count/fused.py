"""Fused bytes: each tensor moves once, whoever uses it.

The operators of one scope (the step, a module) and one direction count as one fused kernel. It
reads what others made, and writes what others read. Forward and backward are apart in time, so
what forward saves for backward is written by one and read by the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from ridgeline.costs.work import Moved
from ridgeline.count.records import FusedBytes, OpCost

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
Parts = dict[Hashable, int]  # of one tensor's data: bytes by view


class Traffic(NamedTuple):
    """One operator call in one direction: the tensors that it reads and writes."""

    path: str
    direction: str
    reads: list[Moved]
    writes: list[Moved]


class Scope(NamedTuple):
    """What is taken as fused."""

    kind: str
    path: str
    direction: str


Names = Sequence[tuple[str, str]]  # kinds and paths of the scopes that an operator is in


def direction_of(op: OpCost) -> str:
    """Recomputation is backward work."""
    return op.phase if op.phase in (FORWARD, OPTIMIZER) else BACKWARD


def fused_step(
    op_costs: Iterable[OpCost], *, sizes: Mapping[int, int], lasting: Collection[int]
) -> FusedBytes:
    """The fused bytes of a whole step: forward, backward and optimizer, one after the other."""
    scopes = fused_scopes(op_costs, lambda _: [("step", "")], sizes=sizes, lasting=lasting)
    return FusedBytes(
        read_bytes=sum(one.read_bytes for one in scopes.values()),
        written_bytes=sum(one.written_bytes for one in scopes.values()),
    )


def fused_scopes(
    op_costs: Iterable[OpCost],
    names_of: Callable[[str], Names],
    *,
    sizes: Mapping[int, int],
    lasting: Collection[int],
) -> dict[Scope, FusedBytes]:
    """The fused bytes of each scope; `names_of` says in which ones a path is.

    `sizes` are the bytes of storages, `lasting` the keys of the model's inputs and results, which
    outlive the step.
    """
    flow = _Flow(list_traffic(op_costs), sizes, set(lasting))
    scopes: dict[Scope, list[int]] = {}
    find_names = cache(names_of)
    for number, call in enumerate(flow.calls):
        for kind, path in find_names(call.path):
            scopes.setdefault(Scope(kind, path, call.direction), []).append(number)
    return {scope: flow.fuse(numbers, scope.direction) for scope, numbers in scopes.items()}


class _Flow:
    """Who reads and writes which data; calls have numbers in the order of the step."""

    def __init__(
        self, calls: list[Traffic], sizes: Mapping[int, int], lasting: set[Hashable]
    ) -> None:
        self.calls, self._sizes, self._lasting = calls, sizes, lasting
        self._readers: dict[Hashable, list[int]] = {}
        made: set[Hashable] = set()
        for number, call in enumerate(calls):
            for moved in call.reads:
                self._readers.setdefault(moved.key, []).append(number)
                if moved.key not in made:
                    lasting.add(moved.key)
            made.update(moved.key for moved in call.writes)

    def fuse(self, numbers: list[int], direction: str) -> FusedBytes:
        """What these calls together read of others, and what they write for others."""
        reads: dict[Hashable, Parts] = {}
        writes: dict[Hashable, Parts] = {}
        first_write: dict[Hashable, int] = {}
        for number in numbers:
            for moved in self.calls[number].reads:
                inside = self._sum(moved.key, writes.get(moved.key, {}))
                _add_part(reads, moved, moved.nbytes - inside)
            for moved in self.calls[number].writes:
                first_write.setdefault(moved.key, number)
                _add_part(writes, moved, moved.nbytes)
        own = set(numbers)
        leaving = [key for key, at in first_write.items() if self._leaves(key, at, own, direction)]
        return FusedBytes(
            read_bytes=sum(self._sum(key, parts) for key, parts in reads.items()),
            written_bytes=sum(self._sum(key, writes[key]) for key in leaving),
        )

    def _leaves(self, key: Hashable, written_at: int, own: set[int], direction: str) -> bool:
        """Whether data are used outside of the calls that write them."""
        later = {number for number in self._readers.get(key, ()) if number > written_at}
        if not later:  # a gradient that nobody reads is a result
            return key in self._lasting or direction == BACKWARD
        return key in self._lasting or not later <= own

    def _sum(self, key: Hashable, parts: Parts) -> int:
        """Views that differ are added; together they are no more than their storage."""
        total = sum(parts.values())
        return min(total, self._sizes.get(key, total)) if isinstance(key, int) else total


def _add_part(parts_of: dict[Hashable, Parts], moved: Moved, nbytes: int) -> None:
    parts = parts_of.setdefault(moved.key, {})
    parts[moved.part] = max(parts.get(moved.part, 0), nbytes)


def list_traffic(op_costs: Iterable[OpCost]) -> list[Traffic]:
    """What each call reads and writes. A call that serves two phases of backward is one."""
    together: dict[tuple[int, str], list[OpCost]] = {}
    for op in op_costs:
        together.setdefault((id(op.call), direction_of(op)), []).append(op)
    sources: dict[Hashable, Hashable] = {}  # a view → the data that it shows
    traffic: list[Traffic] = []
    for (_, direction), ops in together.items():
        first = ops[0]
        reads, writes = first.call.moves({op.phase for op in ops})
        if first.kind == "view" and reads:
            for view in writes if direction == FORWARD else ():
                sources[view.key] = sources.get(reads[0].key, reads[0].key)
            continue
        read = _limit(reads, sum(op.cost.read_bytes for op in ops), first.repeats)
        written = _limit(writes, sum(op.cost.written_bytes for op in ops), first.repeats)
        sides = ([t._replace(key=_root(t.key, sources)) for t in side] for side in (read, written))
        traffic.append(Traffic(first.path, direction, *sides))
    return traffic


def _limit(tensors: Iterable[Moved], nbytes: int, repeats: int) -> list[Moved]:
    """The tensors with the bytes that move of each: no more than `nbytes` together.

    Of one that is too large, as the table of a lookup, a part moves. One without which the others
    fit exactly does not move at all.
    """
    distinct = {(t.key, t.part): t for t in tensors}.values()
    sized = [t if t.is_weight else t._replace(nbytes=t.nbytes * repeats) for t in distinct]
    surplus = sum(t.nbytes for t in sized) - nbytes
    if surplus > 0:
        idle = next((t for t in sized if t.nbytes == surplus), None)
        sized = [t for t in sized if t is not idle]
    traffic = []
    for tensor in sorted(sized, key=lambda t: t.nbytes):
        part = min(tensor.nbytes, nbytes)
        nbytes -= part
        if part:
            traffic.append(tensor._replace(nbytes=part))
    return traffic


def _root(key: Hashable, sources: Mapping[Hashable, Hashable]) -> Hashable:
    """Of a gradient (a pair), the gradient of what a view shows."""
    if isinstance(key, tuple):
        return (key[0], sources.get(key[1], key[1]))
    return sources.get(key, key)
