"""Attention: ONNX's own operator, and onnxruntime's, with and without their projections.

Two products for each query head, Q·Kᵀ and P·V, however few the key heads; each score costs one
FLOP for the scale, one if numbers are added to it, and a softmax. Scores are not written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from ridgeline.count.onnx.formulas.registry import MS, Work, op
from ridgeline.count.onnx.node import MalformedError, NodeCall, Tensor
from ridgeline.count.onnx.shapes import (
    cached,
    grouped_dim,
    grouped_keys,
    head_count,
    head_widths,
    packed_past,
    qkv_widths,
)
from ridgeline.count.pairs import scored_pairs
from ridgeline.count.per_element import SOFTMAX

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

    def scores(self, call: NodeCall, *, causal: bool) -> int:
        """All scores that are needed."""
        pairs = scored_pairs(
            self.queries, self.keys, causal=causal, convention=call.causal, past=self.past
        )
        return self.batch * self.heads * pairs


def attend(call: NodeCall, sizes: Heads, *, causal: bool, added: int, capped: bool = False) -> Work:
    """The two products and the softmax."""
    scores = sizes.scores(call, causal=causal)
    dims = sizes.dim + sizes.value_dim
    outer = sizes.batch * sizes.heads
    flops = SOFTMAX + 1 + added + 2 * capped
    return Work(
        macs=scores * dims,
        other_flops=flops * scores,
        transcendentals=(1 + capped) * scores,
        factor=2,
        terms=(("B·H", outer), ("pairs", scores // max(outer, 1)), ("(Dqk+Dv)", dims)),
    )


def _adds(*masks: Tensor | None) -> int:
    """Masks of numbers are added to every score; those of truth values only select."""
    return sum(mask is not None and mask.is_float for mask in masks)


def _split(tensor: Tensor, heads: int) -> tuple[int, int, int, int]:
    """Batch, heads, tokens, dim of a packed (B, S, H·D) or an open (B, H, S, D) operand."""
    if len(tensor.shape) == 4:
        b, h, s, d = tensor.shape
        return b, h, s, d
    if len(tensor.shape) != 3 or not heads:
        raise MalformedError("attention's operands have three or four dimensions")
    b, s, width = tensor.shape
    return b, heads, s, width // heads


@op("Attention", kind="attention")
def attention(call: NodeCall) -> Work:
    """Q, K, V, mask, past key, past value."""
    q_heads = int(call.attr("q_num_heads", 0) or 0)
    kv_heads = int(call.attr("kv_num_heads", 0) or 0)
    batch, heads, queries, dim = _split(call.given(0), q_heads)
    _, _, keys, _ = _split(call.given(1), kv_heads)
    value_dim = _split(call.given(2), kv_heads)[3]
    past_key = call.get(4)
    past = past_key.shape[-2] if past_key is not None else 0
    sizes = Heads(batch=batch, heads=heads, queries=queries, keys=keys + past, dim=dim,
                  value_dim=value_dim, past=past)  # fmt: skip
    causal = bool(call.attr("is_causal", 0))
    capped = bool(call.attr("softcap", 0.0))
    return attend(call, sizes, causal=causal, added=_adds(call.get(3)), capped=capped)


@op("FlexAttention", kind="attention", domain="ai.onnx.preview")
def flex_attention(call: NodeCall) -> Work:
    """The graphs that change scores and probabilities are counted apart, as rows of their own."""
    batch, heads, queries, dim = call.given(0).shape
    keys, value_dim = call.given(1).shape[2], call.given(2).shape[3]
    sizes = Heads(batch=batch, heads=heads, queries=queries, keys=keys, dim=dim,
                  value_dim=value_dim)  # fmt: skip
    return attend(call, sizes, causal=False, added=0)


def _with_projection(
    call: NodeCall, *, mask: int, past: int, bias: int | None, quantised: bool = False
) -> Work:
    """input, weights (H, q+k+v), bias: projected, then attended to.

    `mask`, `past` and `bias` (of the scores) are places of operands.
    """
    x, w = call.given(0), call.given(1)
    tokens = prod(x.shape[:-1])
    batch, length = x.shape[0], x.shape[-2]
    heads = head_count(call)
    widths = qkv_widths(call, w)
    before, _ = cached(call, packed_past(call.get(past)), length)
    sizes = Heads(batch=batch, heads=heads, queries=length, keys=length + before,
                  dim=widths[0] // heads, value_dim=widths[2] // heads, past=before)  # fmt: skip
    causal = bool(call.attr("unidirectional", 0))
    added = _adds(call.get(mask), call.get(bias) if bias is not None else None)
    work = attend(call, sizes, causal=causal, added=added)
    projected = tokens * x.shape[-1] * w.shape[1]
    biased = (call.has(2) + quantised) * tokens * w.shape[1]
    rotary = ROTARY_FLOPS * tokens * (widths[0] + widths[1]) * bool(call.attr("do_rotary", 0))
    terms = (("tokens", tokens), ("Cin", x.shape[-1]), ("(q+k+v)", w.shape[1]))
    return replace(
        work,
        macs=work.macs + projected,
        other_flops=work.other_flops + biased + rotary,
        more=((2, terms),),
    )


@op("Attention DecoderMaskedSelfAttention", kind="attention", domain=MS)
def ms_attention(call: NodeCall) -> Work:
    return _with_projection(call, mask=3, past=4, bias=5)


@op("QAttention", kind="attention", domain=MS)
def quantised_attention(call: NodeCall) -> Work:
    """As Attention; the projection's result is scaled."""
    return _with_projection(call, mask=5, past=8, bias=None, quantised=True)


