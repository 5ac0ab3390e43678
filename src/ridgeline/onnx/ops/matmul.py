"""Matrix products: MatMul, Gemm, Einsum, experts, and onnxruntime's fused and quantised forms."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from ridgeline.onnx.node import MalformedError, NodeCall, Shape, broadcast
from ridgeline.onnx.ops.pointwise import DYNAMIC_QUANTISE, FAST_GELU, fused_activation
from ridgeline.onnx.ops.registry import MS, Terms, Work, op, require

REQUANTISE = 1  # the product's scale; zero points and bounds are work on integers


def product(terms: Terms, *, bias: int = 0, other_flops: int = 0, transcendentals: int = 0) -> Work:
    """Work of a product whose MACs are the terms multiplied, and so many FLOPs for its bias."""
    return Work(
        macs=prod(size for _, size in terms),
        other_flops=bias + other_flops,
        transcendentals=transcendentals,
        factor=2,
        terms=terms,
        rest="bias" if bias and not other_flops else "other",
    )


def matmul_terms(a: Shape, b: Shape) -> Terms:
    """Factors of a product by numpy's rules; the broadcast batch counts in full."""
    if not a or not b:
        raise MalformedError("a matrix product of a scalar")
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


def transposed_shape(call: NodeCall, place: int, side: str) -> Shape:
    """An operand by transA or transB; FusedMatMul's transBatchA swaps the batch and the rows."""
    shape = call.operand(place).shape
    if call.attr(f"transBatch{side}", 0) and len(shape) > 2:
        shape = (*shape[1:-1], shape[0], shape[-1])
    if call.attr(f"trans{side}", 0) and len(shape) > 1:
        shape = (*shape[:-2], shape[-1], shape[-2])
    return shape


@op("MatMul MatMulInteger", kind="matmul")
def matmul(call: NodeCall) -> Work:
    """Products of integers are MACs too; zero points are work on integers."""
    return product(matmul_terms(call.operand(0).shape, call.operand(1).shape))


@op("QLinearMatMul", kind="matmul")
def qlinear_matmul(call: NodeCall) -> Work:
    terms = matmul_terms(call.operand(0).shape, call.operand(3).shape)
    return product(terms, other_flops=REQUANTISE * call.out.numel)


@op("MatMulIntegerToFloat DynamicQuantizeMatMul", kind="matmul", domain=MS)
def quantised_to_float(call: NodeCall) -> Work:
    """The product's scale, a bias; DynamicQuantizeMatMul quantises its first operand first."""
    terms = matmul_terms(call.operand(0).shape, call.operand(1).shape)
    is_dynamic = call.op_type == "DynamicQuantizeMatMul"
    own = DYNAMIC_QUANTISE * call.x.numel if is_dynamic else 0
    bias = call.has(4 if is_dynamic else 6)
    return product(terms, other_flops=own + (REQUANTISE + bias) * call.out.numel)


@op("FusedMatMul TransposeMatMul", kind="matmul", domain=MS)
def fused_matmul(call: NodeCall) -> Work:
    terms = matmul_terms(transposed_shape(call, 0, "A"), transposed_shape(call, 1, "B"))
    return product(terms, other_flops=(call.attr("alpha", 1.0) != 1) * call.out.numel)


def _gemm_terms(call: NodeCall, second: int = 1) -> Terms:
    shapes = transposed_shape(call, 0, "A"), transposed_shape(call, second, "B")
    require(all(len(shape) == 2 for shape in shapes), "Gemm multiplies matrices")
    (m, k), (rows, n) = shapes
    check_inner(k, rows)
    return (("M", m), ("N", n), ("K", k))


@op("Gemm", kind="matmul")
@op("FusedGemm", kind="matmul", domain=MS)
def gemm(call: NodeCall) -> Work:
    """alpha·A·B + beta·C, and onnxruntime's form with an activation."""
    terms, n = _gemm_terms(call), call.out.numel
    beta = call.attr("beta", 1.0)
    is_biased = call.has(2) and beta != 0
    scaling = (call.attr("alpha", 1.0) != 1) + (is_biased and beta != 1)
    flops, one = fused_activation(call)
    return product(
        terms, bias=is_biased * n, other_flops=(scaling + flops) * n, transcendentals=one * n
    )


@op("GemmFastGelu", kind="matmul", domain=MS)
def gemm_fast_gelu(call: NodeCall) -> Work:
    n, (flops, one) = call.out.numel, FAST_GELU
    terms = matmul_terms(call.operand(0).shape, call.operand(1).shape)
    return product(terms, other_flops=(flops + call.has(2)) * n, transcendentals=one * n)


@op("QGemm", kind="matmul", domain=MS)
def qgemm(call: NodeCall) -> Work:
    """a, scale, zero point, b, scale, zero point, C: the product's scale and the bias."""
    return product(_gemm_terms(call, 3), other_flops=(REQUANTISE + call.has(6)) * call.out.numel)


