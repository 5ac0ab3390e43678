"""Samples to a summary, and the advice they call for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, median, quantiles

from ridgeline.units import format_percent

RESAMPLES = 2000
CONFIDENCE = 0.95
WIDE = 0.10  # 10th to 90th percentile over the median: above it the samples are called unstable
DRIFT = 0.03  # later half over earlier half
LEAST_FOR_INTERVAL = 6
LEAST = 5  # fewer samples than this say little about stability
DISTURBED = 1.2  # mean over median: some samples took much longer than the others
FAR_APART = 1.5  # the longest over the shortest of few samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What many samples come to. `std` is the sample's, divided by n − 1: a single one has none."""

    count: int
    median: float
    mean: float
    std: float | None
    min: float
    max: float
    interval: tuple[float, float] | None  # of the median, 95 %, by bootstrap; None for a few


def summarise(samples: Sequence[float]) -> Summary:
    mean = fmean(samples)
    squares = sum((sample - mean) ** 2 for sample in samples)
    return Summary(
        count=len(samples),
        median=median(samples),
        mean=mean,
        std=sqrt(squares / (len(samples) - 1)) if len(samples) > 1 else None,
        min=min(samples),
        max=max(samples),
        interval=median_interval(samples),
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


def spread(samples: Sequence[float]) -> float:
    """Distance of the 10th and the 90th percentile, as a share of the median."""
    cuts = quantiles(samples, n=10, method="inclusive")
    return (cuts[-1] - cuts[0]) / median(samples)


def is_disturbed(*, median: float, mean: float) -> bool:
    """Whether some samples took much longer than the others; a layer's own time may be negative."""
    return 0 < DISTURBED * median < mean


def drift(samples: Sequence[float]) -> float:
    """By how much the median of the later half exceeds that of the earlier one, as a share."""
    half = len(samples) // 2
    return median(samples[half:]) / median(samples[:half]) - 1


def advice(samples: Sequence[float]) -> list[str]:
    """What is unstable about step times, by how much, and what to try."""
    if len(samples) < LEAST:
        return _advise_on_few(samples)
    messages = []
    if (wide := spread(samples)) > WIDE:
        messages.append(
            f"step times are unstable: the middle 80 % of them span {format_percent(wide)} of the "
            "median; close other programs, and see with `ridgeline run … --repeats 3` how far "
            "medians move"
        )
    if abs(moved := drift(samples)) > DRIFT:
        what = "slower" if moved > 0 else "faster"
        messages.append(
            f"steps became {format_percent(abs(moved))} {what} during the measurement; "
            "warm up longer with `ridgeline run … --warmup-iters`, and look at clocks and "
            "temperature"
        )
    return messages


def _advise_on_few(samples: Sequence[float]) -> list[str]:
    """Of so few steps only a gross difference can be told."""
    if len(samples) < 2 or max(samples) <= FAR_APART * min(samples):
        return []
    return [
        f"step times are unstable: the longest of {len(samples)} steps took "
        f"{max(samples) / min(samples):.1f} times the shortest; give --iters {LEAST} or more"
    ]
