"""Losses by hand. A mean over n elements is n additions and one division."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from tests.count.cases import FP32, INT64, Case, assert_cost, check, g, table, x
from torch import Tensor, nn

import ridgeline

N = 6
PAIR = (x(2, 3), x(2, 3))


def without(loss: Callable[..., Tensor], **settings: Any) -> Callable[..., Tensor]:
    return lambda a, b: loss(a, b, **settings)


@table(
    # difference, square, sum
    Case("mse", F.mse_loss, PAIR, other=3 * N + 1, read=FP32 * 2 * N, written=FP32),
    Case("mse, sum", without(F.mse_loss, reduction="sum"), PAIR, other=3 * N),
    Case("mse, none", without(F.mse_loss, reduction="none"), PAIR, other=2 * N, written=FP32 * N),
    # difference, absolute value, sum
    Case("l1", F.l1_loss, PAIR, other=3 * N + 1),
    # d, |d|, bound, d², ·c, sum
    Case("smooth l1", F.smooth_l1_loss, PAIR, other=6 * N + 1),
    Case("huber", F.huber_loss, PAIR, other=6 * N + 1),
    # 1 − x, t − 1, two products, a difference, sum
    Case("binary cross entropy", F.binary_cross_entropy, PAIR, other=6 * N + 1,
         transcendental=2 * N, read=FP32 * 2 * N, written=FP32),
    Case("binary cross entropy with weights",
         lambda a, b, w: F.binary_cross_entropy(a, b, weight=w), (*PAIR, x(2, 3)),
         other=7 * N + 1, transcendental=2 * N, read=FP32 * 3 * N),
    # max(x, 0) − x·t + log1p(exp(−|x|)), sum
    Case("binary cross entropy of logits", F.binary_cross_entropy_with_logits, PAIR,
         other=7 * N + 1, transcendental=2 * N),
    # t·log t with its test for 0, t·x, difference, sum, ÷ batch
    Case("kl divergence", without(F.kl_div, reduction="batchmean"), PAIR,
         other=(2 + 1 + 1 + 1) * N + 1, transcendental=N),
    # log(1 + exp(−x·t)), sum
    Case("soft margin", F.soft_margin_loss, PAIR, other=4 * N + 1, transcendental=2 * N),
    Case(
        "nll reads one score a target",
        F.nll_loss,
        (x(5, 100), torch.zeros(5, dtype=torch.int64)),
        other=2 * 5 + 1,  # −score, sum, ÷
        read=FP32 * 5 + INT64 * 5,
        written=2 * FP32,  # and the sum of weights
    ),
    # log softmax and nll
    Case("cross entropy", F.cross_entropy, (x(5, 10), torch.zeros(5, dtype=torch.int64)),
         other=4 * 50 + 2 * 5 + 1, transcendental=50 + 5, read=FP32 * 50 + (FP32 + INT64) * 5,
         written=FP32 * 50 + 2 * FP32),
    Case("cross entropy of images", F.cross_entropy,
         (x(2, 3, 4, 4), torch.zeros(2, 4, 4, dtype=torch.int64)), other=4 * 96 + 2 * 32 + 1,
         transcendental=96 + 32),
    Case("multi margin", F.multi_margin_loss, (x(2, 3), torch.tensor([0, 1])), other=4 * N + 1),
    # two norms with their floors, two quotients, product, sum
    Case("cosine similarity", F.cosine_similarity, PAIR, other=2 * (2 * N + 2) + 2 * N + N + N,
         transcendental=2 * 2),
)  # fmt: skip
def test_forward(case: Case) -> None:
    check(case)


@table(
    *[
        Case(loss.__name__, loss, (g(x(2, 3)), x(2, 3)), phase="input-grad", other=each * N,
             transcendental=exponentials * N)
        for loss, each, exponentials in (
            (F.mse_loss, 3, 0),  # 2·(x − t)·g
            (F.smooth_l1_loss, 5, 0),  # x − t, two bounds, ·c, ·g
            (F.binary_cross_entropy, 5, 0),  # (x − t)/(x·(1 − x))·g
            (F.soft_margin_loss, 6, 1),  # −t·z/(1 + z)·g, z = exp(−x·t)
        )
    ],
    # the targets' entries of a zero gradient; then g − exp(y)·Σg
    Case("cross entropy", F.cross_entropy, (g(x(5, 10)), torch.zeros(5, dtype=torch.int64)),
         phase="input-grad", other=5 + 3 * 50, transcendental=50),
)  # fmt: skip
def test_backward(case: Case) -> None:
    check(case)


def test_ctc() -> None:
    """4 steps, 2 sequences, 2 labels: 2·2 + 1 states, three log-probabilities added at each."""
    inputs = (x(4, 2, 3), torch.ones(2, 2, dtype=torch.int64), (4, 4), (2, 2))
    r = ridgeline.count(without_mean, inputs)
    states = 2 * 4 * 5
    assert_cost(r.total, other=6 * states, transcendental=4 * states)
    assert r.coverage == 1.0


def without_mean(scores: Tensor, targets: Tensor, lengths: Any, target_lengths: Any) -> Tensor:
    return F.ctc_loss(scores, targets, lengths, target_lengths, reduction="none")


def test_a_loss_given_to_count() -> None:
    """A layer of 4 → 3 for 5 rows, then the mean of squares of its output."""
    r = ridgeline.count(
        nn.Linear(4, 3, bias=False), x(5, 4), mode="train", loss=lambda out: out.square().mean()
    )
    assert_cost(r.phase("forward"), macs=60, other=15 + 15 + 1)
    assert_cost(r.phase("weight-grad"), macs=60)
