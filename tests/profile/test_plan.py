"""How long a profile will take, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ridgeline.errors import RidgelineError
from ridgeline.profile.passes import Group
from ridgeline.profile.plan import Plan, fitting
from ridgeline.profile.step_mark import ALL, DISTINCT

VECTOR = Group(("smsp__sass_add.sum", "smsp__sass_mul.sum"), 1)  # instrumented code
MEMORY = Group(("dram__bytes.sum", "gpu__time_duration.sum"), 1)
TENSOR = Group(("sm__ops_path_tensor_src_fp16.sum",), 1)  # with work of groups of warps in it
WARP = Group(("sm__ops_path_tensor_op_hmma_src_fp16_dst_fp32.sum",), 1)
BOTH = Group((*MEMORY.metrics, *TENSOR.metrics), 1)
THREE = Group(("lts__t_bytes.sum",), 3)
EXACT = Plan(
    groups=(VECTOR, BOTH),
    launches=1000,
    distinct=100,
    products=40,
    functions=20,
    memory_bytes=4 * 10**9,
    start_s=10.0,
    is_parallel=True,
    picks=ALL,
)
INSIDE = replace(EXACT, groups=(Group((*VECTOR.metrics, *BOTH.metrics), 3),), tool="cupti")
CHEAP = replace(EXACT, groups=(VECTOR, MEMORY, TENSOR), picks=DISTINCT)


@pytest.mark.parametrize(
    ("plan", "time_s"),
    [
        # each process 1 s for its first kernel and 0.6 s for its end; instrumented: 20 functions
        # of 0.05 s, 1000 kernels of 0.009 s; the chip's counters: 1000 of 0.009 s, 0.012 s with
        # memory, 0.002 s with tensor cores, 0.019 s with groups of warps
        (EXACT, (1.6 + 1 + 9) + (1.6 + 42)),
        # 100 that differ, 40 of them products
        (CHEAP, (1.6 + 1 + 0.9) + (1.6 + 2.1) + (1.6 + 1.2)),
        (replace(CHEAP, groups=(WARP,)), 1.6 + 40 * 0.011),
        # each process takes 10 s to get ready, one after the other
        (replace(EXACT, is_parallel=False), 2 * 10 + 55.2),
        # three passes: 0.021 + 3 · 0.01 s, and 4 GB at 0.05 s each
        (replace(EXACT, groups=(THREE,)), 1.6 + 1000 * (0.051 + 0.2)),
        (replace(EXACT, groups=()), 0.0),
        # inside of the process: 2.5 s, and 1000 kernels of 0.0011 s in each of three passes
        (INSIDE, 2.5 + 3.3),
        (replace(INSIDE, is_parallel=False), 2.5 + 3.3),  # it is ready when that is asked
    ],
    ids=["exact", "distinct", "no groups of warps", "one by one", "passes", "nothing", "inside",
         "inside, after the trace"],
)  # fmt: skip
def test_seconds(plan: Plan, time_s: float) -> None:
    assert plan.time_s == pytest.approx(time_s)


def test_in_words() -> None:
    assert str(EXACT) == (
        "5 metrics in 2 groups, 2 passes, read by Nsight Compute; 1000 kernels; about 55.2 s"
    )
    assert str(replace(CHEAP, groups=(VECTOR, THREE), missing=("L2 bytes", "DRAM bytes"))) == (
        "3 metrics in 2 groups, 4 passes, read by Nsight Compute; 1000 kernels, of which 100 that "
        "differ are counted (FLOPs of a measured step were the same so, DRAM bytes within 2.4 %); "
        "about 30.2 s; not on this chip: L2 bytes, DRAM bytes"
    )
    assert str(replace(EXACT, not_by_cupti="no library")).endswith(
        "about 55.2 s; not by CUPTI: no library"
    )
    assert str(INSIDE) == "5 metrics in 3 passes, read by CUPTI; 1000 kernels; about 5.80 s"


def test_as_values() -> None:
    assert CHEAP.to_dict() == {
        "tool": "ncu",
        "metrics": [list(VECTOR.metrics), list(MEMORY.metrics), list(TENSOR.metrics)],
        "passes": 3,
        "launches": 1000,
        "distinct_launches": 100,
        "picks": "distinct",
        "planned_s": pytest.approx(10.0),
        "is_parallel": True,
        "missing": [],
        "not_by_cupti": None,
    }


@pytest.mark.parametrize(
    ("budget_s", "chosen"), [(None, EXACT), (60.0, EXACT), (55.3, EXACT), (55.1, CHEAP)]
)
def test_the_most_exact_that_fits(budget_s: float | None, chosen: Plan) -> None:
    assert fitting((EXACT, CHEAP), budget_s) == chosen


def test_too_short_for_anything() -> None:
    with pytest.raises(RidgelineError) as raised:
        fitting((EXACT, CHEAP), 5.0)
    assert raised.value.problem == "no way of counting fits 5 s"
    assert "takes about 10 s: give --budget 11s or more" in raised.value.hint
