"""If, Loop, Scan and SequenceMap: graphs inside the graph, taken or repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ridgeline.count.onnx.dims import option_for
from ridgeline.count.onnx.dtypes import BOOL
from ridgeline.count.onnx.infer import from_array, make
from ridgeline.count.onnx.node import NodeCall, Tensor, unknown_tensor
from ridgeline.count.onnx.passes import Passes, add_states, as_state, pairs
from ridgeline.count.onnx.results import results_of
from ridgeline.count.onnx.row import Row, row_of
from ridgeline.count.onnx.scope import Scope
from ridgeline.count.onnx.sequences import sequence
from ridgeline.errors import RidgelineError

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

    from ridgeline.count.onnx.walk import Walk

MOST_TRIPS = 1 << 40  # more is "until the condition is false"
MOST_UNROLLED = 256  # passes that are walked one by one
Results = Sequence[Tensor | None]


def is_control(call: NodeCall) -> bool:
    """Whether a node is one that this module walks."""
    return (call.domain, call.op_type) in RUNNERS


def run(walk: Walk, call: NodeCall, node: NodeProto, scope: Scope, path: str) -> Results:
    """Walk the graphs inside; their rows are added, their results are the node's."""
    return RUNNERS[call.domain, call.op_type](walk, call, node, scope, path)


def missing_passes(loops: Iterable[str]) -> RidgelineError:
    """The error that asks for them, all at once."""
    names = list(loops)
    options = " and ".join(map(option_for, names))
    return RidgelineError(
        f"the file does not tell how often these run: {', '.join(map(repr, names))}",
        hint=f"give {options}",
    )


def _body(call: NodeCall, name: str) -> GraphProto:
    graph = call.attr(name)
    if graph is None or not hasattr(graph, "node"):
        raise RidgelineError(
            f"{call.op_type} {call.name!r} has no {name}",
            hint="the file is broken; `onnx.checker.check_model` says more",
        )
    return graph  # type: ignore[no-any-return]


def _walked(
    walk: Walk, graph: GraphProto, inputs: Iterable[Tensor | None], scope: Scope, path: str
) -> tuple[list[Tensor], list[Row]]:
    """Results and rows of one pass; the rows are not yet in the walk's list."""
    inner = Scope(scope)
    for formal, actual in zip(graph.input, inputs, strict=False):
        given = replace(actual, name=formal.name) if actual else unknown_tensor(formal.name)
        inner.values[formal.name] = given
    before, walk.rows = walk.rows, []
    results = walk.graph(graph, inner, prefix=path, declared={})
    rows, walk.rows = walk.rows, before
    return [replace(t, is_weight=False) for t in results], rows


def _add(walk: Walk, rows: list[Row], passes: Passes | None = None) -> None:
    """Put a body's rows into the walk's list: once, or as often as it is run."""
    if passes is not None:
        for row in rows:
            row.repeats *= passes.trips * passes.copies
            row.around = (passes, *row.around)
    walk.rows += rows


# ---------------------------------------------------------------- If


def _branch(walk: Walk, call: NodeCall, node: NodeProto, scope: Scope, path: str) -> Results:
    """The branch that is known to be taken, else the one that costs more."""
    names = ("then_branch", "else_branch")
    condition = call.get(0)
    if condition is not None and condition.value is not None and condition.value.size == 1:
        name = names[0] if bool(condition.value.ravel()[0]) else names[1]
        results, rows = _walked(walk, _body(call, name), (), scope, path)
        _add(walk, rows)
        return results
    both = [_walked(walk, _body(call, name), (), scope, path) for name in names]
    costs = [_weight(rows) for _, rows in both]
    chosen = 0 if costs[0] >= costs[1] else 1
    walk.note(
        f"If {call.name!r} is decided by data: its {names[chosen].replace('_', ' ')},"
        " the costlier one, is counted"
    )
    results, rows = both[chosen]
    _add(walk, rows)
    return results


def _weight(rows: list[Row]) -> tuple[int, int]:
    flops = moved = 0
    for row in rows:
        if row.work is not None:
            cost = row.work.cost(row.call)
            flops += cost.flops * row.repeats
            moved += cost.moved_bytes * row.repeats
    return flops, moved


# ---------------------------------------------------------------- Loop