def packed_product(call: NodeCall) -> tuple[int, int]:
    """N and K of a product whose second operand is packed: N·K weights of so many bits."""
    n, k = call.int_attr("N", 0), call.int_attr("K", 0)
    bits, packed = call.int_attr("bits", 4), call.operand(1)
    if k <= 0 or n * k * bits > 8 * packed.nbytes:
        raise MalformedError(f"{packed.nbytes} bytes do not hold {n}·{k} weights of {bits} bits")
    return n, k


@op("MatMulNBits", kind="matmul", domain=MS)
def matmul_n_bits(call: NodeCall) -> Work:
    """A packed weight of N·K numbers, a scale for each and a zero point where there is one."""
    x, (n, k) = call.x, packed_product(call)
    check_inner(x.shape[-1], k)
    return product(
        (("M", prod(x.shape[:-1])), ("N", n), ("K", k)),
        other_flops=(1 + call.has(3)) * n * k + call.has(5) * call.out.numel,
    )


@op("MoE", kind="matmul", domain=MS)
def experts(call: NodeCall) -> Work:
    """k experts for each token: two products (three if gated), an activation, a weighted sum.

    A gate may be one product with the first, which then is twice as wide as what is activated.
    """
    x, hidden, k = call.x, call.x.shape[-1], call.int_attr("k", 1)
    tokens = x.numel // hidden
    inner, back = (prod(call.operand(place).shape[1:]) // hidden for place in (2, 4))
    third = back if call.has(6) else 0
    flops, one = fused_activation(call, attribute="activation_type", default="relu")
    widths = zip((3, 5, 7), (inner, hidden, third), strict=True)
    biases = sum(width for place, width in widths if call.has(place))
    gated = third if call.attr("activation_type", "relu") != "swiglu" else 0
    return Work(
        macs=tokens * k * hidden * (inner + back + third),
        other_flops=tokens * k * (flops * back + gated + biases + 2 * hidden),
        transcendentals=tokens * k * one * back,
        factor=2,
        terms=(("tokens", tokens), ("k", k), ("H", hidden), ("inner", inner + back + third)),
    )


@op("Det", kind="linalg")
def determinant(call: NodeCall) -> Work:
    """An LU factorisation: 2/3·n³ for each matrix."""
    n = call.x.shape[-1] if call.x.shape else 1
    flops = call.x.numel // max(n * n, 1) * (2 * n**3) // 3
    return Work(other_flops=flops, terms=(("matrices·2·n³/3", flops),))


# ---------------------------------------------------------------- Einsum

Labels = list[str]


class Contraction(NamedTuple):
    """One step: the result so far, with the next operand. Sizes are in elements."""

    terms: Terms  # one factor for each label of both
    is_summed: bool  # multiply-adds; else products of elements
    left: int
    right: int
    out: int


@op("Einsum", kind="matmul")
def einsum(call: NodeCall) -> Work:
    """Operands are contracted from left to right, as PyTorch does it.

    Labels that one operand alone has and nobody needs are summed first. A step over common
    labels that are summed is a matrix product; one without is an element-wise product.
    """
    steps, sums = contract(call.attr("equation", ""), [t.shape for t in call.inputs])
    macs = [step.terms for step in steps if step.is_summed]
    flops = [*(step.terms for step in steps if not step.is_summed), *sums]
    if not macs and (not flops or not call.is_float):
        return Work()
    factor = 2 if macs else 1
    first, *rest = macs or flops
    return Work(
        macs=sum(map(_points, macs)),
        other_flops=sum(map(_points, flops)),
        factor=factor,
        terms=first,
        more=tuple((factor, terms) for terms in rest),
    )


def _points(terms: Terms) -> int:
    return prod(size for _, size in terms)


def contract(equation: str, shapes: Sequence[Shape]) -> tuple[list[Contraction], list[Terms]]:
    """One step for each operand after the first; and the sums of one operand alone."""
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

    steps: list[Contraction] = []
    sums: list[Terms] = []
    left, *others = [list(dict.fromkeys(labels)) for labels in operands]
    for place, right in enumerate(others):
        later = set(result).union(*others[place + 1 :])
        left = sum_alone(left, later | set(right))
        right = sum_alone(right, later | set(left))
        union = list(dict.fromkeys([*left, *right]))
        rest = [label for label in union if label in later]
        numbers = [_points(factors(labels)) for labels in (left, right, rest)]
        steps.append(Contraction(factors(union), len(rest) < len(union), *numbers))
        left = rest
    sum_alone(left, set(result))
    return steps, sums


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
    if len(parts) != len(shapes):
        raise MalformedError("as many operands as the equation has")
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
    if covered < 0 or (covered and not dots):
        raise MalformedError("the equation does not fit the operands")
    return [*before, *(f".{n}" for n in range(covered, 0, -1)), *after]
