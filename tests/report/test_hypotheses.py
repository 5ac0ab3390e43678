"""Hypotheses against studies that were made to fulfil or to contradict them."""

from __future__ import annotations

import pytest
from tests.report.hand_study import batches, layer_row, make_study, run_row, step_row

from ridgeline.report.hypotheses import FAILED, HELD, OPEN, PARTLY, Verdict, verdicts
from ridgeline.report.study import Study


def verdict(study: Study, name: str) -> Verdict:
    return next(v for v in verdicts(study) if v.name == name)


def test_without_data_nothing_is_decided() -> None:
    assert {v.outcome for v in verdicts(make_study())} == {OPEN}


def test_larger_batches_gain() -> None:
    found = verdict(batches((8, 0.08), (16, 0.1)), "H1")

    assert (found.outcome, found.evidence) == (
        HELD,
        "1 of 1 test met: net, fp32 training on toy, batches 8 and 16: per doubling 1.60 times,"
        " efficiency 50.0 % at the end.",
    )
    assert found.run_ids == ("b8", "b16")


def test_nothing_is_decided_by_runs_on_a_busy_machine() -> None:
    # given a series whose runs were disturbed
    found = verdict(batches((8, 0.08), (16, 0.16), disturbed="others"), "H1")

    assert found.outcome == OPEN
    assert found.evidence == (
        "2 configurations left out: the machine was busy. What is left has no"
        " configuration that was run with several batch sizes."
    )


def test_a_flat_series_far_from_its_roof_speaks_against_it() -> None:
    assert verdict(batches((8, 0.08), (16, 0.16)), "H1").outcome == FAILED


def test_a_flat_series_near_its_roof_does_not() -> None:
    study = batches((8, 0.08), (16, 0.16))
    study.points["efficiency"] = 0.9

    assert verdict(study, "H1").outcome == HELD


@pytest.mark.parametrize(("slow_rate", "outcome"), [(2e11, HELD), (9e11, FAILED)])
def test_both_sides_of_the_ridge(slow_rate: float, outcome: str) -> None:
    study = make_study(  # the ridge is at 1e12 / 1e11 = 10 FLOP/B
        [run_row(run_id="t", model="thin"), run_row(run_id="d", model="dense")],
        [
            step_row(run_id="t", model="thin", ai=2.0, ai_high=8.0, attained_flops_per_s=slow_rate),
            step_row(run_id="d", model="dense", ai=50.0, attained_flops_per_s=8e11),
        ],
    )
    found = verdict(study, "H2")

    assert found.outcome == outcome
    if outcome == HELD:
        assert found.evidence == (
            "1 of 1 test met: thin, batch 8, fp32 training on toy has 2 FLOP/B (8 if each tensor"
            " moved once), below its ridge at 10, and attains 20.0 % of the arithmetic roof, while"
            " dense, batch 8, fp32 training has 50 FLOP/B (100 if each tensor moved once), above"
            " its ridge at 10, and attains 80.0 % of the arithmetic roof."
        )


def test_models_on_one_side_decide_nothing() -> None:
    study = make_study(
        [run_row(run_id="a"), run_row(run_id="b", model="other")],
        [step_row(run_id="a"), step_row(run_id="b", model="other")],
    )

    found = verdict(study, "H2")

    assert found.outcome == OPEN
    assert found.evidence == (
        "The study has no machine with models on both sides of its ridge in one precision."
    )


@pytest.mark.parametrize(("norm_s", "outcome"), [(0.004, HELD), (0.001, FAILED)])
def test_lower_precision(norm_s: float, outcome: str) -> None:
    study = make_study(
        [run_row(run_id="full"), run_row(run_id="amp", precision="amp")],
        [
            layer_row("conv", run_id="full", time_s=0.012, bound="compute"),
            layer_row("norm", run_id="full", time_s=0.006, bound="dram"),
            layer_row("conv", run_id="amp", time_s=0.004, bound="dram"),
            layer_row("norm", run_id="amp", time_s=norm_s, bound="dram"),
        ],
    )
    found = verdict(study, "H3")

    assert found.outcome == outcome
    if outcome == HELD:
        assert found.evidence == (
            "1 of 1 test met: net, batch 8 on toy, amp against fp32: layers bound by arithmetic"
            " 3.00 times as fast, the others 1.50 times."
        )


