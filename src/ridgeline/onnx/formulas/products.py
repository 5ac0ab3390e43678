"""Matrix products: MatMul, Gemm, Einsum, and onnxruntime's fused and quantised forms."""

from __future__ import annotations

from math import prod

from ridgeline.onnx.einsum import contraction, points
from ridgeline.onnx.formulas.activations import fused_activation
from ridgeline.onnx.formulas.fits import check_broadcast, check_inner, must_spread
from ridgeline.onnx.formulas.pointwise import DYNAMIC_QUANTISE, gelu_cost
from ridgeline.onnx.formulas.registry import MS, Terms, Work, op
from ridgeline.onnx.node import MalformedError, NodeCall, Shape
from ridgeline.onnx.shapes import broadcast, packed_bits, packed_product, turned

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
    check_broadcast(left[:-2], right[:-2])
    if len(right) == 2:  # one matrix for all rows
        return (("M", prod(left[:-1])), ("N", n), ("K", k))
    return (("B", prod(broadcast(left[:-2], right[:-2]))), ("M", m), ("N", n), ("K", k))


@op("MatMul", kind="matmul")
def matmul(call: NodeCall) -> Work:
    return product(matmul_terms(call.given(0).shape, call.given(1).shape))


@op("MatMulInteger", kind="matmul")
@op("MatMulInteger16", kind="matmul", domain=MS)
def matmul_integer(call: NodeCall) -> Work:
    """Products of integers are MACs too; zero points are work on integers."""
    return matmul(call)


@op("QLinearMatMul", kind="matmul")
def qlinear_matmul(call: NodeCall) -> Work:
    terms = matmul_terms(call.given(0).shape, call.given(3).shape)
    return product(terms, other_flops=REQUANTISE * call.out.numel)


@op("MatMulIntegerToFloat DynamicQuantizeMatMul", kind="matmul", domain=MS)
def quantised_to_float(call: NodeCall) -> Work:
    """The product's scale, a bias; DynamicQuantizeMatMul quantises its first operand first."""
    terms = matmul_terms(call.given(0).shape, call.given(1).shape)
    dynamic = call.op_type == "DynamicQuantizeMatMul"
    bias = call.has(4 if dynamic else 6)
    own = DYNAMIC_QUANTISE * call.x.numel if dynamic else 0
    return product(terms, other_flops=own + (REQUANTISE + bias) * call.out.numel)


@op("FusedMatMul TransposeMatMul FusedMatMulActivation", kind="matmul", domain=MS)
def fused_matmul(call: NodeCall) -> Work:
    terms = matmul_terms(turned(call, 0, "A"), turned(call, 1, "B"))
    n = call.out.numel
    flops, transcendentals = fused_activation(call)
    scaled = call.attr("alpha", 1.0) != 1
    return product(terms, other_flops=(flops + scaled) * n, transcendentals=transcendentals * n)


@op("Gemm", kind="matmul")
@op("FusedGemm GemmFloat8", kind="matmul", domain=MS)
def gemm(call: NodeCall) -> Work:
    """alpha·A·B + beta·C, and onnxruntime's form with an activation."""
    a, b = call.given(0).shape, call.given(1).shape
    if len(a) != 2 or len(b) != 2:
        raise MalformedError("Gemm multiplies matrices")
    m, k = a[::-1] if call.attr("transA", 0) else a
    n, rows = b if call.attr("transB", 0) else b[::-1]
    check_inner(k, rows)
    is_float8 = call.op_type == "GemmFloat8"
    if not is_float8:
        must_spread(call, 2, (m, n))
    beta = call.attr("beta", 0.0 if is_float8 else 1.0)
    biased = call.has(2) and beta != 0
    scaling = (call.attr("alpha", 1.0) != 1) + (biased and beta != 1)
    if is_float8 and any(call.has(place) for place in (3, 4, 5)):
        scaling += REQUANTISE
    flops, transcendentals = fused_activation(call)
    return product(
        (("M", m), ("N", n), ("K", k)),
        bias=biased * m * n,
        other_flops=(scaling + flops) * m * n,
        transcendentals=transcendentals * m * n,
    )


@op("GemmFastGelu", kind="matmul", domain=MS)
def gemm_fast_gelu(call: NodeCall) -> Work:
    flops, one = gelu_cost(tanh=True)
    n = call.out.numel
    terms = matmul_terms(call.given(0).shape, call.given(1).shape)
    return product(terms, other_flops=(flops + call.has(2)) * n, transcendentals=one * n)


@op("QGemm", kind="matmul", domain=MS)
def qgemm(call: NodeCall) -> Work:
    """a, scale, zero point, b, scale, zero point, C: the product's scale and the bias."""
    a, b = call.given(0).shape, call.given(3).shape
    m, k = a[::-1] if call.attr("transA", 0) else a
    n, rows = b if call.attr("transB", 0) else b[::-1]
    check_inner(k, rows)
    other = (REQUANTISE + call.has(6)) * m * n
    return product((("M", m), ("N", n), ("K", k)), other_flops=other)


