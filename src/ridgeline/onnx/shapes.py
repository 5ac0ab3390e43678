"""Shapes that rules and formulas both work out."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, isfinite, prod
from typing import Any

import numpy as np

from ridgeline.onnx.declared import LARGEST
from ridgeline.onnx.node import MalformedError, NodeCall, Shape, Tensor


def broadcast(a: Shape, b: Shape) -> Shape:
    """By numpy's rules: two sides are equal, or one of them is 1."""
    longest = max(len(a), len(b))
    pairs = zip((1,) * (longest - len(a)) + a, (1,) * (longest - len(b)) + b, strict=True)
    found = []
    for x, y in pairs:
        if x != y and 1 not in (x, y):
            raise MalformedError(f"{a} and {b} do not broadcast")
        found.append(y if x == 1 else x)
    return tuple(found)


def range_length(start: Any, limit: Any, delta: Any) -> int:
    """How many numbers a Range has, of arrays of one element; as onnx divides, without overflow."""
    first, last, step = (array.ravel()[0] for array in (start, limit, delta))
    if not step:
        raise MalformedError("its step is 0")
    if start.dtype.kind in "iu":
        count = -((int(first) - int(last)) // int(step))
    else:
        with np.errstate(all="ignore"):
            span = float(last - first) / float(step)
        if not isfinite(span):
            raise MalformedError(f"from {first} to {last} by {step} has no end")
        count = ceil(span)
    if count > LARGEST:
        raise MalformedError(f"it would have more than {LARGEST} elements")
    return max(count, 0)


def turned(call: NodeCall, place: int, side: str) -> Shape:
    """An operand by transA or transB; FusedMatMul's transBatchA swaps the batch and the rows."""
    shape = call.given(place).shape
    if call.attr(f"transBatch{side}", 0) and len(shape) > 2:
        shape = (*shape[1:-1], shape[0], shape[-1])
    if call.attr(f"trans{side}", 0) and len(shape) > 1:
        shape = (*shape[:-2], shape[-1], shape[-2])
    return shape


def pooled(call: NodeCall, sizes: Shape) -> Shape:
    """How many places a pooling window has along each side, as onnxruntime has it.

    By `ceil_mode` the last window may reach beyond the padding, but does not begin in it.
    """
    axes = len(sizes)
    kernel = call.wholes("kernel_shape")
    strides = call.wholes("strides") or [1] * axes
    dilations = call.wholes("dilations") or [1] * axes
    auto = str(call.attr("auto_pad", "NOTSET"))
    pads = call.wholes("pads") if auto == "NOTSET" else []
    before, after = (pads[:axes], pads[axes:]) if pads else ([0] * axes, [0] * axes)
    places = []
    for axis, size in enumerate(sizes):
        stride, start = strides[axis], size + before[axis]
        if auto.startswith("SAME"):
            places.append(-(-size // stride))
            continue
        over = start + after[axis] - dilations[axis] * (kernel[axis] - 1) - 1
        is_up = bool(call.whole("ceil_mode", 0))
        steps = -(-over // stride) if is_up or over < 0 else over // stride  # -1/2 is 0 in C++
        places.append(steps if is_up and steps * stride >= start else steps + 1)
    return tuple(places)


# ---------------------------------------------------------------- onnxruntime's attention


def head_count(call: NodeCall) -> int:
    return int(call.attr("num_heads", 1)) or 1


def qkv_widths(call: NodeCall, weight: Tensor) -> list[int]:
    """The widths of queries, keys and values in one projection: as named, or a third each."""
    return call.wholes("qkv_hidden_sizes") or [weight.shape[1] // 3] * 3


def head_widths(call: NodeCall, heads: int) -> tuple[int, int]:
    """Of (B, S, width) queries: the sizes of a query and of a value in one head.

    DecoderMaskedMultiHeadAttention takes queries, keys and values in one where there is no key.
    """
    width = call.x.shape[-1]
    if call.op_type != "DecoderMaskedMultiHeadAttention" or call.has(1):
        return width // heads, width // heads
    past = call.get(5)
    dim = past.shape[-1] if past is not None else width // (3 * heads)
    return dim, width // heads - 2 * dim


def packed_past(past: Tensor | None) -> int:
    """Tokens of a past of keys and values in one: (2, B, H, S, D)."""
    return past.shape[3] if past is not None and len(past.shape) > 3 else 0


FILLED_IN = {  # the operand that says how much of a shared buffer is filled
    "Attention": 6, "DecoderMaskedSelfAttention": 6, "DecoderMaskedMultiHeadAttention": 7,
    "MultiHeadAttention": 8,
}  # fmt: skip


def cached(call: NodeCall, past: int, new: int) -> tuple[int, int]:
    """Tokens before the new ones, and how many the result has place for.

    A buffer that past and present share has place for more than is in it; how much that is may be
    an operand. Where it is not known, the buffer is taken to be full.
    """
    place = FILLED_IN.get(call.op_type)
    told = call.get(place) if place is not None else None
    if call.op_type == "MultiHeadAttention":
        is_shared = told is not None
    else:
        is_shared = bool(call.attr("past_present_share_buffer", 0))
    if not is_shared:
        return past, past + new
    filled = _number(told)
    return max(past - new, 0) if filled is None else filled, past


def _number(tensor: Tensor | None) -> int | None:
    """The first element, if it is known."""
    if tensor is None or tensor.value is None or not tensor.value.size:
        return None
    return int(tensor.value.ravel()[0])


def grouped_keys(call: NodeCall) -> tuple[int, int]:
    """GroupQueryAttention and SparseAttention: keys, new ones included; and place for how many."""
    past, new = call.get(3), call.x.shape[1]
    before = past.shape[-2] if past is not None else 0
    if call.op_type == "SparseAttention":  # the cache has place for the new ones
        filled = _number(call.get(7))
        return before if filled is None else filled, before
    filled = _number(call.get(6))
    if filled is None:
        return before + new, before + new
    return filled, max(before, filled)


def grouped_dim(call: NodeCall) -> int:
    """GroupQueryAttention: the size of a head; queries, keys and values may be in one operand."""
    heads, kv_heads = int(call.attr("num_heads", 1)), int(call.attr("kv_num_heads", 1))
    return call.x.shape[-1] // (heads if call.has(1) else heads + 2 * kv_heads)


# ---------------------------------------------------------------- packed weights


def packed_product(call: NodeCall) -> tuple[int, int]:
    """N and K of a product whose second operand is packed: as named, or by the other operands."""
    n = call.whole("N", 0) or call.out.shape[-1]
    k = call.whole("K", 0) or call.x.shape[-1]
    bits, packed = call.whole("bits", 4), call.given(1)
    if k <= 0 or n * k * bits > 8 * packed.nbytes:
        raise MalformedError(f"{packed.nbytes} bytes do not hold {n}·{k} weights of {bits} bits")
    return n, k


def packed_bits(call: NodeCall, place: int) -> int:
    """Bits of each of the weights in an operand: what the node says where these are bytes."""
    dtype = call.given(place).dtype
    if dtype.is_float or dtype.bits != 8:
        return dtype.bits
    bits = call.whole("bits", 4)
    if call.op_type == "QMoE":
        own = {2: "fc1", 5: "fc2", 8: "fc3"}[place]
        bits = call.whole(f"{own}_expert_weight_bits", call.whole("expert_weight_bits", 4))
    if not 1 <= bits <= 8:
        raise MalformedError(f"weights of {bits} bits")
    return bits


def packed_widths(call: NodeCall) -> list[int]:
    """The results of MatMulNBitsMlp and MatMulNBitsQkv: how wide each product is."""
    if call.op_type == "MatMulNBitsMlp":
        widths = [call.whole("N", 0)] * 2
    else:
        widths = [call.whole("Nq", 0), *[call.whole("Nkv", 0)] * 2]
    bits = call.whole("K", 0) * call.whole("bits", 4)
    for n, place in zip(widths, (3, 6, 9), strict=False):
        if n < 1 or bits < 1 or n * bits > 8 * call.given(place).nbytes:
            raise MalformedError(f"operand {place} does not hold {n} rows of {bits} bits")
    return widths


# ---------------------------------------------------------------- branches and states


def branches(call: NodeCall) -> tuple[int, int]:
    """How many branches there are and how wide each is: (…, C, H), or C·H in one with a number."""
    count, shape = call.whole("num_branches", 0), call.x.shape
    return (count, shape[-1] // count) if count else (shape[-2], shape[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaSizes:
    """The sizes of one GatedDeltaNet; the state is Dk·Dv for each head of the values."""

    tokens: int
    heads: int
    value_heads: int
    dim: int
    value_dim: int


def delta_sizes(call: NodeCall) -> DeltaSizes:
    """Of (…, H, D) queries, keys and values, or of all in one, which the state takes apart."""
    x, value = call.x, call.get(2)
    if value is not None:
        (heads, dim), (value_heads, value_dim) = x.shape[-2:], value.shape[-2:]
        tokens = prod(x.shape[:-2])
    else:
        _, value_heads, value_dim, dim = call.given(6).shape
        heads = (x.shape[-1] - value_heads * value_dim) // (2 * dim)
        tokens = prod(x.shape[:-1])
    return DeltaSizes(tokens=tokens, heads=heads, value_heads=value_heads, dim=dim,
                      value_dim=value_dim)  # fmt: skip
