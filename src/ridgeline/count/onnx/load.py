"""From a file to a checked model: no weights are read, external data are never opened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

from ridgeline.count.onnx.dims import LARGEST, tensor_type
from ridgeline.count.onnx.needed import onnx_needed
from ridgeline.count.onnx.skeleton import broken, read_skeleton
from ridgeline.errors import RidgelineError

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

EXTERNAL = 1  # TensorProto.DataLocation
MOST_DIMS = 64  # numpy's own limit
# operators whose attributes are graphs; control.py walks them
WITH_GRAPHS = frozenset({"If", "Loop", "Scan", "SequenceMap", "FlexAttention"})


def load(path: Path) -> ModelProto:
    """Read a model's graph; refuse what cannot be counted with one clear error."""
    with onnx_needed():
        import onnx
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    if not path.exists():
        raise RidgelineError(f"there is no file {path}", hint="check the name of the .onnx file")
    if not path.is_file():
        raise RidgelineError(f"{path} is not a file", hint="name an .onnx file")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(read_skeleton(path))
    except DecodeError as error:
        raise broken(path, "its bytes are not those of an ONNX model") from error
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise broken(path, "it has no graph")
    for tensor in _stored(model.graph):
        _check_tensor(path, tensor)
    if not all(isinstance(text, str) for text in _texts(model)):
        raise broken(path, "a name in it is not text")
    return model


def _texts(model: ModelProto) -> Iterator[object]:
    """All names; protobuf hands on what is not UTF-8 as bytes."""
    yield from (opset.domain for opset in model.opset_import)
    yield from _names(model.graph.node)
    yield from _types(model.graph)
    yield from (tensor.name for tensor in model.graph.initializer)
    for function in model.functions:
        yield from (function.domain, function.name, *function.input, *function.output)
        yield from _names(function.node)


def _names(nodes: Iterable[NodeProto]) -> Iterator[object]:
    for node in nodes:
        yield from (node.op_type, node.domain, node.name, *node.input, *node.output)
        for entry in node.metadata_props:
            yield from (entry.key, entry.value)
        for attribute in node.attribute:
            yield from (attribute.name, attribute.ref_attr_name)
            for graph in subgraphs_of(attribute):
                yield from _names(graph.node)
                yield from _types(graph)
                yield from (tensor.name for tensor in graph.initializer)


def _types(graph: GraphProto) -> Iterator[object]:
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield value.name
        kind = tensor_type(value.type)
        if kind is not None:
            yield from (dim.dim_param for dim in kind.shape.dim)


def _stored(graph: GraphProto) -> Iterator[TensorProto]:
    """Every tensor kept in the graph and in the graphs inside it."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values
        yield sparse.indices
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for inner in subgraphs_of(attribute):
                yield from _stored(inner)


def subgraphs_of(attribute: AttributeProto) -> list[GraphProto]:
    """The graphs that an attribute holds."""
    return [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]


def _check_tensor(path: Path, tensor: TensorProto) -> None:
    if len(tensor.dims) > MOST_DIMS or any(not 0 <= d <= LARGEST for d in tensor.dims):
        raise broken(path, f"the tensor {tensor.name!r} has impossible dimensions")
    if tensor.data_location != EXTERNAL:
        return
    for entry in tensor.external_data:
        if entry.key == "location" and _leaves(entry.value):
            raise RidgelineError(
                f"{path}: the data of {tensor.name!r} are said to be at {entry.value!r},"
                " outside of the model's folder",
                hint="do not trust this file; external data must lie beside the model",
            )


def _leaves(location: str) -> bool:
    """Whether a path of external data could lead out of the model's folder."""
    posix, windows = PurePosixPath(location), PureWindowsPath(location)
    return (
        posix.is_absolute()
        or windows.is_absolute()
        or bool(windows.drive)
        or ".." in posix.parts
        or ".." in windows.parts
        or "\0" in location
    )


def ordered(graph: GraphProto, outer: frozenset[str] | set[str], path: str) -> list[NodeProto]:
    """The nodes such that each comes after those it needs; a cycle is an error.

    Nearly every file is in order already, and then this is one pass.
    """
    known = {""} | {t.name for t in graph.initializer} | {i.name for i in graph.input}
    known |= {s.values.name for s in graph.sparse_initializer} | set(outer)
    nodes = list(graph.node)
    if _in_order(nodes, known):
        return nodes
    return _sorted(nodes, known, path)


def needs(node: NodeProto) -> set[str]:
    """Names that a node uses, also from within its subgraphs."""
    names = set(node.input)
    for attribute in node.attribute:
        for graph in subgraphs_of(attribute):
            names |= free_names(graph)
    return names


def free_names(graph: GraphProto) -> set[str]:
    """Names that a graph takes from around it."""
    own = {t.name for t in graph.initializer} | {i.name for i in graph.input}
    used: set[str] = {o.name for o in graph.output}
    for node in graph.node:
        used |= needs(node)
        own |= set(node.output)
    return used - own


def _in_order(nodes: list[NodeProto], known: set[str]) -> bool:
    seen = set(known)
    for node in nodes:
        if any(name not in seen for name in node.input) or (
            node.op_type in WITH_GRAPHS and not needs(node) <= seen
        ):
            return False
        seen.update(node.output)
    return True


def _sorted(nodes: list[NodeProto], known: set[str], path: str) -> list[NodeProto]:
    maker = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    wants = [{maker[n] for n in needs(node) if n in maker and n not in known} for node in nodes]
    users: list[list[int]] = [[] for _ in nodes]
    for i, before in enumerate(wants):
        for j in before:
            users[j].append(i)
    waiting = [len(before) for before in wants]
    ready = [i for i, count in enumerate(waiting) if not count][::-1]
    order: list[NodeProto] = []
    while ready:
        i = ready.pop()
        order.append(nodes[i])
        for j in users[i]:
            waiting[j] -= 1
            if not waiting[j]:
                ready.append(j)
    if len(order) < len(nodes):
        stuck = next(i for i, count in enumerate(waiting) if count)
        name = nodes[stuck].name or nodes[stuck].op_type
        raise RidgelineError(
            f"{path}: the graph has a cycle through node {name!r}",
            hint="an ONNX graph has none; `onnx.checker.check_model` says more",
        )
    return order
