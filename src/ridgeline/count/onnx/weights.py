"""Which stored tensors are parameters, which are buffers: the file does not say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ridgeline.count.onnx.node import Tensor
from ridgeline.count.onnx.walk import Row

# operands that are settings or statistics, never learned
NOT_LEARNED: dict[str, tuple[int, ...]] = {
    "BatchNormalization": (3, 4), "Resize": (1, 2, 3), "Upsample": (1,), "Clip": (1, 2),
    "Pad": (1, 2), "Reshape": (1,), "Expand": (1,), "Slice": (1, 2, 3, 4), "OneHot": (1, 2),
    "QuantizeLinear": (1, 2), "DequantizeLinear": (1, 2), "QLinearConv": (1, 2, 4, 5, 6, 7),
    "QLinearMatMul": (1, 2, 4, 5, 6, 7), "Dropout": (1, 2), "Pow": (1,), "Range": (0, 1, 2),
    "STFT": (2,), "Tile": (1,), "NonMaxSuppression": (0, 1, 2, 3, 4),
    "TopK": (1,), "Where": (0,), "RotaryEmbedding": (1, 2, 3),
}  # fmt: skip


@dataclass(slots=True)
class Stored:
    """The stored tensors, each once however many nodes use it."""

    params: dict[int, Tensor] = field(default_factory=dict)  # by ident
    buffers: dict[int, Tensor] = field(default_factory=dict)
    used_by: dict[int, str] = field(default_factory=dict)  # path of the first node that uses it

    @property
    def param_count(self) -> int:
        return sum(t.numel for t in self.params.values())

    @property
    def param_bytes(self) -> int:
        return sum(t.nbytes for t in self.params.values())

    @property
    def buffer_bytes(self) -> int:
        return sum(t.nbytes for t in self.buffers.values())


def stored_tensors(rows: Iterable[Row]) -> Stored:
    """A parameter is floating-point (or a matrix of small integers), has a dimension, and is
    used at least once where something learned can stand."""
    found: dict[int, Tensor] = {}
    learned: set[int] = set()
    answer = Stored()
    for row in rows:
        call = row.call
        settings = NOT_LEARNED.get(call.op_type, ())
        for place, tensor in enumerate(call.operands):
            if tensor is None or not tensor.is_weight:
                continue
            found[tensor.ident] = tensor
            answer.used_by.setdefault(tensor.ident, row.path)
            if place not in settings and _can_be_learned(tensor):
                learned.add(tensor.ident)
    for ident, tensor in found.items():
        (answer.params if ident in learned else answer.buffers)[ident] = tensor
    return answer


def _can_be_learned(tensor: Tensor) -> bool:
    if tensor.is_float:
        return bool(tensor.shape)
    return tensor.dtype.is_integer and tensor.dtype.bits <= 8 and len(tensor.shape) > 1
