"""Convolutions by hand. MACs = N·Cout·(output places)·(Cin/groups)·(kernel places)."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.count.cases import FP32, Case, assert_cost, check, table, x
from torch import nn

import ridgeline


@table(
    Case(
        "1d",
        nn.Conv1d(3, 8, 3),
        x(2, 3, 10),  # 10 − 3 + 1 = 8 places
        macs=2 * 8 * 8 * 3 * 3,
        other=2 * 8 * 8,  # bias
        read=FP32 * (2 * 3 * 10 + 8 * 3 * 3 + 8),
        written=FP32 * 2 * 8 * 8,
    ),
    Case("2d", nn.Conv2d(3, 8, 3, padding=1), x(2, 3, 6, 5), macs=2 * 8 * 6 * 5 * 3 * 3 * 3,
         other=2 * 8 * 6 * 5, read=FP32 * (2 * 3 * 6 * 5 + 8 * 3 * 3 * 3 + 8),
         written=FP32 * 2 * 8 * 6 * 5),
    # 4 × 3 places
    Case("2d without bias", nn.Conv2d(3, 8, 3, bias=False), x(1, 3, 6, 5),
         macs=8 * 4 * 3 * 3 * 3 * 3, read=FP32 * (3 * 6 * 5 + 8 * 3 * 3 * 3),
         written=FP32 * 8 * 4 * 3),
    Case("2d pointwise", nn.Conv2d(16, 4, 1, bias=False), x(1, 16, 7, 7), macs=4 * 7 * 7 * 16,
         read=FP32 * (16 * 49 + 4 * 16), written=FP32 * 4 * 49),
    # 3 × 5 places
    Case("2d rectangular kernel", nn.Conv2d(2, 4, (1, 5), bias=False), x(1, 2, 3, 9),
         macs=4 * 3 * 5 * 2 * 1 * 5, read=FP32 * (2 * 3 * 9 + 4 * 2 * 5),
         written=FP32 * 4 * 3 * 5),
    # 2 × 3 × 4 places
    Case("3d", nn.Conv3d(2, 4, 3, bias=False), x(1, 2, 4, 5, 6), macs=4 * (2 * 3 * 4) * 2 * 27,
         read=FP32 * (2 * 4 * 5 * 6 + 4 * 2 * 27), written=FP32 * 4 * 2 * 3 * 4),
    # 3 × 3 places, 8/4 = 2 channels each
    Case("grouped", nn.Conv2d(8, 12, 3, groups=4, bias=False), x(1, 8, 5, 5),
         macs=12 * 3 * 3 * 2 * 3 * 3, read=FP32 * (8 * 25 + 12 * 2 * 9), written=FP32 * 12 * 9),
    Case("depthwise", nn.Conv2d(8, 8, 3, groups=8, padding=1, bias=False), x(2, 8, 4, 4),
         macs=2 * 8 * 4 * 4 * 1 * 9, read=FP32 * (2 * 8 * 16 + 8 * 9), written=FP32 * 2 * 8 * 16),
    # spans 5: 3 × 3 places
    Case("dilated", nn.Conv2d(2, 3, 3, dilation=2, bias=False), x(1, 2, 7, 7),
         macs=3 * 3 * 3 * 2 * 9, written=FP32 * 3 * 9),
    # (16 + 6 − 7)//2 + 1 = 8
    Case("strided", nn.Conv2d(3, 4, 7, stride=2, padding=3, bias=False), x(1, 3, 16, 16),
         macs=4 * 8 * 8 * 3 * 49, written=FP32 * 4 * 64),
    Case("unbatched", nn.Conv2d(3, 4, 3, bias=False), x(3, 5, 5), macs=4 * 3 * 3 * 3 * 9,
         read=FP32 * (3 * 25 + 4 * 3 * 9), written=FP32 * 4 * 9),
    Case("padding same, even kernel", nn.Conv1d(2, 3, 4, padding="same", bias=False), x(1, 2, 8),
         macs=3 * 8 * 2 * 4, read=None, written=None),
    Case("circular padding copies first",
         nn.Conv1d(2, 3, 3, padding=1, padding_mode="circular", bias=False), x(1, 2, 8),
         macs=3 * 8 * 2 * 3),
    # every input place meets the whole kernel
    Case("transposed 1d", nn.ConvTranspose1d(4, 6, 3, bias=False), x(2, 4, 5),
         macs=2 * 4 * 5 * 6 * 3, read=FP32 * (2 * 4 * 5 + 4 * 6 * 3), written=FP32 * 2 * 6 * 7),
    # 6 × 6 places out
    Case("transposed 2d", nn.ConvTranspose2d(4, 6, 2, stride=2), x(1, 4, 3, 3),
         macs=4 * 3 * 3 * 6 * 2 * 2, other=6 * 6 * 6, read=FP32 * (4 * 9 + 4 * 6 * 4 + 6),
         written=FP32 * 6 * 36),
    # out (5 − 1)·2 − 2 + 3 + 1 = 10
    Case("transposed grouped with output padding",
         nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2, bias=False),
         x(1, 4, 5, 5), macs=4 * 5 * 5 * (6 // 2) * 3 * 3, read=FP32 * (4 * 25 + 4 * 3 * 9),
         written=FP32 * 6 * 100),
    # out 3 × 4 × 5
    Case("transposed 3d", nn.ConvTranspose3d(2, 3, 2, bias=False), x(1, 2, 2, 3, 4),
         macs=2 * (2 * 3 * 4) * 3 * 8, written=FP32 * 3 * 3 * 4 * 5),
    # 3 × 3 places
    Case("functional", lambda a, w: F.conv2d(a, w, stride=2), (x(1, 3, 5, 5), x(2, 3, 1, 1)),
         macs=2 * 9 * 3, read=FP32 * (3 * 25 + 2 * 3), written=FP32 * 2 * 9),
    Case("half precision", nn.Conv2d(3, 8, 3, bias=False), x(1, 3, 6, 5), macs=8 * 4 * 3 * 3 * 9,
         read=2 * (3 * 6 * 5 + 8 * 3 * 9), written=2 * 8 * 4 * 3, settings={"precision": "bf16"}),
)  # fmt: skip
def test_forward(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_backward_of_grouped_convolutions_repeats_the_forward_twice(groups: int) -> None:
    """Two layers, so that the second has an input gradient: 4·9 places, (4/g)·9 a place."""
    layers = [nn.Conv2d(4, 4, 3, padding=1, groups=groups, bias=False) for _ in range(2)]
    r = ridgeline.count(nn.Sequential(*layers), x(1, 4, 3, 3), mode="train")
    one = 4 * 9 * (4 // groups) * 9
    weight = 4 * (4 // groups) * 9
    assert_cost(r.phase("forward"), macs=2 * one)
    assert_cost(
        r.phase("input-grad"),  # of the second layer only
        macs=one,
        other=0,
        read=FP32 * (4 * 9 + weight),
        written=FP32 * 4 * 9,
    )
    assert_cost(
        r.phase("weight-grad"),
        macs=2 * one,
        other=0,
        read=2 * FP32 * (4 * 9 + 4 * 9),
        written=2 * FP32 * weight,
    )


def test_bias_gradient_is_a_sum() -> None:
    r = ridgeline.count(nn.Conv1d(2, 3, 3), x(2, 2, 6), mode="train")
    assert_cost(
        r.phase("weight-grad"),
        macs=2 * 3 * 4 * 2 * 3,
        other=2 * 3 * 4,
        written=FP32 * (3 * 2 * 3 + 3),
    )
    assert_cost(r.phase("input-grad"), macs=0, other=0, read=0, written=0)


def test_transposed_backward() -> None:
    first, second = nn.ConvTranspose2d(4, 4, 2, bias=False), nn.ConvTranspose2d(4, 2, 2, bias=False)
    r = ridgeline.count(nn.Sequential(first, second), x(1, 4, 3, 3), mode="train")
    one, two = 4 * 9 * 4 * 4, 4 * 16 * 2 * 4
    assert_cost(r.phase("input-grad"), macs=two)
    assert_cost(r.phase("weight-grad"), macs=one + two)


def test_frozen_layer_has_no_weight_gradient() -> None:
    first, second = (nn.Conv1d(2, 2, 3, bias=False) for _ in range(2))
    second.weight.requires_grad_(False)
    r = ridgeline.count(nn.Sequential(first, second), x(1, 2, 8), mode="train")
    assert_cost(r.phase("weight-grad"), macs=2 * 6 * 2 * 3)
    assert_cost(r.phase("input-grad"), macs=2 * 4 * 2 * 3)
    assert_cost(r.phase("optimizer"), other=2 * 12, read=FP32 * 2 * 12, written=FP32 * 12)


def test_formula_is_written_out() -> None:
    r = ridgeline.count(nn.Conv2d(3, 8, 3, padding=1, bias=False), x(2, 3, 6, 5))
    assert r.op_costs[0].formula == ("2·N·Cout·Hout·Wout·(Cin/g)·Kh·Kw = 2·2·8·6·5·3·3·3 = 25920")


# ---------------------------------------------------------------- against counting one by one

shapes = st.fixed_dictionaries(
    {
        "dims": st.integers(1, 3),
        "batch": st.integers(1, 2),
        "groups": st.integers(1, 3),
        "in_per_group": st.integers(1, 2),
        "out_per_group": st.integers(1, 2),
        "size": st.integers(5, 7),
        "kernel": st.integers(1, 3),
        "stride": st.integers(1, 2),
        "padding": st.integers(0, 1),
        "dilation": st.integers(1, 2),
    }
)


def places(s: dict[str, int]) -> int:
    """Along one side, by trying every start."""
    span = s["dilation"] * (s["kernel"] - 1) + 1
    padded = s["size"] + 2 * s["padding"]
    return sum(start + span <= padded for start in range(0, padded, s["stride"]))


def visits(s: dict[str, int], sides: int) -> int:
    """Multiply-adds counted one at a time, as the loops of a convolution would do them."""
    loops = [s["batch"], s["groups"], s["out_per_group"], s["in_per_group"]]
    loops += [sides] * s["dims"] + [s["kernel"]] * s["dims"]
    if prod(loops) > 20_000:  # the loops are the point; a long one adds nothing
        return prod(loops)
    return sum(1 for _ in product(*map(range, loops)))


@hypothesis_settings(max_examples=40)
@given(shapes)
def test_as_many_as_the_loops_do(s: dict[str, int]) -> None:
    kind = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[s["dims"] - 1]
    channels = s["groups"] * s["in_per_group"], s["groups"] * s["out_per_group"]
    options: dict[str, Any] = {key: s[key] for key in ("stride", "padding", "dilation", "groups")}
    with torch.device("meta"):
        layer = kind(*channels, s["kernel"], bias=False, **options)
    given_input = x(s["batch"], channels[0], *[s["size"]] * s["dims"])
    assert ridgeline.count(layer, given_input).total.macs == visits(s, places(s))


@hypothesis_settings(max_examples=30)
@given(shapes)
def test_transposed_as_many_as_the_loops_do(s: dict[str, int]) -> None:
    """Every input place spreads over the whole kernel."""
    kind = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[s["dims"] - 1]
    channels = s["groups"] * s["in_per_group"], s["groups"] * s["out_per_group"]
    options: dict[str, Any] = {key: s[key] for key in ("stride", "padding", "dilation", "groups")}
    with torch.device("meta"):
        layer = kind(*channels, s["kernel"], bias=False, **options)
    given_input = x(s["batch"], channels[0], *[s["size"]] * s["dims"])
    assert ridgeline.count(layer, given_input).total.macs == visits(s, s["size"])