def test_backward_is_judged_in_every_configuration() -> None:
    study = make_study(
        [run_row(), run_row(run_id="b", model="odd", backward_s=0.006), run_row(mode="infer")]
    )

    found = verdict(study, "H4")

    assert (found.outcome, found.evidence) == (
        PARTLY,
        "1 of 2 tests met; not met: odd, batch 8, fp32 training on toy: 1.",
    )


def test_a_number_is_not_rounded_to_the_limit_that_it_misses() -> None:
    # given training whose backward takes 2.5004 times as long as forward, and 2.5 times
    over = run_row(forward_s=0.01, backward_s=0.025004)
    at = run_row(forward_s=0.01, backward_s=0.025)
    # then what is beyond 2.5 reads as such, and what is not has no digits that it does not need
    assert verdict(make_study([over]), "H4").evidence == (
        "0 of 1 test met: net, batch 8, fp32 training on toy: 2.5004."
    )
    assert verdict(make_study([at]), "H4").evidence == (
        "1 of 1 test met: net, batch 8, fp32 training on toy: 2.5."
    )


def test_neither_are_gains_efficiencies_shares_and_rates() -> None:
    # given 1.0499 times the samples per second, at an efficiency of 79.99 %
    study = batches((8, 0.08), (16, 0.16 / 1.0499))
    study.points["efficiency"] = 0.7999
    # then neither reads like the limit: 1.05, or 80 %
    evidence = verdict(study, "H1").evidence
    assert "per doubling 1.0499 times, efficiency 79.99 % at the end" in evidence
    # given models on two sides of the ridge at 10 FLOP/B with about the same share of the roof
    thin = {"run_id": "t", "model": "thin", "ai": 9.999, "attained_flops_per_s": 8.0004e11}
    dense = {"run_id": "d", "model": "dense", "ai": 10.001, "attained_flops_per_s": 8e11}
    study = make_study([run_row(run_id="t", model="thin"), run_row(run_id="d", model="dense")],
                       [step_row(**thin), step_row(**dense)])  # fmt: skip
    evidence = verdict(study, "H2").evidence
    assert "has 9.999 FLOP/B" in evidence
    assert "has 10.001 FLOP/B" in evidence
    assert "attains 80.004 % of" in evidence
    # given rates 1.5003 times apart
    study.points["attained_flops_per_s"] = [1.5003e11, 1e11]
    assert "1.5003 times apart" in verdict(study, "H5").evidence


def test_nor_two_gains_to_one_another() -> None:
    # given layers bound by arithmetic that become 3.0003 times as fast, and others 3 times
    study = make_study(
        [run_row(run_id="full"), run_row(run_id="amp", precision="amp")],
        [
            layer_row("conv", run_id="full", time_s=0.0120012, bound="compute"),
            layer_row("norm", run_id="full", time_s=0.006, bound="dram"),
            layer_row("conv", run_id="amp", time_s=0.004, bound="dram"),
            layer_row("norm", run_id="amp", time_s=0.002, bound="dram"),
        ],
    )
    assert verdict(study, "H3").evidence.endswith(
        "layers bound by arithmetic 3.0003 times as fast, the others 3 times."
    )


@pytest.mark.parametrize(("rate", "outcome"), [(6e11, HELD), (1e12, FAILED)])
def test_time_follows_flops(rate: float, outcome: str) -> None:
    study = make_study(
        [run_row(run_id="a"), run_row(run_id="b", model="other")],
        [step_row(run_id="a"), step_row(run_id="b", model="other", attained_flops_per_s=rate)],
    )

    assert verdict(study, "H5").outcome == outcome
