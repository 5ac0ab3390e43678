"""Studies of convolutions, joined: losses, totals, findings, figures, by values made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.measure.measured import measured

from ridgeline.provenance import collect
from ridgeline.records import (
    AlgorithmResult,
    ConvLayer,
    ConvNetwork,
    ConvNetworkRequest,
    ConvRequest,
    ConvResult,
    ConvShape,
    RunRequest,
)
from ridgeline.report.convolutions import describe_totals, largest_losses, whole_networks
from ridgeline.report.figures import write_figures
from ridgeline.report.markdown import report_text
from ridgeline.report.page import write_page
from ridgeline.report.study import Study, read_study
from ridgeline.store import ResultsFolder

FIRST = ConvShape(n=1, c=3, h=8, w=8, k=4, r=3, s=3)
TWICE = ConvShape(n=1, c=4, h=6, w=6, k=4, r=3, s=3)
NETWORK = ConvNetwork(layers=(
    ConvLayer(layer="stem", shape=FIRST),
    ConvLayer(layer="body", shape=TWICE, uses=2),
    ConvLayer(layer="row", reason="Conv1d is not measured"),
))  # fmt: skip
REQUEST = ConvNetworkRequest(model="net", batch_size=1, input_size=(8,), backend="cpu")
DEVICE = measured().result.device_name


def timed(algorithm: str, time_s: float, **more: Any) -> AlgorithmResult:
    values = {"kernels": (f"kernel of {algorithm}",), "flops_executed": 1000, **more}
    return AlgorithmResult(algorithm=algorithm, samples_s=(time_s, time_s), **values)


def store(results: ResultsFolder, shape: ConvShape, *timings: AlgorithmResult) -> None:
    result = ConvResult(backend="cpu", device_name=DEVICE, timings=timings)
    names = tuple(one.algorithm for one in timings)
    results.save_run("conv", ConvRequest(shape=shape, algorithms=names), result, collect())


@pytest.fixture
def study(tmp_path: Path) -> Study:
    results = ResultsFolder(tmp_path)
    results.save_run("conv", REQUEST, NETWORK, collect())
    store(results, FIRST, timed("default", 2e-3), timed("gemm", 3e-3), timed("find", 1.9e-3))
    store(results, TWICE, timed("default", 9e-3))  # measured again below
    store(
        results, TWICE, timed("default", 4e-3, implementation="jit:avx2"), timed("gemm", 3e-3),
        timed("fft", 1e-3, status="wrong", reason="its error is above the bound"),
    )  # fmt: skip
    result = replace(measured().result, precision="fp32", warnings=(
        "1 of 2 convolutions ran under PyTorch's default, not gemm: its reason (stem)",
    ))  # fmt: skip
    for name in ("default", "gemm"):
        request = RunRequest(model="net", batch_size=1, input_size=(8,), mode="infer",
                             algorithm=name)  # fmt: skip
        results.save_run("run", request, result, collect())
    return read_study(results)


def test_losses_are_against_the_best_right_result(study: Study) -> None:
    losses = study.convolutions.losses

    columns = ["layer", "chosen", "chosen_kernels", "best", "lost", "lost_s"]
    assert losses[columns].to_dict("records") == [
        # `find` runs another algorithm, so it is never the best itself
        {"layer": "stem", "chosen": "default", "chosen_kernels": "kernel of default",
         "best": "default", "lost": 0.0, "lost_s": 0.0},
        # a wrong result is no comparison; two uses lose twice
        {"layer": "body", "chosen": "default", "chosen_kernels": "jit:avx2", "best": "gemm",
         "lost": pytest.approx(0.25), "lost_s": pytest.approx(2e-3)},
    ]  # fmt: skip


def test_totals_and_tables_in_words(study: Study) -> None:
    found = study.convolutions

    assert describe_totals(found) == [
        "net at 8, infer, fp32, batch 1: the convolutions of a step take 10.0 ms by default and"
        " 8.00 ms with the best algorithm for each layer: 20.0 % is lost"
    ]
    assert largest_losses(found) == [
        {"network": "net at 8", "layer": "body, forward", "chosen": "default: jit:avx2",
         "its time": "4.00 ms", "best": "gemm", "best time": "3.00 ms", "lost": "25.0 %"}
    ]  # fmt: skip
    assert [(row["algorithm"], row["not its own"]) for row in whole_networks(found)] == [
        ("default", "1 of 2"), ("gemm", "1 of 2"),
    ]  # fmt: skip


def test_a_layer_that_loses_a_fifth_is_a_finding_of_its_run(study: Study) -> None:
    rows = study.findings[study.findings["kind"].eq("algorithm")]

    (row,) = rows.to_dict("records")
    assert row["layer"] == "body (algorithm)"
    assert row["headroom_s"] == pytest.approx(2e-3)
    assert row["meaning"] == (
        "the forward pass by gemm takes 3.00 ms instead of 4.00 ms by PyTorch's choice (jit:avx2),"
        " measured alone"
    )
    assert row["advice"].startswith("run the model with --algorithm 'gemm'")


def test_a_loss_by_unsteady_samples_is_in_doubt_and_no_finding(tmp_path: Path) -> None:
    results = ResultsFolder(tmp_path)
    results.save_run("conv", REQUEST, NETWORK, collect())
    held_up = replace(timed("default", 4e-3), samples_s=(4e-3, 4e-3, 2e-3))
    store(results, FIRST, held_up, timed("gemm", 3e-3))
    request = RunRequest(model="net", batch_size=1, input_size=(8,), mode="infer")
    results.save_run("run", request, measured().result, collect())

    study = read_study(results)

    (loss,) = study.convolutions.losses.to_dict("records")
    assert loss["doubt"] == "default: its median is 2.00 times its least"
    assert largest_losses(study.convolutions)[0]["lost"] == "25.0 % (in doubt)"
    assert describe_totals(study.convolutions)[0].endswith("25.0 % is lost; 1 loss in doubt")
    assert not study.findings["kind"].eq("algorithm").any()


def test_figures_report_and_page(study: Study, tmp_path: Path) -> None:
    figures = write_figures(study, tmp_path, formats=["svg"], kinds=["algorithms", "losses"])
    text = report_text(study, figures, folder=tmp_path)
    page = write_page(study, tmp_path / "report.html").read_text(encoding="utf-8")

    assert [figure.path.name for figure in figures] == ["conv_net_times.svg", "conv_net_losses.svg"]
    assert figures[1].caption == "All layers together lose 2.00 ms of the default's time."
    assert "## Convolutions" in text
    assert "conv_net_losses.svg" in text
    assert "<td>body, forward</td>" in page
