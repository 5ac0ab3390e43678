"""The way in: an ONNX file to what one step of it costs, in the same form as a PyTorch model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ridgeline.costs.work import Shape, Work
from ridgeline.count.cost_records import FusedBytes, Memory, ModuleCall, OpCost
from ridgeline.count.fused import fused_step
from ridgeline.count.result import CountResult
from ridgeline.count.settings import CAUSAL
from ridgeline.errors import MissingSizeError, RidgelineError
from ridgeline.onnx.control import RUNNERS
from ridgeline.onnx.dims import bind_dims, check_sizes, quote_name, real_inputs
from ridgeline.onnx.graph import Walk, walk_model
from ridgeline.onnx.load import load
from ridgeline.onnx.node import NodeCall, Tensor, unknown_tensor
from ridgeline.onnx.node_cost import (
    NodeCost,
    Stored,
    find_stored,
    unknown_notes,
)
from ridgeline.onnx.scope import convert_old_opset
from ridgeline.onnx.shapes import KEEP_SOME
from ridgeline.onnx.training import NO_GRADIENT_NOTE, NOTE, OPTIMIZERS, find_gradients
from ridgeline.plain import plain_line
from ridgeline.records import MODES, Cost
from ridgeline.settings import one_of

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
    model = convert_old_opset(load(file))
    check_sizes(dims, batch_size)
    bound = bind_dims(model.graph, batch_size=batch_size, dims=dims)
    walk = walk_model(model, str(file), bound, values=values or {}, runners=RUNNERS, causal=causal)
    _check_unmatched(walk)
    rows, stored = walk.rows, find_stored(walk.rows)
    inputs = [walk.inputs[value.name] for value in real_inputs(model.graph)]
    outputs = [walk.outputs.get(o.name) or unknown_tensor(o.name) for o in model.graph.output]
    costs = [_op_cost(row, "forward", row.call, row.work) for row in rows]
    notes = [
        *bound.notes,
        *walk.notes,
        *unknown_notes(rows),
    ]
    if mode == "train":
        gradients = find_gradients(rows, stored, outputs, walk.links)
        costs += [_op_cost(g.row, g.phase, g.call, g.work) for g in gradients]
        costs += _updates(stored, optimizer)
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
    nodes = {row.call.name for row in walk.rows if row.call.op_type in KEEP_SOME}
    names = nodes | walk.loops.keys()
    strange = [name for name in walk.bound.numbers if name not in names]
    if strange:
        known = ", ".join(map(plain_line, walk.bound.sizes)) or "none"
        raise MissingSizeError(
            strange[0],
            f"no dimension, loop or node is called {', '.join(map(quote_name, strange))}",
            hint=f"the open dimensions of this file: {known}",
        )


def _op_cost(row: NodeCost, phase: str, call: NodeCall, work: Work | None) -> OpCost:
    times = row.repeats
    if work is None:
        one = Cost(read_bytes=call.read_bytes, written_bytes=call.written_bytes)
    else:
        one = work.cost(call)
    if times != 1:
        one = one * times
        if work is not None and work.terms:
            more = tuple((factor, (("times", times), *terms)) for factor, terms in work.more)
            work = replace(work, terms=(("times", times), *work.terms), more=more)
    return OpCost(
        path=row.path,
        op=call.op,
        kind=row.kind,
        phase=phase,
        dtype=call.dtype_name,
        cost=one,
        work=work,
        call=call,
        settings=attributes_text(call),
        repeats=row.repeats,
    )


def _updates(stored: Stored, optimizer: str) -> Iterator[OpCost]:
    update = OPTIMIZERS[optimizer]
    for ident, tensor in stored.trained.items():
        call = NodeCall("", optimizer, "optimizer", 0, {}, (tensor,), (tensor,))
        work = Work.per_element(
            tensor.numel,
            update.flops,
            transcendentals=update.roots * tensor.numel,
            read_bytes=update.read * tensor.nbytes,
            written_bytes=update.written * tensor.nbytes,
        )
        row = NodeCost(stored.used_by[ident], "optimizer", call, None)
        yield _op_cost(row, "optimizer", call, work)


LONGEST_ATTRIBUTE = 16  # numbers or characters


def attributes_text(call: NodeCall) -> str:
    """The attributes that are short: `kernel_shape=3,3 strides=2,2 group=32`."""
    parts = []
    for name in call.attributes:
        value = call.attr(name)
        values = value if isinstance(value, list) else [value]
        is_short = len(value if isinstance(value, list | str) else values) <= LONGEST_ATTRIBUTE
        if is_short and all(isinstance(one, int | float | str) for one in values):
            parts.append(f"{name}={plain_line(','.join(map(str, values)))}")
    return " ".join(parts)


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
