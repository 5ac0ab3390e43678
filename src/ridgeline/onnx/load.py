"""From a file to a checked model: only small tensors are read, external data never.

The file is mapped, not loaded, and read at the level of protobuf's wire format: payloads of large
tensors and long notes are stepped over, so a model of any size is read in the time that its graph
takes.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.errors import RidgelineError
from ridgeline.onnx.dims import LARGEST, MOST_DIMS, tensor_type

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


# ---------------------------------------------------------------- the file without its weights

KEPT_BYTES = 1 << 16  # tensors and texts up to this size are kept: names, shapes, axes, scales
LARGEST_SKELETON = 1 << 27  # bytes kept of one file: bounds what a file made to explode can take
LONGEST_NOTE = 1 << 10  # scopes are shorter, stack traces longer
DEEPEST = 90  # protobuf's own limit is 100

VARINT, BYTES = 0, 2  # of a field's value in the wire format
FIXED = {1: 8, 5: 4}  # and those of so many bytes
MORE = 0x80  # in a byte of a number: another one follows

ENTERED: dict[str, dict[int, str]] = {  # message → its fields that are messages worth entering
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph"},
    "tensor": {},
}
LEFT_OUT: dict[str, frozenset[int]] = {
    "model": frozenset({6, 14, 20}),  # doc_string, metadata_props, training_info
    "graph": frozenset({10, 14, 16}),  # doc_string, quantization_annotation, metadata_props
    "function": frozenset({8, 12, 14}),  # doc_string, value_info, metadata_props
    "node": frozenset({6}),  # doc_string
    "attribute": frozenset({13}),  # doc_string
    "tensor": frozenset({12, 16}),  # doc_string, metadata_props
}
NOTES = 9  # of a node: its metadata_props
PAYLOAD = frozenset({4, 5, 6, 7, 9, 10, 11})  # of a tensor: raw_data and the typed lists

Chunks = list[bytes]


def read_skeleton(path: Path) -> bytes:
    """The model as protobuf bytes, without what counting does not need."""
    try:
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                raise broken(path, "it is empty")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                reader = _Reader(path, data)
                chunks = reader.strip("model", 0, len(data), 0)
    except OSError as error:
        raise RidgelineError(
            f"{path} cannot be read: {error.strerror or error}",
            hint="name an .onnx file that you may read",
        ) from error
    return b"".join(chunks)


def broken(path: Path, why: str) -> RidgelineError:
    """The error of a file that is no model, or not a whole one."""
    return RidgelineError(
        f"{path} is not a readable ONNX model: {why}",
        hint="check that the file is whole and that it is ONNX",
    )


class _Reader:
    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self.data = data
        self.kept = 0

    def strip(self, message: str, start: int, end: int, depth: int) -> Chunks:
        """The message's bytes from `start` to `end`, as chunks, without what is left out."""
        if depth > DEEPEST:
            raise broken(self.path, f"messages are nested more than {DEEPEST} deep")
        entered, left_out = ENTERED[message], LEFT_OUT[message]
        if message == "tensor" and end - start > KEPT_BYTES:
            left_out |= PAYLOAD
        chunks: Chunks = []
        run = start  # the first byte not yet copied
        for number, field_start, value_start, field_end, is_bytes in self._walk(start, end):
            inner = entered.get(number) if is_bytes else None
            if inner is None and number not in left_out:
                is_note = number == NOTES and message == "node"
                if field_end - value_start <= (LONGEST_NOTE if is_note else KEPT_BYTES):
                    continue
            self._copy(chunks, run, field_start)
            run = field_end
            if inner is not None:
                body = self.strip(inner, value_start, field_end, depth + 1)
                chunks += [_varint(number << 3 | BYTES) + _varint(sum(map(len, body))), *body]
        self._copy(chunks, run, end)
        return chunks

    def _copy(self, chunks: Chunks, start: int, end: int) -> None:
        if start == end:
            return
        self.kept += end - start
        if self.kept > LARGEST_SKELETON:
            raise broken(self.path, f"its graph alone is larger than {LARGEST_SKELETON >> 20} MiB")
        chunks.append(self.data[start:end])

    def _walk(self, start: int, end: int) -> Iterator[tuple[int, int, int, int, bool]]:
        """Number, start, start of the value, end, and whether it has a length, of each field."""
        data, at = self.data, start
        while at < end:
            field_start = at
            key, at = data[at], at + 1  # most numbers have one byte: no call for those
            if key >= MORE:
                key, at = self._number(field_start, end)
            value_start, wire = at, key & 7
            if wire == BYTES:
                size, value_start = (data[at], at + 1) if at < end else (MORE, at)
                if size >= MORE:
                    size, value_start = self._number(at, end)
                at = value_start + size
            elif wire == VARINT:
                _, at = self._number(at, end)
            elif wire in FIXED:
                at += FIXED[wire]
            else:
                raise broken(self.path, "its bytes are not protobuf")
            if at > end or key >> 3 == 0:
                raise broken(self.path, "it ends too early, or its bytes are not protobuf")
            yield key >> 3, field_start, value_start, at, wire == BYTES

    def _number(self, at: int, end: int) -> tuple[int, int]:
        value = shift = 0
        while at < end and shift < 64:
            byte = self.data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < MORE:
                return value, at
            shift += 7
        raise broken(self.path, "it ends too early, or its bytes are not protobuf")


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value >= MORE:
        parts.append(value & 0x7F | MORE)
        value >>= 7
    parts.append(value)
    return bytes(parts)
