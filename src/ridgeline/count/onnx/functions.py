"""Functions of the model itself: their bodies take the place of the calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx

from ridgeline.count.onnx.load import ordered, subgraphs_of
from ridgeline.count.onnx.node import NodeCall, Tensor, plain_domain, unknown_tensor
from ridgeline.count.onnx.scope import Scope

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, NodeProto

    from ridgeline.count.onnx.walk import Walk

Given = dict[str, "AttributeProto"]


def expand(
    walk: Walk, function: FunctionProto, call: NodeCall, node: NodeProto, path: str
) -> list[Tensor | None]:
    """Walk the function's nodes with the call's operands and attributes."""
    walk.enter(path)
    scope = Scope()
    for name, operand in zip(function.input, call.operands, strict=False):
        if operand is not None:
            scope.values[name] = operand
    given = {a.name: a for a in function.attribute_proto} | {a.name: a for a in node.attribute}
    outer, outer_imports = walk.opsets, walk.imports
    walk.opsets = {**outer, **{plain_domain(o.domain): o.version for o in function.opset_import}}
    walk.imports = [onnx.helper.make_opsetid(d, v) for d, v in walk.opsets.items()]
    nodes = ordered(function.node, set(function.input), function.output, walk.path)
    for place, inner in enumerate(nodes):
        walk.node(bound(inner, given), place, scope, path, {})
    walk.opsets, walk.imports = outer, outer_imports
    walk.depth -= 1
    return [scope.find(name) or unknown_tensor(name) for name in function.output]


def bound(node: NodeProto, given: Given) -> NodeProto:
    """The node with the caller's attributes in place of references to them."""
    if not _refers(node):
        return node
    own = onnx.NodeProto()
    own.CopyFrom(node)
    del own.attribute[:]
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            if attribute.ref_attr_name in given:
                added = own.attribute.add()
                added.CopyFrom(given[attribute.ref_attr_name])
                added.name = attribute.name
            continue
        added = own.attribute.add()
        added.CopyFrom(attribute)
        for graph in subgraphs_of(added):
            inner = [bound(n, given) for n in graph.node]
            del graph.node[:]
            graph.node.extend(inner)
    return own


def _refers(node: NodeProto) -> bool:
    return any(
        a.ref_attr_name or any(_refers(n) for g in subgraphs_of(a) for n in g.node)
        for a in node.attribute
    )
