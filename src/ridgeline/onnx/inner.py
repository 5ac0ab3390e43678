"""A graph inside a node: what a pass through it makes, and what that costs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from ridgeline.errors import RidgelineError
from ridgeline.onnx.infer import make
from ridgeline.onnx.node import NodeCall, Tensor, unknown_tensor
from ridgeline.onnx.passes import Passes
from ridgeline.onnx.row import Row
from ridgeline.onnx.scope import Scope

if TYPE_CHECKING:
    from onnx import GraphProto

    from ridgeline.onnx.walk import Walk


def body_of(call: NodeCall, name: str) -> GraphProto:
    graph = call.attr(name)
    if graph is None or not hasattr(graph, "node"):
        raise RidgelineError(
            f"{call.op_type} {call.name!r} has no {name}",
            hint="the file is broken; `onnx.checker.check_model` says more",
        )
    return graph  # type: ignore[no-any-return]


def walked(
    walk: Walk, graph: GraphProto, inputs: Iterable[Tensor | None], scope: Scope, path: str
) -> tuple[list[Tensor], list[Row]]:
    """Results and rows of one pass; the rows are not yet in the walk's list."""
    inner = Scope(scope)
    for formal, actual in zip(graph.input, inputs, strict=False):
        given = replace(actual, name=formal.name) if actual else unknown_tensor(formal.name)
        inner.values[formal.name] = given
    before, walk.rows = walk.rows, []
    results = walk.graph(graph, inner, prefix=path, declared={})
    rows, walk.rows = walk.rows, before
    return [replace(t, is_weight=False) for t in results], rows


def add_rows(walk: Walk, rows: list[Row], passes: Passes | None = None) -> None:
    """Put a body's rows into the walk's list: once, or as often as it is run."""
    if passes is not None:
        for row in rows:
            row.repeats *= passes.trips * passes.copies
            row.around = (passes, *row.around)
    walk.rows += rows


def weight_of(rows: list[Row]) -> tuple[int, int]:
    flops = moved = 0
    for row in rows:
        if row.work is not None and row.is_taken:
            cost = row.work.cost(row.call)
            flops += cost.flops * row.repeats
            moved += cost.moved_bytes * row.repeats
    return flops, moved


def stacked(t: Tensor, count: int, axis: int) -> Tensor:
    if t.dims is None:
        return unknown_tensor(t.name)
    axis %= len(t.dims) + 1
    return make(t.name, t.elem, (*t.dims[:axis], count, *t.dims[axis:]))
