"""Products: matrices, convolutions, attention, linear algebra."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod

from ridgeline.costs import products as costs
from ridgeline.costs.elementwise import DROPOUT
from ridgeline.costs.products import (
    conv_gradient,
    conv_terms,
    deform_conv,
    distance,
    einsum,
    euclidean_distance,
    factorise,
    grouped_terms,
    matmul_terms,
    product,
)
from ridgeline.costs.work import Phased, Terms, Work
from ridgeline.count.call import OpCall, TensorMeta, add_rows


def _product(call: OpCall, terms: Terms, *, bias: int = 0, other_flops: int = 0) -> Work:
    is_complex = call.out.dtype.is_complex
    return product(terms, bias=bias, other_flops=other_flops, is_complex=is_complex)


def _bias(call: OpCall) -> int:
    return call.out.numel if call.get("bias") is not None else 0


# ---------------------------------------------------------------- matrix products


def _matmul(call: OpCall, *, other_flops: int = 0) -> Work:
    a, b = call.inputs[:2]
    return _product(call, matmul_terms(a.shape, b.shape), other_flops=other_flops)


def _added(call: OpCall, terms: Terms) -> Work:
    """`beta * c + alpha * product`; beta = 0 leaves the added matrix unread."""
    n, beta, is_scaled = call.out.numel, call.get("beta"), call.get("alpha") != 1
    if beta == 0:
        work = _product(call, terms, other_flops=is_scaled * n)
        return replace(work, read_bytes=call.read_bytes - call.inputs[0].nbytes)
    return _product(call, terms, bias=n, other_flops=((beta != 1) + is_scaled) * n)


def _trilinear(call: OpCall) -> Work:
    """Σ a·b·c, from left to right; each operand lacks the dimensions that it is expanded by."""
    names = "abcdefghijkl"[: len(call.inputs[0].shape) + len(call.get("expand1"))]
    absent = [call.get(f"expand{number}") for number in (1, 2, 3)]
    operands = [_without(names, dims) for dims in absent]
    equation = f"{','.join(operands)}->{_without(names, call.get('sumdim'))}"
    shapes = [t.shape for t in call.inputs]
    return einsum(equation, shapes, is_float=True)


def _without(names: str, dims: Sequence[int]) -> str:
    return "".join(name for dim, name in enumerate(names) if dim not in dims)


def _euclidean(call: OpCall) -> Work:
    x, y = call.inputs[:2]
    return euclidean_distance(call.out.numel, x.shape[-1], x.numel + y.numel, x.numel)


add_rows("matmul", {
    "mm _int_mm bmm": _matmul,
    "_scaled_mm": lambda c: _matmul(c, other_flops=c.out.numel + _bias(c)),
    "addmm baddbmm addbmm": lambda c: _added(
        c, matmul_terms(c.inputs[1].shape, c.inputs[2].shape)
    ),
    "mv": lambda c: _product(c, tuple(zip("MK", c.inputs[0].shape, strict=True))),
    "addmv": lambda c: _added(c, tuple(zip("MK", c.inputs[1].shape, strict=True))),
    "addr": lambda c: _added(c, tuple(zip("MN", c.out.shape, strict=True))),
    "dot vdot": lambda c: _product(c, (("K", c.inputs[0].numel),)),
    "_trilinear": _trilinear,
    "_grouped_mm _scaled_grouped_mm transformers::grouped_mm_fallback": lambda c: _product(
        c, grouped_terms(c.inputs[0].shape, c.inputs[1].shape)
    ),
})  # fmt: skip

add_rows("distance", {
    "_cdist_forward _pdist_forward": lambda c: distance(
        c.out.numel, c.inputs[0].shape[-1], c.get("p", 2.0)
    ),
    # for each pair and feature: the difference, over the distance, times g, added
    "_cdist_backward _pdist_backward": lambda c: Work.per_element(
        c.inputs[0].numel * c.inputs[1].shape[-1], 4
    ),
    "_euclidean_dist": _euclidean,
})  # fmt: skip

# ---------------------------------------------------------------- convolutions


def _convolution(call: OpCall) -> Work:
    x, w = call.inputs[:2]
    transposed = bool(call.get("transposed"))
    terms = conv_terms(x.shape, w.shape, call.out.shape, transposed=transposed)
    return _product(call, terms, bias=_bias(call))


def _convolution_backward(call: OpCall) -> Phased:
    grad, x, w = call.inputs[:3]
    for_input, for_weight, for_bias = call.get("output_mask")
    transposed = bool(call.get("transposed"))
    terms = conv_terms(x.shape, w.shape, grad.shape, transposed=transposed)
    gradient = partial(conv_gradient, terms, grad, is_complex=grad.dtype.is_complex)
    bias_bytes = grad.bytes_of(grad.shape[1]) if for_bias else 0
    phases: Phased = {}
    if for_input:
        phases["input-grad"] = gradient(w, x)
    if for_weight:
        phases["weight-grad"] = gradient(x, w, bias_bytes=bias_bytes)
    elif for_bias:
        phases["weight-grad"] = Work.per_element(
            grad.numel, 1, read_bytes=grad.nbytes, written_bytes=bias_bytes
        )
    return phases


add_rows("conv", {
    "convolution _convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "torchvision::deform_conv2d": lambda c: deform_conv(
        c.inputs[0].shape, c.inputs[1].shape, c.out.shape,
        is_masked=bool(c.get("use_mask")), bias=c.out.numel,
    ),
})  # fmt: skip

# ---------------------------------------------------------------- attention


def _heads(call: OpCall, operands: Sequence[TensorMeta]) -> tuple[costs.Heads, int]:
    """The sizes of q, k and v, all (batch, heads, tokens, dim), and the pairs of one head."""
    q, k, v = (t.shape for t in operands)
    outer = prod(max(sizes) for sizes in zip(q[:-2], v[:-2], strict=False))
    sizes = costs.Heads(batch=outer, heads=1, queries=q[-2], keys=k[-2], dim=q[-1], value_dim=v[-1])
    return sizes, sizes.count_pairs(causal=call.get("is_causal"), convention=call.causal)


def _dropout(call: OpCall) -> int:
    return DROPOUT if call.get("dropout_p") else 0


def _attend(call: OpCall) -> Work:
    """A mask of numbers is added to every score; one of truth values only selects."""
    mask = call.get("attn_mask")
    added = isinstance(mask, TensorMeta) and mask.is_float
    sizes, pairs = _heads(call, call.inputs[:3])
    return costs.attend(sizes, pairs, more=added + _dropout(call))


def _attend_backward(call: OpCall) -> Work:
    sizes, pairs = _heads(call, call.inputs[1:4])
    needed = call.get("output_mask")
    return costs.attend_backward(sizes, pairs, needed, more=_dropout(call))


add_rows("attention", {
    "ridgeline::sdpa": _attend,
    "ridgeline::sdpa_backward": _attend_backward,
})  # fmt: skip

# ---------------------------------------------------------------- linear algebra

add_rows("linalg", {
    "linalg_cholesky_ex": lambda c: factorise(c.inputs[0].shape, 1, 3),
    "linalg_lu linalg_lu_factor_ex _linalg_det _linalg_slogdet cholesky_inverse":
        lambda c: factorise(c.inputs[0].shape, 2, 3),
    "linalg_inv_ex": lambda c: factorise(c.inputs[0].shape, 2, 1),
})  # fmt: skip
