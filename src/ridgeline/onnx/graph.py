"""Through the graph in order: results and work of every node.

Functions of the model take the place of their calls. counting.py walks the graphs inside nodes.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from ridgeline.errors import RidgelineError
from ridgeline.onnx.dims import DimBindings, dim_option, real_inputs
from ridgeline.onnx.infer import (
    from_array,
    from_stored,
    from_type,
    ident_of,
    make_sequence,
    unknown_results,
)
from ridgeline.onnx.load import check_order, subgraphs_of
from ridgeline.onnx.node import NodeCall, Tensor, plain_domain, unknown_tensor
from ridgeline.onnx.node_cost import NodeCost, cost_broken_node, cost_node
from ridgeline.onnx.shapes import ShapeContext, set_results
from ridgeline.plain import plain_line

if TYPE_CHECKING:
    from onnx import (
        AttributeProto,
        FunctionProto,
        GraphProto,
        ModelProto,
        NodeProto,
        OperatorSetIdProto,
        ValueInfoProto,
    )

# ---------------------------------------------------------------- names of values

MOST_CALLS = 250_000  # inside of functions and loops, whose calls multiply
DEEPEST = 40  # graphs and functions inside each other; real files have a handful
SCOPES = "pkg.torch.onnx.name_scopes"  # where PyTorch's exporter keeps the modules around a node
NO_MODULE = "_empty_nn_module_stack"  # the exporter's word for none


class Scope:
    """The values of one graph; names that it does not have are looked up around it."""

    def __init__(
        self, outer: Scope | None = None, declared: Mapping[str, Tensor] | None = None
    ) -> None:
        self.outer = outer
        self.declared = declared or {}  # types that the file states
        self.values: dict[str, Tensor] = {}

    def find(self, name: str) -> Tensor | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        return None

    def value(self, name: str) -> Tensor:
        """One of an unknown type where nobody has the name."""
        return self.find(name) or unknown_tensor(name)

    def add(self, tensor: Tensor) -> None:
        if tensor.name:
            self.values[tensor.name] = tensor


# ---------------------------------------------------------------- paths of nodes


def node_name(node: NodeProto, number: int) -> str:
    return node.name or f"{node.op_type}_{number}"


def node_path(node: NodeProto, number: int) -> str:
    """The modules around a node, then its name, with dots between: `layer1.0.conv1.node_Conv_5`.

    PyTorch's exporters keep the modules in the node's notes, or (the older one) in its name,
    `/layer1/layer1.0/conv1/Conv`; TensorFlow's names have slashes too. No part of it is empty: that
    is the name of the whole model.
    """
    parts = _dotted(node, number).split(".")
    return ".".join(part for part in parts if part) or f"{node.op_type}_{number}"


def _dotted(node: NodeProto, number: int) -> str:
    name = node_name(node, number)
    for entry in node.metadata_props:
        if entry.key == SCOPES and (module := _innermost_module(entry.value)):
            return f"{module}.{name.replace('.', '_')}"
    if "/" not in name:
        return name
    parts: list[str] = []
    for part in name.strip("/").split("/"):
        before = parts[-1] if parts else ""
        parts.append(part)
        if before and part.startswith(f"{before}."):  # layer1/layer1.0 is layer1.0
            del parts[-2]
    return ".".join(parts)


def _innermost_module(text: str) -> str:
    """Of a list such as ['', 'layer1', 'layer1.0', 'conv2d']."""
    try:
        scopes = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ""
    if not isinstance(scopes, list) or len(scopes) < 2 or not isinstance(scopes[-2], str):
        return ""
    return "" if scopes[-2].startswith(NO_MODULE) else scopes[-2]


# ---------------------------------------------------------------- versions of operators


Opsets = Mapping[str, int]  # versions by domain


def extend_opsets(versions: Opsets, imports: Iterable[OperatorSetIdProto]) -> Opsets:
    """A function's own go before those of the model around it."""
    return {**versions, **{plain_domain(one.domain): one.version for one in imports}}


def find_version(versions: Opsets, domain: str) -> int:
    """The first of a domain that is not named; of the standard one, the newest.

    Versions of the standard one that onnx does not have are the newest, too.
    """
    version = versions.get(domain, 0)
    if domain:
        return version or 1
    newest = onnx.defs.onnx_opset_version()
    return version if 1 <= version <= newest else newest


# ---------------------------------------------------------------- the walk

Results = Sequence[Tensor | None]
FunctionKey = tuple[str, str, str]  # domain, name, overload
Runner = Callable[["Walk", NodeCall, "NodeProto", Scope, str], Results]
STANDARD = "ai.onnx"  # the longer name of the standard domain


