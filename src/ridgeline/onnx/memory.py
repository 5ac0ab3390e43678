"""The peak of live bytes, from the nodes in their order, and the bytes of the optimizer."""

from __future__ import annotations

from ridgeline.count.parts import FusedBytes, Memory
from ridgeline.onnx.node import Tensor
from ridgeline.onnx.node_cost import NodeCost
from ridgeline.onnx.training import state_bytes
from ridgeline.onnx.weights import Stored

VIEW = "view"


def forward_peak(rows: list[NodeCost], results: set[str]) -> tuple[int, str]:
    """The most bytes of activations alive at once, and where; a view keeps its source alive."""
    source: dict[int, int] = {}  # a view's ident → that of what it looks at
    last: dict[int, int] = {}
    size: dict[int, int] = {}
    for place, row in enumerate(rows):
        for tensor in row.call.inputs:
            last[source.get(tensor.ident, tensor.ident)] = place
        for tensor in _results(row):
            if row.kind == VIEW and row.call.inputs:
                first = row.call.inputs[0].ident
                source[tensor.ident] = source.get(first, first)
            else:
                size[tensor.ident] = tensor.nbytes
                last[tensor.ident] = place
            if tensor.name in results:
                last[source.get(tensor.ident, tensor.ident)] = len(rows)
    ends: dict[int, list[int]] = {}
    for ident, place in last.items():
        ends.setdefault(place, []).append(ident)
    return _sweep(rows, size, ends)


def _results(row: NodeCost) -> list[Tensor]:
    """A node's results; what a Constant gives is stored."""
    return [t for t in row.call.outputs if not t.is_weight]


def _sweep(
    rows: list[NodeCost], size: dict[int, int], ends: dict[int, list[int]]
) -> tuple[int, str]:
    live = peak = 0
    where = "before the first operator"
    for place, row in enumerate(rows):
        live += sum(size[t.ident] for t in row.call.outputs if t.ident in size)
        if live > peak:
            peak, where = live, f"{row.path} ({row.call.op}, forward)"
        live -= sum(size.get(ident, 0) for ident in ends.get(place, ()))
    return peak, where


def step_memory(
    rows: list[NodeCost],
    inputs: list[Tensor],
    outputs: list[Tensor],
    stored: Stored,
    *,
    optimizer: str | None,
) -> Memory:
    """What a step needs. In training every result of forward is taken as kept: a rough estimate."""
    input_bytes = sum(t.nbytes for t in inputs)
    fixed = stored.param_bytes + stored.buffer_bytes + input_bytes
    peak, where = forward_peak(rows, {t.name for t in outputs})
    if optimizer is None:
        return Memory(
            parameter_bytes=stored.param_bytes,
            buffer_bytes=stored.buffer_bytes,
            input_bytes=input_bytes,
            gradient_bytes=0,
            optimizer_bytes=0,
            activation_bytes=sum(t.nbytes for t in outputs),
            peak_bytes=fixed + peak,
            peak_at=where,
        )
    gradients = sum(t.nbytes for t in stored.trained.values())
    state = state_bytes(optimizer, stored)
    results = [(row.repeats, t) for row in rows if row.kind != VIEW for t in _results(row)]
    activations = sum(times * t.nbytes for times, t in results if t.is_float)
    return Memory(
        parameter_bytes=stored.param_bytes,
        buffer_bytes=stored.buffer_bytes,
        input_bytes=input_bytes,
        gradient_bytes=gradients,
        optimizer_bytes=state,
        activation_bytes=activations,
        peak_bytes=fixed + gradients + state + activations,
        peak_at="the end of the forward pass (estimate)",
    )


def fused_optimizer(found: Memory) -> FusedBytes:
    """Weights, gradients and state are read once; weights and state are written."""
    weights, state = found.gradient_bytes, found.optimizer_bytes
    return FusedBytes(read_bytes=2 * weights + state, written_bytes=weights + state)
