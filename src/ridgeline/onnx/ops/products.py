"""Products of matrices and convolutions, and onnxruntime's fused and quantised forms of them."""

from __future__ import annotations

from math import prod

from ridgeline.costs import matmul
from ridgeline.costs.conv import conv_terms, deform_conv
from ridgeline.costs.linalg import factorise
from ridgeline.costs.matmul import REQUANTISE, check_inner, matmul_terms, product
from ridgeline.costs.pointwise import DYNAMIC_QUANTISE, FAST_GELU
from ridgeline.costs.work import Shape, Terms, Work, require
from ridgeline.onnx.node import NodeCall
from ridgeline.onnx.ops.elementwise import fused_activation
from ridgeline.onnx.ops.registry import MS, add_rows, check_shape

# ---------------------------------------------------------------- matrices


def _terms(call: NodeCall, second: int = 1) -> Terms:
    return matmul_terms(call.operand(0).shape, call.operand(second).shape)


def transposed_shape(call: NodeCall, place: int, side: str) -> Shape:
    """An operand by transA or transB; FusedMatMul's transBatchA swaps the batch and the rows."""
    shape = call.operand(place).shape
    if call.attr(f"transBatch{side}", 0) and len(shape) > 2:
        shape = (*shape[1:-1], shape[0], shape[-1])
    if call.attr(f"trans{side}", 0) and len(shape) > 1:
        shape = (*shape[:-2], shape[-1], shape[-2])
    return shape


def _dynamic_quantised(call: NodeCall) -> Work:
    """Its first operand is quantised first; then the product's scale, a bias."""
    own = DYNAMIC_QUANTISE * call.x.numel
    return product(_terms(call), other_flops=own + (REQUANTISE + call.has(4)) * call.out.numel)


def _fused_matmul(call: NodeCall) -> Work:
    terms = matmul_terms(transposed_shape(call, 0, "A"), transposed_shape(call, 1, "B"))
    return product(terms, other_flops=(call.attr("alpha", 1.0) != 1) * call.out.numel)


def _gemm_terms(call: NodeCall, second: int = 1) -> Terms:
    shapes = transposed_shape(call, 0, "A"), transposed_shape(call, second, "B")
    require(all(len(shape) == 2 for shape in shapes), "Gemm multiplies matrices")
    return matmul_terms(*shapes)


def _gemm(call: NodeCall) -> Work:
    """alpha·A·B + beta·C, and onnxruntime's form with an activation."""
    terms, n = _gemm_terms(call), call.out.numel
    beta = call.attr("beta", 1.0)
    is_biased = call.has(2) and beta != 0
    scaling = (call.attr("alpha", 1.0) != 1) + (is_biased and beta != 1)
    flops, one = fused_activation(call)
    return product(
        terms, bias=is_biased * n, other_flops=(scaling + flops) * n, transcendentals=one * n
    )


def _gemm_fast_gelu(call: NodeCall) -> Work:
    n, (flops, one) = call.out.numel, FAST_GELU
    return product(_terms(call), other_flops=(flops + call.has(2)) * n, transcendentals=one * n)


def packed_product(call: NodeCall) -> tuple[int, int]:
    """N and K of a product whose second operand is packed: N·K weights of so many bits."""
    n, k = call.int_attr("N", 0), call.int_attr("K", 0)
    bits, packed = call.int_attr("bits", 4), call.operand(1)
    require(k > 0 and n * k * bits <= 8 * packed.nbytes,
            f"{packed.nbytes} bytes do not hold {n}·{k} weights of {bits} bits")  # fmt: skip
    return n, k


def _matmul_n_bits(call: NodeCall) -> Work:
    """A packed weight of N·K numbers, a scale for each and a zero point where there is one."""
    x, (n, k) = call.x, packed_product(call)
    check_inner(x.shape[-1], k)
    return product(
        (("M", prod(x.shape[:-1])), ("N", n), ("K", k)),
        other_flops=(1 + call.has(3)) * n * k + call.has(5) * call.out.numel,
    )


