"""The way in: an ONNX file to what one step of it costs, in the same form as a PyTorch model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeline.costs.work import MalformedError, Shape
from ridgeline.count.fused import fused_step
from ridgeline.count.records import CAUSAL, FusedBytes, Memory, ModuleCall, OpCost
from ridgeline.count.result import CountResult
from ridgeline.errors import MissingSizeError, RidgelineError
from ridgeline.onnx.dims import bind_dims, check_sizes, quote_name, real_inputs
from ridgeline.onnx.graph import Results, Runner, Scope, Walk, walk_model
from ridgeline.onnx.infer import from_array, make_tensor
from ridgeline.onnx.load import load
from ridgeline.onnx.node import BOOL, INT64, NodeCall, Tensor, new_ident, unknown_tensor
from ridgeline.onnx.node_cost import NodeCost, Stored, find_stored, op_cost, unknown_notes
from ridgeline.onnx.training import (
    NO_GRADIENT_NOTE,
    NOTE,
    OPTIMIZERS,
    find_gradients,
    update_weights,
)
from ridgeline.plain import plain_line
from ridgeline.records import MODES
from ridgeline.settings import one_of

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto, ValueInfoProto

VIEW = "view"


def count_onnx(
    path: Path | str,
    *,
    batch_size: int | None = None,
    dims: Mapping[str, int] | None = None,
    mode: str = "infer",
    optimizer: str = "sgd",
    causal: str = "full",
    values: Mapping[str, Any] | None = None,
) -> CountResult:
    """Count an ONNX file. Weights above 64 KiB are not read.

    `dims` are sizes for its open dimensions, trip counts of its loops, and single whole numbers
    among its inputs; `values` are arrays for inputs that shapes depend on.
    """
    one_of("mode", mode, MODES)
    one_of("causal", causal, CAUSAL)
    if mode == "train" and optimizer not in OPTIMIZERS:
        raise RidgelineError(
            f"the optimizer {optimizer} cannot be counted for an ONNX file",
            hint=f"choose {', '.join(OPTIMIZERS)}",
        )
    file, dims = Path(path), dims or {}
    model = load(file)
    check_sizes(dims, batch_size)
    bound = bind_dims(model.graph, batch_size=batch_size, dims=dims)
    walk = walk_model(model, str(file), bound, values=values or {}, runners=RUNNERS, causal=causal)
    _check_unmatched(walk)
    rows, stored = walk.rows, find_stored(walk.rows)
    inputs = [walk.inputs[value.name] for value in real_inputs(model.graph)]
    outputs = [walk.outputs.get(o.name) or unknown_tensor(o.name) for o in model.graph.output]
    costs = [op_cost(row, "forward", row.call, row.work) for row in rows]
    notes = [*bound.notes, *walk.notes, *unknown_notes(rows)]
    if mode == "train":
        gradients = find_gradients(rows, stored, walk.links)
        costs += [*gradients, *update_weights(stored, optimizer)]
        notes.append(NOTE if gradients else NO_GRADIENT_NOTE)
    memory = _step_memory(
        rows, inputs, outputs, stored, optimizer=optimizer if mode == "train" else None
    )
    return CountResult(
        model=str(file),
        batch_size=bound.batch_size,
        mode=mode,
        precision=_precision(rows, stored),
        optimizer=optimizer if mode == "train" else None,
        params=stored.param_count,
        op_costs=tuple(costs),
        modules=_modules(rows, inputs, outputs),
        module_params=_module_params(stored),
        memory=memory,
        fused=_fused(costs, outputs, memory),
        output_storages=frozenset(t.ident for t in outputs),
        traced_on="onnx",
        notes=tuple(map(plain_line, notes)),
    )


def _fused(costs: list[OpCost], outputs: list[Tensor], memory: Memory) -> FusedBytes:
    """In the update weights, gradients and state are read once; weights and state are written."""
    model = [op for op in costs if op.phase != "optimizer"]
    step = fused_step(model, sizes={}, lasting={t.ident for t in outputs})
    weights, state = memory.gradient_bytes, memory.optimizer_bytes
    return FusedBytes(
        read_bytes=step.read_bytes + 2 * weights + state,
        written_bytes=step.written_bytes + weights + state,
    )


def _check_unmatched(walk: Walk) -> None:
    """A size for a name that nothing has is a typing error."""
    strange = [name for name in walk.bound.numbers if name not in walk.loops]
    if strange:
        known = ", ".join(map(plain_line, walk.bound.sizes)) or "none"
        raise MissingSizeError(
            strange[0],
            f"no dimension or loop is called {', '.join(map(quote_name, strange))}",
            hint=f"the open dimensions of this file: {known}",
        )


def _precision(rows: list[NodeCost], stored: Stored) -> str:
    """Of the products, else of the parameters: what the file computes in."""
    sizes = Counter[str]()
    for row in rows:
        if row.work is not None and row.work.macs:
            sizes[row.call.dtype_name] += row.work.macs * row.repeats
    if not sizes:
        for tensor in stored.params.values():
            sizes[tensor.dtype.name] += tensor.numel
    return max(sizes, key=lambda name: sizes[name], default="fp32")


def _modules(
    rows: list[NodeCost], inputs: list[Tensor], outputs: list[Tensor]
) -> dict[str, ModuleCall]:
    """A line for each node, and one for the model."""
    modules = {"": ModuleCall("ONNX graph", 1, _shapes(inputs), _shapes(outputs))}
    for row in rows:
        call = row.call
        if row.path in modules:
            modules[row.path].calls += row.repeats
        else:
            moving = _shapes(t for t in call.inputs if not t.is_weight)
            modules[row.path] = ModuleCall(call.op_type, row.repeats, moving, _shapes(call.outputs))
        modules[row.path].output_bytes += row.repeats * sum(t.nbytes for t in call.outputs)
    return modules


def _shapes(tensors: Iterable[Tensor]) -> tuple[Shape, ...]:
    return tuple(t.shape for t in tensors)


def _module_params(stored: Stored) -> dict[str, tuple[int, int]]:
    """Parameters under the first node that uses them, so that each counts once."""
    by_path: dict[str, tuple[int, int]] = {}
    for ident, tensor in stored.params.items():
        path = stored.used_by[ident]
        count, size = by_path.get(path, (0, 0))
        by_path[path] = (count + stored.weights_in(ident), size + tensor.nbytes)
    return by_path


# ---------------------------------------------------------------- memory


def _forward_peak(rows: list[NodeCost], results: set[str]) -> tuple[int, str]:
    """The most bytes of activations live at once, and where; a view keeps its source."""
    source: dict[int, int] = {}  # a view's ident → that of what it looks at
    last: dict[int, int] = {}  # the number of the row that uses a value last
    size: dict[int, int] = {}
    for number, row in enumerate(rows):
        for tensor in row.call.inputs:
            last[source.get(tensor.ident, tensor.ident)] = number
        for tensor in _results(row):
            if row.kind == VIEW and row.call.inputs:
                first = row.call.inputs[0].ident
                source[tensor.ident] = source.get(first, first)
            else:
                size[tensor.ident] = tensor.nbytes
                last[tensor.ident] = number
            if tensor.name in results:
                last[source.get(tensor.ident, tensor.ident)] = len(rows)
    change = Counter[int]()  # bytes freed after each row
    for ident, number in last.items():
        change[number] += size.get(ident, 0)
    live, peak, where = 0, 0, "before the first operator"
    for number, row in enumerate(rows):
        live += sum(size[t.ident] for t in row.call.outputs if t.ident in size)
        if live > peak:
            peak, where = live, f"{row.path} ({row.call.op}, forward)"
        live -= change[number]
    return peak, where


def _results(row: NodeCost) -> list[Tensor]:
    """A node's results; what a Constant gives is stored."""
    return [t for t in row.call.outputs if not t.is_weight]


