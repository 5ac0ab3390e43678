"""Ctrl-C at odd moments: heard, told, and not taken for something else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from pytest import MonkeyPatch
from tests.cli.analyzed_here import store_passport
from tests.cli.small_runs import NET, allow_interrupts, start

from ridgeline.cli.interrupts import stopped_at_once
from ridgeline.store import ResultsFolder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals")

COMMAND = """
import signal, sys, time, weakref
from ridgeline.cli import main
from ridgeline.cli.progress import Progress
from ridgeline.report import compare as comparing

class Thing: ...

def interrupt(*_):
    signal.raise_signal(signal.SIGINT)

def interrupt_callback():
    thing = Thing()
    watched = weakref.ref(thing, interrupt)
    del thing

def interrupt_import():
    # the callback that removes the lock of a module which has been imported
    def interrupt_lock(frame, event, argument):
        if event == "call" and frame.f_code.co_name == "cb":
            sys.setprofile(None)
            interrupt()
    sys.setprofile(interrupt_lock)
    import this_is_imported

def compare(*arguments, **options):
    {body}

comparing.compare = compare
sys.argv = ["ridgeline", "compare", "a", "b"]
main()
"""
FIGURES = """
from ridgeline.cli.interrupts import import_figures, watch
watch()
import_figures()
print("not reached")
"""
HALF_IMPORTED = """
import signal
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:  # as C++ modules do
    raise ImportError("initialization failed")
"""
DONE = """
import atexit, os, signal, sys
from ridgeline.cli import main
atexit.register(lambda: signal.raise_signal(signal.SIGINT))  # while libraries come to their end
sys.argv = ["ridgeline", "--version"]
main()
"""


def program(text: str, *, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", text], cwd=folder, text=True, capture_output=True, timeout=120,
        preexec_fn=allow_interrupts,
    )  # fmt: skip


WAIT = "print('went on', flush=True); time.sleep(60); print('not reached')"
NEXT_UNIT = "print('went on', flush=True); Progress().start('a run'); print('not reached')"
SWALLOWED = """
    try:
        interrupt()
    except BaseException:
        pass
"""


@pytest.mark.parametrize(
    ("body", "out"),
    [
        (f"interrupt_callback(); {NEXT_UNIT}", "went on\n"),  # the next unit does not begin
        (f"interrupt_callback(); {WAIT}", "went on\n"),  # it is sent again
        (f"interrupt_import(); {WAIT}", "went on\n"),
        (f"{SWALLOWED}    sys.exit(0)", ""),  # a library caught it
        (f"{SWALLOWED}    sys.exit(3)", ""),
        (f"{SWALLOWED}    raise ImportError('a module did not load')", ""),
    ],
    ids=["next unit", "callback", "import", "exit 0", "exit 3", "error"],
)
def test_one_that_was_lost_ends_the_command(tmp_path: Path, body: str, out: str) -> None:
    (tmp_path / "this_is_imported.py").touch()
    start_s = time.monotonic()
    done = program(COMMAND.format(body=body), folder=tmp_path)
    assert (done.returncode, done.stdout) == (130, out)
    assert done.stderr == "ridgeline: interrupted\n"
    assert time.monotonic() - start_s < 50  # long before that work would have ended


def test_no_library_is_left_half_imported(tmp_path: Path) -> None:
    # given an interrupt in a C++ module of matplotlib, after which Python aborts at its end
    (tmp_path / "matplotlib.py").write_text(HALF_IMPORTED)
    done = program(FIGURES, folder=tmp_path)
    # then the command has ended inside of the import
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "ridgeline: interrupted\n"


def test_when_all_is_done_it_is_too_late(tmp_path: Path) -> None:
    done = program(DONE, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("ridgeline ")


def test_handlers_are_as_before(monkeypatch: MonkeyPatch) -> None:
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
    process = start(tmp_path, "run", "net.py:make", "--input-size", "4", "-q", PYTHONPATH=path)
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


STAGES = """
import os
from ridgeline.cli import interrupts, main, progress

def say(stage):  # in one call: an interrupt inside of print() would leave half a line
    os.write(2, f"at {stage}\\n".encode())

def mark(name):
    usual = getattr(progress.Progress, name)
    def marked(self, what, *arguments, **options):
        say(what)
        return usual(self, what, *arguments, **options)
    setattr(progress.Progress, name, marked)

def watch():  # before it, Ctrl-C is Python's own
    usual_watch()
    say("begin")

usual_watch, interrupts.watch = interrupts.watch, watch
mark("start")
mark("update")
main()
"""
MOMENTS = {  # of a stage: seconds after it said that it begins
    "begin": (0.0, 1.2),  # the server of processes imports torch
    "machine": (0.0, 0.6),
    "counting": (0.03,),
    "net.py:make, batch 2, fp32": (0.0, 0.6),
    "report": (0.1, 0.5),
    "page": (0.05,),
    "report.md": (0.0,),
    "tables": (0.0,),
}


def analyze_until(stage: str, delay_s: float, folder: Path) -> tuple[int, str]:
    """The exit code and stderr of an analysis that is interrupted in a stage."""
    folder.mkdir()
    (folder / "net.py").write_text(NET)
    if stage != "machine":  # which is then measured
        store_passport(folder / "results")
    process = subprocess.Popen(
        [sys.executable, "-c", STAGES, "analyze", "net.py:make", "--input-size", "4", "-b", "2",
         "--backend", "cpu", "--iters", "5", "--quick"],
        cwd=folder, text=True, start_new_session=True, bufsize=1,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        preexec_fn=allow_interrupts,
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if line == f"at {stage}\n":
            break
    time.sleep(delay_s)
    os.killpg(process.pid, signal.SIGINT)
    err = process.stderr.read()
    return process.wait(), err


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="a server of processes")
def test_heard_at_every_moment_of_an_analysis(tmp_path: Path) -> None:
    # given moments of every stage, when an analysis is interrupted then
    moments = [(stage, delay_s) for stage, delays in MOMENTS.items() for delay_s in delays]
    folders = [tmp_path / str(number) for number in range(len(moments))]
    with ThreadPoolExecutor(2) as pool:
        ends = list(pool.map(analyze_until, *zip(*moments, strict=True), folders))
    for moment, folder, (code, err) in zip(moments, folders, ends, strict=True):
        # then it ends as interrupted, says so once, and says what it kept
        results = ResultsFolder(folder / "results")
        runs = [run for run in results.read_runs() if run.request.command == "run"]
        kept = f"; runs kept: {len(runs)}; `ridgeline report` tells about them" if runs else ""
        last = err.splitlines()[-1]
        assert (moment, code, last) == (moment, 130, f"ridgeline: interrupted{kept}")
        assert err.count("interrupted") == 1
        assert "Traceback" not in err
        # and every run that is there can be read
        for table in results.path.glob("runs/[!.]*/*.parquet"):
            assert len(results.read_table(table.parent.name, table.stem).columns)
