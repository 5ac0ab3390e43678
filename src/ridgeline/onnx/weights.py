"""Which stored tensors are parameters, which are buffers: the file does not say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ridgeline.onnx.node import Constants, NodeCall, Tensor
from ridgeline.onnx.node_cost import NodeCost
from ridgeline.onnx.ops.products import packed_product

# operands that are settings or statistics, never learned
NOT_LEARNED: dict[str, tuple[int, ...]] = {
    "BatchNormalization": (3, 4), "Resize": (1, 2, 3), "Upsample": (1,), "Clip": (1, 2),
    "Pad": (1, 2), "Reshape": (1,), "Expand": (1,), "Slice": (1, 2, 3, 4), "OneHot": (1, 2),
    "QuantizeLinear": (1, 2), "DequantizeLinear": (1, 2), "QLinearConv": (1, 2, 4, 5, 6, 7),
    "QLinearMatMul": (1, 2, 4, 5, 6, 7), "Dropout": (1, 2), "Pow": (1,), "Range": (0, 1, 2),
    "STFT": (2,), "Tile": (1,), "NonMaxSuppression": (0, 1, 2, 3, 4), "TopK": (1,), "Where": (0,),
    "Sin": (0,), "Cos": (0,), "RotaryEmbedding": (1, 2, 3), "GroupQueryAttention": (7, 8, 12, 13),
    # scales, zero points and the order of groups of weights that are stored quantised
    "MatMulNBits": (2, 3, 4), "QGemm": (1, 2, 4, 5, 7, 8), "QAttention": (3, 4, 6, 7),
    "MatMulIntegerToFloat": (2, 3, 4, 5), "DynamicQuantizeMatMul": (2, 3),
    "DynamicQuantizeLSTM": (8, 9, 10, 11), "QLinearAdd": (1, 2, 4, 5, 6, 7),
    "QLinearMul": (1, 2, 4, 5, 6, 7),
}  # fmt: skip
INITIAL_STATES = {"LSTM": (5, 6), "GRU": (5,), "RNN": (5,), "DynamicQuantizeLSTM": (5, 6)}
ARITHMETIC = ("Mul", "Div", "Add", "Sub", "Max", "Min", "Where")
NORMS = {  # their scale and shift: the numbers that exporters put there for a norm without them
    name: {1: 1, 2: 0}
    for name in ("BatchNormalization", "InstanceNormalization", "LayerNormalization",
                 "GroupNormalization", "RMSNormalization", "SimplifiedLayerNormalization")
}  # fmt: skip
# val_70, onnx::Mul_12, 340, /attn/Sqrt_output_0, /Constant_1_output_0; a parameter has its path
MADE_UP = re.compile(r"val_\d+|onnx::\w+|\d+|.*_output_\d+|(.*/)?Constant(_\d+)?(:0)?")


@dataclass(slots=True)
class Stored:
    """The stored tensors, each once however many nodes use it."""

    params: dict[int, Tensor] = field(default_factory=dict)  # by ident
    buffers: dict[int, Tensor] = field(default_factory=dict)
    used_by: dict[int, str] = field(default_factory=dict)  # path of the first node that uses it
    packed: dict[int, int] = field(default_factory=dict)  # weights in a tensor of packed bytes

    @property
    def param_count(self) -> int:
        return sum(map(self.weights_in, self.params))

    def weights_in(self, ident: int) -> int:
        """How many parameters a stored tensor is."""
        return self.packed.get(ident, self.params[ident].numel)

    @property
    def trained(self) -> dict[int, Tensor]:
        """Parameters that a step changes."""
        return {ident: t for ident, t in self.params.items() if t.is_float}

    @property
    def param_bytes(self) -> int:
        return sum(t.nbytes for t in self.params.values())

    @property
    def buffer_bytes(self) -> int:
        return sum(t.nbytes for t in self.buffers.values())


def find_stored(rows: Sequence[NodeCost]) -> Stored:
    """A parameter is floating-point (or a matrix of small integers), has a dimension, and is
    used at least once where a learned tensor can stand; packed weights count one by one."""
    tensors: dict[int, Tensor] = {}
    learned: set[int] = set()
    stored = Stored()
    makers = _setting_makers(rows)
    for number, row in enumerate(rows):
        call = row.call
        for place, tensor in enumerate(call.operands):
            if tensor is None or not tensor.is_weight:
                continue
            tensors.setdefault(tensor.ident, tensor)
            stored.used_by.setdefault(tensor.ident, row.path)
            if row.work is not None and call.op_type == "MatMulNBits" and place == 1:
                n, k = packed_product(call)
                stored.packed[tensor.ident] = n * k
                learned.add(tensor.ident)
            is_setting = number in makers or _is_setting(call, place, tensor)
            if _can_be_learned(tensor) and not is_setting:
                learned.add(tensor.ident)
    for ident, tensor in tensors.items():
        (stored.params if ident in learned else stored.buffers)[ident] = tensor
    return stored


def _setting_makers(rows: Sequence[NodeCost]) -> set[int]:
    """Nodes on constants of whose results all uses are settings, as sizes or initial states."""
    constants = Constants(row.call for row in rows)
    makers: set[int] = set()
    used: set[int] = set()
    used_otherwise: set[int] = set()
    for number in reversed(range(len(rows))):
        call = rows[number].call
        results = {t.ident for t in call.outputs}
        is_constant = all(t in constants for t in call.outputs)
        if results & used and not results & used_otherwise and is_constant:
            makers.add(number)
        for place, tensor in enumerate(call.operands):
            if tensor is not None:
                used.add(tensor.ident)
                if number not in makers and not _is_setting(call, place, tensor):
                    used_otherwise.add(tensor.ident)
    return makers


def _can_be_learned(tensor: Tensor) -> bool:
    if tensor.is_float:
        return bool(tensor.shape)
    return tensor.dtype.is_integer and tensor.dtype.bits <= 8 and len(tensor.shape) > 1


def _is_setting(call: NodeCall, place: int, tensor: Tensor) -> bool:
    """Whether this use of a stored tensor is one that no training changes."""
    if place in NOT_LEARNED.get(call.op_type, ()):
        return True
    if place in INITIAL_STATES.get(call.op_type, ()) and tensor.is_zero:
        return True
    if MADE_UP.fullmatch(tensor.name) is None:
        return False
    if call.op_type in ARITHMETIC and tensor.numel == 1:  # a number in the model's code
        return True
    number = NORMS.get(call.op_type, {}).get(place)
    if number is None or tensor.value is None or tensor.value.dtype == object:
        return False
    return bool(np.all(tensor.value == number))