def _trips(walk: Walk, call: NodeCall) -> int:
    """How often a loop runs: as given, or as the file says; else it is asked for."""
    if call.name in walk.bound.unused:
        return walk.bound.unused[call.name]
    limit, condition = call.get(0), call.get(1)
    if condition is not None and condition.value is not None and not condition.value.any():
        return 0
    if limit is not None and limit.value is not None and limit.value.size == 1:
        trips = int(limit.value.ravel()[0])
        if trips < MOST_TRIPS:
            if condition is not None:
                walk.note(f"Loop {call.name!r} is taken to run to its limit of {trips}")
            return max(trips, 0)
    walk.ask_for(call.name)
    return 1


def _loop(walk: Walk, call: NodeCall, node: NodeProto, scope: Scope, path: str) -> Results:
    """The body, so many times. Where shapes grow from one pass to the next, each pass is walked."""
    body, trips = _body(call, "body"), _trips(walk, call)
    carried = list(call.operands[2:])
    kept = len(carried)
    if not trips:
        return [*carried, *(unknown_tensor("") for _ in node.output[kept:])]
    condition = make("", BOOL, ())
    outputs: list[Tensor] = []
    parts: list[tuple[Passes, list[Tensor]]] = []
    done = 0
    while done < trips:
        states = [as_state(t) for t in carried] if body.node else carried
        inputs = (_number(done), condition, *states)
        outputs, rows = _walked(walk, body, inputs, scope, path)
        after = outputs[1 : 1 + kept]
        if _forget_changed(carried, after):
            continue
        steady = all(_same_size(a, b) for a, b in zip(carried, after, strict=False))
        if steady and trips - done > 1:  # the last pass may cut another piece than this one
            _, last = _walked(walk, body, (_number(trips - 1), *inputs[1:]), scope, path)
            steady = _weight(rows) == _weight(last)
        times = trips - done if steady or done >= MOST_UNROLLED else 1
        if not steady and done >= MOST_UNROLLED:
            walk.note(
                f"the shapes in {call.op_type} {call.name!r} change with every pass:"
                f" from pass {MOST_UNROLLED} on they are taken to stay"
            )
        passes = Passes(trips=times)
        add_states(passes, carried, states, after)
        _add(walk, rows, passes)
        parts.append((passes, outputs[1 + kept :]))
        carried, done = list(after), done + times
    scanned = [_stacked(t, trips, 0) for t in outputs[1 + kept :]]
    for passes, made in parts:
        passes.stacked = pairs(made, scanned)
    return [*carried, *scanned]


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


def _stacked(t: Tensor, count: int, axis: int) -> Tensor:
    if t.dims is None:
        return unknown_tensor(t.name)
    axis %= len(t.dims) + 1
    return make(t.name, t.elem, (*t.dims[:axis], count, *t.dims[axis:]))


# ---------------------------------------------------------------- Scan


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scanned:
    """A Scan's operands by what becomes of them; version 8 has a batch dimension before all."""

    states: list[Tensor | None]
    sliced: list[Tensor | None]
    axes: list[int]  # along which each is sliced
    is_batched: bool

    @classmethod
    def of(cls, call: NodeCall) -> _Scanned:
        is_batched = call.version < 9
        operands = list(call.operands[1:] if is_batched else call.operands)
        count = min(max(call.whole("num_scan_inputs", 0), 0), len(operands))
        axes = call.wholes("scan_input_axes") or [0] * count
        return cls(
            states=operands[: len(operands) - count],
            sliced=operands[len(operands) - count :],
            axes=[1] * count if is_batched else axes,
            is_batched=is_batched,
        )

    @property
    def length(self) -> int | None:
        """How many slices there are; None where that is not known."""
        return _length(self.sliced[0], self.axes[0]) if self.sliced and self.axes else None

    @property
    def batch(self) -> int:
        operands = [*self.states, *self.sliced]
        return (_length(operands[0], 0) if self.is_batched and operands else 1) or 1

    def states_inside(self) -> list[Tensor | None]:
        states = [_without(t, (0,)) if self.is_batched else t for t in self.states]
        return [as_state(replace(t, value=None)) if t is not None else None for t in states]

    def slices(self) -> list[Tensor | None]:
        pairs_of = zip(self.sliced, self.axes, strict=False)
        return [_without(t, (0, 1) if self.is_batched else (axis,)) for t, axis in pairs_of]


