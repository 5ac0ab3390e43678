"""Reductions, scans, sorts, transforms, by the elements read; pooling, by windows; moves."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2, prod

from ridgeline.costs.work import Operand, Shape, Work, named_part


def reduction(x: Operand, out: Operand, flops: int, per_result: int = 0, each: int = 0) -> Work:
    """FLOPs for each element read; transcendentals for each result, and for each element read."""
    if not x.is_float and not out.is_float:
        return Work()
    transcendentals = per_result * out.numel + each * x.numel
    return Work.per_element(x.numel, flops, transcendentals=transcendentals)


def mean(x: Operand, results: int, *, is_float: bool = True) -> Work:
    """An addition an element, a division a result."""
    return Work(
        other_flops=(x.numel + results) * is_float,
        parts=((int(is_float), (("n", x.numel),)), (1, (("results", results),))),
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
    return Work(other_flops=count * is_float, parts=((is_float, (("n·log2", count),)),))


def _log2(size: int) -> int:
    return max(size - 1, 0).bit_length()


def fourier_transform(points: int, count: int, *, is_real: bool, windowed: int = 0) -> Work:
    """5·n·log2(n) for a complex transform of n points, half of that where one side is real."""
    exact = 5 * points * count * log2(points) if points > 1 else 0
    flops = round(exact / 2 if is_real else exact)
    name = "5·n·log2(points)/2" if is_real else "5·n·log2(points)"
    return Work(
        other_flops=flops + windowed,
        parts=((1, ((name, flops),)), *named_part("windowed", windowed)),
    )


# ---------------------------------------------------------------- pooling, interpolation, sampling


def pool_windows(
    n: int, window: int, *, each: int = 1, last: int = 0, is_float: bool = True
) -> Work:
    """FLOPs for each element of a window, padding included, and for each result."""
    return Work(
        other_flops=n * (each * window + last) * is_float,
        parts=(
            (each * is_float, (("n", n), ("window", window))),
            *(((last * is_float, (("n", n),)),) if last else ()),
        ),
    )


def adaptive_pool(x: Shape, out: Shape, dims: int, *, results: int = 0) -> Work:
    """Elements of all windows together; those of an uneven division differ in size and overlap."""
    outer = prod(out[:-dims])
    sizes = zip(x[-dims:], out[-dims:], strict=True)
    visits = outer * prod(_covered(size, windows) for size, windows in sizes)
    return Work(other_flops=visits + results, parts=((1, (("visits", visits),)),))


def _covered(size: int, windows: int) -> int:
    """Lengths added up: window i spans floor(i·size/windows) to ceil((i + 1)·size/windows)."""
    return sum(-(-(i + 1) * size // windows) - i * size // windows for i in range(windows))


def lp_pool(n: int, window: int, p: float) -> Work:
    """A power and an addition for each place; a root for each result."""
    powers = 0 if p in (1, 2) else n * window
    return Work(
        other_flops=2 * n * window,
        transcendentals=powers + (n if p != 1 else 0),
        parts=((2, (("n", n), ("window", window))),),
    )


def interpolate(n: int, taps: int, *, read_bytes: int | None = None) -> Work:
    """A weighted sum of t taps: t products and t − 1 sums; a single one is copied.

    Finding the weights, once for all channels, is left out.
    """
    return Work.per_element(n, 2 * taps - 1 if taps > 1 else 0, read_bytes=read_bytes)


def interpolate_backward(n: int, taps: int, *, gradients: int = 1) -> Work:
    """Every gradient is shared out over its taps: a product and an addition each."""
    return Work.per_element(n, 2 * gradients * taps if taps > 1 else 1)


def affine_grid(n: int, columns: int) -> Work:
    """A row of the matrix with (x, y, 1) or (x, y, z, 1) for each point of the grid."""
    return Work(macs=n * columns, parts=((2, (("n", n), ("K", columns))),))


def roi_align(n: int, sampling_ratio: int) -> Work:
    """Four taps for each sampling point; two points a side where the ratio is adaptive."""
    return Work.per_element(n, 8 * (sampling_ratio**2 if sampling_ratio > 0 else 4))


def suppress_boxes(boxes: int, *, times: int = 1) -> Work:
    """All pairs of boxes in the worst case; 12 FLOPs for one overlap."""
    pairs = times * (boxes * (boxes - 1) // 2)
    return Work(other_flops=12 * pairs, parts=((12, (("pairs", pairs),)),))


# ---------------------------------------------------------------- gathers, scatters, embeddings

FREE = Work(read_bytes=0, written_bytes=0)
"""Nothing moves: a view, a reference, a number that shapes give."""
BAG_SUM, BAG_MEAN, BAG_MAX = 0, 1, 2


def gather(table: Operand, indices: Sequence[Operand], results: int) -> Work:
    """Reads the rows or elements that are named, and the indices or the mask; not the table."""
    return Work(read_bytes=table.bytes_of(results) + sum(t.nbytes for t in indices))


def scatter(
    target: Operand, rest: Sequence[Operand], named: int, *, flops: int, out: Operand | None
) -> Work:
    """Out of place the whole target is copied; in place (no `out`) only what is named is touched.

    `flops` are those of each element that is added to, none where it is replaced.
    """
    touched = target.bytes_of(named)
    of_target = target.nbytes if out is not None else touched if flops else 0
    flops *= target.is_float
    return Work.per_element(
        named,
        flops,
        read_bytes=of_target + sum(t.nbytes for t in rest),
        written_bytes=out.nbytes if out is not None else touched,
    )


def embedding_bag(
    table: Operand, rest: Sequence[Operand], outputs: Sequence[Operand], *, mode: int, flops: int
) -> Work:
    """Reads every named row; one addition or comparison an element, two FLOPs if weighted.

    The mean divides each result once. Of the other outputs, only the places of the maxima are
    results; the rest is bookkeeping that devices fill in differently.
    """
    indices, width = rest[0].numel, table.shape[1]
    out = outputs[0]
    return Work(
        other_flops=flops * indices * width + (out.numel if mode == BAG_MEAN else 0),
        read_bytes=table.bytes_of(indices * width) + sum(t.nbytes for t in rest),
        written_bytes=out.nbytes + (outputs[-1].nbytes if mode == BAG_MAX else 0),
        parts=((flops, (("indices", indices), ("dim", width))),),
    )
