"""A capture that cannot be right is refused, one with gaps says so."""

from __future__ import annotations

from math import nan

import pandas as pd
import pytest

from ridgeline.errors import RidgelineError
from ridgeline.measure.isolation import Outcome
from ridgeline.profile import checks
from ridgeline.profile.checks import (
    check_counted,
    check_step,
    check_traced,
    need_counters,
)
from ridgeline.profile.join_counters import Joined


def step(*phases: str) -> pd.DataFrame:
    return pd.DataFrame({"phase": list(phases)})


def test_no_kernel_is_no_step() -> None:
    check_traced(step("forward"))
    with pytest.raises(RidgelineError, match="the profiler saw no kernel in the step"):
        check_traced(step())


@pytest.mark.parametrize(
    ("phases", "absent"),
    [
        (("forward", "backward"), "optimizer"),
        (("forward", "optimizer"), "backward"),
        (("forward", ""), "backward and optimizer"),
        (("",), "forward and backward and optimizer"),
    ],
)
def test_a_training_step_has_three_phases(phases: tuple[str, ...], absent: str) -> None:
    with pytest.raises(RidgelineError) as raised:
        check_step(step(*phases), "train", is_marked=True)
    assert raised.value.problem == f"the captured step has no kernel in {absent}"


def test_other_steps_need_not() -> None:
    check_step(step("forward", "backward", "optimizer", ""), "train", is_marked=True)
    check_step(step("forward"), "infer", is_marked=True)
    check_step(step(""), "train", is_marked=False)  # compiled: nobody knows
    check_step(step("forward"), "", is_marked=True)  # a program of the user's


def result(times_s: list[float], dram_bytes: list[float], extra: int = 0) -> Joined:
    kernels = pd.DataFrame({"time_s": times_s, "dram_bytes": dram_bytes})
    return Joined(kernels=kernels, extra=extra)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (result([1, 1], [5, 5]), ""),
        (result([99, 1], [5, nan]), ""),  # 1 % of the time is not worth a word
        (
            result([9, 1], [5, nan]),
            "kernels with 10.0% of the kernel time have no counters: the step launched other "
            "kernels when it was counted; sums are too low by about that share",
        ),
        (result([1], [5], extra=3), "3 kernels were counted that the timed step did not launch"),
    ],
    ids=["all", "nearly all", "gap", "more"],
)
def test_what_share_is_known(found: Joined, said: str) -> None:
    assert check_counted(found) == ([said] if said else [])


def test_a_kernel_is_known_if_all_of_its_counters_are() -> None:
    kernels = pd.DataFrame({"time_s": [1.0, 1.0], "dram_bytes": [5.0, 5.0],
                            "flops_fp32_vector": [1.0, nan]})  # fmt: skip
    assert "with 50.0% of" in check_counted(Joined(kernels=kernels, extra=0))[0]


@pytest.mark.parametrize("found", [result([1, 1], [nan, nan]), result([0], [5])])
def test_nothing_in_common_is_an_error(found: Joined) -> None:
    with pytest.raises(RidgelineError, match="none of the counted kernels is one of the step"):
        check_counted(found)


# ---------------------------------------------------------------- what there is to count with


@pytest.mark.parametrize(
    ("tool", "has_ncu", "has_cupti", "is_refused"),
    [
        ("auto", True, False, False),
        ("auto", False, True, False),
        ("auto", False, False, True),
        ("ncu", True, False, False),
        ("ncu", False, True, True),
        ("cupti", True, False, True),
        ("cupti", False, True, False),
    ],
)
def test_one_of_the_two_must_be_there(
    monkeypatch: pytest.MonkeyPatch, tool: str, has_ncu: bool, has_cupti: bool, is_refused: bool
) -> None:
    def find_ncu() -> None:
        if not has_ncu:
            raise RidgelineError("Nsight Compute (ncu) was not found", hint="install it")

    monkeypatch.setattr(checks, "find_ncu", find_ncu)
    monkeypatch.setattr(checks, "run_isolated", lambda work, task: Outcome(answer=has_cupti))
    if is_refused:
        with pytest.raises(RidgelineError, match=r"was not found|no CUPTI that can count"):
            need_counters(tool)
    else:
        need_counters(tool)
