"""Nodes that break their operator's rules have no count, but a reason.

onnxruntime 1.31 refuses all of these too (or has no kernel: NhwcFusedConv); what it takes, as a
pooling window without a place, is counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from tests.onnx.models import (
    MS,
    Operand,
    count,
    int8,
    int64,
    known,
    one_node,
    typed,
    uint8,
    x,
)


@dataclass(frozen=True, slots=True)
class Broken:
    """One node and why it is refused."""

    op: str
    operands: Sequence[Operand | None]
    why: str
    domain: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    opset: int = 23


def int32(*shape: int) -> Operand:
    return typed(TensorProto.INT32, *shape)


KERNEL = x(8, 3, 3, 3)
FIVE_CHANNELS = "the operand has 5 channels, the weight is for 3"
TOO_SMALL = "a kernel that reaches over 3·3 does not fit on 2·8"
SCALE, ZERO = x(), uint8()

CONVOLUTIONS = [
    Broken("Conv", [x(1, 5, 8, 8), KERNEL], FIVE_CHANNELS),
    Broken("Conv", [x(1, 3, 2, 8), KERNEL], TOO_SMALL),
    Broken("Conv", [x(1, 3, 2, 8), KERNEL], TOO_SMALL, attributes={"strides": [2, 2]}),
    Broken("Conv", [x(1, 3, 4, 8), KERNEL], "reaches over 5·3 does not fit on 4·8",
           attributes={"dilations": [2, 1]}),
    Broken("Conv", [x(1, 6, 8, 8), x(5, 3, 3, 3)], "5 channels are not 2 groups",
           attributes={"group": 2}),
    Broken("Conv", [x(1, 3, 8, 8), KERNEL], "kernel_shape is [2, 2], the weight's (3, 3)",
           attributes={"kernel_shape": [2, 2]}),
    Broken("Conv", [x(1, 3, 8, 8), KERNEL, x(4)], "operand 2 is (4,), not (8,)"),
    Broken("ConvInteger", [uint8(1, 5, 8, 8), uint8(8, 3, 3, 3)], FIVE_CHANNELS),
    Broken("QLinearConv",
           [uint8(1, 5, 8, 8), SCALE, ZERO, uint8(8, 3, 3, 3), SCALE, ZERO, SCALE, ZERO],
           FIVE_CHANNELS),
    Broken("QLinearConv",
           [uint8(1, 8, 8, 5), SCALE, ZERO, uint8(8, 3, 3, 3), SCALE, ZERO, SCALE, ZERO],
           FIVE_CHANNELS, MS, {"channels_last": 1}),
    Broken("FusedConv", [x(1, 5, 8, 8), KERNEL], FIVE_CHANNELS, MS),
    Broken("FusedConv", [x(1, 3, 2, 8), KERNEL], TOO_SMALL, MS),
    Broken("NhwcFusedConv", [x(1, 8, 8, 5), KERNEL], "the weight is not for 5 channels", MS),
    Broken("ConvTranspose", [x(1, 5, 8, 8), x(3, 4, 3, 3)], FIVE_CHANNELS),
    Broken("ConvTranspose", [x(1, 3, 1, 1), x(3, 4, 3, 3)], "its result has no place",
           attributes={"pads": [2, 1, 1, 1]}),
    Broken("DeformConv", [x(1, 5, 5, 5), x(6, 4, 3, 3), x(1, 18, 3, 3)],
           "the operand has 5 channels, the weight is for 4"),
    Broken("DeformConv", [x(1, 4, 5, 5), x(6, 4, 3, 3), x(1, 17, 3, 3)],
           "operand 2 is (1, 17, 3, 3), not (1, 18, 3, 3)"),
    Broken("DeformConv", [x(1, 4, 5, 5), x(6, 4, 3, 3), x(1, 54, 3, 3)],
           "4 channels are not 3 groups", attributes={"offset_group": 3}),
]  # fmt: skip

# 6 steps of 2 sequences of 4 features, to 5 units
STEPS = x(6, 2, 4)
FIVE = {"hidden_size": 5}

RECURRENT = [
    Broken("LSTM", [STEPS, x(1, 20, 7), x(1, 20, 5)], "operand 1 is (1, 20, 7), not (1, 20, 4)",
           attributes=FIVE),
    Broken("GRU", [STEPS, x(1, 15, 7), x(1, 15, 5)], "operand 1 is (1, 15, 7), not (1, 15, 4)",
           attributes=FIVE),
    Broken("RNN", [STEPS, x(1, 5, 7), x(1, 5, 5)], "operand 1 is (1, 5, 7), not (1, 5, 4)",
           attributes=FIVE),
    Broken("GRU", [STEPS, x(1, 20, 4), x(1, 20, 5)], "20 rows are not 3 gates of 5",
           attributes=FIVE),
    Broken("LSTM", [STEPS, x(1, 20, 4), x(1, 20, 6)], "hidden weights are of 6 units",
           attributes=FIVE),
    Broken("LSTM", [STEPS, x(2, 20, 4), x(2, 20, 5)], "weights of 2 directions", attributes=FIVE),
    Broken("LSTM", [STEPS, x(1, 20, 4), x(1, 20, 5), x(1, 42)], "operand 3 is (1, 42), not (1, 40)",
           attributes=FIVE),
    Broken("LSTM", [STEPS, x(1, 20, 4), x(1, 20, 5), None, int32(3)], "operand 4 is (3,), not (2,)",
           attributes=FIVE),
    Broken("GRU", [STEPS, x(1, 15, 4), x(1, 15, 5), None, None, x(1, 3, 5)],
           "operand 5 is (1, 3, 5), not (1, 2, 5)", attributes=FIVE),
    Broken("DynamicQuantizeLSTM",
           [STEPS, int8(1, 7, 20), int8(1, 5, 20), None, None, None, None, None, x(1), int8(1),
            x(1), int8(1)], "operand 1 is (1, 7, 20), not (1, 4, 20)", MS, FIVE),
]  # fmt: skip

PACKED = {"N": 8, "K": 100, "block_size": 32}

PRODUCTS = [
    Broken("MatMulNBits", [x(2, 99), uint8(8, 4, 16), x(32)],
           "a product of 99 columns with 100 rows", MS, PACKED | {"bits": 4}),
    Broken("MatMulBnb4", [x(2, 99), uint8(400), x(25)], "a product of 99 columns with 100 rows", MS,
           PACKED | {"quant_type": 1}),
    Broken("FusedMatMul", [x(2, 3), x(4, 5)], "a product of 3 columns with 4 rows", MS),
    Broken("FusedMatMul", [x(2, 2, 3), x(3, 3, 5)], "(2,) and (3,) do not broadcast", MS),
    Broken("FusedGemm", [x(2, 3), x(4, 5)], "a product of 3 columns with 4 rows", MS),
    Broken("QGemm", [uint8(2, 3), SCALE, ZERO, uint8(4, 5), SCALE, ZERO],
           "a product of 3 columns with 4 rows", MS),
]  # fmt: skip

LENGTHS, TOTAL = int32(2), int32()
GROUPED: dict[str, Any] = {"num_heads": 4, "kv_num_heads": 2}

ATTENTION = [
    Broken("Attention", [x(1, 6, 3, 8), x(1, 4, 3, 8), x(1, 4, 3, 8)],
           "6 heads of queries, 4 of keys"),
    Broken("Attention", [x(1, 3, 48), x(1, 3, 32), x(1, 3, 32)], "6 heads of queries, 4 of keys",
           attributes={"q_num_heads": 6, "kv_num_heads": 4}),
    Broken("Attention", [x(1, 3, 49), x(1, 3, 24), x(1, 3, 24)],
           "a width of 49 is not one of 6 heads",
           attributes={"q_num_heads": 6, "kv_num_heads": 3}),
    Broken("Attention", [x(1, 6, 3, 8), x(1, 3, 3, 7), x(1, 3, 3, 8)],
           "a query has 8 features, a key 7"),
    Broken("Attention", [x(1, 6, 3, 8), x(1, 3, 3, 8), x(1, 3, 4, 8)],
           "keys are (1, 3, 3, 8), values (1, 3, 4, 8)"),
    Broken("Attention", [x(2, 3, 8), x(8, 24), x(24)], "a width of 8 is not one of 3 heads", MS,
           {"num_heads": 3}),
    Broken("Attention", [x(2, 3, 7), x(8, 24), x(24)], "a product of 7 columns with 8 rows", MS,
           {"num_heads": 2}),
    Broken("Attention", [x(2, 3, 8), x(8, 24), x(24)], "[8, 8, 10] are not the weight's 24", MS,
           {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 10]}),
    Broken("QAttention",
           [uint8(2, 3, 8), uint8(8, 24), x(24), SCALE, SCALE, None, ZERO, ZERO],
           "a width of 8 is not one of 3 heads", MS, {"num_heads": 3}),
    Broken("MultiHeadAttention", [x(2, 3, 8)] * 3, "a width of 8 is not one of 3 heads", MS,
           {"num_heads": 3}),
    Broken("MultiHeadAttention", [x(2, 3, 8), x(2, 3, 6), x(2, 3, 8)],
           "a query has 4 features, a key 3", MS, {"num_heads": 2}),
    Broken("MultiHeadAttention", [x(2, 3, 8), x(2, 4, 5, 4), x(2, 4, 5, 4)],
           "2 heads of queries, 4 of keys", MS, {"num_heads": 2}),
    Broken("GroupQueryAttention",
           [x(2, 3, 48), x(2, 3, 32), x(2, 3, 32), None, None, LENGTHS, TOTAL],
           "6 heads of queries, 4 of keys", MS, {"num_heads": 6, "kv_num_heads": 4}, 3),
    Broken("GroupQueryAttention",
           [x(2, 3, 32), x(2, 3, 24), x(2, 3, 24), None, None, LENGTHS, TOTAL],
           "not 2 sequences in 2 heads of 8", MS, GROUPED, 3),
    Broken("GroupQueryAttention", [x(2, 3, 66), None, None, None, None, LENGTHS, TOTAL],
           "a width of 66 is not one of 8 heads", MS, GROUPED, 3),
]  # fmt: skip

IMAGE = x(2, 4, 5, 5)


def einsum(equation: str, *operands: Operand, why: str) -> Broken:
    return Broken("Einsum", operands, why, attributes={"equation": equation})


EINSUMS = [
    einsum("bij,jk->bik", x(2, 3, 4), x(3, 5), why="'j' is of 3, 4 and 3"),
    einsum("ij,jk->ik", x(2, 3), x(0, 5), why="'j' is of 0, 3 and 0"),
    einsum("...ij,...jk->...ik", x(2, 3, 4), x(3, 4, 5), why="'.1' is of 3, 2 and 3"),
    einsum("ii->i", x(3, 4), why="'i' is of 3, 3 and 4"),
    einsum("ii->i", x(3, 1), why="'i' is of 3, 3 and 1"),
    einsum("ij,jk->ikk", x(2, 3), x(3, 5),
           why="the result's labels are not some of the operands', each once"),
    einsum("ij,jk->iz", x(2, 3), x(3, 5), why="onnx refuses it: "),
    einsum("...ij,jk->ik", x(2, 3, 4), x(4, 5), why="the equation does not fit the operands"),
    *(einsum(equation, x(2, 3), why="its equation is not one")  # onnx's inference has no end then
      for equation in ["....", "..", "i.j->ij", "i j.", "i....->i", "...i....->i", "i->....",
                       "b.......->b...", "...i...->i", "i->j->i", "ij>i", "i" * 1001]),
]  # fmt: skip

BESIDE = [  # operands that do not fit the first
    *(Broken("Gemm", [x(2, 3), x(3, 5), x(*bias)], "which does not broadcast to (2, 5)")
      for bias in [(4,), (2,), (3, 5), (1, 1, 5)]),
    Broken("FusedGemm", [x(2, 3), x(3, 5), x(4)], "which does not broadcast to (2, 5)", MS),
    Broken("LayerNormalization", [x(2, 3, 8), x(7)],
           "operand 1 is (7,), which does not broadcast to (2, 3, 8)"),
    Broken("LayerNormalization", [x(2, 3, 8), x(8), x(7)], "operand 2 is (7,)"),
    Broken("LayerNormalization", [x(2, 3, 8), x(24)], "operand 1 is (24,)", attributes={"axis": 1}),
    Broken("LayerNormalization", [x(2, 3, 8), x(1, 2, 3, 8)], "operand 1 is (1, 2, 3, 8)"),
    Broken("RMSNormalization", [x(2, 3, 8), x(7)], "operand 1 is (7,)"),
    Broken("InstanceNormalization", [IMAGE, x(3), x(4)], "operand 1 is (3,), not (4,)"),
    Broken("InstanceNormalization", [IMAGE, x(4), x(3)], "operand 2 is (3,), not (4,)"),
    Broken("BatchNormalization", [IMAGE, x(4), x(4), x(4), x(1)], "operand 4 is (1,), not (4,)",
           opset=9),
    Broken("BatchNormalization", [IMAGE, x(4), x(4), x(4), x(1)], "onnx refuses it: Dimension"),
    Broken("GroupNormalization", [IMAGE, x(4), x(4)], "4 channels are not 3 groups",
           attributes={"num_groups": 3}),
    Broken("GroupNormalization", [IMAGE, x(4), x(4)], "4 channels are not 0 groups",
           attributes={"num_groups": 0}),
    Broken("GroupNormalization", [IMAGE, x(2), x(2)], "operand 1 is (2,)",
           attributes={"num_groups": 2}),
    Broken("GroupNormalization", [IMAGE, x(4), x(4)], "operand 1 is (4,)",
           attributes={"num_groups": 2}, opset=18),
    Broken("PRelu", [x(2, 4, 8), x(3)], "(2, 4, 8) and (3,) do not broadcast"),
    Broken("AffineGrid", [x(1, 3, 3), known([1, 3, 4, 5])],
           "operand 0 is (1, 3, 3), not (1, 2, 3)"),
    Broken("AffineGrid", [x(1, 2, 3), known([1, 3, 4, 5, 6])],
           "operand 0 is (1, 2, 3), not (1, 3, 4)"),
    Broken("AffineGrid", [x(2, 2, 3), known([1, 3, 4, 5])],
           "operand 0 is (2, 2, 3), not (1, 2, 3)"),
    *(Broken("SkipLayerNormalization", [x(2, 6, 4), x(*skip), x(4)],
             f"operand 1 is {skip}, which is not added to (2, 6, 4)", MS)
      for skip in [(1, 5, 4), (2, 1, 4), (4,)]),
    Broken("SkipLayerNormalization", [x(2, 6, 4), x(2, 6, 4), x(1)], "operand 2 is (1,), not (4,)",
           MS),
    Broken("SkipSimplifiedLayerNormalization", [x(2, 6, 4), x(2, 6, 4), x(4), x(5)],
           "operand 3 is (5,), not (4,)", MS),
    *(Broken(op, [x(2, 6, 4), x(5)], "operand 1 is (5,), not (4,)", MS)
      for op in ["BiasGelu", "FastGelu"]),
    Broken("QLinearAdd", [uint8(2, 3), SCALE, ZERO, uint8(2, 4), SCALE, ZERO, SCALE, ZERO],
           "(2, 3) and (2, 4) do not broadcast", MS),
    Broken("LessOrEqual", [x(2, 3), x(2, 4)], "(2, 3) and (2, 4) do not broadcast", opset=12),
]  # fmt: skip

LONGEST = "it would have more than 281474976710656 elements"


def numbers(kind: Any, *values: float) -> list[Operand]:
    return [known(value, kind) for value in values]


RANGES = [
    *(Broken("Range", numbers(np.float32, 0, limit, 1), LONGEST) for limit in [1e18, 1e19, 1e20]),
    Broken("Range", numbers(np.float32, 0, np.inf, 1), "from 0.0 to inf by 1.0 has no end"),
    Broken("Range", numbers(np.float32, 0, np.nan, 1), "from 0.0 to nan by 1.0 has no end"),
    Broken("Range", numbers(np.int64, 0, 2**63 - 1, 1), LONGEST),
    Broken("Range", numbers(np.int64, -(2**63), 2**63 - 1, 1), LONGEST),
    Broken("Range", numbers(np.int64, 0, 5, 0), "its step is 0"),
    Broken("Range", numbers(np.float32, 0, 5, 0), "its step is 0"),
]

LONGER = "lengths of [7, 6] in 6 steps"

PLACES = [
    Broken("ScatterElements", [x(4, 5), int64(2, 3), x(2, 2)], "operand 2 is (2, 2), not (2, 3)"),
    Broken("ScatterElements", [x(4, 5), int64(2, 6), x(2, 6)], "indices of (2, 6) for (4, 5)"),
    Broken("ScatterElements", [x(4, 5), int64(5, 3), x(5, 3)], "indices of (5, 3) for (4, 5)",
           attributes={"axis": 1}),
    Broken("ScatterElements", [x(4, 5), int64(3), x(3)], "indices of (3,) for (4, 5)"),
    Broken("Scatter", [x(4, 5), int64(2, 3), x(2, 2)], "operand 2 is (2, 2), not (2, 3)", opset=9),
    Broken("ScatterND", [x(4, 5), int64(3, 1), x(3, 4)], "operand 2 is (3, 4), not (3, 5)"),
    Broken("ScatterND", [x(4, 5), int64(3, 2), x(3, 1)], "operand 2 is (3, 1), not (3,)"),
    Broken("ScatterND", [x(4, 5), int64(3, 3), x(3)], "indices of (3, 3) for (4, 5)"),
    Broken("GatherElements", [x(3, 6), int64(3, 8)], "indices of (3, 8) for (3, 6)"),
    Broken("GatherElements", [x(3, 6), int64(6)], "indices of (6,) for (3, 6)"),
    Broken("Gather", [x(5, 3), known([0, 5])], "indices from 0 to 5 for 5 rows"),
    Broken("CumSum", [x(5, 4), known(2)], "axis 2 of 2 dimensions"),
    Broken("CumSum", [x(5, 4), known(-3)], "axis -3 of 2 dimensions"),
    Broken("CumSum", [x(), known(0)], "axis 0 of 0 dimensions"),
    Broken("CumSum", [x(5, 4), known([0, 1])], "an axis of (2,)"),
    Broken("ReverseSequence", [x(3, 2), known([4, 2])], "lengths of [4, 2] in 3 steps"),
    Broken("ReverseSequence", [x(3, 2), known([-1, 2])], "lengths of [-1, 2] in 3 steps"),
    Broken("ReverseSequence", [x(3, 2), int64(3)], "operand 1 is (3,), not (2,)"),
    Broken("ReverseSequence", [x(3, 2), known([2, 3, 2])], "lengths of [2, 3, 2] in 2 steps",
           attributes={"batch_axis": 0, "time_axis": 1}),
    Broken("ReverseSequence", [x(3, 2), known([3, 2])], "a batch axis of 1, a time axis of 1",
           attributes={"time_axis": 1}),
    Broken("Pad", [x(4), known([-5, 0])], "a side of its result would be -1"),
    *(Broken(op, operands, "its result would have more than 64 dimensions")
      for op, operands in [("Expand", [x(3), int64(2**40)]), ("Reshape", [x(3), int64(65)]),
                           ("ConstantOfShape", [int64(2**40)]),
                           ("Unsqueeze", [x(3), known(range(65))])]),
    Broken("DepthToSpace", [x(1, 8, 4, 4)], "8 channels are not blocks of 3·3",
           attributes={"blocksize": 3}),
    Broken("SpaceToDepth", [x(1, 8, 5, 4)], "5·4 is not blocks of 2·2",
           attributes={"blocksize": 2}),
    Broken("SpaceToDepth", [x(1, 8, 4, 5)], "4·5 is not blocks of 2·2",
           attributes={"blocksize": 2}),
    Broken("LSTM", [STEPS, x(1, 20, 4), x(1, 20, 5), None, known([7, 6], np.int32)], LONGER,
           attributes=FIVE),
    Broken("GRU", [STEPS, x(1, 15, 4), x(1, 15, 5), None, known([7, 6], np.int32)], LONGER,
           attributes=FIVE),
    Broken("RNN", [STEPS, x(1, 5, 4), x(1, 5, 5), None, known([-1, 6], np.int32)],
           "lengths of [-1, 6] in 6 steps", attributes=FIVE),
    *(Broken("Split", [x(size)], f"a size of {size} is not split into {pieces}", outputs=pieces,
             attributes={"num_outputs": pieces})
      for size, pieces in [(7, 5), (7, 6), (5, 4), (6, 4), (3, 5)]),
]  # fmt: skip


@pytest.mark.parametrize(
    "case",
    [*CONVOLUTIONS, *RECURRENT, *PRODUCTS, *ATTENTION, *EINSUMS, *BESIDE, *RANGES, *PLACES],
    ids=lambda case: case.op,
)
def test_a_node_that_breaks_its_rules_is_not_counted(case: Broken, tmp_path: Path) -> None:
    made = one_node(case.op, case.operands, domain=case.domain, outputs=case.outputs,
                    opset=case.opset, **case.attributes)  # fmt: skip

    result = count(made, tmp_path)

    assert list(result.unknown) == [f"{case.domain or 'onnx'}::{case.op}"]
    assert result.total.macs == 0
    assert result.coverage == 0
    assert case.why in result.notes[0]


def test_a_size_given_that_does_not_fit(tmp_path: Path) -> None:
    # given an image of any size, and any number of channels, for a weight of 3
    made = one_node("Conv", [x("N", "c", "h", 8), KERNEL])

    def counted(**dims: int) -> tuple[int, float]:
        result = count(made, tmp_path, batch_size=2, dims=dims)
        return result.total.macs, result.coverage

    assert counted(c=3, h=8) == (2 * 8 * 6 * 6 * 3 * 9, 1.0)
    assert counted(c=5, h=8) == (0, 0.0)
    assert counted(c=3, h=2) == (0, 0.0)


@pytest.mark.parametrize(
    ("height", "stride", "places"), [(2, 1, 0), (2, 2, 1)], ids=["none", "one"]
)
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_a_window_beyond_the_edge_is_what_onnxruntime_takes(
    op: str, height: int, stride: int, places: int, tmp_path: Path
) -> None:
    made = one_node(op, [x(1, 3, height, 3)], kernel_shape=[3, 3], strides=[stride, stride])

    result = count(made, tmp_path)

    assert result.unknown == {}
    assert result.total.written_bytes == 3 * places * 4


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_a_window_that_has_less_than_no_place(op: str, tmp_path: Path) -> None:
    made = one_node(op, [x(1, 3, 1, 8)], kernel_shape=[3, 3])

    result = count(made, tmp_path)

    assert list(result.unknown) == [f"onnx::{op}"]
    assert result.notes == (f"onnx::{op} 'it' not counted: a side of its result would be -1",)


TAKEN = [
    ("Einsum", [x(2, 3, 4), x(1, 5)], {"equation": "bij,jk->bik"}, 2 * 3 * 4 * 5),
    ("Einsum", [x(2, 3, 1), x(4, 5)], {"equation": "bij,jk->bik"}, 2 * 3 * 4 * 5),
    ("Einsum", [x(2, 0), x(1, 5)], {"equation": "ij,jk->ik"}, 0),
    ("Einsum", [x(2, 3), x(3, 5)], {"equation": "ij,jk->...ik"}, 2 * 3 * 5),
    ("Einsum", [x(2, 3, 4), x(1, 4, 5)], {"equation": "...ij,...jk->...ik"}, 2 * 3 * 4 * 5),
    *(("Gemm", [x(2, 3), x(3, 5), x(*bias)], {}, 2 * 3 * 5)
      for bias in [(), (1,), (5,), (2, 1), (1, 5), (2, 5)]),
    *(("LayerNormalization", [x(2, 3, 8), x(*scale)], {}, 0)
      for scale in [(), (1,), (3, 8), (2, 1, 1), (2, 3, 8)]),
    ("LayerNormalization", [x(2, 3, 8), x(8)], {"axis": 1}, 0),
    ("GroupNormalization", [IMAGE, x(1), x(4)], {"num_groups": 2}, 0),
    ("PRelu", [x(2, 4, 8), x(4, 1)], {}, 0),
    ("ScatterElements", [x(4, 5), int64(5, 3), x(5, 3)], {}, 0),
    ("ScatterND", [x(4, 5), int64(1), x(5)], {}, 0),
    ("GatherElements", [x(3, 6), int64(4, 6)], {}, 0),
    ("Gather", [x(5, 3), known([-5, 4])], {}, 0),
    ("CumSum", [x(5, 4), known(-2)], {}, 0),
    ("CumSum", [x(5, 4), known([1], np.int32)], {}, 0),
    ("CumSum", [x(5, 4), int64()], {}, 0),
    ("ReverseSequence", [x(3, 2), known([0, 3])], {}, 0),
    ("ReverseSequence", [x(3, 2), known([2, 2, 2])], {"batch_axis": 0, "time_axis": 1}, 0),
    ("ReverseSequence", [x(3, 2, 4), int64(2)], {}, 0),
    ("AffineGrid", [x(1, 3, 4), known([1, 3, 4, 5, 6])], {}, 4 * 5 * 6 * 3 * 4),
    ("RNN", [STEPS, x(1, 5, 4), x(1, 5, 5), None, known([0, 3], np.int32)], FIVE, 3 * 5 * (4 + 5)),
]  # fmt: skip


@pytest.mark.parametrize(("op", "operands", "attributes", "macs"), TAKEN)
def test_what_onnxruntime_takes_is_counted(
    op: str, operands: list[Operand], attributes: dict[str, Any], macs: int, tmp_path: Path
) -> None:
    result = count(one_node(op, operands, opset=23, **attributes), tmp_path)

    assert (result.total.macs, result.unknown, result.coverage) == (macs, {}, 1)


@pytest.mark.parametrize("skip", [(2, 6, 4), (1, 6, 4), (6, 4)])
def test_what_is_added_may_be_the_same_for_a_batch(skip: tuple[int, ...], tmp_path: Path) -> None:
    made = one_node("SkipLayerNormalization", [x(2, 6, 4), x(*skip), x(4)], domain=MS)

    result = count(made, tmp_path)

    assert (result.notes, result.coverage) == ((), 1)


@pytest.mark.parametrize(
    ("kind", "start", "limit", "delta", "length"),
    [(np.int64, 0, 10, 3, 4), (np.int64, 10, 0, -3, 4), (np.int64, 5, 0, 1, 0),
     (np.int64, 2**63 - 3, 2**63 - 1, 1, 2), (np.float32, 0, 1, 0.1, 10),
     (np.float32, 0, 0.7, 0.1, 7), (np.float32, 0, 1e10, 1, 10**10)],
)  # fmt: skip
@pytest.mark.parametrize("shape", [(), (1,)])
def test_the_length_of_a_range(
    kind: Any, start: float, limit: float, delta: float, length: int, shape: Any, tmp_path: Path
) -> None:
    # given numbers as scalars, and as vectors of one, which onnxruntime takes too
    operands = [known(np.full(shape, v, kind), kind) for v in (start, limit, delta)]

    result = count(one_node("Range", operands), tmp_path)

    assert result.op_costs[0].call.outputs[0].shape == (length,)
    assert (result.notes, result.coverage) == ((), 1)


@pytest.mark.parametrize(("size", "pieces"), [(7, 3), (7, 4), (8, 4), (10, 4)])
def test_pieces_of_which_the_last_is_smaller(size: int, pieces: int, tmp_path: Path) -> None:
    made = one_node("Split", [x(size)], outputs=pieces, num_outputs=pieces)

    result = count(made, tmp_path)

    assert (result.notes, result.coverage) == ((), 1)
