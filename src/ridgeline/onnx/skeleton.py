"""An ONNX file without its weights, read at the level of protobuf's wire format.

The file is mapped, not loaded. Payloads of large tensors, long notes and value types are stepped
over, so a model of any size is read in the time that its graph takes. Everything that is kept is
counted as what it will take once it is parsed, so a file made to explode is refused before that.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

from ridgeline.errors import RidgelineError

KEPT_BYTES = 1 << 16  # tensors up to this size keep their values: shapes, axes, scales
LARGEST_SKELETON = 1 << 28  # bytes kept of one file: bounds the memory of a file made to explode
MOST_FIELDS = 5_000_000  # likewise the time; each number of a list is one
MOST_NODES = 500_000
LONGEST_TEXT = 1 << 16  # bytes of a name; real ones have some dozen
LARGEST_TYPES = 1 << 24  # bytes of all value types; each takes some 20 times that once parsed
DEEPEST = 90  # protobuf's own limit is 100

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

# message → its fields that are messages worth entering, and the fields that are left out
ENTERED: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},  # not counted; its tensors are looked at
    "graph": {1: "node", 5: "tensor", 11: "value", 12: "value", 13: "value", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute", 9: "note"},
    "attribute": {
        5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 14: "type", 15: "type", 22: "sparse",
        23: "sparse",
    },
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {},
    "value": {2: "type"},
    "type": {1: "shaped", 4: "item", 5: "map", 8: "shaped", 9: "item"},
    "item": {1: "type"},  # of a sequence or an optional
    "map": {2: "type"},
    "shaped": {2: "shape"},
    "shape": {1: "side"},
    "side": {},
}  # fmt: skip
# entered only where they are long: files have many, and most take a few dozen bytes
WHERE_LONG = frozenset({"value", "type", "item", "map", "shaped", "shape", "side"})
LEFT_OUT: dict[str, frozenset[int]] = {
    "model": frozenset({6, 14}),  # doc_string, metadata_props
    "training": frozenset({3, 4}),  # initialization_binding, update_binding
    "graph": frozenset({10, 14, 16}),  # doc_string, quantization_annotation, metadata_props
    "function": frozenset({8, 12, 14}),  # doc_string, value_info, metadata_props
    "node": frozenset({6}),  # doc_string
    "attribute": frozenset({13}),  # doc_string
    "tensor": frozenset({12, 16}),  # doc_string, metadata_props
    "value": frozenset({3, 4}),  # doc_string, metadata_props
    "type": frozenset({6}),  # denotation
    "side": frozenset({3}),  # denotation
}
NAMES: dict[str, frozenset[int]] = {  # these are needed, so a file with a longer one is refused
    "model": frozenset({8}),  # opset_import
    "function": frozenset({1, 4, 5, 6, 9, 10, 13}),
    "node": frozenset({1, 2, 3, 4, 7, 8}),
    "attribute": frozenset({1, 9, 21}),  # name, strings, ref_attr_name
    "tensor": frozenset({8, 13}),  # name, external_data
    "value": frozenset({1}),  # name
    "side": frozenset({2}),  # its symbol
}
TYPES = {"graph": frozenset({11, 12, 13}), "attribute": frozenset({14, 15})}
VALUE_INFO = 13  # of a graph: what it says of a shape is the last resort
WHOLE = {"attribute": 8, "tensor": 1, "sparse": 3}  # lists of whole numbers: ints and dims
FLOATS = {"attribute": 7}
PAYLOAD = frozenset({4, 5, 6, 7, 9, 10, 11})  # of a tensor: raw_data and the typed lists
WHOLE_PAYLOAD = frozenset({5, 7, 11})  # a byte of these becomes a number of up to eight
ENDS = bytes(range(0x80, 0x100))  # all but the last byte of a number
LONGEST_NOTE = 1 << 10  # scopes are shorter, stack traces longer
LONG = 1 << 12  # bytes

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
        self.fields = 0
        self.kept = 0
        self.nodes = 0
        self.types = 0

    def strip(self, message: str, start: int, end: int, depth: int) -> Chunks:
        """The message's bytes from `start` to `end`, as chunks, without what is left out."""
        if depth > DEEPEST:
            raise broken(self.path, f"messages are nested more than {DEEPEST} deep")
        if message == "node":
            self.nodes += 1
            if self.nodes > MOST_NODES:
                raise broken(self.path, f"it has more than {MOST_NODES:,} nodes")
        entered, bulky = ENTERED[message], message == "tensor" and end - start > KEPT_BYTES
        chunks: Chunks = []
        run = start  # the first byte not yet copied
        for number, field_start, value_start, field_end, is_bytes in self._walk(start, end):
            inner = entered.get(number) if is_bytes else None
            drop = bulky and number in PAYLOAD
            if inner == "note":
                drop, inner = field_end - value_start > LONGEST_NOTE, None
            elif is_bytes and not drop:
                if inner in WHERE_LONG and field_end - value_start <= LONG:
                    inner = None
                if inner is None:
                    drop = self._is_left_out(message, number, value_start, field_end)
            if inner is None and not drop:
                continue
            self._copy(chunks, run, field_start)
            run = field_end
            if not drop and inner is not None:
                body = self.strip(inner, value_start, field_end, depth + 1)
                size = sum(map(len, body))
                if self._is_type_left_out(message, number, size):
                    continue
                chunks += [_varint(number << 3 | BYTES) + _varint(size), *body]
        self._copy(chunks, run, end)
        return chunks

    def _is_left_out(self, message: str, number: int, start: int, end: int) -> bool:
        """Whether a field is not needed; one that is, and is too large, is an error."""
        size = end - start
        if number in LEFT_OUT.get(message, ()):
            return True
        if self._is_type_left_out(message, number, size):
            return True
        if number in (WHOLE.get(message), FLOATS.get(message)):
            self._count(start, end, is_whole=number == WHOLE.get(message))
            return False
        if message == "tensor" and number in WHOLE_PAYLOAD:
            self.kept += 7 * size
        if number not in NAMES.get(message, ()):
            return size > LONGEST_TEXT
        if size > LONGEST_TEXT:
            raise broken(self.path, f"a name in it is longer than {LONGEST_TEXT >> 10} KiB")
        self.kept += size  # protobuf's copy and Python's
        return False

    def _is_type_left_out(self, message: str, number: int, size: int) -> bool:
        """Whether a field is a type, and one too many."""
        if number not in TYPES.get(message, ()):
            return False
        self.types += size
        if self.types <= LARGEST_TYPES:
            return False
        if message == "graph" and number != VALUE_INFO:
            raise broken(
                self.path, f"its inputs and outputs take more than {LARGEST_TYPES >> 20} MiB"
            )
        return True

    def _count(self, start: int, end: int, *, is_whole: bool) -> None:
        """The numbers of a list that is one field, as if each had a field of its own."""
        size = (end - start) // (10 if is_whole else 4)  # at least so many
        if is_whole and size <= MOST_FIELDS:
            size = len(self.data[start:end].translate(None, ENDS))
        self.fields += size
        self._check_fields()

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
            self.fields += 1
            if self.fields > MOST_FIELDS:
                self._check_fields()
            field_start = at
            key = data[at]
            at += 1
            if key >= 0x80:
                key, at = self._number(field_start, end)
            wire = key & 7
            if wire == BYTES:
                size = data[at] if at < end else 0x80
                at += 1
                if size >= 0x80:
                    size, at = self._number(at - 1, end)
                value_start, at = at, at + size
            elif wire == VARINT:
                value_start = at
                _, at = self._number(at, end)
            elif wire in (FIXED32, FIXED64):
                value_start, at = at, at + (4 if wire == FIXED32 else 8)
            else:
                raise broken(self.path, "its bytes are not protobuf")
            if at > end or key >> 3 == 0:
                raise broken(self.path, "it ends too early, or its bytes are not protobuf")
            yield key >> 3, field_start, value_start, at, wire == BYTES

    def _check_fields(self) -> None:
        if self.fields > MOST_FIELDS:
            raise broken(self.path, f"it has more than {MOST_FIELDS:,} fields")

    def _number(self, at: int, end: int) -> tuple[int, int]:
        value = shift = 0
        while at < end and shift < 64:
            byte = self.data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
            shift += 7
        raise broken(self.path, "it ends too early, or its bytes are not protobuf")


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