@op("PackedAttention", kind="attention", domain=MS)
def packed_attention(call: NodeCall) -> Work:
    """Tokens without padding; the longest sequence is taken for all."""
    x, w, offsets = call.given(0), call.given(1), call.given(3)
    batch, length = offsets.shape
    heads = head_count(call)
    widths = qkv_widths(call, w)
    sizes = Heads(batch=batch, heads=heads, queries=length, keys=length, dim=widths[0] // heads,
                  value_dim=widths[2] // heads)  # fmt: skip
    work = attend(call, sizes, causal=False, added=_adds(call.get(5)))
    tokens, width = x.shape
    bias = tokens * w.shape[1]
    terms = (("tokens", tokens), ("Cin", width), ("(q+k+v)", w.shape[1]))
    return replace(
        work,
        macs=work.macs + x.numel * w.shape[1],
        other_flops=work.other_flops + bias,
        more=((2, terms),),
    )


@op("MultiHeadAttention DecoderMaskedMultiHeadAttention", kind="attention", domain=MS)
def multi_head(call: NodeCall) -> Work:
    """query, key, value, then by name: bias, mask, attention bias, past key, past value."""
    masked = call.op_type.startswith("Decoder")
    mask, bias_place, past_place = (3, 4, 5) if masked else (4, 5, 6)
    q, k, v = call.given(0), call.get(1), call.get(2)
    heads = head_count(call)
    if len(q.shape) == 5:  # (B, S, H, 3, D): all three in one
        batch, queries, heads, _, dim = q.shape
        keys, value_dim = queries, dim
    else:
        batch, heads, queries, dim = _split(q, heads)
        value_dim = dim
        if len(q.shape) == 3:
            dim, value_dim = head_widths(call, heads)
        keys, value_dim = _keys(k, v, heads, queries, value_dim)
    past_key = call.get(past_place)
    place = past_key.shape[-2] if past_key is not None and len(past_key.shape) == 4 else 0
    past, _ = cached(call, place, keys)
    sizes = Heads(batch=batch, heads=heads, queries=queries, keys=keys + past, dim=dim,
                  value_dim=value_dim, past=past)  # fmt: skip
    causal = bool(call.attr("unidirectional", 0))
    added = _adds(call.get(mask), call.get(bias_place))
    work = attend(call, sizes, causal=causal, added=added)
    bias = call.get(10 if masked else 3)
    if bias is None:
        return work
    added_bias = batch * heads * (queries * dim + keys * (dim + value_dim))
    return replace(work, other_flops=work.other_flops + added_bias)


def _keys(
    k: Tensor | None, v: Tensor | None, heads: int, queries: int, value_dim: int
) -> tuple[int, int]:
    """How many keys, and the size of a value; `value_dim` where no operand tells."""
    if k is None:
        return queries, value_dim
    if len(k.shape) == 5:  # (B, L, H, 2, D): key and value in one
        return k.shape[1], k.shape[4]
    keys = _split(k, heads)[2]
    return keys, _split(v, heads)[3] if v is not None else value_dim


@op("PackedMultiHeadAttention", kind="attention", domain=MS)
def packed_multi_head(call: NodeCall) -> Work:
    q, offsets = call.given(0), call.given(4)
    batch, length = offsets.shape
    heads = head_count(call)
    dim = q.shape[-1] if len(q.shape) == 4 else q.shape[-1] // heads
    value = call.get(2)
    value_dim = value.shape[-1] // heads if value is not None else dim
    sizes = Heads(batch=batch, heads=heads, queries=length, keys=length, dim=dim,
                  value_dim=value_dim)  # fmt: skip
    work = attend(call, sizes, causal=False, added=_adds(call.get(6)))
    if not call.has(3):
        return work
    biased = q.shape[0] * heads * (2 * dim + value_dim)  # of the tokens, without padding
    return replace(work, other_flops=work.other_flops + biased)


@op("GroupQueryAttention SparseAttention", kind="attention", domain=MS)
def group_query(call: NodeCall) -> Work:
    """Causal, with fewer key heads than query heads; the cache is read as far as it is filled."""
    q = call.given(0)
    heads, kv_heads = int(call.attr("num_heads", 1)), int(call.attr("kv_num_heads", 1))
    if not heads or not kv_heads:
        raise MalformedError("there are no heads")
    batch, queries, _ = q.shape
    dim, (keys, _) = grouped_dim(call), grouped_keys(call)
    sizes = Heads(batch=batch, heads=heads, queries=queries, keys=keys, dim=dim, value_dim=dim,
                  past=max(keys - queries, 0))  # fmt: skip
    bias = call.get(10) if call.op_type == "GroupQueryAttention" else None
    capped = bool(call.attr("softcap", 0.0))
    causal = bool(call.attr("causal", 1))
    work = attend(call, sizes, causal=causal, added=_adds(bias), capped=capped)
    rotated = batch * queries * dim * (heads + kv_heads) * bool(call.attr("do_rotary", 0))
    return replace(work, other_flops=work.other_flops + ROTARY_FLOPS * rotated)


@op("LinearAttention", kind="attention")
@op("LinearAttention", kind="attention", domain=MS)
def linear_attention(call: NodeCall) -> Work:
    """A state of Dk·Dv for each key head: k⊗v added, Sᵀ·k subtracted (delta), read by each q."""
    q, k, v = call.given(0), call.given(1), call.given(2)
    heads, kv_heads = int(call.attr("q_num_heads", 1)), int(call.attr("kv_num_heads", 1))
    tokens = prod(q.shape[:2])
    dim, value_dim = k.shape[-1] // kv_heads, v.shape[-1] // kv_heads
    rule = str(call.attr("update_rule", "gated_delta"))
    delta, gated = "delta" in rule, "gated" in rule
    state = dim * value_dim
    per_token = (kv_heads * (1 + delta) + heads) * state
    other = kv_heads * (gated * state + delta * 2 * value_dim) + heads * value_dim
    return Work(
        macs=tokens * per_token,
        other_flops=tokens * other,
        transcendentals=tokens * kv_heads * gated,
        factor=2,
        terms=(("tokens", tokens), ("Dk·Dv", state), ("uses", per_token // max(state, 1))),
    )


@op("RotaryEmbedding", kind="pointwise")
@op("RotaryEmbedding MRotaryEmbedding", kind="pointwise", domain=MS)
def rotary(call: NodeCall) -> Work:
    """x·cos ± y·sin of the part that is turned; only the positions' rows are read."""
    x = call.x
    partial = int(call.attr("rotary_embedding_dim", 0) or 0)
    heads = int(call.attr("num_heads", 0) or 0)
    head = x.shape[-1] if len(x.shape) == 4 or not heads else x.shape[-1] // heads
    n = x.numel * partial // head if partial and head else x.numel
    return Work.per_element(n, ROTARY_FLOPS, read_bytes=x.nbytes + _turns_bytes(call))


def _turns_bytes(call: NodeCall) -> int:
    """Positions, and the rows of cosines and sines that they name; all where there are none."""
    at, tables = (1, (2, 3)) if call.domain else (3, (1, 2))
    positions, named = call.get(at), [t for place in tables if (t := call.get(place)) is not None]
    if positions is None:
        return sum(t.nbytes for t in named)
    rows = positions.numel if positions.numel > 1 else call.x.shape[-2]  # one: where they begin
    of_tables = sum(t.bytes_of(min(rows * t.shape[-1], t.numel)) for t in named)
    return positions.nbytes + of_tables
