"""The way in: an ONNX file to what one step of it costs, in the same form as a PyTorch model."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ridgeline.count.fused import fused_step
from ridgeline.count.parts import FusedBytes, Memory, ModuleCall, Work
from ridgeline.count.result import CountResult, OpCost
from ridgeline.count.settings import CAUSAL, one_of
from ridgeline.errors import RidgelineError
from ridgeline.onnx import alive
from ridgeline.onnx.asking import quoted, shown
from ridgeline.onnx.assumed import assumed_notes
from ridgeline.onnx.blocked import mark_channels, padding_note
from ridgeline.onnx.bounds import KEEP_SOME
from ridgeline.onnx.declared import real_inputs
from ridgeline.onnx.dims import MOST_NAMED, bind, check_given
from ridgeline.onnx.load import load
from ridgeline.onnx.node import NodeCall, Tensor, unknown_tensor
from ridgeline.onnx.opsets import opset_notes, use_plain_domains
from ridgeline.onnx.optimizers import check_optimizer, optimizer_work
from ridgeline.onnx.ranks import with_ranks
from ridgeline.onnx.row import Row
from ridgeline.onnx.training import NOTE, NOTHING, backward
from ridgeline.onnx.uncounted import unknown_notes
from ridgeline.onnx.walk import Walk, walk_model
from ridgeline.onnx.weights import Stored, stored_tensors
from ridgeline.plain import plain_line
from ridgeline.records import MODES, Cost

LARGEST_COUNT = (1 << 256) - 1  # of one row; a number that still is a float


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

    `dims` are sizes for its open dimensions, passes of its loops, and single whole numbers among
    its inputs; `values` are arrays for inputs that shapes depend on.
    """
    one_of("mode", mode, MODES)
    one_of("causal", causal, CAUSAL)
    if mode == "train":
        check_optimizer(optimizer)
    with _no_collector():
        return _counted(Path(path), batch_size, dims or {}, values or {}, mode, optimizer, causal)


