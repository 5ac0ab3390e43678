"""From a file to a checked model: only small tensors are read, external data never."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.errors import RidgelineError
from ridgeline.onnx.dims import LARGEST, MOST_DIMS, tensor_type
from ridgeline.onnx.skeleton import broken, read_skeleton

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

MOST_INPUT_DIMS = 1_000_000  # of all inputs, weights among them


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


def check_order(nodes: Sequence[NodeProto], path: str) -> None:
    """Refuse a graph whose nodes are not in the order of their work, or are in a cycle."""
    makers = {name: number for number, node in enumerate(nodes) for name in node.output if name}
    for number, node in enumerate(nodes):
        if late := [name for name in node.input if makers.get(name, -1) >= number]:
            raise RidgelineError(
                f"{path}: node {(node.name or node.op_type)!r} uses {late[0]!r} before it is made",
                hint="ONNX wants nodes in order and without cycles; `onnx.checker.check_model`"
                " says more",
            )
