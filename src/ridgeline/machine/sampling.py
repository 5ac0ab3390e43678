"""How a ceiling is sampled: many short samples, by turns, all of them kept.

A busy neighbour lasts longer than a sample. So probes take turns, round after round: what disturbs
one disturbs them all, and the best of each comes from a quiet moment. Clock and synchronisation are
arguments; tests need no device.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from statistics import fmean, median, quantiles, stdev
from time import perf_counter
from typing import TypeVar

from ridgeline.records import StepTime

Key = TypeVar("Key", bound=Hashable)

Clock = Callable[[Callable[[], object], int], float]
"""Runs a call so many times and answers the seconds that one took."""


def in_rounds(
    probes: Mapping[Key, Callable[[], float]],
    *,
    rounds: int,
    after_probe: Callable[[Key], None] = lambda key: None,
    after_round: Callable[[], None] = lambda: None,
) -> dict[Key, tuple[float, ...]]:
    """One sample of every probe, then the next round: `rounds` samples each, in their order."""
    samples: dict[Key, list[float]] = {key: [] for key in probes}
    for _ in range(rounds):
        for key, probe in probes.items():
            samples[key].append(probe())
            after_probe(key)
        after_round()
    return {key: tuple(taken) for key, taken in samples.items()}


def best_of_rounds(probes: Mapping[Key, Callable[[], float]], *, rounds: int) -> dict[Key, float]:
    """The highest rate that each probe has reached."""
    return {key: max(taken) for key, taken in in_rounds(probes, rounds=rounds).items()}


def time_calls(
    call: Callable[[], object], calls: int, *, sync: Callable[[], object] = lambda: None
) -> float:
    """Seconds of `calls` calls, from an idle device to an idle device."""
    sync()
    start_s = perf_counter()
    for _ in range(calls):
        call()
    sync()
    return perf_counter() - start_s


def rate_probe(
    call: Callable[[], object], work_per_call: float, *, sample_s: float = 0.01
) -> Callable[[], float]:
    """A probe for `in_rounds`: each call of it is one sample of the rate of `call`.

    A sample has as many calls as last about `sample_s`; finding out is also the warm-up.
    """
    calls = 1
    while (taken_s := time_calls(call, calls)) < sample_s:
        calls = max(2 * calls, int(calls * min(100.0, sample_s / max(taken_s, 1e-9))))
    return lambda: calls * work_per_call / time_calls(call, calls)


def host_clock(synchronize: Callable[[], object]) -> Clock:
    """Times with the host's monotonic clock, for what the host itself does."""
    return lambda call, times: time_calls(call, times, sync=synchronize) / times


def sample_seconds(
    call: Callable[[], object], clock: Clock, *, samples: int = 15, sample_s: float = 0.02
) -> list[float]:
    """Seconds of one call, sampled; each sample repeats the call for about `sample_s`."""
    first = clock(call, 1)  # compiles and warms up
    first = min(first, clock(call, 2))
    times = max(1, round(sample_s / max(first, 1e-7)))
    times = max(1, round(sample_s / max(clock(call, times), 1e-7)))
    return [clock(call, times) for _ in range(samples)]


def spread(samples: Sequence[float]) -> float:
    """Distance of the 10th and the 90th percentile, as a share of the median; 0 of a single one."""
    if len(samples) < 2 or not median(samples):
        return 0.0
    cuts = quantiles(samples, n=10, method="inclusive")
    return (cuts[-1] - cuts[0]) / median(samples)


# ---------------------------------------------------------------- summaries

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
