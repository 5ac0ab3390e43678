"""The operators of onnxruntime that are counted, by hand, and one that is not."""

from __future__ import annotations

from pathlib import Path

from onnx import TensorProto
from tests.onnx.models import (
    MS,
    Case,
    Operand,
    check,
    count,
    int8,
    int64,
    one_node,
    table,
    typed,
    uint8,
    x,
)

F = 4
# FLOPs an element
GELU_TANH, SOFTMAX, LAYER_NORM, DEQUANTISE, QUANTISE = 8, 4, 8, 2, 5
SCORE = SOFTMAX + 1  # with its scale
SCALED = [x(), uint8(), x(), uint8()]  # scale and zero point of the operand, and of the result


def int32(*shape: int) -> Operand:
    return typed(TensorProto.INT32, *shape)


@table(
    Case("8 bits", "QAttention",
         [uint8(2, 5, 6), int8(6, 30), x(30), x(), x(), int32(2), uint8(), int8()],
         macs=10 * 6 * 30 + 2 * 2 * 25 * (5 + 5), other=SCORE * 100 + 2 * 10 * 30,
         transcendental=100, read=60 + 180 + 30 * F + 2 * F + 2 * 4 + 2, written=10 * 10 * F,
         domain=MS, attributes={"num_heads": 2}),
    Case("8 bits, with a past", "QAttention",
         [uint8(2, 5, 6), int8(6, 30), x(30), x(), x(), None, None, None, x(2, 2, 2, 3, 5)],
         macs=10 * 6 * 30 + 2 * 2 * 5 * 8 * (5 + 5), other=SCORE * 160 + 2 * 10 * 30,
         transcendental=160, written=(10 * 10 + 2 * 2 * 2 * 8 * 5) * F, domain=MS, outputs=2,
         attributes={"num_heads": 2, "unidirectional": 1}),
    Case("of 8 bits to floats", "MatMulIntegerToFloat",
         [uint8(2, 5, 3), int8(3, 7), x(), x(7), uint8(), int8(7), x(7)], macs=2 * 105,
         other=(1 + 1) * 70, read=30 + 21 + F + 7 * F + 1 + 7 + 7 * F, written=70 * F, domain=MS),
    Case("of 8 bits to 8 bits", "QGemm",
         [uint8(3, 5), x(), uint8(), int8(7, 3), x(7), int8(7), int32(7), x(), uint8()], macs=105,
         other=(1 + 1) * 35, written=35, domain=MS, attributes={"transA": 1, "transB": 1}),
    Case("of 8 bits to floats, without a bias", "QGemm",
         [uint8(5, 3), x(), uint8(), int8(3, 7), x(), int8()], macs=105, other=35,
         written=35 * F, domain=MS),
    Case("gelu by tanh", "FastGelu", [x(2, 7)], other=GELU_TANH * 14, transcendental=14,
         domain=MS),
    Case("gelu by tanh, of a sum", "FastGelu", [x(2, 7), x(7)], other=(1 + GELU_TANH) * 14,
         transcendental=14, read=(14 + 7) * F, domain=MS),
    Case("8-bit product", "QLinearMul",
         [uint8(2, 7), x(), uint8(), uint8(7), x(), uint8(), x(), uint8()],
         other=(2 * DEQUANTISE + 1 + QUANTISE) * 14, read=14 + 7 + 3 * F + 3, written=14,
         domain=MS),
    Case("8-bit softmax", "QLinearSoftmax", [uint8(2, 7), *SCALED],
         other=(DEQUANTISE + SOFTMAX + QUANTISE) * 14, transcendental=14, written=14, domain=MS,
         attributes={"axis": -1}),
    Case("side by side, each by its own scale", "QLinearConcat",
         [x(), uint8(), uint8(2, 3), x(), uint8(), uint8(2, 5), x(), uint8()],
         other=(DEQUANTISE + QUANTISE) * 16, read=16 + 3 * F + 3, written=16, domain=MS,
         attributes={"axis": 1}),
    Case("rotary", "RotaryEmbedding", [x(2, 3, 5, 8), int64(2, 5), x(1000, 4), x(1000, 4)],
         other=3 * 240, read=240 * F + 80 + 2 * 10 * 4 * F, written=240 * F, domain=MS),
    Case("rotary, a part of each head", "RotaryEmbedding",
         [x(2, 5, 24), int64(2, 5), x(11, 3), x(11, 3)], other=3 * 10 * 3 * 6, written=240 * F,
         domain=MS, attributes={"num_heads": 3, "rotary_embedding_dim": 6}),
    Case("embeddings", "EmbedLayerNormalization",
         [int32(2, 5), int32(2, 5), x(1000, 7), x(5, 7), x(11, 7), x(7), x(7), int32(2, 5)],
         other=(2 + LAYER_NORM) * 70, transcendental=10,
         read=(70 + 35 + 70 + 7 + 7) * F + 3 * 10 * 4, written=2 * 70 * F + 2 * 4,
         domain=MS, outputs=3),
    Case("embeddings at named positions", "EmbedLayerNormalization",
         [int32(2, 5), None, x(1000, 7), x(500, 7), None, x(7), x(7), None, int32(2, 5)],
         other=(1 + LAYER_NORM) * 70, transcendental=10,
         read=(70 + 70 + 7 + 7) * F + 2 * 10 * 4, written=70 * F, domain=MS),
    Case("as many words as features", "EmbedLayerNormalization",
         [int32(2, 7), None, x(1000, 7), x(7, 7), None, x(7), x(7)],
         other=(1 + LAYER_NORM) * 98, transcendental=14, read=(98 + 49 + 7 + 7) * F + 14 * 4,
         written=98 * F, domain=MS),
    Case("average of all", "QLinearGlobalAveragePool", [uint8(2, 3, 5, 7), *SCALED],
         other=(DEQUANTISE + 1) * 210 + (1 + QUANTISE) * 6, written=6, domain=MS),
)  # fmt: skip
def test_contributed(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


def test_an_operator_without_a_formula_is_listed_with_its_bytes(tmp_path: Path) -> None:
    # given one of the operators that are not counted, on 6 elements of 4 bytes
    result = count(one_node("ScaledSiLU", [x(6)], domain=MS), tmp_path)
    assert (list(result.unknown), result.coverage) == (["com.microsoft::ScaledSiLU"], 0)
    assert (result.total.macs, result.total.flops, result.total.read_bytes) == (0, 0, 24)
