"""Products: matrices, convolutions, attention, recurrent layers, linear algebra."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod

from ridgeline.costs import attention, linalg, recurrent
from ridgeline.costs.conv import conv_gradient, conv_terms, deform_conv
from ridgeline.costs.matmul import (
    distance,
    euclidean_distance,
    grouped_terms,
    matmul_terms,
    product,
    trilinear,
)
from ridgeline.costs.pointwise import DROPOUT
from ridgeline.costs.work import Phased, Terms, Work
from ridgeline.count.call import OpCall, TensorMeta
from ridgeline.count.formulas.registry import add_rows


def _product(call: OpCall, terms: Terms, *, bias: int = 0, other_flops: int = 0) -> Work:
    is_complex = call.out.dtype.is_complex
    return product(terms, bias=bias, other_flops=other_flops, is_complex=is_complex)


def _bias(call: OpCall) -> int:
    return call.out.numel if call.get("bias") is not None else 0


# ---------------------------------------------------------------- matrix products


def _matmul(call: OpCall, *, first: int = 0, other_flops: int = 0) -> Work:
    a, b = call.inputs[first : first + 2]
    return _product(call, matmul_terms(a.shape, b.shape), other_flops=other_flops)


def _packed_weight(call: OpCall, other_flops: int) -> Work:
    """The weight's own shape is that of its packing."""
    (m, k), n = call.inputs[0].shape, call.out.shape[-1]
    return _product(call, (("M", m), ("N", n), ("K", k)), other_flops=other_flops)


def _scale_and_zero(call: OpCall) -> int:
    """Of each weight."""
    return 2 * call.out.shape[-1] * call.inputs[0].shape[-1]


def _added(call: OpCall, terms: Terms) -> Work:
    """`beta * c + alpha * product`; beta = 0 leaves the added matrix unread."""
    n, beta, is_scaled = call.out.numel, call.get("beta"), call.get("alpha") != 1
    if beta == 0:
        work = _product(call, terms, other_flops=is_scaled * n)
        return replace(work, read_bytes=call.read_bytes - call.inputs[0].nbytes)
    return _product(call, terms, bias=n, other_flops=((beta != 1) + is_scaled) * n)


def _linear(call: OpCall) -> Work:
    out_features, in_features = call.inputs[1].shape
    rows = call.inputs[0].numel // in_features
    terms = (("rows", rows), ("Cout", out_features), ("Cin", in_features))
    return _product(call, terms, bias=call.out.numel if len(call.inputs) > 2 else 0)


