"""Optimizers by hand: FLOPs, roots and bytes for each of 15 parameters (3 × 4 and 3)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.count.cases import FP32, assert_cost, x
from torch import nn

import ridgeline
from ridgeline.count.records import Total

P = 3 * 4 + 3
TENSORS = 2


ADAM_FLOPS = 3 + 1 + 3 + 1 + 1 + 3
"""m: lerp; v: scaled, then + c·g·g; √v, ÷ correction, + eps; p + c·m/d."""


def step(optimizer: str, **options: Any) -> Total:
    layer = nn.Linear(4, 3)
    r = ridgeline.count(
        layer, x(2, 4), mode="train", optimizer=optimizer, optimizer_options=options
    )
    assert r.unknown == {}
    return r.phase("optimizer")


@pytest.mark.parametrize(
    ("optimizer", "options", "flops", "roots", "read", "written", "counters"),
    [
        ("sgd", {}, 2, 0, 2, 1, 0),  # p −= lr·g: p and g read, p written
        ("sgd", {"weight_decay": 0.1}, 2 + 2, 0, 2 + 2, 1 + 1, 0),  # g + c·p into a new tensor
        ("momentum", {}, 1 + 1 + 2, 0, 1 + 2 + 2, 3, 0),  # b = m·b, b += g, p −= lr·b
        ("nesterov", {}, 1 + 1 + 2 + 2, 0, 1 + 2 + 2 + 2, 3 + 1, 0),  # and g + m·b before
        # lerp 2 read 1 written, v 1 and 1, addcmul 2 and 1, root, quotient, sum 1 and 1 each,
        # addcdiv 3 and 1
        ("adam", {}, ADAM_FLOPS, 1, 11, 7, 1),
        ("adamw", {}, ADAM_FLOPS + 1, 1, 11 + 1, 7 + 1, 1),  # the weight is scaled first
        ("adagrad", {}, 2 + 1 + 3, 1, 2 + 1 + 1 + 3, 4, 1),  # s += g², √s + eps, p −= c·g/d
        ("rmsprop", {}, 1 + 3 + 1 + 3, 1, 8, 5, 1),  # v = a·v + c·g², √v + eps, p −= lr·g/d
    ],
)
def test_each_weight_by_hand(
    optimizer: str, options: dict[str, Any], flops: int, roots: int, read: int, written: int,
    counters: int,
) -> None:  # fmt: skip
    """And a step counter for each tensor, where there is one."""
    count = counters * TENSORS
    assert_cost(
        step(optimizer, **options),
        macs=0,
        other=flops * P + count,
        transcendental=roots * P,
        read=FP32 * (read * P + count),
        written=FP32 * (written * P + count),
    )


@pytest.mark.parametrize("form", ["foreach", "fused"])
def test_every_tensor_is_counted_for_itself(form: str) -> None:
    assert step("adam", **{form: True}) == step("adam")


def test_adafactor_is_known() -> None:
    assert step("adafactor").other_flops > 0


def test_state_is_as_in_the_middle_of_training() -> None:
    r = ridgeline.count(nn.Linear(4, 3), x(2, 4), mode="train", optimizer="adam")
    assert r.memory.optimizer_bytes == FP32 * (2 * P + TENSORS)
    assert r.memory.gradient_bytes == FP32 * P


def test_rows_belong_to_the_layer_whose_weight_is_updated() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2, bias=False))
    r = ridgeline.count(model, x(2, 4), mode="train", optimizer="adam")
    by_layer = r.ops[r.ops["phase"] == "optimizer"].groupby("path")["other_flops"].sum()
    assert by_layer["1"] == ADAM_FLOPS * 6 + 1
    assert by_layer["0"] == ADAM_FLOPS * P + TENSORS


def test_real_and_meta_agree() -> None:
    with torch.device("meta"):
        layer = nn.Linear(4, 3)
    on_meta = ridgeline.count(layer, x(2, 4), mode="train", optimizer="adam")
    real = ridgeline.count(nn.Linear(4, 3), torch.zeros(2, 4), mode="train", optimizer="adam")
    assert real.total == on_meta.total


def test_an_option_that_the_optimizer_does_not_have() -> None:
    with pytest.raises(ridgeline.RidgelineError, match="sgd refuses its options"):
        step("sgd", beta=1)
