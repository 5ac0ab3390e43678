"""Direct methods of linear algebra, with the textbook's leading terms for an n × n matrix.

Golub and Van Loan, Matrix Computations. Iterative methods (eigenvalues, singular values, matrix
exponential) take as many steps as the values ask for, and so have no formula here.
"""

from __future__ import annotations

from math import prod

from ridgeline.costs.work import Shape, Work


def factorise(matrix: Shape, numerator: int, denominator: int) -> Work:
    """So many n³: 1/3 for Cholesky, 2/3 for LU, 2 for an inverse, 2/3 of one from its factor."""
    batch, n = prod(matrix[:-2]), matrix[-1]
    flops = batch * numerator * n**3 // denominator
    return Work(other_flops=flops, terms=(("B", batch), ("~n³", flops // max(batch, 1))))
