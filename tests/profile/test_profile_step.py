"""The mark around a step: nothing without a job, and with one what the job says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import ridgeline
from ridgeline.profile import profile_step as step_mark
from ridgeline.profile.profile_step import (
    COUNTERS,
    TRACE,
    Job,
    hold_parent_lock,
    job_here,
    profile_step,
)


@pytest.fixture(autouse=True)
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a program without a GPU would have asked of one."""
    events: list[str] = []

    def noted(what: str) -> Callable[..., None]:
        return lambda *_: events.append(what)

    monkeypatch.delenv("RIDGELINE_PROFILE_JOB", raising=False)
    monkeypatch.setattr(step_mark, "_seen", step_mark._SeenSteps())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda.profiler, "start", noted("start"))
    monkeypatch.setattr(torch.cuda.profiler, "stop", noted("stop"))
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", lambda name: events.append(name))
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", noted("pop"))
    known_work = "ridgeline.profile.profile_step"
    monkeypatch.setattr(f"{known_work}.load_known_work", lambda kinds: None)
    monkeypatch.setattr(f"{known_work}.copy_size", lambda: 8)
    monkeypatch.setattr(
        f"{known_work}.run_known_work", lambda kinds, size: events.append(f"test {kinds}")
    )
    return events


def given(
    monkeypatch: pytest.MonkeyPatch, folder: Path, *, must_wait: bool = False, **asked: Any
) -> Job:
    """A job for this process, whose turn has come unless it must wait."""
    job = Job(name="one", folder=str(folder), **{"role": COUNTERS, "warmup": 2, **asked})
    monkeypatch.setenv("RIDGELINE_PROFILE_JOB", str(job.write()))
    if not must_wait:
        job.path("go").touch()
    return job


def loop(steps: int = 9) -> int:
    """A program that marks its steps; answers how many it took."""
    taken = 0
    x = torch.ones(2)
    with pytest.raises(SystemExit) as ended:
        for _ in range(steps):
            with ridgeline.profile_step():
                taken += 1
                x.neg()
                x.neg()
        raise SystemExit("never ended")
    assert ended.value.code == 0
    return taken


# ---------------------------------------------------------------- without a job


def test_nothing_happens_without_a_job(events: list[str]) -> None:
    with profile_step():
        torch.ones(2).neg()
    assert events == []
    assert job_here() is None


# ---------------------------------------------------------------- with one


def test_the_step_after_the_warm_up_is_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, events: list[str]
) -> None:
    # given two steps of warm-up, when a program would take nine
    job = given(monkeypatch, tmp_path, kinds=("fp16",))
    assert loop() == 3
    # then the known work and the third step are counted, and the program ends
    assert events == [
        "test ('fp16',)",
        "start", "ridgeline:op:0", "pop", "ridgeline:op:1", "pop", "stop",
    ]  # fmt: skip
    assert len(json.loads(job.path("times.json").read_text())) == 2
    assert job.path("done").exists()
    assert json.loads(job.path("ops1.json").read_text()) == [
        {"index": 0, "op": "aten::neg", "layer": "(loss)", "phase": "forward"},
        {"index": 1, "op": "aten::neg", "layer": "(loss)", "phase": "forward"},
    ]


def test_compiled_code_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, events: list[str]
) -> None:
    job = given(monkeypatch, tmp_path, has_marks=False)
    loop()
    assert events[1:] == ["start", "stop"]
    assert not job.path("ops1.json").exists()


@pytest.mark.filterwarnings("ignore:CUDA is not available")
def test_a_traced_step_leaves_a_trace(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, events: list[str]
) -> None:
    job = given(monkeypatch, tmp_path, role=TRACE, warmup=1)
    assert loop() == 2
    trace = json.loads(job.path("trace1.json").read_text())
    names = {event.get("name") for event in trace["traceEvents"]}
    assert {"ridgeline:op:0", "ridgeline:op:1", "aten::neg"} <= names
    assert events == []  # nobody counts


def test_a_program_waits_for_its_turn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    job = given(monkeypatch, tmp_path, must_wait=True)
    monkeypatch.setattr(step_mark, "PARENT_CHECK_S", 0.0)
    with hold_parent_lock(tmp_path):
        timer = threading.Timer(0.1, job.path("go").touch)
        timer.start()
        assert loop() == 3
        timer.join()


def test_one_of_several_processes_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given(monkeypatch, tmp_path)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SystemExit, match="one of 2 processes, and one alone"), profile_step():
        raise AssertionError("it must not run")
    monkeypatch.setenv("WORLD_SIZE", "1")  # of torchrun with one process
    assert loop() == 3


def test_nobody_waits_for_one_who_is_gone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # given someone who asked, and who has ended since
    given(monkeypatch, tmp_path, must_wait=True, warmup=0)
    with hold_parent_lock(tmp_path):
        pass
    with pytest.raises(SystemExit, match="the parent process of one ended"), profile_step():
        raise AssertionError("not our turn")
