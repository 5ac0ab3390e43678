"""Matrix products, contractions, distances, recurrent layers, convolutions, attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from ridgeline.costs.elementwise import SOFTMAX
from ridgeline.costs.work import Each, MalformedError, Operand, Shape, Terms, Work, require

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
        parts=((2 * scale, terms),),
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
    return Work(
        macs=sum(map(count_points, macs)),
        other_flops=sum(map(count_points, flops)),
        parts=tuple((factor, terms) for terms in macs or flops),
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
    terms = (("B", batch), ("~n³", flops // max(batch, 1)))
    return Work(other_flops=flops, parts=((1, terms),))


def distance(pairs: int, features: int, p: float) -> Work:
    """|x − y|: a difference, a power and an addition for each feature, a root for each pair."""
    powers = 0 if p in (0, 1, 2, float("inf")) else pairs * features
    roots = 0 if p in (0, 1, float("inf")) else pairs
    return Work(
        other_flops=3 * pairs * features,
        transcendentals=powers + roots,
        parts=((3, (("pairs", pairs), ("K", features))),),
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
        parts=((2, (("steps", steps), ("G·H", gate_rows), ("(I+H)", size + hidden))),),
    )


# ---------------------------------------------------------------- convolutions
# Padding counts as data.

AXES = {1: ("L",), 2: ("H", "W"), 3: ("D", "H", "W")}


def conv_terms(x: Shape, w: Shape, out: Shape, *, transposed: bool = False) -> Terms:
    """The factors of a convolution's MACs; an operand without a batch has a batch of one.

    Each output (or, transposed, each input) position meets the whole kernel, padding included.
    """
    space = len(w) - 2
    require(space >= 0 and len(x) == len(out) and len(w) - len(x) in (0, 1),
            "the ranks of a convolution differ")  # fmt: skip
    names = AXES.get(space, tuple(f"X{i}" for i in range(space)))
    positions, label = (x, "in") if transposed else (out, "out")
    places = zip(names, positions[len(positions) - space :], strict=True)
    # The weight is (Cout, Cin/g, …) or, transposed, (Cin, Cout/g, …).
    outer, inner = ("Cin", "(Cout/g)") if transposed else ("Cout", "(Cin/g)")
    return (
        ("N", x[0] if len(x) == len(w) else 1),
        (outer, w[0]),
        *((f"{axis}{label}", size) for axis, size in places),
        (inner, w[1]),
        *((f"K{axis.lower()}", size) for axis, size in zip(names, w[2:], strict=True)),
    )


def deform_conv(x: Shape, w: Shape, out: Shape, *, is_masked: bool, bias: int) -> Work:
    """A convolution on bilinear samples: 7 FLOPs for each sampled value, one more with a mask."""
    samples = x[0] * x[1] * prod(out[2:]) * prod(w[2:])
    return product(conv_terms(x, w, out), other_flops=(7 + is_masked) * samples + bias)


def conv_gradient(
    terms: Terms,
    grad: Operand,
    saved: Operand,
    result: Operand,
    *,
    bias_bytes: int = 0,
    is_complex: bool = False,
) -> Work:
    """One gradient of a convolution: reads the output's gradient and the other operand.

    It repeats the forward's multiply-adds, whatever the groups; a bias's is a sum of the output's.
    """
    work = product(terms, bias=grad.numel * bool(bias_bytes), is_complex=is_complex)
    return replace(
        work,
        read_bytes=grad.nbytes + saved.nbytes,
        written_bytes=result.bytes_of(result.numel) + bias_bytes,
    )


# ---------------------------------------------------------------- attention
# One convention for every backend: forward is two products, Q·Kᵀ and P·V; backward is four
# (dV, dP, dQ, dK). A kernel that recomputes Q·Kᵀ in backward executes a fifth, which is not
# model work. With grouped heads the products run once for each query head. Each score costs
# one FLOP for the scale, one if a mask of numbers is added, two for dropout, and a softmax;
# the scores themselves are never written. The log-sum-exp of each query is written only where
# a backward needs it.

ROTARY_FLOPS = 3  # x·cos ± y·sin


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """The sizes of one attention."""

    batch: int
    heads: int  # of the queries
    queries: int
    keys: int  # with those of the past
    dim: int  # of a query and a key
    value_dim: int
    past: int = 0
    window: int | None = None  # how many keys a causal query sees at most

    def count_pairs(self, *, causal: bool, convention: str) -> int:
        """Query-key pairs of one head.

        Causal: query i sees the past and keys 0…i after it; the convention "full" counts all.
        With a window it sees the last of these alone, so many.
        """
        if not causal or convention == "full":
            return self.queries * self.keys
        most = self.keys if self.window is None else min(self.keys, self.window)
        rising = max(min(self.queries, most - self.past), 0)  # each sees one key more
        seen = rising * self.past + rising * (rising + 1) // 2
        return seen + (self.queries - rising) * most


def attend(sizes: Heads, pairs: int, *, more: int = 0, is_capped: bool = False) -> Work:
    """The two products and the softmax; so many FLOPs a score more."""
    dims = sizes.dim + sizes.value_dim
    scores = sizes.batch * sizes.heads * pairs
    return Work(
        macs=scores * dims,
        other_flops=(SOFTMAX + 1 + more + 2 * is_capped) * scores,
        transcendentals=(1 + is_capped) * scores,
        parts=((2, _terms(sizes, pairs, dims, "(Dqk+Dv)")),),
    )


def attend_backward(
    sizes: Heads, pairs: int, needed: tuple[bool, bool, bool, bool], *, more: int = 0
) -> Work:
    """Only what is needed of q, k, v and mask: dV = Pᵀ·dO; dP = dO·Vᵀ where others need it."""
    for_q, for_k, for_v, for_mask = needed
    through = for_q or for_k or for_mask
    dims = (for_v + through) * sizes.value_dim + (for_q + for_k) * sizes.dim
    scores = sizes.batch * sizes.heads * pairs
    return Work(
        macs=dims * scores,
        other_flops=((SOFTMAX + 1) * through + for_mask + more) * scores,
        parts=((2, _terms(sizes, pairs, dims, "(dims)")),),
    )


def _terms(sizes: Heads, pairs: int, dims: int, name: str) -> Terms:
    return (("B·H", sizes.batch * sizes.heads), ("pairs", pairs), (name, dims))


def linear_attention(
    *, tokens: int, heads: int, kv_heads: int, dim: int, value_dim: int, rule: str
) -> Work:
    """A state of Dk·Dv for each key head: k⊗v added, Sᵀ·k subtracted (delta), read by each q."""
    is_delta, is_gated = "delta" in rule, "gated" in rule
    state = dim * value_dim
    per_token = (kv_heads * (1 + is_delta) + heads) * state
    other = kv_heads * (is_gated * state + is_delta * 2 * value_dim) + heads * value_dim
    return Work(
        macs=tokens * per_token,
        other_flops=tokens * other,
        transcendentals=tokens * kv_heads * is_gated,
        parts=((2, (("tokens", tokens), ("Dk·Dv", state), ("uses", per_token // max(state, 1)))),),
    )
