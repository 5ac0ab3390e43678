"""From a file to a checked model: only small tensors are read, external data never."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.errors import RidgelineError
from ridgeline.onnx.dims import LARGEST, MOST_DIMS, tensor_type
from ridgeline.onnx.skeleton import broken, read_skeleton

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

MOST_INPUT_DIMS = 1_000_000  # of all inputs, weights among them
# operators whose attributes are graphs; graph.py walks them
WITH_GRAPHS = frozenset({"If", "Loop", "Scan", "SequenceMap"})


@contextmanager
def require_onnx() -> Iterator[None]:
    """Around imports of onnx, or of modules that import it: say how to install it."""
    try:
        yield
    except ImportError as error:
        raise RidgelineError(
            f"onnx cannot be imported: {' '.join(str(error).split())}",
            hint="pip install 'ridgeline[onnx]'",
        ) from error


def load(path: Path) -> ModelProto:
    """Read a model's graph; refuse what cannot be counted with one clear error."""
    with require_onnx():
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
    _check_message(path, model)
    _check_inputs(path, model.graph)
    return model


def _check_message(path: Path, message: Any) -> None:
    """All names and tensors in the file, also in functions that nothing calls, and for training."""
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING:
            texts = [value] if isinstance(value, str | bytes) else value
            if not all(isinstance(text, str) for text in texts):  # protobuf gives bytes then
                raise broken(path, "a name in it is not text")
        elif field.type == field.TYPE_MESSAGE:
            for inner in [value] if hasattr(value, "ListFields") else value:
                if field.message_type.name == "TensorProto" and (
                    len(inner.dims) > MOST_DIMS or not all(0 <= d <= LARGEST for d in inner.dims)
                ):
                    raise broken(path, f"the tensor {inner.name!r} has impossible dimensions")
                _check_message(path, inner)


def subgraphs_of(attribute: AttributeProto) -> list[GraphProto]:
    """The graphs that an attribute holds."""
    return [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]


def _check_inputs(path: Path, graph: GraphProto) -> None:
    total = 0
    for value in graph.input:
        kind = tensor_type(value.type)
        sides = [dim.dim_value for dim in kind.shape.dim] if kind is not None else []
        total += len(sides)
        if len(sides) > MOST_DIMS or max(sides, default=0) > LARGEST or total > MOST_INPUT_DIMS:
            raise broken(path, f"the input {value.name!r} has too many or too large dimensions")


def own_names(graph: GraphProto) -> set[str]:
    """Names that a graph has before its first node: inputs and stored tensors."""
    stored = {t.name for t in graph.initializer} | {s.values.name for s in graph.sparse_initializer}
    return stored | {i.name for i in graph.input}


def order_nodes(
    nodes: Iterable[NodeProto],
    own: set[str],
    results: Iterable[str],
    path: str,
    *,
    is_outside: Callable[[str], bool] = lambda name: False,
) -> list[NodeProto]:
    """The nodes such that each comes after those it needs; `is_outside` knows names around.

    A cycle, a name that nothing writes and a name that is written twice are errors. Nearly every
    file is in order already, and then this is one pass.
    """
    nodes, own = list(nodes), {"", *own}
    makers = _find_makers(nodes, own, path)
    seen, is_ordered = set(own), True
    for node in nodes:
        names = needs(node) if node.op_type in WITH_GRAPHS else node.input
        for name in names:
            if name in seen or is_outside(name):
                continue
            if name not in makers:
                raise _undefined(path, f"node {_label(node)!r} reads {name!r}, which nothing makes")
            is_ordered = False
        seen.update(node.output)
    for name in results:
        if name not in seen and not is_outside(name):
            raise _undefined(path, f"nothing makes the result {name!r}")
    return nodes if is_ordered else _sort(nodes, makers, path)


def _find_makers(nodes: list[NodeProto], own: set[str], path: str) -> dict[str, int]:
    """The number of the node that writes each name; a name is written once, and is not an input."""
    makers: dict[str, int] = {}
    for number, node in enumerate(nodes):
        for name in filter(None, node.output):
            if name in makers or name in own:
                raise RidgelineError(
                    f"{path}: {name!r} is made more than once, here by node {_label(node)!r}",
                    hint="every name of an ONNX graph is made once; export the model again",
                )
            makers[name] = number
    return makers


def _sort(nodes: list[NodeProto], makers: dict[str, int], path: str) -> list[NodeProto]:
    before = {
        number: {makers[name] for name in needs(node) if name in makers}
        for number, node in enumerate(nodes)
    }
    try:
        return [nodes[number] for number in TopologicalSorter(before).static_order()]
    except CycleError as error:
        raise RidgelineError(
            f"{path}: the graph has a cycle through node {_label(nodes[error.args[1][0]])!r}",
            hint="an ONNX graph has none; `onnx.checker.check_model` says more",
        ) from error


def _undefined(path: str, problem: str) -> RidgelineError:
    return RidgelineError(
        f"{path}: {problem}",
        hint="there is no input, stored tensor or node of that name; export the model again",
    )


def _label(node: NodeProto) -> str:
    return node.name or node.op_type


def needs(node: NodeProto) -> set[str]:
    """Names that a node uses, also from within its subgraphs."""
    names = set(node.input)
    for attribute in node.attribute:
        for graph in subgraphs_of(attribute):
            names |= _free_names(graph)
    return names


def _free_names(graph: GraphProto) -> set[str]:
    """Names that a graph takes from around it."""
    own = own_names(graph)
    used: set[str] = {o.name for o in graph.output}
    for node in graph.node:
        used |= needs(node)
        own |= set(node.output)
    return used - own
