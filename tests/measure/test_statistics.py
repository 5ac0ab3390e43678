"""Samples to summaries, with numbers that can be checked by eye."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgeline.machine.sampling import (
    drift,
    median_interval,
    spread,
    summarise,
)
from ridgeline.records import StepTime


def test_a_summary_by_hand() -> None:
    assert summarise([4.0, 4.0, 4.0, 12.0]) == StepTime(
        count=4, median=4.0, mean=6.0, std=4.0, min=4.0, max=12.0, spread=1.4,
        samples=(4.0, 4.0, 4.0, 12.0),
    )  # fmt: skip  # std: √((3·2² + 6²) / 3)


@settings(max_examples=20)  # each draws 2000 times
@given(st.lists(st.integers(1, 1000), min_size=6, max_size=30))
def test_the_interval_holds_the_median_and_stays_inside(samples: list[int]) -> None:
    summary = summarise(samples)

    assert summary.interval is not None
    low, high = summary.interval
    assert summary.min <= low <= summary.median <= high <= summary.max


def test_the_interval_is_that_of_theory() -> None:
    # of 0, 1, … 100 the median is 50 ± 1.96 · √101 / 2, which is 9.85
    low, high = median_interval([float(number) for number in range(101)]) or (0, 0)

    assert low == pytest.approx(40.15, abs=1)
    assert high == pytest.approx(59.85, abs=1)


def test_spread_and_drift_by_hand() -> None:
    samples = [float(number) for number in range(10, 21)]  # 10th percentile 11, 90th 19

    assert spread(samples) == pytest.approx(8 / 15)
    assert drift([1.0, 1.0, 2.0, 1.5, 1.5, 1.5]) == 0.5
    assert drift([4.0, 4.0, 2.0, 2.0, 3.0]) == -0.5  # the middle one is of the later half