def _scan(walk: Walk, call: NodeCall, node: NodeProto, scope: Scope, path: str) -> Results:
    """The body for each slice of the scanned operands."""
    body, scanned = _body(call, "body"), _Scanned.of(call)
    trips = _scan_trips(walk, call, scanned)
    states, slices = scanned.states_inside(), scanned.slices()
    outputs, rows = _walked(walk, body, (*states, *slices), scope, path)
    passes = Passes(trips=trips, copies=scanned.batch, sliced=pairs(scanned.sliced, slices))
    add_states(passes, scanned.states, states, outputs)
    _add(walk, rows, passes)
    results, kept = _scan_results(call, scanned, outputs, trips), len(states)
    passes.finals = pairs(outputs[:kept], results[:kept])
    passes.stacked = pairs(outputs[kept:], results[kept:])
    return results


def _scan_trips(walk: Walk, call: NodeCall, scanned: _Scanned) -> int:
    """As many as there are slices, else as given; else they are asked for."""
    trips = scanned.length
    if trips is None:
        trips = walk.bound.unused.get(call.name)
    if trips is None:
        walk.ask_for(call.name)
        return 1
    return trips


def _scan_results(
    call: NodeCall, scanned: _Scanned, outputs: list[Tensor], trips: int
) -> list[Tensor]:
    """The last states, and what every pass made, stacked; with the batch before them."""
    kept = len(scanned.states)
    axes = [*call.wholes("scan_output_axes"), *[0] * len(outputs)]
    made = (_stacked(t, trips, axis) for t, axis in zip(outputs[kept:], axes, strict=False))
    results = [*outputs[:kept], *made]
    return [_stacked(t, scanned.batch, 0) for t in results] if scanned.is_batched else results


def _length(t: Tensor | None, axis: int) -> int | None:
    if t is None or t.dims is None or not -len(t.dims) <= axis < len(t.dims):
        return None
    return t.dims[axis]


def _without(t: Tensor | None, axes: tuple[int, ...]) -> Tensor | None:
    if t is None or t.dims is None:
        return t
    gone = {axis % max(len(t.dims), 1) for axis in axes}
    return make(t.name, t.elem, tuple(d for n, d in enumerate(t.dims) if n not in gone))


# ---------------------------------------------------------------- SequenceMap, FlexAttention


def _map(walk: Walk, call: NodeCall, node: NodeProto, scope: Scope, path: str) -> Results:
    """The body for each item; items may differ in shape, so each is walked."""
    body, first = _body(call, "body"), call.get(0)
    items = first.items if first is not None else None
    if items is None:
        count = walk.bound.unused.get(call.name)
        if count is None:
            walk.ask_for(call.name)
            return [unknown_tensor(name) for name in node.output]
        each = first.each if first is not None else None
        items = (each or unknown_tensor("item"),) * count
    lists: list[list[Tensor]] = [[] for _ in node.output]
    for place, item in enumerate(items):
        inputs = [item, *(_item(t, place) for t in call.operands[1:])]
        outputs, rows = _walked(walk, body, inputs, scope, path)
        _add(walk, rows)
        for made, output in zip(lists, outputs, strict=False):
            made.append(output)
    return [sequence(name, tuple(made)) for name, made in zip(node.output, lists, strict=True)]


def _item(t: Tensor | None, place: int) -> Tensor | None:
    """An item of a sequence; what is none is the same for all."""
    if t is None or t.items is None or place >= len(t.items):
        return t
    return t.items[place]


def _flex(walk: Walk, call: NodeCall, node: NodeProto, scope: Scope, path: str) -> Results:
    """Attention, and the graphs that change its scores and probabilities."""
    results = results_of(walk, call, node, {})
    walk.rows.append(row_of(call, path))
    q, k = call.get(0), call.get(1)
    if q is None or k is None or len(q.shape) != 4 or len(k.shape) != 4:
        return results
    scores = make("scores", q.elem, (*q.shape[:3], k.shape[2]))
    for name in ("score_mod", "prob_mod"):
        if call.attr(name) is not None:
            _, rows = _walked(walk, _body(call, name), (scores,), scope, f"{path}.{name}")
            _add(walk, rows)
    return results


RUNNERS: dict[tuple[str, str], Callable[[Walk, NodeCall, NodeProto, Scope, str], Results]] = {
    ("", "If"): _branch,
    ("", "Loop"): _loop,
    ("", "Scan"): _scan,
    ("", "SequenceMap"): _map,
    ("ai.onnx.preview", "FlexAttention"): _flex,
}
"""By domain and operator; load.WITH_GRAPHS has the same names."""