@contextmanager
def _no_collector() -> Iterator[None]:
    """Nothing here is cyclic, and looking for cycles among millions of objects takes long."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _counted(
    file: Path,
    batch_size: int | None,
    dims: Mapping[str, int],
    values: Mapping[str, Any],
    mode: str,
    optimizer: str,
    causal: str,
) -> CountResult:
    model = load(file)
    use_plain_domains(model)
    untold = mark_channels(model)
    check_given(dims, batch_size)
    dims = with_ranks(model.graph, dims)
    bound = bind(model.graph, batch_size=batch_size, dims=dims, known=values)
    walk = walk_model(model, str(file), bound, values=values, causal=causal)
    _check_used(walk)
    stored = stored_tensors(walk.rows)
    walk.rows = [row for row in walk.rows if row.is_taken]
    inputs = [walk.inputs[value.name] for value in real_inputs(model.graph)]
    outputs = [walk.outputs.get(o.name) or unknown_tensor(o.name) for o in model.graph.output]
    costs = [_forward(row) for row in walk.rows]
    notes = [
        *opset_notes(model),
        *bound.notes,
        *walk.notes,
        *unknown_notes(walk.rows, walk.inputs),
        *assumed_notes(walk.rows),
    ]
    if untold:
        notes.append(padding_note(untold))
    if mode == "train":
        gradients = _gradients(walk.rows, stored, outputs)
        costs += [*gradients, *_updates(stored, optimizer)]
        notes.append(NOTE if gradients else NOTHING)
    _check_possible(file, costs)
    memory = alive.memory(
        walk.rows, inputs, outputs, stored, optimizer=optimizer if mode == "train" else None
    )
    return CountResult(
        model=str(file),
        batch_size=bound.batch_size,
        mode=mode,
        precision=_precision(walk.rows, stored),
        optimizer=optimizer if mode == "train" else None,
        params=stored.param_count,
        op_costs=tuple(costs),
        modules=_modules(walk.rows, inputs, outputs),
        module_params=_module_params(stored),
        memory=memory,
        fused=_fused(costs, outputs, memory),
        output_storages=frozenset(t.key for t in outputs),
        traced_on="onnx",
        notes=tuple(map(plain_line, notes)),
    )


def _fused(costs: list[OpCost], outputs: list[Tensor], memory: Memory) -> FusedBytes:
    model = [op for op in costs if op.phase != "optimizer"]
    found = fused_step(model, sizes={}, lasting={t.key for t in outputs})
    update = alive.fused_optimizer(memory)
    return FusedBytes(
        read_bytes=found.read_bytes + update.read_bytes,
        written_bytes=found.written_bytes + update.written_bytes,
    )


def _check_used(walk: Walk) -> None:
    """A size that nothing asked for is a slip of the pen."""
    kept = {row.call.name for row in walk.rows if row.call.op_type in KEEP_SOME}
    names = {walk.bound.name_of(node) for node in kept | walk.loops.keys()}
    strange = [name for name in walk.bound.unused if name not in names]
    if strange:
        known = ", ".join(map(shown, [*walk.bound.sizes][:MOST_NAMED])) or "none"
        raise RidgelineError(
            f"no dimension, loop or node is called {', '.join(map(quoted, strange))}",
            hint=f"the open dimensions of this file: {known}",
        )


def _check_possible(file: Path, costs: Iterable[OpCost]) -> None:
    """Sizes and loops multiply; what has no end as a number has none as a table either."""
    for op in costs:
        if max(op.cost.flops, op.cost.moved_bytes) > LARGEST_COUNT:
            raise RidgelineError(
                f"{file}: {op.op} {op.path!r} would take more than 2^{LARGEST_COUNT.bit_length()}"
                " FLOPs or bytes",
                hint="check the sizes and the numbers of passes in the file",
            )


def _forward(row: Row) -> OpCost:
    return _cost(row, "forward", row.call, row.work)


def _cost(row: Row, phase: str, call: NodeCall, work: Work | None) -> OpCost:
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
        settings=settings_text(call),
        repeats=times,
    )


def _gradients(rows: list[Row], stored: Stored, outputs: list[Tensor]) -> list[OpCost]:
    return [_cost(g.row, g.phase, g.call, g.work) for g in backward(rows, stored, outputs)]


def _updates(stored: Stored, optimizer: str) -> Iterator[OpCost]:
    for ident, tensor in stored.trained.items():
        call = NodeCall("", optimizer, "optimizer", 0, {}, (tensor,), (tensor,))
        row = Row(stored.used_by[ident], "optimizer", call, None)
        yield _cost(row, "optimizer", call, optimizer_work(optimizer, tensor))


SHOWN = (
    "kernel_shape", "strides", "pads", "dilations", "group", "auto_pad", "axis", "axes", "perm",
    "alpha", "beta", "transA", "transB", "epsilon", "mode", "equation", "direction", "hidden_size",
    "layout", "num_heads", "kv_num_heads", "q_num_heads", "is_causal", "unidirectional", "K", "N",
    "bits", "block_size", "to", "ceil_mode", "count_include_pad", "keepdims", "approximate",
    "activation", "num_groups", "scale", "softcap", "qk_matmul_output_mode", "left_window_size",
    "right_window_size", "local_window_size", "do_rotary", "causal", "training_mode",
    "output_padding", "output_shape", "offset_group", "reduction", "onesided",
)  # fmt: skip


def settings_text(call: NodeCall) -> str:
    """The attributes that matter to the cost: `kernel_shape=3,3 strides=2,2 group=32`."""
    parts = []
    for name in SHOWN:
        if name in call.attributes:
            value = call.attr(name)
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            parts.append(f"{name}={plain_line(text)}")
    return " ".join(parts)


def _precision(rows: list[Row], stored: Stored) -> str:
    """Of the products, else of the parameters: what the file computes in."""
    sizes: dict[str, int] = {}
    for row in rows:
        if row.work is not None and row.work.macs:
            name = row.call.dtype_name
            sizes[name] = sizes.get(name, 0) + row.work.macs * row.repeats
    if not sizes:
        for tensor in stored.params.values():
            sizes[tensor.dtype.name] = sizes.get(tensor.dtype.name, 0) + tensor.numel
    return max(sizes, key=lambda name: sizes[name]) if sizes else "fp32"


def _modules(rows: list[Row], inputs: list[Tensor], outputs: list[Tensor]) -> dict[str, ModuleCall]:
    """A line for each node, and one for the model."""
    found = {
        "": ModuleCall(
            "ONNX graph",
            1,
            tuple(t.shape for t in inputs),
            tuple(t.shape for t in outputs),
        )
    }
    for row in rows:
        call = row.call
        if row.path in found:
            found[row.path].calls += row.repeats
            continue
        moving = [t for t in call.inputs if not t.is_weight]
        found[row.path] = ModuleCall(
            call.op_type,
            row.repeats,
            tuple(t.shape for t in moving),
            tuple(t.shape for t in call.outputs),
        )
    return found


def _module_params(stored: Stored) -> dict[str, tuple[int, int]]:
    """Parameters under the first node that uses them, so that each counts once."""
    found: dict[str, tuple[int, int]] = {}
    for ident, tensor in stored.params.items():
        path = stored.used_by[ident]
        count, size = found.get(path, (0, 0))
        found[path] = (count + stored.weights_in(ident), size + tensor.nbytes)
    return found
