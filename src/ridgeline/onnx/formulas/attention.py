"""Attention: ONNX's own operator, and onnxruntime's, with and without their projections.

Two products for each query head, Q·Kᵀ and P·V, however few the key heads; each score costs one
FLOP for the scale, one if numbers are added to it, and a softmax. Scores are not written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

from ridgeline.count.pairs import scored_pairs
from ridgeline.count.per_element import SOFTMAX
from ridgeline.onnx.formulas.fits import check_inner, must, must_have, split_evenly
from ridgeline.onnx.formulas.registry import MS, Work, op
from ridgeline.onnx.node import MalformedError, NodeCall, Tensor
from ridgeline.onnx.shapes import (
    cached,
    grouped_keys,
    head_count,
    head_widths,
    packed_past,
    qkv_widths,
)

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
    lengths: tuple[int, ...] | None = None  # of the sequences, where they are known to differ

    def scored(self, call: NodeCall, *, causal: bool) -> tuple[tuple[str, int], tuple[str, int]]:
        """The scores that are needed, as a product: heads, and pairs of query and key in one."""
        if self.lengths is not None:
            return ("H", self.heads), ("pairs", sum(n * n for n in self.lengths))
        pairs = scored_pairs(
            self.queries, self.keys, causal=causal, convention=call.causal, past=self.past,
            window=self.window,
        )  # fmt: skip
        return ("B·H", self.batch * self.heads), ("pairs", pairs)


def attend(call: NodeCall, sizes: Heads, *, causal: bool, added: int, capped: bool = False) -> Work:
    """The two products and the softmax."""
    outer, pairs = sizes.scored(call, causal=causal)
    scores = outer[1] * pairs[1]
    dims = sizes.dim + sizes.value_dim
    flops = SOFTMAX + 1 + added + 2 * capped
    return Work(
        macs=scores * dims,
        other_flops=flops * scores,
        transcendentals=(1 + capped) * scores,
        factor=2,
        terms=(outer, pairs, ("(Dqk+Dv)", dims)),
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
    return b, heads, s, split_evenly(width, heads)


def _check_heads(
    q: tuple[int, int, int, int], k: tuple[int, int, int, int], v: tuple[int, int, int, int]
) -> None:
    """Batch, heads, tokens, dim of each; several heads of queries may share one of keys."""
    must(k[1] > 0 and q[1] % k[1] == 0, f"{q[1]} heads of queries, {k[1]} of keys")
    must(q[3] == k[3], f"a query has {q[3]} features, a key {k[3]}")
    must(q[0] == k[0] and k[:3] == v[:3], f"keys are {k}, values {v}, queries {q}")


@op("Attention", kind="attention")
def attention(call: NodeCall) -> Work:
    """Q, K, V, mask, past key, past value."""
    q_heads = int(call.attr("q_num_heads", 0) or 0)
    kv_heads = int(call.attr("kv_num_heads", 0) or 0)
    q, k, v = (
        _split(call.given(0), q_heads),
        _split(call.given(1), kv_heads),
        _split(call.given(2), kv_heads),
    )
    _check_heads(q, k, v)
    batch, heads, queries, dim = q
    keys, value_dim = k[2], v[3]
    past_key = call.get(4)
    past = past_key.shape[-2] if past_key is not None else 0
    before = call.whole("left_window_size", -1)  # beside the query's own place
    sizes = Heads(batch=batch, heads=heads, queries=queries, keys=keys + past, dim=dim,
                  value_dim=value_dim, past=past,
                  window=before + 1 if before >= 0 else None)  # fmt: skip
    causal = bool(call.attr("is_causal", 0)) or call.whole("right_window_size", -1) == 0
    capped = bool(call.attr("softcap", 0.0))
    return attend(call, sizes, causal=causal, added=_adds(call.get(3)), capped=capped)


@op("FlexAttention", kind="attention", domain="ai.onnx.preview")
def flex_attention(call: NodeCall) -> Work:
    """The graphs that change scores and probabilities are counted apart, as rows of their own."""
    q, k, v = (_split(call.given(place), 0) for place in range(3))
    _check_heads(q, k, v)
    batch, heads, queries, dim = q
    keys, value_dim = k[2], v[3]
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
    widths = _projected(call, x, w)
    before, _ = cached(call, packed_past(call.get(past)), length)
    sizes = Heads(batch=batch, heads=heads, queries=length, keys=length + before,
                  dim=split_evenly(widths[0], heads), value_dim=split_evenly(widths[2], heads),
                  past=before)  # fmt: skip
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


def _projected(call: NodeCall, x: Tensor, w: Tensor) -> list[int]:
    """The widths of queries, keys and values."""
    check_inner(x.shape[-1], w.shape[0])
    widths = qkv_widths(call, w)
    must(
        len(widths) == 3 and widths[0] == widths[1] and sum(widths) == w.shape[1],
        f"queries, keys and values of {widths} are not the weight's {w.shape[1]}",
    )
    must_have(call, 2, (w.shape[1],))
    return widths


@op("Attention DecoderMaskedSelfAttention", kind="attention", domain=MS)
def ms_attention(call: NodeCall) -> Work:
    return _with_projection(call, mask=3, past=4, bias=5)


@op("QAttention", kind="attention", domain=MS)
def quantised_attention(call: NodeCall) -> Work:
    """As Attention; the projection's result is scaled."""
    return _with_projection(call, mask=5, past=8, bias=None, quantised=True)


