"""onnxruntime's rarer attentions and products by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import TensorProto
from tests.onnx.models import (
    MS,
    Case,
    Operand,
    check,
    int8,
    known,
    table,
    typed,
    uint8,
    x,
)

F = 4
GELU_TANH, SILU, SOFTMAX = 8, 4, 4  # FLOPs an element
SCORE = SOFTMAX + 1  # with its scale


def int32(*shape: int) -> Operand:
    return typed(TensorProto.INT32, *shape)


def fp8(*shape: int) -> Operand:
    return typed(TensorProto.FLOAT8E4M3FN, *shape)


# 7 tokens of 3 sequences, the longest of 4, in 2 heads of 5 (values: of 7): 3·2·4·4 scores
OFFSETS = [int32(3, 4), int32(4)]


@table(
    Case("projected", "PackedAttention", [x(7, 6), x(6, 34), x(34), *OFFSETS],
         macs=7 * 6 * 34 + 96 * (5 + 7), other=SCORE * 96 + 7 * 34, transcendental=96,
         read=(7 * 6 + 6 * 34 + 34) * F + (12 + 4) * 4, written=7 * 14 * F, domain=MS,
         attributes={"num_heads": 2, "qkv_hidden_sizes": [10, 10, 14]}),
    Case("projected, biased scores", "PackedAttention",
         [x(7, 6), x(6, 30), x(30), *OFFSETS, x(1, 2, 4, 4)], macs=7 * 6 * 30 + 96 * (5 + 5),
         other=(SCORE + 1) * 96 + 7 * 30, transcendental=96, written=7 * 10 * F, domain=MS,
         attributes={"num_heads": 2}),
    Case("three operands", "PackedMultiHeadAttention",
         [x(7, 10), x(7, 10), x(7, 14), None, *OFFSETS], macs=96 * (5 + 7), other=SCORE * 96,
         transcendental=96, read=7 * 34 * F + (12 + 4) * 4, written=7 * 14 * F, domain=MS,
         attributes={"num_heads": 2}),
    Case("three operands with biases", "PackedMultiHeadAttention",
         [x(7, 10), x(7, 10), x(7, 14), x(34), *OFFSETS, x(3, 2, 4, 4)], macs=96 * (5 + 7),
         other=(SCORE + 1) * 96 + 7 * 34, transcendental=96, domain=MS,
         attributes={"num_heads": 2}),
    Case("all in one", "PackedMultiHeadAttention", [x(7, 2, 3, 5), None, None, None, *OFFSETS],
         macs=96 * (5 + 5), other=SCORE * 96, transcendental=96, written=7 * 10 * F, domain=MS,
         attributes={"num_heads": 2}),
)  # fmt: skip
def test_attention_without_padding(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


# 2·5 tokens of 6 to 3·10, in 2 heads of 5; the projection's result is scaled, and has a bias


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
)  # fmt: skip
def test_8_bit_attention(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


# one token of 2 sequences, in 3 heads of 5, after 6 tokens: 2·3·7 scores. A shared buffer has
# place for 11 tokens, and 6 are in it
TOKEN, PAST, BUFFER = x(2, 1, 15), x(2, 3, 6, 5), x(2, 3, 11, 5)
SIX = known([6], np.int32)


@table(
    Case("self", "DecoderMaskedMultiHeadAttention", [TOKEN, TOKEN, TOKEN, None, None, PAST, PAST],
         macs=42 * 10, other=SCORE * 42, transcendental=42, written=(30 + 2 * 2 * 3 * 7 * 5) * F,
         domain=MS, outputs=3, attributes={"num_heads": 3}),
    Case("self, a mask only selects", "DecoderMaskedMultiHeadAttention",
         [TOKEN, TOKEN, TOKEN, int32(2, 7), x(1, 3, 1, 7), PAST, PAST, None, None, None, x(45)],
         macs=42 * 10, other=(SCORE + 1) * 42 + 2 * 45, transcendental=42, domain=MS, outputs=3,
         attributes={"num_heads": 3}),
    Case("self, all in one", "DecoderMaskedMultiHeadAttention",
         [x(2, 1, 45), None, None, None, None, PAST, PAST], macs=42 * 10, other=SCORE * 42,
         transcendental=42, written=(30 + 2 * 2 * 3 * 7 * 5) * F, domain=MS, outputs=3,
         attributes={"num_heads": 3}),
    Case("self, in a shared buffer", "DecoderMaskedMultiHeadAttention",
         [TOKEN, TOKEN, TOKEN, None, None, BUFFER, BUFFER, SIX], macs=42 * 10, other=SCORE * 42,
         transcendental=42, written=(30 + 2 * 2 * 3 * 11 * 5) * F, domain=MS, outputs=3,
         attributes={"num_heads": 3, "past_present_share_buffer": 1}),
    Case("self, and its scores", "DecoderMaskedMultiHeadAttention",
         [TOKEN, TOKEN, TOKEN, None, None, PAST, PAST], macs=42 * 10, other=SCORE * 42,
         transcendental=42, written=(30 + 2 * 2 * 3 * 7 * 5 + 42) * F, domain=MS, outputs=4,
         attributes={"num_heads": 3, "output_qk": 1}),
    Case("cross", "DecoderMaskedMultiHeadAttention", [TOKEN, BUFFER, BUFFER],
         macs=2 * 3 * 11 * 10, other=SCORE * 66, transcendental=66, read=(30 + 2 * 330) * F,
         written=30 * F, domain=MS, attributes={"num_heads": 3}),
    Case("projected, in a shared buffer", "DecoderMaskedSelfAttention",
         [x(2, 1, 7), x(7, 45), x(45), None, x(2, 2, 3, 11, 5), None, SIX],
         macs=2 * 7 * 45 + 42 * 10, other=SCORE * 42 + 2 * 45, transcendental=42,
         written=(30 + 2 * 2 * 3 * 11 * 5) * F, domain=MS, outputs=2,
         attributes={"num_heads": 3, "past_present_share_buffer": 1}),
    Case("projected and turned", "DecoderMaskedSelfAttention",
         [x(2, 1, 7), x(7, 45), x(45), None, x(2, 2, 3, 6, 5)], macs=2 * 7 * 45 + 42 * 10,
         other=SCORE * 42 + 2 * 45 + 3 * 2 * (15 + 15), transcendental=42, domain=MS, outputs=2,
         attributes={"num_heads": 3, "do_rotary": 1}),
)  # fmt: skip
def test_attention_of_one_token(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


# 2·3 tokens, in 4 heads of 5 with 2 of keys; the cache has place for 32 tokens, the new ones too
CACHE = [x(2, 2, 32, 5), x(2, 2, 32, 5)]
BLOCKS = [known([[0, 1, 3]], np.int32), known([[0, 0, 1]], np.int32)]
SPARSE = {"num_heads": 4, "kv_num_heads": 2, "sparse_block_size": 16}


@table(
    Case("filled so far", "SparseAttention",
         [x(2, 3, 20), x(2, 3, 10), x(2, 3, 10), *CACHE, *BLOCKS, known(7, np.int32), int32(2)],
         macs=2 * 4 * 3 * 7 * 10, other=SCORE * 168, transcendental=168,
         written=(120 + 2 * 640) * F, domain=MS, outputs=3, attributes=SPARSE),
    Case("filled at most", "SparseAttention",
         [x(2, 3, 20), x(2, 3, 10), x(2, 3, 10), *CACHE, int32(1, 3), int32(1, 3), int32(),
          int32(2)], macs=2 * 4 * 3 * 32 * 10, other=SCORE * 768, transcendental=768,
         written=(120 + 2 * 640) * F, domain=MS, outputs=3, attributes=SPARSE),
    Case("all in one, turned", "SparseAttention",
         [x(2, 3, 40), None, None, *CACHE, *BLOCKS, known(7, np.int32), int32(2), x(32, 2),
          x(32, 2)], macs=2 * 4 * 3 * 7 * 10, other=SCORE * 168 + 3 * 6 * (20 + 10),
         transcendental=168, domain=MS, outputs=3, attributes=SPARSE | {"do_rotary": 1}),
)  # fmt: skip
def test_sparse_attention(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


# products are 5×3 by 3×7, or two of these


@table(
    Case("turned", "TransposeMatMul", [x(2, 3, 5), x(2, 3, 7)], macs=2 * 105, written=70 * F,
         domain=MS, attributes={"transA": 1}),
    Case("batch after the rows, with an activation", "FusedMatMulActivation",
         [x(5, 2, 3), x(2, 7, 3)], macs=2 * 105, other=(1 + 2) * 70, written=70 * F, domain=MS,
         attributes={"transBatchA": 1, "transB": 1, "alpha": 0.5, "activation": "LeakyRelu"}),
    Case("as if dense", "SparseToDenseMatMul", [x(3, 5), x(3, 7)], macs=105, other=35, domain=MS,
         attributes={"transA": 1, "alpha": 0.5}),
    Case("and gelu", "GemmFastGelu", [x(2, 5, 3), x(3, 7), x(7)], macs=2 * 105,
         other=(1 + GELU_TANH) * 70, transcendental=70, domain=MS),
    Case("of 8-bit floats", "GemmFloat8", [fp8(5, 3), fp8(7, 3), None, x(1), x(1)], macs=105,
         other=35, read=15 + 21 + 2 * F, written=35 * F, domain=MS, attributes={"transB": 1}),
    Case("scaled, added, rectified", "GemmFloat8", [x(5, 3), x(3, 7), x(5, 7)], macs=105,
         other=(1 + 1 + 1 + 1) * 35, written=35 * F, domain=MS,
         attributes={"alpha": 0.5, "beta": 2.0, "activation": "RELU"}),
    Case("nothing added unless asked", "GemmFloat8", [x(5, 3), x(3, 7), x(5, 7)], macs=105,
         domain=MS),
    Case("of 16 bits", "MatMulInteger16",
         [typed(TensorProto.INT16, 2, 5, 3), typed(TensorProto.INT16, 3, 7)], macs=2 * 105,
         read=(30 + 21) * 2, written=70 * 4, domain=MS),
    Case("of 8 bits to floats", "MatMulIntegerToFloat",
         [uint8(2, 5, 3), int8(3, 7), x(), x(7), uint8(), int8(7), x(7)], macs=2 * 105,
         other=(1 + 1) * 70, read=30 + 21 + F + 7 * F + 1 + 7 + 7 * F, written=70 * F, domain=MS),
    Case("of 8 bits to 8 bits", "QGemm",
         [uint8(3, 5), x(), uint8(), int8(7, 3), x(7), int8(7), int32(7), x(), uint8()], macs=105,
         other=(1 + 1) * 35, written=35, domain=MS, attributes={"transA": 1, "transB": 1}),
    Case("of 8 bits to floats, without a bias", "QGemm",
         [uint8(5, 3), x(), uint8(), int8(3, 7), x(), int8()], macs=105, other=35,
         written=35 * F, domain=MS),
    # 7·48 weights in blocks of 16
    Case("nf4 weights", "MatMulBnb4", [x(2, 5, 48), uint8(168), x(21)], macs=10 * 48 * 7,
         other=48 * 7, read=(480 + 21) * F + 168, written=70 * F, domain=MS,
         attributes={"K": 48, "N": 7, "block_size": 16, "quant_type": 1}),
    Case("nf4 weights, the other way", "MatMulBnb4", [x(2, 5, 7), uint8(168), x(21)],
         macs=10 * 48 * 7, other=48 * 7, written=480 * F, domain=MS,
         attributes={"K": 48, "N": 7, "block_size": 16, "quant_type": 1, "transB": 0}),
    # 64·7 weights in 14 blocks of 32: 16 bytes and a scale, and by default an offset
    Case("a blob", "MatMulFpQ4", [x(2, 5, 64), uint8(14 * 20), known([64, 7])], macs=10 * 64 * 7,
         other=64 * 7, written=70 * F, domain=MS, attributes={"blk_quant_type": 0}),
    Case("a blob with offsets", "MatMulFpQ4", [x(2, 5, 64), uint8(14 * 21), known([64, 7])],
         macs=10 * 64 * 7, other=2 * 64 * 7, written=70 * F, domain=MS),
    Case("distances", "CDist", [x(3, 7), x(5, 7)], other=3 * 15 * 7, read=56 * F, written=15 * F,
         domain=MS),
    Case("distances with roots", "CDist", [x(3, 7), x(5, 7)], other=3 * 15 * 7,
         transcendental=15, domain=MS, attributes={"metric": "euclidean"}),
    Case("inverse", "Inverse", [x(3, 5, 5)], other=3 * 2 * 5**3, read=75 * F, written=75 * F,
         domain=MS),
)  # fmt: skip
def test_products(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


# each of 2·5 tokens of 6 goes to 2 of 3 experts, 7 wide inside: 20 ways through one. Its result is
# weighted and added, 2 FLOPs an element
EXPERTS = [x(2, 5, 6), x(10, 3)]


@table(
    Case("experts", "MoE", [*EXPERTS, x(3, 7, 6), None, x(3, 6, 7)], macs=20 * (6 * 7 + 7 * 6),
         other=20 * (7 + 2 * 6), written=60 * F, domain=MS, attributes={"k": 2}),
    Case("experts with biases", "MoE", [*EXPERTS, x(3, 7, 6), x(3, 7), x(3, 6, 7), x(3, 6)],
         macs=20 * (6 * 7 + 7 * 6), other=20 * (7 + 7 + 6 + 2 * 6), domain=MS,
         attributes={"k": 2}),
    Case("gated experts", "MoE", [*EXPERTS, x(3, 7, 6), None, x(3, 6, 7), None, x(3, 7, 6)],
         macs=20 * 3 * 42, other=20 * ((SILU + 1) * 7 + 2 * 6), transcendental=20 * 7, domain=MS,
         attributes={"k": 2, "activation_type": "silu"}),
    Case("gated experts, in one product", "MoE", [*EXPERTS, x(3, 14, 6), None, x(3, 6, 7)],
         macs=20 * (6 * 14 + 7 * 6), other=20 * ((SILU + 1) * 7 + 2 * 6), transcendental=20 * 7,
         domain=MS, attributes={"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1}),
    # 8 features, 10 wide inside; each of 3·2·80 weights of 4 bits has a scale
    Case("4-bit experts", "QMoE",
         [x(2, 5, 8), x(10, 3), uint8(3, 10, 4), x(3, 10), None, uint8(3, 8, 5), x(3, 8)],
         macs=20 * 2 * 80, other=20 * (10 + 2 * 8) + 3 * 2 * 80, written=80 * F, domain=MS,
         attributes={"k": 2}),
)  # fmt: skip
def test_experts(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)
