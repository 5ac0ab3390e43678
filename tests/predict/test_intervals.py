"""Intervals of predictions, from errors that were seen."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest

from ridgeline.predict.intervals import (
    conformal_quantile,
    expected_error,
    find_widening,
    step_interval,
)


@pytest.mark.parametrize(
    ("scores", "quantile"),
    [([1, 2, 3], None), ([1, 2, 3, 4], 4), ([5, 1, 4, 2, 3, 6, 7, 8, 9], 8)],
)
def test_few_scores_give_a_careful_quantile(scores: list[float], quantile: float | None) -> None:
    assert conformal_quantile(scores, 0.8) == quantile


def test_the_next_error_is_inside_as_often_as_promised() -> None:
    random = np.random.default_rng(0)
    inside = 0
    for _ in range(1000):
        *before, after = random.normal(0, 0.1, 15)
        low, high = step_interval(1.0, 0.05, [abs(error) / 0.05 for error in before])
        inside += low <= exp(after) <= high

    assert inside / 1000 == pytest.approx(0.8, abs=0.04)


def test_without_errors_the_expected_one_counts() -> None:
    low, high = step_interval(10e-3, 0.1)

    assert [log(high / 10e-3), log(low / 10e-3)] == pytest.approx([0.16, -0.16])


def test_errors_of_many_equal_operators_cancel_by_half() -> None:
    assert expected_error([1e-3], [0.2]) == pytest.approx(0.2)
    assert expected_error([1e-3] * 100, [0.2] * 100) == pytest.approx(0.2 * 0.505**0.5)


def test_a_changed_driver_and_a_drift_widen_the_interval() -> None:
    found = find_widening(
        {"torch": "2.14", "driver": "570"}, {"torch": "2.14", "driver": "580"}, -0.06
    )

    assert found.factor == pytest.approx(1.25 * 1.5)
    assert found.reasons == (
        "driver was 570 at the calibration and is 580: calibrate again",
        "the ceilings moved by -6% since the calibration: calibrate again",
    )
