"""Medians, intervals and ranks of two groups: by hand, by brute force, and how often they err."""

from __future__ import annotations

from itertools import combinations
from statistics import median

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.report.compared import near

from ridgeline.report import compare_runs
from ridgeline.report.compare_runs import (
    FASTER,
    NO_DIFFERENCE,
    SLOWER,
    Group,
    RankTest,
    center,
    compare_groups,
    difference_interval,
    rank_test,
)

times = st.floats(min_value=1e-6, max_value=1e3)
groups = st.lists(st.lists(times, min_size=1, max_size=12), min_size=1, max_size=5)


# ---------------------------------------------------------------- the test


def test_all_of_one_group_above_the_other() -> None:
    # all 4 · 4 pairs have the larger value after; variance 16/12 · 9 = 12, z = (8 − 0.5)/√12
    assert rank_test([1, 2, 3, 4], [5, 6, 7, 8]) == RankTest(
        u=16.0, p=near(0.03038, abs=1e-5), method="normal approximation", of="steps", counts=(4, 4)
    )
    assert rank_test([1, 2, 3], [4, 5, 6]).p > 0.05  # three runs a side cannot reach 5 %


def test_the_race_of_the_tortoises_and_the_hares() -> None:
    # the usual example: T H H H H H T T T T T H; U is 11 for one and 25 for the other kind
    tortoises, hares = [1, 7, 8, 9, 10, 11], [2, 3, 4, 5, 6, 12]

    found = rank_test(tortoises, hares)

    assert found.u == 5 + 6 * 1  # the hares 2 to 6 are above one tortoise each, the last above all
    assert found.p == near(two_sided_by_dealing(tortoises, hares), abs=0.02)
    assert rank_test(hares, tortoises).u == 36 - found.u


def two_sided_by_dealing(before: list[int], after: list[int]) -> float:
    """The share of all ways to deal the values whose U is as far from its middle."""

    def off(right: set[int]) -> float:
        left = values - right
        pairs = sum(high > low for high in right for low in left)
        return abs(pairs - len(left) * len(right) / 2)

    values = {*before, *after}
    offs = [off(set(dealt)) for dealt in combinations(sorted(values), len(after))]
    return sum(one >= off(set(after)) for one in offs) / len(offs)


@pytest.mark.parametrize("after", [[8, 9, 10], [1, 2, 3, 5], [6, 7, 8, 9, 10]])
def test_the_approximation_is_near_the_exact_test(after: list[int]) -> None:
    before = sorted(set(range(1, 11)) - set(after))

    assert rank_test(before, after).p == near(two_sided_by_dealing(before, after), abs=0.02)


def test_ties_by_hand() -> None:
    # ranks of 1 2 2 2 3 4 are 1 3 3 3 5 6; after has 3 + 5 + 6 = 14, so U = 14 − 6 = 8
    # variance 9/12 · (7 − (3³ − 3)/(6·5)) = 4.65; z = (|8 − 4.5| − 0.5)/√4.65 = 1.3912
    found = rank_test([1, 2, 2], [2, 3, 4])

    assert (found.u, found.method) == (8.0, "normal approximation")
    assert found.p == near(0.16416, abs=1e-5)


def test_equal_values_show_nothing() -> None:
    assert rank_test([1.0] * 50, [1.0] * 50).p == 1.0


# ---------------------------------------------------------------- the interval


def test_steady_samples_have_a_narrow_interval() -> None:
    found = compare_groups([[1.0] * 10], [[2.0] * 10])

    assert (found.ratio, found.interval) == (2.0, near((2.0, 2.0)))
    assert (found.share, found.verdict, found.runs) == (1.0, SLOWER, (1, 1))
    assert compare_groups([[2.0] * 10], [[1.0] * 10]).verdict == FASTER


def test_a_side_is_the_median_of_its_runs_medians() -> None:
    assert center([[1.0, 2.0, 9.0], [4.0], [100.0, 100.0]]) == 4.0


def test_too_few_samples_have_no_interval_and_show_nothing() -> None:
    found = compare_groups([[1.0] * 5], [[9.0] * 50])

    assert (found.interval, found.verdict) == (None, NO_DIFFERENCE)
    assert compare_groups([[1.0]] * 2, [[9.0]] * 2).interval == near((9.0, 9.0))


def test_medians_of_three_drawn_from_three() -> None:
    # the median is the least value if 2 or 3 of 3 draws are: (3·2 + 1)/27
    drawn = compare_runs._draw_medians(np.array([1.0, 2.0, 3.0]), np.random.default_rng(0), 27_000)

    counts = [int((drawn == value).sum()) for value in (1.0, 2.0, 3.0)]
    assert counts == near([7000, 13000, 7000], abs=350)  # four standard deviations


