"""One configuration on two sides: its time, what is beside it, phases, layers, what differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.report.compared import layer_table, near, times, write

from ridgeline.report.compare_runs import (
    NO_DIFFERENCE,
    SLOWER,
    Part,
    Setting,
    compare_runs,
    find_conditions,
    find_settings,
    layer_samples,
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
    assert found.time.test.counts == (10, 10)
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
    assert (energy.test.of, energy.test.counts) == ("windows", (3, 1))


def test_what_a_run_lacks_is_not_compared(results: ResultsFolder) -> None:
    before = write(results)
    after = write(results, found={"energy": None, "peak_memory_bytes": None})

    assert list(compare_runs("x", [before], [after]).others) == ["samples_per_s"]


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


def test_a_layer_takes_its_forward_and_its_backward_time() -> None:
    table = layer_table(conv=([1.0, 2.0], [3.0, 5.0]), relu=([1.0], []))
    optimizer = pd.DataFrame({"layer": ["(optimizer)"], "time_s": [7.0]})

    assert {**layer_samples(table), **layer_samples(optimizer)} == {
        "conv": [4.0, 7.0],
        "relu": [1.0],
        "(optimizer)": [7.0],
    }


def test_without_layers_on_both_sides_none_are_compared(results: ResultsFolder) -> None:
    before, after = write(results, layers=layer_table(fc=([1.0], [1.0]))), write(results)
    tables = {before.run_id: results.read_table(before.run_id, "layers")}

    assert compare_runs("x", [before], [after], layers=tables).layers == ()


# ---------------------------------------------------------------- what differs


def test_settings_versions_and_commits_that_differ(results: ResultsFolder) -> None:
    before = write(results)
    host = {**before.provenance["host"], "devices": [{"driver": "570.1"}]}
    after = write(
        results,
        compile="default",
        label="other",
        repeat=2,
        provenance={
            "time": "later",
            "libraries": {**before.provenance["libraries"], "torch": "2.12.0"},
            "commit": {"sha": "0123456789abcdef", "is_dirty": False},
            "host": host,
        },
    )
    kept = ("compile", "torch", "commit", "device 0 driver")

    found = find_settings([before, before], [after])

    assert [setting for setting in found if setting.name in kept] == [
        Setting(name="compile", before="none", after="default"),
        Setting(name="device 0 driver", before="580.159.04", after="570.1"),
        Setting(name="torch", before="2.11.0", after="2.12.0"),
        Setting(name="commit", before="cf37d28614 with changes", after="0123456789"),
    ]
    assert {setting.name for setting in found}.isdisjoint({"time", "label", "repeat", "command"})


def test_variables_of_the_environment_that_differ_are_named(results: ResultsFolder) -> None:
    default = write(results, provenance={"environment": {"MKL_NUM_THREADS": "2"}})
    one = write(
        results, provenance={"environment": {"MKL_NUM_THREADS": "2", "OMP_NUM_THREADS": "1"}}
    )

    assert [str(s) for s in find_settings([default], [one])] == ["OMP_NUM_THREADS: not set → 1"]
    assert find_settings([one], [one]) == ()


def test_several_values_of_a_side_are_all_named(results: ResultsFolder) -> None:
    runs = [write(results, seed=seed) for seed in (0, 1, 2)]

    assert [str(s) for s in find_settings(runs[:2], runs[2:])] == ["seed: 0, 1 → 2"]
    assert find_settings(runs, list(reversed(runs))) == ()


def test_a_lower_clock_explains_a_longer_time(results: ResultsFolder) -> None:
    def during(**conditions: Any) -> dict[str, Any]:
        return {"conditions": {"during": conditions}}

    before = write(results, found=during(clock_hz=2.0e9, temperature_c=50.0))
    slow = {"clock_hz": 1.6e9, "temperature_c": 85.0, "throttle_reasons": ["heat"]}
    after = write(results, times(1.25), found=during(**slow) | {"busy_fraction": 0.5})

    assert find_conditions([before], [after], 1.25) == (
        "clock 2000 → 1600 MHz explains it",
        "held down by heat only after",
        "temperature 50 → 85 °C",
        "the device was busy 100.4 % → 50.0 % of the time",
    )
    assert find_conditions([before], [after], 2.0)[0] == "clock 2000 → 1600 MHz"
    assert find_conditions([before], [before], 1.0) == ()
