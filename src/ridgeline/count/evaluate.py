"""From what was traced to what it costs: formulas applied, phases named."""

from __future__ import annotations

from collections.abc import Iterator

from ridgeline.costs.work import Phased, Work
from ridgeline.count.call import OpCall, dtype_name
from ridgeline.count.result import OpCost
from ridgeline.count.step import Traced
from ridgeline.count.trace import Row
from ridgeline.records import RECOMPUTE, Cost

PRODUCT_KINDS = ("matmul", "conv", "attention")


def op_costs(traced: Traced, *, precision: str, causal: str) -> tuple[OpCost, ...]:
    """Every traced call with its cost, one for each phase it serves."""
    return tuple(
        cost
        for index, row in enumerate(traced.rows)
        for cost in _costs(index, row, traced.phases, precision, causal)
    )


def _costs(
    index: int, row: Row, phases: dict[int, str], precision: str, causal: str
) -> Iterator[OpCost]:
    signature = row.operator.signature
    call = OpCall(signature, tuple(row.args), row.kwargs, row.outputs, causal=causal)
    entry = row.operator.entry
    kind = entry.kind if entry is not None else "unknown"
    work = _as_work(entry.function(call)) if entry is not None else None
    phase = phases.get(index, "input-grad") if row.stage == "backward" else row.stage
    parts = work if isinstance(work, dict) else {phase: work}
    is_recomputed = row.stage == RECOMPUTE
    for part_phase, part in parts.items():
        yield OpCost(
            path=row.path,
            op=signature.name,
            kind=kind,
            phase=RECOMPUTE if is_recomputed else part_phase,
            dtype=_dtype(call, kind, precision),
            cost=part.cost(call) if part is not None else _bytes_only(call),
            work=part,
            call=call,
            is_recomputed=is_recomputed,
        )


def _as_work(answer: Work | Phased | Cost) -> Work | Phased:
    """Formulas of users may answer with a whole Cost."""
    if not isinstance(answer, Cost):
        return answer
    return Work(
        macs=answer.macs,
        other_flops=answer.other_flops,
        transcendentals=answer.transcendentals,
        read_bytes=answer.read_bytes,
        written_bytes=answer.written_bytes,
    )


def _bytes_only(call: OpCall) -> Cost:
    """What can be said of an operator without a formula."""
    return Cost(read_bytes=call.read_bytes, written_bytes=call.written_bytes)


def _dtype(call: OpCall, kind: str, precision: str) -> str:
    name = product_dtype(call)
    return "tf32" if precision == "tf32" and kind in PRODUCT_KINDS and name == "fp32" else name


def product_dtype(call: OpCall) -> str:
    """The precision an operator computes in: that of its widest floating-point operand."""
    floats = [t.dtype for t in (*call.inputs, *call.outputs) if t.is_float]
    if not floats:
        tensors = (*call.outputs, *call.inputs)
        return dtype_name(tensors[0].dtype) if tensors else ""
    return dtype_name(max(floats, key=lambda dtype: dtype.itemsize))
