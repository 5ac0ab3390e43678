"""Fused bytes: each tensor moves once, whoever uses it.

The operators of one scope (the step, a module) and one direction count as one fused kernel. It
reads what others made, and writes what others read. Forward and backward are apart in time, so
what forward saves for backward is written by one and read by the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ridgeline.costs.work import Moved
from ridgeline.count.records import FusedBytes, OpCost

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
Parts = dict[Hashable, int]  # of one tensor's data: bytes by view


@dataclass(slots=True)
class Traffic:
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
    traffic = fused_scopes(
        op_costs, lambda _: [("step", "")], sizes=sizes, lasting=lasting
    ).values()
    return FusedBytes(
        read_bytes=sum(one.read_bytes for one in traffic),
        written_bytes=sum(one.written_bytes for one in traffic),
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
    flow = _Flow(names_of, sizes, set(lasting))
    for call in traffic_of(op_costs):
        flow.add(call)
    return {scope: flow.fused(scope) for scope in flow.scopes}


@dataclass(slots=True)
class _Boundary:
    """What passes in and out of a scope."""

    reads: dict[Hashable, Parts] = field(default_factory=dict)
    writes: dict[Hashable, Parts] = field(default_factory=dict)
    first_write: dict[Hashable, int] = field(default_factory=dict)  # the place in the step


@dataclass(slots=True)
class _Flow:
    """Who reads and writes which data, call by call."""

    names_of: Callable[[str], Names]
    sizes: Mapping[int, int]
    lasting: set[Hashable]
    scopes: dict[Scope, _Boundary] = field(default_factory=dict)
    names: dict[str, Names] = field(default_factory=dict)
    made: set[Hashable] = field(default_factory=set)
    readers: dict[Hashable, list[tuple[int, Traffic]]] = field(default_factory=dict)
    calls: int = 0

    def add(self, call: Traffic) -> None:
        for moved in call.reads:
            self.readers.setdefault(moved.key, []).append((self.calls, call))
            if moved.key not in self.made:
                self.lasting.add(moved.key)
        self.made.update(moved.key for moved in call.writes)
        if call.path not in self.names:
            self.names[call.path] = self.names_of(call.path)
        for kind, path in self.names[call.path]:
            scope = Scope(kind, path, call.direction)
            self._pass(self.scopes.setdefault(scope, _Boundary()), call)
        self.calls += 1

    def _pass(self, boundary: _Boundary, call: Traffic) -> None:
        for moved in call.reads:
            inside = self._sum(moved.key, boundary.writes.get(moved.key, {}))
            parts = boundary.reads.setdefault(moved.key, {})
            parts[moved.part] = max(parts.get(moved.part, 0), moved.nbytes - inside)
        for moved in call.writes:
            boundary.first_write.setdefault(moved.key, self.calls)
            parts = boundary.writes.setdefault(moved.key, {})
            parts[moved.part] = max(parts.get(moved.part, 0), moved.nbytes)

    def fused(self, scope: Scope) -> FusedBytes:
        """What the scope reads of others, and what it writes for others."""
        boundary = self.scopes[scope]
        written = [
            self._sum(key, parts)
            for key, parts in boundary.writes.items()
            if self._leaves(scope, key, boundary.first_write[key])
        ]
        read = [self._sum(key, parts) for key, parts in boundary.reads.items()]
        return FusedBytes(read_bytes=sum(read), written_bytes=sum(written))

    def _leaves(self, scope: Scope, key: Hashable, written_at: int) -> bool:
        """Whether data that a scope writes are used outside of it."""
        if key in self.lasting:
            return True
        later = [call for position, call in self.readers.get(key, ()) if position > written_at]
        if not later:
            return scope.direction == BACKWARD  # a gradient that nobody reads is a result
        return any(
            call.direction != scope.direction
            or (scope.kind, scope.path) not in self.names[call.path]
            for call in later
        )

    def _sum(self, key: Hashable, parts: Parts) -> int:
        """Views that differ are added; together they are no more than their storage."""
        total = sum(parts.values())
        return min(total, self.sizes.get(key, total)) if isinstance(key, int) else total


def traffic_of(op_costs: Iterable[OpCost]) -> list[Traffic]:
    """What each call reads and writes. A call that serves two phases of backward is one."""
    together: dict[tuple[int, str], list[OpCost]] = {}
    for op in op_costs:
        together.setdefault((id(op.call), direction_of(op)), []).append(op)
    sources: dict[Hashable, Hashable] = {}  # a view → the data that it shows
    traffic = []
    for (_, direction), ops in together.items():
        first = ops[0]
        reads, writes = first.call.moves({op.phase for op in ops})
        if first.kind == "view" and reads:
            for view in writes if direction == FORWARD else ():
                sources[view.key] = sources.get(reads[0].key, reads[0].key)
            continue
        read = _limit(reads, sum(op.cost.read_bytes for op in ops), first.repeats)
        written = _limit(writes, sum(op.cost.written_bytes for op in ops), first.repeats)
        traffic.append(Traffic(first.path, direction, _rooted(read, sources),
                             _rooted(written, sources)))  # fmt: skip
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


def _rooted(tensors: Iterable[Moved], sources: Mapping[Hashable, Hashable]) -> list[Moved]:
    return [tensor._replace(key=_root(tensor.key, sources)) for tensor in tensors]


def _root(key: Hashable, sources: Mapping[Hashable, Hashable]) -> Hashable:
    """Of a gradient (a pair), the gradient of what a view shows."""
    if isinstance(key, tuple):
        return (key[0], sources.get(key[1], key[1]))
    return sources.get(key, key)
