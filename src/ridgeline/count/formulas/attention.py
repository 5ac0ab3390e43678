"""Scaled dot-product attention in all its forms.

One convention for every backend: forward is two products, Q·Kᵀ and P·V; backward is four
(dV, dP, dQ, dK). A kernel that recomputes Q·Kᵀ in backward executes a fifth, which is not
model work. With grouped heads the products run once for each query head. Each score costs
one FLOP for the scale, one if a mask of numbers is added, two for dropout, and a softmax;
the scores themselves are never written. The log-sum-exp of each query is written only where
a backward needs it.
"""

from __future__ import annotations

from math import prod

from ridgeline.count.call import OpCall, TensorMeta
from ridgeline.count.formulas.registry import Terms, Work, aten, aten_names, register
from ridgeline.count.pairs import scored_pairs

SOFTMAX_FLOPS = 4
FORWARD = aten_names(
    "_scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention _scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_fused_attention_overrideable _scaled_dot_product_attention_math",
    "_scaled_dot_product_attention_math_for_mps scaled_dot_product_attention",
)
BACKWARD = aten_names(
    "_scaled_dot_product_flash_attention_backward _scaled_dot_product_efficient_attention_backward",
    "_scaled_dot_product_cudnn_attention_backward",
    "_scaled_dot_product_flash_attention_for_cpu_backward",
    "_scaled_dot_product_fused_attention_overrideable_backward",
)


def attention(
    call: OpCall, q: TensorMeta, k: TensorMeta, v: TensorMeta, *, causal: bool
) -> tuple[int, int, Terms]:
    """MACs of the two forward products, number of scores, and the terms of the formula."""
    batch = prod(max(sizes) for sizes in zip(q.shape[:-2], v.shape[:-2], strict=False))
    scored = scored_pairs(q.shape[-2], k.shape[-2], causal=causal, convention=call.causal)
    dims = q.shape[-1] + v.shape[-1]
    return (
        batch * scored * dims,
        batch * scored,
        (("B·H", batch), ("pairs", scored), ("(Dqk+Dv)", dims)),
    )


def _forward(call: OpCall, q: TensorMeta, k: TensorMeta, v: TensorMeta, *, causal: bool) -> Work:
    macs, scores, terms = attention(call, q, k, v, causal=causal)
    return Work(
        macs=macs,
        other_flops=(SOFTMAX_FLOPS + 1 + _added_mask(call) + _dropout(call)) * scores,
        transcendentals=scores,
        factor=2,
        terms=terms,
    )


def _added_mask(call: OpCall) -> int:
    """A mask of numbers is added to every score; one of truth values only selects."""
    mask = call.get("attn_mask", call.get("attn_bias", call.get("bias")))
    return int(isinstance(mask, TensorMeta) and mask.is_float)


def _dropout(call: OpCall) -> int:
    """As dropout elsewhere: a comparison and a product."""
    return 2 if call.get("dropout_p") else 0


@register(["ridgeline::sdpa", *FORWARD], kind="attention")
def sdpa(call: OpCall) -> Work:
    q, k, v = call.inputs[:3]
    return _forward(call, q, k, v, causal=bool(call.get("is_causal")))


@register(["ridgeline::sdpa_backward"], kind="attention")
def our_backward(call: OpCall) -> Work:
    """Only what is wanted: dV = Pᵀ·dO, and dP = dO·Vᵀ where any of dQ, dK, dMask follows."""
    q, k, v = call.inputs[1:4]
    for_q, for_k, for_v, for_mask = call.get("output_mask")
    _, scores, terms = attention(call, q, k, v, causal=bool(call.get("is_causal")))
    through = for_q or for_k or for_mask
    dims = (for_v + through) * v.shape[-1] + (for_q + for_k) * q.shape[-1]
    per_score = (SOFTMAX_FLOPS + 1) * through + for_mask + _dropout(call)
    return Work(
        macs=dims * scores,
        other_flops=per_score * scores,
        factor=2,
        terms=(*terms[:2], ("(dims)", dims)),
    )


@register(BACKWARD, kind="attention")
def sdpa_backward(call: OpCall) -> Work:
    """dV = Pᵀ·dO, dP = dO·Vᵀ, dQ = dS·K, dK = dSᵀ·Q: twice the forward's products."""
    q, k, v = call.inputs[1:4]
    return _backward(call, q, k, v, causal=bool(call.get("is_causal")))


def _backward(call: OpCall, q: TensorMeta, k: TensorMeta, v: TensorMeta, *, causal: bool) -> Work:
    macs, scores, terms = attention(call, q, k, v, causal=causal)
    return Work(
        macs=2 * macs,
        other_flops=(SOFTMAX_FLOPS + 1 + _dropout(call)) * scores,
        factor=4,
        terms=terms,
    )


def _packed(tensor: TensorMeta) -> TensorMeta:
    """(batch, tokens, heads, dim) as (batch, heads, tokens, dim)."""
    b, s, h, d = tensor.shape
    return tensor._replace(shape=(b, h, s, d))


@aten("_flash_attention_forward _efficient_attention_forward", kind="attention")
def packed_attention(call: OpCall) -> Work:
    q, k, v = (_packed(t) if len(t.shape) == 4 else t for t in call.inputs[:3])
    causal = bool(call.get("is_causal", call.get("custom_mask_type", 0)))
    return _forward(call, q, k, v, causal=causal)


@aten("_flash_attention_backward _efficient_attention_backward", kind="attention")
def packed_attention_backward(call: OpCall) -> Work:
    q, k, v = (_packed(t) if len(t.shape) == 4 else t for t in call.inputs[1:4])
    causal = bool(call.get("is_causal", call.get("custom_mask_type", 0)))
    return _backward(call, q, k, v, causal=causal)


@aten("_native_multi_head_attention", kind="attention")
def native_multi_head(call: OpCall) -> Work:
    """The fused inference path: input projection, attention, output projection."""
    q, k = call.inputs[:2]
    embed = call.get("embed_dim")
    batch, queries, keys = q.shape[0], q.shape[1], k.shape[1]
    project = batch * embed * embed * (2 * queries + 2 * keys)
    scores = batch * call.get("num_head") * queries * keys
    products = 2 * batch * queries * keys * embed
    bias = batch * embed * (2 * queries + 2 * keys)
    return Work(
        macs=project + products,
        other_flops=(SOFTMAX_FLOPS + 1) * scores + bias,
        transcendentals=scores,
        factor=2,
        terms=(
            ("N", batch),
            ("E", embed),
            ("(4·S·E+2·S²)", (project + products) // (batch * embed)),
        ),
    )


@aten("_transformer_encoder_layer_fwd", kind="attention")
def encoder_layer(call: OpCall) -> Work:
    """The fused inference path of a whole encoder layer."""
    x, embed = call.inputs[0], call.get("embed_dim")
    hidden = call.get("ffn_weight_1").shape[0]
    tokens, length = x.numel // embed, x.shape[1]
    macs = tokens * (4 * embed * embed + 2 * length * embed + 2 * embed * hidden)
    scores = tokens * length * call.get("num_heads")
    other = tokens * (4 * embed + hidden + embed) + 8 * 2 * x.numel + 2 * x.numel + tokens * hidden
    return Work(
        macs=macs,
        other_flops=other + (SOFTMAX_FLOPS + 1) * scores,
        transcendentals=scores,
        factor=2,
        terms=(("tokens", tokens), ("(4·E²+2·S·E+2·E·F)", macs // max(tokens, 1))),
    )
