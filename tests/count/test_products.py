"""Matrix products by hand: MACs = (elements of the result)·(length summed over)."""

from __future__ import annotations

import torch
from tests.count.cases import FP32, Case, Net, assert_cost, check, g, ids, table, x
from torch import nn

import ridgeline

COMPLEX = 8  # bytes of a complex64


@table(
    Case("linear of a vector", nn.Linear(4, 3), x(4), macs=3 * 4, other=3,
         read=FP32 * (4 + 3 * 4 + 3), written=FP32 * 3),
    Case("linear of a matrix", nn.Linear(4, 3), x(5, 4), macs=5 * 3 * 4, other=5 * 3,
         read=FP32 * (5 * 4 + 3 * 4 + 3), written=FP32 * 5 * 3),
    Case("linear of a batch of sequences", nn.Linear(4, 3), x(2, 5, 4), macs=2 * 5 * 3 * 4,
         other=2 * 5 * 3, read=FP32 * (2 * 5 * 4 + 3 * 4 + 3), written=FP32 * 2 * 5 * 3),
    Case("linear without bias", nn.Linear(4, 3, bias=False), x(2, 5, 4), macs=2 * 5 * 3 * 4,
         read=FP32 * (2 * 5 * 4 + 3 * 4), written=FP32 * 2 * 5 * 3),
    # Σj (Σi a[i]·W[k,i,j])·b[j]: for each k and j 3 MACs and one more
    Case("bilinear", nn.Bilinear(3, 4, 5, bias=False), (x(2, 3), x(2, 4)),
         macs=2 * 5 * 4 * (3 + 1), read=FP32 * (2 * 3 + 2 * 4 + 5 * 3 * 4), written=FP32 * 2 * 5),
    Case("mm", torch.mm, (x(2, 3), x(3, 4)), macs=2 * 4 * 3, read=FP32 * (6 + 12),
         written=FP32 * 8),
    Case("bmm", torch.bmm, (x(5, 2, 3), x(5, 3, 4)), macs=5 * 2 * 4 * 3, read=FP32 * 5 * (6 + 12),
         written=FP32 * 5 * 8),
    Case("matmul of equal batches", torch.matmul, (x(2, 5, 3, 4), x(2, 5, 4, 6)),
         macs=2 * 5 * 3 * 6 * 4, read=FP32 * 10 * (12 + 24), written=FP32 * 10 * 18),
    # PyTorch copies both to (2·5) matrices first
    Case("matmul broadcasting both sides", torch.matmul, (x(2, 1, 3, 4), x(5, 4, 6)),
         macs=2 * 5 * 3 * 6 * 4, read=FP32 * (2 * 12 + 5 * 24 + 10 * 12 + 10 * 24),
         written=FP32 * (10 * 12 + 10 * 24 + 10 * 18)),
    # folds into one product of 2·3 rows
    Case("matmul of a batch and one matrix", torch.matmul, (x(2, 3, 4), x(4, 6)),
         macs=2 * 3 * 6 * 4, read=FP32 * (24 + 24), written=FP32 * 36),
    Case("matrix times vector", torch.mv, (x(3, 4), x(4)), macs=3 * 4, read=FP32 * (12 + 4),
         written=FP32 * 3),
    Case("matmul of matrix and vector", torch.matmul, (x(3, 4), x(4)), macs=3 * 4,
         read=FP32 * (12 + 4), written=FP32 * 3),
    Case("batch of matrices times vector", torch.matmul, (x(5, 3, 4), x(4)), macs=5 * 3 * 4,
         read=FP32 * (60 + 4), written=FP32 * 15),
    Case("dot", torch.dot, (x(7), x(7)), macs=7, read=FP32 * 14, written=FP32),
    Case("outer is element-wise", torch.outer, (x(3), x(4)), other=3 * 4, read=FP32 * 7,
         written=FP32 * 12),
    Case("inner", torch.inner, (x(3, 4), x(5, 4)), macs=3 * 5 * 4, read=FP32 * (12 + 20),
         written=FP32 * 15),
    Case("tensordot", lambda a, b: torch.tensordot(a, b, dims=2), (x(2, 3, 4), x(3, 4, 5)),
         macs=2 * 5 * 3 * 4, read=FP32 * (24 + 60), written=FP32 * 10),
    Case("addmm", torch.addmm, (x(2, 4), x(2, 3), x(3, 4)), macs=2 * 4 * 3, other=2 * 4,
         read=FP32 * (8 + 6 + 12), written=FP32 * 8),
    # beta·c, alpha·product, their sum
    Case("addmm with alpha and beta", lambda c, a, b: torch.addmm(c, a, b, alpha=2.0, beta=0.5),
         (x(2, 4), x(2, 3), x(3, 4)), macs=2 * 4 * 3, other=3 * 8, read=FP32 * (8 + 6 + 12),
         written=FP32 * 8),
    Case("addmm with beta 0 leaves c unread", lambda c, a, b: torch.addmm(c, a, b, beta=0),
         (x(2, 4), x(2, 3), x(3, 4)), macs=2 * 4 * 3, other=0, read=FP32 * (6 + 12),
         written=FP32 * 8),
    Case("addmm of a broadcast vector", torch.addmm, (x(4), x(2, 3), x(3, 4)), macs=2 * 4 * 3,
         other=8, read=FP32 * (4 + 6 + 12), written=FP32 * 8),
    Case("baddbmm", lambda c, a, b: torch.baddbmm(c, a, b, alpha=0.5),
         (x(5, 2, 4), x(5, 2, 3), x(5, 3, 4)), macs=5 * 2 * 4 * 3, other=2 * 5 * 8,
         read=FP32 * 5 * (8 + 6 + 12), written=FP32 * 40),
    Case("addmv", torch.addmv, (x(3), x(3, 4), x(4)), macs=12, other=3, read=FP32 * (3 + 12 + 4),
         written=FP32 * 3),
    Case("addr", torch.addr, (x(3, 4), x(3), x(4)), macs=12, other=12, read=FP32 * (12 + 3 + 4),
         written=FP32 * 12),
    Case("addbmm", torch.addbmm, (x(2, 4), x(5, 2, 3), x(5, 3, 4)), macs=5 * 2 * 4 * 3,
         other=2 * 4, read=FP32 * (8 + 30 + 60), written=FP32 * 8),
    Case("einsum matrix product", lambda a, b: torch.einsum("ik,kj->ij", a, b),
         (x(2, 3), x(3, 4)), macs=2 * 4 * 3, read=FP32 * (6 + 12), written=FP32 * 8),
    # both are copied to (b·h, ·, d) first
    Case("einsum batch, permuted operands", lambda a, b: torch.einsum("bqhd,bkhd->bhqk", a, b),
         (x(2, 3, 4, 5), x(2, 6, 4, 5)), macs=2 * 4 * 3 * 6 * 5, read=FP32 * 2 * (120 + 240),
         written=FP32 * (120 + 240 + 2 * 4 * 3 * 6)),
    Case("einsum trace", lambda a: torch.einsum("ii->", a), (x(3, 3),), other=3, read=FP32 * 3,
         written=FP32),
    Case("einsum outer", lambda a, b: torch.einsum("i,j->ij", a, b), (x(3), x(4)), other=12,
         read=FP32 * 7, written=FP32 * 12),
    Case("einsum trace of a product", lambda a, b: torch.einsum("ij,ji->", a, b),
         (x(3, 4), x(4, 3)), macs=12),
    Case("einsum of three goes left to right",
         lambda a, b, c: torch.einsum("ij,jk,kl->il", a, b, c), (x(2, 3), x(3, 4), x(4, 5)),
         macs=2 * 4 * 3 + 2 * 5 * 4, read=FP32 * (6 + 12 + 8 + 20), written=FP32 * (8 + 10)),
    Case("einsum sums an index of one operand", lambda a, b: torch.einsum("ij,k->ik", a, b),
         (x(2, 3), x(4)), other=2 * 3 + 2 * 4),
    # four real multiply-adds each
    Case("complex", torch.mm, (x(2, 3, dtype=torch.complex64), x(3, 4, dtype=torch.complex64)),
         macs=4 * 2 * 4 * 3, read=COMPLEX * (6 + 12), written=COMPLEX * 8),
    Case("int8 to int32", torch._int_mm,
         (x(32, 16, dtype=torch.int8), x(16, 8, dtype=torch.int8)), macs=32 * 8 * 16,
         read=32 * 16 + 16 * 8, written=4 * 32 * 8),
    # a difference, a square, an addition; a root a pair
    Case("distances, euclidean", torch.cdist, (x(4, 3), x(5, 3)), other=4 * 5 * 3 * 3,
         transcendental=4 * 5, read=FP32 * (12 + 15), written=FP32 * 20),
    Case("distances, manhattan", lambda a, b: torch.cdist(a, b, p=1.0), (x(4, 3), x(5, 3)),
         other=4 * 5 * 3 * 3, transcendental=0),
    # one product of 3 + 2 features
    Case("distances of many points", torch.cdist, (x(40, 3), x(5, 3)), macs=40 * 5 * (3 + 2),
         other=2 * (40 * 3 + 5 * 3) + 40 * 3 + 40 * 5, transcendental=40 * 5),
    # 5·n·log2 n
    Case("fft", torch.fft.fft, (x(4, 8, dtype=torch.complex64),), other=4 * 5 * 8 * 3,
         read=COMPLEX * 32, written=COMPLEX * 32),
    # half, and 8/2 + 1 results
    Case("fft of real numbers", torch.fft.rfft, (x(4, 8),), other=4 * 5 * 8 * 3 // 2,
         read=FP32 * 32, written=COMPLEX * 4 * 5),
    Case("operand used twice is read once", lambda a: a @ a, (x(3, 3),), macs=27, read=FP32 * 9,
         written=FP32 * 9),
    # two different tensors, though one storage
    Case("transposed view is free", lambda a: a.t() @ a, (x(5, 3),), macs=3 * 3 * 5,
         read=FP32 * 2 * 15, written=FP32 * 9),
    Case("determinant", torch.linalg.det, (x(6, 6),), other=2 * 6**3 // 3),
    Case("cholesky of 5", torch.linalg.cholesky, (x(5, 6, 6),), other=5 * 6**3 // 3),
    Case("inverse", torch.linalg.inv, (x(6, 6),), other=2 * 6**3),
    Case("kronecker", torch.kron, (x(3, 4), x(5, 4)), other=3 * 4 * 5 * 4),
)  # fmt: skip
def test_forward(case: Case) -> None:
    check(case)


TWO = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3))  # on 5 rows
ONE_MACS, TWO_MACS, WEIGHTS = 5 * 6 * 4, 5 * 3 * 6, 6 * 4 + 6 + 3 * 6 + 3
BANK = Net(lambda n, rows: torch.bmm(rows, n.weight), weight=nn.Parameter(torch.empty(3, 5, 6)))
BILINEAR = nn.Bilinear(3, 4, 5, bias=False)
PAIR = (g(x(2, 3)), g(x(2, 4)))


