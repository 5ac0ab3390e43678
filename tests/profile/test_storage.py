"""What is stored of a profile: the step that an H200 took, and a small one made by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.profile.recorded import DATA, run_of_an_h200
from tests.profile.stand_ins import use_stand_ins

import ridgeline
from ridgeline.errors import RidgelineError
from ridgeline.measure.isolation import Outcome, attempt
from ridgeline.measure.worker import MeasuredCase, Task
from ridgeline.profile.profiling import summarise, tables_of
from ridgeline.profile.request import (
    Plan,
    ProfiledStep,
    Request,
    request_for_run,
)
from ridgeline.records import (
    CopyTotals,
    ProfileCost,
    ProfileOptions,
    ProfileSummary,
    RunResult,
    SelfTest,
    WorkloadSpec,
)
from ridgeline.serialize import from_dict
from ridgeline.settings import Settings
from ridgeline.store import ResultsFolder, to_run

TASK = Task(
    spec=WorkloadSpec(model="resnet50", batch_size=32, mode="train"),
    settings=Settings(backend="cuda", precision="amp"),
)
NOTHING = dict.fromkeys(
    ("fp64", "fp32", "fp16", "tensor_fp16", "tensor_bf16", "tensor_tf32", "tensor_fp8",
     "tensor_int8", "tensor_fp64", "dram_bytes", "l2_bytes", "l1_bytes")
)  # fmt: skip
PLAN = Plan(tool="ncu", groups=(("a.sum",),), passes=1, launches=3, time_s=1.5, is_parallel=True)

# ---------------------------------------------------------------- requests


def test_the_request_for_a_run_knows_its_memory_and_device() -> None:
    assert request_for_run(run_of_an_h200(), TASK, level="hierarchical") == Request(
        task=TASK,
        level="hierarchical",
        memory_bytes=21_145_583_616,
        device_bytes=150_754_820_096,
        device="NVIDIA H200",
    )
    # and of a run of which little is known
    content = json.loads((DATA.parent / "run-h200-vgg16.json").read_text())
    content["found"] |= {"memory": None, "device_name": ""}
    content["provenance"] = {}
    assert request_for_run(to_run(Path("r1"), content), TASK) == Request(task=TASK)


# ---------------------------------------------------------------- by hand


def three_kernels() -> pd.DataFrame:
    """Two of a layer and one of nothing known: 8 s of 10 s have a phase, 6 s a layer."""
    return pd.DataFrame({
        "kernel": ["a", "b", "c"], "time_s": [6.0, 2.0, 2.0], "launches": 1,
        "layer": ["conv1", "(optimizer)", ""], "phase": ["forward", "optimizer", ""],
        "op": ["aten::mm", "aten::add_", ""], "dram_bytes": [10.0, 20.0, 30.0],
        "flops_fp32_vector": [100.0, 10.0, 1.0], "grid": "", "time_source": "profiler",
    })  # fmt: skip


def copies_and_a_fill() -> pd.DataFrame:
    """An operator that copies twice within the device, and a fill."""
    within = {"kind": "Memcpy DtoD", "layer": "act", "phase": "forward", "op": "aten::clone"}
    return pd.DataFrame([
        {**within, "time_s": 0.25, "start_s": 1.0, "moved_bytes": 16, "index": 4},
        {**within, "time_s": 0.5, "start_s": 2.0, "moved_bytes": 24, "index": 4},
        {"kind": "Memset", "layer": "", "phase": "", "op": "", "time_s": 0.125, "start_s": 3.0,
         "moved_bytes": 4, "index": -1},
    ])  # fmt: skip


def test_a_small_profile_whole() -> None:
    profiled = ProfiledStep(
        kernels=three_kernels(), plan=PLAN, counted_s=6.0, taken_s=20.0,
        ratios={"copy": 1.01, "product fp32": 0.99, "product fp16": 1.02}, tool="ncu",
        tool_version="2025.3.1", busy_s=9.0, copies=copies_and_a_fill(), warnings=("careful",),
    )  # fmt: skip
    run = run_of_an_h200()
    step_time_s = replace(run.result.step_time_s, median=12.5)
    run = replace(run, result=replace(run.result, step_time_s=step_time_s))
    assert summarise(Request(task=TASK), profiled, run) == ProfileSummary(
        status="ok",
        provenance="counter",
        device_name="NVIDIA H200",
        backend="cuda",
        precision="tf32",
        tier="counters",
        level="dram",
        tool="ncu",
        tool_version="2025.3.1",
        iters=1,
        kernel_time_s=10.0,
        busy_time_s=9.0,
        step_time_s=12.5,
        gap_s=3.5,
        launches=3.0,
        copies=CopyTotals(launches=3.0, time_s=0.875, moved_bytes=44.0),
        attributed_share=0.8,
        layer_share=0.6,
        phases={
            "forward": {"launches": 1.0, "time_s": 6.0, "flops": 100.0},
            "optimizer": {"launches": 1.0, "time_s": 2.0, "flops": 10.0},
        },
        totals={**NOTHING, "fp32": 111.0, "dram_bytes": 60.0},
        plan=PLAN.to_dict(),
        cost=ProfileCost(planned_s=1.5, counted_s=6.0, taken_s=20.0, passes=1),
        self_test=SelfTest(
            copy_ratio=1.01,
            product_ratio=1.02,  # the worst one
            ratios={"copy": 1.01, "product fp32": 0.99, "product fp16": 1.02},
            is_trusted=True,
        ),
        warnings=("careful",),
    )


@pytest.mark.parametrize(
    ("ratios", "is_trusted"), [({"copy": 1.0}, True), ({"copy": 1.06}, False), ({}, False)]
)
def test_counters_are_trusted_if_they_were_tested(
    ratios: dict[str, float], is_trusted: bool
) -> None:
    profiled = ProfiledStep(kernels=three_kernels(), plan=PLAN, ratios=ratios)
    self_test = summarise(Request(task=TASK), profiled, None).self_test
    assert self_test is not None
    assert (self_test.is_trusted, self_test.product_ratio) == (is_trusted, None)


def test_two_steps_are_averaged() -> None:
    # given the kernels of two steps
    both = pd.concat([three_kernels(), three_kernels()], ignore_index=True)
    both["counter_time_s"] = 4.0
    before = both.copy()
    profiled = ProfiledStep(kernels=both, steps=2, plan=None)
    # then each row is half of what it was, and the sums are those of one step
    one = tables_of(profiled)["kernels"]
    sums = ["time_s", "counter_time_s", "dram_bytes", "flops_fp32_vector", "launches"]
    assert one[sums].sum().tolist() == [10.0, 12.0, 60.0, 111.0, 3.0]
    assert one["kernel"].tolist() == ["a", "b", "c"] * 2
    pd.testing.assert_frame_equal(both, before)
    summary = summarise(Request(task=TASK, steps=2), profiled, None)
    assert (summary.iters, summary.launches, summary.kernel_time_s) == (2, 3.0, 10.0)


# ---------------------------------------------------------------- as an H200 had it


# ---------------------------------------------------------------- from Python


@pytest.fixture
def h200(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = json.loads((DATA.parent / "run-h200-vgg16.json").read_text())["found"]
    found["step_time_s"]["median"] = 0.02

    def isolated(work: Any, task: Any, send: Any, **options: Any) -> Outcome[Any]:
        return Outcome(answer=MeasuredCase(result=from_dict(RunResult, found)))

    use_stand_ins(monkeypatch, tmp_path)
    monkeypatch.setattr("ridgeline.pipeline.cases.run_isolated", isolated)
    monkeypatch.setattr(
        "ridgeline.pipeline.profile.run_isolated",
        lambda work, task: attempt(work, task, lambda message: None),
    )
    monkeypatch.setattr("ridgeline.pipeline.profile.need_gpu", lambda selection: None)


@pytest.mark.usefixtures("h200")
def test_a_profile_from_python(tmp_path: Path) -> None:
    # when a step is measured and counted
    folder = tmp_path / "results"
    counted = ridgeline.profile("resnet50", batch_size=32, precision="amp", results=folder)
    # then both are stored, with what the model must do
    first, second, third = ResultsFolder(folder).read_runs()
    assert [first.run_id, second.run_id] == [counted.of_run, counted.run_id]
    assert (second.request.of_run, second.request.precision) == (first.run_id, "amp")
    assert second.request.profile == ProfileOptions(precision="amp")
    # three times forward, without the gradient of the images by the first convolution
    macs = 32 * (3 * 4_089_184_256 - 118_013_952)
    assert (third.request.command, third.result.macs) == ("count", macs)
    assert counted.totals["tensor_fp16"] == 797_680_599_040
    assert counted.totals["tensor_bf16"] is None
    assert len(counted.kernels) == 631
    assert str(counted) == f"631 kernels, 6.94 ms in a step of 20.0 ms; {counted.run_id}"


@pytest.mark.usefixtures("h200")
@pytest.mark.parametrize(
    ("options", "problem"),
    [({"backend": "cpu"}, "there is nothing to profile on cpu"), ({"tier": "all"}, "counters")],
)
def test_a_refusal_before_anything_runs(
    tmp_path: Path, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(RidgelineError, match=problem):
        ridgeline.profile("resnet50", **options, results=tmp_path / "results")
    assert not (tmp_path / "results").exists()


@pytest.mark.usefixtures("h200")
def test_a_failure_is_stored_and_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NCU", "busy")
    monkeypatch.setenv("FAKE_CUPTI", "absent")
    folder = tmp_path / "results"
    with pytest.raises(RidgelineError, match="another profiler held the GPU's counters") as raised:
        ridgeline.profile("resnet50", precision="amp", results=folder)
    _, failed = ResultsFolder(folder).read_runs()
    assert (failed.result.status, failed.result.reason) == ("failed", raised.value.problem)
    assert failed.result.device_name == "NVIDIA H200"
