"""Reductions, scans, sorts and transforms: cost by the elements read."""

from __future__ import annotations

from math import log2

from ridgeline.costs.work import Operand, Work


def reduction(x: Operand, out: Operand, flops: int, per_result: int = 0, each: int = 0) -> Work:
    """FLOPs for each element read; transcendentals for each result, and for each element read."""
    if not x.is_float and not out.is_float:
        return Work(terms=(("n", x.numel),), factor=0)
    transcendentals = per_result * out.numel + each * x.numel
    return Work.per_element(x.numel, flops, transcendentals=transcendentals)


def mean(x: Operand, results: int, *, is_float: bool = True) -> Work:
    """An addition an element, a division a result."""
    return Work(
        other_flops=(x.numel + results) * is_float,
        factor=int(is_float),
        terms=(("n", x.numel),),
        more=((1, (("results", results),)),),
    )


def vector_norm(n: int, results: int, order: float) -> Work:
    """A power and an addition (or their like) per element, a root per result."""
    if order in (0, 1, float("inf"), float("-inf")):
        return Work.per_element(n, 2)
    return Work.per_element(n, 2, transcendentals=(0 if order == 2 else n) + results)


def sort(x: Operand, length: int) -> Work:
    """n·log2(length) comparisons."""
    return _comparisons(x.numel * _log2(length), is_float=x.is_float)


def topk(x: Operand, k: int) -> Work:
    """Each element is compared with a heap of k."""
    return _comparisons(x.numel * max(_log2(k), 1), is_float=x.is_float)


def search_sorted(results: int, length: int, *, is_float: bool) -> Work:
    """A bisection of the sorted values for each result."""
    return _comparisons(results * _log2(length + 1), is_float=is_float)


def _comparisons(count: int, *, is_float: bool) -> Work:
    return Work(other_flops=count * is_float, factor=is_float, terms=(("n·log2", count),))


def _log2(size: int) -> int:
    return max(size - 1, 0).bit_length()


def fourier_transform(points: int, count: int, *, is_real: bool, windowed: int = 0) -> Work:
    """5·n·log2(n) for a complex transform of n points, half of that where one side is real."""
    exact = 5 * points * count * log2(points) if points > 1 else 0
    flops = round(exact / 2 if is_real else exact)
    return Work(
        other_flops=flops + windowed,
        terms=(("5·n·log2(points)/2" if is_real else "5·n·log2(points)", flops),),
        more=((1, (("windowed", windowed),)),) if windowed else (),
    )
