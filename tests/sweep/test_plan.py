"""Cases: their ids, their order, and how they are shared out."""

from __future__ import annotations

import time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ridgeline.sweep.matrix import Stage, matrix_from_dict
from ridgeline.sweep.plan import SweepCase, plan_stage, rank_values, split_into_shards


def stage_of(**values: Any) -> Stage:
    return matrix_from_dict(values, name="study").stages[0]


def ids(cases: list[SweepCase]) -> list[str]:
    return [case.case_id for case in cases]


def test_the_id_is_of_what_defines_a_case() -> None:
    one = plan_stage(stage_of(models=["lstm"], batch_size=[1, 2], precision="fp32"))
    other = plan_stage(stage_of(precision=["fp32"], batch_size=[2, 1], models="lstm", timeout=9))
    layers = plan_stage(stage_of(models=["lstm"], batch_size=[1, 2], what=["run", "layers"]))

    assert sorted(ids(one)) == sorted(ids(other))  # neither the order nor the timeout matters
    assert not {*ids(one)} & {*ids(layers)}
    assert ids(one)[0] == "f3eaeb090338"  # of a file that was written last year, too


def test_repeats_are_cases_and_come_last() -> None:
    cases = plan_stage(stage_of(models="lstm", batch_size=[1, 2], repeats=2))

    assert [(case.spec.batch_size, case.repeat) for case in cases] == [
        (1, 1), (2, 1), (1, 2), (2, 2),
    ]  # fmt: skip


def test_ends_and_middles_come_first() -> None:
    cases = plan_stage(stage_of(models=["lstm", "yolo"], batch_size="1:9"))

    assert [case.spec.batch_size for case in cases if case.spec.model == "lstm"] == [
        1, 9, 5, 3, 7, 2, 4, 6, 8,
    ]  # fmt: skip
    assert [case.spec.model for case in cases] == ["lstm"] * 9 + ["yolo"] * 9


@given(st.sets(st.tuples(st.integers(1, 10_000)), max_size=60))
def test_every_value_of_a_range_has_its_turn(values: set[tuple[int, ...]]) -> None:
    ranks = rank_values(values)

    assert sorted(ranks) == sorted(values)
    assert sorted(ranks.values()) == list(range(len(values)))


@given(st.integers(1, 12), st.integers(0, 15))
def test_shards_hold_every_case_once_and_keep_comparisons_whole(models: int, most: int) -> None:
    names = [f"net{number}.py:make" for number in range(models)]
    cases = plan_stage(stage_of(models=names, batch_size=[1, 2]))

    shards = split_into_shards(cases, most)

    assert sorted(case.case_id for shard in shards for case in shard) == sorted(ids(cases))
    homes = {(number, case.comparison) for number, shard in enumerate(shards) for case in shard}
    assert len(homes) == models
    assert len(shards) == min(most or models, models)


def test_ten_thousand_cases_are_planned_each_once() -> None:
    start_s = time.monotonic()
    cases = plan_stage(stage_of(models=["lstm", "yolo"], batch_size="1:5000"))

    assert len({*ids(cases)}) == 10_000
    assert time.monotonic() - start_s < 60  # a few seconds; quadratic work would take minutes