def _quantized_linear(call: OpCall) -> Work:
    """The weight is packed out of sight: its size follows from the input's and output's."""
    k, n = call.inputs[0].shape[-1], call.out.shape[-1]
    terms = (("rows", call.inputs[0].numel // k), ("Cout", n), ("Cin", k))
    work = product(terms, other_flops=2 * call.out.numel)  # rescale and bias
    return replace(work, read_bytes=call.inputs[0].nbytes + n * k)


def _trilinear(call: OpCall) -> Work:
    shapes = [_expanded(t.shape, call.get(f"expand{i + 1}")) for i, t in enumerate(call.inputs)]
    absent, summed = set(call.get("expand3")), set(call.get("sumdim"))
    return trilinear(shapes, absent, summed, is_complex=call.out.dtype.is_complex)


def _expanded(shape: tuple[int, ...], dims: Sequence[int]) -> list[int]:
    """The shape with sides of 1 at these places."""
    sides = list(shape)
    for dim in dims:
        sides.insert(dim, 1)
    return sides


def _euclidean(call: OpCall) -> Work:
    x, y = call.inputs[:2]
    return euclidean_distance(call.out.numel, x.shape[-1], x.numel + y.numel, x.numel)


add_rows("matmul", {
    "mm _int_mm bmm": _matmul,
    "_scaled_mm": lambda c: _matmul(c, other_flops=c.out.numel + _bias(c)),
    "_weight_int8pack_mm": lambda c: _packed_weight(c, c.out.numel),
    "_weight_int4pack_mm _weight_int4pack_mm_for_cpu": lambda c: _packed_weight(
        c, _scale_and_zero(c)
    ),
    "addmm _addmm_activation baddbmm addbmm": lambda c: _added(
        c, matmul_terms(c.inputs[1].shape, c.inputs[2].shape)
    ),
    "mv": lambda c: _product(c, tuple(zip("MK", c.inputs[0].shape, strict=True))),
    "addmv": lambda c: _added(c, tuple(zip("MK", c.inputs[1].shape, strict=True))),
    "addr": lambda c: _added(c, tuple(zip("MN", c.out.shape, strict=True))),
    "dot vdot": lambda c: _product(c, (("K", c.inputs[0].numel),)),
    "linalg_vecdot": lambda c: _product(
        c, (("out", c.out.numel), ("K", c.inputs[0].shape[c.get("dim", -1)]))
    ),
    "matmul": lambda c: _product(c, (("out", c.out.numel), ("K", c.inputs[0].shape[-1]))),
    "linear": _linear,
    "_trilinear": _trilinear,
    "_grouped_mm _scaled_grouped_mm transformers::grouped_mm_fallback": lambda c: _product(
        c, grouped_terms(c.inputs[0].shape, c.inputs[1].shape)
    ),
    "quantized::linear quantized::linear_relu quantized::linear_dynamic"
    " quantized::linear_relu_dynamic quantized::linear_dynamic_fp16": _quantized_linear,
})  # fmt: skip

add_rows("distance", {
    "cdist _cdist_forward _pdist_forward": lambda c: distance(
        c.out.numel, c.inputs[0].shape[-1], c.get("p", 2.0)
    ),
    # for each pair and feature: the difference, over the distance, times g, added
    "_cdist_backward _pdist_backward": lambda c: Work.per_element(
        c.inputs[0].numel * c.inputs[1].shape[-1], 4
    ),
    "_euclidean_dist": _euclidean,
})  # fmt: skip

# ---------------------------------------------------------------- convolutions


def _convolution(call: OpCall, *, transposed: bool | None = None) -> Work:
    x, w = call.inputs[:2]
    if transposed is None:
        transposed = bool(call.get("transposed"))
    return _product(
        call, conv_terms(x.shape, w.shape, call.out.shape, transposed=transposed), bias=_bias(call)
    )


def _conv_tbc(call: OpCall) -> Work:
    """Time, batch, channels; the weight is (K, Cin, Cout)."""
    kernel, channels, _ = call.inputs[1].shape
    terms = (("out", call.out.numel), ("Cin", channels), ("K", kernel))
    return _product(call, terms, bias=call.out.numel)


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
    "convolution _convolution convolution_overrideable": _convolution,
    "mkldnn_convolution cudnn_convolution miopen_convolution slow_conv3d _slow_conv2d_forward"
    " conv_depthwise3d _conv_depthwise2d slow_conv_dilated2d slow_conv_dilated3d thnn_conv2d"
    " conv1d conv2d conv3d": partial(_convolution, transposed=False),
    "cudnn_convolution_transpose miopen_convolution_transpose slow_conv_transpose2d"
    " slow_conv_transpose3d": partial(_convolution, transposed=True),
    "conv_tbc": _conv_tbc,
    "convolution_backward convolution_backward_overrideable": _convolution_backward,
    "torchvision::deform_conv2d": lambda c: deform_conv(
        c.inputs[0].shape, c.inputs[1].shape, c.out.shape,
        is_masked=bool(c.get("use_mask")), bias=c.out.numel,
    ),
})  # fmt: skip

# ---------------------------------------------------------------- attention


def _heads(call: OpCall, first: int, *, is_packed: bool) -> tuple[attention.Heads, int]:
    """The sizes of q, k and v, and the pairs of one head.

    Packed operands are (batch, tokens, heads, dim), others (batch, heads, tokens, dim).
    """
    shapes = [t.shape for t in call.inputs[first : first + 3]]
    if is_packed:
        shapes = [(s[0], s[2], s[1], s[3]) if len(s) == 4 else s for s in shapes]
    q, k, v = shapes
    outer = prod(max(sizes) for sizes in zip(q[:-2], v[:-2], strict=False))
    sizes = attention.Heads(
        batch=outer, heads=1, queries=q[-2], keys=k[-2], dim=q[-1], value_dim=v[-1]
    )
    causal = bool(call.get("is_causal", call.get("custom_mask_type", 0)))
    return sizes, sizes.count_pairs(causal=causal, convention=call.causal)


def _dropout(call: OpCall) -> int:
    return DROPOUT if call.get("dropout_p") else 0


def _attend(call: OpCall, *, is_packed: bool = False) -> Work:
    """A mask of numbers is added to every score; one of truth values only selects."""
    mask = call.get("attn_mask", call.get("attn_bias", call.get("bias")))
    added = isinstance(mask, TensorMeta) and mask.is_float
    sizes, pairs = _heads(call, 0, is_packed=is_packed)
    return attention.attend(sizes, pairs, more=added + _dropout(call))


def _attend_backward(call: OpCall, *, is_packed: bool = False) -> Work:
    sizes, pairs = _heads(call, 1, is_packed=is_packed)
    return attention.attend_backward(sizes, pairs, more=_dropout(call))