@op("PackedAttention", kind="attention", domain=MS)
def packed_attention(call: NodeCall) -> Work:
    """Tokens without padding; the longest sequence is taken for all if lengths are not known."""
    x, w, offsets = call.given(0), call.given(1), call.given(3)
    batch, length = offsets.shape
    heads = head_count(call)
    widths = _projected(call, x, w)
    sizes = Heads(batch=batch, heads=heads, queries=length, keys=length,
                  dim=split_evenly(widths[0], heads), value_dim=split_evenly(widths[2], heads),
                  lengths=_lengths(call.get(4)))  # fmt: skip
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


def _lengths(ends: Tensor | None) -> tuple[int, ...] | None:
    """Of sequences that follow each other, by where they end; the first number is 0."""
    if ends is None or ends.value is None:
        return None
    places = [int(one) for one in ends.value.ravel()]
    lengths = tuple(end - start for start, end in pairwise(places))
    must(min(lengths, default=0) >= 0, "a sequence ends before it begins")
    return lengths


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
        if k is not None and v is not None and len(k.shape) != 5:
            of_keys, of_values = _split(k, heads), _split(v, heads)
            _check_heads((batch, heads, queries, dim), of_keys, of_values)
            must(of_keys[1] == heads, f"{heads} heads of queries, {of_keys[1]} of keys")
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
    dim = q.shape[-1] if len(q.shape) == 4 else split_evenly(q.shape[-1], heads)
    value = call.get(2)
    value_dim = split_evenly(value.shape[-1], heads) if value is not None else dim
    must_have(call, 1, q.shape)
    sizes = Heads(batch=batch, heads=heads, queries=length, keys=length, dim=dim,
                  value_dim=value_dim, lengths=_lengths(call.get(5)))  # fmt: skip
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
    must(heads > 0 and kv_heads > 0, "there are no heads")
    batch, queries, width = q.shape
    must(heads % kv_heads == 0, f"{heads} heads of queries, {kv_heads} of keys")
    dim = split_evenly(width, heads if call.has(1) else heads + 2 * kv_heads)
    for tensor in (call.get(1), call.get(2)):
        fits = tensor is None or (tensor.shape[0], tensor.shape[-1]) == (batch, kv_heads * dim)
        must(fits, f"keys and values are not {batch} sequences in {kv_heads} heads of {dim}")
    keys, _ = grouped_keys(call)
    window = call.whole("local_window_size", -1)
    sizes = Heads(batch=batch, heads=heads, queries=queries, keys=keys, dim=dim, value_dim=dim,
                  past=max(keys - queries, 0), window=window if window > 0 else None)  # fmt: skip
    bias = call.get(10) if call.op_type == "GroupQueryAttention" else None
    capped = bool(call.attr("softcap", 0.0))
    causal = bool(call.attr("causal", 1))
    work = attend(call, sizes, causal=causal, added=_adds(bias), capped=capped)
    rotated = batch * queries * dim * (heads + kv_heads) * bool(call.attr("do_rotary", 0))
    return replace(
        work,
        other_flops=work.other_flops + ROTARY_FLOPS * rotated,
        read_bytes=_grouped_read_bytes(call, sizes),
    )


def _grouped_read_bytes(call: NodeCall, sizes: Heads) -> int | None:
    """Of the tables of cosines and sines only the rows of the new tokens; None without tables."""
    at = (7, 8) if call.op_type == "GroupQueryAttention" else (9, 10)
    tables = [t for place in at if (t := call.get(place)) is not None]
    if not tables:
        return None
    others = {t.ident: t for n, t in enumerate(call.operands) if t is not None and n not in at}
    read = sum(t.nbytes for t in others.values())
    if not call.attr("do_rotary", 0):
        return read
    # after a past of its own, each sequence is at another place
    rows = sizes.queries * (sizes.batch if sizes.past else 1)
    return read + _rows_bytes(tables, rows)


@op("LinearAttention", kind="attention")
@op("LinearAttention", kind="attention", domain=MS)
def linear_attention(call: NodeCall) -> Work:
    """A state of Dk·Dv for each key head: k⊗v added, Sᵀ·k subtracted (delta), read by each q."""
    q, k, v = call.given(0), call.given(1), call.given(2)
    heads, kv_heads = int(call.attr("q_num_heads", 1)), int(call.attr("kv_num_heads", 1))
    tokens = prod(q.shape[:2])
    dim, value_dim = split_evenly(k.shape[-1], kv_heads), split_evenly(v.shape[-1], kv_heads)
    must(q.shape[-1] == heads * dim, f"queries of {q.shape[-1]} are not {heads} heads of {dim}")
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
    return positions.nbytes + _rows_bytes(named, rows)


def _rows_bytes(tables: list[Tensor], rows: int) -> int:
    return sum(t.bytes_of(min(rows * t.shape[-1], t.numel)) for t in tables)
