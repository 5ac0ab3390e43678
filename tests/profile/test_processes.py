"""The processes of a profile: they wait for one another, and none stays behind."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

import ridgeline
from ridgeline.errors import RidgelineError
from ridgeline.profile import profile_step as step_mark
from ridgeline.profile.processes import (
    Ncu,
    Session,
    all_ended,
    start_session,
    wait_until,
)
from ridgeline.profile.profile_step import (
    COUNTERS,
    TRACE,
    Job,
    job_here,
    profile_step,
)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="groups of processes")


def started(folder: Path, script: str, ncu: Ncu | None = None) -> Session:
    """A shell script as a program under a job; $J is the start of the job's file names."""
    job = Job(name="one", role=COUNTERS, folder=str(folder))
    return start_session(["sh", "-c", f"J={folder}/one; {script}"], job, ncu, ["a.sum"])


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def ended(folder: Path, script: str) -> Session:
    session = started(folder, script)
    session.process.wait()
    return session


def test_an_interrupt_leaves_no_process_behind(tmp_path: Path) -> None:
    # given a program with a child of its own
    session = started(tmp_path, "sleep 60 & echo $! > $J.child; touch $J.ready; wait")
    # when Ctrl-C comes
    with pytest.raises(KeyboardInterrupt), all_ended([session]):
        wait_until("ready", [session])
        raise KeyboardInterrupt
    # then both are gone
    child = int((tmp_path / "one.child").read_text())
    end_s = time.monotonic() + 5
    while runs(child) and time.monotonic() < end_s:
        time.sleep(0.01)
    assert not runs(session.process.pid)
    assert not runs(child)


def test_a_program_hears_when_its_turn_has_come(tmp_path: Path) -> None:
    session = started(
        tmp_path,
        "touch $J.ready; while [ ! -e $J.go ]; do sleep 0.01; done; cat $J.go; touch $J.done",
    )
    with all_ended([session]):
        wait_until("ready", [session])
        session.go("631")
        session.wait_done()
        session.wait()
    assert session.output == "631"


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("echo Traceback; echo ValueError: no; exit 1", "ended with code 1: ValueError: no"),
        ("exit 7", "ended with code 7: it said nothing"),
        ("echo '==PROF== Connected'; exit 7", "ended with code 7: it said nothing"),
        ("kill -9 $$", "ended with code -9: it said nothing"),
        ("printf '\\377 broke\\n'; exit 1", "ended with code 1: \ufffd broke"),
    ],
)
def test_a_program_that_fails_says_why(tmp_path: Path, script: str, problem: str) -> None:
    session = ended(tmp_path, script)
    with pytest.raises(RidgelineError, match=problem):
        wait_until("ready", [session])
    with pytest.raises(RidgelineError, match=problem):
        session.wait_done()
    with pytest.raises(RidgelineError, match=problem):
        session.wait()


def test_words_of_ncu_are_explained(tmp_path: Path) -> None:
    # given an ncu that writes its error where it was told to, whatever it runs
    path = tmp_path / "ncu"
    path.write_text('#!/bin/sh\nwhile [ "$1" != --log-file ]; do shift; done\n'
                    'echo "==ERROR== ERR_NVGPUCTRPERM" > "$2"\nexit 1\n')  # fmt: skip
    path.chmod(0o755)
    session = started(tmp_path, "true", Ncu(str(path), "2025.3.1"))
    with pytest.raises(RidgelineError, match="the profiler may not read the GPU's counters"):
        session.wait()


# ---------------------------------------------------------------- profile step


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
    parent = subprocess.Popen(["true"])  # has ended, whether it is waited for or not
    given(monkeypatch, tmp_path, must_wait=True, warmup=0, parent_id=parent.pid)
    while runs(parent.pid):
        pass
    with pytest.raises(SystemExit, match="the parent process of one ended"), profile_step():
        raise AssertionError("not our turn")
