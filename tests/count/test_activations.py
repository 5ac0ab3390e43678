"""Every activation in torch.nn by hand, for one element; the formula is beside each row."""

from __future__ import annotations

import pytest
import torch
from tests.count.cases import FP32, Case, assert_cost, check, table, x
from torch import Tensor, nn

import ridgeline

N = 12

# module, FLOPs and transcendentals forward, FLOPs and transcendentals backward
ROWS: list[tuple[nn.Module, tuple[int, int], tuple[int, int]]] = [
    (nn.ReLU(), (1, 0), (1, 0)),  # max(x, 0); x > 0 ? g : 0
    (nn.ReLU6(), (2, 0), (2, 0)),  # two bounds
    (nn.Hardtanh(), (2, 0), (2, 0)),
    (nn.LeakyReLU(), (2, 0), (2, 0)),  # a comparison, a product
    (nn.Threshold(0.1, 20.0), (1, 0), (1, 0)),
    (nn.ELU(), (2, 1), (3, 1)),  # x > 0, a·expm1(x); x > 0, a·exp(x)·g
    (nn.SELU(), (2, 1), (3, 1)),  # the scale is folded into a
    (nn.CELU(), (3, 1), (3, 1)),  # x/a as well
    (nn.Sigmoid(), (3, 1), (3, 0)),  # 1/(1 + exp(−x)); g·y·(1 − y)
    (nn.Tanh(), (0, 1), (3, 0)),  # g·(1 − y²)
    (nn.SiLU(), (4, 1), (8, 1)),  # x·s; s again, g·s·(1 + x·(1 − s))
    (nn.GELU(), (4, 1), (9, 2)),  # x·½·(1 + erf(x·c)); Φ 3, φ 3, g·(Φ + x·φ) 3
    (nn.GELU(approximate="tanh"), (8, 1), (17, 1)),  # x², x³, ·c, +x, ·k, tanh, +1, ·½, ·x
    (nn.Hardsigmoid(), (4, 0), (3, 0)),  # x + 3, two bounds, /6; two bounds, g/6
    (nn.Hardswish(), (5, 0), (5, 0)),  # and ·x; two bounds, x/3, + ½, ·g
    (nn.Softplus(), (3, 2), (5, 1)),  # x·b, bound, log1p(exp), /b; x·b, bound, z + 1, g·z, /
    (nn.Hardshrink(), (2, 0), (2, 0)),  # two bounds
    (nn.Softshrink(), (3, 0), (2, 0)),  # two bounds and a difference
    (nn.LogSigmoid(), (4, 2), (3, 1)),  # |x|, −, min, difference; exp, + 1, 1/, ·g
    (nn.Tanhshrink(), (1, 1), (1 + 3 + 1, 0)),  # x − tanh(x); −g, tanh's own, their sum
    (nn.Softsign(), (3, 0), (8, 0)),  # x/(1 + |x|); autograd's eight steps
]


@pytest.mark.parametrize(
    ("module", "forward", "backward"), ROWS, ids=[repr(row[0]).split("(")[0] for row in ROWS]
)
def test_activation(module: nn.Module, forward: tuple[int, int], backward: tuple[int, int]) -> None:
    data = x(2, 6).requires_grad_()
    r = ridgeline.count(module, data, mode="train")
    assert_cost(r.phase("forward"), other=forward[0] * N, transcendental=forward[1] * N)
    assert_cost(r.phase("input-grad"), other=backward[0] * N, transcendental=backward[1] * N)
    assert ridgeline.count(module, data).total.other_flops == forward[0] * N


def test_every_activation_is_here() -> None:
    """Softmax and its like are with the norms, attention has its own file."""
    elsewhere = {"Softmax", "Softmax2d", "LogSoftmax", "Softmin", "MultiheadAttention"}
    own_test, without_formula = {"PReLU", "GLU", "Mish"}, {"RReLU"}
    known = {type(module).__name__ for module, _, _ in ROWS} | elsewhere | own_test
    known |= without_formula
    assert set(nn.modules.activation.__all__) - known == set()


def test_one_read_and_one_write() -> None:
    r = ridgeline.count(nn.GELU(), x(2, 6))
    assert_cost(r.total, read=FP32 * N, written=FP32 * N)


def test_log_sigmoid_writes_its_result_only() -> None:
    r = ridgeline.count(nn.LogSigmoid(), x(2, 6).requires_grad_(), mode="train")
    assert_cost(r.phase("forward"), read=FP32 * N, written=FP32 * N)
    assert_cost(r.phase("input-grad"), read=FP32 * 2 * N, written=FP32 * N)


