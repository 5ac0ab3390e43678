"""One configuration on two sides: its time, what is beside it, phases, layers, what differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.report.compared import MEASURED, layer_table, near, times, write

from ridgeline.report.compare import compare_runs, find_conditions, find_settings
from ridgeline.report.comparison import (
    FASTER,
    NO_DIFFERENCE,
    SLOWER,
    Group,
    Part,
    compare_groups,
    draw_medians,
    find_interval,
)
from ridgeline.store import ResultsFolder


@pytest.fixture
def results(tmp_path: Path) -> ResultsFolder:
    return ResultsFolder(tmp_path)


def test_a_step_that_takes_twice_as_long(results: ResultsFolder) -> None:
    before, after = write(results), write(results, times(2))

    found = compare_runs("vgg16", [before], [after])

    assert (found.per, found.time.verdict) == ("step", SLOWER)
    assert found.time.ratio == near(2.0)
    assert found.others["samples_per_s"].ratio == near(0.5)
    assert found.others["peak_memory_bytes"].ratio == 1.0
    assert found.others["energy_j_per_sample"].runs == (1, 1)
    assert [(part.name, part.difference_s) for part in found.phases] == [
        ("backward", near(0.1045 / 2)),
        ("forward", near(0.1045 / 4)),
    ]
    assert found.run_ids == ((before.run_id,), (after.run_id,))


def test_joules_are_those_of_a_sample_in_every_window(results: ResultsFolder) -> None:
    def joules(*windows: float) -> dict[str, Any]:
        return {"energy": {"windows": [{"energy_j_per_step": joule} for joule in windows]}}

    before = write(results, found=joules(128.0, 256.0, 384.0))
    after = write(results, found=joules(512.0))

    energy = compare_runs("x", [before], [after]).others["energy_j_per_sample"]

    assert (energy.before, energy.after, energy.interval) == (2.0, 4.0, None)


def test_steps_of_different_sizes_are_compared_by_the_sample(results: ResultsFolder) -> None:
    before, after = write(results, batch_size=10), write(results, times(2), batch_size=20)

    found = compare_runs("x", [before], [after])

    assert (found.per, found.time.verdict) == ("sample", NO_DIFFERENCE)
    assert (found.time.before, found.time.ratio) == (near(0.01045), near(1.0))
    assert {part.name: part.before_s for part in found.phases} == {
        "forward": near(0.01045 / 4),
        "backward": near(0.01045 / 2),
    }


# ---------------------------------------------------------------- layers


def test_layers_are_sorted_by_what_they_add(results: ResultsFolder) -> None:
    one, two = [0.001] * 6, [0.002] * 6
    more, less = near((0.002, 0.002)), near((-0.001, -0.001))
    before = write(results, layers=layer_table(stem=(one, two), gone=(one, []), fc=(one, one)))
    after = write(results, layers=layer_table(stem=(one, one), fc=(two, two), new=(two, two)))
    tables = {run.run_id: results.read_table(run.run_id, "layers") for run in (before, after)}

    found = compare_runs("x", [before], [after], layers=tables)

    assert found.layers == (
        Part(name="fc", before_s=0.002, after_s=0.004, interval_s=more),
        Part(name="stem", before_s=0.003, after_s=0.002, interval_s=less),
        Part(name="new", before_s=None, after_s=0.004),
        Part(name="gone", before_s=0.001, after_s=None),
    )  # fmt: skip


# ---------------------------------------------------------------- what differs


def test_settings_versions_and_commits_that_differ(results: ResultsFolder) -> None:
    before = write(results)
    host = {**MEASURED["provenance"]["host"], "devices": [{"driver": "570.1"}]}
    after = write(
        results,
        compile="default",
        label="other",
        repeat=2,
        provenance={
            "time": "later",
            "libraries": {**MEASURED["provenance"]["libraries"], "torch": "2.12.0"},
            "commit": {"sha": "0123456789abcdef", "is_dirty": False},
            "host": host,
        },
    )
    kept = ("compile", "torch", "commit", "device 0 driver")

    found = find_settings([before, before], [after])

    assert {name: found[name] for name in kept} == {
        "compile": ("none", "default"),
        "torch": ("2.11.0", "2.12.0"),
        "commit": ("cf37d28614 with changes", "0123456789"),
        "device 0 driver": ("580.159.04", "570.1"),
    }
    assert set(found).isdisjoint({"time", "label", "repeat", "command"})


def test_several_values_and_variables_of_the_environment(results: ResultsFolder) -> None:
    runs = [write(results, seed=seed) for seed in (0, 1, 2)]
    one = write(results, seed=2, provenance={"environment": {"OMP_NUM_THREADS": "1"}})

    assert find_settings(runs[:2], runs[2:]) == {"seed": ("0, 1", "2")}
    assert find_settings(runs[2:], [one]) == {"OMP_NUM_THREADS": ("not set", "1")}
    assert find_settings(runs, list(reversed(runs))) == {}


def test_a_lower_clock_explains_a_longer_time(results: ResultsFolder) -> None:
    def during(**conditions: Any) -> dict[str, Any]:
        return {"conditions": {"during": conditions}}

    before = write(results, found=during(clock_hz=2.0e9))
    after = write(results, times(1.25), found=during(clock_hz=1.6e9))

    assert find_conditions([before], [after], 1.25) == ("clock 2000 → 1600 MHz explains it",)
    assert find_conditions([before], [after], 2.0) == ("clock 2000 → 1600 MHz",)
    assert find_conditions([before], [before], 1.0) == ()


# ---------------------------------------------------------------- statistics

durations = st.floats(min_value=1e-6, max_value=1e3)
groups = st.lists(st.lists(durations, min_size=1, max_size=12), min_size=1, max_size=5)


# ---------------------------------------------------------------- the interval


def test_medians_of_three_drawn_from_three() -> None:
    # the median is the least value if 2 or 3 of 3 draws are: (3·2 + 1)/27
    drawn = draw_medians(np.array([1.0, 2.0, 3.0]), np.random.default_rng(0), 27_000)

    counts = [int((drawn == value).sum()) for value in (1.0, 2.0, 3.0)]
    assert counts == near([7000, 13000, 7000], abs=350)  # four standard deviations


def test_differences_between_runs_widen_the_interval() -> None:
    rng = np.random.default_rng(0)
    steps = rng.lognormal(0, 0.01, (5, 50))
    shifts = np.array([0.9, 0.95, 1.0, 1.05, 1.1])[:, None]

    alike = find_interval(steps.tolist(), (1.02 * steps).tolist())
    unlike = find_interval((steps * shifts).tolist(), (1.02 * steps * shifts).tolist())

    assert alike is not None and unlike is not None
    assert unlike[1] - unlike[0] > 5 * (alike[1] - alike[0])
    assert alike[0] > 0 > unlike[0]


@given(groups, groups)
def test_swapping_sides_inverts_everything(before: Group, after: Group) -> None:
    assume(before != after)

    found, swapped = compare_groups(before, after), compare_groups(after, before)

    assert swapped.ratio == near(1 / found.ratio)
    opposite = {SLOWER: FASTER, FASTER: SLOWER, NO_DIFFERENCE: NO_DIFFERENCE}
    assert swapped.verdict == opposite[found.verdict]
    if found.interval is None:
        assert swapped.interval is None
    else:
        low, high = found.interval
        assert swapped.interval == near((1 / high, 1 / low))


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
