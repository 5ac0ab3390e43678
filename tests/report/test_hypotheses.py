"""Hypotheses against studies that were made to fulfil or to contradict them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.report.hand_study import batches, layer_row, make_study, run_row, step_row

from ridgeline.report.statements import FAILED, HELD, OPEN, PARTLY, Verdict, verdicts
from ridgeline.report.study import Study


def verdict(study: Study, name: str) -> Verdict:
    return next(v for v in verdicts(study) if v.name == name)


def thin_and_dense(**changes: Any) -> Study:
    """Models on both sides of the ridge, which is at 1e12 / 1e11 = 10 FLOP/B."""
    thin = {"ai": 2.0, "ai_high": 8.0, "attained_flops_per_s": 2e11, **changes}
    return make_study(
        [run_row(run_id="t", model="thin"), run_row(run_id="d", model="dense")],
        [
            step_row(run_id="t", model="thin", **thin),
            step_row(run_id="d", model="dense", ai=50.0, attained_flops_per_s=8e11),
        ],
    )


def two_precisions(conv_s: float, norm_s: float) -> Study:
    """A convolution of `conv_s` becomes one of 4 ms, a norm of 6 ms one of `norm_s`."""
    return make_study(
        [run_row(run_id="full"), run_row(run_id="amp", precision="amp")],
        [
            layer_row("conv", run_id="full", time_s=conv_s, bound="compute"),
            layer_row("norm", run_id="full", time_s=0.006, bound="dram"),
            layer_row("conv", run_id="amp", time_s=0.004, bound="dram"),
            layer_row("norm", run_id="amp", time_s=norm_s, bound="dram"),
        ],
    )


def two_models(rate: float) -> Study:
    return make_study(
        [run_row(run_id="a"), run_row(run_id="b", model="other")],
        [step_row(run_id="a"), step_row(run_id="b", model="other", attained_flops_per_s=rate)],
    )


def near_its_roof(efficiency: float, step_s: float) -> Study:
    study = batches((8, 0.08), (16, step_s))
    study.points["efficiency"] = efficiency
    return study


def backward(*times_s: float) -> Study:
    """Training in which forward takes 10 ms."""
    return make_study(
        [run_row(run_id=str(n), model=f"net{n}", forward_s=0.01, backward_s=time_s)
         for n, time_s in enumerate(times_s)]
    )  # fmt: skip


def test_without_data_nothing_is_decided() -> None:
    assert {v.outcome for v in verdicts(make_study())} == {OPEN}


@pytest.mark.parametrize(
    ("study", "name", "outcome", "evidence"),
    [
        (batches((8, 0.08), (16, 0.1)), "H1", HELD,
         "1 of 1 test met: net, fp32 training on toy, batches 8 and 16: per doubling 1.60 times,"
         " efficiency 50.0 % at the end."),
        (batches((8, 0.08), (16, 0.16)), "H1", FAILED, "per doubling 1.00 times"),
        (near_its_roof(0.9, 0.16), "H1", HELD, "efficiency 90.0 % at the end"),
        (batches((8, 0.08), (16, 0.16), disturbed="others"), "H1", OPEN,
         "The study has no configuration that was run with several batch sizes."),
        (thin_and_dense(), "H2", HELD,
         "1 of 1 test met: thin, batch 8, fp32 training on toy has 2 FLOP/B, below its ridge at"
         " 10, and attains 20.0 % of the arithmetic roof, while dense, batch 8, fp32 training has"
         " 50 FLOP/B, above its ridge at 10, and attains 80.0 % of the arithmetic roof."),
        (thin_and_dense(attained_flops_per_s=9e11), "H2", FAILED, "attains 90.0 % of"),
        (two_models(6e11), "H2", OPEN,
         "The study has no machine with models on both sides of its ridge in one precision."),
        (two_precisions(0.012, 0.004), "H3", HELD,
         "1 of 1 test met: net, batch 8 on toy, amp against fp32: layers bound by arithmetic"
         " 3.00 times as fast, the others 1.50 times."),
        (two_precisions(0.012, 0.001), "H3", FAILED, "the others 6.00 times"),
        (backward(0.02, 0.01), "H4", PARTLY,
         "1 of 2 tests met; not met: net1, batch 8, fp32 training on toy: 1."),
        (make_study([run_row(mode="infer")]), "H4", OPEN, "no training run"),
        (two_models(6e11), "H5", HELD,
         "1 of 1 test met: on toy, rates reach from 500 GFLOP/s (net, batch 8, fp32 training) to"
         " 600 GFLOP/s (other, batch 8, fp32 training), 1.20 times apart."),
        (two_models(1e12), "H5", FAILED, "2.00 times apart"),
    ],
)  # fmt: skip
def test_verdicts(study: Study, name: str, outcome: str, evidence: str) -> None:
    found = verdict(study, name)
    assert found.outcome == outcome
    assert found.evidence == evidence if evidence.endswith(".") else evidence in found.evidence


def test_a_verdict_names_the_runs_that_it_rests_on() -> None:
    assert verdict(batches((8, 0.08), (16, 0.1)), "H1").run_ids == ("b8", "b16")
