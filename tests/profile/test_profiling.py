"""A step profiled by Nsight Compute, of which a stand-in plays back what an H200 said."""

import errno
import tempfile
from pathlib import Path

import pytest
from tests.profile.stand_ins import PROGRAM, use_stand_ins

from ridgeline.errors import RidgelineError
from ridgeline.measure.isolation import Outcome
from ridgeline.measure.worker import Task
from ridgeline.profile import profiling
from ridgeline.profile.profiling import need_counters, profile
from ridgeline.profile.request import Plan, ProfiledStep, Request
from ridgeline.records import WorkloadSpec
from ridgeline.settings import Settings

TASK = Task(
    spec=WorkloadSpec(model="resnet50", batch_size=32, mode="train"),
    settings=Settings(backend="cuda", precision="amp"),
)
OF_AN_H200 = {"memory_bytes": 2 * 10**9, "device_bytes": 150 * 10**9, "device": "H200"}


@pytest.fixture(autouse=True)
def _stand_ins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_stand_ins(monkeypatch, tmp_path)


def profiled(**asked: object) -> ProfiledStep:
    request = {**OF_AN_H200, "tool": "ncu", **asked}
    return profile(Request(task=TASK, **request))  # type: ignore[arg-type]


def test_every_kernel_has_its_counters_its_time_and_its_place() -> None:
    # when a step that was recorded on an H200 is profiled
    kernels = profiled().kernels
    # then all 631 kernels are there, with work from the counters and time from the trace
    assert len(kernels) == 631
    counters = ["dram_bytes", "flops_fp32_vector", "flops_fp16_matrix"]
    assert kernels[counters].notna().all().all()
    assert kernels["flops_fp16_matrix"].sum() == 797_680_599_040  # parts of two groups
    assert kernels["time_s"].sum() == pytest.approx(6.9416e-3, rel=1e-4)
    assert kernels["counter_time_s"].sum() == pytest.approx(7.5127e-3, rel=1e-4)
    sums = kernels.groupby("phase")["dram_bytes"].sum()
    assert sums.to_dict() == pytest.approx(
        {"forward": 3.110e9, "backward": 6.107e9, "optimizer": 4.87e8}, rel=1e-3
    )
    # and the kernel of the first convolution is known as such
    first = kernels[kernels["layer"].eq("conv1") & kernels["op"].str.contains("convolution")]
    assert first.groupby("phase").size().to_dict() == {"backward": 3, "forward": 3}


def test_what_is_counted_is_planned_in_fixed_groups() -> None:
    shown: list[Plan] = []
    request = Request(task=TASK, tool="ncu", memory_bytes=1, device_bytes=100, device="H200")
    profile(request, show_plan=shown.append)
    [plan] = shown
    assert (list(map(len, plan.groups)), plan.launches) == ([9, 5, 1], 631)


def test_a_dry_run_counts_nothing() -> None:
    found = profiled(is_dry=True)
    assert found.plan is not None
    assert "dram_bytes" not in found.kernels


def test_without_counters_there_are_times_and_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIDGELINE_NCU", "/nowhere/ncu")
    found = profiled(tier="time")
    assert found.plan is None
    assert set(found.kernels["phase"]) == {"forward", "backward", "optimizer"}
    assert found.kernels["time_s"].sum() == pytest.approx(6.9416e-3, rel=1e-4)


