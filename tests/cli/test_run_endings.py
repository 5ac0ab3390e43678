"""How `ridgeline run` ends when a model crashes, when it is stopped, and when nothing can be kept.

Whatever happens, a run is stored whole, as completed or as failed, or it is not there.
"""

import errno
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from benchmarks import kills
from pytest import MonkeyPatch
from tests.cli.analyzed_here import Printed
from tests.cli.small_runs import (
    MINUTES_S,
    NET_MAKE,
    QUICK,
    folder,
    run_here,
    start,
    wait_until,
    without_notes,
)

from ridgeline.store import ResultsFolder

__all__ = ["folder"]  # a fixture

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals")

RUN = (sys.executable, "-m", "ridgeline", "run")
SMALL = ("--input-size", "4", "--batch-size", "2", *QUICK)
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
CRASHES = """
import os, pathlib, signal, sys, time, warnings
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, act):
        super().__init__()
        self.linear, self.act = nn.Linear(4, 2), act

    def forward(self, x):
        self.act()
        return self.linear(x)

def raising(error):
    def act():
        raise error
    return Net(act)

class Mute(Exception):
    def __str__(self):
        raise ValueError

def good():
    return Net(lambda: None)

def loud():
    def act():
        print("between the results")
        warnings.warn("careful")
    return Net(act)

def waits():
    def act():
        pathlib.Path("measuring").touch()
        time.sleep(600)
    return Net(act)

def raises():
    return raising(RuntimeError("broken\\nin two lines"))

def mute():
    return raising(Mute())

def bytes_():
    return raising(RuntimeError("no file \\udcff"))

def stops():
    return raising(SystemExit("enough"))

def interrupts():
    return raising(KeyboardInterrupt())

def memory():
    return raising(MemoryError())

def device_memory():
    return raising(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB"))

def exits():
    return Net(lambda: os._exit(7))

def killed():
    return Net(lambda: os.kill(os.getpid(), signal.SIGKILL))

def crashes():
    return Net(lambda: os.kill(os.getpid(), signal.SIGSEGV))

def no_gradient():
    return nn.Sequential(nn.Linear(4, 2), Detached())

class Detached(nn.Module):
    def forward(self, x):
        return x.detach()
"""
REASONS = {
    "raises": "RuntimeError: broken in two lines",
    "mute": "Mute",
    "bytes_": "RuntimeError: no file \\udcff",
    "stops": "SystemExit: enough",
    "interrupts": "KeyboardInterrupt",
    "memory": "out of memory",
    "device_memory": "out of memory: CUDA out of memory. Tried to allocate 1 GiB",
    "exits": "the process ended with code 7 and without an answer",
    "killed": "the process was ended by SIGKILL",
    "crashes": "the process was ended by SIGSEGV",
    "no_gradient": "RuntimeError: element 0 of tensors does not require grad and does not have a "
    "grad_fn",
}


@pytest.fixture
def crashes(folder: Path) -> Path:
    """The folder, with models that end in all sorts of ways."""
    (folder / "bad.py").write_text(CRASHES)
    return folder


def test_every_crash_is_a_failed_run_and_the_next_goes_on(crashes: Path) -> None:
    # when models crash in every way, with a good one before, between and after
    names = ["good", *list(REASONS)[:6], "loud", *list(REASONS)[6:], "good"]
    done = subprocess.run(
        [*RUN, *(f"bad.py:{name}" for name in names), *SMALL, "--json", "-q"],
        cwd=crashes, env=ENVIRONMENT, capture_output=True, text=True, timeout=MINUTES_S,
    )  # fmt: skip
    # then each is a run with its reason, on stdout is nothing but JSON, and the exit code says so
    assert done.returncode == 3, done.stderr
    answers = json.loads(done.stdout)["runs"]
    assert [answer["model"] for answer in answers] == [f"bad.py:{name}" for name in names]
    assert [answer["reason"] for answer in answers] == [REASONS.get(name) for name in names]
    ok = ["failed" if name in REASONS else "ok" for name in names]
    assert [answer["status"] for answer in answers] == ok
    assert "between the results\n" in done.stderr
    for name in REASONS:
        assert f"ridgeline: bad.py:{name}, batch 2, input 4, fp32: failed: " in done.stderr
    assert "Traceback" not in done.stderr
    # and what was said is kept with the run
    results = ResultsFolder(crashes / "results")
    logs = {run.request.model: results.read_log(run.run_id) for run in results.read_runs()}
    assert logs["bad.py:loud"] == "UserWarning: careful"
    assert logs["bad.py:raises"].startswith("Traceback (most recent call last)")
    assert len(pd.read_csv(results.path / "metrics.csv")) == 3


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("ModuleNotFoundError('No module named torch')", "No module named torch"),
        ("OSError('libcudart.so: not found')", "libcudart.so: not found"),
    ],
)
def test_a_torch_that_cannot_be_imported_is_no_failed_run(
    tmp_path: Path, error: str, words: str
) -> None:
    (tmp_path / "torch.py").write_text(f"raise {error}\n")
    done = subprocess.run(
        [*RUN, "resnet18", *SMALL],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True,
        text=True, timeout=MINUTES_S,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"ridgeline: torch cannot be imported: {words}\n"
        "  hint: pip install 'ridgeline[torch]'; `ridgeline doctor` says what works here\n"
    )
    assert not (tmp_path / "results").exists()


