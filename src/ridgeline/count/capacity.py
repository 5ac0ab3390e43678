"""The largest batch whose peak memory fits."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

from ridgeline.errors import RidgelineError
from ridgeline.units import format_bytes

LARGEST_BATCH = 1 << 20
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
    low, low_peak = 1, peak_bytes(1)
    if low_peak > limit_bytes:
        raise RidgelineError(
            f"one sample needs {format_bytes(low_peak)}, more than {format_bytes(limit_bytes)}",
            hint="try a smaller input, a lower precision, or an optimizer with less state",
        )
    high, high_peak, pushes = 2, peak_bytes(2), 0
    while high_peak <= limit_bytes and high < LARGEST_BATCH:
        slope = max((high_peak - low_peak) / (high - low), 1)
        remaining = int((limit_bytes - high_peak) / slope)
        least = max(1, int(within * high)) << pushes if within else high
        pushes += remaining < least  # the line said that this was all, and it was not
        guess = min(high + max(remaining, least), MOST_GROWTH * high, LARGEST_BATCH)
        low, low_peak = high, high_peak
        high, high_peak = guess, peak_bytes(guess)
    return _between(peak_bytes, limit_bytes, (low, low_peak), (high, high_peak), within)


def _between(
    peak_bytes: Callable[[int], float],
    limit: int,
    low: tuple[int, float],
    high: tuple[int, float],
    within: float,
) -> int:
    """Close in on the last batch that fits; `low` fits and `high` does not."""
    if high[1] <= limit:
        return high[0]
    while high[0] - low[0] > max(1, within * low[0]):
        guess = _interpolate(limit, low, high)
        peak = peak_bytes(guess)
        if peak <= limit:
            low = (guess, peak)
            neighbour = guess + 1
            if (
                isfinite(high[1])
                and neighbour < high[0]
                and (next_peak := peak_bytes(neighbour)) > limit
            ):
                high = (neighbour, next_peak)
        else:
            high = (guess, peak)
    return low[0]


def _interpolate(limit: int, low: tuple[int, float], high: tuple[int, float]) -> int:
    """Where the line between two counts meets the limit, strictly between them.

    Without a second count there is no line: then it is the middle.
    """
    if not isfinite(high[1]):
        return (low[0] + high[0]) // 2
    share = (limit - low[1]) / max(high[1] - low[1], 1)
    guess = low[0] + int(share * (high[0] - low[0]))
    return min(max(guess, low[0] + 1), high[0] - 1)