@op("MatMulNBits MatMulBnb4 MatMulFpQ4", kind="matmul", domain=MS)
def matmul_n_bits(call: NodeCall) -> Work:
    """A packed weight of N·K numbers, a scale for each and a zero point where there is one."""
    x, (n, k) = call.x, packed_product(call)
    check_inner(x.shape[-1], k if call.whole("transB", 1) else n)
    zero_point = call.op_type == "MatMulNBits" and call.has(3)
    if call.op_type == "MatMulFpQ4":  # in one operand with its scales, and by default offsets
        zero_point = call.whole("blk_quant_type", 1) == 1
    bias = call.op_type == "MatMulNBits" and call.has(5)
    return product(
        (("M", prod(x.shape[:-1])), ("N", n), ("K", k)),
        other_flops=(1 + zero_point) * n * k + bias * call.out.numel,
    )


@op("SparseToDenseMatMul", kind="matmul", domain=MS)
def sparse_matmul(call: NodeCall) -> Work:
    """Counted as if the matrix were dense."""
    return fused_matmul(call)


@op("Einsum", kind="matmul")
def einsum(call: NodeCall) -> Work:
    """Operands are contracted from left to right, as PyTorch does it."""
    macs, flops = contraction(call.attr("equation", ""), [t.shape for t in call.inputs])
    if not macs and (not flops or not call.is_float):
        return Work()
    factor = 2 if macs else 1
    first, *rest = macs or flops
    return Work(
        macs=points(macs),
        other_flops=points(flops),
        factor=factor,
        terms=first,
        more=tuple((factor, terms) for terms in rest),
    )


@op("Det", kind="linalg")
def determinant(call: NodeCall) -> Work:
    """An LU factorisation: 2/3·n³ for each matrix."""
    n = call.x.shape[-1] if call.x.shape else 1
    matrices = call.x.numel // max(n * n, 1)
    flops = matrices * (2 * n**3) // 3
    return Work(other_flops=flops, terms=(("matrices·2·n³/3", flops),))


@op("Inverse", kind="linalg", domain=MS)
def inverse(call: NodeCall) -> Work:
    n = call.x.shape[-1]
    matrices = call.x.numel // max(n * n, 1)
    flops = matrices * 2 * n**3
    return Work(other_flops=flops, factor=2, terms=(("matrices", matrices), ("n³", n**3)))


@op("CDist", kind="distance", domain=MS)
def distance(call: NodeCall) -> Work:
    """A difference, a square and an addition for each feature, a root for each pair."""
    pairs, features = call.out.numel, call.x.shape[-1]
    root = call.attr("metric", "sqeuclidean") == "euclidean"
    return Work(
        other_flops=3 * pairs * features,
        transcendentals=pairs * root,
        factor=3,
        terms=(("pairs", pairs), ("K", features)),
    )


@op("MoE QMoE", kind="matmul", domain=MS)
def mixture(call: NodeCall) -> Work:
    """k experts for each token: two products (three if gated), an activation, a weighted sum.

    A gate may be one product with the first, which then is twice as wide as what is activated.
    """
    packed = call.op_type == "QMoE"
    places, biases = ((2, 5, 8), (4, 7, 10)) if packed else ((2, 4, 6), (3, 5, 7))
    x, first, second = call.x, call.given(places[0]), call.given(places[1])
    tokens, k = x.numel // x.shape[-1], call.attr("k", 1)
    hidden = x.shape[-1]
    inner, back = prod(first.shape[1:]), prod(second.shape[1:])
    if packed:  # so many numbers in a byte
        inner = inner * first.dtype.bits // packed_bits(call, places[0])
        back = back * second.dtype.bits // packed_bits(call, places[1])
    inner, back = inner // hidden, back // hidden
    third = back if call.has(places[2]) else 0
    flops, one = fused_activation(call, attribute="activation_type", default="relu")
    added = sum(width for place, width in zip(biases, (inner, hidden, third), strict=True)
                if call.has(place))  # fmt: skip
    gated = third if call.attr("activation_type", "relu") != "swiglu" else 0
    unpacked = 0
    if packed:
        each = (inner, back, third)
        unpacked = sum((1 + call.has(11 + n)) * width for n, width in enumerate(each)) * hidden
    return Work(
        macs=tokens * k * hidden * (inner + back + third),
        other_flops=tokens * k * (flops * back + gated + added + 2 * hidden)
        + first.shape[0] * unpacked,
        transcendentals=tokens * k * one * back,
        factor=2,
        terms=(("tokens", tokens), ("k", k), ("H", hidden), ("inner", inner + back + third)),
    )
