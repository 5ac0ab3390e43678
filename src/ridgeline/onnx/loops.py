"""A Loop: its body so many times, pass by pass where shapes change."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ridgeline.onnx.dtypes import BOOL
from ridgeline.onnx.infer import from_array, make
from ridgeline.onnx.inner import add_rows, body_of, stacked, walked, weight_of
from ridgeline.onnx.node import NodeCall, Tensor
from ridgeline.onnx.passes import Passes, add_states, as_state, pairs
from ridgeline.onnx.row import Row
from ridgeline.onnx.scope import Scope
from ridgeline.onnx.series import standing_for, value_ahead
from ridgeline.onnx.trips import told_passes

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

    from ridgeline.onnx.walk import Walk

MOST_TRIPS = 1 << 40  # with a condition more is "until it is false"
MOST_UNROLLED = 256  # passes that are walked one by one
LOOKED_BACK = 16  # of them, to see how shapes and costs go on


def _trips(walk: Walk, call: NodeCall) -> int:
    """How often a loop runs: as the file says, or as given; else it is asked for."""
    limit, condition, given = call.get(0), call.get(1), walk.bound.given_for(call.name)
    if condition is not None and condition.value is not None and not condition.value.any():
        return told_passes(walk, call, 0)
    if limit is not None and limit.value is not None and limit.value.size == 1:
        most = int(limit.value.ravel()[0])
        # a condition is one that data decide: trips.py has followed others
        if condition is None or most < MOST_TRIPS:
            trips = told_passes(walk, call, max(most, 0), is_most=condition is not None)
            if condition is not None and given is None:
                walk.note(f"Loop {call.name!r} is taken to run to its limit of {trips}")
            return trips
    if given is None:
        walk.ask_for(call.name)
    return 1 if given is None else given


def run_loop(
    walk: Walk, call: NodeCall, node: NodeProto, scope: Scope, path: str
) -> Sequence[Tensor | None]:
    """The body, so many times. Where shapes grow from one pass to the next, each pass is walked."""
    body, trips = body_of(call, "body"), _trips(walk, call)
    carried = list(call.operands[2:])
    loop = _LoopRun(walk, body, scope, path, trips, carried)
    if not trips:
        return [*carried, *_stacks_of_none(loop, len(node.output) - len(carried))]
    loop.go()
    if loop.guessed_from:
        walk.note(
            f"what Loop {call.name!r} does changes from pass to pass, and not evenly: from pass"
            f" {loop.guessed_from} of {trips} on each is taken to be like the last one walked, so"
            " the count is not exact, and too low where there is more to do later"
        )
    if loop.summed_from:
        walk.note(
            f"the shapes in Loop {call.name!r} change with every pass: passes {loop.summed_from}"
            f" to {trips} are summed as they go on from those before"
        )
    return loop.results()


def _stacks_of_none(loop: _LoopRun, count: int) -> list[Tensor]:
    """What is stacked in a loop that is not run: its body tells the shape of each."""
    return [stacked(t, 0, 0) for t in loop.unrun()[1 + len(loop.carried) :]] if count > 0 else []


@dataclass(frozen=True, slots=True)
class _Pass:
    """A pass that was walked; its rows are not yet in the walk's list."""

    carried: list[Tensor | None]  # the states before it
    states: list[Tensor | None]  # the same in the body
    after: list[Tensor]
    made: list[Tensor]  # what is stacked
    rows: list[Row]

    @property
    def sizes(self) -> list[list[int]] | None:
        """Of the states; None where they are not tensors of a known shape."""
        tensors = [t for t in self.carried if t is not None]
        if any(t.dims is None or t.items is not None for t in tensors):
            return None
        return [list(t.shape) for t in tensors]

    @property
    def costs(self) -> list[list[int]]:
        return [_numbers(row) for row in self.rows]