def _attend_partly_backward(call: OpCall) -> Work:
    sizes, pairs = _heads(call, 1, is_packed=False)
    needed = call.get("output_mask")
    return attention.attend_partly_backward(sizes, pairs, needed, more=_dropout(call))


def _multi_head(call: OpCall) -> Work:
    (batch, queries, _), keys = call.inputs[0].shape, call.inputs[1].shape[1]
    return attention.multi_head(batch, queries, keys, call.get("embed_dim"), call.get("num_head"))


def _encoder_layer(call: OpCall) -> Work:
    x, embed = call.inputs[0], call.get("embed_dim")
    hidden = call.get("ffn_weight_1").shape[0]
    return attention.encoder_layer(
        x.numel // embed, x.shape[1], embed, hidden, call.get("num_heads")
    )


add_rows("attention", {
    "ridgeline::sdpa _scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention"
    " _scaled_dot_product_cudnn_attention _scaled_dot_product_flash_attention_for_cpu"
    " _scaled_dot_product_fused_attention_overrideable _scaled_dot_product_attention_math"
    " _scaled_dot_product_attention_math_for_mps scaled_dot_product_attention": _attend,
    "ridgeline::sdpa_backward": _attend_partly_backward,
    "_scaled_dot_product_flash_attention_backward _scaled_dot_product_cudnn_attention_backward"
    " _scaled_dot_product_efficient_attention_backward"
    " _scaled_dot_product_flash_attention_for_cpu_backward"
    " _scaled_dot_product_fused_attention_overrideable_backward": _attend_backward,
    "_flash_attention_forward _efficient_attention_forward": partial(_attend, is_packed=True),
    "_flash_attention_backward _efficient_attention_backward": partial(
        _attend_backward, is_packed=True
    ),
    "_native_multi_head_attention": _multi_head,
    "_transformer_encoder_layer_fwd": _encoder_layer,
})  # fmt: skip

# ---------------------------------------------------------------- recurrent layers


def _steps(call: OpCall) -> int:
    return call.inputs[0].numel // call.inputs[0].shape[-1]


def _mkldnn_layer(call: OpCall) -> Work:
    """One layer, one direction."""
    (_, size), (gate_rows, hidden) = call.inputs[1].shape, call.inputs[2].shape
    cell = recurrent.CELL[gate_rows // hidden]
    return recurrent.recurrent_layer(
        steps=_steps(call), gate_rows=gate_rows, size=size, hidden=hidden, cell=cell
    )


def _fused_rnn(call: OpCall) -> Work:
    parameters = call.get("weight", call.get("params"))
    matrices = [w.shape for w in parameters if len(w.shape) == 2]
    return recurrent.recurrent_weights(_steps(call), matrices)


def _cell(call: OpCall, *, gates: int) -> Work:
    is_biased = call.get("input_bias") is not None
    return recurrent.recurrent_cell(call.out.numel, gates, is_biased=is_biased)


add_rows("recurrent", {
    "mkldnn_rnn_layer": _mkldnn_layer,
    "_cudnn_rnn miopen_rnn _lstm_mps": _fused_rnn,
    "_thnn_fused_lstm_cell": partial(_cell, gates=4),
    "_thnn_fused_gru_cell": partial(_cell, gates=3),
})  # fmt: skip

# ---------------------------------------------------------------- linear algebra


def _solve_triangular(call: OpCall, *, systems: int = 1) -> Work:
    """Some of these operators take the right-hand side first."""
    named = (call.get(name) for name in ("A", "LU", "input2"))
    matrix = next((t for t in named if isinstance(t, TensorMeta)), call.inputs[0])
    return linalg.solve_triangular(matrix.shape[-1], call.out.numel, systems=systems)


add_rows("linalg", {
    "linalg_cholesky_ex": lambda c: linalg.factorise(c.inputs[0].shape, 1, 3),
    "linalg_lu linalg_lu_factor_ex _linalg_det _linalg_slogdet cholesky_inverse":
        lambda c: linalg.factorise(c.inputs[0].shape, 2, 3),
    "linalg_inv_ex": lambda c: linalg.factorise(c.inputs[0].shape, 2, 1),
    "_linalg_solve_ex": lambda c: linalg.solve(c.get("A").shape, c.get("B").numel),
    "linalg_solve_triangular triangular_solve": _solve_triangular,
    "linalg_lu_solve cholesky_solve _cholesky_solve_helper": partial(_solve_triangular, systems=2),
    "linalg_qr": lambda c: linalg.qr(c.inputs[0].shape, forms_q=c.get("mode") != "r"),
})  # fmt: skip
