"""onnxruntime's rarer operators by hand, and which of them have no formula."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto
from tests.onnx.models import (
    MS,
    Case,
    check,
    count,
    int8,
    int64,
    known,
    one_node,
    table,
    typed,
    uint8,
    x,
)

from ridgeline.onnx.formulas import entry_of

F = 4
# (1, 8, 2, 16): one scale for each of two blocks of 32 of 4 bits, for 8 features of 64
PACKED = [uint8(8, 2, 16), x(8, 2)]
SILU, SIGMOID, SOFTPLUS = 4, 3, 3  # FLOPs an element


@table(
    Case("biased softmax", "BiasSoftmax", [x(2, 5), x(1, 5)], other=5 * 10, transcendental=10,
         read=15 * F, written=10 * F, domain=MS, attributes={"axis": 1, "is_inner_broadcast": 0}),
    Case("scaled silu", "ScaledSiLU", [x(6)], other=(SILU + 1) * 6, transcendental=6, domain=MS),
    Case("gated sum", "GatedAdd", [x(2, 6), x(2, 6), x(2, 1)], other=2 * 12, domain=MS),
    Case("complex product", "ComplexMul", [x(3, 2), x(3, 2)], other=6 * 3, domain=MS),
    Case("complex product, broadcast", "ComplexMulConj", [x(4, 3, 2), x(3, 2)], other=6 * 12,
         written=24 * F, domain=MS),
    Case("8-bit gelu", "QOrderedGelu", [int8(6), x(), x()], other=(1 + 4 + 4) * 6,
         transcendental=6, written=6, domain=MS),
    Case("8-bit layer norm", "QOrderedLayerNormalization", [int8(2, 5, 8), x(), x(8), x(8), x()],
         other=(1 + 8 + 4) * 80, transcendental=10, domain=MS),
    Case("finite", "IsAllFinite", [x(6), x(2, 2)], other=10, written=1, domain=MS),
    Case("integers", "MulInteger", [int8(2, 6), int8(), int8(6)], written=12 * 4, domain=MS),
    Case("dropout at rest, with a mask", "BitmaskDropout", [x(70)], read=0, written=3 * 4,
         domain=MS, outputs=2),
    Case("dropout in training", "BitmaskDropout", [x(70), x(), known(True, np.bool_)],
         other=2 * 70, domain=MS, outputs=2),
    Case("gates", "LinearAttentionGate", [x(2, 5, 4), x(4), x(4), x(2, 5, 4)],
         other=(SOFTPLUS + 2 + SIGMOID) * 40, transcendental=3 * 40, domain=MS, outputs=2),
    Case("rms norm by branch", "BranchwiseRMSNorm", [x(2, 3, 8), x(8)], other=4 * 48,
         transcendental=6, domain=MS),
    Case("rms norm by branch, flat", "BranchwiseRMSNorm", [x(2, 24)], other=3 * 48,
         transcendental=6, domain=MS, attributes={"num_branches": 3}),
    Case("gated rms norm", "GatedRMSNorm", [x(2, 5, 16), x(8), x(2, 5, 16)],
         other=(4 + SILU + 1) * 160, transcendental=20 + 160, domain=MS),
    Case("three positions", "MRotaryEmbedding", [x(2, 4, 5, 8), int64(3, 2, 5), x(9, 4), x(9, 4)],
         other=3 * 320, domain=MS, attributes={"mrope_section": [2, 1, 1]}),
    # rows = 2·5·3: two norms of 4 and a gated value an element, a product, and 8 FLOPs a row
    Case("engram", "EngramGate", [x(2, 5, 3, 8), x(2, 5, 3, 8), x(2, 5, 8), x(3, 8), x(3, 8)],
         macs=240, other=9 * 240 + (5 + SIGMOID) * 30, transcendental=4 * 30, domain=MS),
    Case("n-grams", "NGramHashMapping", [int64(2, 5), int64(3), int64(8)], written=2 * 5 * 8 * 8,
         domain=MS, attributes={"max_ngram_size": 3, "n_head_per_ngram": 4}),
    Case("quantised in an order", "QuantizeWithOrder", [x(2, 6), x()], other=4 * 12, written=12,
         domain=MS, attributes={"order_input": 1, "order_output": 2}),
    Case("and back", "DequantizeWithOrder", [int8(2, 6), x()], other=12, written=24, domain=MS,
         attributes={"order_input": 2, "order_output": 1, "to": TensorProto.FLOAT16}),
    Case("angles, for q and k", "GemmaRotaryEmbedding",
         [x(2, 5, 8), x(2, 4, 5, 8), x(2, 4, 5, 8), x(2, 1, 5, 8), x(2, 1, 5, 8)],
         other=3 * (320 + 80), transcendental=2 * 80, written=400 * F, domain=MS, outputs=2),
    Case("8-bit where", "QLinearWhere",
         [typed(TensorProto.BOOL, 2, 1), uint8(6), x(), uint8(), uint8(2, 6), x(), uint8(), x(),
          uint8()], other=(2 + 2 + 5) * 12, written=12, domain=MS),
    Case("hashes", "MurmurHash3", [int64(6)], read=48, written=24, domain=MS),
    Case("8-bit sum", "ReduceSumInteger", [int8(2, 6)], written=2 * 4, domain=MS,
         attributes={"axes": [1]}),
    Case("real transform", "Rfft", [x(3, 8)], other=3 * 5 * 8 * 3 // 2, written=3 * 5 * 2 * F,
         domain=MS, attributes={"signal_ndim": 1, "onesided": 1}),
    Case("and back to numbers", "Irfft", [x(3, 5, 2)], other=3 * 5 * 8 * 3 // 2,
         written=3 * 8 * F, domain=MS, attributes={"signal_ndim": 1, "onesided": 1}),
    Case("padding put back", "RestorePadding", [x(7, 8), typed(TensorProto.INT32, 2, 5)],
         written=2 * 5 * 8 * F, domain=MS),
    Case("named elements", "GatherND", [x(3, 4), int64(5, 1)], read=5 * 4 * F + 40,
         written=20 * F, domain=MS),
    Case("echo", "SampleOp", [x(6)], read=0, written=0, domain=MS),
)  # fmt: skip
def test_element_by_element(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


@table(
    Case("8 bits, ordered", "QOrderedMatMul", [int8(2, 5, 3), x(), int8(3, 7), x(), x(), x(7)],
         macs=10 * 3 * 7, other=2 * 70, written=70, domain=MS,
         attributes={"order_A": 1, "order_B": 0, "order_Y": 1}),
    Case("fp8 weights", "MatMulBlockQuantizedFp8Weight",
         [typed(TensorProto.FLOAT16, 2, 5, 64), typed(TensorProto.FLOAT8E4M3FN, 8, 64), x(8, 1)],
         macs=10 * 64 * 8, other=8 * 64, read=640 * 2 + 512 + 8 * F, written=80 * 2, domain=MS),
    Case("fp8 weights and operand", "MatMulBlockQuantizedFp8Weight",
         [typed(TensorProto.FLOAT16, 10, 64), typed(TensorProto.FLOAT8E4M3FN, 8, 64), x(8, 1), x(),
          typed(TensorProto.FLOAT16, 8)], macs=10 * 64 * 8, other=8 * 64 + 5 * 640 + 80, domain=MS),
    Case("fp4 weights", "MatMulBlockQuantizedFp4Weight",
         [typed(TensorProto.FLOAT16, 10, 64), uint8(8, 32), uint8(8, 4), x()], macs=10 * 64 * 8,
         other=2 * 8 * 64, domain=MS),
    Case("packed MLP", "MatMulNBitsMlp", [x(2, 5, 64), None, None, *PACKED, None, *PACKED],
         macs=10 * 64 * 16, other=16 * 64 + (SILU + 1) * 80, transcendental=80,
         written=80 * F, domain=MS,
         attributes={"K": 64, "N": 8, "block_size": 32, "bits": 4, "activation": "silu"}),
    Case("packed MLP after a norm", "MatMulNBitsMlp",
         [x(10, 64), x(10, 64), x(64), *PACKED, x(8), *PACKED, x(8)],
         macs=10 * 64 * 16, other=16 * 64 + 10 * 16 + 5 * 640 + (SILU + 1) * 80,
         transcendental=10 + 80, written=(80 + 640) * F, domain=MS, outputs=2,
         attributes={"K": 64, "N": 8, "block_size": 32, "bits": 4, "activation": "silu"}),
    Case("packed projections", "MatMulNBitsQkv",
         [x(10, 64), None, x(64), uint8(16, 2, 16), x(16, 2), None, *PACKED, None, *PACKED],
         macs=10 * 64 * 32, other=32 * 64 + 4 * 640, transcendental=10,
         written=(160 + 80 + 80) * F, domain=MS, outputs=3,
         attributes={"K": 64, "Nq": 16, "Nkv": 8, "block_size": 32, "bits": 4}),
    Case("packed tokens, convolved", "VarlenCausalConvWithState",
         [x(10, 6), x(6, 1, 4), typed(TensorProto.INT32, 3), x(6), x(2, 6, 3)], macs=60 * 4,
         other=(1 + SILU) * 60, transcendental=60, written=(60 + 36) * F, domain=MS, outputs=2,
         attributes={"activation": "silu"}),
    Case("convolved with a state", "CausalConvWithState", [x(2, 6, 5), x(6, 1, 4), x(6)],
         macs=60 * 4, other=60, written=(60 + 2 * 6 * 6) * F, domain=MS, outputs=2,
         attributes={"dilation": 2}),
    Case("branches into one", "HyperConnectionPreMix", [x(2, 5, 4, 8), x(2, 5, 4)],
         macs=2 * 5 * 4 * 8, written=80 * F, domain=MS),
    Case("branches into one, flat and scaled", "HyperConnectionPreMix", [x(2, 5, 32), x(2, 5, 4)],
         macs=320, other=80, domain=MS, attributes={"num_branches": 4, "reduction_scale": 0.5}),
    Case("one into branches", "HyperConnectionPostMix", [x(10, 4, 8), x(10, 8), x(10, 4)],
         other=2 * 320, domain=MS),
    Case("branches mixed", "HyperConnectionPostMix",
         [x(10, 4, 8), x(10, 8), x(10, 4), x(10, 4, 4)], macs=10 * 4 * 4 * 8, other=2 * 320,
         domain=MS),
)  # fmt: skip
def test_products(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


# projected: 2 sequences of 5 tokens, 16 features to 3·16; attended to in 4 heads of 4


@table(
    Case("8 bits, ordered", "QOrderedAttention",
         [int8(2, 5, 16), x(), x(), x(), x(), int8(16, 16), int8(16, 16), int8(16, 16),
          x(), x(), x(), x(16), x(16), x(16), x(), x(), x()],
         macs=10 * 16 * 48 + 2 * 4 * 25 * 8, other=5 * 200 + 10 * (2 * 48 + 16),
         transcendental=200, written=160, domain=MS, attributes={"num_heads": 4}),
    Case("one token, with a past", "DecoderMaskedSelfAttention",
         [x(2, 1, 16), x(16, 48), x(48), None, x(2, 2, 4, 9, 4)],
         macs=2 * 16 * 48 + 2 * 4 * 10 * 8, other=5 * 80 + 2 * 48, transcendental=80, outputs=2,
         written=(2 * 16 + 2 * 2 * 4 * 10 * 4) * F, domain=MS, attributes={"num_heads": 4}),
    # 3 uses of a state of 8·6 for each of 10 tokens and 4 value heads
    Case("gated delta", "GatedDeltaNet",
         [x(10, 2, 8), x(10, 2, 8), x(10, 4, 6), None, x(10, 4), x(10, 4), x(2, 4, 6, 8)],
         macs=3 * 10 * 4 * 48, other=40 * (48 + 3 * 6), transcendental=40,
         written=(10 * 4 * 6 + 2 * 4 * 48) * F, domain=MS, outputs=2),
    Case("gated delta, packed", "GatedDeltaNet",
         [x(10, 2 * 2 * 8 + 4 * 6), None, None, None, x(10, 4), x(10, 4), x(2, 4, 6, 8)],
         macs=3 * 10 * 4 * 48, other=40 * (48 + 3 * 6), transcendental=40, domain=MS),
    # a state of 8·6 for each of 2 key heads, added to, corrected, and read by 4 query heads
    Case("linear", "LinearAttention",
         [x(1, 10, 32), x(1, 10, 16), x(1, 10, 12), None, x(1, 10, 2), x(1, 10, 2)],
         macs=10 * (2 * 2 + 4) * 48, other=10 * (2 * (48 + 12) + 4 * 6), transcendental=10 * 2,
         written=(10 * 24 + 2 * 48) * F, domain=MS, outputs=2,
         attributes={"q_num_heads": 4, "kv_num_heads": 2}),
    Case("8-bit lstm", "DynamicQuantizeLSTM",
         [x(5, 2, 3), uint8(1, 3, 16), uint8(1, 4, 16), None, None, None, None, None,
          x(1), uint8(1), x(1), uint8(1)], macs=10 * 16 * 7, other=10 * (16 + 13 * 4),
         transcendental=200, written=(40 + 8 + 8) * F, domain=MS, outputs=3,
         attributes={"hidden_size": 4}),
    # 2·3·5 rows, each with 4 columns of 8; then 2·3·5·5 biases
    Case("gated bias", "GatedRelativePositionBias",
         [x(2, 5, 24), x(24), x(1, 3, 5, 5), x(8, 4), x(4), x(1, 3, 1, 1)], macs=30 * 4 * 8,
         other=240 + (2 * 4 + 2 * SIGMOID + 4) * 30 + 150, transcendental=60, written=150 * F,
         domain=MS, attributes={"num_heads": 3}),
    Case("bias by distance", "RelativePositionBias", [x(32, 3), known(5), known(7)],
         read=96 * F, written=3 * 35 * F, domain=MS, attributes={"max_distance": 128}),
)  # fmt: skip
def test_attention(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


@table(
    Case("image scaler", "ImageScaler", [x(1, 3, 4, 4)], other=2 * 48,
         attributes={"scale": 0.5, "bias": [0.0, 0.0, 0.0]}),
    Case("scale", "Scale", [x(6)], other=6, attributes={"scale": 0.5}),
    Case("softplus with numbers", "ParametricSoftplus", [x(6)], other=5 * 6, transcendental=12),
    Case("tanh with numbers", "ScaledTanh", [x(6)], other=2 * 6, transcendental=6),
    Case("crop", "Crop", [x(1, 3, 9, 9)], read=0, written=0, attributes={"border": [1, 2, 3, 4]}),
)  # fmt: skip
def test_operators_from_before_onnx_1(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


def test_the_shape_of_a_crop(tmp_path: Path) -> None:
    result = count(one_node("Crop", [x(1, 3, 9, 9)], border=[1, 2, 3, 4]), tmp_path)

    assert result.op_costs[0].call.outputs[0].shape == (1, 3, 9 - 2 - 4, 9 - 1 - 3)


def test_packed_weights_of_fused_products_are_parameters(tmp_path: Path) -> None:
    operands = [x(10, 64), None, known(np.ones(64), np.float32)]
    for _ in range(2):
        operands += [known(np.zeros((8, 2, 16)), np.uint8), known(np.zeros((8, 2)), np.float32),
                     None]  # fmt: skip
    made = one_node("MatMulNBitsMlp", operands[:-1], domain=MS, K=64, N=8, block_size=32, bits=4)

    result = count(made, tmp_path)

    assert result.params == 64 + 2 * 8 * 64  # of the norm, and two packed matrices
    assert (result.memory.parameter_bytes, result.memory.buffer_bytes) == (64 * F + 512, 32 * F)


WITHOUT_FORMULA = {
    "AttnLSTM", "BeamSearch", "DecoderAttention", "DequantizeBFP", "DynamicSparseAttention",
    "EPContext", "GreedySearch", "LongformerAttention", "PackedSparseAttentionIndexer",
    "PagedAttention", "QOrderedLongformerAttention", "QuantizeBFP", "Sampling", "Snpe",
    "SparseAttentionIndexer", "SparsePagedAttention", "WhisperBeamSearch", "WordConvEmbedding",
}  # fmt: skip
"""As docs/onnx.md lists them."""


def test_which_operators_of_onnxruntime_have_no_formula() -> None:
    state = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state")
    known_to = {s.name for s in state.get_all_operator_schema() if s.domain == MS}
    if not known_to:
        pytest.skip("this onnxruntime does not tell its operators")

    assert {name for name in known_to if entry_of(MS, name) is None} <= WITHOUT_FORMULA
