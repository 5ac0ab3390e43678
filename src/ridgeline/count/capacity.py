"""The largest batch that fits into a memory."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

from ridgeline.errors import RidgelineError
from ridgeline.units import format_bytes

LARGEST_BATCH = 1 << 20
STEP = 8  # from one try to the next while all fit: the inputs of a try have to fit, too


def max_batch(peak_bytes: Callable[[int], float], limit_bytes: int, *, within: float = 0.0) -> int:
    """The largest batch with `peak_bytes(batch) <= limit_bytes`.

    Batches grow until one does not fit. The place between is looked for on the line through both
    peaks, since memory grows with the batch nearly in a straight line, and in the middle, in turn.
    A peak may be infinite: of a batch that was tried and did not fit, nothing more is known.

    `within` is how much smaller than the largest the answer may be, as a share of it, where each
    try takes seconds; 0 is exact.
    """
    low, low_bytes = 1, peak_bytes(1)
    if low_bytes > limit_bytes:
        raise RidgelineError(
            f"one sample needs {format_bytes(low_bytes)}, more than {format_bytes(limit_bytes)}",
            hint="try a smaller input, a lower precision, or an optimizer with less state",
        )
    high, high_bytes = STEP, peak_bytes(STEP)
    while high_bytes <= limit_bytes:
        if high >= LARGEST_BATCH:
            return high
        low, low_bytes = high, high_bytes
        high, high_bytes = STEP * high, peak_bytes(STEP * high)
    by_line = True
    while high - low > max(1, within * low):  # `low` fits and `high` does not
        guess = (low + high) // 2
        if by_line and isfinite(high_bytes):
            slope = (high_bytes - low_bytes) / (high - low)
            guess = min(max(low + int((limit_bytes - low_bytes) / slope), low + 1), high - 1)
        by_line = not by_line
        guess_bytes = peak_bytes(guess)
        if guess_bytes <= limit_bytes:
            low, low_bytes = guess, guess_bytes
        else:
            high, high_bytes = guess, guess_bytes
    return low
