"""Ceilings: summaries by hand, and there and back through JSON."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgeline.machine.passport import Ceiling
from ridgeline.machine.sampling import (
    drift,
    in_rounds,
    median_interval,
    spread,
    summarise,
)
from ridgeline.records import Conditions, StepTime
from ridgeline.serialize import from_dict

COPY = Ceiling(
    kind="bandwidth",
    device="cuda:0",
    level="dram",
    pattern="copy",
    samples=(90.0, 100.0, 110.0),
    how="copy",
    conditions=Conditions(clock_hz=1.98e9, throttle_reasons=("power cap",)),
)


def test_summaries_by_hand() -> None:
    # 10th percentile 92, 90th 108, median 100
    assert (COPY.best, COPY.sustained) == (110.0, 100.0)
    assert COPY.spread == pytest.approx(0.16)
    launch = Ceiling(kind="launch", device="cpu", what="kernel", samples=(3e-6, 2e-6), how="x")
    assert launch.best == 2e-6  # the shortest
    assert replace(COPY, samples=(5.0,)).spread == 0


def test_json_there_and_back() -> None:
    content = json.loads(json.dumps(COPY.to_dict()))
    assert content["bytes_per_s"] == 110.0
    assert from_dict(Ceiling, content) == COPY
    del content["power_state"]  # a passport of an earlier version
    assert from_dict(Ceiling, content) == COPY


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"samples": ()}, "needs samples that are finite numbers"),
        ({"samples": (1.0, math.nan)}, "needs samples that are finite numbers"),
        ({"samples": (math.inf,)}, "needs samples that are finite numbers"),
        ({"kind": "colour"}, "'colour' is no kind of ceiling; there are compute, "),
    ],
)
def test_what_is_no_ceiling(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        replace(COPY, **changes)


def test_probes_take_turns_and_every_sample_is_kept() -> None:
    order: list[str] = []
    rounds: list[int] = []

    def probe(name: str) -> float:
        order.append(name)
        return float(len(order))

    samples = in_rounds(
        {"a": lambda: probe("a"), "b": lambda: probe("b")},
        rounds=3,
        after_probe=lambda key: order.append(f"after {key}"),
        after_round=lambda: rounds.append(len(order)),
    )

    assert order == ["a", "after a", "b", "after b"] * 3
    assert rounds == [4, 8, 12]
    assert samples == {"a": (1.0, 5.0, 9.0), "b": (3.0, 7.0, 11.0)}


# ---------------------------------------------------------------- statistics


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
