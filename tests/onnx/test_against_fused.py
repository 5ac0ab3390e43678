"""Nodes of onnxruntime's own as their parts, and what small integers add: all by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ridgeline.onnx.formulas.pointwise import DYNAMIC_QUANTISE
from ridgeline.onnx.formulas.products import REQUANTISE
from tests.onnx.models import MS, Operand, count, int8, one_node, uint8, x

from ridgeline.onnx import quantised
from ridgeline.onnx.against import gathered
from ridgeline.onnx.causes import explain
from ridgeline.onnx.fused import parts_of
from ridgeline.onnx.pieces import OF_VALUES, OF_ZEROS, Piece, Place
from ridgeline.onnx.products import balanced, padded, same_products, with_additions
from ridgeline.onnx.written import joined, written
from ridgeline.records import Cost

Told = tuple[str, int, int]  # a function, its other FLOPs and transcendentals


def piece(function: str, results: int = 20, kind: str = "pointwise", **more: Any) -> Piece:
    cost = Cost(other_flops=results, read_bytes=4 * results, written_bytes=4 * results)
    given = {"op": function, "module": "", "cost": cost, "function": function, **more}
    return Piece(kind=kind, results=results, **given)


def rows(pytorch: list[Piece], onnx: list[Piece]) -> list[tuple[str, str]]:
    return sorted((one.cause, one.what) for one in gathered(explain(pytorch, onnx)))


# ---------------------------------------------------------------- parts

IMAGE, KERNEL = x(1, 2, 4, 4), x(3, 2, 1, 1)  # 3·16 = 48 results, 2 MACs each
TOKENS = x(1, 5, 8)  # 40 numbers in 5 rows
CHANGED = (DYNAMIC_QUANTISE + REQUANTISE) * 40  # as many numbers are read as are made
INTEGERS = [uint8(1, 5, 8), x(), uint8(), int8(8, 8), x(), int8(), x(), uint8()]


@pytest.mark.parametrize(
    ("op", "operands", "attributes", "told"),
    [
        ("FusedConv", [IMAGE, KERNEL], {"activation": "Relu"}, [("Conv", 0, 0), ("Relu", 48, 0)]),
        (
            "FusedConv",
            [IMAGE, KERNEL, x(3), x(1, 3, 4, 4)],
            {"activation": "Sigmoid"},
            [("Conv", 48, 0), ("Sum", 48, 0), ("Sigmoid", 3 * 48, 48)],
        ),
        ("FusedMatMul", [TOKENS, x(8, 8)], {"alpha": 0.5}, [("MatMul", 0, 0), ("Mul", 40, 0)]),
        ("FusedMatMul", [TOKENS, x(8, 8)], {}, [("MatMul", 0, 0)]),
        ("BiasGelu", [TOKENS, x(8)], {}, [("Gelu", 4 * 40, 40), ("Add", 40, 0)]),
        ("FastGelu", [TOKENS], {}, [("Gelu.tanh", 8 * 40, 40)]),
        ("QuickGelu", [TOKENS], {"alpha": 1.0}, [("Swish", 4 * 40, 40)]),
        ("QuickGelu", [TOKENS], {}, [("Swish", 4 * 40, 40), ("Mul", 40, 0)]),
        (
            "SkipLayerNormalization",
            [TOKENS, TOKENS, x(8), x(8), x(8)],
            {},
            [("LayerNormalization", 8 * 40, 5), ("Sum", 40, 0), ("Add", 40, 0)],
        ),
        (
            "DynamicQuantizeMatMul",
            [TOKENS, int8(8, 8), x(), int8(), x(8)],
            {},
            [("MatMulInteger", 0, 0), ("Add", 40, 0), ("DequantizeLinear", CHANGED, 0)],
        ),
        (
            "QLinearMatMul",
            INTEGERS,
            {},
            [("MatMul", 0, 0), ("DequantizeLinear", REQUANTISE * 40, 0)],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_parts_of_a_node(
    op: str, operands: list[Operand], attributes: dict[str, Any], told: list[Told], tmp_path: Path
) -> None:
    domain = "" if op == "QLinearMatMul" else MS
    [node] = count(one_node(op, operands, domain=domain, **attributes), tmp_path).op_costs
    whole = Piece(
        op=op,
        kind=node.kind,
        module="a",
        cost=node.cost,
        results=48 if op == "FusedConv" else 40,
    )
    parts = parts_of(node, whole)
    assert [(p.function, p.cost.other_flops, p.cost.transcendentals) for p in parts] == told
    assert sum((p.cost for p in parts), Cost()) == node.cost
    assert {(p.module, p.inside) for p in parts} == {("a", op)}


def test_a_node_of_the_standard_is_one_part(tmp_path: Path) -> None:
    [node] = count(one_node("Relu", [TOKENS]), tmp_path).op_costs
    whole = Piece(op="Relu", kind="pointwise", module="a", cost=node.cost)
    assert parts_of(node, whole) == [whole]


@pytest.mark.parametrize(
    ("op", "inside", "label"),
    [
        ("relu_", "", "relu"),
        ("Conv", "FusedConv", "FusedConv"),
        ("Relu", "FusedConv", "Relu in FusedConv"),
    ],
)
def test_how_a_part_is_shown(op: str, inside: str, label: str) -> None:
    assert piece("", op=op, inside=inside).label == label


CONV = Cost(macs=1000, read_bytes=400, written_bytes=80)
RELU_INSIDE = Cost(other_flops=20)


def test_an_activation_that_onnxruntime_fused() -> None:
    product = piece("convolution", kind="conv", cost=CONV)
    main = piece("Conv", kind="conv", cost=CONV, inside="FusedConv", is_contributed=True)
    relu = piece("Relu", cost=RELU_INSIDE, inside="FusedConv", is_contributed=True)
    # then the relu is the one in the node, and another activation is none
    assert rows([product, piece("relu")], [main, relu]) == [
        ("fused activation", "relu → Relu in FusedConv")
    ]
    assert rows([product, piece("gelu.none")], [main, relu]) == [
        ("not explained", "gelu.none → Relu in FusedConv")
    ]
    assert rows([product], [main, relu]) == [("not explained", "Relu in FusedConv")]


# ---------------------------------------------------------------- nodes that are many operators


def test_a_norm_of_squares_as_one_node() -> None:
    # given the steps of two norms over 4 numbers each, one of which the file has as one node
    steps = [
        piece("pow"),
        piece("mean", 5, kind="reduce", reduces="mean"),
        piece("add", 5),
        piece("rsqrt", 5),
        piece("mul"),
        piece("mul"),
    ]
    node = piece("SimplifiedLayerNormalization", kind="norm")
    [found] = joined(Place([*steps, *steps], [node]))
    assert Counter(p.function for p in found.pytorch) == Counter(p.function for p in steps)
    # and a mean alone is no norm
    assert joined(Place(steps[1:2], [node])) == []


def test_a_division_by_a_root() -> None:
    ours = [piece("rsqrt", 5), piece("mul")]
    nodes = [piece("Sqrt", 5), piece("Div")]
    [found] = written(Place(ours, nodes), Counter())
    assert (found.pytorch, {p.op for p in found.onnx}) == (ours, {"Sqrt", "Div"})
    # and as a rule each is its own
    apart = [*nodes, piece("Mul"), piece("Reciprocal", 5)]
    assert [[p.op for p in one.onnx] for one in written(Place(ours, apart), Counter())] == [
        ["Sqrt", "Reciprocal"],
        ["Mul"],
    ]


def test_a_sum_is_a_mean_by_a_division_of_its_own_size() -> None:
    mean = piece("mean", 5, kind="reduce", reduces="mean")
    total = piece("ReduceSum", 5, kind="reduce", reduces="sum")
    fitting, other = (piece("Div", results, is_by_number=True) for results in (5, 20))
    assert len(written(Place([mean], [total, fitting]), Counter())) == 1
    assert written(Place([mean], [total, other]), Counter()) == []


def test_without_modules_nodes_are_of_the_operators_own_size() -> None:
    ours, larger = piece("add", 20), piece("Add", 24)
    assert len(written(Place([ours], [larger]), Counter())) == 1  # in one module
    assert written(Place([ours], [larger]), None) == []
    # and in a layout of whole blocks it may have more
    padding = replace(larger, is_contributed=True)
    assert written(Place([ours], [padding]), None) == [Place([ours], [padding])]


def test_what_is_added_to_a_softmax_is_as_large() -> None:
    attention = piece("sdpa", 16, kind="attention", cost=Cost(macs=2000, transcendentals=50))
    nodes = [piece("MatMul", 50), piece("MatMul", 16), piece("Softmax", 50)]
    mask, residual = piece("Add", 50), piece("Add", 16)
    [found] = written(Place([attention], [*nodes, residual, mask]), None)
    assert Counter((p.op, p.results) for p in found.onnx) == Counter(
        [("MatMul", 50), ("MatMul", 16), ("Softmax", 50), ("Add", 50)]
    )


def test_products_without_the_functions_of_an_attention_are_no_attention() -> None:
    attention = piece("sdpa", kind="attention", cost=Cost(macs=2000, transcendentals=50))
    products = [piece("MatMul", kind="matmul", cost=Cost(macs=1000)) for _ in "ab"]
    place = Place([attention], products)
    assert balanced(place, is_rewritten=True) == ([], place)


def test_a_bias_that_must_be_there_has_its_addition_first() -> None:
    # given two layers of the same size, and one addition in a file without modules
    linear = Cost(macs=100, other_flops=20, read_bytes=200, written_bytes=80)
    zeros, values = (
        piece("addmm", kind="matmul", cost=linear, bias=bias) for bias in (OF_ZEROS, OF_VALUES)
    )
    products = [piece("MatMul", kind="matmul", cost=replace(linear, other_flops=0)) for _ in "ab"]
    pairs = [Place([ours], [node]) for ours, node in zip([zeros, values], products, strict=True)]
    addition = piece("Add", cost=Cost(other_flops=20, read_bytes=100, written_bytes=80))
    found = with_additions(pairs, [addition])
    assert [(cause, place.pytorch[0].bias) for cause, place in found] == [
        ("decomposed operator", OF_VALUES),
        ("a bias of zeros left out", OF_ZEROS),
    ]


# ---------------------------------------------------------------- small integers


def test_each_product_of_integers_has_a_scale() -> None:
    product = piece("ConvInteger", kind="conv", cost=CONV)
    inside = replace(product, inside="DynamicQuantizeMatMul")
    by_number, by_tensor = piece("Mul", is_by_number=True), piece("Mul")
    found, left = quantised.scales(Place([], [by_tensor, product, inside, by_number]))
    assert found == [("quantised", Place([], [by_number]))]
    assert left.onnx == [by_tensor, product, inside]


def test_the_shift_of_a_norm_behind_integers() -> None:
    # given a batch norm that can be in the product before it, and one of another size
    norms = [piece("native_batch_norm", n, kind="norm") for n in (20, 30)]
    place = Place(norms, [piece("ConvInteger", kind="conv", cost=CONV)])
    assert quantised.shifts(place) == Counter({20: 1})
    # then one addition is its shift
    add, other = piece("Add"), piece("Add")
    found, left = quantised.without_bounds(Place([], [add, other]), shifts=Counter({20: 1}))
    assert (found, left) == ([("quantised", Place([], [add]))], Place([], [other]))


@pytest.mark.parametrize(
    ("node", "needless"), [("QuantizeLinear", True), ("DynamicQuantizeLinear", False)]
)
def test_bounds_known_beforehand_make_others_needless(node: str, needless: bool) -> None:
    found = quantised.with_needless_bounds(Place([piece("relu"), piece("tanh")], [piece(node)]))
    assert [p.is_nothing for p in found.pytorch] == [needless, False]


def test_a_pool_of_integers() -> None:
    pool = piece("max_pool2d_with_indices", kind="pool", reduces="max")
    node = piece("MaxPool", kind="pool", reduces="max", is_float=False)
    average = replace(node, reduces="mean")
    assert quantised.pools(Place([pool], [node]))[0] == [("quantised", Place([pool], [node]))]
    assert quantised.pools(Place([pool], [average]))[0] == []


# ---------------------------------------------------------------- blocks of channels


def test_channels_in_whole_blocks() -> None:
    # given 3 places, a convolution from 5 to 12 channels, and files with blocks of 16
    def convolution(made: int, taken: int, **more: Any) -> Piece:
        return piece(
            "Conv",
            kind="conv",
            cost=Cost(macs=3 * made * taken),
            widths=(made, taken),
            is_contributed=True,
            **more,
        )

    ours = replace(convolution(12, 5), op="convolution", is_contributed=False)
    more = convolution(16, 5)
    assert padded(Place([ours], [more]))[0] == [("padded channels", Place([ours], [more]))]
    # then one of more blocks, of channels that are no block, or of the standard, is another
    for other in (
        convolution(32, 5),
        convolution(14, 5),
        replace(more, is_contributed=False),
        replace(more, cost=Cost(macs=7 * 16 * 5)),
    ):
        assert padded(Place([ours], [other])) == ([], Place([ours], [other]))


def test_products_of_the_same_macs_go_by_channels_then_by_size() -> None:
    # given two convolutions of the same MACs, and nodes of padded channels the other way round
    def convolution(op: str, width: int, results: int) -> Piece:
        widths = (width, width)
        return piece(op, kind="conv", cost=Cost(macs=960), widths=widths, results=results)

    ours = [convolution("convolution", 4, 60), convolution("convolution", 8, 30)]
    nodes = [convolution("Conv", 16, 30), convolution("Conv", 8, 60)]
    found, left = same_products(Place(ours, nodes), has_modules=False)
    # then one has the node of its channels, and the other the one that is left
    assert [(pair.pytorch[0], pair.onnx[0]) for _, pair in found] == [
        (ours[1], nodes[1]), (ours[0], nodes[0])]  # fmt: skip
    # and without such channels each has the one of its size
    nodes = [convolution("Conv", 16, 30), convolution("Conv", 16, 60)]
    found, left = same_products(Place(ours, nodes), has_modules=False)
    assert [(pair.pytorch[0], pair.onnx[0]) for _, pair in found] == [
        (ours[0], nodes[1]), (ours[1], nodes[0])]  # fmt: skip
    assert left == Place()