@dataclass(slots=True)
class Walk:
    """The rows so far, and what is missing; where in the file the walk is."""

    path: str  # of the file
    bound: DimBindings
    opsets: Opsets  # of the model, or of the function that the walk is in
    functions: Mapping[FunctionKey, FunctionProto]
    runners: Mapping[str, Runner]  # of operators with graphs
    causal: str = "full"
    rows: list[NodeCost] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)  # in order, each once
    missing_trips: dict[str, None] = field(default_factory=dict)  # loops
    links: list[tuple[int, int]] = field(default_factory=list)  # values that become others in loops
    inputs: dict[str, Tensor] = field(default_factory=dict)  # of the model
    outputs: dict[str, Tensor] = field(default_factory=dict)
    loops: dict[str, str] = field(default_factory=dict)  # operators that have a trip count
    depth: int = 0  # graphs and functions that the walk is inside of
    nested_calls: int = 0  # nodes inside of functions and loops

    def note(self, text: str) -> None:
        self.notes.setdefault(text)

    @contextmanager
    def enter(self, where: str) -> Iterator[None]:
        """Around the nodes of a graph or a function. Those that call each other have no end."""
        self.depth += 1
        try:
            if self.depth > DEEPEST:
                raise RidgelineError(
                    f"{self.path}: graphs or functions are nested more than {DEEPEST} deep"
                    f" at {where or 'the top'!r}",
                    hint="a function that calls itself has no end; check the file",
                )
            yield
        finally:
            self.depth -= 1

    def _count_nested_call(self) -> None:
        """Small files can make much: functions and loops inside each other multiply."""
        self.nested_calls += self.depth > 1
        if self.nested_calls > MOST_CALLS:
            raise RidgelineError(
                f"{self.path}: functions and loops make more than {MOST_CALLS:,} nodes",
                hint="inside each other they multiply; check the file",
            )

    def walk_graph(self, graph: GraphProto, scope: Scope, prefix: str = "") -> list[Tensor]:
        """Walk a graph whose inputs are in `scope`; its results."""
        with self.enter(prefix):
            for tensor in graph.initializer:
                scope.add(from_stored(tensor))
            check_order(graph.node, self.path)
            for number, node in enumerate(graph.node):
                self.walk_node(node, number, scope, prefix)
        return [scope.value(output.name) for output in graph.output]

    def walk_node(self, node: NodeProto, number: int, scope: Scope, prefix: str) -> None:
        """One node: its results into the scope, its work into the rows."""
        if node.domain == STANDARD:
            node.domain = ""
        own = plain_line(node_path(node, number))
        path = f"{prefix}.{own}" if prefix else own
        call = self._call(node, number, scope)
        self._count_nested_call()
        rows, before = self.rows, len(self.rows)
        try:
            results = self._results(call, node, scope, path)
        except RidgelineError:
            raise
        except Exception as error:  # a file may hold anything: the node is listed as not counted
            self.rows = rows
            del self.rows[before:]
            results = unknown_results(node)
            call.set_results(results)
            self.rows.append(cost_broken_node(call, path, error))
        for name, result in zip_longest(node.output, results[: len(node.output)]):
            if name:
                tensor = result if result is not None else unknown_tensor(name)
                tensor.name = name
                scope.add(tensor)

    def _call(self, node: NodeProto, number: int, scope: Scope) -> NodeCall:
        return NodeCall(
            name=node_name(node, number),
            op_type=plain_line(node.op_type),
            domain=plain_line(node.domain),
            version=find_version(self.opsets, node.domain),
            attributes=read_attributes(node),
            operands=tuple(scope.value(name) if name else None for name in node.input),
            results=(),
            causal=self.causal,
        )

    def _results(self, call: NodeCall, node: NodeProto, scope: Scope, path: str) -> Results:
        """The node's results; its rows, or those of the graphs inside it, are added."""
        function = self.functions.get((node.domain, node.op_type, node.overload))
        if function is not None:
            return _call_function(self, function, call, node, path)
        runner = self.runners.get(call.op)
        if runner is not None:
            return runner(self, call, node, scope, path)
        return self.add_node(call, node, scope, path)

    def add_node(self, call: NodeCall, node: NodeProto, scope: Scope, path: str) -> Results:
        imports = [onnx.helper.make_opsetid(d, v) for d, v in self.opsets.items()]
        standard = find_version(self.opsets, "")
        context = ShapeContext(imports, standard, scope.declared, self.note)
        results = set_results(call, node, context)
        self.rows.append(cost_node(call, path))
        return results

    def walk_body(
        self, graph: GraphProto, inputs: Iterable[Tensor | None], scope: Scope, path: str
    ) -> tuple[list[Tensor], list[NodeCost]]:
        """Results and rows of a graph inside a node; the rows are not yet in the walk's list."""
        inner = Scope(scope)
        for formal, actual in zip(graph.input, inputs, strict=False):
            tensor = replace(actual, name=formal.name) if actual else unknown_tensor(formal.name)
            inner.values[formal.name] = tensor
        before, self.rows = self.rows, []
        results = self.walk_graph(graph, inner, path)
        rows, self.rows = self.rows, before
        return [replace(t, is_weight=False) for t in results], rows

    def link(self, sources: Results, targets: Results) -> None:
        """Values that become others, from outside of a loop, in it, or after it."""
        for a, b in zip(sources, targets, strict=False):
            if a is not None and b is not None:
                self.links.append((a.ident, b.ident))


