"""Direct methods of linear algebra, with the textbook's leading terms for an n × n matrix.

Golub and Van Loan, Matrix Computations. Iterative methods (eigenvalues, singular values, matrix
exponential) take as many steps as the values ask for, and so have no formula here.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ridgeline.count.call import OpCall, TensorMeta
from ridgeline.count.formulas.registry import Work, aten


def _size(matrix: TensorMeta) -> tuple[int, int]:
    """How many matrices, and the size of one side."""
    return prod(matrix.shape[:-2]), matrix.shape[-1]


def _cubic(matrix: TensorMeta, numerator: int, denominator: int) -> Work:
    batch, n = _size(matrix)
    flops = batch * numerator * n**3 // denominator
    return Work(other_flops=flops, terms=(("B", batch), ("~n³", flops // max(batch, 1))))


@aten("linalg_cholesky_ex", kind="linalg")
def cholesky(call: OpCall) -> Work:
    """n³/3."""
    return _cubic(call.inputs[0], 1, 3)


@aten("linalg_lu linalg_lu_factor_ex _linalg_det _linalg_slogdet", kind="linalg")
def lu(call: OpCall) -> Work:
    """2·n³/3; a determinant is the product of what it leaves on the diagonal."""
    return _cubic(call.inputs[0], 2, 3)


@aten("linalg_inv_ex cholesky_inverse", kind="linalg")
def inverse(call: OpCall) -> Work:
    """2·n³; two thirds of that remain where the factor is known."""
    known = call.name == "aten::cholesky_inverse"
    return _cubic(call.inputs[0], 2, 3 if known else 1)


@aten("_linalg_solve_ex", kind="linalg")
def solve(call: OpCall) -> Work:
    """2·n³/3 to factor, 2·n² for each right-hand side."""
    batch, n = _size(call.get("A"))
    columns = call.get("B").numel // max(batch * n, 1)
    factored = lu(call)
    solved = (2, (("B", batch), ("n²", n * n), ("columns", columns)))
    return replace(
        factored, other_flops=factored.other_flops + 2 * batch * n * n * columns, more=(solved,)
    )


@aten("linalg_solve_triangular triangular_solve", kind="linalg")
def solve_triangular(call: OpCall) -> Work:
    """n² for each right-hand side."""
    n = _triangle(call).shape[-1]
    return Work(other_flops=n * call.out.numel, terms=(("n", n), ("out", call.out.numel)))


@aten("linalg_lu_solve cholesky_solve _cholesky_solve_helper", kind="linalg")
def solve_factored(call: OpCall) -> Work:
    """Two triangular systems: 2·n² for each right-hand side."""
    n = _triangle(call).shape[-1]
    return Work(
        other_flops=2 * n * call.out.numel, factor=2, terms=(("n", n), ("out", call.out.numel))
    )


def _triangle(call: OpCall) -> TensorMeta:
    """The matrix: some of these operators take the right-hand side first."""
    named = (call.get(name) for name in ("A", "LU", "input2"))
    return next((t for t in named if isinstance(t, TensorMeta)), call.inputs[0])


@aten("linalg_qr", kind="linalg")
def qr(call: OpCall) -> Work:
    """Householder, m × n with k = min(m, n): 2·k²·(max(m, n) − k/3), Q another 2·k²·(m − k/3)."""
    matrix = call.inputs[0]
    m, n = matrix.shape[-2:]
    k = min(m, n)
    factored, formed = (2 * k * k * (3 * size - k) // 3 for size in (max(m, n), m))
    flops = prod(matrix.shape[:-2]) * (factored + (0 if call.get("mode") == "r" else formed))
    return Work(other_flops=flops, terms=(("~2·m·n²", flops),))
