"""Convolutions by hand. MACs = N·Cout·(output places)·(Cin/groups)·(kernel places)."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.count.cases import FP32, Case, check, table, x
from torch import nn

import ridgeline


@table(
    # 10 − 3 + 1 = 8 places
    Case("1d", nn.Conv1d(3, 8, 3), x(2, 3, 10), macs=2 * 8 * 8 * 3 * 3, other=2 * 8 * 8,
         read=FP32 * (2 * 3 * 10 + 8 * 3 * 3 + 8), written=FP32 * 2 * 8 * 8),
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


def two(groups: int) -> nn.Module:
    """Two layers, so that the second has an input gradient: 4·9 places, (4/g)·9 a place."""
    return nn.Sequential(
        *[nn.Conv2d(4, 4, 3, padding=1, groups=groups, bias=False) for _ in range(2)]
    )


ONE = {groups: 4 * 9 * (4 // groups) * 9 for groups in (1, 2, 4)}
WEIGHT = {groups: 4 * (4 // groups) * 9 for groups in (1, 2, 4)}
TRANSPOSED = nn.Sequential(
    nn.ConvTranspose2d(4, 4, 2, bias=False), nn.ConvTranspose2d(4, 2, 2, bias=False)
)
FIRST, SECOND = 4 * 9 * 4 * 4, 4 * 16 * 2 * 4
FROZEN = nn.Sequential(*[nn.Conv1d(2, 2, 3, bias=False) for _ in range(2)])
FROZEN[1].requires_grad_(False)


@table(
    *[Case(f"{n} groups", two(n), x(1, 4, 3, 3), phase="forward", macs=2 * ONE[n]) for n in ONE],
    # of the second layer only
    *[Case(f"{n} groups", two(n), x(1, 4, 3, 3), phase="input-grad", macs=ONE[n],
           read=FP32 * (4 * 9 + WEIGHT[n]), written=FP32 * 4 * 9) for n in ONE],
    *[Case(f"{n} groups", two(n), x(1, 4, 3, 3), phase="weight-grad", macs=2 * ONE[n],
           read=2 * FP32 * (4 * 9 + 4 * 9), written=2 * FP32 * WEIGHT[n]) for n in ONE],
    # the bias's gradient is a sum
    Case("bias", nn.Conv1d(2, 3, 3), x(2, 2, 6), phase="weight-grad", macs=2 * 3 * 4 * 2 * 3,
         other=2 * 3 * 4, written=FP32 * (3 * 2 * 3 + 3)),
    Case("bias", nn.Conv1d(2, 3, 3), x(2, 2, 6), phase="input-grad", read=0, written=0),
    Case("transposed", TRANSPOSED, x(1, 4, 3, 3), phase="input-grad", macs=SECOND),
    Case("transposed", TRANSPOSED, x(1, 4, 3, 3), phase="weight-grad", macs=FIRST + SECOND),
    Case("frozen", FROZEN, x(1, 2, 8), phase="weight-grad", macs=2 * 6 * 2 * 3),
    Case("frozen", FROZEN, x(1, 2, 8), phase="input-grad", macs=2 * 4 * 2 * 3),
    Case("frozen", FROZEN, x(1, 2, 8), phase="optimizer", other=2 * 12, read=FP32 * 2 * 12,
         written=FP32 * 12),
)  # fmt: skip
def test_training(case: Case) -> None:
    check(case)


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


@hypothesis_settings(max_examples=60)
@given(shapes, st.booleans())
def test_as_many_as_the_loops_do(s: dict[str, int], transposed: bool) -> None:
    """Transposed, every input place spreads over the whole kernel."""
    name = f"Conv{'Transpose' if transposed else ''}{s['dims']}d"
    channels = s["groups"] * s["in_per_group"], s["groups"] * s["out_per_group"]
    options: dict[str, Any] = {key: s[key] for key in ("stride", "padding", "dilation", "groups")}
    with torch.device("meta"):
        layer = getattr(nn, name)(*channels, s["kernel"], bias=False, **options)
    data = x(s["batch"], channels[0], *[s["size"]] * s["dims"])
    sides = s["size"] if transposed else places(s)
    assert ridgeline.count(layer, data).total.macs == visits(s, sides)
