"""Two groups of skewed samples: by how much their medians differ, and whether that is noise.

A group is one or several runs, each with its samples. What steps of one process have in common
(where its memory lies, how warm the device was) does not show inside of it. So a group of several
runs is resampled in two stages: runs first, then samples within each run that was drawn.

Two or three runs say little about how runs differ, and no test on them can reach 5 %. So their
interval is stretched by Student's t over the normal quantile. In trials with lognormal runs, equal
sides were then told apart in about 5 % of cases or fewer from three runs a side on; with two, in
12 %.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import erfc, exp, sqrt
from statistics import median
from typing import Any

import numpy as np

from ridgeline.measure.statistics import CONFIDENCE, LEAST_FOR_INTERVAL, RESAMPLES

Array = Any  # of numpy
Group = Sequence[Sequence[float]]  # samples of each run

LEAST_RUNS = 4  # on both sides, for a test on runs: three against three cannot reach 5 %
METHOD = "normal approximation"
# 0.975 quantiles of Student's t with 1, 2, … degrees of freedom, and of the normal distribution
T_QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
Z_QUANTILE = 1.960

FASTER, SLOWER, NO_DIFFERENCE = "faster", "slower", "no difference shown"
NOT_JUDGED = "not judged"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTest:
    """The test of Mann and Whitney: is a value of one group more often the larger one?"""

    u: float  # pairs in which the second group's value is larger; a tie counts half
    p: float  # two-sided
    method: str  # METHOD
    of: str  # "steps" or "medians of runs"
    counts: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One quantity on two sides. Times: lower is better."""

    before: float  # median of the runs' medians
    after: float
    interval: tuple[float, float] | None  # of the ratio, 95 %; None for too few samples
    test: RankTest
    runs: tuple[int, int]
    is_judged: bool = True  # False: the samples say more about the machine than about the runs

    @property
    def ratio(self) -> float:
        return self.after / self.before

    @property
    def share(self) -> float:
        """0.1 is ten per cent more on the second side."""
        return self.ratio - 1

    @property
    def is_shown(self) -> bool:
        """Whether interval and test both say that this is more than noise."""
        if not self.is_judged or self.interval is None or self.test.p >= 1 - CONFIDENCE:
            return False
        low, high = self.interval
        return low > 1 or high < 1

    @property
    def verdict(self) -> str:
        if not self.is_judged:
            return NOT_JUDGED
        if not self.is_shown:
            return NO_DIFFERENCE
        return SLOWER if self.ratio > 1 else FASTER


def compare_groups(
    before: Group, after: Group, *, of: str = "steps", seed: int = 0, is_judged: bool = True
) -> Change:
    """The ratio of two medians of positive samples, with its interval and a test."""
    logs = _interval(before, after, np.log, seed=seed)
    return Change(
        before=center(before),
        after=center(after),
        interval=(exp(logs[0]), exp(logs[1])) if logs else None,
        test=_test(before, after, of),
        runs=(len(before), len(after)),
        is_judged=is_judged,
    )


def difference_interval(
    before: Group, after: Group, *, seed: int = 0
) -> tuple[float, float] | None:
    """95 % interval of the difference of two medians; None for too few samples."""
    return _interval(before, after, np.asarray, seed=seed)


def center(group: Group) -> float:
    """The median of the runs' medians: one run that went astray does not move it far."""
    return float(median(median(run) for run in group))


# ---------------------------------------------------------------- the interval


def _interval(
    before: Group, after: Group, scale: Callable[[Any], Any], *, seed: int
) -> tuple[float, float] | None:
    """Of the difference between the two centers on a scale."""
    if not (_is_enough(before) and _is_enough(after)):
        return None
    rng = np.random.default_rng(seed)
    # always in the same order, so that swapped sides draw the same and mirror each other
    is_swapped = _as_lists(before) > _as_lists(after)
    first, second = (after, before) if is_swapped else (before, after)
    drawn = -scale(_draw_centers(first, rng)) + scale(_draw_centers(second, rng))
    drawn = -drawn if is_swapped else drawn
    tail = 100 * (1 - CONFIDENCE) / 2
    middle = scale(center(after)) - scale(center(before))
    ends = np.percentile(drawn, [tail, 100 - tail])
    low, high = middle + _stretch(len(before), len(after)) * (ends - middle)
    return float(low), float(high)


def _is_enough(group: Group) -> bool:
    return len(group) > 1 or len(group[0]) >= LEAST_FOR_INTERVAL


def _as_lists(group: Group) -> list[list[float]]:
    return [[float(sample) for sample in run] for run in group]


def _draw_centers(group: Group, rng: np.random.Generator) -> Array:
    """RESAMPLES centers of the group, each from runs and samples drawn again."""
    values = [np.sort(np.asarray(run, dtype=float)) for run in group]
    chosen = rng.integers(len(values), size=(RESAMPLES, len(values)))
    medians = np.empty(chosen.shape)
    for number, run in enumerate(values):
        here = chosen == number
        medians[here] = _draw_medians(run, rng, int(here.sum()))
    return np.median(medians, axis=1)


def _draw_medians(ordered: Array, rng: np.random.Generator, size: int) -> Array:
    """Medians of samples drawn with replacement from `ordered`, without drawing all of them.

    A drawn value is the one at place floor(n·u) for a uniform u, and order is kept. So the k-th
    smallest drawn value is at the place of the k-th smallest u, which has a beta distribution.
    """
    n = len(ordered)
    lower, upper = (n + 1) // 2, n // 2 + 1  # the same one where n is odd
    high = rng.beta(upper, n - upper + 1, size)
    # the k-th of the k + 1 smallest is the largest of k uniform numbers below the last
    low = high if lower == upper else high * rng.beta(lower, 1, size)
    places = [np.minimum((n * u).astype(int), n - 1) for u in (low, high)]
    return (ordered[places[0]] + ordered[places[1]]) / 2


def _stretch(*runs: int) -> float:
    """How much wider the interval is for coming from so few runs; 1 for a run on each side."""
    freedom = sum(count - 1 for count in runs)
    if not freedom or min(runs) >= LEAST_RUNS:
        return 1.0
    return T_QUANTILES[min(freedom, len(T_QUANTILES)) - 1] / Z_QUANTILE


# ---------------------------------------------------------------- the test


def _test(before: Group, after: Group, of: str) -> RankTest:
    """On the medians of runs where both sides have enough of them, else on all samples."""
    if min(len(before), len(after)) >= LEAST_RUNS:
        medians = [[median(run) for run in group] for group in (before, after)]
        return rank_test(medians[0], medians[1], of="medians of runs")
    return rank_test([s for run in before for s in run], [s for run in after for s in run], of=of)


def rank_test(before: Sequence[float], after: Sequence[float], *, of: str = "steps") -> RankTest:
    """Mann and Whitney's U of the second group; p by the normal approximation with ties."""
    n, m = len(before), len(after)
    _, rank, count = np.unique([*before, *after], return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[rank]  # from 1; equal values share their mean
    u = float(ranks[n:].sum()) - m * (m + 1) / 2
    ties = float((count**3 - count).sum()) / ((n + m) * max(1, n + m - 1))
    variance = n * m / 12 * (n + m + 1 - ties)  # 0 if all values are equal
    z = max(0.0, abs(u - n * m / 2) - 0.5) / sqrt(variance) if variance > 0 else 0.0
    return RankTest(u=u, p=erfc(z / sqrt(2)), method=METHOD, of=of, counts=(n, m))
