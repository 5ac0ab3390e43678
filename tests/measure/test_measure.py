"""`ridgeline.measure` of a module and its inputs."""

from dataclasses import replace

import pytest
import torch
from tests.measure.measured import measured
from tests.report.hand_study import make_study, run_row, step_row
from torch import nn

import ridgeline
from ridgeline.errors import RidgelineError
from ridgeline.measure.result import MeasureResult
from ridgeline.pipeline.analyze import AnalyzeResult
from ridgeline.pipeline.outputs import Outputs

NET, BATCH = nn.Linear(3, 2), torch.zeros(4, 3)


def test_a_batch_size_that_is_not_that_of_the_inputs_is_refused() -> None:
    with pytest.raises(RidgelineError) as caught:
        ridgeline.measure(NET, BATCH, batch_size=8)

    assert (caught.value.problem, caught.value.hint) == (
        "batch_size=8 has no effect: the inputs carry a batch of 4 already",
        "leave batch_size out, or give inputs whose first dimension is 8",
    )


@pytest.mark.parametrize("given", [{}, {"batch_size": 4}])
def test_the_batch_is_that_of_the_inputs(
    given: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ridgeline.measure.timing.LEAST_WARMUP_S", 0)
    monkeypatch.setattr("ridgeline.measure.timing.STEADY", float("inf"))

    result = ridgeline.measure(NET, BATCH, mode="infer", iters=2, energy=False, **given)  # type: ignore[arg-type]

    assert (result.batch_size, result.result.samples_per_step) == (4, 4)


def test_warnings_name_arguments() -> None:
    warning = "times were not steady; try `ridgeline run … --warmup-iters 36`"
    record = replace(measured().result, warnings=(warning,))
    result = MeasureResult(model="net", batch_size=4, mode="infer", result=record)
    assert result.warnings == ["times were not steady; try `warmup_iters=36`"]


def test_advice_of_an_analysis_names_arguments() -> None:
    # given findings whose advice names options of the command line
    finding = {"run_id": "a", "model": "net", "layer": "conv", "meaning": "takes 6 ms",
               "headroom_s": 0.006, "share": 0.2, "advice": "--channels-last <2>"}  # fmt: skip
    study = make_study([run_row()], [step_row()], [finding])
    result = AnalyzeResult(study=study, outputs=Outputs(), stages=[], run_ids=("a",))
    assert "conv: takes 6 ms; channels_last=True <2>" in str(result)
    assert result.findings["advice"].to_list() == ["channels_last=True <2>"]
    assert "channels_last=True &lt;2&gt;</p>" in result._repr_html_()
