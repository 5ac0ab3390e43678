"""If, Loop and Scan: graphs inside a node.

Of an If the branch that is taken is counted (where data decide, the costlier one); of a loop the
body once, at the shapes of its first iteration, times the trip count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from ridgeline.costs.work import MalformedError
from ridgeline.errors import RidgelineError
from ridgeline.onnx.graph import Results, Runner, Walk
from ridgeline.onnx.infer import from_array, make_tensor
from ridgeline.onnx.node import BOOL, INT64, NodeCall, Tensor, new_ident, unknown_tensor
from ridgeline.onnx.node_cost import NodeCost
from ridgeline.onnx.scope import Scope

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto, ValueInfoProto

MOST_TRIPS = 1 << 40  # with a condition more is "until it is false"

# ---------------------------------------------------------------- If


def _run_if(walk: Walk, call: NodeCall, node: NodeProto, scope: Scope, path: str) -> Results:
    """The branch that is known to be taken, else the one that costs more."""
    names = ("then_branch", "else_branch")
    condition = call.get(0)
    taken = condition.first_value if condition is not None else None
    if taken is not None:
        names = (names[0] if taken else names[1],) * 2
    both = [walk.walk_body(_body(call, name), (), scope, path) for name in dict.fromkeys(names)]
    chosen = max(range(len(both)), key=lambda number: (_total_cost(both[number][1]), -number))
    if taken is None:
        name = names[chosen].replace("_", " ")
        walk.note(f"If {call.name!r} is decided by data: its {name}, the costlier one, is counted")
    results, rows = both[chosen]
    walk.rows += rows
    return results


def _body(call: NodeCall, name: str) -> GraphProto:
    graph = call.attr(name)
    if graph is None or not hasattr(graph, "node"):
        raise RidgelineError(
            f"{call.op_type} {call.name!r} has no {name}",
            hint="the file is broken; `onnx.checker.check_model` says more",
        )
    return graph  # type: ignore[no-any-return]  # attributes are of any type


def _total_cost(rows: list[NodeCost]) -> tuple[int, int]:
    costs = [(row.work.cost(row.call), row.repeats) for row in rows if row.work is not None]
    flops = sum(cost.flops * repeats for cost, repeats in costs)
    return flops, sum(cost.moved_bytes * repeats for cost, repeats in costs)


# ---------------------------------------------------------------- Loop and Scan


def _trip_count(walk: Walk, call: NodeCall, in_file: int | None, *, is_limit: bool = False) -> int:
    """As the file says, or the user; another number for the same loop is an error.

    Inside of functions and other loops the same node may run several times: the file goes first.
    """
    walk.loops[call.name] = call.op_type
    number = walk.bound.numbers.get(call.name)
    if in_file is None:
        if number is None:
            walk.missing_trips.setdefault(call.name)
        return 1 if number is None else number
    if number is None or number == in_file or walk.limits.is_nested:
        return in_file
    if is_limit and number < in_file:
        return number
    raise RidgelineError(
        f"the trip count of {call.op_type} {call.name!r} is {'at most ' * is_limit}{in_file} in the"
        f" file, not {number}",
        hint="leave --dim out, or export the model with a dynamic trip count",
    )


def _loop_trips(walk: Walk, call: NodeCall) -> int:
    """By the limit; a condition that data decide is taken to hold until then."""
    limit, condition = call.get(0), call.get(1)
    if condition is not None and condition.first_value == 0:
        return _trip_count(walk, call, 0)
    most = limit.first_value if limit is not None else None
    if most is None or (condition is not None and most >= MOST_TRIPS):
        return _trip_count(walk, call, None)
    can_stop = bool(_body(call, "body").output) and condition is not None
    trips = _trip_count(walk, call, max(int(most), 0), is_limit=can_stop)
    if can_stop and call.name not in walk.bound.numbers:
        walk.note(f"Loop {call.name!r} is taken to run to its limit of {trips}")
    return trips


def _run_loop(walk: Walk, call: NodeCall, node: NodeProto, scope: Scope, path: str) -> Results:
    """The iteration number, the condition and the states in; condition, states and stacks out."""
    body, trips, first = _body(call, "body"), _loop_trips(walk, call), list(call.operands[2:])
    states = _initial_states(first, body.input[2:], body.output[1:], keep_values=trips == 1)
    number, condition = make_tensor("", INT64, ()), make_tensor("", BOOL, ())
    notes = dict(walk.notes)
    outputs, rows = walk.walk_body(body, (number, condition, *states), scope, path)
    if unknown := _count_unknown(rows):  # shapes may depend on values: those of the first iteration
        number = from_array("", np.asarray(0, np.int64))
        known = [s and a and replace(s, value=a.value) for s, a in zip(states, first, strict=True)]
        again = walk.walk_body(body, (number, condition, *known), scope, path)
        if _count_unknown(again[1]) < unknown:
            outputs, rows = again
            _note_first_iteration(walk, call)
    after, parts = outputs[1 : 1 + len(first)], outputs[1 + len(first) :]
    stacks = [_stack(t, trips, 0) for t in parts[: max(len(node.output) - len(first), 0)]]
    if not trips:
        walk.notes = notes
        return [*first, *stacks]
    walk.link(parts, stacks)
    return [*_repeat(walk, call, rows, trips, first, states, after), *stacks]


def _initial_states(
    first: list[Tensor | None],
    formal: Sequence[ValueInfoProto],
    after: Sequence[ValueInfoProto],
    *,
    keep_values: bool = False,
) -> list[Tensor | None]:
    """The states in the body: new values, but for those that no iteration changes, and weights."""
    same = {i.name for i, o in zip(formal, after, strict=False) if i.name == o.name}
    states: list[Tensor | None] = []
    for tensor, name in zip_longest(first, (i.name for i in formal[: len(first)])):
        if tensor is None or name in same:
            states.append(tensor)
            continue
        ident = tensor.ident if tensor.is_weight else new_ident()
        value = tensor.value if keep_values else None
        states.append(replace(tensor, ident=ident, value=value))
    return states


def _repeat(
    walk: Walk,
    call: NodeCall,
    rows: list[NodeCost],
    trips: int,
    first: list[Tensor | None],
    states: list[Tensor | None],
    after: list[Tensor],
) -> list[Tensor]:
    """Add a body's rows as often as it runs; the states after the last iteration."""
    for row in rows:
        row.repeats *= trips
    walk.rows += rows
    finals = [_final_state(a, b, trips) for a, b in zip(first, after, strict=False)]
    walk.link(first, states)
    walk.link(after, states)
    walk.link(after, finals)
    if trips > 1 and any(_changes_shape(a, b) for a, b in zip(first, after, strict=False)):
        _note_first_iteration(walk, call)
    return finals


