"""Through the graph in order: results and work of every node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import onnx

from ridgeline.errors import RidgelineError
from ridgeline.onnx import control, functions, trips
from ridgeline.onnx.declared import real_inputs
from ridgeline.onnx.dims import Bound
from ridgeline.onnx.functions import Key
from ridgeline.onnx.given import input_tensors
from ridgeline.onnx.infer import from_type, stored, stored_sparse, unknown_results
from ridgeline.onnx.limits import Limits
from ridgeline.onnx.load import ordered, own_names
from ridgeline.onnx.node import NodeCall, Tensor, plain_domain, unknown_tensor
from ridgeline.onnx.opsets import Opsets
from ridgeline.onnx.ranks import missing_ranks, unranked
from ridgeline.onnx.results import results_of
from ridgeline.onnx.row import Row, broken_row, row_of
from ridgeline.onnx.scope import Scope, node_name, path_of
from ridgeline.onnx.uncounted import needed
from ridgeline.plain import plain_line

if TYPE_CHECKING:
    from onnx import FunctionProto, GraphProto, ModelProto, NodeProto


@dataclass(slots=True)
class Walk:
    """What was found so far, and what could not be; where in the file the walk is."""

    path: str  # of the file
    bound: Bound
    opsets: Opsets  # of the model, or of the function that the walk is in
    functions: Mapping[Key, FunctionProto]
    limits: Limits
    causal: str = "full"
    rows: list[Row] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)  # in order, each once
    asked_for: dict[str, None] = field(default_factory=dict)  # loops whose count is not known
    inputs: dict[str, Tensor] = field(default_factory=dict)  # of the model
    outputs: dict[str, Tensor] = field(default_factory=dict)
    loops: dict[str, str] = field(default_factory=dict)  # operators whose passes can be given
    steps: int = 0  # nodes that were walked only to find numbers of passes
    looked: int = 0  # likewise where they are only told

    def note(self, text: str) -> None:
        self.notes.setdefault(text)

    def ask_for(self, loop: str) -> None:
        self.asked_for.setdefault(loop)

    def graph(
        self, graph: GraphProto, scope: Scope, *, prefix: str, declared: Mapping[str, Tensor]
    ) -> list[Tensor]:
        """Walk a graph whose inputs are in `scope`; its results."""
        results = [output.name for output in graph.output]
        with self.limits.inside(prefix):
            for tensor in graph.initializer:
                scope.add(stored(tensor))
            for sparse in graph.sparse_initializer:
                scope.add(stored_sparse(sparse))
            own, path = own_names(graph), self.path
            nodes = ordered(graph.node, own, results, path, around=scope.is_around)
            for place, node in enumerate(nodes):
                self.node(node, place, scope, prefix, declared)
        return [scope.value(name) for name in results]

    def node(
        self,
        node: NodeProto,
        place: int,
        scope: Scope,
        prefix: str,
        declared: Mapping[str, Tensor],
    ) -> None:
        """One node: its results into the scope, its work into the rows."""
        self.limits.call()
        own = plain_line(path_of(node, place))
        path = f"{prefix}.{own}" if prefix else own
        call = self._call(node, place, scope)
        if self.limits.is_nested:
            self.limits.keep(len(path) + call.settings_bytes + sum(map(len, node.output)))
        rows, before = self.rows, len(self.rows)
        try:
            results = self._walked(call, node, scope, path, declared)
        except RidgelineError:
            raise
        except Exception as error:  # a file may hold anything: the node is listed as not counted
            self.rows = rows
            del self.rows[before:]
            results = unknown_results(node)
            call.set_results(results)
            self.rows.append(broken_row(call, path, error))
        for name, result in zip_longest(node.output, results[: len(node.output)]):
            if name:
                made = result if result is not None else unknown_tensor(name)
                made.name = name
                scope.add(made)
                self.limits.keep(made.held_bytes)

    def _call(self, node: NodeProto, place: int, scope: Scope) -> NodeCall:
        return NodeCall(
            name=node_name(node, place),
            op_type=plain_line(node.op_type),
            domain=plain_line(plain_domain(node.domain)),
            version=self.opsets.version(node.domain),
            attributes=attributes_of(node),
            operands=tuple(scope.value(name) if name else None for name in node.input),
            results=(),
            causal=self.causal,
        )

    def _walked(
        self,
        call: NodeCall,
        node: NodeProto,
        scope: Scope,
        path: str,
        declared: Mapping[str, Tensor],
    ) -> Sequence[Tensor | None]:
        """The node's results; its rows, or those of the graphs inside it, are added."""
        function = self.functions.get(functions.called_by(node))
        if function is not None:
            return functions.expand(self, function, call, node, path)
        if control.is_control(call):
            self.loops[call.name] = call.op_type
            known = trips.with_passes(self, call, scope, path)
            return control.run(self, known, node, scope, path)
        results = results_of(self, call, node, declared)
        self.rows.append(row_of(call, path))
        return results


def attributes_of(node: NodeProto) -> dict[str, Any]:
    """Attributes by name; one that cannot be read is left out."""
    found: dict[str, Any] = {}
    for attribute in node.attribute:
        try:
            found[attribute.name] = onnx.helper.get_attribute_value(attribute)
        except (ValueError, TypeError):
            continue
    return found


def walk_model(
    model: ModelProto,
    path: str,
    bound: Bound,
    *,
    values: Mapping[str, Any],
    causal: str = "full",
) -> Walk:
    """Walk the whole model; loops whose count is missing are asked for, all at once."""
    walk = Walk(
        path=path,
        bound=bound,
        opsets=Opsets.of({}).with_those_of(model.opset_import),
        functions=functions.by_key(model.functions, path),
        limits=Limits(path),
        causal=causal,
    )
    scope = Scope()
    walk.inputs = input_tensors(model.graph, bound, values)
    for tensor in walk.inputs.values():
        scope.add(tensor)
    declared = {
        value.name: tensor
        for value in (*model.graph.value_info, *model.graph.output)
        if (tensor := from_type(value.name, value.type, bound.sizes)).is_known
    }
    results = walk.graph(model.graph, scope, prefix="", declared=declared)
    walk.outputs = {o.name: t for o, t in zip(model.graph.output, results, strict=True)}
    without = {name: walk.inputs[name] for name in unranked(real_inputs(model.graph))}
    if names := needed(walk.rows, without):
        raise missing_ranks(names)
    if walk.asked_for:
        loops = {name: walk.loops[name] for name in walk.asked_for}
        raise trips.missing_passes(loops, bound)
    return walk
