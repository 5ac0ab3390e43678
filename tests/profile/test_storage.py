"""What is kept of a profile: the step that an H200 took, and a small one made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.profile.recorded import run_of_an_h200
from tests.profile.stand_ins import use_stand_ins

import ridgeline
from ridgeline.errors import RidgelineError
from ridgeline.measure.isolation import Outcome
from ridgeline.measure.worker import MeasuredCase, Task
from ridgeline.profile import storage
from ridgeline.profile.profiling import profile
from ridgeline.profile.request import Plan, ProfiledStep, Request
from ridgeline.profile.storage import (
    copies_of,
    failed_profile,
    kernels_of,
    per_step,
    profile_request,
    profile_summary,
    tables_of,
)
from ridgeline.records import Failure, WorkloadSpec
from ridgeline.settings import Settings
from ridgeline.store import ResultsFolder

TASK = Task(
    spec=WorkloadSpec(model="resnet50", batch_size=32, mode="train"),
    settings=Settings(backend="cuda", precision="amp"),
)
NOTHING = dict.fromkeys(
    ("fp64", "fp32", "fp16", "tensor_fp16", "tensor_bf16", "tensor_tf32", "tensor_fp8",
     "tensor_int8", "tensor_fp64", "dram_bytes", "l2_bytes", "l1_bytes")
)  # fmt: skip


def three_kernels() -> pd.DataFrame:
    """Two of a layer and one that nobody knows: 8 s of 10 s have a phase, 6 s a layer."""
    return pd.DataFrame({
        "kernel": ["a", "b", "c"], "time_s": [6.0, 2.0, 2.0], "launches": 1,
        "layer": ["conv1", "(optimizer)", ""], "phase": ["forward", "optimizer", ""],
        "op": ["aten::mm", "aten::add_", ""], "dram_bytes": [10.0, 20.0, 30.0],
        "flops_fp32_vector": [100.0, 10.0, 1.0], "grid": "", "time_source": "profiler",
    })  # fmt: skip


# ---------------------------------------------------------------- by hand


def copies_and_a_fill() -> pd.DataFrame:
    """An operator that copies twice within the device, and a fill."""
    within = {"kind": "Memcpy DtoD", "layer": "act", "phase": "forward", "op": "aten::clone"}
    return pd.DataFrame([
        {**within, "time_s": 0.25, "start_s": 1.0, "moved_bytes": 16, "index": 4},
        {**within, "time_s": 0.5, "start_s": 2.0, "moved_bytes": 24, "index": 4},
        {"kind": "Memset", "layer": "", "phase": "", "op": "", "time_s": 0.125, "start_s": 3.0,
         "moved_bytes": 4, "index": -1},
    ])  # fmt: skip


def test_copies_of_one_step_by_operator() -> None:
    # given the copies of two steps
    profiled = ProfiledStep(kernels=three_kernels(), plan=None, steps=2, copies=copies_and_a_fill())
    # then half of them are of one
    act = {"kind": "Memcpy DtoD", "layer": "act", "phase": "forward", "op": "aten::clone"}
    found = copies_of(profiled)
    assert found is not None
    assert found.to_dict("records") == [
        {**act, "launches": 1.0, "time_s": 0.375, "moved_bytes": 20.0},
        {"kind": "Memset", "layer": "", "phase": "", "op": "", "launches": 0.5, "time_s": 0.0625,
         "moved_bytes": 2.0},
    ]  # fmt: skip
    # and where nobody looked there is no table, and an empty one of the same types without copies
    assert list(tables_of(replace(profiled, copies=None))) == ["kernels"]
    none = tables_of(replace(profiled, copies=copies_and_a_fill().head(0)))["copies"]
    assert none.empty
    assert none.dtypes.to_dict() == found.dtypes.to_dict()


def test_a_small_profile_whole() -> None:
    plan = Plan(tool="ncu", groups=(("a.sum",),), passes=1, launches=3, time_s=1.5,
                is_parallel=True)  # fmt: skip
    profiled = ProfiledStep(
        kernels=three_kernels(), plan=plan, counted_s=6.0, taken_s=20.0, standby_s=9.0,
        ratios={"copy": 1.01, "product fp32": 0.99, "product fp16": 1.02}, tool="ncu",
        tool_version="2025.3.1",
        busy_s=9.0,
        copies=copies_and_a_fill(),
        warnings=("careful",),
    )  # fmt: skip
    run = run_of_an_h200()
    step_time = replace(run.result.step_time_s, median=12.5)
    run = replace(run, result=replace(run.result, step_time_s=step_time))
    request = Request(task=TASK)
    assert profile_summary(request, profiled, run) == {
        "status": "ok",
        "provenance": "counter",
        "device_name": "NVIDIA H200",
        "backend": "cuda",
        "precision": "tf32",
        "tier": "counters",
        "level": "dram",
        "tool": "ncu",
        "tool_version": "2025.3.1",
        "iters": 1,
        "kernel_time_s": 10.0,
        "busy_time_s": 9.0,
        "step_time_s": 12.5,
        "gap_s": 3.5,
        "launches": 3.0,
        "copies": {"launches": 3.0, "time_s": 0.875, "moved_bytes": 44.0},
        "attributed_share": 0.8,
        "layer_share": 0.6,
        "phases": {
            "forward": {"launches": 1.0, "time_s": 6.0, "flops": 100.0},
            "optimizer": {"launches": 1.0, "time_s": 2.0, "flops": 10.0},
        },
        "totals": {**NOTHING, "fp32": 111.0, "dram_bytes": 60.0},
        "plan": plan.to_dict(),
        "cost": {
            "planned_s": 1.5,
            "counted_s": 6.0,
            "taken_s": 20.0,
            "standby_s": 9.0,
            "passes": 1,
        },
        "self_test": {
            "copy_ratio": 1.01,
            "product_ratio": 1.02,  # the worst one
            "ratios": {"copy": 1.01, "product fp32": 0.99, "product fp16": 1.02},
            "is_trusted": True,
        },
        "warnings": ["careful"],
    }


def test_a_profile_without_counters_or_a_run() -> None:
    kernels = three_kernels().drop(columns=["dram_bytes", "flops_fp32_vector"])
    profiled = ProfiledStep(kernels=kernels, plan=None, step_time_s=9.0)
    found = profile_summary(Request(program=("python", "train.py"), tier="time"), profiled, None)
    assert found["provenance"] == "measured"
    assert found["gap_s"] == 0.0  # kernels side by side may take longer than their step
    assert found["totals"] == NOTHING
    assert found["phases"]["forward"] == {"launches": 1.0, "time_s": 6.0, "flops": None}
    assert (found["plan"], found["self_test"], found["device_name"]) == (None, None, None)


@pytest.mark.parametrize(
    ("ratios", "is_trusted"), [({"copy": 1.0}, True), ({"copy": 1.06}, False), ({}, False)]
)
def test_counters_are_trusted_if_they_were_tested(
    ratios: dict[str, float], is_trusted: bool
) -> None:
    plan = Plan(tool="ncu", groups=(), passes=0, launches=3, time_s=0.0, is_parallel=True)
    profiled = ProfiledStep(kernels=three_kernels(), plan=plan, ratios=ratios)
    found = profile_summary(Request(task=TASK), profiled, None)
    assert found["self_test"]["is_trusted"] is is_trusted
    assert found["self_test"]["product_ratio"] is None


def test_two_steps_are_told_as_one() -> None:
    # given the kernels of two steps
    both = pd.concat([three_kernels(), three_kernels()], ignore_index=True)
    both["counter_time_s"] = 4.0
    before = both.copy()
    # then each row is half of what it was, and the sums are those of one step
    one = per_step(both, 2)
    sums = ["time_s", "counter_time_s", "dram_bytes", "flops_fp32_vector", "launches"]
    assert one[sums].sum().tolist() == [10.0, 12.0, 60.0, 111.0, 3.0]
    assert one["kernel"].tolist() == ["a", "b", "c"] * 2
    pd.testing.assert_frame_equal(both, before)
    assert kernels_of(ProfiledStep(kernels=both, steps=2, plan=None))["launches"].sum() == 3
    found = profile_summary(
        Request(task=TASK, steps=2), ProfiledStep(kernels=both, steps=2, plan=None), None
    )
    assert (found["iters"], found["launches"], found["kernel_time_s"]) == (2, 3.0, 10.0)


def test_one_step_is_left_as_it_is() -> None:
    kernels = three_kernels()
    assert per_step(kernels, 1) is kernels


# ---------------------------------------------------------------- what was asked


def test_the_question_names_the_run() -> None:
    request = profile_request(TASK, run_of_an_h200(), "mine")
    assert (request.command, request.of_run, request.label) == ("profile", "r1", "mine")
    assert (request.model, request.precision) == ("resnet50", "amp")


def test_a_failure_is_kept_with_its_reason() -> None:
    error = RidgelineError("it broke", hint="mend it")
    assert failed_profile(run_of_an_h200(), error) == Failure(
        reason="it broke", hint="mend it", device_name="NVIDIA H200", backend="cuda"
    )


# ---------------------------------------------------------------- as an H200 had it


def test_the_recorded_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # given ResNet-50, amp, batch 32, played back
    use_stand_ins(monkeypatch, tmp_path)
    request = Request(task=TASK, memory_bytes=2 * 10**9, device_bytes=150 * 10**9, device="H200")
    found = profile_summary(request, profile(request), None)
    # then every kernel has a phase, and all but a few a module
    assert found["attributed_share"] == 1.0
    assert found["layer_share"] == pytest.approx(0.9695, abs=1e-4)
    phases = found["phases"]
    assert {name: phase["launches"] for name, phase in phases.items()} == {
        "forward": 290, "backward": 330, "optimizer": 11,
    }  # fmt: skip
    assert sum(phase["time_s"] for phase in phases.values()) == pytest.approx(6.9416e-3, rel=1e-4)
    assert {name: value for name, value in found["totals"].items() if value is not None} == {
        "fp64": 10,
        "fp32": 13_518_928_880,
        "fp16": 8_517_821_408,
        "tensor_fp16": 797_680_599_040,
        "dram_bytes": 9_925_320_448,
    }
    assert found["self_test"]["ratios"] == {
        "product fp32": pytest.approx(1.0, abs=1e-3),
        "copy": pytest.approx(1.0, abs=2e-3),
        "product fp16": 1.0,
    }
    assert found["self_test"]["is_trusted"]
    assert found["warnings"] == []


# ---------------------------------------------------------------- from Python


@pytest.fixture
def h200(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    recorded = run_of_an_h200().result
    step_time = replace(recorded.step_time_s, median=0.02)
    measured = MeasuredCase(result=replace(recorded, step_time_s=step_time))

    def isolated(work: Any, task: Any) -> Outcome[Any]:
        return Outcome(answer=measured)

    use_stand_ins(monkeypatch, tmp_path)
    monkeypatch.setattr(storage, "run_isolated", isolated)


@pytest.mark.usefixtures("h200")
def test_a_profile_from_python(tmp_path: Path) -> None:
    # when a step is measured and counted
    folder = tmp_path / "results"
    counted = ridgeline.profile("resnet50", batch_size=32, precision="amp", results=folder)
    # then both are kept, with what the model must do, and what was counted can be asked for
    first, second, third = ResultsFolder(folder).read_runs()
    assert [first.run_id, second.run_id] == [counted.of_run, counted.run_id]
    # three times forward, without the gradient of the images by the first convolution
    macs = 32 * (3 * 4_089_184_256 - 118_013_952)
    assert (third.request.command, third.result.macs) == ("count", macs)
    assert counted.totals["tensor_fp16"] == 797_680_599_040
    assert counted.totals["tensor_bf16"] is None
    assert len(counted.kernels) == 631
    assert str(counted) == f"631 kernels, 6.94 ms in a step of 20.0 ms; {counted.run_id}"


@pytest.mark.usefixtures("h200")
def test_only_on_cuda(tmp_path: Path) -> None:
    with pytest.raises(RidgelineError, match="there is nothing to profile on cpu"):
        ridgeline.profile("resnet50", backend="cpu", results=tmp_path / "results")
    assert not (tmp_path / "results").exists()


@pytest.mark.usefixtures("h200")
def test_what_makes_no_sense_is_said_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(RidgelineError, match="counters, time"):
        ridgeline.profile("resnet50", tier="all", results=tmp_path / "results")
    assert not (tmp_path / "results").exists()


@pytest.mark.usefixtures("h200")
def test_a_failure_is_kept_and_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NCU", "busy")
    monkeypatch.setenv("FAKE_CUPTI", "absent")
    folder = tmp_path / "results"
    with pytest.raises(RidgelineError, match="another profiler held the GPU's counters"):
        ridgeline.profile("resnet50", precision="amp", results=folder)
    _, failed = ResultsFolder(folder).read_runs()
    assert failed.result.status == "failed"
    assert failed.result.reason.startswith("another profiler held the GPU's counters")
