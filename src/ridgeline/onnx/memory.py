"""The peak of live bytes, and the least bytes that must move, from the nodes in their order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ridgeline.count.parts import Memory
from ridgeline.count.result import IdealBytes
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


def _reads(row: NodeCost) -> Iterator[tuple[Tensor, int]]:
    """Operands, with the bytes read of each; the largest is the table of which some are not."""
    left = row.work.read_bytes if row.work is not None and row.kind != VIEW else None
    if left is None:
        yield from ((tensor, tensor.nbytes) for tensor in row.call.inputs)
        return
    for tensor in sorted(row.call.inputs, key=lambda tensor: tensor.nbytes):
        read = min(tensor.nbytes, left)
        left -= read
        yield tensor, read


def ideal_bytes(
    rows: Iterable[NodeCost],
    outputs: list[Tensor],
    inputs: list[Tensor],
    memory: Memory,
    *,
    links: Iterable[tuple[int, int]],
    mode: str,
) -> IdealBytes:
    """Each tensor moved once; a table of which only some rows are looked up counts with these."""
    own = {t.ident: t.nbytes for t in inputs}
    seen = {a: own[a] for a, _ in links if a in own}  # those that loops take
    for row in rows:
        for tensor, read in _reads(row):
            if tensor.is_weight or tensor.ident in own:
                seen[tensor.ident] = min(tensor.nbytes, seen.get(tensor.ident, 0) + read)
    touched = sum(seen.values())
    if mode == "infer":
        return IdealBytes(read_bytes=touched, written_bytes=sum(t.nbytes for t in outputs))
    gradients, state = memory.gradient_bytes, memory.optimizer_bytes
    activations = memory.activation_bytes
    return IdealBytes(
        read_bytes=2 * touched - memory.input_bytes + activations + gradients + state,
        written_bytes=activations + gradients + gradients + state,
    )