def _step_memory(
    rows: list[NodeCost],
    inputs: list[Tensor],
    outputs: list[Tensor],
    stored: Stored,
    *,
    optimizer: str | None,
) -> Memory:
    """What a step needs. In training every result of forward is taken as kept: a rough estimate."""
    input_bytes, gradients, state = sum(t.nbytes for t in inputs), 0, 0
    activations = sum(t.nbytes for t in outputs)
    peak, where = _forward_peak(rows, {t.name for t in outputs})
    if optimizer is not None:
        gradients = sum(t.nbytes for t in stored.trained.values())
        state = OPTIMIZERS[optimizer].state * gradients
        results = [(row.repeats, t) for row in rows if row.kind != VIEW for t in _results(row)]
        activations = sum(times * t.nbytes for times, t in results if t.is_float)
        peak, where = gradients + state + activations, "the end of the forward pass (estimate)"
    return Memory(
        parameter_bytes=stored.param_bytes,
        buffer_bytes=stored.buffer_bytes,
        input_bytes=input_bytes,
        gradient_bytes=gradients,
        optimizer_bytes=state,
        activation_bytes=activations,
        peak_bytes=stored.param_bytes + stored.buffer_bytes + input_bytes + peak,
        peak_at=where,
    )


# ---------------------------------------------------------------- If, Loop and Scan
# Of an If the branch that is taken is counted (where data decide, the costlier one); of a loop the
# body once, at the shapes of its first iteration, times the trip count.

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


def _trip_count(walk: Walk, call: NodeCall, in_file: int | None) -> int:
    """As the user says, else as the file does; of a loop without either one the user is asked."""
    walk.loops[call.name] = call.op_type
    trips = walk.bound.numbers.get(call.name, in_file)
    if trips is None:
        walk.missing_trips.setdefault(call.name)
    return 1 if trips is None else trips


def _loop_trips(walk: Walk, call: NodeCall) -> int:
    """By the limit; a condition that data decide is taken to hold until then."""
    limit, condition = call.get(0), call.get(1)
    if condition is not None and condition.first_value == 0:
        return _trip_count(walk, call, 0)
    most = limit.first_value if limit is not None else None
    if most is None or (condition is not None and most >= MOST_TRIPS):
        return _trip_count(walk, call, None)
    trips = _trip_count(walk, call, max(int(most), 0))
    if condition is not None and call.name not in walk.bound.numbers:
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
    walk.link(first, states)
    walk.link(after, states)
    if trips == 1:
        return after
    finals = [replace(t, value=None, ident=new_ident()) for t in after]
    walk.link(after, finals)
    if any(_changes_shape(a, b) for a, b in zip(first, after, strict=False)):
        _note_first_iteration(walk, call)
    return finals


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


RUNNERS: Mapping[str, Runner] = {
    "onnx::If": _run_if, "onnx::Loop": _run_loop, "onnx::Scan": _run_scan
}  # fmt: skip
