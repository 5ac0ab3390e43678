"""A node with its work, or why that is not known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ridgeline.costs.work import Work
from ridgeline.onnx.dims import dim_option, show_name
from ridgeline.onnx.node import NodeCall, Tensor
from ridgeline.onnx.ops import data, elementwise, find_entry, products
from ridgeline.onnx.shapes import BROKEN, misfit

FAMILIES = (data, elementwise, products)  # imported for the formulas that they register
FREE_KINDS = ("view", "constant")  # counted even where shapes are not known
CONTROL = ("If", "Loop", "Scan", "SequenceMap")  # counted by the nodes in them
NO_FORMULA = "no formula"
MOST_NAMED = 5  # nodes that a note names before it only counts
LENGTHS = {"LSTM": 4, "GRU": 4, "RNN": 4, "DynamicQuantizeLSTM": 4}
"""The operand that says how long each sequence is."""


@dataclass(slots=True)
class NodeCost:
    """One node, and the work of one run of it."""

    path: str
    kind: str
    call: NodeCall
    work: Work | None  # None: no formula, or no shapes
    repeats: int = 1
    reason: str = ""  # why there is no work


def cost_node(call: NodeCall, path: str) -> NodeCost:
    """The operator's formula on the call; why there is none, or why it does not serve."""
    entry = find_entry(call.domain, call.op_type)
    if entry is None:
        return NodeCost(path, "unknown", call, None, reason=NO_FORMULA)
    work, reason = None, ""
    if call.refused and any(not t.is_known for t in call.outputs):
        reason = call.refused
    elif entry.kind not in FREE_KINDS and (unknown := _unknown_names(call)):
        reason = f"the shape of {', '.join(map(repr, unknown[:3]))} is not known"
    else:
        try:
            work = entry.function(call)
            if _is_negative(work):
                work, reason = None, "its attributes make its size negative"
        except BROKEN as error:
            reason = misfit(error)
    return NodeCost(path, entry.kind, call, work, reason=reason)


def cost_broken_node(call: NodeCall, path: str, error: Exception) -> NodeCost:
    """Of a node whose results could not be computed."""
    entry = find_entry(call.domain, call.op_type)
    kind = entry.kind if entry else "control" if call.op_type in CONTROL else "unknown"
    return NodeCost(path, kind, call, None, reason=misfit(error))


def _unknown_names(call: NodeCall) -> list[str]:
    return [t.name for t in (*call.inputs, *call.outputs) if not t.is_known]


def _is_negative(work: Work) -> bool:
    numbers = (work.macs, work.other_flops, work.transcendentals, work.read_bytes or 0,
               work.written_bytes or 0)  # fmt: skip
    return min(numbers) < 0


# ---------------------------------------------------------------- notes


def unknown_notes(rows: Iterable[NodeCost], inputs: Mapping[str, Tensor]) -> list[str]:
    """First causes by name; nodes that only follow from them as a number.

    An input that is one whole number, as the `k` of a TopK, can be given.
    """
    numbers = {t.ident: name for name, t in inputs.items() if _is_missing_number(t)}
    causes: dict[tuple[str, str], list[str]] = {}
    followers: list[NodeCost] = []
    for row in rows:
        if all(t.is_known for t in row.call.inputs):
            if reason := _cause(row):
                names = [numbers[t.ident] for t in row.call.inputs if t.ident in numbers]
                if names:
                    reason += f"; {dim_option(names[0])} gives {show_name(names[0])!r}"
                causes.setdefault((row.call.op, reason), []).append(row.path)
        elif row.work is None and row.reason != NO_FORMULA:
            followers.append(row)
    if not causes and followers:  # a shape that is nowhere in the file
        first = followers.pop(0)
        causes[first.call.op, f"not counted: {first.reason}"] = [first.path]
    notes = [
        f"{op} {list_paths(paths)}{' ' if why.startswith(('not counted', 'has no')) else ': '}{why}"
        for (op, why), paths in list(causes.items())[:MOST_NAMED]
    ]
    if len(causes) > MOST_NAMED:
        more = len(causes) - MOST_NAMED
        notes.append(f"{more} more kinds of nodes are not counted for such reasons")
    if followers:
        nodes = "1 node is" if len(followers) == 1 else f"{len(followers)} nodes are"
        paths = list_paths([row.path for row in followers])
        notes.append(f"so {nodes} not counted further on, of operands without a shape: {paths}")
    return notes


def _is_missing_number(tensor: Tensor) -> bool:
    is_number = tensor.is_known and tensor.numel == 1 and tensor.dtype.is_integer
    return is_number and tensor.value is None


def _cause(row: NodeCost) -> str:
    """Nothing where a node with known operands is counted and its results are known."""
    is_lost = any(not t.is_known for t in row.call.outputs)
    if row.work is None and row.reason != NO_FORMULA:
        return f"not counted: {row.reason}"
    if not is_lost:
        return ""
    lost = "the shape of its result is not known"
    return f"has no formula, and {lost}" if row.work is None else lost


def list_paths(paths: Sequence[str]) -> str:
    """Some by name, the rest as a number; paths are plain text already."""
    more = f" and {len(paths) - MOST_NAMED} more" if len(paths) > MOST_NAMED else ""
    return ", ".join(f"'{path}'" for path in paths[:MOST_NAMED]) + more


def assumption_notes(rows: Iterable[NodeCost]) -> list[str]:
    """Nodes on sequences whose lengths are not known: all are counted as the longest there is."""
    paths: dict[str, dict[str, None]] = {}  # by operator, each once
    for row in rows:
        place = LENGTHS.get(row.call.op_type)
        lengths = row.call.get(place) if place is not None and row.work is not None else None
        if lengths is not None and lengths.value is None:
            paths.setdefault(row.call.op, {}).setdefault(row.path)
    return [
        f"{op} {list_paths(list(named))}: the lengths of the sequences are data, so all are"
        " counted as full"
        for op, named in paths.items()
    ]


def inputs_needed(rows: Sequence[NodeCost], inputs: Mapping[str, Tensor]) -> list[str]:
    """Those of these inputs without a shape for want of which nodes with a formula lack a count."""
    wanted: set[int] = set()  # idents of values whose shape is missing
    for row in reversed(rows):
        lacks = row.work is None or any(t.ident in wanted for t in row.call.outputs)
        if lacks and row.reason != NO_FORMULA:
            wanted.update(t.ident for t in row.call.inputs if not t.is_known)

    def is_wanted(tensor: Tensor) -> bool:
        return tensor.ident in wanted or (tensor.each is not None and is_wanted(tensor.each))

    return [name for name, tensor in inputs.items() if is_wanted(tensor)]
