"""Work in a process of its own: answers, failures, crashes, and no orphans."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.measure import isolated_work

from ridgeline.errors import RidgelineError
from ridgeline.measure.isolation import Failure, Outcome, attempt, run_isolated

ROOT = Path(__file__).parents[2]
CRASHED = "the model or a library under it crashed; PYTHONFAULTHANDLER=1 shows where"


def test_an_answer_and_what_was_said_on_the_way() -> None:
    heard: list[Any] = []

    outcome = run_isolated(isolated_work.add, (2, 3), heard.append)

    assert heard == ["adding", {"done": 1}]
    assert outcome.failure is None
    assert outcome.value()["sum"] == 5
    assert outcome.value()["pid"] != os.getpid()


def test_a_wrong_input_comes_back_as_such() -> None:
    outcome = run_isolated(isolated_work.refuse, "this")

    assert outcome == Outcome(
        failure=Failure(reason="this is not possible", hint="ask for something else", is_input=True)
    )
    with pytest.raises(RidgelineError, match="this is not possible\n  hint: ask for something"):
        outcome.value()


def test_an_exception_comes_back_with_its_traceback() -> None:
    heard: list[str] = []

    failure = run_isolated(isolated_work.fail, "a task", heard.append).failure

    assert failure is not None
    assert failure.reason == "ValueError: a task in two lines"
    assert failure.hint == "the run's log.txt has the whole traceback; --debug shows it here"
    assert (failure.is_input, failure.is_out_of_memory) == (False, False)
    assert failure.log.startswith("Traceback (most recent call last):\n")
    assert failure.log.endswith("ValueError: a task\n  in two lines\n")
    assert 'raise ValueError(f"{task}' in failure.log
    assert heard == ["about to fail"]


@pytest.mark.parametrize(
    ("signal", "failure"),
    [
        (
            "SIGKILL",
            Failure(
                reason="the process was ended by SIGKILL",
                hint="most often the system ran out of memory: try a smaller --batch-size or input",
                is_out_of_memory=True,
            ),
        ),
        ("SIGSEGV", Failure(reason="the process was ended by SIGSEGV", hint=CRASHED)),
    ],
)
def test_a_process_that_is_killed(signal: str, failure: Failure) -> None:
    assert run_isolated(isolated_work.crash, signal) == Outcome(failure=failure)


def test_a_model_that_calls_exit() -> None:
    failure = run_isolated(isolated_work.leave, 3).failure

    assert failure is not None
    assert failure.reason == "SystemExit: 3"
    assert failure.log.endswith("sys.exit(task)\nSystemExit: 3\n")


def test_a_listener_that_fails_leaves_no_process_behind() -> None:
    pids: list[int] = []

    def hear(pid: int) -> None:
        pids.append(pid)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_isolated(isolated_work.sleep, None, hear)

    assert is_gone(pids[0])


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("MPS backend out of memory (MPS allocated: 17.9 GB)"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        OSError(12, "Cannot allocate memory"),
        MemoryError("no room"),
    ],
)
def test_too_little_memory_is_told_apart(error: Exception) -> None:
    def work(_task: object, _send: object) -> None:
        raise error

    failure = attempt(work, None, print).failure

    assert failure is not None
    assert failure.reason == f"out of memory: {error}"
    assert failure.hint == (
        "try a smaller --batch-size or input, --precision amp, or "
        "`ridgeline run … --find-max-batch`"
    )
    assert failure.is_out_of_memory and not failure.is_input


# Another program that isolates work; without torch, which the work here does not need.
PROGRAM = """
import sys
from ridgeline.measure import isolation
from tests.measure import isolated_work

isolation.PRELOADED.clear()
work = getattr(isolated_work, sys.argv[1])
outcome = isolation.run_isolated(work, None, lambda message: print(message, flush=True))
print(outcome.answer, flush=True)
"""


def program(work: str) -> subprocess.Popen[str]:
    places = os.pathsep.join([*os.environ.get("PYTHONPATH", "").split(os.pathsep), str(ROOT)])
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, work], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env={**os.environ, "PYTHONPATH": places},
    )  # fmt: skip


def test_what_is_printed_does_not_come_between_results() -> None:
    out, err = program("chatter").communicate(timeout=60)

    assert out == "answer\n"
    assert sorted(err.splitlines()) == ["a library prints this", "a model prints this"]


def test_the_script_that_asks_is_not_run_again(tmp_path: Path) -> None:
    # given a script that asks as it is run, as a user's may
    script = tmp_path / "script.py"
    script.write_text(f"print('once', flush=True)\n{PROGRAM}")
    done = subprocess.run(
        [sys.executable, str(script), "chatter"], capture_output=True, text=True, timeout=60,
        check=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip

    assert done.stdout == "once\nanswer\n"


def test_work_ends_with_the_one_that_asked() -> None:
    parent = program("sleep")
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    assert not is_gone(worker)

    parent.kill()
    parent.communicate(timeout=60)

    deadline_s = time.monotonic() + 20
    while not is_gone(worker) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert is_gone(worker)


def is_gone(pid: int) -> bool:
    """Ended, though perhaps nobody has taken notice yet."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_an_end_that_python_throws_away_comes_again(capfd: pytest.CaptureFixture[str]) -> None:
    start_s = time.monotonic()

    failure = run_isolated(isolated_work.end_in_callback, None).failure

    assert failure is not None and failure.reason == "SystemExit: 143"
    assert time.monotonic() - start_s < 50  # long before the work would have ended
    assert "Traceback" not in capfd.readouterr().err


def test_a_process_that_nobody_wants_any_more_tidies_up(tmp_path: Path) -> None:
    def stop(message: Any) -> None:
        assert (tmp_path / "half").exists()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_isolated(isolated_work.tidies, tmp_path / "half", stop)
    assert not (tmp_path / "half").exists()
