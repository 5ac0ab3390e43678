"""The largest batch whose peak memory fits."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

from ridgeline.errors import RidgelineError
from ridgeline.units import format_bytes

LARGEST_BATCH = 1 << 20
Try = tuple[int, float]  # a batch, and its peak in bytes
MOST_GROWTH = 16  # from one try to the next: a line through two small batches says little


def max_batch(peak_bytes: Callable[[int], float], limit_bytes: int, *, within: float = 0.0) -> int:
    """The largest batch with `peak_bytes(batch) <= limit_bytes`.

    Peak memory grows with the batch, nearly in a straight line, so a line through two counts
    gives the place to look, and the count at that place and beside it decides. A peak may be
    infinite: of a batch that was tried and did not fit, nothing more is known.

    Trying takes seconds where counting takes none. `within` is how much smaller than the largest
    the answer may be, as a share of it: tries end when the next one could not tell more than that;
    0 is exact.
    """
    low, high = (1, peak_bytes(1)), (2, peak_bytes(2))
    if low[1] > limit_bytes:
        raise RidgelineError(
            f"one sample needs {format_bytes(low[1])}, more than {format_bytes(limit_bytes)}",
            hint="try a smaller input, a lower precision, or an optimizer with less state",
        )
    pushes = 0
    while high[1] <= limit_bytes and high[0] < LARGEST_BATCH:
        remaining = int((limit_bytes - high[1]) / max(_slope(low, high), 1))
        least = max(1, int(within * high[0])) << pushes if within else high[0]
        pushes += remaining < least  # the line said that this was all, and it was not
        guess = min(high[0] + max(remaining, least), MOST_GROWTH * high[0], LARGEST_BATCH)
        low, high = high, (guess, peak_bytes(guess))
    if high[1] <= limit_bytes:
        return high[0]
    while high[0] - low[0] > max(1, within * low[0]):  # `low` fits and `high` does not
        guess = _guess_between(limit_bytes, low, high)
        tried = (guess, peak_bytes(guess))
        if tried[1] > limit_bytes:
            high = tried
            continue
        low = tried
        if isfinite(high[1]) and guess + 1 < high[0]:
            neighbour = (guess + 1, peak_bytes(guess + 1))
            low, high = (neighbour, high) if neighbour[1] <= limit_bytes else (low, neighbour)
    return low[0]


def _slope(low: Try, high: Try) -> float:
    return (high[1] - low[1]) / (high[0] - low[0])


def _guess_between(limit: int, low: Try, high: Try) -> int:
    """Where the line between two counts meets the limit, strictly between them.

    Without a second count there is no line: then it is the middle.
    """
    if not isfinite(high[1]):
        return (low[0] + high[0]) // 2
    guess = low[0] + int((limit - low[1]) / max(_slope(low, high), 1e-9))
    return min(max(guess, low[0] + 1), high[0] - 1)
