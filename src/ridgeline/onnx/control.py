"""If, Loop, Scan and SequenceMap: graphs inside the graph, taken or repeated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING

from ridgeline.count.parts import shapes_text
from ridgeline.onnx.infer import make
from ridgeline.onnx.inner import add_rows, body_of, stacked, walked, weight_of
from ridgeline.onnx.loops import run_loop
from ridgeline.onnx.node import MalformedError, NodeCall, Tensor, unknown_tensor
from ridgeline.onnx.passes import Passes, add_states, as_state, pairs
from ridgeline.onnx.results import results_of
from ridgeline.onnx.row import Row, row_of
from ridgeline.onnx.scope import Scope
from ridgeline.onnx.sequences import sequence
from ridgeline.onnx.trips import refuse_passes, told_passes

if TYPE_CHECKING:
    from onnx import NodeProto

    from ridgeline.onnx.walk import Walk

Results = Sequence[Tensor | None]


def is_control(call: NodeCall) -> bool:
    """Whether a node is one that this module walks."""
    return (call.domain, call.op_type) in RUNNERS


def run(walk: Walk, call: NodeCall, node: NodeProto, scope: Scope, path: str) -> Results:
    """Walk the graphs inside; their rows are added, their results are the node's."""
    return RUNNERS[call.domain, call.op_type](walk, call, node, scope, path)


# ---------------------------------------------------------------- If


def _branch(walk: Walk, call: NodeCall, node: NodeProto, scope: Scope, path: str) -> Results:
    """The branch that is known to be taken, else the one that costs more.

    Of results whose shapes differ between the two, the larger one goes on. The weights of both are
    loaded, so the other's nodes that use some are listed too, as not taken.
    """
    refuse_passes(walk, call)
    names = ("then_branch", "else_branch")
    condition = call.get(0)
    if condition is not None and condition.value is not None and condition.value.size == 1:
        name = names[0] if bool(condition.value.ravel()[0]) else names[1]
        results, rows = walked(walk, body_of(call, name), (), scope, path)
        add_rows(walk, rows)
        return results
    both = [walked(walk, body_of(call, name), (), scope, path) for name in names]
    costs = [weight_of(rows) for _, rows in both]
    chosen = 0 if costs[0] >= costs[1] else 1
    words = [name.replace("_", " ") for name in names]
    walk.note(
        f"If {call.name!r} is decided by data: its {words[chosen]}, the costlier one, is counted"
    )
    (results, rows), (others, spared) = both[chosen], both[1 - chosen]
    add_rows(walk, rows)
    add_rows(walk, _not_taken(spared))
    enlarged = [_larger(*pair) for pair in zip_longest(results, others[: len(results)])]
    for name, was, now in zip(node.output, results, enlarged, strict=False):
        if now is not was:
            walk.note(
                f"If {call.name!r}: its result {name!r} is taken to be {_sizes(now)}, as its"
                f" {words[1 - chosen]} makes it, which is more than {_sizes(was)}"
            )
    return enlarged


def _not_taken(rows: list[Row]) -> list[Row]:
    """Those that use what is stored, and the ones it passes through."""
    if not any(t.is_weight for row in rows for t in row.call.inputs):
        return []
    for row in rows:
        row.is_taken = False
    return rows


def _larger(chosen: Tensor, other: Tensor | None) -> Tensor:
    """The chosen branch's result, of the other's shape where that has more elements."""
    if other is None or None in (chosen.dims, other.dims) or other.numel <= chosen.numel:
        return chosen
    return replace(chosen, dims=other.dims, value=None, fill=None, channels=None)


def _sizes(tensor: Tensor) -> str:
    return shapes_text((tensor.shape,))


# ---------------------------------------------------------------- Scan


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scanned:
    """A Scan's operands by what becomes of them; version 8 has a batch dimension before all."""

    states: list[Tensor | None]
    sliced: list[Tensor | None]
    axes: list[int]  # along which each is sliced
    is_batched: bool

    @classmethod
    def of(cls, call: NodeCall) -> _Scanned:
        is_batched = call.version < 9
        operands = list(call.operands[1:] if is_batched else call.operands)
        count = min(max(call.whole("num_scan_inputs", 0), 0), len(operands))
        axes = call.wholes("scan_input_axes") or [0] * count
        return cls(
            states=operands[: len(operands) - count],
            sliced=operands[len(operands) - count :],
            axes=[1] * count if is_batched else axes,
            is_batched=is_batched,
        )

    @property
    def length(self) -> int | None:
        """How many slices there are; None where that is not known."""
        return _length(self.sliced[0], self.axes[0]) if self.sliced and self.axes else None

    @property
    def batch(self) -> int:
        operands = [*self.states, *self.sliced]
        return (_length(operands[0], 0) if self.is_batched and operands else 1) or 1

    def states_inside(self) -> list[Tensor | None]:
        states = [_without(t, (0,)) if self.is_batched else t for t in self.states]
        return [as_state(replace(t, value=None)) if t is not None else None for t in states]

    def slices(self) -> list[Tensor | None]:
        pairs_of = zip(self.sliced, self.axes, strict=False)
        return [_without(t, (0, 1) if self.is_batched else (axis,)) for t, axis in pairs_of]


