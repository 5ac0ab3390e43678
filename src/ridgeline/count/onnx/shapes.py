"""Shapes that rules and formulas both work out."""

from __future__ import annotations

from ridgeline.count.onnx.node import NodeCall, Shape, Tensor


def broadcast(a: Shape, b: Shape) -> Shape:
    """By numpy's rules; of two sides that do not fit, the larger."""
    longest = max(len(a), len(b))
    pairs = zip((1,) * (longest - len(a)) + a, (1,) * (longest - len(b)) + b, strict=True)
    return tuple(max(x, y) if x and y else 0 for x, y in pairs)


def turned(call: NodeCall, place: int, side: str) -> Shape:
    """An operand by transA or transB; FusedMatMul's transBatchA swaps the batch and the rows."""
    shape = call.given(place).shape
    if call.attr(f"transBatch{side}", 0) and len(shape) > 2:
        shape = (*shape[1:-1], shape[0], shape[-1])
    if call.attr(f"trans{side}", 0) and len(shape) > 1:
        shape = (*shape[:-2], shape[-1], shape[-2])
    return shape


# ---------------------------------------------------------------- onnxruntime's attention


def head_count(call: NodeCall) -> int:
    return int(call.attr("num_heads", 1)) or 1


def qkv_widths(call: NodeCall, weight: Tensor) -> list[int]:
    """The widths of queries, keys and values in one projection: as named, or a third each."""
    return list(call.attr("qkv_hidden_sizes", []) or []) or [weight.shape[1] // 3] * 3


def packed_past(past: Tensor | None) -> int:
    """Tokens of a past of keys and values in one: (2, B, H, S, D)."""
    return past.shape[3] if past is not None and len(past.shape) > 3 else 0


def filled_cache(call: NodeCall) -> int | None:
    """GroupQueryAttention: how much of the cache is filled, new tokens included, if it is known."""
    total = call.get(6)
    if total is None or total.value is None or not total.value.size:
        return None
    return int(total.value.ravel()[0])


def grouped_dim(call: NodeCall) -> int:
    """GroupQueryAttention: the size of a head; queries, keys and values may be in one operand."""
    heads, kv_heads = int(call.attr("num_heads", 1)), int(call.attr("kv_num_heads", 1))
    return call.x.shape[-1] // (heads if call.has(1) else heads + 2 * kv_heads)
