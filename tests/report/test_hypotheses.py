"""Hypotheses against studies that were made to fulfil or to contradict them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.report.hand_study import batches, make_study, run_row, step_row

from ridgeline.errors import RidgelineError
from ridgeline.report.hypotheses import (
    FAILED,
    HELD,
    OPEN,
    PARTLY,
    Verdict,
    judge_hypotheses,
    read_own_hypotheses,
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
        (near_its_roof(0.7996, 0.16), "H1", FAILED, "efficiency 80.0 % at the end"),
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


# ---------------------------------------------------------------- an author's own

OWN = """
- claim: The other net is slower.
  test: other.step_time_s > 1.5 * net.step_time_s
- claim: Larger batches are faster.
  name: B
  test: net[batch=16].samples_per_s >= net[batch=8].samples_per_s
- claim: It reaches half of its roof.
  test: net.efficiency > 0.9
- claim: A third net exists.
  test: third.params > 1
"""


def test_an_authors_own(tmp_path: Path) -> None:
    # given two networks, of which the other takes twice as long, and the first also a batch of 16
    (tmp_path / "mine.yaml").write_text(OWN)
    rows = [
        run_row(run_id="a"),
        run_row(run_id="b", model="other", step_median_s=0.04),
        run_row(run_id="c", batch_size=16, images_processed=160, step_median_s=0.05),
    ]
    study = make_study(rows, [step_row(run_id="a")])
    # when they are judged, then each has its numbers beside it
    own = read_own_hypotheses(tmp_path / "mine.yaml")
    found = judge_hypotheses(study, own)[: len(own)]
    assert [(v.name, v.outcome, v.evidence, v.run_ids) for v in found] == [
        ("A1", HELD, "1 of 1 test met: batch 8, fp32, train, input 32 on toy: 40.0 ms against"
         " 1.50 · 20.0 ms.", ("b", "a")),
        ("B", FAILED, "0 of 1 test met: fp32, train, input 32 on toy: 320 samples/s against"
         " 400 samples/s.", ("c", "a")),
        ("A3", FAILED, "0 of 1 test met: batch 8, fp32, train, input 32 on toy: 50.0 %.", ("a",)),
        ("A4", OPEN, "The study has no runs of third with params, on a machine that was not busy.",
         ()),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("3", "no list of hypotheses"),
        ("- claim: x", "hypothesis 1 has no claim and test"),
        ("- {claim: x, test: a.b > 1}", "quantities are step_time_s"),
        ("- {claim: x, test: a.params}", "a test has one of"),
        ("- {claim: x, test: 'a[colour=1].params > 1'}", "colour is none of"),
        ("- {claim: x, test: 3 > a.params}", "the left side names no model"),
    ],
)
def test_what_is_no_hypothesis_is_refused(text: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(RidgelineError, match=problem):
        read_own_hypotheses(tmp_path / "mine.yaml")
