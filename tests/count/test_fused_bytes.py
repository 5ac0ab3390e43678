"""Fused bytes by hand: each tensor once in forward and once in backward."""

from __future__ import annotations

import pytest
import torch
from tests.count.cases import FP32, Net, x
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import ridgeline


def layers(model: nn.Module, data: Tensor, mode: str = "train") -> dict[str, tuple[int, int]]:
    """Fused bytes of each module, and of its own operators, in fp32 numbers."""
    table = ridgeline.count(model, data, mode=mode).layers()
    rows = zip(table["path"], table["fused_bytes"], table["own_fused_bytes"], strict=True)
    return {path: (fused // FP32, own // FP32) for path, fused, own in rows}


def linear() -> nn.Linear:
    """On 2 rows: 16 numbers in, 128 weights, 16 biases, 32 numbers out."""
    return nn.Linear(8, 16)


def conv() -> nn.Conv2d:
    """On 2x3x8x8: 384 numbers in, 216 weights, 8 biases, 2·8·6·6 = 576 numbers out."""
    return nn.Conv2d(3, 8, 3)


LINEAR_FORWARD = 16 + 128 + 16 + 32
CONV_FORWARD = 384 + 216 + 8 + 576


@pytest.mark.parametrize(
    ("layer", "data", "forward", "backward"),
    [
        # read: output gradient, input, weight; written: gradients of input, weight, bias
        (linear(), x(2, 8).requires_grad_(), LINEAR_FORWARD, 32 + 16 + 128 + 16 + 128 + 16),
        (conv(), x(2, 3, 8, 8).requires_grad_(), CONV_FORWARD, 576 + 384 + 216 + 384 + 216 + 8),
        # no input gradient, so the weight is not read
        (linear(), x(2, 8), LINEAR_FORWARD, 32 + 16 + 128 + 16),
        (conv(), x(2, 3, 8, 8), CONV_FORWARD, 576 + 384 + 216 + 8),
        # frozen: the input is not read again
        (linear().requires_grad_(False), x(2, 8).requires_grad_(), LINEAR_FORWARD, 32 + 128 + 16),
        (conv().requires_grad_(False), x(2, 3, 8, 8).requires_grad_(), CONV_FORWARD,
         576 + 216 + 384),
    ],
    ids=["linear", "conv", "first linear", "first conv", "frozen linear", "frozen conv"],
)  # fmt: skip
def test_a_layer(layer: nn.Module, data: Tensor, forward: int, backward: int) -> None:
    assert layers(layer, data, "infer") == {"(model)": (forward, forward)}
    assert layers(layer, data) == {"(model)": (forward + backward, forward + backward)}


def test_a_module_does_not_move_what_stays_in_it() -> None:
    # given 16 → 32 → relu → 32 → 8 numbers, with 128 and 64 weights
    model = nn.Sequential(
        nn.Linear(8, 16, bias=False), nn.ReLU(), nn.Linear(16, 4, bias=False), nn.Flatten()
    )
    # then the whole writes what relu gives, for backward, and the result; not what relu gets
    forward = 16 + 128 + 64 + 32 + 8
    backward = 8 + 32 + 64 + 16 + 128 + 64
    assert layers(model, x(2, 8)) == {
        "(model)": (forward + backward, 0),
        "0": (16 + 128 + 32 + 32 + 16 + 128,) * 2,
        "1": (32 + 32 + 32 + 32 + 32,) * 2,  # relu's backward reads its result
        "2": (32 + 64 + 8 + 8 + 32 + 64 + 32 + 64,) * 2,
        "3": (0, 0),  # a view
    }
    # and the step has the optimizer, which reads weights and gradients and writes weights
    result = ridgeline.count(model, x(2, 8), mode="train", optimizer="sgd")
    assert result.fused.total_bytes == FP32 * (forward + backward + 3 * (128 + 64))


def test_a_module_around_others_has_operators_of_its_own() -> None:
    # given x·W + (x + 1)·W: two operators of its own around a layer that is called twice,
    model = Net(
        lambda n, data: n.inner(data) + n.inner(data + 1), inner=nn.Linear(8, 8, bias=False)
    )
    # with 16 numbers in and out and 64 weights, in inference
    assert layers(model, x(2, 8), "infer") == {
        "(model)": (16 + 64 + 16, 16 + 16 + 16 + 16 + 16),  # own: x, x + 1; two products, their sum
        "inner": (16 + 16 + 64 + 16 + 16,) * 2,  # the weight once
    }


def test_recomputation_is_backward_work() -> None:
    # given 8 numbers in and out of a layer of 16 weights in a checkpoint
    model = Net(
        lambda n, data: checkpoint(n.block, n.first(data), use_reentrant=False),
        first=nn.Linear(4, 4, bias=False),
        block=nn.Sequential(nn.Linear(4, 4, bias=False), nn.ReLU()),
    )
    forward = 8 + 16 + 8
    # then backward reads its input and weight once for both, and writes its output again
    backward = (8 + 16 + 8) + (8 + 8 + 16)
    fused = layers(model, x(2, 4))
    assert fused["block.0"] == (forward + backward,) * 2
    # and of the activation it reads the input and a gradient, and writes a gradient
    assert fused["block.1"] == ((8 + 8) + (8 + 8 + 8),) * 2


def test_a_lookup_reads_the_rows_that_are_named() -> None:
    # given 5 of 100 rows of 4 numbers, by indices of 8 bytes
    result = ridgeline.count(nn.Embedding(100, 4), torch.zeros(5, dtype=torch.int64))
    assert (result.fused.read_bytes, result.fused.written_bytes) == (5 * (16 + 8), 5 * 16)


def test_a_slice_that_is_written_leaves_the_rest_to_be_read() -> None:
    # given a cache of 10 rows of 4 numbers, of which one is replaced and all are used
    def step(cache: Tensor, row: Tensor) -> Tensor:
        cache[3:4].copy_(row)
        return cache * 2

    result = ridgeline.count(step, (torch.zeros(10, 4), torch.zeros(1, 4)))
    assert (result.fused.read_bytes, result.fused.written_bytes) == (16 + 9 * 16, 16 + 160)


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("precision", ["fp32", "amp"])
def test_no_row_of_a_network_has_more_fused_bytes_than_it_moves(mode: str, precision: str) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, groups=8), nn.Dropout(), nn.Flatten(), nn.Linear(200, 10),
    )  # fmt: skip
    result = ridgeline.count(model, x(4, 3, 16, 16), mode=mode, precision=precision)
    table = result.layers()
    moved = table["read_bytes"] + table["written_bytes"]
    assert (table["fused_bytes"] <= moved).all()
    assert (table["own_fused_bytes"] <= moved).all()
    assert result.fused.total_bytes <= result.total.moved_bytes
    assert table["fused_bytes"].gt(0).sum() == len(table) - (1 if mode == "train" else 2)
