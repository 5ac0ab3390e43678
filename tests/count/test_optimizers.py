"""Optimizers by hand: FLOPs, roots and bytes for each of 15 parameters (3 × 4 and 3)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.count.cases import FP32, assert_cost, x
from torch import nn

import ridgeline
from ridgeline.count.cost_records import Total

P = 3 * 4 + 3
TENSORS = 2


def step(optimizer: str, **options: Any) -> Total:
    layer = nn.Linear(4, 3)
    r = ridgeline.count(
        layer, x(2, 4), mode="train", optimizer=optimizer, optimizer_options=options
    )
    assert r.unknown == {}
    return r.phase("optimizer")


def test_sgd() -> None:
    """p −= lr·g: p and g read, p written."""
    cost = step("sgd")
    assert_cost(cost, macs=0, other=2 * P, transcendental=0, read=FP32 * 2 * P, written=FP32 * P)


def test_sgd_with_weight_decay() -> None:
    """g + c·p into a new tensor first."""
    cost = step("sgd", weight_decay=0.1)
    assert_cost(cost, other=(2 + 2) * P, read=FP32 * (2 + 2) * P, written=FP32 * (1 + 1) * P)


def test_momentum() -> None:
    """b = m·b, b += g, p −= lr·b."""
    cost = step("momentum")
    assert_cost(cost, other=(1 + 1 + 2) * P, read=FP32 * (1 + 2 + 2) * P, written=FP32 * 3 * P)


def test_nesterov() -> None:
    """As momentum, and g + m·b before the step."""
    assert_cost(step("nesterov"), other=(1 + 1 + 2 + 2) * P)


ADAM_FLOPS = 3 + 1 + 3 + 1 + 1 + 3
"""m: lerp; v: scaled, then + c·g·g; √v, ÷ correction, + eps; p + c·m/d."""


def test_adam() -> None:
    cost = step("adam")
    # lerp 2 read 1 written, v 1 and 1, addcmul 2 and 1, root, quotient, sum 1 and 1 each,
    # addcdiv 3 and 1; and a step counter for each tensor
    assert_cost(cost, other=ADAM_FLOPS * P + TENSORS, transcendental=P)
    assert cost.written_bytes == FP32 * (7 * P + TENSORS)
    assert cost.read_bytes == FP32 * (11 * P + TENSORS)


def test_adamw() -> None:
    """As Adam, and the weight scaled first."""
    cost = step("adamw")
    assert_cost(cost, other=(ADAM_FLOPS + 1) * P + TENSORS, transcendental=P)


def test_adagrad() -> None:
    """s += g², √s + eps, p −= c·g/d."""
    cost = step("adagrad")
    assert_cost(cost, other=(2 + 1 + 3) * P + TENSORS, transcendental=P)


def test_rmsprop() -> None:
    """v = a·v + c·g², √v + eps, p −= lr·g/d."""
    cost = step("rmsprop")
    assert_cost(cost, other=(1 + 3 + 1 + 3) * P + TENSORS, transcendental=P)


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
