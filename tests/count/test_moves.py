"""Operators that move data by hand: what is read, what is written, and what is free."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.count.cases import FP32, INT64, Case, assert_cost, check, ids, table, x
from torch import nn

import ridgeline

A = x(3, 4)


@table(
    Case("view", lambda a: a.view(4, 3), (A,), read=0, written=0),
    Case("transpose", lambda a: a.t(), (A,), read=0, written=0),
    Case("permute", lambda a: a.permute(1, 0), (A,), read=0, written=0),
    Case("slice", lambda a: a[:, 1:], (A,), read=0, written=0),
    Case("expand", lambda a: a[None].expand(5, 3, 4), (A,), read=0, written=0),
    Case("split", lambda a: a.split(1), (A,), read=0, written=0),
    Case("chunk", lambda a: a.chunk(2, dim=1), (A,), read=0, written=0),
    Case("unbind", lambda a: a.unbind(), (A,), read=0, written=0),
    Case("squeeze", lambda a: a[None].squeeze(0), (A,), read=0, written=0),
    Case("flatten", nn.Flatten(), x(2, 3, 4), read=0, written=0),
    Case("detach", lambda a: a.detach(), (A,), read=0, written=0),
    Case("diagonal", lambda a: a.diagonal(), (A,), read=0, written=0),
    Case("unfold of a dimension", lambda a: a.unfold(1, 2, 1), (A,), read=0, written=0),
    Case("real part", lambda a: a.real, (x(3, dtype=torch.complex64),), read=0, written=0),
    Case("identity", nn.Identity(), A, read=0, written=0),
    Case("empty allocates", lambda a: torch.empty_like(a), (A,), read=0, written=0),
    Case("contiguous already", lambda a: a.contiguous(), (A,), read=0, written=0),
    Case("contiguous of a transpose", lambda a: a.t().contiguous(), (A,), read=48, written=48),
    Case("clone", lambda a: a.clone(), (A,), read=48, written=48),
    Case("reshape that copies", lambda a: a.t().reshape(-1), (A,), read=48, written=48),
    Case("clone of an expanded tensor", lambda a: a[None].expand(5, 3, 4).contiguous(), (A,),
         read=48, written=5 * 48),
    Case("repeat", lambda a: a.repeat(2, 1), (A,), read=48, written=96),
    Case("cat", lambda a, b: torch.cat([a, b]), (A, x(2, 4)), read=48 + 32, written=80),
    Case("cat with itself", lambda a: torch.cat([a, a]), (A,), read=48, written=96),
    Case("stack", lambda a, b: torch.stack([a, b]), (A, x(3, 4)), read=96, written=96),
    Case("flip", lambda a: a.flip(0), (A,), read=48, written=48),
    Case("roll", lambda a: a.roll(1), (A,), read=48, written=48),
    Case("zero padding", lambda a: F.pad(a, (1, 1)), (A,), read=48, written=FP32 * 3 * 6),
    Case("reflection padding", lambda a: F.pad(a, (1, 1), mode="reflect"), (A,), read=48,
         written=FP32 * 3 * 6),
    Case("replication padding", lambda a: F.pad(a, (2, 2), mode="replicate"), (A,), read=48,
         written=FP32 * 3 * 8),
    Case("zeros", lambda a: torch.zeros_like(a), (A,), read=0, written=48),
    Case("fill in place", lambda a: a.fill_(1.0), (A,), read=0, written=48),
    Case("copy in place", lambda a, b: a.copy_(b), (A, x(4)), read=16, written=48),
    Case("tril", lambda a: a.tril(), (A,), read=48, written=48),
    Case("arange", lambda a: torch.arange(5), (A,), read=0, written=5 * INT64),
    Case("one hot", lambda i: F.one_hot(i, 4), (ids(3, below=4),), read=None, written=None),
    # ---- picking
    Case("embedding reads its rows", nn.Embedding(100, 4), ids(2, 3, below=7),
         read=FP32 * 6 * 4 + INT64 * 6, written=FP32 * 6 * 4),
    Case("index select", lambda a, i: a.index_select(0, i), (x(100, 4), ids(3)),
         read=FP32 * 12 + INT64 * 3, written=FP32 * 12),
    Case("gather", lambda a, i: a.gather(1, i), (x(3, 100), ids(3, 2)), read=FP32 * 6 + INT64 * 6,
         written=FP32 * 6),
    Case("index with numbers", lambda a, i: a[i], (x(100, 4), ids(3)), read=FP32 * 12 + INT64 * 3,
         written=FP32 * 12),
    Case("index with two lists", lambda a, i, j: a[i, j], (x(100, 50, 4), ids(3), ids(3)),
         read=FP32 * 12 + INT64 * 6, written=FP32 * 12),
    # ---- placing
    Case("scatter out of place copies the target", lambda a, i, s: a.scatter(1, i, s),
         (x(3, 10), ids(3, 2), x(3, 2)), read=FP32 * (30 + 6) + INT64 * 6, written=FP32 * 30),
    Case("scatter in place touches what is named", lambda a, i, s: a.scatter_(1, i, s),
         (x(3, 10), ids(3, 2), x(3, 2)), read=FP32 * 6 + INT64 * 6, written=FP32 * 6),
    Case("scatter add in place", lambda a, i, s: a.scatter_add_(1, i, s),
         (x(3, 10), ids(3, 2), x(3, 2)), other=6, read=FP32 * (6 + 6) + INT64 * 6,
         written=FP32 * 6),
    Case("index add in place", lambda a, i, s: a.index_add_(0, i, s), (x(10, 4), ids(3), x(3, 4)),
         other=12, read=FP32 * (12 + 12) + INT64 * 3, written=FP32 * 12),
    Case("index fill in place", lambda a, i: a.index_fill_(0, i, 1.0), (x(10, 4), ids(3)),
         read=INT64 * 3, written=FP32 * 12),
    # and the zero itself
    Case("index put of one value",
         lambda a, i: torch.ops.aten.index_put_(a, [i], torch.zeros((), device=a.device)),
         (x(10, 4), ids(3)), read=INT64 * 3 + FP32, written=FP32 * 12 + FP32),
    Case("index put adding", lambda a, i, s: a.index_put_((i,), s, accumulate=True),
         (x(10, 4), ids(3), x(3, 4)), other=12, read=FP32 * (12 + 12) + INT64 * 3,
         written=FP32 * 12),
    # ---- reductions, scans, sorts
    Case("sum", lambda a: a.sum(), (A,), other=12, read=48, written=4),
    Case("sum of an expanded tensor", lambda a: a.expand(3, 4).sum(), (x(4),), other=12, read=16),
    Case("mean", lambda a: a.mean(0), (A,), other=12 + 4, read=48, written=16),
    Case("maximum", lambda a: a.amax(1), (A,), other=12, read=48, written=12),
    Case("maximum and its place", lambda a: a.max(1), (A,), other=12, written=12 + 3 * INT64),
    Case("variance", lambda a: a.var(1), (A,), other=4 * 12),
    Case("standard deviation", lambda a: a.std(1), (A,), other=4 * 12, transcendental=3),
    Case("norm", lambda a: a.norm(dim=1), (A,), other=2 * 12, transcendental=3),
    Case("norm of order 1", lambda a: a.norm(p=1, dim=1), (A,), other=2 * 12, transcendental=0),
    Case("logsumexp", lambda a: a.logsumexp(1), (A,), other=3 * 12, transcendental=12 + 3),
    Case("cumulative sum", lambda a: a.cumsum(1), (A,), other=12, read=48, written=48),
    Case("sum of truth values", lambda a: a.sum(), (x(5, dtype=torch.bool),), read=5, written=8),
    Case("sort", lambda a: a.sort(), (x(3, 8),), other=24 * 3, written=24 * (FP32 + INT64)),
    Case("top 2 of 8", lambda a: a.topk(2), (x(3, 8),), other=24, written=6 * (FP32 + INT64)),
    Case("top 4 of 8", lambda a: a.topk(4), (x(3, 8),), other=24 * 2),
    Case("argmax", lambda a: a.argmax(1), (A,), other=12, written=3 * INT64),
)  # fmt: skip
def test_forward(case: Case) -> None:
    check(case)


BAGS = torch.tensor([[1, 2, 5], [3, 4, 6]])  # two bags of three rows of 4


@pytest.mark.parametrize(
    ("mode", "divisions", "places"), [("sum", 0, 0), ("mean", 8, 0), ("max", 0, 8)]
)
def test_embedding_bag(mode: str, divisions: int, places: int) -> None:
    r = ridgeline.count(nn.EmbeddingBag(100, 4, mode=mode), BAGS)
    bag = next(op for op in r.op_costs if op.kind == "gather")
    assert_cost(
        bag.cost,
        other=6 * 4 + divisions,
        read=FP32 * 6 * 4 + INT64 * (6 + 2),
        written=FP32 * 8 + INT64 * places,
    )


def test_embedding_bag_with_offsets() -> None:
    flat = (torch.tensor([1, 2, 5, 3]), torch.tensor([0, 3]))
    r = ridgeline.count(nn.EmbeddingBag(100, 4, mode="sum"), flat)
    assert_cost(r.total, other=16, read=FP32 * 16 + INT64 * (4 + 2), written=FP32 * 8)


def test_embedding_bag_with_weights() -> None:
    inputs: dict[str, Any] = {"input": BAGS, "per_sample_weights": torch.ones(2, 3)}
    r = ridgeline.count(nn.EmbeddingBag(100, 4, mode="sum"), inputs)
    bag = next(op for op in r.op_costs if op.kind == "gather")
    assert_cost(bag.cost, other=2 * 24, read=FP32 * (24 + 6) + INT64 * 8)


def test_embedding_gradient_writes_the_whole_table() -> None:
    r = ridgeline.count(nn.Embedding(100, 4), ids(2, 3, below=7), mode="train")
    assert_cost(r.phase("weight-grad"), other=24, read=FP32 * 24 + INT64 * 6, written=FP32 * 400)


def test_boolean_mask_of_known_values() -> None:
    """Three of six are true."""
    mask = torch.tensor([True, False, True, False, True, False])
    r = ridgeline.count(lambda a, m: a[m], (x(6, 4), mask))
    assert r.traced_on == "meta"
    assert r.op_costs[-1].call.outputs[0].shape == (3, 4)
