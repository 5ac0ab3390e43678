"""Matrix products, contractions of several operands, distances of vectors, recurrent layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from ridgeline.costs.work import Each, MalformedError, Shape, Terms, Work, require

COMPLEX_MACS = 4  # real multiply-adds in one complex multiply-add
REQUANTISE = 1  # the product's scale; zero points and bounds are work on integers


def product(
    terms: Terms,
    *,
    bias: int = 0,
    other_flops: int = 0,
    transcendentals: int = 0,
    is_complex: bool = False,
) -> Work:
    """Work of a product whose MACs are the terms multiplied, and so many FLOPs for its bias."""
    scale = COMPLEX_MACS if is_complex else 1
    return Work(
        macs=scale * count_points(terms),
        other_flops=bias + other_flops,
        transcendentals=transcendentals,
        factor=2 * scale,
        terms=terms,
        rest="bias" if bias and not other_flops else "other",
    )


def count_points(terms: Terms) -> int:
    return prod(size for _, size in terms)


def matmul_terms(a: Shape, b: Shape) -> Terms:
    """Factors of a product by numpy's rules; the broadcast batch counts in full."""
    require(bool(a and b), "a matrix product of a scalar")
    left = a if len(a) > 1 else (1, *a)
    right = b if len(b) > 1 else (*b, 1)
    m, k, n = left[-2], left[-1], right[-1]
    check_inner(k, right[-2])
    if len(right) == 2:  # one matrix for all rows
        return (("M", prod(left[:-1])), ("N", n), ("K", k))
    return (("B", prod(broadcast(left[:-2], right[:-2]))), ("M", m), ("N", n), ("K", k))


def check_inner(k: int, other: int) -> None:
    """The side that two matrices have in common."""
    require(k == other, f"a product of {k} columns with {other} rows")


def broadcast(a: Shape, b: Shape) -> Shape:
    """By numpy's rules: two sides are equal, or one of them is 1."""
    longest = max(len(a), len(b))
    pairs = zip((1,) * (longest - len(a)) + a, (1,) * (longest - len(b)) + b, strict=True)
    sides = []
    for x, y in pairs:
        require(x == y or 1 in (x, y), f"{a} and {b} do not broadcast")
        sides.append(y if x == 1 else x)
    return tuple(sides)


def grouped_terms(a: Shape, b: Shape) -> Terms:
    """Rows are shared out among the groups, so each row meets one group's matrix."""
    groups = (("G", a[0]),) if len(a) == 3 and len(b) == 3 else ()
    return (*groups, ("M", a[-2]), ("N", b[-1]), ("K", a[-1]))


# ---------------------------------------------------------------- several operands

Labels = list[str]


def einsum(equation: str, shapes: Sequence[Shape], *, is_float: bool) -> Work:
    """Operands are contracted from left to right, as PyTorch does it.

    Labels that one operand alone has and nobody needs are summed first. A step over common
    labels that are summed is a matrix product; one without is an element-wise product.
    """
    macs, flops = _contract(equation, shapes)
    if not macs and (not flops or not is_float):
        return Work()
    factor = 2 if macs else 1
    first, *rest = macs or flops
    return Work(
        macs=sum(map(count_points, macs)),
        other_flops=sum(map(count_points, flops)),
        factor=factor,
        terms=first,
        more=tuple((factor, terms) for terms in rest),
    )


def _contract(equation: str, shapes: Sequence[Shape]) -> tuple[list[Terms], list[Terms]]:
    """The matrix products; then the element-wise products, and the sums of one operand alone."""
    operands, result = _parse(equation, shapes)
    sizes = _sizes(operands, shapes)
    if len(set(result)) < len(result) or not set(result) <= sizes.keys():
        raise MalformedError("the result's labels are not some of the operands', each once")

    def factors(labels: Labels) -> Terms:
        return tuple((label, sizes[label]) for label in labels)

    def sum_alone(labels: Labels, needed: set[str]) -> Labels:
        """Sum over the labels that nobody else needs: one addition an element."""
        rest = [label for label in labels if label in needed]
        if len(rest) < len(labels):
            sums.append(factors(labels))
        return rest

    macs: list[Terms] = []
    products: list[Terms] = []
    sums: list[Terms] = []
    left, *others = [list(dict.fromkeys(labels)) for labels in operands]
    for place, right in enumerate(others):
        later = set(result).union(*others[place + 1 :])
        left = sum_alone(left, later | set(right))
        right = sum_alone(right, later | set(left))
        union = list(dict.fromkeys([*left, *right]))
        left = [label for label in union if label in later]
        (macs if len(left) < len(union) else products).append(factors(union))
    sum_alone(left, set(result))
    return macs, products + sums


