"""Operators whose results are as large as the data say: the largest they can be.

The elements that are not zero, the boxes that are kept: where nothing is asked for the most is
taken, and a note says so.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from ridgeline.count.onnx.dtypes import INT64
from ridgeline.count.onnx.node import NodeCall, Tensor
from ridgeline.count.onnx.rules import Type

Bound = Callable[[NodeCall, Tensor, int | None], list[Type | None]]


def largest(call: NodeCall, asked: int | None) -> list[Type | None]:
    """The largest results of an operator whose results depend on data, or those asked for."""
    x, bound = call.get(0), KEEP_SOME.get(call.op_type)
    if bound is None or x is None or not x.is_known:
        return []
    return bound(call, x, asked)


def _non_zero(_: NodeCall, x: Tensor, asked: int | None) -> list[Type | None]:
    return [(INT64, (len(x.shape), x.numel if asked is None else asked))]


def _boxes(call: NodeCall, x: Tensor, asked: int | None) -> list[Type | None]:
    return [(INT64, (_kept_boxes(call) if asked is None else asked, 3))]


def _kept_boxes(call: NodeCall) -> int:
    """At most so many of each class, and no more than there are boxes."""
    boxes, scores, limit = call.given(0), call.given(1), call.get(2)
    each = boxes.shape[1]
    if limit is not None and limit.value is not None and limit.value.size:
        each = min(each, max(int(limit.value.ravel()[0]), 0))
    return prod(scores.shape[:2]) * each


def _compress(call: NodeCall, x: Tensor, asked: int | None) -> list[Type | None]:
    return [(x.elem, _kept(call, x, asked)[1])]


def _unique(call: NodeCall, x: Tensor, asked: int | None) -> list[Type | None]:
    """The elements, the first place of each, where each element went, how often each is there."""
    count, shape = _kept(call, x, asked)
    whole, _ = _kept(call, x, None)
    return [(x.elem, shape), (INT64, (count,)), (INT64, (whole,)), (INT64, (count,))]


def _kept(call: NodeCall, x: Tensor, asked: int | None) -> tuple[int, tuple[int, ...]]:
    """How many are kept along the axis (all elements where there is none), and the shape."""
    axis = call.attr("axis")
    if axis is None:
        count = x.numel if asked is None else asked
        return count, (count,)
    shape = list(x.shape)
    shape[int(axis)] = count = shape[int(axis)] if asked is None else asked
    return count, tuple(shape)


KEEP_SOME: dict[str, Bound] = {
    "NonZero": _non_zero,
    "NonMaxSuppression": _boxes,
    "Compress": _compress,
    "Unique": _unique,
}
