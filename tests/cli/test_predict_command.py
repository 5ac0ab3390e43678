"""`ridgeline predict` and calibrations in `ridgeline machine`, as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.analyzed_here import Printed, command
from tests.predict.calibrations import store_own

import ridgeline
from ridgeline.predict.calibration import Calibrations
from ridgeline.predict.stored import read_predictions

NET = """
from torch import nn

def make():
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 64), nn.ReLU(), nn.Linear(64, 10))
"""
SIZE = ("--input-size", "3,8,8")
FIELDS = ["model", "batch_size", "mode", "precision", "machine", "time_s", "interval_s",
          "confidence", "kernel_time_s", "host_time_s", "bound", "memory_bytes", "fits", "power_w",
          "energy_j", "provenance", "past", "layers", "optimizer", "source", "notes"]  # fmt: skip


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A small network, in a folder with a calibration of this machine."""
    (tmp_path / "net.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    store_own(tmp_path / "results")
    return "net.py:make"


def test_a_table_with_layers_and_what_to_know(net: str, capsys: Printed) -> None:
    assert command("predict", net, *SIZE, "-b", "1,512", "--layers", "-q") == 0

    out = capsys.readouterr().out
    lines = out.splitlines()
    rows = [line.split()[:2] for line in lines if line.lstrip().startswith("net.py:make ")]
    assert rows == [["net.py:make", "1"], ["net.py:make", "512"]]
    assert [line.split()[:2] for line in lines if " Linear " in line] == 2 * [
        ["1", "Linear"], ["3", "Linear"],
    ]  # fmt: skip
    assert "80 % interval" in out
    assert "borrowed" in out or "extrapolated" in out


def test_json_of_two_machines_is_kept_for_the_report(
    net: str, capsys: Printed, tmp_path: Path
) -> None:
    more = ("--on", Calibrations(tmp_path / "results").names()[0], "--on", "H100 SXM5", "--json")
    assert command("predict", net, *SIZE, "-b", "8", "--mode", "train", *more) == 0

    own, h100 = json.loads(capsys.readouterr().out)["predictions"]
    assert list(own) == list(h100) == FIELDS
    assert (own["source"], own["optimizer"]) == ("measured", "sgd")
    assert own["interval_s"][0] < own["time_s"] < own["interval_s"][1]
    assert sum(own["provenance"].values()) == pytest.approx(1)
    assert h100["source"] == "scaled from the datasheet of NVIDIA H100 SXM5 80GB"
    assert h100["provenance"] == {"scaled": 1.0}
    problems: list[str] = []
    kept = read_predictions(tmp_path / "results", problems)
    assert {(one.prediction.machine, one.prediction.time_s) for one in kept} == {
        (own["machine"], own["time_s"]), (h100["machine"], h100["time_s"]),
    }  # fmt: skip
    assert problems == []


def test_the_same_from_python(net: str) -> None:
    steps = ridgeline.predict(net, batch_size=[1, 2], input_size=(3, 8, 8), layers=True)

    assert [step.batch_size for step in steps] == [1, 2]
    assert steps[0].layers[0].path == "(model)"
    assert steps.table["time_s"].tolist() == [step.time_s for step in steps]
    assert "net.py:make" in steps._repr_html_()
    with pytest.raises(ridgeline.RidgelineError, match="no machine 'H1000' is known"):
        ridgeline.predict(net, on="H1000")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "no model was named"),
        (["nosuch"], "unknown model 'nosuch'"),
        (["resnet18", "--on", "nosuch"], "no machine 'nosuch' is known"),
        (["resnet18", "--compile-mode", "fast"], "unknown --compile-mode 'fast'"),
        (["resnet18", "--dim", "a=1"], "--dim is for .onnx files"),
        (["missing.onnx"], "there is no file missing.onnx"),
        (["resnet18", "--results", "empty"], "this machine is not calibrated"),
        (["resnet18", "--results", "broken"], "cannot be read as a calibration"),
    ],
)
def test_errors(options: list[str], says: str, net: str, tmp_path: Path, capsys: Printed) -> None:
    broken = store_own(tmp_path / "broken")
    path = Calibrations(tmp_path / "broken").path(broken.machine)
    path.write_bytes(path.read_bytes()[:-20])

    assert command("predict", *options, "-q") == 2

    captured = capsys.readouterr()
    assert captured.out == ""
    assert says in captured.err
    assert "Traceback" not in captured.err


def test_a_calibration_is_shown_listed_exported_and_imported(
    net: str, tmp_path: Path, capsys: Printed
) -> None:
    (name,) = Calibrations(tmp_path / "results").names()
    assert command("machine", "show", name, "--calibration") == 0
    out = capsys.readouterr().out
    assert "9 operators" in out
    assert [line.split()[:3] for line in out.splitlines() if " fp32 " in line] == [
        ["relu", "fp32", "5"], ["mm", "nn", "fp32"],
    ]  # fmt: skip
    assert command("machine", "list") == 0
    assert f"{name}  calibrated" in capsys.readouterr().out
    assert command("machine", "export", name, "-o", "mine.json") == 0
    assert not (tmp_path / "mine.json").exists()  # there is no passport
    file = "mine.calibration.json.gz"
    assert command("machine", "import", file, "--name", "mine", "--results", "b") == 0
    assert Calibrations(tmp_path / "b").names() == ["mine"]


def test_a_step_fits_where_the_largest_batch_that_count_finds_does(tmp_path: Path) -> None:
    limit_bytes = 30_000_000
    store_own(tmp_path, memory_bytes=limit_bytes)

    largest = ridgeline.max_batch("squeezenet1_1", limit_bytes, mode="infer", input_size=64)

    sizes: dict[str, Any] = {
        "batch_size": [largest, largest + 1],
        "input_size": 64,
        "results": tmp_path,
    }
    assert [step.fits for step in ridgeline.predict("squeezenet1_1", **sizes)] == [True, False]
