"""`ridgeline.profile`, with stand-ins for the GPU, ncu and the unwatched run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.profile.stand_ins import use_stand_ins

import ridgeline
from ridgeline.errors import RidgelineError
from ridgeline.measure.isolation import Outcome
from ridgeline.measure.tasks import Found
from ridgeline.profile import result
from ridgeline.store import ResultsFolder

RUN = Path(__file__).parents[1] / "data" / "run-h200-vgg16.json"


@pytest.fixture(autouse=True)
def _h200(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = json.loads(RUN.read_text())["found"]
    found["step_time_s"]["median"] = 0.02

    def isolated(work: Any, task: Any) -> Outcome[Any]:
        return Outcome(answer=Found(found=found, tables={}))

    use_stand_ins(monkeypatch, tmp_path)
    monkeypatch.setattr(result, "run_isolated", isolated)


def test_a_profile_from_python(tmp_path: Path) -> None:
    # when a step is measured and counted
    folder = tmp_path / "results"
    counted = ridgeline.profile("resnet50", batch_size=32, precision="amp", results=folder)
    # then both are kept, with what the model must do, and what was counted can be asked for
    first, second, third = ResultsFolder(folder).read_runs()
    assert [first.run_id, second.run_id] == [counted.of_run, counted.run_id]
    # three times forward, without the gradient of the images by the first convolution
    macs = 32 * (3 * 4_089_184_256 - 118_013_952)
    assert (third.asked["command"], third.found["macs"]) == ("count", macs)
    assert counted.totals["tensor_fp16"] == 797_680_599_040
    assert counted.totals["tensor_bf16"] is None
    assert len(counted.kernels) == 631
    assert str(counted) == f"631 kernels, 6.94 ms in a step of 20.0 ms; {counted.run_id}"


def test_only_on_cuda(tmp_path: Path) -> None:
    with pytest.raises(RidgelineError, match="there is nothing to profile on cpu"):
        ridgeline.profile("resnet50", backend="cpu", results=tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_what_makes_no_sense_is_said_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(RidgelineError, match="counters, time"):
        ridgeline.profile("resnet50", tier="all", results=tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_a_failure_is_kept_and_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NCU", "busy")
    monkeypatch.setenv("FAKE_CUPTI", "absent")
    folder = tmp_path / "results"
    with pytest.raises(RidgelineError, match="another profiler held the GPU's counters"):
        ridgeline.profile("resnet50", precision="amp", results=folder)
    _, failed = ResultsFolder(folder).read_runs()
    assert failed.found["status"] == "failed"
    assert failed.found["reason"].startswith("another profiler held the GPU's counters")