def _final_state(before: Tensor | None, after: Tensor, trips: int) -> Tensor:
    """A side that grows is taken to grow as much in each iteration as in the first."""
    if trips == 1:
        return after
    final = replace(after, value=None, ident=new_ident())
    if before is None or not _changes_shape(before, after):
        return final
    if before.dims is None or after.dims is None or len(before.dims) != len(after.dims):
        return unknown_tensor(after.name)
    sides = zip(before.dims, after.dims, strict=True)
    dims = tuple(a + trips * (b - a) for a, b in sides)
    return replace(make_tensor(after.name, after.elem, dims), ident=final.ident)


def _changes_shape(a: Tensor | None, b: Tensor) -> bool:
    """Another shape, or a sequence of another length."""
    if a is None or (a.items is None) != (b.items is None):
        return True
    if a.items is not None and b.items is not None:
        return len(a.items) != len(b.items)
    return a.dims != b.dims


def _note_first_iteration(walk: Walk, call: NodeCall) -> None:
    walk.note(
        f"the shapes in {call.op_type} {call.name!r} change from iteration to iteration: all are"
        " counted with those of the first"
    )


def _count_unknown(rows: list[NodeCost]) -> int:
    return sum(not t.is_known for row in rows for t in row.call.outputs)


def _stack(t: Tensor, count: int, axis: int) -> Tensor:
    if t.dims is None:
        return unknown_tensor(t.name)
    axis %= len(t.dims) + 1
    return make_tensor(t.name, t.elem, (*t.dims[:axis], count, *t.dims[axis:]))


def _run_scan(walk: Walk, call: NodeCall, node: NodeProto, scope: Scope, path: str) -> Results:
    """The body for each slice of the scanned operands."""
    if call.version < 9:
        raise MalformedError("a Scan of opset 8 has a batch dimension")
    body, operands = _body(call, "body"), call.operands
    count = min(max(call.int_attr("num_scan_inputs", 0), 0), len(operands))
    first, sliced = list(operands[: len(operands) - count]), operands[len(operands) - count :]
    axes = call.int_list("scan_input_axes") or [0] * count
    states = _initial_states(first, body.input, body.output)
    slices = [_without(t, axis) for t, axis in zip(sliced, axes, strict=False)]
    trips = _trip_count(walk, call, _side(sliced[0], axes[0]) if sliced and axes else None)
    outputs, rows = walk.walk_body(body, (*states, *slices), scope, path)
    after, parts = outputs[: len(first)], outputs[len(first) :]
    finals = _repeat(walk, call, rows, trips, first, states, after)
    out_axes = [*call.int_list("scan_output_axes"), *[0] * len(parts)]
    stacks = [_stack(t, trips, axis) for t, axis in zip(parts, out_axes, strict=False)]
    walk.link(sliced, slices)
    walk.link(parts, stacks)
    return [*finals, *stacks]


def _side(t: Tensor | None, axis: int) -> int | None:
    if t is None or t.dims is None or not -len(t.dims) <= axis < len(t.dims):
        return None
    return t.dims[axis]


def _without(t: Tensor | None, axis: int) -> Tensor | None:
    if t is None or not t.dims:
        return t
    axis %= len(t.dims)
    return make_tensor(t.name, t.elem, (*t.dims[:axis], *t.dims[axis + 1 :]))


RUNNERS: Mapping[tuple[str, str], Runner] = {
    ("", "If"): _run_if,
    ("", "Loop"): _run_loop,
    ("", "Scan"): _run_scan,
}
"""By domain and operator."""
