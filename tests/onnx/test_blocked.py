"""Files that onnxruntime saved in its blocked layout: the work of the network, the bytes stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from tests.onnx.models import count, model, x

from ridgeline.onnx import count_onnx
from ridgeline.onnx.blocked import NCHWC

F = 4  # bytes of a float32


def blocked(op: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    names = [name if name != "-" else "" for name in inputs.split()]
    return helper.make_node(op, names, [output], name=output, domain=NCHWC, **attributes)


def in_blocks(weight: Any, block: int = 8) -> Any:
    """As onnxruntime stores it: (Cout, Cin, H, W) padded, a block's channels side by side."""
    out, inner = weight.shape[:2]
    rows, columns = -(-out // block) * block, inner if inner < block else -(-inner // block) * block
    padded = np.zeros((rows, columns, *weight.shape[2:]), np.float32)
    padded[:out, :inner] = weight
    pieces = padded.reshape(rows // block, block, columns, *weight.shape[2:])
    return np.moveaxis(pieces, 1, -1).reshape(padded.shape)


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def test_a_convolution_counts_the_channels_that_are_left(tmp_path: Path) -> None:
    # given 3 → 10 channels of 6x6, in two blocks of 8, with a bias and a ReLU
    proto = model(
        [blocked("Conv", "a w b", "c", kernel_shape=[3, 3], activation="Relu"),
         blocked("ReorderOutput", "c", "y", channels=10)],
        {"a": x("N", 3, 6, 6)}, ["y"],
        stored={"w": np.zeros((16, 3, 3, 3), np.float32), "b": np.zeros(16, np.float32)},
    )  # fmt: skip

    # when it is counted for two images
    result = count(proto, tmp_path, batch_size=2)

    # then work is on 10 channels and bytes are of 16, until they are left out
    conv, reorder = result.op_costs
    assert conv.formula == (
        "2·N·Cout·Hout·Wout·(Cin/g)·Kh·Kw + other = 2·2·10·4·4·3·3·3 + 640 = 17920"
    )
    assert (conv.cost.macs, conv.cost.other_flops) == (2 * 10 * 16 * 27, 2 * 2 * 10 * 16)
    assert conv.cost.written_bytes == 2 * 16 * 16 * F
    assert (reorder.cost.flops, reorder.kind) == (0, "move")
    assert (reorder.cost.read_bytes, reorder.cost.written_bytes) == (512 * F, 2 * 10 * 16 * F)
    assert result.modules[""].output_shapes == ((2, 10, 4, 4),)
    assert result.params == 10 * 27 + 10
    assert result.memory.parameter_bytes == (16 * 27 + 16) * F


def test_padding_shows_in_the_weights_where_the_file_does_not_tell(tmp_path: Path) -> None:
    # given 3 → 10 → 12 channels, of which the file tells only the last
    proto = model(
        [blocked("Conv", "a w1", "c", kernel_shape=[1, 1]),
         blocked("Conv", "c w2", "d", kernel_shape=[1, 1]),
         blocked("ReorderOutput", "d", "y", channels=12)],
        {"a": x(1, 3, 4, 4)}, ["y"],
        stored={"w1": in_blocks(ones(10, 3, 1, 1)), "w2": in_blocks(ones(12, 10, 1, 1))},
    )  # fmt: skip

    result = count(proto, tmp_path)

    assert [op.cost.macs for op in result.op_costs] == [16 * 10 * 3, 16 * 12 * 10, 0]
    assert result.params == 10 * 3 + 12 * 10


def test_padding_shows_in_the_bias_of_a_weight_that_is_not_read(tmp_path: Path) -> None:
    # given 16 → 30 → 8 channels by kernels of 7x7: 98 KiB are not read
    bias = np.concatenate([ones(30), np.zeros(2, np.float32)])
    proto = model(
        [blocked("Conv", "a w1 b", "c", kernel_shape=[7, 7]),
         blocked("Conv", "c w2", "d", kernel_shape=[1, 1]),
         blocked("ReorderOutput", "d", "y", channels=8)],
        {"a": x(1, 16, 8, 8)}, ["y"],
        stored={"w1": in_blocks(ones(30, 16, 7, 7)), "b": bias,
                "w2": in_blocks(ones(8, 30, 1, 1))},
    )  # fmt: skip

    result = count(proto, tmp_path)

    assert [op.cost.macs for op in result.op_costs] == [4 * 30 * 16 * 49, 4 * 8 * 30, 0]


def test_what_nothing_tells_is_counted_with_a_note(tmp_path: Path) -> None:
    # given 3 → 16 → 8 channels by weights of zeros: perhaps fewer than 16 are in use
    proto = model(
        [blocked("Conv", "a w1", "c", kernel_shape=[1, 1]),
         blocked("Conv", "c w2", "d", kernel_shape=[1, 1]),
         blocked("ReorderOutput", "d", "y", channels=8)],
        {"a": x(1, 3, 4, 4)}, ["y"],
        stored={"w1": in_blocks(0 * ones(16, 3, 1, 1)), "w2": in_blocks(0 * ones(8, 16, 1, 1))},
    )  # fmt: skip

    result = count(proto, tmp_path)

    assert result.total.macs == 16 * 16 * 3 + 16 * 8 * 16
    assert result.notes == (
        "of 1 convolutions in onnxruntime's blocked layout the file does not tell which"
        " channels are padding (at most 15): all are counted",
    )


def test_a_sum_a_pool_and_a_depthwise_convolution_keep_the_channels(tmp_path: Path) -> None:
    # given 10 of 16 channels from one convolution to the last, through all that keeps them
    zeros = np.zeros((16, 16, 1, 1), np.float32)
    proto = model(
        [blocked("Conv", "a w1", "c", kernel_shape=[1, 1]),
         blocked("Conv", "c w2 - c", "d", kernel_shape=[1, 1], activation="Relu"),
         blocked("Conv", "d w3", "e", kernel_shape=[3, 3], group=16, pads=[1, 1, 1, 1]),
         helper.make_node("Sigmoid", ["e"], ["f"], name="f"),
         blocked("AveragePool", "f", "g", kernel_shape=[2, 2], strides=[2, 2]),
         blocked("Upsample", "g", "h", scales=[1, 1, 2, 2], mode="nearest"),
         blocked("GlobalAveragePool", "h", "i"),
         blocked("ReorderOutput", "i", "y", channels=10, channels_last=1)],
        {"a": x(1, 3, 4, 4)}, ["y"],
        stored={"w1": in_blocks(ones(10, 3, 1, 1)), "w2": zeros,
                "w3": np.zeros((16, 1, 3, 3), np.float32)},
    )  # fmt: skip

    result = count(proto, tmp_path)

    costs = {op.path: op.cost for op in result.op_costs}
    assert costs["c"].macs == 16 * 10 * 3
    assert (costs["d"].macs, costs["d"].other_flops) == (16 * 10 * 10, 2 * 16 * 10)  # sum, ReLU
    assert costs["e"].macs == 16 * 10 * 9
    assert (costs["f"].transcendentals, costs["f"].written_bytes) == (16 * 10, 16 * 16 * F)
    assert costs["g"].other_flops == 4 * 10 * (2 * 2 + 1)
    assert (costs["h"].flops, costs["h"].read_bytes) == (0, 4 * 16 * F)
    assert costs["i"].other_flops == 10 * (16 + 1)
    assert result.coverage == 1.0
    assert result.modules[""].output_shapes == ((1, 1, 1, 10),)


def test_channels_last_goes_in_and_out(tmp_path: Path) -> None:
    # given (N, H, W, 20), which 8-channel blocks hold in 24
    proto = model(
        [blocked("ReorderInput", "a", "b", channels_last=1),
         blocked("Conv", "b w", "c", kernel_shape=[1, 1]),
         blocked("ReorderOutput", "c", "y", channels=20, channels_last=1)],
        {"a": x(2, 5, 5, 20)}, ["y"], stored={"w": np.zeros((24, 24, 1, 1), np.float32)},
    )  # fmt: skip

    result = count(proto, tmp_path)

    assert [op.call.outputs[0].shape for op in result.op_costs] == [
        (2, 24, 5, 5), (2, 24, 5, 5), (2, 5, 5, 20)
    ]  # fmt: skip
    assert result.total.macs == 2 * 25 * 20 * 20


def test_a_batch_norm_that_became_a_convolution_is_none(tmp_path: Path) -> None:
    proto = model([blocked("Conv", "a s b", "y", group=8)], {"a": x(1, 8, 4, 4)}, ["y"],
                  stored={"s": ones(8, 1, 1, 1), "b": ones(8)})  # fmt: skip

    result = count(proto, tmp_path)

    assert (result.total.macs, result.total.other_flops) == (0, 2 * 8 * 16)


@pytest.mark.parametrize("channels", [0, -3, 17])
def test_channels_that_are_not_there(channels: int, tmp_path: Path) -> None:
    proto = model([blocked("ReorderOutput", "a", "y", channels=channels)],
                  {"a": x(1, 16, 4, 4)}, ["y"])  # fmt: skip

    result = count(proto, tmp_path)

    assert result.coverage < 1.0


def convolutions(*layers: tuple[int, int, int, int]) -> onnx.ModelProto:
    """Convolutions of (Cin, Cout, kernel, groups) with ReLUs, on images of 24x24."""
    random = np.random.default_rng(0)
    nodes, stored, last = [], [], "x"
    for n, (inner, outer, kernel, groups) in enumerate(layers):
        shape = (outer, inner // groups, kernel, kernel)
        for name, size in ((f"w{n}", shape), (f"b{n}", shape[:1])):
            stored.append(numpy_helper.from_array(random.random(size, np.float32) + 0.1, name))
        nodes.append(helper.make_node("Conv", [last, f"w{n}", f"b{n}"], [f"c{n}"], name=f"c{n}",
                                      kernel_shape=[kernel, kernel], group=groups))  # fmt: skip
        nodes.append(helper.make_node("Relu", [f"c{n}"], [f"r{n}"], name=f"r{n}"))
        last = f"r{n}"
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [info("x", 1, ["batch", layers[0][0], 24, 24])],
                              [info(last, 1, None)], stored)  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    "layers",
    [
        [(3, 16, 3, 1), (16, 32, 3, 1)],
        [(3, 10, 3, 1), (10, 17, 3, 1), (17, 20, 3, 1)],
        [(3, 20, 3, 1), (20, 28, 3, 1), (28, 20, 1, 1), (20, 12, 1, 1)],
        [(3, 24, 3, 1), (24, 24, 3, 24), (24, 40, 1, 1), (40, 40, 3, 40), (40, 24, 1, 1)],
        [(3, 32, 3, 1), (32, 64, 3, 2), (64, 128, 1, 4)],
        [(3, 100, 3, 1), (100, 100, 3, 1), (100, 100, 3, 1)],  # weights above 64 KiB
    ],
    ids=["whole blocks", "odd", "padded", "depthwise", "groups", "large"],
)
def test_what_onnxruntime_saves_costs_what_it_was_made_of(
    layers: list[tuple[int, int, int, int]], tmp_path: Path
) -> None:
    # given a network, and the file that onnxruntime saves of it at its highest level
    runtime = pytest.importorskip("onnxruntime")
    plain, saved = tmp_path / "plain.onnx", tmp_path / "saved.onnx"
    onnx.save(convolutions(*layers), plain)
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.optimized_model_filepath = str(saved)
    options.log_severity_level = 3
    runtime.InferenceSession(str(plain), options, providers=["CPUExecutionProvider"])

    # when both are counted
    before, after = count_onnx(plain, batch_size=2), count_onnx(saved, batch_size=2)

    # then work and parameters are the same
    assert after.coverage == 1.0
    assert (after.total.macs, after.total.flops, after.params) == (
        before.total.macs, before.total.flops, before.params
    )  # fmt: skip
