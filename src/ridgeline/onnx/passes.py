"""The body of a loop, run again and again: which value becomes which from pass to pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from ridgeline.onnx.node import Tensor, new_number

Pair = tuple[int, int]


@dataclass(slots=True, eq=False, kw_only=True)
class Passes:
    """One run of a loop, or a part of it whose passes are alike. Values are named by their keys."""

    trips: int
    copies: int = 1  # of the whole run, side by side: the batch of old Scans
    carried: list[tuple[int, int, int]] = field(default_factory=list)  # first, state, next state
    kept: list[Pair] = field(default_factory=list)  # outside, state: no pass changes it
    sliced: list[Pair] = field(default_factory=list)  # outside, inside: a piece for every pass
    finals: list[Pair] = field(default_factory=list)  # inside, outside: of the last pass
    stacked: list[Pair] = field(default_factory=list)  # inside, outside: of every pass


def as_state(tensor: Tensor | None) -> Tensor | None:
    """The value as the body sees it: another one in every pass."""
    return replace(tensor, slot=new_number(), fill=None) if tensor is not None else None


def add_states(
    passes: Passes,
    first: Iterable[Tensor | None],
    states: Iterable[Tensor | None],
    after: Iterable[Tensor],
) -> None:
    """Note what the states are before the loop, in the body and after a pass."""
    for a, state, b in zip(first, states, after, strict=False):
        if a is None or state is None:
            continue
        if b.key == state.key:
            passes.kept.append((a.key, state.key))
        else:
            passes.carried.append((a.key, state.key, b.key))
            passes.finals.append((b.key, b.key))


def pairs(these: Sequence[Tensor | None], those: Sequence[Tensor | None]) -> list[Pair]:
    """Keys of values that belong together."""
    return [
        (a.key, b.key)
        for a, b in zip(these, those, strict=False)
        if a is not None and b is not None
    ]
