"""The stage of an analysis that counts: skipped, failed or done, and never in the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ridgeline.analyze import counters
from ridgeline.analyze.counters import profile_stage
from ridgeline.analyze.stages import Stages
from ridgeline.errors import RidgelineError
from ridgeline.measure.settings import Settings
from ridgeline.measure.tasks import Task
from ridgeline.profile.ncu import Ncu
from ridgeline.store import ResultsFolder, Run

NO_NCU = RidgelineError("no ncu", hint="get one")


def run_of(model: str) -> Run:
    asked = {"model": model, "batch_size": 8, "mode": "train", "input_size": None, "seq_len": None,
             "config": {}}  # fmt: skip
    return Run(run_id=model, path=Path(model), schema_version=1, asked=asked, found={},
               provenance={})  # fmt: skip


@pytest.fixture(autouse=True)
def _has_ncu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "find_ncu", lambda: Ncu("/opt/ncu", "2025.3.1"))


def staged(
    monkeypatch: pytest.MonkeyPatch,
    profile_run: Callable[..., Run | None],
    *,
    device: str = "cuda:0",
    is_wanted: bool = True,
) -> tuple[list[str], list[dict[str, Any]], list[str]]:
    """Profiles of two models, how the stages stand after it and the next one, and what was told."""
    monkeypatch.setattr(counters, "profile_run", profile_run)
    stages, told = Stages(), list[str]()
    made = profile_stage(
        stages,
        ResultsFolder(Path("results")),
        [(run_of("vgg16"), Settings(iters=5)), (run_of("resnet50"), Settings(iters=5))],
        device=device,
        is_wanted=is_wanted,
        start=told.append,
        tell=told.append,
    )
    stages.note("report", "written")
    return [run.run_id for run in made], stages.to_dict(), told


def stage(status: str, reason: str) -> list[dict[str, Any]]:
    time_s: Any = pytest.approx(0, abs=5)
    return [
        {"stage": "profile", "status": status, "reason": reason, "time_s": time_s},
        {"stage": "report", "status": "done", "reason": "written", "time_s": 0.0},
    ]


def never(*_: Any, **__: Any) -> Run:
    raise AssertionError("nothing is to be profiled")


@pytest.mark.parametrize(
    ("device", "is_wanted", "reason"),
    [
        ("cuda:0", False, "it was not asked for"),
        ("cpu", True, "counters are those of NVIDIA GPUs"),
        ("mps", True, "counters are those of NVIDIA GPUs"),
        ("cpu", False, "it was not asked for"),
    ],
)
def test_skipped(
    monkeypatch: pytest.MonkeyPatch, device: str, is_wanted: bool, reason: str
) -> None:
    made, stages, _ = staged(monkeypatch, never, device=device, is_wanted=is_wanted)
    assert (made, stages) == ([], stage("skipped", reason))


def test_skipped_without_ncu(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Ncu:
        raise NO_NCU

    monkeypatch.setattr(counters, "find_ncu", none)
    made, stages, _ = staged(monkeypatch, never)
    assert (made, stages) == ([], stage("skipped", "no ncu   hint: get one"))


def test_done(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def profiled(results: Any, run: Run, task: Task, options: Any, *, tell: Any) -> Run:
        asked.append((run.run_id, task.spec.model, task.settings.iters, options))
        tell("counting, 1 of 2")
        return run_of(f"profile-{run.run_id}")

    made, stages, told = staged(monkeypatch, profiled)
    assert made == ["profile-vgg16", "profile-resnet50"]
    assert stages == stage("done", "counters of 2 runs")
    # each kind of work once, all levels of memory
    options = {"deduplicate": True, "level": "hierarchical"}
    assert asked == [("vgg16", "vgg16", None, options), ("resnet50", "resnet50", None, options)]
    assert told == ["counters: vgg16, batch 8", "counting, 1 of 2",
                    "counters: resnet50, batch 8", "counting, 1 of 2"]  # fmt: skip


def test_what_ails_the_first_ails_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def broken(results: Any, run: Run, *_: Any, **__: Any) -> Run:
        asked.append(run.run_id)
        raise RidgelineError("no permission", hint="ask for it")

    made, stages, _ = staged(monkeypatch, broken)
    # then it is a failed stage, tried once, and the analysis goes on
    assert (made, asked) == ([], ["vgg16"])
    assert stages == stage("failed", "no permission   hint: ask for it")


def test_one_failure_of_several_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def half(results: Any, run: Run, *_: Any, **__: Any) -> Run:
        if run.run_id == "resnet50":
            raise RidgelineError("it broke", hint="mend it")
        return run

    made, stages, _ = staged(monkeypatch, half)
    assert made == ["vgg16"]
    assert stages == stage("done", "counters of 1 runs; it broke   hint: mend it")