def _sizes(operands: Sequence[Labels], shapes: Sequence[Shape]) -> dict[str, int]:
    """Of each label: equal in all operands, or 1, which broadcasts; in one operand always equal."""
    sizes: dict[str, int] = {}
    for labels, shape in zip(operands, shapes, strict=True):
        own: dict[str, int] = {}
        for label, size in zip(labels, shape, strict=True):
            before = sizes.get(label, 1)
            if own.setdefault(label, size) != size or (before != size and 1 not in (before, size)):
                raise MalformedError(f"{label!r} is of {own[label]}, {before} and {size}")
            sizes[label] = size if before == 1 else before
    return sizes


def _parse(equation: str, shapes: Sequence[Shape]) -> tuple[list[Labels], Labels]:
    left, arrow, right = equation.replace(" ", "").partition("->")
    parts = left.split(",")
    require(len(parts) == len(shapes), "as many operands as the equation has")
    operands = [_labels(part, len(shape)) for part, shape in zip(parts, shapes, strict=True)]
    if arrow:
        dots = max((label for o in operands for label in o if label[0] == "."), default="")
        rank = int(dots[1:]) if dots else 0
        return operands, _labels(right, len(right.replace("...", "")) + rank)
    flat = [label for labels in operands for label in labels]
    once = sorted(label for label in set(flat) if flat.count(label) == 1 and label[0] != ".")
    return operands, [*sorted({label for label in flat if label[0] == "."}), *once]


def _labels(part: str, rank: int) -> Labels:
    """One label for each dimension; those of an ellipsis are numbered from the right."""
    before, dots, after = part.partition("...")
    covered = rank - len(before) - len(after)
    require(covered >= 0 and (not covered or bool(dots)), "the equation does not fit the operands")
    return [*before, *(f".{n}" for n in range(covered, 0, -1)), *after]


# ---------------------------------------------------------------- linear algebra, distances


def factorise(matrix: Shape, numerator: int, denominator: int) -> Work:
    """So many n³: 1/3 for Cholesky, 2/3 for LU, 2 for an inverse, 2/3 of one from its factor.

    Direct methods have the textbook's leading term (Golub and Van Loan, Matrix Computations).
    Iterative ones (eigenvalues, singular values) take as many steps as the values ask for.
    """
    batch, n = prod(matrix[:-2]), matrix[-1]
    flops = batch * numerator * n**3 // denominator
    return Work(other_flops=flops, terms=(("B", batch), ("~n³", flops // max(batch, 1))))


def distance(pairs: int, features: int, p: float) -> Work:
    """|x − y|: a difference, a power and an addition for each feature, a root for each pair."""
    powers = 0 if p in (0, 1, 2, float("inf")) else pairs * features
    roots = 0 if p in (0, 1, float("inf")) else pairs
    return Work(
        other_flops=3 * pairs * features,
        transcendentals=powers + roots,
        factor=3,
        terms=(("pairs", pairs), ("K", features)),
    )


def euclidean_distance(pairs: int, features: int, elements: int, left: int) -> Work:
    """√(|x|² − 2·x·y + |y|²) as one product: both squares ride along as two more features.

    `elements` are those of x and y together, `left` those of x.
    """
    own = 2 * elements + left  # the squared norms, and −2·x
    terms = (("pairs", pairs), ("(K+2)", features + 2))
    work = product(terms, other_flops=own + pairs)  # a comparison with 0 for each pair
    return replace(work, transcendentals=pairs)


# ---------------------------------------------------------------- recurrent layers

BIAS_AND_SUM = 3  # additions per gate: input bias, hidden bias, input part + hidden part


def recurrent_layer(
    *, steps: int, gate_rows: int, size: int, hidden: int, cell: Each, additions: int = BIAS_AND_SUM
) -> Work:
    """Steps of all sequences and directions; `cell` is the cost of a hidden unit."""
    flops, transcendentals = cell
    return Work(
        macs=steps * gate_rows * (size + hidden),
        other_flops=steps * (additions * gate_rows + flops * hidden),
        transcendentals=steps * transcendentals * hidden,
        factor=2,
        terms=(("steps", steps), ("G·H", gate_rows), ("(I+H)", size + hidden)),
    )