def read_attributes(node: NodeProto) -> dict[str, Any]:
    """Attributes by name; one that cannot be read is left out."""
    attributes: dict[str, Any] = {}
    for attribute in node.attribute:
        try:
            attributes[attribute.name] = onnx.helper.get_attribute_value(attribute)
        except (ValueError, TypeError):
            continue
    return attributes


def walk_model(
    model: ModelProto,
    path: str,
    bound: DimBindings,
    *,
    values: Mapping[str, Any],
    runners: Mapping[str, Runner],
    causal: str = "full",
) -> Walk:
    """Walk the whole model; loops whose trip count is missing are asked for, all at once."""
    walk = Walk(
        path=path,
        bound=bound,
        opsets=extend_opsets({}, model.opset_import),
        functions={(plain_domain(f.domain), f.name, f.overload): f for f in model.functions},
        runners=runners,
        causal=causal,
    )
    declared = {
        value.name: tensor
        for value in (*model.graph.value_info, *model.graph.output)
        if (tensor := from_type(value.name, value.type, bound.sizes)).is_known
    }
    scope = Scope(declared=declared)
    walk.inputs = {v.name: input_tensor(v, bound, values) for v in real_inputs(model.graph)}
    for tensor in walk.inputs.values():
        scope.add(tensor)
    results = walk.walk_graph(model.graph, scope)
    walk.outputs = {o.name: t for o, t in zip(model.graph.output, results, strict=True)}
    if walk.missing_trips:
        named = ", ".join(f"{walk.loops[name]} {name!r}" for name in walk.missing_trips)
        raise RidgelineError(
            f"the trip counts of these loops are not in the file: {named}",
            hint=f"give {' and '.join(map(dim_option, walk.missing_trips))}",
        )
    return walk


# ---------------------------------------------------------------- inputs of the model


def input_tensor(value: ValueInfoProto, bound: DimBindings, values: Mapping[str, Any]) -> Tensor:
    """An input with the sizes that are bound; a single whole number may be given as a size."""
    name = value.name
    if name in values:
        return _from_value(name, values[name])
    tensor = from_type(name, value.type, bound.sizes)
    if name not in bound.numbers or tensor.numel != 1 or not tensor.dtype.is_integer:
        return tensor
    kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem)
    return replace(tensor, value=np.full(tensor.shape, bound.numbers.pop(name), kind))


def _from_value(name: str, value: Any) -> Tensor:
    """A tensor of these elements, or a sequence of tensors from a list."""
    if isinstance(value, list):
        return make_sequence(
            name, tuple(_from_value(f"{name}[{n}]", v) for n, v in enumerate(value))
        )
    return from_array(name, np.asarray(value))


# ---------------------------------------------------------------- functions of the model


def _call_function(
    walk: Walk, function: FunctionProto, call: NodeCall, node: NodeProto, path: str
) -> list[Tensor]:
    """Walk the function's nodes with the call's operands and attributes.

    Inside of a function its own versions of operators hold.
    """
    scope, outer = Scope(), walk.opsets
    operands = dict(zip_longest(function.input, call.operands[: len(function.input)]))
    scope.values = {name: t for name, t in operands.items() if t is not None}
    absent = operands.keys() - scope.values.keys()
    attributes = {a.name: a for a in (*function.attribute_proto, *node.attribute)}
    walk.opsets = extend_opsets(outer, function.opset_import)
    try:
        with walk.enter(path):
            check_order(function.node, walk.path)
            for number, inner in enumerate(function.node):
                walk.walk_node(substitute(inner, attributes, absent), number, scope, path)
    finally:
        walk.opsets = outer
    return [scope.value(name) for name in function.output]


def substitute(
    node: NodeProto, attributes: Mapping[str, AttributeProto], absent: Collection[str]
) -> NodeProto:
    """A copy of the node with the caller's attributes in place of references to them.

    Inputs of the function that the caller leaves out are left out of the node, too.
    """
    own = onnx.NodeProto()
    own.CopyFrom(node)
    own.input[:] = ["" if name in absent else name for name in node.input]
    del own.attribute[:]
    for formal in node.attribute:
        actual = attributes.get(formal.ref_attr_name) if formal.ref_attr_name else formal
        if actual is None:
            continue
        ident_of(actual.t if actual.HasField("t") else actual)  # copies are the same tensor
        added = own.attribute.add()
        added.CopyFrom(actual)
        added.name = formal.name
        graphs = subgraphs_of(formal) if actual is formal else []
        for graph, copy in zip(graphs, subgraphs_of(added), strict=False):
            del copy.node[:]
            copy.node.extend(substitute(inner, attributes, absent) for inner in graph.node)
    return own
