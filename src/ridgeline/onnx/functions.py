"""Functions of the model itself: their bodies take the place of the calls."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import zip_longest
from typing import TYPE_CHECKING

import onnx

from ridgeline.errors import RidgelineError
from ridgeline.onnx.infer import number_of
from ridgeline.onnx.load import ordered, subgraphs_of
from ridgeline.onnx.node import NodeCall, Tensor
from ridgeline.onnx.scope import Scope

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, NodeProto

    from ridgeline.onnx.walk import Walk

Given = dict[str, "AttributeProto"]
Key = tuple[str, str, str]  # domain, name, overload


def by_key(functions: Iterable[FunctionProto], path: str) -> dict[Key, FunctionProto]:
    """Those of a model; several may have one name, told apart by their overload."""
    found: dict[Key, FunctionProto] = {}
    for function in functions:
        key = (function.domain, function.name, function.overload)
        if key in found:
            raise RidgelineError(
                f"{path}: it has the function {'::'.join(filter(None, key))!r} more than once",
                hint="which one is meant cannot be told; export the model again",
            )
        found[key] = function
    return found


def called_by(node: NodeProto) -> Key:
    """What a node would call, if the model has it."""
    return node.domain, node.op_type, node.overload


def expand(
    walk: Walk, function: FunctionProto, call: NodeCall, node: NodeProto, path: str
) -> list[Tensor]:
    """Walk the function's nodes with the call's operands and attributes."""
    scope = Scope()
    operands = call.operands[: len(function.input)]
    given_operands = dict(zip_longest(function.input, operands))
    scope.values = {name: t for name, t in given_operands.items() if t is not None}
    absent = given_operands.keys() - scope.values.keys()
    given = {a.name: a for a in function.attribute_proto} | {a.name: a for a in node.attribute}
    with walk.limits.inside(path), _own_opsets(walk, function):
        nodes = ordered(function.node, set(function.input), function.output, walk.path)
        for place, inner in enumerate(nodes):
            walk.node(bound(inner, given, absent), place, scope, path, {})
    return [scope.value(name) for name in function.output]


@contextmanager
def _own_opsets(walk: Walk, function: FunctionProto) -> Iterator[None]:
    """Inside of a function its own versions of operators hold."""
    outer = walk.opsets
    walk.opsets = outer.with_those_of(function.opset_import)
    try:
        yield
    finally:
        walk.opsets = outer


def bound(node: NodeProto, given: Given, absent: Collection[str] = ()) -> NodeProto:
    """The node with the caller's attributes in place of references to them.

    Inputs of the function that the caller leaves out are left out of the node, too.
    """
    if not _refers(node) and not _uses(node, absent):
        return node
    own = onnx.NodeProto()
    own.CopyFrom(node)
    own.input[:] = ["" if name in absent else name for name in node.input]
    del own.attribute[:]
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            if attribute.ref_attr_name in given:
                added = own.attribute.add()
                added.CopyFrom(_numbered(given[attribute.ref_attr_name]))
                added.name = attribute.name
            continue
        added = own.attribute.add()
        added.CopyFrom(attribute)
        for graph in subgraphs_of(added):
            inner = [bound(n, given, absent) for n in graph.node]
            del graph.node[:]
            graph.node.extend(inner)
    return own


def _numbered(attribute: AttributeProto) -> AttributeProto:
    """So that copies are of the same tensor."""
    number_of(attribute.t if attribute.HasField("t") else attribute)
    return attribute


def _refers(node: NodeProto) -> bool:
    return any(
        a.ref_attr_name or any(_refers(n) for g in subgraphs_of(a) for n in g.node)
        for a in node.attribute
    )


def _uses(node: NodeProto, names: Collection[str]) -> bool:
    """Whether the node, or one in a graph of its own, takes one of these."""
    return bool(names) and (
        any(name in names for name in node.input)
        or any(_uses(n, names) for a in node.attribute for g in subgraphs_of(a) for n in g.node)
    )