@dataclass(slots=True)
class _LoopRun:
    """A loop that is being walked."""

    walk: Walk
    body: GraphProto
    scope: Scope
    path: str
    trips: int
    carried: list[Tensor | None]
    parts: list[tuple[Passes, list[Tensor]]] = field(default_factory=list)
    before: deque[_Pass] = field(default_factory=lambda: deque(maxlen=LOOKED_BACK))
    done: int = 0  # passes that were added
    summed_from: int = 0  # the first pass that others stand for
    keeps_values: bool = False  # of states that change: shapes in the body depend on them
    guessed_from: int = 0  # the first that is only taken to be like the one before

    def go(self) -> None:
        """All passes: one by one while they change, but not without end."""
        while self.done < self.trips:
            left = self.trips - self.done
            one = self._walked(self.done)
            if one is None:
                continue
            if self._is_steady(one, left):
                self._add(one, left)
            elif self.done < MOST_UNROLLED or left <= LOOKED_BACK or left % 2:
                self._add(one, 1)
                self.before.append(one)
            else:  # the last pass alone is walked, for the memory that it takes
                self._add_rest(one, left)

    def _add_rest(self, one: _Pass, left: int) -> None:
        """A few passes stand for all but the last; one for all of them, for want of a rule."""
        standing = self._standing_for(left - 1)
        if standing is None:
            self.guessed_from = self.done + 1
            self._add(one, left)
            return
        self.summed_from = self.done + 1
        for found, times in standing:
            self._add(found, times)

    def results(self) -> list[Tensor | None]:
        together = [stacked(t, self.trips, 0) for t in self.parts[-1][1]]
        for passes, made in self.parts:
            passes.stacked = pairs(made, together)
        return [*self.carried, *together]

    def _walked(self, place: int, carried: list[Tensor | None] | None = None) -> _Pass | None:
        """None where a pass changes a value that was known: it is not, from now on."""
        carried = self.carried if carried is None else carried
        states = [as_state(t) for t in carried] if self.body.node else carried
        outputs, rows = self._body(place, states)
        after, made = outputs[1 : 1 + len(carried)], outputs[1 + len(carried) :]
        known = list(carried)
        if not self.keeps_values and _forget_changed(carried, after):
            if self.trips > MOST_UNROLLED or not self._loses_shapes(place, carried, rows):
                return None
            carried[:], self.keeps_values = known, True
        return _Pass(list(carried), list(states), after, made, rows)

    def _body(self, place: int, states: list[Tensor | None]) -> tuple[list[Tensor], list[Row]]:
        inputs = (_number(place), make("", BOOL, ()), *states)
        return walked(self.walk, self.body, inputs, self.scope, self.path)

    def _loses_shapes(self, place: int, forgotten: list[Tensor | None], rows: list[Row]) -> bool:
        """Whether fewer results are known in the body where values that change are not."""
        _, again = self._tried(place, forgotten)
        return _unknown_in(again) > _unknown_in(rows)

    def unrun(self) -> list[Tensor]:
        """What a pass would make; its values are those of no pass."""
        outputs, _ = self._tried(0, [t and replace(t, value=None) for t in self.carried])
        return outputs

    def _tried(self, place: int, states: list[Tensor | None]) -> tuple[list[Tensor], list[Row]]:
        """A pass that nobody hears of."""
        notes, asked_for = dict(self.walk.notes), dict(self.walk.asked_for)
        tried = self._body(place, states)
        self.walk.notes, self.walk.asked_for = notes, asked_for
        return tried

    def _is_steady(self, one: _Pass, left: int) -> bool:
        """Whether all passes from this one on are alike."""
        if self.keeps_values and left > 1:
            return False
        if not all(_same_size(a, b) for a, b in zip(one.carried, one.after, strict=False)):
            return False
        if left == 1:
            return True
        _, last = self._body(self.trips - 1, one.states)  # it may cut another piece
        return weight_of(one.rows) == weight_of(last)

    def _add(self, one: _Pass, times: int) -> None:
        passes = Passes(trips=times)
        add_states(passes, one.carried, one.states, one.after)
        add_rows(self.walk, one.rows, passes)
        self.parts.append((passes, one.made))
        self.carried = list(one.after)
        self.done += times

    def _standing_for(self, left: int) -> list[tuple[_Pass, int]] | None:
        """A few of the passes left, each with how many it stands for.

        None unless the sizes of the states and all costs are polynomials of the pass, of a low
        degree: those that were walked before say which, and the ones found here bear it out.
        """
        sizes = [one.sizes for one in self.before]
        costs = [one.costs for one in self.before]
        found: list[tuple[_Pass, int]] = []
        carried = self.carried
        for place, times in standing_for(left):
            expected, shapes = _ahead(costs, place + 1), _ahead(sizes, place + 1)
            if expected is None or shapes is None:
                return None
            known = iter(shapes)
            carried = [t and replace(t, dims=tuple(next(known))) for t in carried]
            one = self._walked(self.done + place, carried)
            if one is None or one.costs != expected:
                return None
            found.append((one, times))
            carried = list(one.after)
        return found


def _ahead(tables: Sequence[list[list[int]] | None], ahead: int) -> list[list[int]] | None:
    """The table of a later pass, each number as it goes on; None where one does not."""
    known = [table for table in tables if table is not None]
    if len(known) < len(tables) or len({tuple(map(len, table)) for table in known}) > 1:
        return None
    answer: list[list[int]] = []
    for lines in zip(*known, strict=True):
        line = [value_ahead(series, ahead) for series in zip(*lines, strict=True)]
        whole = [number for number in line if number is not None]
        if len(whole) < len(line):
            return None
        answer.append(whole)
    return answer


def _numbers(row: Row) -> list[int]:
    """All that a row costs, as often as it is run."""
    if row.work is None:
        return [row.repeats * row.call.read_bytes, row.repeats * row.call.written_bytes]
    cost = row.work.cost(row.call)
    each = (cost.macs, cost.other_flops, cost.transcendentals, cost.read_bytes, cost.written_bytes)
    return [row.repeats * number for number in each]


def _unknown_in(rows: list[Row]) -> int:
    return sum(not t.is_known for row in rows for t in row.call.outputs)


def _number(value: int) -> Tensor:
    return from_array("", np.asarray(value, np.int64))


def _forget_changed(carried: list[Tensor | None], after: list[Tensor]) -> bool:
    """Drop values that one pass changes; True if there were any, and the pass must be repeated."""
    changed = False
    for place, (a, b) in enumerate(zip(carried, after, strict=False)):
        if a is None or a.value is None:
            continue
        if b.value is None or not np.array_equal(a.value, b.value):
            carried[place] = replace(a, value=None)
            changed = True
    return changed


def _same_size(a: Tensor | None, b: Tensor) -> bool:
    """Equal shapes, or sequences of equal length."""
    if a is None or (a.items is None) != (b.items is None):
        return False
    if a.items is not None and b.items is not None:
        return len(a.items) == len(b.items)
    return a.dims == b.dims
