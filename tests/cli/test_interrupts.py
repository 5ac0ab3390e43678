"""Ctrl-C at odd moments: heard, told, and not taken for something else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from tests.cli.small_runs import NET

from ridgeline.cli import interrupts
from ridgeline.cli.interrupts import stop_if_pressed, stopped_at_once
from ridgeline.cli.progress import RunProgress, progress_bar

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals")

LOST = """
import signal, sys, weakref
from ridgeline.cli import main, show_compare
from ridgeline.report import compare_sides

class Thing: ...

def find(*arguments, **options):
    # an interrupt in a callback of the garbage collector, which throws it away
    thing = Thing()
    kept = weakref.ref(thing, lambda ref: signal.raise_signal(signal.SIGINT))
    del thing
    print("went on", flush=True)
    from ridgeline.cli.progress import RunProgress
    RunProgress().start("the next piece of work")
    print("not reached", flush=True)

compare_sides.compare = find
sys.argv = ["ridgeline", "compare", "a", "b"]
main()
"""
DONE = """
import atexit, os, signal, sys
from ridgeline.cli import main
atexit.register(lambda: signal.raise_signal(signal.SIGINT))  # while libraries come to their end
sys.argv = ["ridgeline", "--version"]
main()
"""


def program(text: str, *, folder: Path) -> subprocess.CompletedProcess[str]:
    def usual() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)

    return subprocess.run(
        [sys.executable, "-c", text], cwd=folder, text=True, capture_output=True, timeout=120,
        preexec_fn=usual,
    )  # fmt: skip


def test_one_that_was_thrown_away_is_raised_again(tmp_path: Path) -> None:
    done = program(LOST, folder=tmp_path)
    assert (done.returncode, done.stdout) == (130, "went on\n")
    assert done.stderr == "ridgeline: interrupted\n"


def test_when_all_is_done_it_is_too_late(tmp_path: Path) -> None:
    done = program(DONE, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("ridgeline ")


def test_every_piece_of_work_begins_with_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    stop_if_pressed()  # nothing was pressed
    monkeypatch.setattr(interrupts, "_pressed", [signal.SIGINT])
    with pytest.raises(KeyboardInterrupt):
        RunProgress().start("a run")
    with pytest.raises(KeyboardInterrupt):
        RunProgress().update("steps", 1, 2)
    with progress_bar(2, quiet=True, first="") as step, pytest.raises(KeyboardInterrupt):
        step("a figure")


def test_handlers_are_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGINT)
    with stopped_at_once():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.skipif(sys.platform != "linux", reason="a server of processes")
def test_heard_while_the_server_imports(tmp_path: Path) -> None:
    # given a command whose server of processes takes its time to import
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, time\nif 'forkserver' in ' '.join(sys.orig_argv):\n    time.sleep(60)\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-m", "ridgeline", "run", "net.py:make", "--input-size", "4", "-q"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    )  # fmt: skip
    server: list[psutil.Process] = []
    while not server:
        assert process.poll() is None
        server = [child for child in psutil.Process(process.pid).children()
                  if "forkserver" in " ".join(child.cmdline())]  # fmt: skip
        time.sleep(0.05)
    # when it is interrupted then
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=20)
    # then it ends, long before the server would have been ready, and takes that with it
    assert (process.returncode, err) == (130, "ridgeline: interrupted\n")
    assert psutil.wait_procs(server, timeout=20)[1] == []
