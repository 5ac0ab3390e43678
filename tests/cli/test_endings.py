"""How a command ends when it is stopped, or when nobody takes its output."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.small_runs import MINUTES_S, allow_interrupts, start, wait_until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and /dev/full")

COUNT = (sys.executable, "-m", "ridgeline", "count")
WAITING = """
import pathlib, time

def make():
    pathlib.Path("counting").touch()
    time.sleep(600)
"""
INTERRUPTED = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(600)\n"


def interrupted_while_counting(folder: Path, *models: str) -> tuple[int, str, str]:
    """Press Ctrl-C when the last of the models is being built; answers code, stdout, stderr."""
    (folder / "waiting.py").write_text(WAITING)
    size = ("--input-size", "3,32,32", "--json", "-q")
    process = start(folder, "count", *models, "waiting.py:make", *size)
    wait_until((folder / "counting").exists, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=MINUTES_S)
    return process.returncode, out, err


def test_interrupt_leaves_what_is_done(tmp_path: Path) -> None:
    code, out, err = interrupted_while_counting(tmp_path, "resnet18_cifar")
    assert code == 130
    assert [model["model"] for model in json.loads(out)["models"]] == ["resnet18_cifar"]
    assert err.endswith("ridgeline: interrupted; what was counted until then is above\n")
    assert "Traceback" not in err


def test_interrupt_before_the_first_result_is_json_too(tmp_path: Path) -> None:
    code, out, err = interrupted_while_counting(tmp_path)
    assert code == 130
    assert json.loads(out) == {"schema": 1, "models": []}
    assert err == "ridgeline: interrupted\n"


@pytest.mark.parametrize("module", ["typer", "torch"])
def test_interrupt_while_importing(tmp_path: Path, module: str) -> None:
    # given a module that is interrupted when it is imported
    (tmp_path / f"{module}.py").write_text(INTERRUPTED)
    done = subprocess.run(
        [*COUNT, "resnet18_cifar", "--json"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True,
        preexec_fn=allow_interrupts, timeout=MINUTES_S,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "ridgeline: interrupted\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("form", ["table", "json"])
def test_a_full_disk_is_no_bug(form: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COUNT, "resnet18_cifar", "--format", form],
            stdout=full, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith(
        "ridgeline: cannot write: No space left on device\n  hint: make room"
    )


def test_a_reader_that_goes_is_no_problem_and_files_are_written(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)  # as head does when it has its line
    done = subprocess.run(
        [*COUNT, "resnet18_cifar", "-q", "-o", str(tmp_path / "layers.csv")],
        stdout=writing, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")
    assert (tmp_path / "layers.csv").exists()