def tied() -> nn.Module:
    """One table of 10 × 4, looked up for 3 tokens and multiplied at the end."""
    embed, head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
    head.weight = embed.weight
    return Net(lambda n, tokens: n.head(n.embed(tokens)), embed=embed, head=head)


@table(
    Case("two layers", TWO, x(5, 4), phase="forward", macs=ONE_MACS + TWO_MACS,
         other=5 * 6 + 5 * 3),
    Case("two layers", TWO, x(5, 4), phase="input-grad", macs=TWO_MACS,
         read=FP32 * (5 * 3 + 3 * 6), written=FP32 * 5 * 6),
    # gradient and input; biases sum the gradient
    Case("two layers", TWO, x(5, 4), phase="weight-grad", macs=ONE_MACS + TWO_MACS,
         other=5 * 6 + 5 * 3, read=FP32 * ((30 + 20) + (15 + 30) + 30 + 15),
         written=FP32 * WEIGHTS),
    Case("two layers", TWO, x(5, 4), phase="optimizer", other=2 * WEIGHTS,
         read=FP32 * 2 * WEIGHTS, written=FP32 * WEIGHTS),
    # an expert bank kept as one parameter: 3 experts, 4 rows each, 5 → 6
    Case("bank", BANK, x(3, 4, 5), phase="forward", macs=3 * 4 * 5 * 6),
    Case("bank", BANK, x(3, 4, 5), phase="input-grad"),
    Case("bank", BANK, x(3, 4, 5), phase="weight-grad", macs=3 * 4 * 5 * 6),
    Case("tied embedding", tied(), ids(3, below=3), phase="forward", macs=3 * 10 * 4),
    Case("tied embedding", tied(), ids(3, below=3), phase="input-grad", macs=3 * 10 * 4),
    # product, the rows added into a table of zeros, and both uses added
    Case("tied embedding", tied(), ids(3, below=3), phase="weight-grad", macs=3 * 10 * 4,
         other=3 * 4 + 40),
    Case("tied embedding", tied(), ids(3, below=3), phase="optimizer", other=2 * 40),
    # ΔW[k,i,j] = Σn (a[n,i]·g[n,k])·b[n,j]: the products of a and g are summed over nothing
    Case("bilinear", BILINEAR, (x(2, 3), x(2, 4)), phase="weight-grad", macs=2 * 5 * 3 * 4,
         other=2 * 5 * 3),
    Case("bilinear", BILINEAR, (x(2, 3), x(2, 4)), phase="input-grad"),
    # Δa[n,i] = Σj (Σk g[n,k]·W[k,i,j])·b[n,j]; Δb[n,j] = Σk (Σi a[n,i]·W[k,i,j])·g[n,k]
    Case("bilinear of both", BILINEAR, PAIR, phase="input-grad",
         macs=2 * 3 * 4 * (5 + 1) + 2 * 5 * 4 * (3 + 1)),
)  # fmt: skip
def test_training(case: Case) -> None:
    check(case)


def test_a_weight_used_twice_adds_its_gradients() -> None:
    layer = nn.Linear(4, 4, bias=False)
    r = ridgeline.count(nn.Sequential(layer, layer), x(2, 4), mode="train")
    one = 2 * 4 * 4
    assert_cost(r.phase("forward"), macs=2 * one)
    assert_cost(r.phase("input-grad"), macs=one)
    assert_cost(r.phase("weight-grad"), macs=2 * one, other=16)
    assert r.params == 16
