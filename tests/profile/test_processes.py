"""The processes of a profile: they wait for one another, and none stays behind."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import psutil
import pytest

from ridgeline.errors import RidgelineError
from ridgeline.profile.processes import (
    Ncu,
    Session,
    all_ended,
    start_session,
    wait_until,
)
from ridgeline.profile.profile_step import COUNTERS, Job

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