@pytest.mark.parametrize("n", [2, 6, 7, 40, 41])
def test_draw_medians_are_those_of_plain_resampling(n: int) -> None:
    rng = np.random.default_rng(n)
    samples = np.sort(rng.lognormal(0, 1, n))

    quick = compare_runs._draw_medians(samples, rng, 20_000)

    plain = np.median(rng.choice(samples, (20_000, n)), axis=1)
    assert quick.mean() == near(plain.mean(), rel=0.03)
    assert quick.std() == near(plain.std(), rel=0.05)


def test_differences_between_runs_widen_the_interval() -> None:
    rng = np.random.default_rng(0)
    steps = rng.lognormal(0, 0.01, (5, 50))
    shifts = np.array([0.9, 0.95, 1.0, 1.05, 1.1])[:, None]

    alike = difference_interval(steps.tolist(), (1.02 * steps).tolist())
    unlike = difference_interval((steps * shifts).tolist(), (1.02 * steps * shifts).tolist())

    assert alike is not None and unlike is not None
    assert unlike[1] - unlike[0] > 5 * (alike[1] - alike[0])
    assert alike[0] > 0 > unlike[0]


def test_enough_runs_are_tested_by_their_medians() -> None:
    before, after = [[float(n)] * 10 for n in (1, 2, 3, 4)], [[float(n)] * 10 for n in (5, 6, 7, 8)]

    four, three = compare_groups(before, after).test, compare_groups(before[:3], after).test

    assert (four.of, four.counts, four.p) == ("medians of runs", (4, 4), near(0.03038, abs=1e-5))
    assert (three.of, three.counts) == ("steps", (30, 40))


@given(groups)
def test_a_group_does_not_differ_from_itself(group: Group) -> None:
    found = compare_groups(group, group)

    assert (found.ratio, found.verdict, found.test.p) == (1.0, NO_DIFFERENCE, near(1.0))


@given(groups, groups)
def test_swapping_sides_inverts_everything(before: Group, after: Group) -> None:
    assume(before != after)

    found, swapped = compare_groups(before, after), compare_groups(after, before)

    assert swapped.ratio == near(1 / found.ratio)
    assert swapped.test.p == near(found.test.p)
    opposite = {SLOWER: FASTER, FASTER: SLOWER, NO_DIFFERENCE: NO_DIFFERENCE}
    assert swapped.verdict == opposite[found.verdict]
    if found.interval is None:
        assert swapped.interval is None
    else:
        low, high = found.interval
        assert swapped.interval == near((1 / high, 1 / low))


@given(groups, groups)
def test_the_same_question_has_the_same_answer(before: Group, after: Group) -> None:
    assert compare_groups(before, after) == compare_groups(before, after)


# ---------------------------------------------------------------- how often it errs


def side(rng: np.random.Generator, runs: int, *, between: float, slower: float = 0.0) -> Group:
    """Lognormal steps of runs whose medians differ by `between`."""
    medians = rng.normal(slower, between, runs)
    return [list(rng.lognormal(middle, 0.02, 40)) for middle in medians]


@pytest.mark.parametrize(
    ("runs", "between", "most"),
    [(1, 0.0, 0.05), (3, 0.0, 0.05), (3, 0.01, 0.07), (5, 0.01, 0.05)],
)
def test_equal_sides_are_told_apart_in_about_five_of_a_hundred_trials_at_most(
    runs: int, between: float, most: float
) -> None:
    rng = np.random.default_rng(1)

    shown = [
        compare_groups(side(rng, runs, between=between), side(rng, runs, between=between)).is_shown
        for _ in range(300)
    ]

    assert sum(shown) / len(shown) <= most


@pytest.mark.parametrize("runs", [1, 3, 5])
def test_a_slow_down_of_five_per_cent_is_seen(runs: int) -> None:
    rng = np.random.default_rng(2)

    verdicts = [
        compare_groups(
            side(rng, runs, between=0.005), side(rng, runs, between=0.005, slower=0.05)
        ).verdict
        for _ in range(50)
    ]

    assert verdicts.count(SLOWER) >= 45


def test_the_interval_holds_the_true_ratio_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    held = 0
    for _ in range(300):
        interval = compare_groups(
            [list(rng.lognormal(0, 0.5, 30))], [list(rng.lognormal(0.2, 0.5, 30))]
        ).interval
        assert interval is not None
        held += interval[0] <= np.exp(0.2) <= interval[1]

    assert 0.92 <= held / 300 <= 0.98


def test_the_median_is_the_one_of_statistics() -> None:
    assert compare_groups([[3.0, 1.0, 2.0, 4.0]], [[1.0]]).before == median([1, 2, 3, 4])