def _scan(walk: Walk, call: NodeCall, node: NodeProto, scope: Scope, path: str) -> Results:
    """The body for each slice of the scanned operands."""
    body, scanned = body_of(call, "body"), _Scanned.of(call)
    trips, kept = _scan_trips(walk, call, scanned), len(scanned.states)
    results: list[Tensor] = []
    for length, copies in _sequences(walk, call, scanned, trips).items():
        states, slices = scanned.states_inside(), scanned.slices()
        outputs, rows = walked(walk, body, (*states, *slices), scope, path)
        passes = Passes(trips=length, copies=copies, sliced=pairs(scanned.sliced, slices))
        add_states(passes, scanned.states, states, outputs)
        add_rows(walk, rows, passes)
        results = results or _scan_results(call, scanned, outputs, trips)
        passes.finals = pairs(outputs[:kept], results[:kept])
        passes.stacked = pairs(outputs[kept:], results[kept:])
    return results


def _sequences(walk: Walk, call: NodeCall, scanned: _Scanned, trips: int) -> dict[int, int]:
    """Numbers of passes, and how many sequences have each; version 8 may give them one by one."""
    lengths = call.get(0) if scanned.is_batched else None
    if lengths is None or lengths.value is None:
        if lengths is not None:
            walk.note(
                f"Scan {call.name!r}: the lengths of its sequences are data: all are taken as"
                f" {trips} long"
            )
        return {trips: scanned.batch}
    known = [int(length) for length in lengths.value.ravel()]
    if len(known) != scanned.batch or not all(0 <= length <= trips for length in known):
        raise MalformedError(f"its sequence_lens are not {scanned.batch} numbers from 0 to {trips}")
    counted = Counter(length for length in known if length)
    return dict(counted) or {0: scanned.batch}


def _scan_trips(walk: Walk, call: NodeCall, scanned: _Scanned) -> int:
    """As many as there are slices, else as given; else they are asked for."""
    if scanned.length is not None:
        return told_passes(walk, call, scanned.length)
    given = walk.bound.given_for(call.name)
    if given is None:
        walk.ask_for(call.name)
    return 1 if given is None else given


def _scan_results(
    call: NodeCall, scanned: _Scanned, outputs: list[Tensor], trips: int
) -> list[Tensor]:
    """The last states, and what every pass made, stacked; with the batch before them."""
    kept = len(scanned.states)
    axes = [*call.wholes("scan_output_axes"), *[0] * len(outputs)]
    made = (stacked(t, trips, axis) for t, axis in zip(outputs[kept:], axes, strict=False))
    results = [*outputs[:kept], *made]
    return [stacked(t, scanned.batch, 0) for t in results] if scanned.is_batched else results


def _length(t: Tensor | None, axis: int) -> int | None:
    if t is None or t.dims is None or not -len(t.dims) <= axis < len(t.dims):
        return None
    return t.dims[axis]


def _without(t: Tensor | None, axes: tuple[int, ...]) -> Tensor | None:
    if t is None or t.dims is None:
        return t
    gone = {axis % max(len(t.dims), 1) for axis in axes}
    return make(t.name, t.elem, tuple(d for n, d in enumerate(t.dims) if n not in gone))


# ---------------------------------------------------------------- SequenceMap, FlexAttention


def _map(walk: Walk, call: NodeCall, node: NodeProto, scope: Scope, path: str) -> Results:
    """The body for each item; items may differ in shape, so each is walked."""
    body, first = body_of(call, "body"), call.get(0)
    items = first.items if first is not None else None
    if items is None:
        count = walk.bound.given_for(call.name)
        if count is None:
            walk.ask_for(call.name)
            return [unknown_tensor(name) for name in node.output]
        each = first.each if first is not None else None
        items = (each or unknown_tensor("item"),) * count
    told_passes(walk, call, len(items))
    lists: list[list[Tensor]] = [[] for _ in node.output]
    for place, item in enumerate(items):
        inputs = [item, *(_item(t, place) for t in call.operands[1:])]
        outputs, rows = walked(walk, body, inputs, scope, path)
        add_rows(walk, rows)
        for made, output in zip(lists, outputs, strict=False):
            made.append(output)
    return [sequence(name, tuple(made)) for name, made in zip(node.output, lists, strict=True)]


def _item(t: Tensor | None, place: int) -> Tensor | None:
    """An item of a sequence; what is none is the same for all."""
    if t is None or t.items is None or place >= len(t.items):
        return t
    return t.items[place]


def _flex(walk: Walk, call: NodeCall, node: NodeProto, scope: Scope, path: str) -> Results:
    """Attention, and the graphs that change its scores and probabilities."""
    refuse_passes(walk, call)
    results = results_of(walk, call, node, {})
    walk.rows.append(row_of(call, path))
    q, k = call.get(0), call.get(1)
    if q is None or k is None or len(q.shape) != 4 or len(k.shape) != 4:
        return results
    scores = make("scores", q.elem, (*q.shape[:3], k.shape[2]))
    for name in ("score_mod", "prob_mod"):
        if call.attr(name) is not None:
            _, rows = walked(walk, body_of(call, name), (scores,), scope, f"{path}.{name}")
            add_rows(walk, rows)
    return results


RUNNERS: dict[tuple[str, str], Callable[[Walk, NodeCall, NodeProto, Scope, str], Results]] = {
    ("", "If"): _branch,
    ("", "Loop"): run_loop,
    ("", "Scan"): _scan,
    ("", "SequenceMap"): _map,
    ("ai.onnx.preview", "FlexAttention"): _flex,
}
"""By domain and operator; load.WITH_GRAPHS has the same names."""
