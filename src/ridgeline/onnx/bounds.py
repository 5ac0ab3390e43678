"""Operators whose results are as large as the data say: the largest they can be.

The elements that are not zero, the boxes that are kept: where nothing is asked for the most is
taken, and a note says so.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from ridgeline.errors import RidgelineError
from ridgeline.onnx.dtypes import INT64
from ridgeline.onnx.node import NodeCall, Tensor
from ridgeline.onnx.rules import Type

Most = Callable[[NodeCall, Tensor], int]
Kept = Callable[[NodeCall, Tensor, int], list[Type | None]]


def largest(call: NodeCall, asked: int | None) -> list[Type | None]:
    """The largest results of an operator whose results depend on data, or those asked for."""
    x = call.get(0)
    if call.op_type not in KEEP_SOME or x is None or not x.is_known:
        return []
    most, kept = KEEP_SOME[call.op_type]
    limit = most(call, x)
    if asked is not None and asked > limit:
        raise RidgelineError(
            f"{call.op_type} {call.name!r} keeps {limit} at most, not {asked}",
            hint=f"give a number up to {limit}, or none: then that is counted",
        )
    return kept(call, x, limit if asked is None else asked)


def _elements(_: NodeCall, x: Tensor) -> int:
    return x.numel


def _boxes(call: NodeCall, _: Tensor) -> int:
    """At most so many of each class, and no more than there are boxes."""
    boxes, scores, limit = call.given(0), call.given(1), call.get(2)
    each = boxes.shape[1]
    if limit is not None and limit.value is not None and limit.value.size:
        each = min(each, max(int(limit.value.ravel()[0]), 0))
    return prod(scores.shape[:2]) * each


def _along_axis(call: NodeCall, x: Tensor) -> int:
    """What there is along the axis; all elements where there is none."""
    return x.numel if call.attr("axis") is None else x.shape[call.whole("axis", 0)]


def _conditions(call: NodeCall, x: Tensor) -> int:
    """Compress keeps where its condition, which may be shorter, is true."""
    return min(_along_axis(call, x), call.given(1).numel)


def _places(_: NodeCall, x: Tensor, count: int) -> list[Type | None]:
    return [(INT64, (len(x.shape), count))]


def _triples(_: NodeCall, __: Tensor, count: int) -> list[Type | None]:
    return [(INT64, (count, 3))]


def _shortened(call: NodeCall, x: Tensor, count: int) -> list[Type | None]:
    if call.attr("axis") is None:
        return [(x.elem, (count,))]
    shape = list(x.shape)
    shape[call.whole("axis", 0)] = count
    return [(x.elem, tuple(shape))]


def _unique(call: NodeCall, x: Tensor, count: int) -> list[Type | None]:
    """The elements, the first place of each, where each element went, how often each is there."""
    whole = _along_axis(call, x)
    return [*_shortened(call, x, count), (INT64, (count,)), (INT64, (whole,)), (INT64, (count,))]


def _words(_: NodeCall, x: Tensor) -> int:
    """All of them; where none is left, an empty one is put there."""
    return max(x.numel, 1)


def _some_words(_: NodeCall, x: Tensor, count: int) -> list[Type | None]:
    return [(x.elem, (*x.shape[:-1], count))]


KEEP_SOME: dict[str, tuple[Most, Kept]] = {
    "NonZero": (_elements, _places),
    "NonMaxSuppression": (_boxes, _triples),
    "Compress": (_conditions, _shortened),
    "Unique": (_along_axis, _unique),
    "StringNormalizer": (_words, _some_words),
}
"""How much an operator keeps at most, and its results where it keeps so much."""
