"""Sizes that onnx's own inference has wrong: pooling by `ceil_mode` below opset 22, STFT, and
transposed convolutions with `auto_pad` and `output_padding`.

The expected sizes are onnxruntime 1.31's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from tests.onnx.models import MS, Operand, count, known, model, one_node, uint8, weight, x

NCHWC = "com.microsoft.nchwc"
F = 4  # bytes of a float32
POOLS = [
    ("MaxPool", 10), ("MaxPool", 11), ("MaxPool", 12), ("MaxPool", 20), ("MaxPool", 22),
    ("AveragePool", 10), ("AveragePool", 11), ("AveragePool", 19), ("AveragePool", 22),
    ("LpPool", 18), ("LpPool", 22),
]  # fmt: skip


def row(size: int) -> Operand:
    """One channel of so many places."""
    return x(1, 1, size)


@pytest.mark.parametrize(("op", "opset"), POOLS)
def test_a_window_that_begins_in_the_end_padding_is_dropped(
    op: str, opset: int, tmp_path: Path
) -> None:
    # given 4 channels of 5x5, padded to 7x7: windows of 2 begin at 0, 2, 4, but not at 6
    nodes = [
        helper.make_node("Conv", ["x", "first"], ["a"]),
        helper.make_node(op, ["a"], ["b"], kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 1, 1],
                         ceil_mode=1),
        helper.make_node("Conv", ["b", "second"], ["y"]),
    ]  # fmt: skip
    stored = {"first": weight(4, 4, 1, 1), "second": weight(8, 4, 1, 1)}
    made = model(nodes, {"x": x(1, 4, 5, 5)}, ["y"], stored=stored, opset=opset)

    result = count(made, tmp_path)

    assert [op.cost.macs for op in result.op_costs] == [4 * 4 * 25, 0, 8 * 4 * 9]
    assert result.modules[""].output_shapes == ((1, 8, 3, 3),)


@pytest.mark.parametrize(
    ("size", "settings", "places"),
    [
        (5, {"kernel_shape": [2], "strides": [2]}, 3),  # at 0, 2, and 4 with one place beyond
        (6, {"kernel_shape": [2], "strides": [2]}, 3),
        (5, {"kernel_shape": [2], "strides": [2], "pads": [1, 1]}, 3),  # not at 6 of 7
        (5, {"kernel_shape": [2], "strides": [2], "pads": [0, 1]}, 3),
        (6, {"kernel_shape": [2], "strides": [2], "pads": [1, 1]}, 4),  # at 6, the last but one
        (5, {"kernel_shape": [1], "strides": [4]}, 2),
        (3, {"kernel_shape": [1], "strides": [4]}, 1),  # not at 4
        (2, {"kernel_shape": [3], "strides": [4]}, 1),
        (5, {"kernel_shape": [2], "strides": [3], "auto_pad": "VALID"}, 2),
        (3, {"kernel_shape": [1], "strides": [4], "auto_pad": "VALID"}, 1),
        (5, {"kernel_shape": [3], "strides": [2], "auto_pad": "SAME_UPPER"}, 3),
    ],
)
@pytest.mark.parametrize(("op", "opset"), POOLS)
def test_places_of_a_window_with_ceil_mode(
    op: str, opset: int, size: int, settings: dict[str, Any], places: int, tmp_path: Path
) -> None:
    made = one_node(op, [row(size)], opset=opset, ceil_mode=1, **settings)

    assert count(made, tmp_path).total.written_bytes == places * F


@pytest.mark.parametrize(("op", "opset"), [("MaxPool", 12), ("AveragePool", 19), ("LpPool", 18)])
def test_a_dilated_window(op: str, opset: int, tmp_path: Path) -> None:
    # given windows over 0 and 2, 3 and 5 of 7; one at 6 would begin in the padding
    made = one_node(op, [row(5)], opset=opset, kernel_shape=[2], strides=[3], dilations=[2],
                    pads=[1, 1], ceil_mode=1)  # fmt: skip

    assert count(made, tmp_path).total.written_bytes == 2 * F


def test_the_indices_are_as_many(tmp_path: Path) -> None:
    made = one_node("MaxPool", [row(5)], outputs=2, opset=12, kernel_shape=[2], strides=[2],
                    pads=[1, 1], ceil_mode=1)  # fmt: skip

    assert count(made, tmp_path).total.written_bytes == 3 * F + 3 * 8


@pytest.mark.parametrize(
    ("op", "operands", "domain", "shape"),
    [
        ("QLinearAveragePool", [uint8(1, 8, 5, 5), x(), uint8(), x(), uint8()], MS, (1, 8, 3, 3)),
        ("MaxpoolWithMask", [x(1, 8, 5, 5), x(1, 8, 5, 5)], MS, (1, 8, 3, 3)),
        ("MaxPool", [x(1, 8, 5, 5)], NCHWC, (1, 8, 3, 3)),
        ("NhwcMaxPool", [uint8(1, 5, 5, 8)], MS, (1, 3, 3, 8)),
    ],
)
def test_onnxruntime_s_own_pools_have_the_same_rule(
    op: str, operands: list[Operand], domain: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    made = one_node(op, operands, domain=domain, opset=12, kernel_shape=[2, 2], strides=[2, 2],
                    pads=[1, 1, 1, 1], ceil_mode=1)  # fmt: skip

    assert count(made, tmp_path).modules[""].output_shapes == (shape,)


def test_channels_last(tmp_path: Path) -> None:
    operands = [uint8(1, 5, 5, 8), x(), uint8(), x(), uint8()]
    made = one_node("QLinearAveragePool", operands, domain=MS, kernel_shape=[2, 2],
                    strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1, channels_last=1)  # fmt: skip

    assert count(made, tmp_path).modules[""].output_shapes == ((1, 3, 3, 8),)


@pytest.mark.parametrize(
    ("kernel", "settings", "sides"),
    [
        (3, {}, (14, 10)),
        (3, {"output_padding": [1, 1]}, (14, 10)),
        (1, {}, (13, 9)),  # nothing to cut away: 6·2 + 1 and 4·2 + 1
        (1, {"output_padding": [1, 1]}, (14, 10)),
        (3, {"output_padding": [1, 1], "output_shape": [15, 11]}, (15, 11)),
    ],
)
def test_a_transposed_convolution_that_keeps_its_size_times_the_stride(
    kernel: int, settings: dict[str, Any], sides: tuple[int, int], tmp_path: Path
) -> None:
    operands = [x(1, 2, 7, 5), x(2, 3, kernel, kernel)]
    for auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        proto = one_node("ConvTranspose", operands, auto_pad=auto_pad, strides=[2, 2], **settings)
        (op,) = count(proto, tmp_path).op_costs
        assert op.call.outputs[0].shape == (1, 3, *sides)


@pytest.mark.parametrize(
    ("settings", "bins"), [({}, 9), ({"onesided": 1}, 9), ({"onesided": 0}, 16)]
)
@pytest.mark.parametrize("shape", [(1, 64, 1), (1, 64)])
def test_an_stft_is_one_sided_unless_told(
    shape: tuple[int, ...], settings: dict[str, Any], bins: int, tmp_path: Path
) -> None:
    # given frames of 16 at 0, 8, … 48
    made = one_node("STFT", [x(*shape), known(8), known(np.ones(16), np.float32)], **settings)

    result = count(made, tmp_path)

    assert result.unknown == {}
    assert result.modules[""].output_shapes == ((1, 7, bins, 2),)


def test_what_follows_an_stft(tmp_path: Path) -> None:
    # given the real parts of 7 frames of 9, times their transpose
    nodes = [
        helper.make_node("STFT", ["x", "step", "window"], ["a"]),
        helper.make_node("Gather", ["a", "zero"], ["r"], axis=3),
        helper.make_node("Transpose", ["r"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["r", "t"], ["y"]),
    ]
    stored = {"step": np.asarray(8), "window": weight(16), "zero": np.asarray(0)}
    made = model(nodes, {"x": x(1, 64, 1)}, ["y"], stored=stored, opset=17)

    assert count(made, tmp_path).total.macs == 7 * 7 * 9
