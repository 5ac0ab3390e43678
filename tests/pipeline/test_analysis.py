"""The stages of an analysis: what is kept of them, the batch that is chosen, what is profiled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ridgeline.errors import RidgelineError
from ridgeline.measure.worker import Task
from ridgeline.pipeline import profile
from ridgeline.pipeline.analyze import Stage, begin_stage, write_stages
from ridgeline.pipeline.count_models import choose_batch
from ridgeline.pipeline.profile import profile_runs, reason_to_skip
from ridgeline.report.study import read_stages
from ridgeline.store import ResultsFolder, Run, to_run

DATA = Path(__file__).parents[1] / "data"


def test_stages_are_kept_for_the_report(tmp_path: Path) -> None:
    # given a stage that works, one that fails and one that is skipped
    stages: list[Stage] = []
    with begin_stage(stages, "machine") as stage:
        stage.status, stage.reason = "cached", "kept from 2026-11-15"
    with begin_stage(stages, "count"):
        raise RidgelineError("no formula", hint="register one")
    with begin_stage(stages, "profile") as stage:
        stage.status, stage.reason = "skipped", "no counters"
    write_stages(tmp_path, stages, ["r1"])
    # when they are read back
    found = read_stages(tmp_path, ["r1"])
    # then each has its status and reason, and the failure ended nothing
    assert found == (
        {"stage": "machine", "status": "cached", "reason": "kept from 2026-11-15"},
        {"stage": "count", "status": "failed", "reason": "no formula   hint: register one"},
        {"stage": "profile", "status": "skipped", "reason": "no counters"},
    )
    # and they are not told of other runs
    assert read_stages(tmp_path, ["r1", "r2"]) == ()


@pytest.mark.parametrize(
    ("kind", "flops_each", "bytes_each", "flops_per_s", "memory", "batch"),
    [
        ("cuda", 1e9, 1e6, 1e13, 1e11, 64),  # nothing is in the way
        ("cpu", 2e10, 1e6, 2e11, 1e10, 4),  # 0.4 s at the roof; 8 would take 0.8 s
        ("cpu", 1e9, 1e6, 2e11, 1e10, 8),  # a processor is full with few samples
        ("cpu", 1e9, 1e9, 1e13, 1e10, 4),  # 4 GB of 10, 8 would be more than 70 %
        ("cpu", 1e12, 1e6, 1e11, None, 1),  # one sample is slow already
        ("mps", 1e9, 1e6, None, None, 32),  # nothing is known
    ],
)
def test_the_largest_that_fits_and_is_soon_done(
    kind: str,
    flops_each: float,
    bytes_each: float,
    flops_per_s: float | None,
    memory: float | None,
    batch: int,
) -> None:
    found = choose_batch(
        lambda n: (n * flops_each, n * bytes_each),
        kind=kind,
        flops_per_s=flops_per_s,
        memory_bytes=memory,
    )
    assert found == batch


def run_of(model: str) -> Run:
    recorded = json.loads((DATA / "run-h200-vgg16.json").read_text(encoding="utf-8"))
    return to_run(Path(model), {**recorded, "asked": {**recorded["asked"], "model": model}})


@pytest.mark.parametrize(
    ("device", "is_requested", "error", "reason"),
    [
        ("cuda:0", True, None, ""),
        ("cuda:0", False, None, "it was not asked for"),
        ("cpu", True, None, "counters are those of NVIDIA GPUs"),
        ("mps", True, None, "counters are those of NVIDIA GPUs"),
        ("cpu", False, None, "it was not asked for"),
        ("cuda:0", True, RidgelineError("no ncu", hint="get one"), "no ncu   hint: get one"),
    ],
)
def test_why_nothing_is_profiled(
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    is_requested: bool,
    error: RidgelineError | None,
    reason: str,
) -> None:
    def need_counters(tool: str) -> None:
        if error is not None:
            raise error

    monkeypatch.setattr(profile, "need_counters", need_counters)
    assert reason_to_skip(device, is_requested=is_requested) == reason


@pytest.mark.parametrize(
    ("broken", "profiled", "result"),
    [
        ((), ["vgg16", "resnet50"], (2, [])),
        (("resnet50",), ["vgg16", "resnet50"], (1, ["it broke   hint: fix it"])),
        # what ails the first will ail the others
        (("vgg16", "resnet50"), ["vgg16"], (0, ["it broke   hint: fix it"])),
    ],
)
def test_each_run_is_profiled_with_all_levels_of_memory(
    monkeypatch: pytest.MonkeyPatch,
    broken: tuple[str, ...],
    profiled: list[str],
    result: tuple[int, list[str]],
) -> None:
    tasks: list[Any] = []
    messages: list[str] = []

    def profile_run(_: Any, run: Run, task: Task, options: Any, *, on_progress: Any) -> Run:
        tasks.append((run.run_id, task.spec.model, task.settings.iters, options))
        on_progress("counting, 1 of 2")
        if run.run_id in broken:
            raise RidgelineError("it broke", hint="fix it")
        return run

    monkeypatch.setattr(profile, "profile_run", profile_run)
    runs = [run_of("vgg16"), run_of("resnet50")]
    heard = messages.append
    assert profile_runs(ResultsFolder(), runs, on_start=heard, on_progress=heard) == result
    assert tasks == [(name, name, None, {"level": "hierarchical"}) for name in profiled]
    assert messages[:2] == ["counters: vgg16, batch 128", "counting, 1 of 2"]
