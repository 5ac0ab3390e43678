"""Bytes, casts and names of the precisions, by hand: a layer of 4 → 3 without bias on 2 rows."""

from __future__ import annotations

import pytest
import torch
from tests.count.cases import FP32, Net, assert_cost, x
from torch import nn

import ridgeline

MACS = 2 * 3 * 4
FP16 = 2


def layer() -> nn.Linear:
    return nn.Linear(4, 3, bias=False)


def test_fp32() -> None:
    r = ridgeline.count(layer(), x(2, 4))
    assert_cost(r.total, macs=MACS, read=FP32 * (8 + 12), written=FP32 * 6)
    assert [op.dtype for op in r.op_costs] == ["fp32"]


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precisions_halve_the_bytes(precision: str) -> None:
    r = ridgeline.count(layer(), x(2, 4), precision=precision)
    assert_cost(r.total, macs=MACS, read=FP16 * (8 + 12), written=FP16 * 6)
    assert [op.dtype for op in r.op_costs] == [precision]
    assert r.memory.parameter_bytes == FP16 * 12


def test_tf32_is_a_name_for_products_of_fp32() -> None:
    r = ridgeline.count(nn.Sequential(layer(), nn.ReLU()), x(2, 4), precision="tf32")
    assert_cost(r.total, macs=MACS, other=6, read=FP32 * (8 + 12 + 6), written=FP32 * (6 + 6))
    assert [op.dtype for op in r.op_costs] == ["tf32", "fp32"]


def test_amp_casts_input_and_weight() -> None:
    """Both are cast to fp16 (4 bytes read, 2 written), then multiplied in it."""
    r = ridgeline.count(layer(), x(2, 4), precision="amp")
    assert_cost(
        r.total,
        macs=MACS,
        other=0,
        read=FP32 * (8 + 12) + FP16 * (8 + 12),
        written=FP16 * (8 + 12) + FP16 * 6,
    )
    assert next(op for op in r.op_costs if op.cost.macs).dtype == "fp16"


def test_amp_casts_a_weight_once() -> None:
    model = Net(lambda n, data: (n.one(data), n.one(data)), one=layer())
    r = ridgeline.count(model, x(2, 4), precision="amp", mode="train")
    casts = [op for op in r.op_costs if op.op == "aten::_to_copy" and op.phase == "forward"]
    assert sorted(op.cost.read_bytes for op in casts) == [FP32 * 8, FP32 * 8, FP32 * 12]


def test_amp_keeps_softmax_wide() -> None:
    r = ridgeline.count(nn.Sequential(layer(), nn.Softmax(dim=-1)), x(2, 4), precision="amp")
    softmax = next(op for op in r.op_costs if op.kind == "softmax")
    assert softmax.dtype == "fp32"
    assert_cost(softmax.cost, written=FP32 * 6)


def test_amp_gradients_of_weights_come_back_in_fp32() -> None:
    r = ridgeline.count(layer(), x(2, 4), precision="amp", mode="train")
    assert r.memory.parameter_bytes == r.memory.gradient_bytes == FP32 * 12
    assert_cost(r.phase("optimizer"), other=2 * 12, read=FP32 * 24, written=FP32 * 12)
    assert r.phase("weight-grad").macs == MACS


def test_double() -> None:
    r = ridgeline.count(layer().double(), x(2, 4, dtype=torch.float64))
    assert_cost(r.total, macs=MACS, read=8 * 20, written=8 * 6)
    assert r.op_costs[0].dtype == "fp64"


def test_unknown_precision_lists_those_there_are() -> None:
    with pytest.raises(ridgeline.RidgelineError, match="fp32, tf32, amp, bf16, fp16"):
        ridgeline.count(layer(), x(2, 4), precision="fp12")
