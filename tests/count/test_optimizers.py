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


@pytest.mark.parametrize("foreach", [False, True])
def test_sgd(foreach: bool) -> None:
    """p −= lr·g: p and g read, p written."""
    cost = step("sgd", foreach=foreach)
    assert_cost(cost, macs=0, other=2 * P, transcendental=0, read=FP32 * 2 * P, written=FP32 * P)


@pytest.mark.parametrize("foreach", [False, True])
def test_sgd_with_weight_decay(foreach: bool) -> None:
    """g + c·p into a new tensor first."""
    cost = step("sgd", weight_decay=0.1, foreach=foreach)
    assert_cost(cost, other=(2 + 2) * P, read=FP32 * (2 + 2) * P, written=FP32 * (1 + 1) * P)


@pytest.mark.parametrize("foreach", [False, True])
def test_momentum(foreach: bool) -> None:
    """b = m·b, b += g, p −= lr·b."""
    cost = step("momentum", foreach=foreach)
    assert_cost(cost, other=(1 + 1 + 2) * P, read=FP32 * (1 + 2 + 2) * P, written=FP32 * 3 * P)


@pytest.mark.parametrize("foreach", [False, True])
def test_nesterov(foreach: bool) -> None:
    """As momentum, and g + m·b before the step."""
    assert_cost(step("nesterov", foreach=foreach), other=(1 + 1 + 2 + 2) * P)


ADAM_FLOPS = 3 + 1 + 3 + 1 + 1 + 3
"""m: lerp; v: scaled, then + c·g·g; √v, ÷ correction, + eps; p + c·m/d."""


@pytest.mark.parametrize("foreach", [False, True])
def test_adam(foreach: bool) -> None:
    cost = step("adam", foreach=foreach)
    # lerp 2 read 1 written, v 1 and 1, addcmul 2 and 1, root, quotient, sum 1 and 1 each,
    # addcdiv 3 and 1; and a step counter for each tensor
    assert_cost(cost, other=ADAM_FLOPS * P + TENSORS, transcendental=P)
    assert cost.written_bytes == FP32 * (7 * P + TENSORS)
    one = int(foreach)  # the number added to all counters is a tensor there
    assert cost.read_bytes == FP32 * (11 * P + TENSORS + one)


@pytest.mark.parametrize("foreach", [False, True])
def test_adamw(foreach: bool) -> None:
    """As Adam, and the weight scaled first."""
    cost = step("adamw", foreach=foreach)
    assert_cost(cost, other=(ADAM_FLOPS + 1) * P + TENSORS, transcendental=P)


@pytest.mark.parametrize("foreach", [False, True])
def test_adagrad(foreach: bool) -> None:
    """s += g², √s + eps, p −= c·g/d."""
    cost = step("adagrad", foreach=foreach)
    assert_cost(cost, other=(2 + 1 + 3) * P + TENSORS, transcendental=P)


@pytest.mark.parametrize("foreach", [False, True])
def test_rmsprop(foreach: bool) -> None:
    """v = a·v + c·g², √v + eps, p −= lr·g/d."""
    cost = step("rmsprop", foreach=foreach)
    assert_cost(cost, other=(1 + 3 + 1 + 3) * P + TENSORS, transcendental=P)


# Not RAdam: PyTorch's two versions of it differ in their arithmetic.
@pytest.mark.parametrize("optimizer", ["adamax", "nadam", "adadelta"])
def test_foreach_and_one_by_one_agree(optimizer: str) -> None:
    one, many = step(optimizer, foreach=False), step(optimizer, foreach=True)
    assert (many.other_flops, many.transcendentals) == (one.other_flops, one.transcendentals)


def test_adafactor_is_known() -> None:
    assert step("adafactor").other_flops > 0


@pytest.mark.parametrize(
    ("optimizer", "flops", "roots", "state", "options"),
    [
        ("sgd", 2, 0, 0, {}),
        ("sgd", 2 + 2, 0, 0, {"weight_decay": 0.1}),
        ("momentum", 4, 0, 1, {}),
        ("nesterov", 6, 0, 1, {}),
        ("adam", ADAM_FLOPS, 1, 2, {}),
        ("adamw", ADAM_FLOPS + 1, 1, 2, {}),
        ("adagrad", 6, 1, 1, {}),
    ],
)
def test_fused_moves_everything_once(
    optimizer: str, flops: int, roots: int, state: int, options: dict[str, Any]
) -> None:
    """Weights, gradients and state read; weights and state written."""
    cost = step(optimizer, fused=True, **options)
    counters = TENSORS if optimizer.startswith("ada") else 0  # counted up by an operator before
    assert_cost(
        cost,
        other=flops * P + counters,
        transcendental=roots * P,
        read=FP32 * ((2 + state) * P + 2 * counters),
        written=FP32 * ((1 + state) * P + counters),
    )


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


def test_a_number_to_the_power_of_many_tensors() -> None:
    r = ridgeline.count(lambda a: torch._foreach_pow(2.0, [a]), (x(4),))
    assert r.total.other_flops == 4
