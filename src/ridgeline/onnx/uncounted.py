"""Why nodes are not counted: where a shape is lost first, and how much is lost after it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ridgeline.onnx.asking import option_for, shown
from ridgeline.onnx.node import Tensor
from ridgeline.onnx.row import NO_FORMULA, Row

NAMED = 5  # nodes that a note names before it only counts


def unknown_notes(rows: Iterable[Row], inputs: Mapping[str, Tensor]) -> list[str]:
    """First causes by name; what only follows from them is a number.

    An input that is one whole number, as the `k` of a TopK, can be given.
    """
    numbers = {t.ident: name for name, t in inputs.items() if _is_missing_number(t)}
    causes: dict[tuple[str, str], list[str]] = {}
    followers: list[Row] = []
    for row in rows:
        if all(t.is_known for t in row.call.inputs):
            if why := _why(row):
                asked = [numbers[t.ident] for t in row.call.inputs if t.ident in numbers]
                why += f"; {option_for(asked[0])} gives {shown(asked[0])!r}" if asked else ""
                causes.setdefault((row.call.op, why), []).append(row.path)
        elif row.work is None and row.why != NO_FORMULA:
            followers.append(row)
    if not causes and followers:  # a shape that the file never tells
        first = followers.pop(0)
        causes[first.call.op, f"not counted: {first.why}"] = [first.path]
    notes = [_cause_note(op, why, paths) for (op, why), paths in list(causes.items())[:NAMED]]
    if len(causes) > NAMED:
        notes.append(f"{len(causes) - NAMED} more kinds of nodes are not counted for such reasons")
    if followers:
        nodes = "1 node is" if len(followers) == 1 else f"{len(followers)} nodes are"
        paths = listed([row.path for row in followers])
        notes.append(f"so {nodes} not counted further on, of operands without a shape: {paths}")
    return notes


def _is_missing_number(tensor: Tensor) -> bool:
    is_number = tensor.is_known and tensor.numel == 1 and tensor.dtype.is_integer
    return is_number and tensor.value is None


def _why(row: Row) -> str:
    """Nothing where a node with known operands is counted and its results are known."""
    is_lost = any(not t.is_known for t in row.call.outputs)
    if row.work is None and row.why != NO_FORMULA:
        return f"not counted: {row.why}"
    if not is_lost:
        return ""
    lost = "the shape of its result is not known"
    return f"has no formula, and {lost}" if row.work is None else lost


def _cause_note(op: str, why: str, paths: list[str]) -> str:
    joint = " " if why.startswith(("not counted", "has no")) else ": "
    return f"{op} {listed(paths)}{joint}{why}"


def listed(paths: list[str]) -> str:
    """Some by name, the rest as a number; paths are plain text already."""
    more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    return ", ".join(f"'{path}'" for path in paths[:NAMED]) + more


def needed(rows: Sequence[Row], inputs: Mapping[str, Tensor]) -> list[str]:
    """Those of these inputs without a shape that nodes with a formula have no count for want of."""
    wanted: set[int] = set()  # idents of values whose shape is missing
    for row in reversed(rows):
        lacks = row.work is None or any(t.ident in wanted for t in row.call.outputs)
        if lacks and row.why != NO_FORMULA:
            wanted.update(t.ident for t in row.call.inputs if not t.is_known)

    def is_wanted(tensor: Tensor) -> bool:
        return tensor.ident in wanted or (tensor.each is not None and is_wanted(tensor.each))

    return [name for name, tensor in inputs.items() if is_wanted(tensor)]
