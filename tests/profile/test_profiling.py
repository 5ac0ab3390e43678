"""A step that was recorded on an H200, profiled again: by CUPTI, or by Nsight Compute instead."""

from pathlib import Path

import pytest
from tests.profile.stand_ins import PROGRAM, use_stand_ins

from ridgeline.errors import RidgelineError
from ridgeline.measure.isolation import Outcome
from ridgeline.measure.worker import Task
from ridgeline.profile import counting, profiling
from ridgeline.profile.profiling import need_counters, profile
from ridgeline.profile.request import Plan, ProfiledStep, Request, read_metric_names
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


def request(**more: object) -> Request:
    return Request(task=TASK, **{**OF_AN_H200, **more})  # type: ignore[arg-type]


def profiled(**more: object) -> ProfiledStep:
    return profile(request(**more))


# ---------------------------------------------------------------- every kernel


def test_every_kernel_by_cupti(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_every_kernel_by_nsight_compute() -> None:
    kernels = profiled(tool="ncu").kernels
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


# ---------------------------------------------------------------- plans, and who waits for whom


@pytest.mark.parametrize(
    ("tool", "groups", "passes", "time_s"),
    [
        # 2.5 s, and 1.1 ms for each of 631 kernels in 3 passes
        ("cupti", [13], 3, 2.5 + 3 * 631 * 0.0011),
        # three processes of 1.6 s, and 23 ms for each kernel in each
        ("ncu", [9, 5, 1], 3, 3 * (1.6 + 631 * 0.023)),
    ],
)
def test_the_plan_is_of_all_kernels(
    tool: str, groups: list[int], passes: int, time_s: float
) -> None:
    shown: list[Plan] = []
    found = profile(request(tool=tool, is_dry=True), show_plan=shown.append)
    [plan] = shown
    assert found.plan == plan
    assert (plan.tool, list(map(len, plan.groups)), plan.passes) == (tool, groups, passes)
    assert plan.launches == 631
    assert plan.time_s == pytest.approx(time_s)
    # and a dry run counts nothing
    assert "dram_bytes" not in found.kernels


@pytest.mark.parametrize(
    ("tool", "memory_bytes", "first", "is_parallel"),
    [
        ("ncu", 2 * 10**9, "group0.begin", True),
        ("ncu", 60 * 10**9, "group0.begin", False),
        ("cupti", 100 * 10**9, "inside.begin", False),
    ],
)
def test_processes_wait_for_one_another_where_memory_is_short(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tool: str,
    memory_bytes: int,
    first: str,
    is_parallel: bool,
) -> None:
    # given a traced program that holds its memory for a while after its step
    monkeypatch.setenv("FAKE_PROGRAM", "ends late")
    found = profiled(tool=tool, memory_bytes=memory_bytes, keep=tmp_path / "kept")
    assert found.plan is not None
    assert found.plan.is_parallel is is_parallel
    assert len(found.kernels) == 631
    # then the first process that counts begins after that, unless there is room for both
    [kept] = (tmp_path / "kept").iterdir()
    ended, begun = (kept / name for name in ("trace.ended", first))
    assert (begun.stat().st_mtime_ns < ended.stat().st_mtime_ns) is is_parallel


# ---------------------------------------------------------------- what goes wrong


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
        profiled(tool="ncu")


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
        profiled(tool="ncu")


# ---------------------------------------------------------------- who counts instead of CUPTI

NO_GRAPHS = "kernels of a CUDA graph cannot be told apart"


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("absent", "this PyTorch comes without CUPTI"),
        ("graphs", NO_GRAPHS),
        ("dies", "the program under the profiler ended with code 1: Segmentation fault"),
        ("late", "the program was not ready within 0 minutes"),
        ("hangs", "the step was not counted within 0 minutes"),
    ],
)
def test_what_it_cannot_count_nsight_compute_does(
    monkeypatch: pytest.MonkeyPatch, fault: str, why: str
) -> None:
    monkeypatch.setenv("FAKE_CUPTI", fault)
    if "minutes" in why:
        monkeypatch.setattr("ridgeline.profile.processes.READY_S", 1.5)
        monkeypatch.setattr(counting, "LIMIT_S", 0.2)
        monkeypatch.setattr("ridgeline.profile.processes.LIMIT_TIMES", 0)
    found = profiled()
    assert (found.tool, found.tool_version) == ("ncu", "2025.3.1.0")
    assert found.warnings == (f"Nsight Compute counted, and not CUPTI: {why}",)
    assert found.kernels["dram_bytes"].sum() == 9_704_305_152  # as ncu counted


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


# ---------------------------------------------------------------- programs of the user's


def test_a_marked_program_is_profiled_like_a_model() -> None:
    found = profile(Request(program=PROGRAM))
    # its type is not known, so every type is counted; the rest is as for a model
    assert found.plan is not None
    assert not found.plan.is_parallel
    assert len(found.kernels) == 631
    assert found.step_time_s == pytest.approx(0.0185)  # the median of 0.019 and 0.018


def test_metrics_of_the_users_own_are_columns(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("lts__t_bytes, l1tex__t_bytes.sum  # caches\nno__such.sum")
    names = read_metric_names(tmp_path / "mine.txt")
    assert names == ("lts__t_bytes.sum", "l1tex__t_bytes.sum", "no__such.sum")
    # when Nsight Compute counts them, in a group of their own
    found = profiled(tool="ncu", metrics=names)
    assert found.plan is not None
    assert found.plan.groups[-1] == (*names[:2], "gpu__time_duration.sum")
    assert found.plan.missing == ("no__such.sum",)
    # then every kernel has them, beside what is derived
    columns = found.kernels[[*names[:2]]]
    assert columns.notna().all().all()
    assert found.kernels["flops_fp16_matrix"].sum() == 797_680_599_040


def test_names_of_nvprof_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("flop_count_sp")
    with pytest.raises(RidgelineError, match="is no metric of Nsight Compute"):
        read_metric_names(tmp_path / "mine.txt")
