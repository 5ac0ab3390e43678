"""Samples to a summary."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median, stdev

from ridgeline.machine.sampling import spread
from ridgeline.records import StepTime

RESAMPLES = 2000
CONFIDENCE = 0.95
LEAST_FOR_INTERVAL = 6
DISTURBED = 1.2  # mean over median: some samples took much longer than the others


def summarise(samples: Sequence[float]) -> StepTime:
    """What many samples come to. `std` is divided by n − 1: a single sample has none."""
    return StepTime(
        count=len(samples),
        median=median(samples),
        mean=fmean(samples),
        std=stdev(samples) if len(samples) > 1 else None,
        min=min(samples),
        max=max(samples),
        interval=median_interval(samples),
        spread=spread(samples) if len(samples) > 1 else None,
        samples=tuple(samples),
    )


def median_interval(samples: Sequence[float], seed: int = 0) -> tuple[float, float] | None:
    """95 % interval of the median, by drawing the samples again.

    It is about other steps of the same run; other runs differ by more. With fewer than six samples
    even their whole range would hold less than 95 %.
    """
    if len(samples) < LEAST_FOR_INTERVAL:
        return None
    import numpy as np

    rng = np.random.default_rng(seed)
    values = np.asarray(samples, dtype=float)
    medians = [np.median(rng.choice(values, len(values))) for _ in range(RESAMPLES)]
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(medians, [tail, 100 - tail])
    return float(low), float(high)


def is_disturbed(*, median: float, mean: float) -> bool:
    """Whether some samples took much longer than the others; a layer's own time may be negative."""
    return 0 < DISTURBED * median < mean


def drift(samples: Sequence[float]) -> float:
    """By how much the median of the later half exceeds that of the earlier one, as a share."""
    half = len(samples) // 2
    return median(samples[half:]) / median(samples[:half]) - 1
