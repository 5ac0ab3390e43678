"""A node with what it must do, or why that is not known."""

from __future__ import annotations

from dataclasses import dataclass

from ridgeline.count.parts import Work
from ridgeline.onnx.blocked import NCHWC, without_padding
from ridgeline.onnx.formulas import entry_of
from ridgeline.onnx.node import MalformedError, NodeCall
from ridgeline.onnx.passes import Passes

FREE_KINDS = ("view", "constant")  # counted even where shapes are not known
CONTROL = ("If", "Loop", "Scan", "SequenceMap")  # counted by what is in them
NO_FORMULA = "no formula"
BROKEN = (MalformedError, IndexError, KeyError, TypeError, ValueError, ZeroDivisionError,
          AttributeError, OverflowError)  # fmt: skip
"""What a formula raises on a node that breaks its operator's rules."""


@dataclass(slots=True)
class Row:
    """One node, and what one pass through it must do."""

    path: str
    kind: str
    call: NodeCall
    work: Work | None  # None: no formula, or no shapes
    repeats: int = 1
    why: str = ""  # there is no work
    around: tuple[Passes, ...] = ()  # the loops that it is in, outermost first
    is_taken: bool = True  # False: in the branch of an If that is not counted


def row_of(call: NodeCall, path: str) -> Row:
    """The operator's formula on the call; why there is none, or why it does not serve."""
    entry = entry_of(call.domain, call.op_type)
    if entry is None:
        return Row(path, "unknown", call, None, why=NO_FORMULA)
    work, why = None, ""
    if call.refused and any(not t.is_known for t in call.outputs):
        why = call.refused
    elif entry.kind in FREE_KINDS:
        work = entry.function(call)
    elif unknown := [t.name for t in (*call.inputs, *call.outputs) if not t.is_known]:
        why = f"the shape of {', '.join(map(repr, unknown[:3]))} is not known"
    else:
        try:
            is_padded = call.domain != NCHWC and any(t.channels is not None for t in call.inputs)
            work = entry.function(without_padding(call) if is_padded else call)
            if _is_negative(work):
                work, why = None, "its attributes make its size negative"
        except BROKEN as error:
            why = misfit(error)
    return Row(path, entry.kind, call, work, why=why)


def broken_row(call: NodeCall, path: str, error: Exception) -> Row:
    """Of a node whose results could not be worked out."""
    entry = entry_of(call.domain, call.op_type)
    kind = entry.kind if entry else "control" if call.op_type in CONTROL else "unknown"
    return Row(path, kind, call, None, why=misfit(error))


def misfit(error: Exception) -> str:
    """Why a node is not counted whose formula or inference failed."""
    return f"its operands do not fit the operator ({str(error) or type(error).__name__})"


def _is_negative(work: Work) -> bool:
    numbers = (work.macs, work.other_flops, work.transcendentals, work.read_bytes or 0,
               work.written_bytes or 0)  # fmt: skip
    return min(numbers) < 0
