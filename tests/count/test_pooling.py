"""Pooling, interpolation and sampling by hand.

The maximum of a window of k is counted as k comparisons, its mean as k additions and a division;
t weighted taps are t products and t − 1 additions.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from tests.count.cases import FP32, INT64, Case, check, g, table, x
from torch import nn

IMAGE = x(2, 3, 4, 4)


def resize(**settings: Any) -> Any:
    return lambda image: F.interpolate(image, **settings)


def sample(mode: str) -> Any:
    return lambda image, grid: F.grid_sample(image, grid, mode=mode, align_corners=False)


@table(
    # 4 places, each with the place of its maximum
    Case("max 1d", nn.MaxPool1d(2), x(2, 3, 8), other=2 * 3 * 4 * 2, read=FP32 * 48,
         written=(FP32 + INT64) * 24),
    Case("max 2d", nn.MaxPool2d(2), IMAGE, other=2 * 3 * 4 * 4, read=FP32 * 96,
         written=(FP32 + INT64) * 24),
    # 2 × 2 places of 9, padding included
    Case("max 2d overlapping, padded", nn.MaxPool2d(3, stride=2, padding=1), IMAGE,
         other=2 * 3 * 4 * 9),
    Case("max 2d rectangular", nn.MaxPool2d((1, 2)), IMAGE, other=2 * 3 * 8 * 2),
    Case("max 3d", nn.MaxPool3d(2), x(1, 2, 4, 4, 4), other=2 * 8 * 8),
    Case("average 1d", nn.AvgPool1d(2), x(2, 3, 8), other=2 * 3 * 4 * (2 + 1), read=FP32 * 48,
         written=FP32 * 24),
    Case("average 2d", nn.AvgPool2d(2), IMAGE, other=2 * 3 * 4 * (4 + 1), read=FP32 * 96,
         written=FP32 * 24),
    Case("average 3d", nn.AvgPool3d(2), x(1, 2, 4, 4, 4), other=2 * 8 * (8 + 1)),
    # 16 additions and a division each
    Case("adaptive average to 1 is a mean", nn.AdaptiveAvgPool2d(1), IMAGE, other=6 * (16 + 1),
         read=FP32 * 96, written=FP32 * 6),
    Case("adaptive average, even", nn.AdaptiveAvgPool2d(2), IMAGE, other=6 * 4 * (4 + 1)),
    # 5 to 3: windows 0–1, 1–3, 3–4
    Case("adaptive average, uneven", nn.AdaptiveAvgPool2d((3, 1)), x(1, 2, 5, 4),
         other=2 * ((2 + 3 + 2) * 4 + 3)),
    Case("adaptive average 1d", nn.AdaptiveAvgPool1d(2), x(2, 3, 8), other=6 * (8 + 2)),
    Case("adaptive maximum", nn.AdaptiveMaxPool2d(2), IMAGE, other=6 * 16),
    Case("adaptive maximum 1d", nn.AdaptiveMaxPool1d(2), x(2, 3, 8), other=6 * 8),
    Case("adaptive average 3d", nn.AdaptiveAvgPool3d(1), x(1, 2, 2, 3, 4), other=2 * (24 + 1)),
    # x², window mean (4 + 1), sign, |·|, relu, product, ·4, root
    Case("power average", nn.LPPool2d(2, 2), IMAGE, other=96 + 24 * (4 + 1) + 24 * 5,
         transcendental=24),
    Case("fractional maximum", nn.FractionalMaxPool2d(2, output_size=2), IMAGE, other=6 * 4 * 4),
    Case("unpooling moves", lambda values, places: F.max_unpool2d(values, places, [2, 2]),
         (x(2, 3, 2, 2), x(2, 3, 2, 2, dtype=torch.int64)), read=(FP32 + INT64) * 24,
         written=FP32 * 96),
    Case("nearest moves", resize(scale_factor=2, mode="nearest"), (IMAGE,), read=FP32 * 96,
         written=FP32 * 384),
    Case("nearest-exact", resize(size=8, mode="nearest-exact"), (IMAGE,), written=FP32 * 384),
    Case("linear", resize(size=16, mode="linear"), (x(2, 3, 8),), other=96 * (2 + 1)),
    Case("bilinear", resize(size=8, mode="bilinear"), (IMAGE,), other=384 * (4 + 3)),
    Case("bicubic", resize(size=8, mode="bicubic"), (IMAGE,), other=384 * (16 + 15)),
    Case("trilinear", resize(size=(4, 4, 4), mode="trilinear"), (x(1, 2, 2, 2, 2),),
         other=128 * (8 + 7)),
    Case("area is adaptive average", resize(size=2, mode="area"), (IMAGE,), other=6 * 4 * 5),
    Case("grid sample", sample("bilinear"), (IMAGE, x(2, 5, 5, 2)), other=2 * 3 * 25 * (4 + 3),
         read=FP32 * (96 + 100), written=FP32 * 150),
    Case("grid sample, nearest", sample("nearest"), (IMAGE, x(2, 5, 5, 2)), other=0),
    Case("grid sample, bicubic", sample("bicubic"), (IMAGE, x(2, 5, 5, 2)), other=150 * 31),
    Case("grid sample 3d", sample("bilinear"), (x(1, 2, 3, 3, 3), x(1, 4, 4, 4, 3)),
         other=2 * 64 * 15),
    Case("pixel shuffle moves", nn.PixelShuffle(2), x(1, 8, 3, 3), read=FP32 * 72,
         written=FP32 * 72),
    Case("pixel unshuffle moves", nn.PixelUnshuffle(2), x(1, 2, 6, 6), read=FP32 * 72,
         written=FP32 * 72),
    # 3 × 3 windows of 2·4
    Case("unfold copies every window", nn.Unfold(2), x(1, 2, 4, 4), read=FP32 * 32,
         written=FP32 * 9 * 8),
    Case("fold adds every window", nn.Fold((4, 4), 2), x(1, 8, 9), other=72, read=FP32 * 72,
         written=FP32 * 32),
)  # fmt: skip
def test_forward(case: Case) -> None:
    check(case)


@table(
    # each gradient is added at the place of the maximum
    Case("max", nn.MaxPool2d(2), g(IMAGE), phase="input-grad", other=24, read=(FP32 + INT64) * 24,
         written=FP32 * 96),
    Case("average", nn.AvgPool2d(2), g(IMAGE), phase="input-grad", other=24 * (1 + 4),
         read=FP32 * 24, written=FP32 * 96),
    Case("adaptive average, uneven", nn.AdaptiveAvgPool2d((3, 1)), g(x(1, 2, 5, 4)),
         phase="input-grad", other=2 * (3 + 7 * 4), read=FP32 * 6, written=FP32 * 40),
    Case("bilinear", nn.Upsample(scale_factor=2, mode="bilinear"), g(IMAGE), phase="input-grad",
         other=384 * 8, read=FP32 * 384, written=FP32 * 96),
)  # fmt: skip
def test_backward(case: Case) -> None:
    check(case)
