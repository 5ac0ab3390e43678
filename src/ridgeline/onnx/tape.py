"""Which values need a gradient, node by node and, in loops, pass by pass.

A loop's state may need one only from the second pass on, because the weights of the first are in
it. So the passes are gone through until the states need what they needed before; all that follow
are alike. How many passes that takes depends on the number of states, not on that of the passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from ridgeline.errors import RidgelineError
from ridgeline.onnx.dtypes import UNKNOWN
from ridgeline.onnx.gradients import MOVING, NEEDED, WEIGHT
from ridgeline.onnx.node import NodeCall, Tensor
from ridgeline.onnx.passes import Passes
from ridgeline.onnx.row import Row
from ridgeline.onnx.unlearned import WAVES

MOST_STEPS = 1_000_000  # loops inside each other multiply
MOST_SINGLE = 64  # passes that are told apart before the rest is taken to be alike
WITHOUT = ("RandomNormalLike", "RandomUniformLike", "EyeLike", "Hardmax")
STRAIGHT_THROUGH = ("QuantizeLinear",)


class Step(NamedTuple):
    """A node some of whose results have a gradient."""

    row: Row
    sides: tuple[int, ...]  # where the gradients of its operands go
    given: tuple[int, ...]  # keys of what these are given to; x twice of x·x
    outs: tuple[tuple[Tensor, int], ...]  # results that have one, and where it goes


class Repeat(NamedTuple):
    """A loop: so many passes that are alike, then so many others."""

    passes: Passes
    runs: tuple[tuple[int, Tape], ...]
    results: frozenset[int]  # keys of those that have a gradient


Tape = Sequence[Step | Repeat]


def check_steps(steps: int) -> None:
    """Loops inside each other could be gone through without end."""
    if steps > MOST_STEPS:
        raise RidgelineError(
            f"the gradients of the loops take more than {MOST_STEPS:,} steps",
            hint="inside each other they multiply; count inference, or check the file",
        )


def recorded(
    rows: list[Row], params: dict[int, Tensor], outputs: Iterable[Tensor]
) -> tuple[Tape, set[int]]:
    """All nodes with a gradient, in the order of the forward pass; keys of outputs with one."""
    recorder = _Recorder({ident: WEIGHT for ident, t in params.items() if t.is_float})
    tape = recorder.tape(rows, 0)
    keys = {key for output in outputs for key in recorder.keys_of(output)}
    return tape, {key for key in keys if recorder.wanted.get(key, 0) & NEEDED}


class _Recorder:
    """Through the rows in their order; `wanted` says where the gradient of each value goes.

    A value without a gradient may be MOVING too: what it picks from a weight is no weight.
    """

    def __init__(self, wanted: dict[int, int]) -> None:
        self.wanted = wanted
        self.waves: set[int] = set()  # keys of known sines and cosines, and of what they make
        self.steps = 0

    def tape(self, rows: Sequence[Row], depth: int) -> Tape:
        return list(self._parts(rows, depth))

    def _parts(self, rows: Sequence[Row], depth: int) -> Iterator[Step | Repeat]:
        def loop(row: Row) -> Passes | None:
            return row.around[depth] if len(row.around) > depth else None

        for passes, group in groupby(rows, loop):
            if passes is not None:
                yield self._repeat(passes, list(group), depth + 1)
                continue
            for row in group:
                step = self._step(row)
                if step.outs:
                    yield step

    def _step(self, row: Row) -> Step:
        """Which results need a gradient, and whether it goes to weights alone."""
        self.steps += bool(row.around)
        operands = row.call.operands
        found = [self._of(t) if t is not None else 0 for t in operands]
        side = 0
        for one in found:
            side |= one
        given = [
            key
            for t, one in zip(operands, found, strict=True)
            if t is not None and one & NEEDED
            for key in self.keys_of(t)
        ]
        outs = []
        if row.call.op_type in WAVES or any(t.key in self.waves for t in row.call.inputs):
            known = (t for t in row.call.outputs if t.is_float and t.value is not None)
            self.waves.update(t.key for t in known)
            side |= MOVING
        for out in _made(row.call):
            has_one = bool(side & NEEDED) and _can_have_one(row.call, out)
            self.wanted[out.key] = side if has_one else side & MOVING
            if has_one:
                outs.append((out, side))
        sides = tuple(one if one & NEEDED else 0 for one in found)
        return Step(row, sides, tuple(given), tuple(outs))

    def _of(self, tensor: Tensor) -> int:
        """A value that is known beforehand, or stored, is the same in every step.

        Positions that become sines and cosines in the graph are known, and yet data.
        """
        if tensor.value is not None or (tensor.is_weight and tensor.slot is None):
            is_data = tensor.key in self.waves
            return self.wanted.get(tensor.key, 0) & NEEDED | (MOVING if is_data else 0)
        side = 0
        for key in self.keys_of(tensor):
            side |= self.wanted.get(key, MOVING)
        return side

    def keys_of(self, tensor: Tensor) -> list[int]:
        """A sequence that no node has made, as SequenceMap's, is its items."""
        if tensor.items and tensor.key not in self.wanted:
            return [key for item in tensor.items for key in self.keys_of(item)]
        return [tensor.key]

    def _repeat(self, passes: Passes, rows: list[Row], depth: int) -> Repeat:
        wanted = self.wanted
        for outside, inside in (*passes.kept, *passes.sliced):
            wanted[inside] = wanted.get(outside, MOVING)
        needs = [wanted.get(first, MOVING) for first, _, _ in passes.carried]
        stacked = {outside: 0 for _, outside in passes.stacked}
        runs: list[tuple[int, Tape]] = []
        left = passes.trips
        while left:
            for (_, state, _), need in zip(passes.carried, needs, strict=True):
                wanted[state] = need
            tape = self.tape(rows, depth)
            check_steps(self.steps)
            after = [wanted.get(end, MOVING) for _, _, end in passes.carried]
            times = 1 if after != needs and len(runs) < MOST_SINGLE else left
            runs.append((times, tape))
            for inside, outside in passes.stacked:
                stacked[outside] |= wanted.get(inside, MOVING)
            needs, left = after, left - times
        wanted.update(stacked)
        if not runs:  # the states end as what they were at first
            wanted.update((end, wanted.get(first, MOVING)) for first, _, end in passes.carried)
        for inside, outside in passes.finals:
            wanted[outside] = wanted.get(inside, MOVING)
        results = (key for _, key in (*passes.finals, *passes.stacked))
        return Repeat(
            passes, tuple(runs), frozenset(key for key in results if wanted[key] & NEEDED)
        )


def _made(call: NodeCall) -> Iterator[Tensor]:
    """Results, but a Constant's; of a sequence its items too where they are new."""
    for out in call.outputs:
        if not out.is_weight:
            yield out
        if out.items:
            known = {item.key for t in call.inputs for item in (t, *(t.items or ()))}
            yield from (item for item in out.items if item.key not in known)


def _can_have_one(call: NodeCall, out: Tensor) -> bool:
    """Whether gradients go through: not of whole numbers, nor of what only takes a shape.

    Numbers that are rounded for 8 bits have one, that of what they were, as where PyTorch trains
    for it. So may have a result of which nothing is known.
    """
    if call.op_type in WITHOUT:
        return False
    if call.op_type in STRAIGHT_THROUGH or out.items is not None:
        return True
    return out.is_float or out.dtype is UNKNOWN
