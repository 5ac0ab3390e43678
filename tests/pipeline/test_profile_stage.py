"""The profiles of an analysis: whether there are any, and one that fails is in no other's way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ridgeline.errors import RidgelineError
from ridgeline.measure.worker import Task
from ridgeline.pipeline import profile
from ridgeline.pipeline.profile import profile_runs, reason_to_skip
from ridgeline.store import ResultsFolder, Run, to_run

DATA = Path(__file__).parents[1] / "data"
RESULTS = ResultsFolder(Path("results"))


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
    assert profile_runs(RESULTS, runs, on_start=heard, on_progress=heard) == result
    assert tasks == [(name, name, None, {"level": "hierarchical"}) for name in profiled]
    assert messages[:2] == ["counters: vgg16, batch 128", "counting, 1 of 2"]