# ---------------------------------------------------------------- stopped


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -15)])
def test_stopped_in_the_second_of_three_runs(
    crashes: Path, sent: signal.Signals, code: int
) -> None:
    models = ("bad.py:good", "bad.py:waits", "bad.py:good")
    process = start(crashes, "run", *models, *SMALL, "--json", "-q", OMP_NUM_THREADS="1")
    wait_until((crashes / "measuring").exists, process)
    if sent == signal.SIGINT:
        os.killpg(process.pid, sent)  # as a terminal does for Ctrl-C
    else:
        process.send_signal(sent)
    out, err = process.communicate(timeout=MINUTES_S)
    assert process.returncode == code
    assert kills.count_strays(process.pid) == 0
    runs = ResultsFolder(crashes / "results").read_runs()
    assert [(run.request.model, run.result.status) for run in runs] == [("bad.py:good", "ok")]
    assert "Traceback" not in err
    if sent == signal.SIGINT:
        assert [run["model"] for run in json.loads(out)["runs"]] == ["bad.py:good"]
        assert without_notes(err) == "ridgeline: interrupted; runs kept: 1\n"
        assert len(pd.read_csv(crashes / "results" / "metrics.csv")) == 1


@pytest.mark.slow
def test_killed_commands_lose_nothing(tmp_path: Path) -> None:
    tally = kills.kill_commands(tmp_path, len(kills.MOMENTS), random.Random(0))
    assert (tally.kills, tally.broken, tally.strays) == (len(kills.MOMENTS), 0, 0)
    assert tally.completed > 0


def test_killed_writers_lose_nothing(tmp_path: Path) -> None:
    tally = kills.kill_writers(tmp_path, 50, random.Random(0))
    assert (tally.kills, tally.broken) == (50, 0)
    assert tally.completed >= 50


# ---------------------------------------------------------------- nothing can be kept


def full_after(calls: int, monkeypatch: MonkeyPatch) -> None:
    """A disk that is full once so many files were put on it."""
    flush, done = os.fsync, []

    def fsync(descriptor: int) -> None:
        done.append(descriptor)
        if len(done) > calls:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)


LOST = "net.py:make, batch 2, fp32 was measured and could not be kept: cannot write to"
KEPT = "the runs are kept, and their views could not be made: cannot write to"


@pytest.mark.parametrize(
    ("calls", "said", "not_said", "kept"),
    [
        (0, LOST, KEPT, 1),
        (1, LOST, KEPT, 1),
        (3, KEPT, LOST, 2),  # the run has its name already
        (5, KEPT, LOST, 2),
    ],
)
def test_a_full_disk_keeps_what_was_stored(
    folder: Path,
    calls: int,
    said: str,
    not_said: str,
    kept: int,
    capsys: Printed,
    monkeypatch: MonkeyPatch,
) -> None:
    assert run_here(*NET_MAKE, *QUICK, "-q") == 0
    before = kills.hash_of(ResultsFolder().read_runs()[0].path)
    metrics = (folder / "results" / "metrics.csv").read_text()
    full_after(calls, monkeypatch)
    assert run_here(*NET_MAKE, *QUICK, "-q") == 2
    err = capsys.readouterr().err
    assert said in err and not_said not in err
    assert "No space left on device\n  hint: make room" in err
    runs = ResultsFolder().read_runs()
    assert len(runs) == kept
    assert kills.hash_of(runs[0].path) == before
    assert all(kills.is_whole(ResultsFolder(), run.path) for run in runs)
    assert (folder / "results" / "metrics.csv").read_text().startswith(metrics)


def test_a_folder_that_takes_nothing_is_refused_before_anything_is_measured(
    folder: Path, capsys: Printed, monkeypatch: MonkeyPatch
) -> None:
    (folder / "net.py").write_text("import pathlib\npathlib.Path('imported').touch()\n")
    (folder / "file").touch()
    for results in ("file", "file/deep"):
        assert run_here(*NET_MAKE, *QUICK, "--results", results) == 2
        assert capsys.readouterr().err.startswith(
            f"ridgeline: cannot write to {results}: Not a directory\n  hint: make room"
        )

    def refuse(**_: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    assert run_here(*NET_MAKE, *QUICK) == 2
    assert capsys.readouterr().err == (
        "ridgeline: cannot write to results: Permission denied\n"
        "  hint: make room or get permission there, or name another place: --results DIR\n"
    )
    assert not (folder / "imported").exists()
