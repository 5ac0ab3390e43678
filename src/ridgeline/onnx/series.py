"""Numbers that change evenly from pass to pass: how they go on, and how to sum them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import comb, isqrt

DEGREE = 3  # the highest of a polynomial that is followed


def value_ahead(series: Sequence[int], ahead: int) -> int | None:
    """So many places after its end, if the series is a polynomial of a low degree; else None."""
    ends: list[int] = []
    rest = list(series)
    while any(rest):
        if len(ends) > DEGREE:
            return None
        ends.append(rest[-1])
        rest = [b - a for a, b in pairwise(rest)]
    return sum(comb(ahead + order - 1, order) * end for order, end in enumerate(ends))


def standing_for(count: int) -> list[tuple[int, int]]:
    """Few places that stand for the first `count` ones, an odd number, and each how often.

    They lie evenly about the middle, and their squares have the same sum as those of all. So a
    polynomial up to the third degree has the same sum over them as over all, without a remainder.
    """
    middle = count // 2
    times = {middle: count}
    left = count * (count**2 - 1) // 24  # of the squares, on one side of the middle
    step = middle
    while left:
        step = min(step, isqrt(left))
        number, left = divmod(left, step**2)
        times[middle] -= 2 * number
        times[middle - step] = times[middle + step] = number
    return sorted((place, number) for place, number in times.items() if number)
