"""`ridgeline export` as a user meets it: what it prints, writes and refuses."""

import signal
from functools import partial
from pathlib import Path

import pytest
from pytest import MonkeyPatch
from tests.cli.analyzed_here import Printed, command
from tests.cli.small_runs import start, wait_until

pytest.importorskip("onnxscript")

NET = """
from torch import nn

def make():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 6 * 6, 10))
"""
SIZE = ("--input-size", "3,8,8")


@pytest.fixture
def net(tmp_path: Path, monkeypatch: MonkeyPatch) -> str:
    """A small network in a file, and the folder of the test as the working directory."""
    (tmp_path / "net.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    return "net.py:make"


ridgeline = partial(command, "export")


def test_a_file_of_ones_own(net: str, capsys: Printed, tmp_path: Path) -> None:
    assert ridgeline(net, *SIZE, "-o", "net.onnx") == 0
    out = capsys.readouterr().out
    first, *lines = out.splitlines()
    assert first.startswith("net.onnx ")
    assert "opset" in first
    assert lines[:2] == [
        "  input   input float32[batch, 3, 8, 8]",
        "  output  output float32[batch, 10]",
    ]
    assert lines[2].startswith("  check   batch 1: onnxruntime and torch differ by at most ")
    assert lines[3].startswith("  check   batch 3: onnxruntime and torch differ by at most ")
    assert sorted(p.name for p in tmp_path.iterdir() if "pycache" not in p.name) == [
        "net.onnx", "net.py",
    ]  # fmt: skip


def test_ctrl_c_leaves_nothing(net: str, tmp_path: Path) -> None:
    # given an export that has begun: its draft is beside the file
    running = start(tmp_path, "export", net, *SIZE, "-o", "out/net.onnx")
    out = tmp_path / "out"
    wait_until(lambda: out.is_dir() and any(out.iterdir()), running)
    # when it is interrupted
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=60)
    # then neither a file nor a draft is left
    assert running.returncode == 130
    assert list(out.iterdir()) == []
