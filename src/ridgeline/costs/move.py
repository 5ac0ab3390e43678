"""Operators that move data: gathers, scatters and embeddings."""

from __future__ import annotations

from collections.abc import Sequence

from ridgeline.costs.work import Operand, Work

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
        factor=flops,
        terms=(("indices", indices), ("dim", width)),
    )
