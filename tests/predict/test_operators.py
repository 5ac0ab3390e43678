"""Operator points of calls of PyTorch and of nodes of ONNX files."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import ridgeline
from ridgeline.count.records import OpCost
from ridgeline.onnx.node import NodeCall, Tensor, dtype_of
from ridgeline.predict.operators import OperatorPoint, fuse, point_of_node, points_of, product_of
from ridgeline.records import Cost


def tensor(*dims: int) -> Tensor:
    return Tensor("t", dims, 1, dtype_of(1))


def node(
    op_type: str, inputs: list[tuple[int, ...]], out: tuple[int, ...], kind: str = "pointwise",
    phase: str = "forward", **attributes: Any,
) -> OperatorPoint:  # fmt: skip
    call = NodeCall(
        name="n", op_type=op_type, domain="", version=20, attributes=attributes,
        operands=tuple(tensor(*dims) for dims in inputs), results=(tensor(*out),),
    )  # fmt: skip
    cost = Cost(macs=0, other_flops=10, transcendentals=2, read_bytes=3, written_bytes=4)
    return point_of_node([
        OpCost(path="n", op=call.op, kind=kind, phase=phase, dtype="fp32", cost=cost, work=None,
               call=call)
    ])  # fmt: skip


CONV: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2], "group": 1}


@pytest.mark.parametrize(
    ("point", "op", "group", "arguments"),
    [
        (node("Relu", [(2, 3)], (2, 3)), "aten::relu", "relu", [[2, 3]]),
        (node("Conv", [(1, 4, 8, 8), (5, 4, 3, 3)], (1, 5, 4, 4), "conv", **CONV),
         "aten::convolution", "conv 3x3",
         [[1, 4, 8, 8], [5, 4, 3, 3], None, [2, 2], [1, 1], [1, 1], False, [0, 0], 1]),
        (node("Conv", [(1, 4, 8, 8), (4, 1, 3, 3)], (1, 4, 4, 4), "conv", **{**CONV, "group": 4}),
         "aten::convolution", "conv depthwise",
         [[1, 4, 8, 8], [4, 1, 3, 3], None, [2, 2], [1, 1], [1, 1], False, [0, 0], 4]),
        (node("Conv", [(1, 4, 8, 8), (5, 4, 3, 3)], (1, 5, 8, 8), "conv", auto_pad="SAME_UPPER"),
         "aten::convolution", "conv 3x3",
         [[1, 4, 8, 8], [5, 4, 3, 3], None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1]),
        (node("Conv", [(1, 4, 8, 8), (5, 4, 3, 3)], (1, 5, 4, 4), "conv", "input-grad", **CONV),
         "aten::convolution_backward", "conv 3x3 gradients",
         [[1, 5, 4, 4], [1, 4, 8, 8], [5, 4, 3, 3], [0], [2, 2], [1, 1], [1, 1], False, [0, 0], 1,
          [True, True, False]]),
        (node("MatMul", [(2, 5, 3), (3, 4)], (2, 5, 4), "matmul"),
         "aten::mm", "mm nn", [[10, 3], [3, 4]]),
        (node("Gemm", [(5, 3), (4, 3), (4,)], (5, 4), "matmul", transB=1),
         "aten::addmm", "mm nt", [[4], [5, 3], [3, 4]]),
        (node("MatMul", [(2, 7, 5, 3), (2, 7, 3, 4)], (2, 7, 5, 4), "matmul"),
         "aten::bmm", "bmm nn", [[14, 5, 3], [14, 3, 4]]),
        (node("Foo", [(2,)], (2,)), "onnx::Foo", "onnx::Foo", [[2]]),
    ],
)  # fmt: skip
def test_a_node_is_the_call_of_pytorch_that_does_its_work(
    point: OperatorPoint, op: str, group: str, arguments: list[Any]
) -> None:
    sizes = [one["fp32"] if isinstance(one, dict) else one for one in point.parsed[0]]

    assert (point.op, point.group, sizes) == (op, group, arguments)
    assert (point.flops, point.moved_bytes) == (12, 7)


def test_what_a_product_is_as_batch_rows_columns_and_depth() -> None:
    conv = node("Conv", [(2, 4, 8, 8), (5, 4, 3, 3)], (2, 5, 4, 4), "conv", **CONV)
    product = node("MatMul", [(2, 7, 5, 3), (2, 7, 3, 4)], (2, 7, 5, 4), "matmul")

    assert product_of(conv) == (1, 2 * 4 * 4, 5, 4 * 3 * 3)
    assert product_of(product) == (14, 5, 4, 3)
    assert product_of(node("Relu", [(2, 3)], (2, 3))) is None


def test_points_of_a_counted_model() -> None:
    torch = pytest.importorskip("torch")
    from ridgeline import count
    from ridgeline.predict.operators import point_of, points_of

    layer = torch.nn.Linear(3, 3)
    net = torch.nn.Sequential(layer, torch.nn.ReLU(), layer)

    found = count(net, torch.zeros(5, 3), mode="train", optimizer="adam")

    uses = points_of(found)
    ops = [use.point.op.partition("::")[2] for use in uses]
    assert ops[:3] == ["addmm", "relu", "addmm"]
    assert uses[0].point is uses[2].point  # equal calls are one point
    assert uses[-1].point.arguments == "[[2,12],{}]"  # adam on a weight and a bias
    assert uses[-1].shares == {"optimizer": 1.0}
    first = next(op for op in found.op_costs if op.op == "aten::addmm")
    assert uses[0].point == point_of([first])


def test_a_compiler_joins_a_norm_and_a_relu() -> None:
    # given a convolution, a norm and a ReLU over 2·4·8·8 floats, which are 2,048 bytes
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU()
    )
    count = ridgeline.count(network, torch.zeros(2, 3, 8, 8))

    fused = fuse(count, points_of(count))

    # then the run reads those of the convolution and four vectors of 16 bytes, and writes the
    # result of the ReLU; one by one, the norm also writes and the ReLU reads what is between
    share = (2048 + 64 + 2048) / (2048 + 64 + 2048 + 2048 + 2048)
    assert [(use.point.op, use.share, use.is_joined) for use in fused] == [
        ("aten::convolution", 1.0, False),
        ("aten::native_batch_norm", pytest.approx(share, rel=0.01), False),
        ("aten::relu", pytest.approx(share, rel=0.01), True),
    ]