def _experts(call: NodeCall) -> Work:
    """Two products (three if gated), an activation, a weighted sum.

    A gate may be one product with the first, which then is twice as wide as what is activated.
    """
    hidden = call.x.shape[-1]
    inner, back = (prod(call.operand(place).shape[1:]) // hidden for place in (2, 4))
    third = back if call.has(6) else 0
    flops, one = fused_activation(call, attribute="activation_type", default="relu")
    widths = zip((3, 5, 7), (inner, hidden, third), strict=True)
    biases = sum(width for place, width in widths if call.has(place))
    gated = third if call.attr("activation_type", "relu") != "swiglu" else 0
    return matmul.experts(
        tokens=call.x.numel // hidden,
        k=call.int_attr("k", 1),
        hidden=hidden,
        widths=(inner, back, third),
        flops=flops * back + gated + biases + 2 * hidden,
        transcendentals=one * back,
    )


def _einsum(call: NodeCall) -> Work:
    shapes = [t.shape for t in call.inputs]
    return matmul.einsum(call.attr("equation", ""), shapes, is_float=call.is_float)


add_rows("matmul", {
    # products of integers are MACs too; zero points are work on integers
    "MatMul MatMulInteger": lambda c: product(_terms(c)),
    "QLinearMatMul": lambda c: product(_terms(c, 3), other_flops=REQUANTISE * c.out.numel),
    "Gemm": _gemm,
    "Einsum": _einsum,
})  # fmt: skip
add_rows("matmul", {
    "FusedGemm": _gemm,
    "MatMulIntegerToFloat": lambda c: product(
        _terms(c), other_flops=(REQUANTISE + c.has(6)) * c.out.numel
    ),
    "DynamicQuantizeMatMul": _dynamic_quantised,
    "FusedMatMul TransposeMatMul": _fused_matmul,
    "GemmFastGelu": _gemm_fast_gelu,
    # a, scale, zero point, b, scale, zero point, C: the product's scale and the bias
    "QGemm": lambda c: product(
        _gemm_terms(c, 3), other_flops=(REQUANTISE + c.has(6)) * c.out.numel
    ),
    "MatMulNBits": _matmul_n_bits,
    "MoE": _experts,
}, domain=MS)  # fmt: skip
add_rows("linalg", {"Det": lambda c: factorise(c.x.shape or (1, 1), 2, 3)})

# ---------------------------------------------------------------- convolutions


def _conv_terms(call: NodeCall, *, weight: int = 1, bias: int | None = None) -> Terms:
    """Terms of a convolution whose channels and groups agree."""
    x, w, groups = call.x, call.operand(weight), call.int_attr("group", 1)
    require(len(x.shape) == len(w.shape), "the ranks of a convolution differ")
    terms = conv_terms(x.shape, w.shape, call.out.shape)
    channels, used = x.shape[1], w.shape[1] * groups
    require(channels == used, f"the operand has {channels} channels, the weight is for {used}")
    require(w.shape[0] % groups == 0, f"{w.shape[0]} channels are not {groups} groups")
    require(min(call.out.shape[2:], default=1) > 0, "its kernel does not fit on its operand")
    if bias is not None:
        check_shape(call, bias, (w.shape[0],))
    return terms


def _conv(call: NodeCall) -> Work:
    """A bias; onnxruntime's form may add another tensor and end in an activation."""
    flops, one = fused_activation(call)
    n, per_output = call.out.numel, call.has(2) + call.has(3) + flops
    terms = _conv_terms(call, bias=2)
    return product(terms, other_flops=per_output * n, transcendentals=one * n)


def _quantised_conv(call: NodeCall) -> Work:
    """x, w and y each with a scale and a zero point; the product's scale, a bias."""
    terms = _conv_terms(call, weight=3, bias=8)
    return product(terms, other_flops=(REQUANTISE + call.has(8)) * call.out.numel)


def _conv_transpose(call: NodeCall) -> Work:
    x, w = call.x.shape, call.operand(1).shape
    require(len(x) == len(w), "the ranks of a convolution differ")
    terms = conv_terms(x, w, call.out.shape, transposed=True)
    require(x[1] == w[0], f"{x[1]} channels, the weight is for {w[0]}")
    require(min(call.out.shape[2:], default=1) > 0, "its result has no elements")
    return product(terms, bias=call.has(2) * call.out.numel)


def _deform_conv(call: NodeCall) -> Work:
    _conv_terms(call, bias=3)
    return deform_conv(
        call.x.shape,
        call.operand(1).shape,
        call.out.shape,
        is_masked=call.has(4),
        bias=call.has(3) * call.out.numel,
    )


def _causal_conv(call: NodeCall) -> Work:
    """Depthwise, on the sequence and the state before it."""
    n, (flops, one) = call.out.numel, fused_activation(call, default="none")
    return product(
        (("out", n), ("K", prod(call.operand(1).shape[2:]))),
        other_flops=(call.has(2) + flops) * n,
        transcendentals=one * n,
    )


add_rows("conv", {
    "Conv": _conv,
    "ConvInteger": lambda c: product(_conv_terms(c)),
    "QLinearConv": _quantised_conv,
    "ConvTranspose": _conv_transpose,
    "DeformConv": _deform_conv,
    "CausalConvWithState": _causal_conv,
})  # fmt: skip
add_rows("conv", {"FusedConv": _conv}, domain=MS)
