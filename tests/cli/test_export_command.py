"""`ridgeline export` as a user meets it: what it prints, writes and refuses."""

import json
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


def test_json_has_the_promised_keys(net: str, capsys: Printed) -> None:
    assert ridgeline(net, *SIZE, "-o", "net.onnx", "--static", "-b", "2", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == 1
    exported = answer["exported"]
    expected = {
        "model": "net.py:make", "file": "net.onnx", "data_file": None, "data_bytes": 0,
        "mode": "infer", "exporter": "dynamo", "dimensions": [], "notes": [],
        "inputs": [{"name": "input", "dtype": "float32", "shape": [2, 3, 8, 8]}],
        "outputs": [{"name": "output", "dtype": "float32", "shape": [2, 10]}],
    }  # fmt: skip
    assert {key: exported[key] for key in expected} == expected
    (check,) = exported["checks"]
    assert (check["batch_size"], check["outputs"]) == (2, 1)


def test_a_file_that_is_there_is_kept(net: str, capsys: Printed) -> None:
    Path("net.onnx").write_bytes(b"mine")
    assert ridgeline(net, *SIZE, "-o", "net.onnx") == 2
    assert "net.onnx is there already\n  hint: --force replaces it" in capsys.readouterr().err
    assert Path("net.onnx").read_bytes() == b"mine"


def test_an_error_is_json_too(net: str, capsys: Printed) -> None:
    assert ridgeline("net.py:make", "-o", "net.onnx", "--json") == 2
    answer = json.loads(capsys.readouterr().out)
    assert set(answer) == {"schema", "error"}
    assert "the shape of the input is not known" in answer["error"]["problem"]


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
