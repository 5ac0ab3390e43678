"""The rest of onnxruntime's operators by hand, and that none is without a row.

Sizes are told apart: 2·5 tokens or pictures, 3 and 7 features, tables of 1000 rows.
"""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto
from tests.onnx.models import (
    MS,
    Case,
    Operand,
    check,
    count,
    int8,
    int64,
    known,
    one_node,
    table,
    typed,
    uint8,
    value_info,
    x,
)

from ridgeline.onnx.formulas.registry import FORMULAS
from ridgeline.records import Cost

F = 4
GELU, GELU_TANH, SILU, SIGMOID, SOFTMAX, LAYER_NORM = 4, 8, 4, 3, 4, 8  # FLOPs an element
DEQUANTISE, QUANTISE = 2, 5
SCALED = [x(), uint8(), x(), uint8()]  # scale and zero point of the operand, and of the result
YES = known(True, np.bool_)


def int32(*shape: int) -> Operand:
    return typed(TensorProto.INT32, *shape)


@table(
    Case("bias and skip", "BiasAdd", [x(2, 5, 7), x(7), x(2, 5, 7)], other=2 * 70,
         read=(70 + 7 + 70) * F, written=70 * F, domain=MS),
    Case("one half gates the other", "BiasSplitGelu", [x(2, 5, 14), x(14)],
         other=140 + (GELU + 1) * 70, transcendental=70, read=(140 + 14) * F, written=70 * F,
         domain=MS),
    Case("gelu", "Gelu", [x(2, 7)], other=GELU * 14, transcendental=14, domain=MS),
    Case("gelu by tanh", "FastGelu", [x(2, 7)], other=GELU_TANH * 14, transcendental=14,
         domain=MS),
    Case("gelu by tanh, of a sum", "FastGelu", [x(2, 7), x(7)], other=(1 + GELU_TANH) * 14,
         transcendental=14, read=(14 + 7) * F, domain=MS),
    Case("tanh with numbers", "ScaledTanh", [x(2, 7)], other=2 * 14, transcendental=14, domain=MS,
         attributes={"alpha": 0.5, "beta": 2.0}),
    Case("dropout at rest", "BiasDropout", [x(2, 5, 7), x(7)], other=70, written=70 * F,
         domain=MS),
    Case("dropout at rest, with a mask", "BiasDropout", [x(2, 5, 7), x(7), x(2, 5, 7)],
         other=2 * 70, written=70 * F + 70, domain=MS, outputs=2),
    Case("dropout in training", "BiasDropout", [x(2, 5, 7), x(7), x(2, 5, 7), x(), YES],
         other=(1 + 2 + 1) * 70, domain=MS),
    Case("dropout at rest, with a mask of bits", "BitmaskBiasDropout", [x(2, 5, 7), x(7)],
         other=70, written=70 * F + 3 * 4, domain=MS, outputs=2),
    Case("dropout in training, by bits", "BitmaskBiasDropout", [x(2, 5, 7), x(7), None, x(), YES],
         other=(1 + 2) * 70, domain=MS),
    Case("8-bit leaky relu", "QLinearLeakyRelu", [uint8(2, 7), *SCALED],
         other=(DEQUANTISE + 2 + QUANTISE) * 14, read=14 + 2 * F + 2, written=14, domain=MS),
    Case("8-bit sigmoid", "QLinearSigmoid", [uint8(2, 7), *SCALED],
         other=(DEQUANTISE + SIGMOID + QUANTISE) * 14, transcendental=14, written=14, domain=MS),
    Case("8-bit product", "QLinearMul",
         [uint8(2, 7), x(), uint8(), uint8(7), x(), uint8(), x(), uint8()],
         other=(2 * DEQUANTISE + 1 + QUANTISE) * 14, read=14 + 7 + 3 * F + 3, written=14,
         domain=MS),
    Case("8-bit softmax", "QLinearSoftmax", [uint8(2, 7), *SCALED],
         other=(DEQUANTISE + SOFTMAX + QUANTISE) * 14, transcendental=14, written=14, domain=MS,
         attributes={"axis": -1}),
    Case("8-bit mean", "QLinearReduceMean", [uint8(2, 5, 7), *SCALED],
         other=(DEQUANTISE + 1) * 70 + (1 + QUANTISE) * 10, written=10, domain=MS,
         attributes={"axes": [2], "keepdims": 0}),
    Case("side by side, each by its own scale", "QLinearConcat",
         [x(), uint8(), uint8(2, 3), x(), uint8(), uint8(2, 5), x(), uint8()],
         other=(DEQUANTISE + QUANTISE) * 16, read=16 + 3 * F + 3, written=16, domain=MS,
         attributes={"axis": 1}),
    # 240 elements turned; of each table the 10 rows that positions name
    Case("rotary", "RotaryEmbedding", [x(2, 3, 5, 8), int64(2, 5), x(1000, 4), x(1000, 4)],
         other=3 * 240, read=240 * F + 80 + 2 * 10 * 4 * F, written=240 * F, domain=MS),
    Case("rotary, a part of each head", "RotaryEmbedding",
         [x(2, 5, 24), int64(2, 5), x(11, 3), x(11, 3)], other=3 * 10 * 3 * 6, written=240 * F,
         domain=MS, attributes={"num_heads": 3, "rotary_embedding_dim": 6}),
)  # fmt: skip
def test_element_by_element(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


@table(
    Case("groups of channels", "GroupNorm", [x(2, 5, 7, 6), x(6), x(6)], other=8 * 420,
         transcendental=2 * 3, domain=MS, attributes={"groups": 3, "activation": 0}),
    Case("groups of a sum", "SkipGroupNorm", [x(2, 5, 7, 6), x(6), x(6), x(2, 6), x(6)],
         other=(2 + 8 + SILU) * 420, transcendental=2 * 3 + 420, read=(420 + 12 + 12 + 6) * F,
         written=420 * F, domain=MS, attributes={"groups": 3, "activation": 1}),
    Case("groups of a sum, and the sum", "SkipGroupNorm",
         [x(2, 5, 7, 6), x(6), x(6), x(2, 5, 7, 6)], other=(1 + 8) * 420, transcendental=2 * 3,
         written=2 * 420 * F, domain=MS, outputs=2, attributes={"groups": 3, "activation": 0}),
    # of words and segments 10 rows of 7 are read, of positions all 5
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
)  # fmt: skip
def test_norms(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


@table(
    Case("average", "QLinearAveragePool", [uint8(2, 3, 6, 10), *SCALED],
         other=(DEQUANTISE + 1) * 360 + (1 + QUANTISE) * 36, written=36, domain=MS,
         attributes={"kernel_shape": [2, 5], "strides": [2, 5]}),
    Case("average, channels last", "QLinearAveragePool", [uint8(2, 6, 10, 3), *SCALED],
         other=(DEQUANTISE + 1) * 360 + (1 + QUANTISE) * 36, written=36, domain=MS,
         attributes={"kernel_shape": [2, 5], "strides": [2, 5], "channels_last": 1}),
    Case("average of all", "QLinearGlobalAveragePool", [uint8(2, 3, 5, 7), *SCALED],
         other=(DEQUANTISE + 1) * 210 + (1 + QUANTISE) * 6, written=6, domain=MS),
    Case("average of all, channels last", "QLinearGlobalAveragePool", [uint8(2, 5, 7, 3), *SCALED],
         other=(DEQUANTISE + 1) * 210 + (1 + QUANTISE) * 6, written=6, domain=MS,
         attributes={"channels_last": 1}),
    Case("largest, with a mask", "MaxpoolWithMask", [x(2, 3, 6, 10), int32(2, 3, 6, 10)],
         other=36 * 10, read=2 * 360 * 4, written=36 * F, domain=MS,
         attributes={"kernel_shape": [2, 5], "strides": [2, 5]}),
    # each of 2·3·5·7 elements meets 11 kernels of 2·3; 6·9 places are left, or 4·9
    Case("transposed", "ConvTransposeWithDynamicPads", [x(2, 3, 5, 7), x(3, 11, 2, 3)],
         macs=210 * 11 * 6, written=2 * 11 * 54 * F, domain=MS),
    Case("transposed, cut", "ConvTransposeWithDynamicPads",
         [x(2, 3, 5, 7), x(3, 11, 2, 3), known([1, 0, 1, 0]), x(11)], macs=210 * 11 * 6,
         other=2 * 11 * 36, written=2 * 11 * 36 * F, domain=MS),
    # 2·4·5 places and 11 channels, from 3 channels and 2·3 places each
    Case("channels last", "NhwcFusedConv",
         [x(2, 5, 7, 3), x(11, 3, 2, 3), x(11), x(2, 4, 5, 11)], macs=440 * 3 * 6, other=3 * 440,
         written=440 * F, domain=MS,
         attributes={"kernel_shape": [2, 3], "activation": "Relu"}),
    Case("channels last, of a kernel that the weight tells", "NhwcFusedConv",
         [x(2, 5, 7, 3), x(11, 3, 2, 3)], macs=440 * 3 * 6, written=440 * F, domain=MS),
)  # fmt: skip
def test_pooling_and_convolutions(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


@table(
    Case("a dimension more", "ExpandDims", [x(2, 7), known(1, np.int32)], read=0, written=0,
         domain=MS),
    Case("rows", "TorchEmbedding", [x(1000, 7), int64(2, 5)], read=70 * F + 10 * 8,
         written=70 * F, domain=MS),
    # a row is 64 numbers of 4 bits in two blocks: 10 rows and their scales are read
    Case("rows of 4 bits", "GatherBlockQuantized", [uint8(1000, 32), int64(2, 5), x(1000, 2)],
         other=640, read=640 // 2 + 10 * 8 + 10 * 2 * F, written=640 * F, domain=MS,
         attributes={"bits": 4, "block_size": 32}),
    Case("columns of 4 bits", "GatherBlockQuantized",
         [typed(TensorProto.INT4, 16, 11), int64(5), x(1, 11)], other=16 * 5, written=80 * F,
         domain=MS, attributes={"gather_axis": 1, "quantize_axis": 0, "block_size": 16}),
)  # fmt: skip
def test_moves(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


Stated = tuple[Case, list[Operand]]
STATED: list[Stated] = [
    # 5·3·7·6 results of four taps
    (Case("crops", "CropAndResize", [x(2, 3, 11, 13), x(5, 4), int32(5), known([7, 6], np.int32)],
          other=(2 * 4 - 1) * 630, written=630 * F, domain=MS), [x(5, 3, 7, 6)]),
    (Case("crops, of the nearest", "CropAndResize",
          [x(2, 3, 11, 13), x(5, 4), int32(5), known([7, 6], np.int32)], written=630 * F,
          domain=MS, attributes={"mode": "nearest"}), [x(5, 3, 7, 6)]),
    (Case("comparing integers is no work", "NhwcMaxPool", [uint8(2, 6, 10, 3)], read=360,
          written=36, domain=MS, attributes={"kernel_shape": [2, 5], "strides": [2, 5]}),
     [uint8(2, 3, 2, 3)]),
    (Case("8 bits, transposed", "QLinearConvTranspose",
          [uint8(2, 3, 5, 7), x(), uint8(), int8(3, 11, 2, 3), x(), int8(), x(), uint8(),
           int32(11)], macs=210 * 11 * 6, other=2 * 2 * 11 * 54, written=2 * 11 * 54, domain=MS),
     [uint8(2, 11, 6, 9)]),
    (Case("batch norm", "SpatialBN", [x(2, 3, 5, 7), x(3), x(3), x(3), x(3)], other=2 * 210,
          transcendental=3, read=(210 + 12) * F, written=210 * F, domain=MS), [x(2, 3, 5, 7)]),
    # three rows and the 7 weights and biases are dequantised
    (Case("8-bit embeddings", "QEmbedLayerNormalization",
          [int32(2, 5), int32(2, 5), uint8(1000, 7), uint8(5, 7), uint8(11, 7), uint8(7), uint8(7),
           None, *[x()] * 5, *[uint8()] * 5],
          other=(3 * DEQUANTISE + 2 + LAYER_NORM) * 70 + 2 * DEQUANTISE * 7, transcendental=10,
          read=70 + 35 + 70 + 7 + 7 + 5 * F + 5 + 2 * 10 * 4, written=70 * F + 2 * 4, domain=MS,
          outputs=2), [x(2, 5, 7), int32(2)]),
    (Case("the cheapest way", "DynamicTimeWarping", [x(5, 7)], other=3 * 35, read=35 * F,
          written=2 * 11 * 4, domain=MS), [int32(2, 11)]),
    (Case("without padding", "RemovePadding", [x(2, 5, 7), int32(2)],
          written=8 * 7 * F + 10 * 4 + 3 * 4 + 4, domain=MS, outputs=4),
     [x(8, 7), int32(2, 5), int32(3), int32(1)]),
    (Case("windows", "UnfoldTensor", [x(2, 11)], read=22 * F, written=2 * 5 * 3 * F, domain=MS,
          attributes={"dim": 1, "size": 3, "step": 2}), [x(2, 5, 3)]),
    (Case("words", "Tokenizer", [typed(TensorProto.STRING, 5)], read=5 * 8, written=15 * 8,
          domain=MS, attributes={"separators": [" "], "mark": 0, "mincharnum": 1}),
     [typed(TensorProto.STRING, 5, 3)]),
    (Case("n-grams of packed tokens", "VarlenNGramHashMapping",
          [int64(7), int64(3), int64(8), int32(3)], read=(7 + 3 + 8) * 8 + 3 * 4,
          written=7 * 2 * 4 * 8, domain=MS,
          attributes={"max_ngram_size": 3, "n_head_per_ngram": 4}), [int64(7, 8)]),
    (Case("where tokens part", "BifurcationDetector", [int64(7), int64(5), int64(1), int64(8)],
          read=(7 + 5 + 1 + 8) * 8, written=(13 + 1) * 8, domain=MS, outputs=2),
     [int64(13), int64(1)]),
    (Case("into blocks", "ReorderInput", [x(2, 16, 5, 7)], read=1120 * F, written=1120 * F,
          domain=MS), [x(2, 16, 5, 7)]),
    (Case("out of blocks", "ReorderOutput", [x(2, 16, 5, 7)], read=1120 * F, written=770 * F,
          domain=MS, attributes={"channels": 11}), [x(2, 11, 5, 7)]),
]  # fmt: skip


@pytest.mark.parametrize(("case", "results"), STATED, ids=[case.id for case, _ in STATED])
def test_where_only_the_file_tells_the_results(
    case: Case, results: list[Operand], tmp_path: Path
) -> None:
    made = one_node(case.op, case.operands, domain=MS, outputs=case.outputs, **case.attributes)
    del made.graph.output[:]
    made.graph.output.extend(value_info(f"out{n}", result) for n, result in enumerate(results))

    result = count(made, tmp_path)

    assert result.unknown == {}, result.notes
    cost = result.op_costs[-1].cost
    assert cost == Cost(
        macs=case.macs,
        other_flops=case.other,
        transcendentals=case.transcendental,
        read_bytes=cost.read_bytes if case.read is None else case.read,
        written_bytes=cost.written_bytes if case.written is None else case.written,
    )


def named_in(path: Path) -> set[str]:
    """The operators of com.microsoft that the file has a `Case` of."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    rows = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Case"]
    ours = [row for row in rows if ("domain", "MS") in map(keyword, row.keywords)]
    return {ast.literal_eval(row.args[1]) for row in ours}


def keyword(given: ast.keyword) -> tuple[str | None, str]:
    return given.arg, ast.unparse(given.value)


def test_every_operator_of_onnxruntime_has_a_row() -> None:
    """Most are in test_contributed*.py, the common ones beside their families."""
    with_formula = {name for domain, name in FORMULAS if domain == MS}
    rows = set().union(*map(named_in, Path(__file__).parent.glob("test_*.py")))

    assert with_formula - rows == set()