def test_prelu_learns_its_slope() -> None:
    r = ridgeline.count(nn.PReLU(), x(2, 6).requires_grad_(), mode="train")
    assert_cost(r.phase("forward"), other=2 * N, read=FP32 * (N + 1), written=FP32 * N)
    # x > 0, g·slope, g·x in one operator; then the sum of the last
    assert_cost(r.phase("input-grad"), other=3 * N)
    assert_cost(r.phase("weight-grad"), other=N)


def test_glu() -> None:
    """Half of the input gates the other half: a·sigmoid(b)."""
    r = ridgeline.count(nn.GLU(), x(2, 6).requires_grad_(), mode="train")
    assert_cost(
        r.phase("forward"),
        other=4 * 6,
        transcendental=6,
        read=FP32 * 12,
        written=FP32 * 6,
    )
    assert_cost(r.phase("input-grad"), other=8 * 6, transcendental=6, written=FP32 * 12)


def test_mish() -> None:
    """x·tanh(log1p(exp(x)))."""
    r = ridgeline.count(nn.Mish(), x(2, 6))
    assert_cost(r.total, other=N, transcendental=3 * N)


def in_place(a: Tensor) -> Tensor:
    return a.add_(1.0)


@table(
    Case("in place", in_place, (x(3, 4),), other=12, read=FP32 * 12, written=FP32 * 12),
    Case("relu in place", nn.ReLU(inplace=True), x(3, 4), other=12, read=48, written=48),
    Case("broadcast operand is read as it is", lambda a, b: a + b, (x(3, 4), x(4)), other=12,
         read=FP32 * (12 + 4), written=FP32 * 12),
    Case("expanded operand is read as it is", lambda a, b: a * b.expand(3, 4), (x(3, 4), x(1, 4)),
         other=12, read=FP32 * (12 + 4), written=FP32 * 12),
    Case("outer sum of two broadcast operands", lambda a, b: a + b, (x(3, 1), x(4)), other=12,
         read=FP32 * 7, written=FP32 * 12),
    Case("with alpha", lambda a, b: torch.add(a, b, alpha=2), (x(5), x(5)), other=10),
    Case("square reads once", lambda a: a * a, (x(5),), other=5, read=20, written=20),
    Case("power of two", lambda a: a**2, (x(5),), other=5),
    Case("power of three", lambda a: a**3, (x(5),), other=10),
    Case("power of a half", lambda a: a**0.5, (x(5),), transcendental=5),
    Case("power of any number", lambda a: a**2.5, (x(5),), transcendental=5),
    Case("clamp below", lambda a: a.clamp(min=0), (x(5),), other=5),
    Case("clamp on both sides", lambda a: a.clamp(0, 1), (x(5),), other=10),
    Case("lerp", lambda a, b: torch.lerp(a, b, 0.1), (x(5), x(5)), other=15),
    Case("addcmul", torch.addcmul, (x(5), x(5), x(5)), other=10, read=60, written=20),
    Case("addcmul with a value", lambda a, b, c: torch.addcmul(a, b, c, value=0.5),
         (x(5), x(5), x(5)), other=15),
    Case("exp", torch.exp, (x(5),), transcendental=5),
    Case("comparison writes bytes", lambda a: a > 0, (x(5),), other=5, read=20, written=5),
    Case("whole numbers are no FLOPs", lambda a: a + 1, (x(5, dtype=torch.int64),), read=40,
         written=40),
    # four products, two additions
    Case("complex product", lambda a, b: a * b,
         (x(5, dtype=torch.complex64), x(5, dtype=torch.complex64)), other=30, read=80,
         written=40),
    Case("where selects", lambda c, a, b: torch.where(c, a, b),
         (x(5, dtype=torch.bool), x(5), x(5)), read=5 + 40, written=20),
    Case("masked fill selects", lambda a, m: a.masked_fill(m, 0.0),
         (x(5), x(5, dtype=torch.bool)), read=20 + 5, written=20),
    Case("to half precision", lambda a: a.half(), (x(5),), read=20, written=10),
    Case("to the same precision is free", lambda a: a.float(), (x(5),), read=0, written=0),
)  # fmt: skip
def test_elementwise(case: Case) -> None:
    check(case)


def test_dropout_in_training() -> None:
    """A random mask, scaled, times the input: two FLOPs; one back."""
    r = ridgeline.count(nn.Dropout(0.1), x(2, 6).requires_grad_(), mode="train")
    assert_cost(r.phase("forward"), other=2 * N, macs=0)
    assert ridgeline.count(nn.Dropout(0.1), x(2, 6)).total.moved_bytes == 0


def test_functions_of_a_whole_model_in_place() -> None:
    r = ridgeline.count(
        nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)), x(2, 4), mode="train"
    )
    assert_cost(r.phase("forward"), macs=32, other=8 + 8)
    assert_cost(r.phase("input-grad"), macs=0, other=8)
