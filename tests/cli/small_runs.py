"""Models so small that a run takes no time, and `ridgeline run` on them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ridgeline.cli import main

NET = """
import torch
from torch import nn

def make(width=8):
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2))

def images(width=2):
    return nn.Sequential(nn.Conv2d(3, width, 3), nn.Flatten(), nn.Linear(36 * width, 2))

def words():
    return nn.Sequential(nn.Embedding(16, 4), nn.Linear(4, 16))

def words_inputs(batch_size, seq_len):
    return torch.randint(0, 16, (batch_size, seq_len))
"""
QUICK = ("--iters", "5", "--warmup-iters", "1", "--no-energy")
NET_MAKE = ("net.py:make", "--input-size", "4", "--batch-size", "2")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with net.py in it, where a warm-up ends as soon as it can.

    One thread: where all cores are busy, two of them wait for each other for milliseconds.
    """
    (tmp_path / "net.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ridgeline.measure.timing.LEAST_WARMUP_S", 0)
    monkeypatch.setattr("ridgeline.measure.timing.STEADY", float("inf"))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tmp_path
    torch.set_num_threads(threads)


def run_here(*arguments: str) -> int:
    """`ridgeline run` without a process of its own for anything; answers the exit code."""
    with pytest.raises(SystemExit) as stopped:
        main(["run", *arguments, "--in-process"])
    return int(stopped.value.code or 0)


MINUTES_S = 300  # a loaded machine may take long to import torch


def allow_interrupts() -> None:
    """A shell lets its background jobs ignore SIGINT, and so would the command."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def start(folder: Path, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
    """`ridgeline …` in a session of its own, as from a terminal."""
    return subprocess.Popen(
        [sys.executable, "-m", "ridgeline", *arguments], cwd=folder, text=True,
        env={**os.environ, **environment}, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=allow_interrupts,
    )  # fmt: skip


def wait_until(is_so: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    deadline_s = time.monotonic() + MINUTES_S
    while not is_so():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def without_notes(err: str) -> str:
    """What was said but for notes on the numbers, which depend on how busy the machine is."""
    return "".join(line for line in err.splitlines(True) if not line.startswith("note: "))


def json_of(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """The runs on stdout, which holds nothing but them."""
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == 1
    runs: list[dict[str, Any]] = answer["runs"]
    return runs


def pick(values: dict[str, Any], *names: str) -> dict[str, Any]:
    """These of the values."""
    return {name: values[name] for name in names}
