"""Fused bytes: each tensor moves once, whoever uses it.

The operators of one scope (the step, a module) and one direction count as one fused kernel. It
reads what others made, and writes what others read. Forward and backward are apart in time, so
what forward saves for backward is written by one and read by the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ridgeline.count.parts import FusedBytes, Moved

if TYPE_CHECKING:
    from ridgeline.count.result import OpCost

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

    name: Hashable
    direction: str


@dataclass(slots=True)
class _Boundary:
    """What passes in and out of a scope."""

    reads: dict[Hashable, Parts] = field(default_factory=dict)
    writes: dict[Hashable, Parts] = field(default_factory=dict)
    first_write: dict[Hashable, int] = field(default_factory=dict)  # the place in the step
    unshared_read: int = 0
    unshared_written: int = 0


def direction_of(op: OpCost) -> str:
    """Recomputation is backward work."""
    if op.phase == OPTIMIZER:
        return OPTIMIZER
    return FORWARD if op.phase == FORWARD and not op.is_recomputed else BACKWARD


def fused_step(
    op_costs: Iterable[OpCost], *, sizes: Mapping[int, int], lasting: Collection[Hashable]
) -> FusedBytes:
    """The fused bytes of a whole step: forward, backward and optimizer, one after the other."""
    scopes = fused_scopes(op_costs, lambda _: ("",), sizes=sizes, lasting=lasting)
    return FusedBytes(
        read_bytes=sum(found.read_bytes for found in scopes.values()),
        written_bytes=sum(found.written_bytes for found in scopes.values()),
    )


def fused_scopes(
    op_costs: Iterable[OpCost],
    names_of: Callable[[str], Sequence[Hashable]],
    *,
    sizes: Mapping[int, int],
    lasting: Collection[Hashable],
) -> dict[Scope, FusedBytes]:
    """The fused bytes of each scope; `names_of` says in which ones a path is.

    `sizes` are the bytes of storages, `lasting` the keys of the model's inputs and results, which
    outlive the step.
    """
    calls = traffic_of(op_costs)
    names = {path: names_of(path) for path in {call.path for call in calls}}
    readers: dict[Hashable, list[tuple[int, Traffic]]] = {}
    lasting = set(lasting)
    made: set[Hashable] = set()
    scopes: dict[Scope, _Boundary] = {}
    for place, call in enumerate(calls):
        for moved in call.reads:
            readers.setdefault(moved.key, []).append((place, call))
            if moved.key not in made:
                lasting.add(moved.key)
        made.update(moved.key for moved in call.writes)
        for name in names[call.path]:
            boundary = scopes.setdefault(Scope(name, call.direction), _Boundary())
            _add(boundary, call, place, sizes)

    def leaves(scope: Scope, key: Hashable, written_at: int) -> bool:
        later = [call for place, call in readers.get(key, ()) if place > written_at]
        if key in lasting or (not later and scope.direction == BACKWARD):
            return True  # a gradient that nobody reads is a result
        return any(Scope(scope.name, call.direction) != scope or scope.name not in names[call.path]
                   for call in later)  # fmt: skip

    return {
        scope: FusedBytes(
            read_bytes=boundary.unshared_read
            + sum(_sum(parts, sizes.get(key)) for key, parts in boundary.reads.items()),
            written_bytes=boundary.unshared_written
            + sum(
                _sum(parts, sizes.get(key))
                for key, parts in boundary.writes.items()
                if leaves(scope, key, boundary.first_write[key])
            ),
        )
        for scope, boundary in scopes.items()
    }


def _add(boundary: _Boundary, call: Traffic, place: int, sizes: Mapping[int, int]) -> None:
    for key, nbytes, part, _ in call.reads:
        if key is None:
            boundary.unshared_read += nbytes
            continue
        inside = _sum(boundary.writes.get(key, {}), sizes.get(key))
        parts = boundary.reads.setdefault(key, {})
        parts[part] = max(parts.get(part, 0), nbytes - inside)
    for key, nbytes, part, _ in call.writes:
        if key is None:
            boundary.unshared_written += nbytes
            continue
        boundary.first_write.setdefault(key, place)
        parts = boundary.writes.setdefault(key, {})
        parts[part] = max(parts.get(part, 0), nbytes)


def _sum(parts: Parts, size: int | None) -> int:
    """Views that differ are added; together they are no more than their storage."""
    total = sum(parts.values())
    return total if size is None else min(total, size)


def traffic_of(op_costs: Iterable[OpCost]) -> list[Traffic]:
    """What each call reads and writes. A call that serves two phases of backward is one."""
    together: dict[tuple[int, str], list[OpCost]] = {}
    for op in op_costs:
        together.setdefault((id(op.call), direction_of(op)), []).append(op)
    sources: dict[Hashable, Hashable] = {}  # a view → the data that it shows
    found = []
    for (_, direction), ops in together.items():
        first = ops[0]
        reads, writes = first.call.moves({op.phase for op in ops})
        if first.kind == "view" and reads:
            for view in writes if direction == FORWARD else ():
                sources[view.key] = sources.get(reads[0].key, reads[0].key)
            continue
        read = _limit(reads, sum(op.cost.read_bytes for op in ops), first.repeats)
        written = _limit(writes, sum(op.cost.written_bytes for op in ops), first.repeats)
        found.append(Traffic(first.path, direction, _rooted(read, sources),
                             _rooted(written, sources)))  # fmt: skip
    return found


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
    found = []
    for tensor in sorted(sized, key=lambda t: t.nbytes):
        part = min(tensor.nbytes, nbytes)
        nbytes -= part
        if part:
            found.append(tensor._replace(nbytes=part))
    return found


def _rooted(tensors: Iterable[Moved], sources: Mapping[Hashable, Hashable]) -> list[Moved]:
    return [tensor._replace(key=_root(tensor.key, sources)) for tensor in tensors]


def _root(key: Hashable, sources: Mapping[Hashable, Hashable]) -> Hashable:
    """Of a gradient (a pair), the gradient of what a view shows."""
    if isinstance(key, tuple):
        return (key[0], sources.get(key[1], key[1]))
    return sources.get(key, key)
