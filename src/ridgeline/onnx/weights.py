"""Which stored tensors are parameters, which are buffers: the file does not say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ridgeline.onnx.blocked import NCHWC, without_padding
from ridgeline.onnx.node import Constants, NodeCall, Tensor
from ridgeline.onnx.row import Row
from ridgeline.onnx.shapes import packed_bits, packed_product, packed_widths
from ridgeline.onnx.unlearned import (
    first_states,
    is_matrix,
    is_of_code,
    is_of_plain_norm,
    is_table_of_waves,
    is_wave,
    waves_in_pairs,
)

# operands that are settings or statistics, never learned
NOT_LEARNED: dict[str, tuple[int, ...]] = {
    "BatchNormalization": (3, 4), "Resize": (1, 2, 3), "Upsample": (1,), "Clip": (1, 2),
    "Pad": (1, 2), "Reshape": (1,), "Expand": (1,), "Slice": (1, 2, 3, 4), "OneHot": (1, 2),
    "QuantizeLinear": (1, 2), "DequantizeLinear": (1, 2), "QLinearConv": (1, 2, 4, 5, 6, 7),
    "QLinearMatMul": (1, 2, 4, 5, 6, 7), "Dropout": (1, 2), "Pow": (1,), "Range": (0, 1, 2),
    "STFT": (2,), "Tile": (1,), "NonMaxSuppression": (0, 1, 2, 3, 4),
    "TopK": (1,), "Where": (0,), "RotaryEmbedding": (1, 2, 3),
    # tables of cosines and sines; scales of a quantised cache
    "GroupQueryAttention": (7, 8, 12, 13), "SparseAttention": (9, 10),
    "PagedAttention": (8, 9, 14, 15), "SparsePagedAttention": (14, 15, 19, 20),
    "DynamicSparseAttention": (11, 12), "SparseAttentionIndexer": (4, 5),
    "PackedSparseAttentionIndexer": (4, 5),
    # scales, zero points and the order of groups of weights that are stored quantised
    "MatMulNBits": (2, 3, 4), "MatMulBnb4": (2,), "MatMulFpQ4": (2,), "MatMulNBitsMlp": (4, 7),
    "MatMulNBitsQkv": (4, 7, 10), "MatMulBlockQuantizedFp4Weight": (2, 3, 4),
    "MatMulBlockQuantizedFp8Weight": (2, 3), "QOrderedMatMul": (1, 3, 4, 7),
    "QOrderedAttention": (1, 2, 3, 4, 8, 9, 10, 14, 15, 16), "QOrderedGelu": (1, 2),
    "QOrderedLayerNormalization": (1, 4), "MRotaryEmbedding": (1, 2, 3),
    "QMoE": (3, 6, 9, 11, 12, 13), "GatherBlockQuantized": (2, 3), "QGemm": (1, 2, 4, 5, 7, 8),
    "QAttention": (3, 4, 6, 7), "MatMulIntegerToFloat": (2, 3, 4, 5),
    "DynamicQuantizeMatMul": (2, 3), "DynamicQuantizeLSTM": (8, 9, 10, 11),
    "QLinearAdd": (1, 2, 4, 5, 6, 7), "QLinearMul": (1, 2, 4, 5, 6, 7),
    "QEmbedLayerNormalization": tuple(range(8, 18)),
}  # fmt: skip
RECURRENT = ("LSTM", "GRU", "RNN", "DynamicQuantizeLSTM")
FIRST_STATES = (5, 6)
# operands whose bytes hold several weights each
PACKED: dict[str, tuple[int, ...]] = {
    "MatMulNBits": (1,), "MatMulBnb4": (1,), "MatMulFpQ4": (1,), "QMoE": (2, 5, 8),
    "GatherBlockQuantized": (0,), "MatMulNBitsMlp": (3, 6), "MatMulNBitsQkv": (3, 6, 9),
    "MatMulBlockQuantizedFp4Weight": (1,),
}  # fmt: skip


@dataclass(slots=True)
class Stored:
    """The stored tensors, each once however many nodes use it."""

    params: dict[int, Tensor] = field(default_factory=dict)  # by ident
    buffers: dict[int, Tensor] = field(default_factory=dict)
    used_by: dict[int, str] = field(default_factory=dict)  # path of the first node that uses it
    packed: dict[int, int] = field(default_factory=dict)  # weights in a tensor of packed bytes
    taken: set[int] = field(default_factory=set)  # those that a node which is counted uses

    @property
    def param_count(self) -> int:
        return sum(map(self.weights_in, self.params))

    def weights_in(self, ident: int) -> int:
        """How many parameters a stored tensor is."""
        return self.packed.get(ident, self.params[ident].numel)

    @property
    def trained(self) -> dict[int, Tensor]:
        """Parameters that a step changes."""
        return {i: t for i, t in self.params.items() if t.is_float and i in self.taken}

    @property
    def param_bytes(self) -> int:
        return sum(t.nbytes for t in self.params.values())

    @property
    def buffer_bytes(self) -> int:
        return sum(t.nbytes for t in self.buffers.values())


def stored_tensors(rows: Sequence[Row]) -> Stored:
    """A parameter is floating-point (or a matrix of small integers), has a dimension, and is
    used at least once where something learned can stand; packed weights count one by one."""
    found: dict[int, Tensor] = {}
    learned: set[int] = set()
    answer = Stored()
    settings, waves = _Settings(rows), waves_in_pairs(rows)
    for number, row in enumerate(rows):
        call = row.call
        for place, tensor in enumerate(call.operands):
            if tensor is None or not tensor.is_weight:
                continue
            found[tensor.ident] = tensor
            answer.used_by.setdefault(tensor.ident, row.path)
            if row.is_taken:
                answer.taken.add(tensor.ident)
            if row.work is not None and place in PACKED.get(call.op_type, ()):
                answer.packed[tensor.ident] = _unpacked(call, place, tensor)
                learned.add(tensor.ident)
            if row.work is not None and call.domain == NCHWC:
                answer.packed[tensor.ident] = without_padding(call).given(place).numel
            if tensor.ident in waves or settings.has(number, place, tensor):
                continue
            if _can_be_learned(tensor):
                learned.add(tensor.ident)
    for ident, tensor in found.items():
        (answer.params if ident in learned else answer.buffers)[ident] = tensor
    return answer


class _Settings:
    """Uses of values, by node and place, where nothing that is learned can stand."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        self.constants = Constants(row.call for row in rows)
        self.states = first_states(rows, self.constants)
        self.making = set[int]()  # nodes of whose results all uses are settings, as of shapes
        used: set[int] = set()
        used_otherwise: set[int] = set()
        for number in reversed(range(len(rows))):
            call = rows[number].call
            idents = {t.ident for t in call.outputs}
            is_constant = all(t in self.constants for t in call.outputs)
            if idents & used and not idents & used_otherwise and is_constant:
                self.making.add(number)
            for place, tensor in enumerate(call.operands):
                if tensor is None:
                    continue
                used.add(tensor.ident)
                if not self.has(number, place, tensor):
                    used_otherwise.add(tensor.ident)

    def has(self, number: int, place: int, tensor: Tensor) -> bool:
        """Whether this use of the value is one."""
        row = self.rows[number]
        call = row.call
        if number in self.making and not (row.kind == "matmul" and is_matrix(tensor)):
            return True
        if call.op_type in RECURRENT and place in FIRST_STATES and tensor.is_zero:
            return True
        if tensor.ident in self.states and tensor.slot is None:
            return True
        if place in NOT_LEARNED.get(call.op_type, ()) or is_of_code(call, tensor):
            return True
        if is_of_plain_norm(call, place, tensor):
            return True
        return is_wave(call, tensor, self.constants)


def _unpacked(call: NodeCall, place: int, tensor: Tensor) -> int:
    """The weights in packed bytes: N·K of a product, else as many as fit into them."""
    if call.op_type in ("MatMulNBits", "MatMulBnb4", "MatMulFpQ4"):
        n, k = packed_product(call)
        return n * k
    if call.op_type.startswith("MatMulNBits"):
        return packed_widths(call)[place // 3 - 1] * call.whole("K", 0)
    return tensor.numel * tensor.dtype.bits // packed_bits(call, place)


def _can_be_learned(tensor: Tensor) -> bool:
    if tensor.is_float:
        return bool(tensor.shape) and not is_table_of_waves(tensor)
    return tensor.dtype.is_integer and tensor.dtype.bits <= 8 and len(tensor.shape) > 1
