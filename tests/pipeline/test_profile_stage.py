"""The stage of an analysis that counts: skipped, failed or done, and never in the way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ridgeline.errors import RidgelineError
from ridgeline.measure.worker import Task
from ridgeline.pipeline import profile as counters
from ridgeline.pipeline.profile import profile_stage
from ridgeline.pipeline.stages import Stages
from ridgeline.profile.request import Request
from ridgeline.store import ResultsFolder, Run, to_run

DATA = Path(__file__).parents[1] / "data"
NO_NCU = RidgelineError("no ncu", hint="get one")


def run_of(model: str) -> Run:
    asked = {"model": model, "batch_size": 8, "mode": "train", "input_size": None, "seq_len": None,
             "config": {}}  # fmt: skip
    recorded = json.loads((DATA / "run-h200-vgg16.json").read_text(encoding="utf-8"))
    return to_run(Path(model), {**recorded, "asked": {**recorded["asked"], **asked}})


@pytest.fixture(autouse=True)
def _has_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "need_counters", lambda tool: None)


def staged(
    monkeypatch: pytest.MonkeyPatch,
    profile_run: Callable[..., Run | None],
    *,
    device: str = "cuda:0",
    is_requested: bool = True,
) -> tuple[list[str], list[dict[str, Any]], list[str]]:
    """Profiles of two models, how the stages stand after it and the next one, and what was told."""
    monkeypatch.setattr(counters, "profile_run", profile_run)
    stages, told = Stages(), list[str]()
    made = profile_stage(
        stages,
        ResultsFolder(Path("results")),
        [run_of("vgg16"), run_of("resnet50")],
        device=device,
        is_requested=is_requested,
        on_start=told.append,
        on_progress=told.append,
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
    ("device", "is_requested", "reason"),
    [
        ("cuda:0", False, "it was not asked for"),
        ("cpu", True, "counters are those of NVIDIA GPUs"),
        ("mps", True, "counters are those of NVIDIA GPUs"),
        ("cpu", False, "it was not asked for"),
    ],
)
def test_skipped(
    monkeypatch: pytest.MonkeyPatch, device: str, is_requested: bool, reason: str
) -> None:
    made, stages, _ = staged(monkeypatch, never, device=device, is_requested=is_requested)
    assert (made, stages) == ([], stage("skipped", reason))


def test_skipped_with_nothing_to_count_with(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(tool: str) -> None:
        raise NO_NCU

    monkeypatch.setattr(counters, "need_counters", none)
    made, stages, _ = staged(monkeypatch, never)
    assert (made, stages) == ([], stage("skipped", "no ncu   hint: get one"))


def test_done(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def profiled(
        results: Any, run: Run, task: Task, options: Any, *, on_progress: Any, **_: Any
    ) -> Run:
        asked.append((run.run_id, task.spec.model, task.settings.iters, options))
        on_progress("counting, 1 of 2")
        return run_of(f"profile-{run.run_id}")

    made, stages, told = staged(monkeypatch, profiled)
    assert made == ["profile-vgg16", "profile-resnet50"]
    assert stages == stage("done", "counters of 2 runs")
    # all levels of memory
    options = {"level": "hierarchical"}
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


class Loaded:
    """A profile that can begin, of which only who hears of it is asked."""

    def __init__(self) -> None:
        self.workspace = self
        self.on_progress: Callable[[str], None] = print


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What processes that are loaded ahead do."""
    seen: list[str] = []

    @contextmanager
    def standing_by(request: Request) -> Iterator[Loaded]:
        assert request.task is not None
        model = request.task.spec.model
        seen.append(f"{model} loads")
        yield Loaded()
        seen.append(f"{model} ends")

    monkeypatch.setattr(counters, "standing_by", standing_by)
    return seen


def test_the_next_loads_while_this_one_counts(
    monkeypatch: pytest.MonkeyPatch, events: list[str]
) -> None:
    def profiled(
        results: Any, run: Run, *_: Any, show_plan: Any, standby: Loaded | None, **__: Any
    ) -> Run:
        events.append(f"{run.run_id} is profiled" + ", loaded" * (standby is not None))
        if standby is not None:
            standby.on_progress(f"{run.run_id} speaks")
        show_plan(None)
        events.append(f"{run.run_id} is counted")
        return run

    _, stages, told = staged(monkeypatch, profiled)
    assert stages == stage("done", "counters of 2 runs")
    assert events == [
        "vgg16 is profiled",
        "resnet50 loads",
        "vgg16 is counted",
        "resnet50 is profiled, loaded",
        "resnet50 is counted",
        "resnet50 ends",
    ]
    assert told[-1] == "resnet50 speaks"


def test_what_was_loaded_ahead_ends_with_the_stage(
    monkeypatch: pytest.MonkeyPatch, events: list[str]
) -> None:
    def broken(*_: Any, show_plan: Any, **__: Any) -> Run:
        show_plan(None)
        raise RidgelineError("it broke", hint="mend it")

    _, stages, _ = staged(monkeypatch, broken)
    assert stages == stage("failed", "it broke   hint: mend it")
    assert events == ["resnet50 loads", "resnet50 ends"]


def test_what_cannot_be_loaded_ahead_is_in_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(*_: Any, **__: Any) -> None:
        raise RidgelineError("cannot write to /full", hint="make room")

    def profiled(results: Any, run: Run, *_: Any, show_plan: Any, standby: Any, **__: Any) -> Run:
        show_plan(None)
        assert standby is None
        return run

    monkeypatch.setattr(counters, "standing_by", cannot)
    made, stages, _ = staged(monkeypatch, profiled)
    assert (made, stages) == (["vgg16", "resnet50"], stage("done", "counters of 2 runs"))
