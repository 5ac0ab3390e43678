"""Hypotheses against studies that were made to fulfil or to contradict them."""

from __future__ import annotations

import pytest
from tests.report.hand_study import batches, make_study, run_row, step_row

from ridgeline.report.hypotheses import (
    FAILED,
    HELD,
    OPEN,
    PARTLY,
    Verdict,
    judge_hypotheses,
)
from ridgeline.report.study import Study


def verdict(study: Study, name: str) -> Verdict:
    return next(v for v in judge_hypotheses(study) if v.name == name)


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
    assert {v.outcome for v in judge_hypotheses(make_study())} == {OPEN}


@pytest.mark.parametrize(
    ("study", "name", "outcome", "evidence"),
    [
        (batches((8, 0.08), (16, 0.1)), "H1", HELD,
         "1 of 1 test met: net, fp32 training on toy, batches 8 and 16: 100 to 160 samples/s,"
         " per doubling 1.60 times, efficiency 50.0 % at the end."),
        (batches((8, 0.08), (16, 0.16)), "H1", FAILED, "per doubling 1.00 times"),
        (near_its_roof(0.9, 0.16), "H1", HELD, "efficiency 90.0 % at the end"),
        (batches((8, 0.08), (16, 0.16), disturbed="others"), "H1", OPEN,
         "The study has no configuration that was run with several batch sizes."
         " Runs of a busy machine do not count."),
        (backward(0.02, 0.01), "H2", PARTLY,
         "1 of 2 tests met; not met: net1, batch 8, fp32 training on toy: 1."),
        (make_study([run_row(mode="infer")]), "H2", OPEN, "no training run"),
        (two_models(6e11), "H3", HELD,
         "1 of 1 test met: on toy, rates reach from 500 GFLOP/s (net, batch 8, fp32 training) to"
         " 600 GFLOP/s (other, batch 8, fp32 training), 1.20 times apart."),
        (two_models(1e12), "H3", FAILED, "2.00 times apart"),
        (two_models(0.0), "H3", OPEN, "no machine that ran several counted models"),
    ],
)  # fmt: skip
def test_verdicts(study: Study, name: str, outcome: str, evidence: str) -> None:
    found = verdict(study, name)
    assert found.outcome == outcome
    assert found.evidence == evidence if evidence.endswith(".") else evidence in found.evidence


def test_a_verdict_names_the_runs_that_it_rests_on() -> None:
    assert verdict(batches((8, 0.08), (16, 0.1)), "H1").run_ids == ("b8", "b16")
