"""Direct methods of linear algebra, with the textbook's leading terms for an n × n matrix.

Golub and Van Loan, Matrix Computations. Iterative methods (eigenvalues, singular values, matrix
exponential) take as many steps as the values ask for, and so have no formula here.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ridgeline.costs.work import Shape, Work


def factorise(matrix: Shape, numerator: int, denominator: int) -> Work:
    """So many n³: 1/3 for Cholesky, 2/3 for LU, 2 for an inverse, 2/3 of one from its factor."""
    batch, n = prod(matrix[:-2]), matrix[-1]
    flops = batch * numerator * n**3 // denominator
    return Work(other_flops=flops, terms=(("B", batch), ("~n³", flops // max(batch, 1))))


def solve(matrix: Shape, right_elements: int) -> Work:
    """2·n³/3 to factor, 2·n² for each right-hand side."""
    batch, n = prod(matrix[:-2]), matrix[-1]
    columns = right_elements // max(batch * n, 1)
    factored = factorise(matrix, 2, 3)
    solved = (2, (("B", batch), ("n²", n * n), ("columns", columns)))
    flops = factored.other_flops + 2 * batch * n * n * columns
    return replace(factored, other_flops=flops, more=(solved,))


def solve_triangular(n: int, results: int, *, systems: int = 1) -> Work:
    """n² for each right-hand side of each triangular system."""
    terms = (("n", n), ("out", results))
    return Work(other_flops=systems * n * results, factor=systems, terms=terms)


def qr(matrix: Shape, *, forms_q: bool) -> Work:
    """Householder, m × n with k = min(m, n): 2·k²·(max(m, n) − k/3), Q another 2·k²·(m − k/3)."""
    m, n = matrix[-2:]
    k = min(m, n)
    factored, formed = (2 * k * k * (3 * size - k) // 3 for size in (max(m, n), m))
    flops = prod(matrix[:-2]) * (factored + forms_q * formed)
    return Work(other_flops=flops, terms=(("~2·m·n²", flops),))
