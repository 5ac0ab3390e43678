"""Hypotheses that a study tests, and what became of them.

A hypothesis held where every test of it came out that way, held in part where some did, did not
hold where none did, and cannot be decided where the study has no data to test it with. To add one,
write a function that finds its tests, and a row in HYPOTHESES.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log2

from ridgeline.report.configurations import NETWORK, Case, largest, series
from ridgeline.report.study import Study
from ridgeline.report.text import counted, group_by, listed, number, some, three_digits, times
from ridgeline.units import format_percent, format_ratio, si

OUTCOMES = HELD, PARTLY, FAILED, OPEN = (
    "held", "held in part", "did not hold", "cannot be decided here",
)  # fmt: skip
GAIN = 1.05  # a doubling of the batch that gives less than this gives nothing
NEAR_ROOF = 0.8
BACKWARD = (1.5, 2.5)
SAME_RATE = 1.5
ONE_ROOF = ("env", "mode", "precision")  # cases that share them are judged by the same roofs
MOST_TESTS = 4  # in the evidence


@dataclass(frozen=True, slots=True)
class Test:
    """One place where a hypothesis can be wrong, and the numbers there."""

    is_met: bool
    cases: Sequence[Case]
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """A claim, the rule by which it is judged, and what a study needs to judge it."""

    name: str  # "H1"
    claim: str
    rule: str
    needs: str
    find_tests: Callable[[Sequence[Case]], Iterator[Test]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of a hypothesis."""

    hypothesis: Hypothesis
    outcome: str  # one of OUTCOMES
    evidence: str
    run_ids: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.hypothesis.name


def judge_hypotheses(study: Study) -> tuple[Verdict, ...]:
    """Every hypothesis, judged without the runs during which the machine was busy."""
    quiet = [case for case in study.cases if case.run_id not in study.disturbed]
    note = " Runs of a busy machine do not count." if len(quiet) < len(study.cases) else ""
    return tuple(_judge(hypothesis, quiet, note) for hypothesis in HYPOTHESES)


def _judge(hypothesis: Hypothesis, cases: Sequence[Case], note: str) -> Verdict:
    """The evidence is that of the tests that speak against it, if there are any."""
    tests = list(hypothesis.find_tests(cases))
    if not tests:
        evidence = f"The study has no {hypothesis.needs}.{note}"
        return Verdict(hypothesis=hypothesis, outcome=OPEN, evidence=evidence)
    met = sum(test.is_met for test in tests)
    against = [test for test in tests if not test.is_met]
    lead = f"{met} of {counted(len(tests), 'test')} met{'; not met' if against and met else ''}"
    texts = some([test.evidence for test in against or tests], most=MOST_TESTS)
    run_ids = (run_id for test in tests for case in test.cases for run_id in case.run_ids)
    return Verdict(
        hypothesis=hypothesis,
        outcome=HELD if not against else PARTLY if met else FAILED,
        evidence=f"{lead}: {texts}.",
        run_ids=tuple(dict.fromkeys(run_ids)),
    )


def test_larger_batches(cases: Sequence[Case]) -> Iterator[Test]:
    """H1, on each series of batch sizes."""
    for group in series(cases):
        gains = [find_gain(small, large) for small, large in pairwise(group)]
        near = [(large.efficiency or 0.0) >= NEAR_ROOF for large in group[1:]]
        is_met = all(gain >= GAIN or roof for gain, roof in zip(gains, near, strict=True))
        first, last = group[0], group[-1]
        sizes = listed(str(case.batch_size) for case in group)
        evidence = (
            f"{first.family} on {first.env}, batches {sizes}: {three_digits(first.samples_per_s)}"
            f" to {three_digits(last.samples_per_s)} samples/s, per doubling"
            f" {listed(map(times, gains))}"
        )
        if last.efficiency:
            evidence += f", efficiency {format_percent(last.efficiency)} at the end"
        yield Test(is_met, group, evidence)


def find_gain(small: Case, large: Case) -> float:
    """By what factor a doubling of the batch multiplies the throughput between two sizes."""
    gain = large.samples_per_s / small.samples_per_s
    return float(gain ** (1 / log2(large.batch_size / small.batch_size)))


def test_backward_twice(cases: Sequence[Case]) -> Iterator[Test]:
    """H2, on each training configuration."""
    low, high = BACKWARD
    for case in cases:
        forward, backward = number(case.run.get("forward_s")), number(case.run.get("backward_s"))
        if case.mode == "train" and forward and backward:
            ratio = backward / forward
            evidence = f"{case.title} on {case.env}: {format_ratio(ratio)}"
            yield Test(low <= ratio <= high, [case], evidence)


def test_time_follows_flops(cases: Sequence[Case]) -> Iterator[Test]:
    """H3, where one machine ran several models in one precision."""

    def rate(case: Case) -> float:
        return number(case.step.get("attained_flops_per_s")) or 0.0

    placed = largest([case for case in cases if rate(case)], *ONE_ROOF, *NETWORK)
    keys = (tuple(case.settings[name] for name in ONE_ROOF) for case in placed)
    for group in group_by(placed, keys).values():
        if len(group) > 1:
            slow, fast = min(group, key=rate), max(group, key=rate)
            evidence = (
                f"on {slow.env}, rates reach from {si(rate(slow), 'FLOP/s')} ({slow.title}) to"
                f" {si(rate(fast), 'FLOP/s')} ({fast.title}),"
                f" {times(rate(fast) / rate(slow))} apart"
            )
            yield Test(rate(fast) <= SAME_RATE * rate(slow), group, evidence)


HYPOTHESES = (
    Hypothesis(
        name="H1",
        claim="Larger batches raise the throughput until a roof is near.",
        rule=f"In a series of batch sizes, every doubling multiplies the samples per second by at"
        f" least {GAIN:g}, or the efficiency of the larger batch is {NEAR_ROOF:g} or more.",
        needs="configuration that was run with several batch sizes",
        find_tests=test_larger_batches,
    ),
    Hypothesis(
        name="H2",
        claim="Backward takes about twice as long as forward.",
        rule=f"In every training configuration, backward over forward is between {BACKWARD[0]:g}"
        f" and {BACKWARD[1]:g}.",
        needs="training run whose phases were timed",
        find_tests=test_backward_twice,
    ),
    Hypothesis(
        name="H3",
        claim="Across models, time is proportional to FLOPs.",
        rule="The models that one machine ran in one precision (each at its largest batch) attain"
        f" FLOP/s within {SAME_RATE:g} times of each other.",
        needs="machine that ran several counted models in one precision",
        find_tests=test_time_follows_flops,
    ),
)
