"""How long a profile will take, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ridgeline.errors import RidgelineError
from ridgeline.profile.passes import Group
from ridgeline.profile.plan import Plan, fitting
from ridgeline.profile.step_mark import ALL, DISTINCT

ONE, THREE = Group(("a.sum", "b.sum"), 1), Group(("c.sum",), 3)
EXACT = Plan(
    groups=(ONE, ONE),
    launches=1000,
    distinct=100,
    memory_bytes=4 * 10**9,
    start_s=10.0,
    is_parallel=True,
    picks=ALL,
)
CHEAP = replace(EXACT, picks=DISTINCT)


@pytest.mark.parametrize(
    ("plan", "time_s"),
    [
        # two groups, each 1.5 s for its process and 0.022 s for each of 1000 kernels
        (EXACT, 2 * (1.5 + 22.0)),
        # 100 that differ
        (CHEAP, 2 * (1.5 + 2.2)),
        # each process takes 10 s to get ready, one after the other
        (replace(EXACT, is_parallel=False), 2 * (10 + 1.5 + 22.0)),
        # three passes: 0.022 + 3 · 0.01 s, and 4 GB at 0.05 s each
        (replace(EXACT, groups=(THREE,)), 1.5 + 1000 * (0.052 + 0.2)),
        (replace(EXACT, groups=()), 0.0),
    ],
    ids=["exact", "distinct", "one by one", "passes", "nothing"],
)
def test_seconds(plan: Plan, time_s: float) -> None:
    assert plan.time_s == pytest.approx(time_s)


def test_in_words() -> None:
    assert str(EXACT) == "4 metrics in 2 groups, 2 passes; 1000 kernels; about 47 s"
    assert str(replace(CHEAP, groups=(ONE, THREE), missing=("L2 bytes", "DRAM bytes"))) == (
        "3 metrics in 2 groups, 4 passes; 1000 kernels, of which 100 that differ are counted; "
        "about 30.4 s; not on this chip: L2 bytes, DRAM bytes"
    )


def test_as_values() -> None:
    assert CHEAP.to_dict() == {
        "metrics": [["a.sum", "b.sum"], ["a.sum", "b.sum"]],
        "passes": 2,
        "launches": 1000,
        "distinct_launches": 100,
        "picks": "distinct",
        "planned_s": pytest.approx(7.4),
        "is_parallel": True,
        "missing": [],
    }


@pytest.mark.parametrize(
    ("budget_s", "chosen"), [(None, EXACT), (60.0, EXACT), (47.0, EXACT), (46.9, CHEAP)]
)
def test_the_most_exact_that_fits(budget_s: float | None, chosen: Plan) -> None:
    assert fitting((EXACT, CHEAP), budget_s) == chosen


def test_too_short_for_anything() -> None:
    with pytest.raises(RidgelineError) as raised:
        fitting((EXACT, CHEAP), 5.0)
    assert raised.value.problem == "no way of counting fits 5 s"
    assert "takes about 7.40 s: give --budget 8s or more" in raised.value.hint
