"""Attention by hand: MACs = heads·queries·keys·(Dqk + Dv); each score 1 scale + 4 softmax FLOPs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.count.cases import FP32, Case, Net, assert_cost, check, g, table, x
from torch import Tensor, nn

import ridgeline


def attend(**settings: Any) -> Callable[..., Tensor]:
    def forward(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **settings)

    return forward


QKV = (x(2, 3, 5, 4), x(2, 3, 5, 4), x(2, 3, 5, 4))  # 2·3 heads, 5 tokens, 4 features
SCORES = 2 * 3 * 5 * 5


@table(
    Case("plain", attend(), QKV, macs=SCORES * (4 + 4), other=5 * SCORES, transcendental=SCORES,
         read=FP32 * 3 * 120, written=FP32 * 120),
    Case("mask of numbers is added", attend(), (*QKV, x(5, 5)), macs=SCORES * 8, other=6 * SCORES,
         transcendental=SCORES, read=FP32 * (3 * 120 + 25), written=FP32 * 120),
    Case("mask of truth values selects", attend(), (*QKV, x(2, 1, 5, 5, dtype=torch.bool)),
         macs=SCORES * 8, other=5 * SCORES, transcendental=SCORES, read=FP32 * 3 * 120 + 2 * 25,
         written=FP32 * 120),
    Case("causal, all pairs", attend(is_causal=True), QKV, macs=SCORES * 8, other=5 * SCORES,
         transcendental=SCORES),
    Case("causal, half", attend(is_causal=True), QKV, macs=6 * (5 * 6 // 2) * 8, other=5 * 6 * 15,
         transcendental=6 * 15, read=FP32 * 3 * 120, written=FP32 * 120,
         settings={"causal": "half"}),
    # rows see 1, 2, 3, 3, 3
    Case("causal half, fewer keys", attend(is_causal=True),
         (x(1, 1, 5, 4), x(1, 1, 3, 4), x(1, 1, 3, 4)), macs=(1 + 2 + 3 + 3 + 3) * 8,
         other=5 * 12, transcendental=12, settings={"causal": "half"}),
    Case("not causal is not halved", attend(), QKV, macs=SCORES * 8, other=5 * SCORES,
         transcendental=SCORES, settings={"causal": "half"}),
    # 5 queries, 7 keys
    Case("cross attention", attend(), (x(2, 3, 5, 4), x(2, 3, 7, 4), x(2, 3, 7, 4)),
         macs=6 * 5 * 7 * 8, other=5 * 6 * 35, transcendental=6 * 35,
         read=FP32 * 6 * (20 + 28 + 28), written=FP32 * 120),
    Case("values of another size", attend(), (x(1, 2, 5, 4), x(1, 2, 7, 4), x(1, 2, 7, 6)),
         macs=2 * 5 * 7 * (4 + 6), other=5 * 70, transcendental=70, written=FP32 * 2 * 5 * 6),
    # 6 query heads share 2 key heads
    Case("grouped heads", attend(enable_gqa=True), (x(2, 6, 5, 4), x(2, 2, 5, 4), x(2, 2, 5, 4)),
         macs=2 * 6 * 25 * 8, other=5 * 2 * 6 * 25, transcendental=2 * 6 * 25,
         read=FP32 * (2 * 6 * 20 + 2 * 2 * 2 * 20), written=FP32 * 2 * 6 * 20),
    Case("three dimensions", attend(), (x(2, 5, 4), x(2, 5, 4), x(2, 5, 4)), macs=2 * 25 * 8,
         other=5 * 50, transcendental=50),
    # two more for each score
    Case("with dropout", attend(dropout_p=0.1), QKV, macs=SCORES * 8, other=7 * SCORES,
         transcendental=SCORES),
)  # fmt: skip
def test_forward(case: Case) -> None:
    check(case)


WANTING = (g(QKV[0]), g(QKV[1]), g(QKV[2]))
BIASED = Net(
    lambda n, q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=n.bias),
    bias=nn.Parameter(torch.empty(3, 5, 5)),
)


@table(
    # the log-sum-exp of each query is written, too
    Case("all", attend(), WANTING, phase="forward", macs=SCORES * 8, other=5 * SCORES,
         transcendental=SCORES, written=FP32 * (120 + 2 * 3 * 5)),
    # dV, dP, dQ and dK: twice the forward; the softmax and scale are 4 + 1 a score
    Case("all", attend(), WANTING, phase="input-grad", macs=SCORES * 16, other=5 * SCORES,
         read=FP32 * (120 + 3 * 120 + 120 + 30), written=FP32 * 3 * 120),
    Case("values alone", attend(), (*QKV[:2], g(QKV[2])), phase="input-grad", macs=SCORES * 4,
         written=FP32 * 120),
    Case("a learned bias on the scores", BIASED, QKV, phase="optimizer", other=2 * 75),
)  # fmt: skip
def test_training(case: Case) -> None:
    check(case)


def test_a_learned_bias_on_the_scores_gets_its_gradient() -> None:
    r = ridgeline.count(BIASED, QKV, mode="train")
    backward = r.phase("input-grad").macs + r.phase("weight-grad").macs
    assert backward == SCORES * 4  # dP only
    assert r.memory.gradient_bytes == FP32 * 75


# ---------------------------------------------------------------- layers

E, HEADS, TOKENS = 8, 2, 2 * 3  # batch of 2, length 3
PROJECT = TOKENS * E * E
PRODUCTS = 2 * HEADS * 3 * 3 * (4 + 4)


def attention_layer(need_weights: bool) -> nn.Module:
    return Net(
        lambda n, q, k, v: n.attention(q, k, v, need_weights=need_weights)[0],
        attention=nn.MultiheadAttention(E, HEADS, batch_first=True),
    )


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("no_grad", [True, False])
def test_multihead_attention_in_eval(need_weights: bool, no_grad: bool) -> None:
    layer = attention_layer(need_weights).eval()
    same = torch.zeros(2, 3, E)
    with torch.set_grad_enabled(not no_grad):
        r = ridgeline.count(layer, (same, same, same))
    scores = 2 * HEADS * 9
    assert_cost(r.total, macs=4 * PROJECT + PRODUCTS, transcendental=scores)
    # biases of four projections; scale (on the query, or on each score); softmax
    bias = 4 * TOKENS * E
    weighted = bias + TOKENS * E + 4 * scores + (scores + scores // HEADS)  # mean over heads
    assert r.total.other_flops == (weighted if need_weights else bias + 5 * scores)


def test_multihead_attention_in_training() -> None:
    same = torch.zeros(2, 3, E)
    r = ridgeline.count(attention_layer(False).train(), (same, same, same), mode="train")
    assert_cost(r.phase("forward"), macs=4 * PROJECT + PRODUCTS)
    # the output projection and the attention; nothing goes back to the input
    assert_cost(r.phase("input-grad"), macs=PROJECT + 2 * PRODUCTS)
    assert_cost(r.phase("weight-grad"), macs=4 * PROJECT)


FEED_FORWARD = 2 * TOKENS * E * 16
ENCODER = 4 * PROJECT + PRODUCTS + FEED_FORWARD


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_layer_loses_nothing_to_fused_paths(norm_first: bool, activation: str) -> None:
    layer = nn.TransformerEncoderLayer(
        E, HEADS, 16, batch_first=True, norm_first=norm_first, activation=activation
    ).eval()
    with torch.no_grad():
        r = ridgeline.count(layer, torch.zeros(2, 3, E))
    assert_cost(r.total, macs=ENCODER)
    scores, hidden = 2 * HEADS * 9, TOKENS * 16
    bias = TOKENS * (4 * E + 16 + E)
    norms = 2 * 8 * TOKENS * E
    residuals = 2 * TOKENS * E
    acts = (1 if activation == "relu" else 4) * hidden
    assert r.total.other_flops == bias + norms + residuals + acts + 5 * scores
    roots = 2 * TOKENS
    assert r.total.transcendentals == scores + roots + (hidden if activation == "gelu" else 0)


def test_decoder_layer() -> None:
    layer = nn.TransformerDecoderLayer(E, HEADS, 16, batch_first=True)
    r = ridgeline.count(layer, (torch.zeros(2, 3, E), torch.zeros(2, 3, E)))
    assert r.total.macs == 2 * (4 * PROJECT + PRODUCTS) + FEED_FORWARD


@hypothesis_settings(max_examples=40)
@given(queries=st.integers(1, 9), keys=st.integers(1, 9))
def test_causal_half_counts_the_pairs_of_the_mask(queries: int, keys: int) -> None:
    seen = int(torch.ones(queries, keys).tril().sum())
    q, k = x(1, 1, queries, 2), x(1, 1, keys, 2)
    half = ridgeline.count(attend(is_causal=True), (q, k, k.clone()), causal="half")
    full = ridgeline.count(attend(is_causal=True), (q, k, k.clone()), causal="full")
    assert half.total.macs == seen * 4
    assert full.total.macs == queries * keys * 4
