"""The main job on a real GPU: roofs, runs and counts of one card agree."""

from pathlib import Path

import pytest

import ridgeline
from ridgeline.pipeline.analyze import AnalyzeResult


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> AnalyzeResult:
    folder = Path(tmp_path_factory.mktemp("results"))
    return ridgeline.analyze("resnet50", batch_size=64, results=folder, quick=True, iters=20,
                             precision="tf32", energy=False)  # fmt: skip


def test_a_step_is_below_its_roofs(found: AnalyzeResult) -> None:
    step = found.points.query("grain == 'step'").iloc[0]
    assert 0.1 < step["efficiency"] < 1
    assert step["bound"] in ("compute", "dram", "launch")
    assert step["launches"] > 300  # what the profiler saw


def test_layers_that_take_long_are_below_their_roofs(
    found: AnalyzeResult,
) -> None:
    layers = found.points.query("grain == 'layer' and phase == 'all' and time_s > 2e-4")
    assert len(layers) > 50
    assert layers["efficiency"].median() < 0.9
    assert (layers["efficiency"] < 1.1).mean() > 0.95


def test_the_report_is_written(found: AnalyzeResult) -> None:
    assert found.report is not None
    assert found.report.stat().st_size > 100_000
    assert found.stages[0].status == "done"
