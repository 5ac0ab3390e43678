"""A step that a process counts itself, played back as an H200 counted it; and who does instead."""

from pathlib import Path

import pytest
from tests.profile.stand_ins import use_stand_ins

from ridgeline.errors import RidgelineError
from ridgeline.measure.worker import Task
from ridgeline.profile import counting
from ridgeline.profile.profiling import profile, standing_by
from ridgeline.profile.request import Plan, ProfiledStep, Request
from ridgeline.records import WorkloadSpec
from ridgeline.settings import Settings

TASK = Task(
    spec=WorkloadSpec(model="resnet50", batch_size=32, mode="train"),
    settings=Settings(backend="cuda", precision="amp"),
)


@pytest.fixture(autouse=True)
def _stand_ins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_stand_ins(monkeypatch, tmp_path)


def asked(**more: object) -> Request:
    known = {"memory_bytes": 2 * 10**9, "device_bytes": 150 * 10**9, "device": "H200"}
    return Request(task=TASK, **{**known, **more})  # type: ignore[arg-type]


def profiled(**more: object) -> ProfiledStep:
    return profile(asked(**more))


def test_every_kernel_has_its_counters_its_time_and_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given no Nsight Compute
    monkeypatch.setenv("RIDGELINE_NCU", "/nowhere/ncu")
    found = profiled()
    # then all 631 kernels are there, with work from the counters and time from the trace
    kernels = found.kernels
    assert len(kernels) == 631
    counters = ["dram_bytes", "flops_fp32_vector", "flops_fp16_matrix"]
    assert kernels[counters].notna().all().all()
    assert kernels["flops_fp16_matrix"].sum() == 797_680_599_040
    assert kernels["dram_bytes"].sum() == 9_925_320_448
    assert kernels["time_s"].sum() == pytest.approx(6.9416e-3, rel=1e-4)
    sums = kernels.groupby("phase")["flops_fp16_matrix"].sum()
    assert sums["backward"] / sums["forward"] == pytest.approx(1.95, abs=0.01)
    # and the work of known size is what it is
    assert found.ratios == pytest.approx(
        {"copy": 1.00142, "product fp16": 1.0, "product fp32": 1.00024}, abs=1e-5
    )
    assert (found.tool, found.tool_version) == ("cupti", "13.0.1")
    assert found.warnings == ()


def test_the_plan_is_of_all_kernels() -> None:
    shown: list[Plan] = []
    profile(asked(), show_plan=shown.append)
    [plan] = shown
    assert (list(map(len, plan.groups)), plan.passes) == ([13], 3)
    assert (plan.tool, plan.launches) == ("cupti", 631)
    # 2.5 s, and 1.1 ms for each of 631 kernels in 3 passes
    assert plan.time_s == pytest.approx(2.5 + 3 * 631 * 0.0011)


def test_a_dry_run_counts_nothing() -> None:
    found = profiled(is_dry=True)
    assert found.plan is not None
    assert found.plan.tool == "cupti"
    assert "dram_bytes" not in found.kernels


def test_several_steps() -> None:
    found = profiled(steps=2)
    assert (len(found.kernels), found.steps) == (2 * 631, 2)
    assert found.kernels["flops_fp16_matrix"].sum() == 2 * 797_680_599_040


def test_where_memory_is_short_it_begins_after_the_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_PROGRAM", "ends late")
    found = profiled(memory_bytes=100 * 10**9, keep=tmp_path / "kept")
    assert found.plan is not None
    assert not found.plan.is_parallel
    [kept] = (tmp_path / "kept").iterdir()
    ended, begun = (kept / name for name in ("trace.ended", "inside.begin"))
    assert begun.stat().st_mtime_ns > ended.stat().st_mtime_ns


def test_ncu_is_not_asked_while_processes_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIDGELINE_NCU", "/nowhere/ncu")
    with standing_by(asked()) as standby:
        standby.wait_loaded()
        assert standby.profile().tool == "cupti"


# ---------------------------------------------------------------- who does instead


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("absent", "this PyTorch comes without CUPTI"),
        ("graphs", "kernels of a CUDA graph cannot be told apart"),
        ("dies", "the program under the profiler ended with code 1: Segmentation fault"),
    ],
)
def test_what_it_cannot_count_nsight_compute_does(
    monkeypatch: pytest.MonkeyPatch, fault: str, why: str
) -> None:
    monkeypatch.setenv("FAKE_CUPTI", fault)
    found = profiled()
    assert (found.tool, found.tool_version) == ("ncu", "2025.3.1.0")
    assert found.warnings == (f"Nsight Compute counted, and not CUPTI: {why}",)
    assert found.kernels["dram_bytes"].sum() == 9_704_305_152  # as ncu counted


def test_the_plan_of_nsight_compute_follows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FAKE_CUPTI", "graphs")
    shown: list[Plan] = []
    profile(asked(keep=tmp_path / "kept"), show_plan=shown.append)
    assert [plan.tool for plan in shown] == ["cupti", "ncu"]
    # and its processes warmed up side by side, before the first of them counted
    [kept] = (tmp_path / "kept").iterdir()
    last_ready_ns = max((kept / f"group{n}.ready").stat().st_mtime_ns for n in range(3))
    assert last_ready_ns <= (kept / "group0.go").stat().st_mtime_ns


@pytest.mark.parametrize(
    ("fault", "why"),
    [("late", "the program was not ready"), ("hangs", "the step was not counted")],
)
def test_one_that_takes_too_long_is_ended(
    monkeypatch: pytest.MonkeyPatch, fault: str, why: str
) -> None:
    monkeypatch.setenv("FAKE_CUPTI", fault)
    monkeypatch.setattr("ridgeline.profile.processes.READY_S", 1.5)
    monkeypatch.setattr(counting, "LIMIT_S", 0.2)
    monkeypatch.setattr("ridgeline.profile.processes.LIMIT_TIMES", 0)
    found = profiled()
    assert found.tool == "ncu"
    assert found.warnings[0].endswith(f"CUPTI: {why} within 0 minutes")


def test_it_is_known_while_the_processes_load(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a PyTorch without it
    monkeypatch.setenv("FAKE_CUPTI", "absent")
    with standing_by(asked()) as standby:
        # when everything has loaded
        standby.wait_loaded()
        # then that includes the processes for ncu
        loaded = [session.job.name for session in standby.workspace.sessions]
        assert loaded == ["trace", "inside", "group0", "group1", "group2"]
        assert standby.profile().tool == "ncu"


NO_GRAPHS = "kernels of a CUDA graph cannot be told apart"


@pytest.mark.parametrize(
    ("faults", "tool", "problem"),
    [
        ({"FAKE_CUPTI": "graphs"}, "cupti", f"CUPTI cannot count here: {NO_GRAPHS}"),
        ({"FAKE_CUPTI": "permission"}, "auto",
         r"the profiler may not read the GPU's counters \(ERR_NVGPUCTRPERM\)"),
        ({"FAKE_CUPTI": "graphs", "RIDGELINE_NCU": "/nowhere/ncu"}, "auto",
         "gave no answer.*; CUPTI cannot count either: kern"),
    ],
    ids=["no other tool", "permission", "neither"],
)  # fmt: skip
def test_where_nothing_can_count(
    monkeypatch: pytest.MonkeyPatch, faults: dict[str, str], tool: str, problem: str
) -> None:
    for name, fault in faults.items():
        monkeypatch.setenv(name, fault)
    with pytest.raises(RidgelineError, match=problem):
        profiled(tool=tool)
