"""Through the graph in order: shapes, values and work of every node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import onnx

from ridgeline.count.onnx import control, functions
from ridgeline.count.onnx.bounds import largest
from ridgeline.count.onnx.constants import constant
from ridgeline.count.onnx.dims import Bound, is_open, item_type, real_inputs, unnamed
from ridgeline.count.onnx.formulas import entry_of
from ridgeline.count.onnx.given import with_values
from ridgeline.count.onnx.infer import from_type, infer, make, schema_of, stored
from ridgeline.count.onnx.load import ordered, own_names
from ridgeline.count.onnx.node import MalformedError, NodeCall, Tensor, plain_domain, unknown_tensor
from ridgeline.count.onnx.passes import Passes
from ridgeline.count.onnx.rules import (
    OPERANDS_OF_STANDARD,
    STANDARD_FORM,
    contributed,
    typed,
)
from ridgeline.count.onnx.rules_old import old_form
from ridgeline.count.onnx.rules_rare import rare
from ridgeline.count.onnx.rules_standard import standard
from ridgeline.count.onnx.scope import Scope, node_name, path_of
from ridgeline.count.onnx.sequences import sequence_result
from ridgeline.count.onnx.values import follow
from ridgeline.count.parts import Work
from ridgeline.errors import RidgelineError

if TYPE_CHECKING:
    from onnx import (
        FunctionProto,
        GraphProto,
        ModelProto,
        NodeProto,
        OperatorSetIdProto,
        TypeProto,
        ValueInfoProto,
    )

MOST_CALLS = 250_000  # inside of functions and loops, whose calls multiply
MOST_KEPT_BYTES = 1 << 28  # of names, attributes, values and sequences likewise
DEEPEST = 40  # graphs and functions inside each other; real files have a handful
FREE_KINDS = ("view", "constant")  # counted even where shapes are not known
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


@dataclass(slots=True)
class Walk:
    """The state of a walk: what was found, and what could not be."""

    path: str
    bound: Bound
    opsets: dict[str, int]
    functions: Mapping[tuple[str, str], FunctionProto]
    causal: str = "full"
    rows: list[Row] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)  # in order, each once
    asked_for: dict[str, None] = field(default_factory=dict)  # loops whose count is not known
    calls: int = 0
    kept_bytes: int = 0
    depth: int = 0
    imports: list[OperatorSetIdProto] = field(default_factory=list)
    inputs: dict[str, Tensor] = field(default_factory=dict)  # of the model
    outputs: dict[str, Tensor] = field(default_factory=dict)
    loops: set[str] = field(default_factory=set)  # names that a number of passes can be given for

    def __post_init__(self) -> None:
        self.imports = [onnx.helper.make_opsetid(d, v) for d, v in self.opsets.items()]

    def note(self, text: str) -> None:
        self.notes.setdefault(text)

    def ask_for(self, loop: str) -> None:
        self.asked_for.setdefault(loop)

    def version(self, domain: str) -> int:
        domain = plain_domain(domain)
        return self.opsets.get(domain) or (1 if domain else onnx.defs.onnx_opset_version())

    def graph(
        self, graph: GraphProto, scope: Scope, *, prefix: str, declared: Mapping[str, Tensor]
    ) -> list[Tensor]:
        """Walk a graph whose inputs are in `scope`; its results."""
        self.enter(prefix)
        for tensor in graph.initializer:
            scope.add(stored(tensor))
        for sparse in graph.sparse_initializer:
            dense = make(sparse.values.name, sparse.values.data_type, tuple(sparse.dims))
            dense.is_weight = True
            scope.add(dense)
        results = [output.name for output in graph.output]
        own, path = own_names(graph), self.path
        nodes = ordered(graph.node, own, results, path, around=scope.is_around)
        for place, node in enumerate(nodes):
            self.node(node, place, scope, prefix, declared)
        self.depth -= 1
        return [self.value(scope, name) for name in results]

    def enter(self, where: str) -> None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise RidgelineError(
                f"{self.path}: graphs or functions are nested more than {DEEPEST} deep"
                f" at {where or 'the top'!r}",
                hint="a function that calls itself has no end; check the file",
            )

    def value(self, scope: Scope, name: str) -> Tensor:
        return scope.find(name) or unknown_tensor(name)

    def node(
        self,
        node: NodeProto,
        place: int,
        scope: Scope,
        prefix: str,
        declared: Mapping[str, Tensor],
    ) -> None:
        """One node: its results into the scope, its work into the rows."""
        self.calls += self.depth > 1
        if self.calls > MOST_CALLS:
            raise RidgelineError(
                f"{self.path}: functions and loops make more than {MOST_CALLS:,} nodes",
                hint="inside each other they multiply; check the file",
            )
        path = f"{prefix}.{path_of(node, place)}" if prefix else path_of(node, place)
        operands = tuple(self.value(scope, name) if name else None for name in node.input)
        call = NodeCall(
            name=node_name(node, place),
            op_type=node.op_type,
            domain=plain_domain(node.domain),
            version=self.version(node.domain),
            attributes=attributes_of(node),
            operands=operands,
            results=(),
            causal=self.causal,
        )
        if self.depth > 1:
            self.keep(len(path) + call.settings_bytes + sum(map(len, node.output)))
        rows, before = self.rows, len(self.rows)
        state = self.depth, self.opsets, self.imports
        try:
            results = self._walked(call, node, scope, path, declared)
        except RidgelineError:
            raise
        except Exception as error:  # a file may hold anything: the node is listed as not counted
            self.rows = rows
            del self.rows[before:]
            self.depth, self.opsets, self.imports = state
            results = [unknown_tensor(name) if name else None for name in node.output]
            call.set_results(results)
            self.rows.append(Row(path, "unknown", call, None, why=_misfit(error)))
        for name, result in zip_longest(node.output, results[: len(node.output)]):
            if name:
                made = result if result is not None else unknown_tensor(name)
                made.name = name
                scope.add(made)
                self.keep(made.held_bytes)

    def keep(self, nbytes: int) -> None:
        """Count what stays in memory and is not in the file as often as it is here."""
        self.kept_bytes += nbytes
        if self.kept_bytes > MOST_KEPT_BYTES:
            raise RidgelineError(
                f"{self.path}: its nodes would take more than {MOST_KEPT_BYTES >> 20} MiB of names"
                " and values",
                hint="in functions, loops and sequences they multiply; check the file",
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
        function = self.functions.get((node.domain, node.op_type))
        if function is not None:
            return functions.expand(self, function, call, node, path)
        if control.is_control(call):
            self.loops.add(call.name)
            return control.run(self, call, node, scope, path)
        results = self.results(call, node, declared)
        call.set_results(results)
        self.rows.append(self.row(call, path))
        return results

    def results(
        self, call: NodeCall, node: NodeProto, declared: Mapping[str, Tensor]
    ) -> list[Tensor | None]:
        """Types of the results, by the first that knows them; small values where they are known."""
        first = node.output[0] if node.output else ""
        if call.op_type == "Constant" and not call.domain:
            return [constant(node, first)]
        found = sequence_result(call, first) if not call.domain else None
        results: list[Tensor | None] = [found]
        if found is None:
            try:
                results = self._inferred(call, node)
            except MalformedError as error:
                call.refused = str(error)
                results = [unknown_tensor(name) if name else None for name in node.output]
        if any(t is not None and not t.is_known for t in results):
            results = self._completed(call, node, results, declared)
        call.set_results(results)
        values = follow(call, node, self.imports)
        for result, value in zip(results, values, strict=False):
            if result is not None and value is not None:
                _set_value(result, value)
        return results

    def _inferred(self, call: NodeCall, node: NodeProto) -> list[Tensor | None]:
        plain = call.domain and not call.attr("channels_last", 0)
        standard = STANDARD_FORM.get(call.op_type) if plain else None
        if standard is None:
            return infer(node, call.version, call.operands, self.imports)
        version = self.version("")
        schema_node = as_standard(node, standard, version)
        count = OPERANDS_OF_STANDARD.get(call.op_type, len(node.input))
        del schema_node.input[count:]
        return infer(schema_node, version, call.operands[:count], self.imports)

    def _completed(
        self,
        call: NodeCall,
        node: NodeProto,
        results: list[Tensor | None],
        declared: Mapping[str, Tensor],
    ) -> list[Tensor | None]:
        """What onnx leaves open: rules for contributed operators, bounds, what the file says."""
        names = list(node.output)
        try:
            found = standard(call) or contributed(call) or rare(call) or old_form(call)
            own = typed(names, found)
        except BROKEN:
            own = []
        results = _fill(results, own, names)
        if all(t is None or t.is_known for t in results):
            return results
        results = _fill(results, [declared.get(name) for name in names], names)
        asked = self.bound.unused.get(call.name)
        if asked is not None or any(t is not None and not t.is_known for t in results):
            try:
                most = largest(call, asked) if not call.domain else []
            except BROKEN:
                most = []
            bounded = typed(names, most)
            if most and asked is None:
                self.note(
                    f"{call.op_type} {call.name!r} keeps as much as its data say:"
                    f" the most it could is counted; --dim {call.name}=N gives another number"
                )
            results = _fill(results, bounded, names, over=asked is not None)
        return results

    def row(self, call: NodeCall, path: str) -> Row:
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
                work = entry.function(call)
                if _is_negative(work):
                    work, why = None, "its attributes make its size negative"
            except BROKEN as error:
                why = _misfit(error)
        return Row(path, entry.kind, call, work, why=why)


def _misfit(error: Exception) -> str:
    return f"its operands do not fit the operator ({str(error) or type(error).__name__})"


def _is_negative(work: Work) -> bool:
    numbers = (work.macs, work.other_flops, work.transcendentals, work.read_bytes or 0,
               work.written_bytes or 0)  # fmt: skip
    return min(numbers) < 0


def _fill(
    results: Sequence[Tensor | None],
    better: Sequence[Tensor | None],
    names: list[str],
    *,
    over: bool = False,
) -> list[Tensor | None]:
    """Put known types in for unknown ones."""
    filled: list[Tensor | None] = []
    for place, name in enumerate(names):
        now = results[place] if place < len(results) else None
        new = better[place] if place < len(better) else None
        if name and new is not None and new.is_known and (over or now is None or not now.is_known):
            now = replace(new, name=name, is_weight=False, ident=now.ident if now else new.ident)
        filled.append(now if name else None)
    return filled


def _set_value(result: Tensor, value: Any) -> None:
    result.value = value
    result.dims = tuple(value.shape)
    if not result.elem:
        elem = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
        made = from_type(result.name, onnx.helper.make_tensor_type_proto(elem, value.shape), {})
        result.elem, result.dtype = made.elem, made.dtype


def as_standard(node: NodeProto, op_type: str, version: int) -> NodeProto:
    """The node as the standard operator it extends, with the attributes that one has."""
    schema = schema_of(op_type, version, "")
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.domain, copy.op_type = "", op_type
    del copy.attribute[:]
    copy.attribute.extend(
        a for a in node.attribute if schema is not None and a.name in schema.attributes
    )
    return copy


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
    opsets = {plain_domain(o.domain): o.version for o in model.opset_import}
    known = {(f.domain, f.name): f for f in model.functions}
    walk = Walk(path=path, bound=bound, opsets=opsets, functions=known, causal=causal)
    scope = Scope()
    for value in real_inputs(model.graph):
        walk.inputs[value.name] = from_type(value.name, named(value), bound.sizes)
    walk.inputs = with_values(walk.inputs, values, bound.unused)
    for tensor in walk.inputs.values():
        scope.add(tensor)
    declared = {
        value.name: tensor
        for value in (*model.graph.value_info, *model.graph.output)
        if (tensor := from_type(value.name, value.type, bound.sizes)).is_known
    }
    results = walk.graph(model.graph, scope, prefix="", declared=declared)
    walk.outputs = {o.name: t for o, t in zip(model.graph.output, results, strict=True)}
    if walk.asked_for:
        raise control.missing_passes(walk.asked_for)
    return walk


def named(value: ValueInfoProto) -> TypeProto:
    """An input's type, with our names for the dimensions that have none."""
    kind = onnx.TypeProto()
    kind.CopyFrom(value.type)
    tensor = item_type(kind)
    if tensor is not None:
        for index, dim in enumerate(tensor.shape.dim):
            if is_open(dim) and not dim.dim_param:
                dim.dim_param = unnamed(value.name, index)
    return kind
