"""A row or more for every family of standard operators, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from tests.onnx.models import (
    MS,
    Case,
    Operand,
    check,
    check_formulas,
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

F = 4


def words(*shape: int) -> Operand:
    return typed(TensorProto.STRING, *shape)


@table(
    Case("matmul", "MatMul", [x(5, 3), x(3, 7)], macs=5 * 3 * 7, read=(15 + 21) * F,
         written=35 * F),
    Case("matmul with a batch", "MatMul", [x(2, 4, 5, 3), x(2, 4, 3, 7)], macs=2 * 4 * 5 * 3 * 7),
    Case("matmul broadcast", "MatMul", [x(2, 1, 5, 3), x(4, 3, 7)], macs=2 * 4 * 5 * 3 * 7,
         read=(2 * 5 * 3 + 4 * 3 * 7) * F, written=2 * 4 * 5 * 7 * F),
    Case("matmul of one matrix for all", "MatMul", [x(2, 5, 3), x(3, 7)], macs=2 * 5 * 3 * 7),
    Case("vector times matrix", "MatMul", [x(3), x(3, 7)], macs=3 * 7),
    Case("matrix times vector", "MatMul", [x(5, 3), x(3)], macs=5 * 3),
    Case("dot product", "MatMul", [x(3), x(3)], macs=3, written=F),
    Case("gemm", "Gemm", [x(5, 3), x(3, 7), x(7)], macs=105, other=35,
         read=(15 + 21 + 7) * F),
    Case("gemm turned and scaled", "Gemm", [x(3, 5), x(7, 3), x(7)], macs=105, other=3 * 35,
         attributes={"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}),
    Case("integer matmul", "MatMulInteger", [uint8(5, 3), int8(3, 7)], macs=105, read=15 + 21,
         written=35 * 4),
    Case("quantised matmul", "QLinearMatMul",
         [uint8(5, 3), x(), uint8(), uint8(3, 7), x(), uint8(), x(), uint8()], macs=105, other=35,
         written=35),
    Case("einsum of a product", "Einsum", [x(2, 5, 3), x(2, 3, 7)], macs=2 * 5 * 3 * 7,
         attributes={"equation": "bij,bjk->bik"}),
    Case("einsum of an outer product", "Einsum", [x(5), x(7)], other=35,
         attributes={"equation": "i,j->ij"}),
    Case("einsum of a sum", "Einsum", [x(5, 3)], other=15, attributes={"equation": "ij->i"}),
    Case("einsum of a turn", "Einsum", [x(5, 3)], attributes={"equation": "ij->ji"}),
    Case("einsum with dots", "Einsum", [x(2, 4, 5, 3), x(3, 7)], macs=2 * 4 * 5 * 3 * 7,
         attributes={"equation": "...ij,jk->...ik"}),
    Case("einsum of three", "Einsum", [x(2, 3), x(3, 4), x(4, 5)], macs=2 * 3 * 4 + 2 * 4 * 5,
         attributes={"equation": "ab,bc,cd->ad"}),
    Case("fused matmul", "FusedMatMul", [x(3, 5), x(3, 7)], macs=105, other=35, domain=MS,
         attributes={"transA": 1, "alpha": 0.5}),
    Case("fused gemm with relu", "FusedGemm", [x(5, 3), x(3, 7), x(7)], macs=105, other=2 * 35,
         domain=MS, attributes={"activation": "Relu"}),
    Case("4-bit weights", "MatMulNBits", [x(2, 5, 64), uint8(8, 2, 16), x(16)],
         macs=10 * 64 * 8, other=64 * 8, read=10 * 64 * F + 8 * 2 * 16 + 16 * F, domain=MS,
         attributes={"K": 64, "N": 8, "bits": 4, "block_size": 32}),
    Case("dynamically quantised", "DynamicQuantizeMatMul", [x(5, 3), int8(3, 7), x(1)], macs=105,
         other=7 * 15 + 35, domain=MS),
    Case("determinant", "Det", [x(4, 3, 3)], other=4 * 2 * 27 // 3),
)  # fmt: skip
def test_products(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


CONV = 2 * 8 * 5 * 5 * 4 * 9  # N·Cout·Hout·Wout·Cin·K


@table(
    Case("conv", "Conv", [x(2, 4, 7, 7), x(8, 4, 3, 3)], macs=CONV,
         read=(2 * 4 * 49 + 8 * 4 * 9) * F, written=2 * 8 * 25 * F),
    Case("with a bias", "Conv", [x(2, 4, 7, 7), x(8, 4, 3, 3), x(8)], macs=CONV,
         other=2 * 8 * 25),
    Case("strided and padded", "Conv", [x(2, 4, 7, 7), x(8, 4, 3, 3)], macs=2 * 8 * 16 * 36,
         attributes={"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    Case("grouped", "Conv", [x(2, 4, 7, 7), x(8, 2, 3, 3)], macs=CONV // 2,
         attributes={"group": 2}),
    Case("depthwise", "Conv", [x(2, 4, 7, 7), x(4, 1, 3, 3)], macs=2 * 4 * 25 * 9,
         attributes={"group": 4}),
    Case("one dimension", "Conv", [x(2, 4, 9), x(8, 4, 3)], macs=2 * 8 * 7 * 4 * 3),
    Case("three dimensions", "Conv", [x(1, 2, 4, 4, 4), x(3, 2, 2, 2, 2)],
         macs=3 * 27 * 2 * 8),
    Case("transposed", "ConvTranspose", [x(2, 4, 5, 5), x(4, 8, 3, 3), x(8)],
         macs=2 * 4 * 25 * 8 * 9, other=2 * 8 * 49),
    Case("transposed and grouped", "ConvTranspose", [x(2, 4, 5, 5), x(4, 3, 3, 3)],
         macs=2 * 4 * 25 * 3 * 9, attributes={"group": 2}),
    Case("integer", "ConvInteger", [uint8(2, 4, 7, 7), uint8(8, 4, 3, 3)], macs=CONV,
         read=2 * 4 * 49 + 8 * 4 * 9, written=2 * 8 * 25 * 4),
    Case("quantised", "QLinearConv",
         [uint8(2, 4, 7, 7), x(), uint8(), uint8(8, 4, 3, 3), x(), uint8(), x(), uint8(),
          typed(TensorProto.INT32, 8)], macs=CONV, other=2 * 2 * 8 * 25),
    Case("deformable", "DeformConv",
         [x(2, 4, 7, 7), x(8, 4, 3, 3), x(2, 18, 5, 5), x(8), x(2, 9, 5, 5)], macs=CONV,
         other=8 * 2 * 4 * 25 * 9 + 2 * 8 * 25, attributes={"offset_group": 1}),
    Case("fused with a sum and relu", "FusedConv",
         [x(2, 4, 7, 7), x(8, 4, 3, 3), x(8), x(2, 8, 5, 5)], macs=CONV, other=3 * 2 * 8 * 25,
         domain=MS, attributes={"activation": "Relu"}),
    Case("half precision", "Conv",
         [typed(TensorProto.FLOAT16, 2, 4, 7, 7), typed(TensorProto.FLOAT16, 8, 4, 3, 3)],
         macs=CONV, read=(2 * 4 * 49 + 8 * 4 * 9) * 2, written=2 * 8 * 25 * 2),
)  # fmt: skip
def test_convolutions(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


def test_formula_names_its_numbers(tmp_path: Path) -> None:
    case = Case("conv", "Conv", [x(2, 4, 7, 7), x(8, 2, 3, 3)], macs=CONV // 2,
                attributes={"group": 2, "strides": [1, 1]})  # fmt: skip
    row = check(case, tmp_path).op_costs[0]
    assert row.formula == ("2·N·Cout·Hout·Wout·(Cin/g)·Kh·Kw = 2·2·8·5·5·2·3·3 = 14400")
    assert (row.path, row.op, row.kind, row.dtype) == ("it", "onnx::Conv", "conv", "fp32")
    assert row.settings == "group=2 strides=1,1"


@table(
    Case("add", "Add", [x(2, 3), x(3)], other=6, read=9 * F, written=6 * F),
    Case("integers are no work", "Add", [int64(2, 3), int64(3)], read=9 * 8),
    Case("relu", "Relu", [x(2, 3)], other=6),
    Case("sigmoid", "Sigmoid", [x(6)], other=18, transcendental=6),
    Case("gelu", "Gelu", [x(6)], other=24, transcendental=6),
    Case("gelu by tanh", "Gelu", [x(6)], other=48, transcendental=6,
         attributes={"approximate": "tanh"}),
    Case("clip by both", "Clip", [x(6), x(), x()], other=12),
    Case("clip from below", "Clip", [x(6), x()], other=6),
    Case("clip of old", "Clip", [x(6)], other=12, opset=6, attributes={"min": 0.0, "max": 6.0}),
    Case("square", "Pow", [x(6), known(2.0, np.float32)], other=6),
    Case("any power", "Pow", [x(6), x()], transcendental=6),
    Case("sum of three", "Sum", [x(6), x(6), x(6)], other=12),
    Case("where", "Where", [typed(TensorProto.BOOL, 6), x(6), x(6)], read=6 + 2 * 6 * F),
    Case("quantise", "QuantizeLinear", [x(6), x(), uint8()], other=30, written=6),
    Case("dequantise", "DequantizeLinear", [uint8(6), x(), uint8()], other=12, read=6 + F + 1),
    Case("dequantise int4", "DequantizeLinear", [typed(TensorProto.INT4, 6), x()], other=6,
         read=3 + F),
    Case("bias and gelu", "BiasGelu", [x(2, 6), x(6)], other=60, transcendental=12, domain=MS),
    Case("quick gelu", "QuickGelu", [x(6)], other=30, transcendental=6, domain=MS),
    Case("quantised sum", "QLinearAdd",
         [uint8(6), x(), uint8(), uint8(6), x(), uint8(), x(), uint8()], other=60, domain=MS),
    Case("dropout at rest", "Dropout", [x(6)], read=0, written=0),
    Case("softplus", "Softplus", [x(6)], other=18, transcendental=12),
)  # fmt: skip
def test_pointwise(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


@table(
    Case("batch norm", "BatchNormalization", [x(2, 3, 4, 4), x(3), x(3), x(3), x(3)],
         other=2 * 96, transcendental=3, read=(96 + 12) * F),
    Case("layer norm", "LayerNormalization", [x(2, 5, 8), x(8), x(8)], other=8 * 80,
         transcendental=10),
    Case("layer norm without bias", "LayerNormalization", [x(2, 5, 8), x(8)], other=7 * 80,
         transcendental=10),
    Case("instance norm", "InstanceNormalization", [x(2, 3, 4), x(3), x(3)], other=8 * 24,
         transcendental=6),
    Case("group norm", "GroupNormalization", [x(2, 6, 4), x(6), x(6)], other=8 * 48,
         transcendental=2 * 3, attributes={"num_groups": 3}),
    Case("rms norm", "RMSNormalization", [x(2, 5, 8), x(8)], other=4 * 80, transcendental=10,
         opset=23),
    Case("skip and layer norm", "SkipLayerNormalization",
         [x(2, 5, 8), x(2, 5, 8), x(8), x(8), x(8)], other=10 * 80, transcendental=10, domain=MS),
    Case("skip and rms norm", "SkipSimplifiedLayerNormalization", [x(2, 5, 8), x(2, 5, 8), x(8)],
         other=5 * 80, transcendental=10, domain=MS),
    Case("softmax", "Softmax", [x(2, 5)], other=40, transcendental=10),
    Case("log-softmax", "LogSoftmax", [x(2, 5)], other=40, transcendental=12),
    Case("lrn", "LRN", [x(1, 4, 2, 2)], other=(2 * 3 + 3) * 16, transcendental=16,
         attributes={"size": 3}),
)  # fmt: skip
def test_norms(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


@table(
    Case("max pool", "MaxPool", [x(1, 2, 6, 6)], other=18 * 4,
         attributes={"kernel_shape": [2, 2], "strides": [2, 2]}),
    Case("average pool", "AveragePool", [x(1, 2, 6, 6)], other=18 * 5,
         attributes={"kernel_shape": [2, 2], "strides": [2, 2]}),
    Case("global norm of order 3", "GlobalLpPool", [x(1, 2, 6, 6)], other=2 * 72,
         transcendental=72 + 2, attributes={"p": 3}),
    Case("global average", "GlobalAveragePool", [x(1, 2, 6, 6)], other=72 + 2),
    Case("nearest", "Resize", [x(1, 2, 3, 3), None, known([1, 1, 2, 2], np.float32)]),
    Case("bilinear", "Resize", [x(1, 2, 3, 3), None, known([1, 1, 2, 2], np.float32)],
         other=72 * 7, attributes={"mode": "linear"}),
    Case("mean", "ReduceMean", [x(2, 6), known([1])], other=12 + 2),
    Case("sum", "ReduceSum", [x(2, 6), known([1])], other=12),
    Case("norm", "ReduceL2", [x(2, 6), known([1])], other=24, transcendental=2),
    Case("largest", "ArgMax", [x(2, 6)], other=12, attributes={"axis": 1}),
    Case("top k", "TopK", [x(2, 6), known([4])], other=12 * 2, outputs=2),
    Case("fft", "DFT", [x(1, 8, 2)], other=5 * 8 * 3, opset=17, attributes={"axis": 1}),
    Case("boxes", "NonMaxSuppression", [x(1, 10, 4), x(1, 3, 10), known([2])],
         other=12 * 3 * 45, written=3 * 2 * 3 * 8),
    Case("cross entropy", "SoftmaxCrossEntropyLoss", [x(4, 10), int64(4)], other=4 * 40 + 4,
         transcendental=44),
)  # fmt: skip
def test_pooling_and_reductions(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


@table(
    Case("reshape is free", "Reshape", [x(2, 6), known([3, 4])], read=0, written=0),
    Case("transpose is free", "Transpose", [x(2, 6)], read=0, written=0),
    Case("slice is free", "Slice", [x(2, 6), known([0]), known([1])], read=0, written=0),
    Case("concat", "Concat", [x(2, 6), x(2, 4)], read=20 * F, written=20 * F,
         attributes={"axis": 1}),
    Case("cast", "Cast", [x(6)], read=24, written=12, attributes={"to": TensorProto.FLOAT16}),
    Case("gather reads what is named", "Gather", [x(1000, 8), int64(3)], read=24 * F + 24,
         written=24 * F),
    Case("scatter with a sum", "ScatterElements", [x(4, 4), int64(2, 4), x(2, 4)], other=8,
         attributes={"reduction": "add"}),
    Case("fill", "ConstantOfShape", [known([2, 3])], read=0, written=6 * F),
    Case("pad", "Pad", [x(2, 2), known([1, 1, 1, 1])], written=16 * F),
    # a string is a reference of 8 bytes; the length of its text is in no file
    Case("words joined", "StringConcat", [words(2, 3), words(3)], read=9 * 8, written=6 * 8),
    Case("words matched", "RegexFullMatch", [words(6)], read=6 * 8, written=6,
         attributes={"pattern": "a.*"}),
    Case("the most that is not zero", "NonZero", [x(2, 3)], written=2 * 6 * 8),
)  # fmt: skip
def test_moves(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


# an LSTM's hidden unit has 13 = 3·3 + 4 FLOPs (three sigmoids, f·c + i·g, o·tanh(c)) and 5
# transcendentals


@table(
    Case("lstm", "LSTM", [x(5, 2, 3), x(1, 16, 3), x(1, 16, 4)], macs=5 * 2 * 16 * (3 + 4),
         other=10 * (16 + 13 * 4), transcendental=10 * 5 * 4, outputs=3,
         attributes={"hidden_size": 4}),
    Case("lstm with biases", "LSTM", [x(5, 2, 3), x(1, 16, 3), x(1, 16, 4), x(1, 32)],
         macs=10 * 16 * 7, other=10 * (3 * 16 + 13 * 4), transcendental=200, outputs=3,
         attributes={"hidden_size": 4}),
    Case("lstm both ways", "LSTM", [x(5, 2, 3), x(2, 16, 3), x(2, 16, 4)], macs=2 * 10 * 16 * 7,
         other=2 * 10 * (16 + 13 * 4), transcendental=400, outputs=3,
         attributes={"hidden_size": 4, "direction": "bidirectional"}),
    Case("lstm, batch first", "LSTM", [x(2, 5, 3), x(1, 16, 3), x(1, 16, 4)], macs=10 * 16 * 7,
         other=10 * (16 + 13 * 4), transcendental=200, outputs=3,
         attributes={"hidden_size": 4, "layout": 1}),
    Case("lstm of short sequences", "LSTM",
         [x(5, 2, 3), x(1, 16, 3), x(1, 16, 4), None, known([5, 2], np.int32)], macs=7 * 16 * 7,
         other=7 * (16 + 13 * 4), transcendental=7 * 20, outputs=3,
         attributes={"hidden_size": 4}),
    Case("lstm with peepholes", "LSTM",
         [x(5, 2, 3), x(1, 16, 3), x(1, 16, 4), None, None, None, None, x(1, 12)],
         macs=10 * 16 * 7, other=10 * (16 + 19 * 4), transcendental=200, outputs=3,
         attributes={"hidden_size": 4}),
    Case("gru", "GRU", [x(5, 2, 3), x(1, 12, 3), x(1, 12, 4)], macs=10 * 12 * 7,
         other=10 * (12 + 10 * 4), transcendental=10 * 3 * 4, outputs=2,
         attributes={"hidden_size": 4}),
    Case("rnn", "RNN", [x(5, 2, 3), x(1, 4, 3), x(1, 4, 4), x(1, 8)], macs=10 * 4 * 7,
         other=10 * 3 * 4, transcendental=10 * 4, outputs=2, attributes={"hidden_size": 4}),
    Case("rnn with relu", "RNN", [x(5, 2, 3), x(1, 4, 3), x(1, 4, 4)], macs=10 * 4 * 7,
         other=10 * (4 + 4), outputs=2, attributes={"hidden_size": 4, "activations": ["Relu"]}),
)  # fmt: skip
def test_recurrent(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


@table(
    Case("attention", "Attention", [x(2, 4, 5, 8), x(2, 4, 7, 8), x(2, 4, 7, 6)],
         macs=2 * 4 * 35 * 14, other=5 * 2 * 4 * 35, transcendental=280, opset=23),
    Case("of packed heads", "Attention", [x(2, 5, 32), x(2, 7, 32), x(2, 7, 32)],
         macs=2 * 4 * 35 * 16, other=5 * 280, transcendental=280, opset=23,
         attributes={"q_num_heads": 4, "kv_num_heads": 4}),
    Case("of fewer key heads", "Attention", [x(2, 8, 5, 4), x(2, 2, 7, 4), x(2, 2, 7, 4)],
         macs=2 * 8 * 35 * 8, other=5 * 560, transcendental=560, opset=23),
    Case("with a mask of numbers", "Attention",
         [x(2, 4, 5, 8), x(2, 4, 7, 8), x(2, 4, 7, 8), x(5, 7)], macs=2 * 4 * 35 * 16,
         other=6 * 280, transcendental=280, opset=23),
    Case("with a past", "Attention",
         [x(2, 4, 1, 8), x(2, 4, 1, 8), x(2, 4, 1, 8), None, x(2, 4, 9, 8), x(2, 4, 9, 8)],
         macs=2 * 4 * 10 * 16, other=5 * 80, transcendental=80, outputs=3, opset=23),
    Case("onnxruntime's, with its projection", "Attention", [x(2, 5, 16), x(16, 48), x(48)],
         macs=2 * 5 * 16 * 48 + 2 * 4 * 25 * 8, other=5 * 200 + 480, transcendental=200, domain=MS,
         attributes={"num_heads": 4}),
    Case("multi-head", "MultiHeadAttention", [x(2, 5, 16), x(2, 7, 16), x(2, 7, 16)],
         macs=2 * 4 * 35 * 8, other=5 * 280, transcendental=280, domain=MS,
         attributes={"num_heads": 4}),
    Case("grouped, with a past", "GroupQueryAttention",
         [x(2, 1, 32), x(2, 1, 16), x(2, 1, 16), x(2, 2, 9, 8), x(2, 2, 9, 8),
          typed(TensorProto.INT32, 2), known(10, np.int32)],
         macs=2 * 4 * 10 * 16, other=5 * 80, transcendental=80, outputs=3, domain=MS,
         attributes={"num_heads": 4, "kv_num_heads": 2}),
    Case("rotary", "RotaryEmbedding", [x(2, 4, 5, 8), x(5, 4), x(5, 4), int64(2, 5)],
         other=3 * 320, opset=23),
)  # fmt: skip
def test_attention(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


# ---------------------------------------------------------------- formulas


@pytest.mark.parametrize(
    ("made", "formula"),
    [
        (one_node("Einsum", [x(2, 3), x(3, 4), x(4, 5)], equation="ab,bc,cd->ad"),
         "2·a·b·c + 2·a·c·d = 2·2·3·4 + 2·2·4·5 = 128"),
        (one_node("Einsum", [x(2), x(3), x(4)], equation="i,j,k->ijk"),
         "i·j + i·j·k = 2·3 + 2·3·4 = 30"),
        (one_node("Einsum", [x(5, 3)], equation="ij->i"), "i·j = 5·3 = 15"),
        (one_node("ReduceMean", [x(2, 6)], keepdims=0), "n + results = 12 + 1 = 13"),
        (one_node("AveragePool", [x(1, 2, 6, 6)], kernel_shape=[2, 2], strides=[2, 2]),
         "n·window + n = 18·4 + 18 = 90"),
        (one_node("TopK", [int64(2, 6), known([4])], outputs=2), ""),  # no floating-point work
        (one_node("Attention", [x(2, 5, 16), x(16, 48), x(48)], domain=MS, num_heads=4),
         "2·B·H·pairs·(Dqk+Dv) + 2·tokens·Cin·(q+k+v) + other"
         " = 2·8·25·8 + 2·10·16·48 + 1480 = 20040"),
    ],
    ids=["three operands", "outer products", "a sum", "mean", "pool", "integers", "projection"],
)  # fmt: skip
def test_the_formula_is_the_one_that_was_used(made: Any, formula: str, tmp_path: Path) -> None:
    result = count(made, tmp_path)
    assert result.op_costs[0].formula == formula
    check_formulas(result)