def test_two_steps_have_twice_the_kernels() -> None:
    found = profiled(tier="time", steps=2)
    assert (len(found.kernels), found.steps) == (2 * 631, 2)
    assert not found.kernels["phase"].eq("").any()


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ("permission", "the profiler may not read the GPU's counters"),
        ("busy", "another profiler held the GPU's counters"),
        ("lock", "ncu cannot take its lock file"),
        ("old", "which is too old"),
        ("empty", "no kernels were profiled"),
        ("dies", "ended with code 1: RuntimeError: the model broke"),
    ],
)
def test_each_way_to_fail_is_one_message(
    monkeypatch: pytest.MonkeyPatch, fault: str, problem: str
) -> None:
    monkeypatch.setenv("FAKE_NCU", fault)
    with pytest.raises(RidgelineError, match=problem):
        profiled()


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ("dies", "ended with code 1: RuntimeError: mat1 and mat2"),
        ("no-kernels", "the profiler saw no kernel in the step"),
        ("no-backward", "the captured step has no kernel in backward and optimizer"),
        ("unmarked", "the program ended without a marked step"),
    ],
)
def test_a_step_that_is_none_is_refused(
    monkeypatch: pytest.MonkeyPatch, fault: str, problem: str
) -> None:
    monkeypatch.setenv("FAKE_PROGRAM", fault)
    with pytest.raises(RidgelineError, match=problem):
        profiled()


@pytest.mark.parametrize(("memory_bytes", "is_parallel"), [(2 * 10**9, True), (60 * 10**9, False)])
def test_processes_wait_for_one_another_where_memory_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory_bytes: int, is_parallel: bool
) -> None:
    # given a traced program that holds its memory for a while after its step
    monkeypatch.setenv("FAKE_PROGRAM", "ends late")
    found = profiled(memory_bytes=memory_bytes, keep=tmp_path / "kept")
    assert found.plan is not None
    assert found.plan.is_parallel is is_parallel
    assert len(found.kernels) == 631
    # then the first process that counts begins after that, unless there is room for both
    [kept] = (tmp_path / "kept").iterdir()
    ended, begun = (kept / name for name in ("trace.ended", "group0.begin"))
    assert (begun.stat().st_mtime_ns < ended.stat().st_mtime_ns) is is_parallel


def test_captures_can_be_kept(tmp_path: Path) -> None:
    profiled(keep=tmp_path / "kept")
    [folder] = (tmp_path / "kept").iterdir()
    assert {"group0.csv", "group1.csv", "trace.trace1.json"} <= {f.name for f in folder.iterdir()}


def test_no_room_for_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setenv("TMPDIR", "/full")
    monkeypatch.setattr(tempfile, "TemporaryDirectory", full)
    with pytest.raises(RidgelineError) as raised:
        profiled()
    assert raised.value.problem == "cannot write to /full: No space left on device"
    assert raised.value.hint.endswith("name another place: TMPDIR=DIR in the environment")


# ---------------------------------------------------------------- programs of the user's


def test_a_marked_program_is_profiled_like_a_model() -> None:
    found = profile(Request(program=PROGRAM))
    # its type is not known, so every type is counted; the rest is as for a model
    assert found.plan is not None
    assert not found.plan.is_parallel
    assert len(found.kernels) == 631
    assert found.step_time_s == pytest.approx(0.0185)  # the median of 0.019 and 0.018


def test_a_program_without_marks_has_the_times_of_the_counters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAKE_PROGRAM", "unmarked")
    monkeypatch.setenv("FAKE_NCU", "unmarked")
    found = profile(Request(program=PROGRAM, steps=2))
    assert found.plan is None
    assert found.steps == 1  # what is between its own marks is taken as one
    assert set(found.kernels["time_source"]) == {"counter"}
    assert set(found.kernels["phase"]) == {""}
    assert any("mark the step with ridgeline.profile_step()" in w for w in found.warnings)


def test_a_program_that_cannot_be_started() -> None:
    with pytest.raises(RidgelineError, match=r"cannot start /nowhere/python: No such file"):
        profile(Request(program=("/nowhere/python", "train.py"), tier="time"))


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

    monkeypatch.setattr(profiling, "find_ncu", find_ncu)
    monkeypatch.setattr(profiling, "run_isolated", lambda work, task: Outcome(answer=has_cupti))
    if is_refused:
        with pytest.raises(RidgelineError, match=r"was not found|no CUPTI that can count"):
            need_counters(tool)
    else:
        need_counters(tool)
