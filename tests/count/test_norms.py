"""Normalisations and softmax by hand, for n elements.

The mean costs n, the variance 3·n, applying them 2·n, and a weight or bias one more each, except
that batch norm folds these per channel. One root for each variance.
"""

from __future__ import annotations

import torch.nn.functional as F
from tests.count.cases import FP32, INT64, Case, check, g, table, x
from torch import nn

N = 2 * 3 * 4 * 4
IMAGE = x(2, 3, 4, 4)


@table(
    Case("batch norm, inference", nn.BatchNorm2d(3), IMAGE, other=2 * N, transcendental=3,
         read=FP32 * (N + 4 * 3), written=FP32 * N),
    Case("batch norm 1d, inference", nn.BatchNorm1d(6), x(5, 6), other=2 * 30, transcendental=6,
         read=FP32 * (30 + 4 * 6), written=FP32 * 30),
    # 2 rows of 6; mean and deviation of each row are written
    Case("layer norm", nn.LayerNorm(6), x(2, 6), other=(1 + 3 + 2 + 2) * 12, transcendental=2,
         read=FP32 * (12 + 6 + 6), written=FP32 * (12 + 2 + 2)),
    Case("layer norm without bias", nn.LayerNorm(6, bias=False), x(2, 6),
         other=(1 + 3 + 2 + 1) * 12, transcendental=2, read=FP32 * (12 + 6),
         written=FP32 * (12 + 2 + 2)),
    Case("layer norm without weights", nn.LayerNorm(6, elementwise_affine=False), x(2, 6),
         other=(1 + 3 + 2) * 12, transcendental=2),
    Case("layer norm over two dimensions", nn.LayerNorm([3, 4]), x(5, 3, 4), other=8 * 60,
         transcendental=5),
    # 2 images · 2 groups
    Case("group norm", nn.GroupNorm(2, 4), x(2, 4, 3), other=8 * 24, transcendental=2 * 2,
         read=FP32 * (24 + 4 + 4), written=FP32 * (24 + 4 + 4)),
    Case("instance norm takes statistics in inference too", nn.InstanceNorm2d(3), IMAGE,
         other=6 * N, transcendental=2 * 3, read=FP32 * N, written=FP32 * (N + 6 + 6)),
    # x², mean (and 2 divisions), + eps, ·root, ·weight; 2 rows
    Case("rms norm", nn.RMSNorm(6), x(2, 6), other=12 + (12 + 2) + 2 + 12 + 12, transcendental=2),
    # x², window of 3 and its division, ·a, + k, power, quotient
    Case("local response norm", nn.LocalResponseNorm(3), x(2, 4, 5),
         other=(1 + 3 + 1 + 1 + 1 + 1) * 40, transcendental=40),
    # maximum, difference, sum, quotient
    Case("softmax", nn.Softmax(dim=-1), x(2, 6), other=4 * 12, transcendental=12, read=FP32 * 12,
         written=FP32 * 12),
    # maximum, difference, sum, difference; a logarithm a row
    Case("log softmax", nn.LogSoftmax(dim=-1), x(2, 6), other=4 * 12, transcendental=12 + 2),
    Case("log softmax over the first dimension", nn.LogSoftmax(dim=0), x(2, 6), other=4 * 12,
         transcendental=12 + 6),
    Case("softmax of channels", nn.Softmax2d(), IMAGE, other=4 * N, transcendental=N),
    Case("softmin", nn.Softmin(dim=-1), x(2, 6), other=5 * 12, transcendental=12),
    # squares and sum, root, floor of the norm, quotient
    Case("normalize", lambda a: F.normalize(a, dim=-1), (x(2, 6),), other=2 * 12 + 2 + 12,
         transcendental=2),
)  # fmt: skip
def test_forward(case: Case) -> None:
    check(case)


NORM = nn.BatchNorm2d(3)
PLAIN = nn.BatchNorm2d(3, affine=False)


class Frozen(nn.BatchNorm2d):
    """Keeps its statistics, also in training."""

    def train(self, mode: bool = True) -> Frozen:
        return super().train(False)


@table(
    # weight, bias, running mean and variance, and the count of batches are read; the saved and the
    # running mean and deviation, and the count of batches written
    Case("batch norm", NORM, IMAGE, phase="forward", other=(1 + 3 + 2) * N, transcendental=3,
         read=FP32 * (N + 4 * 3) + INT64, written=FP32 * (N + 4 * 3) + INT64),
    # Σg: 1, Σg·(x − mean): 3
    Case("batch norm, first", NORM, IMAGE, phase="weight-grad", other=4 * N,
         read=FP32 * (2 * N + 3 * 3), written=FP32 * 2 * 3),
    Case("batch norm, first", NORM, IMAGE, phase="input-grad", read=0, written=0),
    Case("batch norm, first", NORM, IMAGE, phase="optimizer", other=2 * 6),
    # x − mean, ·c, g −, − mean(g), ·scale
    Case("batch norm", NORM, g(IMAGE), phase="input-grad", other=5 * N,
         read=FP32 * (2 * N + 3 * 3), written=FP32 * N),
    Case("batch norm", NORM, g(IMAGE), phase="weight-grad", other=4 * N, read=0, written=FP32 * 6),
    # without weights, it still needs the sums
    Case("batch norm without weights", PLAIN, g(IMAGE), phase="input-grad", other=9 * N),
    Case("batch norm without weights", PLAIN, g(IMAGE), phase="weight-grad"),
    Case("batch norm in eval", Frozen(3).eval(), g(IMAGE), phase="forward", other=2 * N,
         transcendental=3),
    Case("batch norm in eval", Frozen(3).eval(), g(IMAGE), phase="input-grad", other=N),  # g·scale
    Case("batch norm in eval", Frozen(3).eval(), g(IMAGE), phase="weight-grad", other=4 * N),
    # g·w; x − mean, ·r; two sums and a product; four to put them together
    Case("layer norm", nn.LayerNorm(6), g(x(2, 6)), phase="input-grad",
         other=(1 + 2 + 3 + 4) * 12, written=FP32 * 12),
    # x − mean, ·r, ·g, and two sums
    Case("layer norm", nn.LayerNorm(6), g(x(2, 6)), phase="weight-grad", other=5 * 12,
         written=FP32 * 12),
    # g·y, its sum, a difference, ·y
    Case("softmax", nn.Softmax(dim=-1), g(x(2, 6)), phase="input-grad", other=4 * 12,
         read=FP32 * 24, written=FP32 * 12),
    Case("log softmax", nn.LogSoftmax(dim=-1), g(x(2, 6)), phase="input-grad", other=3 * 12,
         transcendental=12),
    # (4, 3) weights in 4 rows: squares, sum, g/norm, product
    Case("weight norm", nn.utils.parametrizations.weight_norm(nn.Linear(3, 4, bias=False)),
         x(2, 3), macs=2 * 4 * 3, other=3 * 12 + 4, transcendental=4),
)  # fmt: skip
def test_training(case: Case) -> None:
    check(case)
