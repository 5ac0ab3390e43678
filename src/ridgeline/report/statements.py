"""Sentences that the data of a study supports, and hypotheses that it tests.

Rules find the numbers, macros of statements.j2 word them. A statement is made only where the data
supports it: what was not measured is not mentioned here, but under the report's limitations. Terms:
the floor of a step is the least time its roofs allow; what sets it (arithmetic, a memory level,
launches) is its bound; efficiency is floor over time.

A hypothesis held where every test of it came out that way, held in part where some did, did not
hold where none did, and cannot be decided where the study has no data to test it with.

To add a statement, write a function that finds its values, a macro that words them, and a row in
RULES; a hypothesis is a function that finds its tests, a macro, and a row in HYPOTHESES.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log2
from typing import Any

from ridgeline.report.configurations import (
    ENVIRONMENT,
    NETWORK,
    PLACE,
    Case,
    alike,
    key,
    largest,
    series,
)
from ridgeline.report.markup import write_sentence
from ridgeline.report.study import BUSY, Study
from ridgeline.report.summary import WORDS
from ridgeline.report.text import counted, group_by, number, records, some

TOPICS = {
    "settings": "What batch size, precision and machine change",
    "trust": "What does not fit, and how far the times can be trusted",
}
MEASURED, BOTH = "measured", "measured and static"
PLACED = "placed"  # measured times beside work that is static or counted, as the points say
GAIN = 1.05  # a doubling of the batch that gives less than this gives nothing
WIDTH = {"fp64": 0, "fp32": 1, "tf32": 2, "amp": 3, "bf16": 3, "fp16": 4, "fp8": 5}
REPEATS_DIFFER = 0.05  # between the slowest and the fastest, as a share of the fastest
CAUSE = "likely cause: "
OUTCOMES = HELD, PARTLY, FAILED, OPEN = (
    "held", "held in part", "did not hold", "cannot be decided here",
)  # fmt: skip
NEAR_ROOF = 0.8
BACKWARD = (1.5, 2.5)
SAME_RATE = 1.5
ONE_ROOF = ("env", "mode", "precision")  # cases that share them are judged by the same roofs

Pair = tuple[Case, Case]
Evidence = Iterator[tuple[Iterable[str], dict[str, Any]]]  # runs, and the values of a macro


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A sentence or a few, where its numbers come from, and the runs that it is about."""

    topic: str  # one of TOPICS
    text: str
    provenance: str
    run_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """Where statements come from."""

    topic: str
    macro: str  # that words them
    find: Callable[[Study, Sequence[Case]], Evidence]  # in the configurations of a machine
    provenance: str = PLACED
    spans_machines: bool = False  # find gets the configurations of all machines


def analyse(study: Study) -> tuple[Statement, ...]:
    """All statements that the data supports, in the order of TOPICS."""
    every = study.cases
    by_machine = group_by(every, (case.env for case in every))
    return tuple(
        Statement(
            topic=rule.topic,
            text=write_sentence(rule.macro, values),
            provenance=_name_provenance(rule, every, run_ids),
            run_ids=tuple(dict.fromkeys(run_ids)),
        )
        for rule in RULES
        for group in ([every] if rule.spans_machines else by_machine.values())
        for run_ids, values in rule.find(study, group)
    )


def _name_provenance(rule: Rule, configurations: Iterable[Case], run_ids: Iterable[str]) -> str:
    if rule.provenance != PLACED:
        return rule.provenance
    mine = set(run_ids)
    steps = [case.step for case in configurations if case.step and case.run_id in mine]
    return " and ".join([MEASURED, *sorted({str(step["provenance"]) for step in steps})[::-1]])


def list_runs(configurations: Iterable[Case]) -> tuple[str, ...]:
    """The runs of configurations, repeats included."""
    return tuple(run_id for case in configurations for run_id in case.run_ids)


# ---------------------------------------------------------------- settings


def find_batch_series(_study: Study, mine: Sequence[Case]) -> Evidence:
    """How throughput, intensity and efficiency move with the batch size."""
    for group in series(mine):
        first, last = group[0], group[-1]
        gains = [per_doubling(a, b) for a, b in pairwise(group)]
        flat = (n for n in range(len(gains)) if all(gain < GAIN for gain in gains[n:]))
        gain = last.samples_per_s / first.samples_per_s
        ends = (first.intensity, last.intensity, first.efficiency, last.efficiency)
        yield (
            list_runs(group),
            {
                "first": first,
                "last": last,
                "gain": gain,
                "trend": "up" if gain > GAIN else "down" if gain < 1 / GAIN else "flat",
                "saturated_at": next((group[n].batch_size for n in flat), None),
                "is_placed": None not in ends,
                "bounds": _name_bounds((first, last)),
            },
        )


def per_doubling(small: Case, large: Case) -> float:
    """By what factor a doubling of the batch multiplies the throughput between two sizes."""
    gain = large.samples_per_s / small.samples_per_s
    return float(gain ** (1 / log2(large.batch_size / small.batch_size)))


def _name_bounds(pair: Pair) -> list[str]:
    return [WORDS.get(case.bound or "", "") for case in pair]


def find_precisions(_study: Study, mine: Sequence[Case]) -> Evidence:
    """A lower precision against the highest one: what was gained, and what the floors allow."""
    pairs = []
    for group in alike(mine, but=("precision",)):
        base, *others = sorted(group, key=lambda case: WIDTH.get(case.precision, len(WIDTH)))
        pairs += [(base, case) for case in others]
    yield from _compare(pairs, lambda case: case.precision)


def find_machines(_study: Study, configurations: Sequence[Case]) -> Evidence:
    """The same configurations on two machines."""
    pairs = []
    for group in alike(configurations, but=(*PLACE, *ENVIRONMENT)):
        slow, *others = sorted(group, key=lambda case: -case.step_s)
        pairs += [(slow, case) for case in others if case.env != slow.env]
    yield from _compare(pairs, lambda case: case.env)


def _compare(pairs: list[Pair], name: Callable[[Case], str]) -> Evidence:
    """By batch size: how many times as fast the second of a pair is, and what the floors say."""
    pairs.sort(key=lambda pair: pair[0].batch_size)
    keys = (tuple(key(case.settings, but=("batch_size",)) for case in pair) for pair in pairs)
    for group in group_by(pairs, keys).values():
        floors = [ratio for pair in group if (ratio := _floor_ratio(*pair)) is not None]
        yield (
            list_runs(case for pair in group for case in pair),
            {
                "pairs": group,
                "names": [name(case) for case in group[0]],
                "floors": floors if len(floors) == len(group) else [],
                "bounds": _name_bounds(group[-1]),
            },
        )


def _floor_ratio(base: Case, case: Case) -> float | None:
    """How much lower the floor of the second is, where both are of the same kind."""
    if base.step.get("provenance") != case.step.get("provenance"):
        return None
    return base.floor_s / case.floor_s if base.floor_s and case.floor_s else None


# ---------------------------------------------------------------- trust


def find_flagged_points(study: Study, mine: Sequence[Case]) -> Evidence:
    """What the sanity checks flagged, with its likely cause."""
    points = study.points
    if points.empty or "flag" not in points:
        return
    flagged = points[points["flag"].fillna("").ne("") & points["env"].eq(mine[0].env)]
    causes = flagged["flag"].map(lambda flag: str(flag).partition(CAUSE)[2])
    for cause, rows in flagged.groupby(causes, sort=False):
        farthest = max(records(rows), key=lambda row: number(row["efficiency"]) or 0.0)
        what = str(farthest["flag"]).partition(f"; {CAUSE}")[0]
        values = {"cause": cause, "points": len(rows), "farthest": farthest, "what": what}
        yield rows["run_id"], values


def find_repeats_apart(_study: Study, mine: Sequence[Case]) -> Evidence:
    """Repeats that differ."""
    for case in mine:
        low, high = min(case.step_times_s), max(case.step_times_s)
        if high > (1 + REPEATS_DIFFER) * low:
            yield case.run_ids, {"case": case, "low": low, "high": high}


def find_disturbed(study: Study, mine: Sequence[Case]) -> Evidence:
    """Runs during which the machine was busy."""
    reasons = study.disturbed
    for case in mine:
        if case.run_id in reasons:
            yield [case.run_id], {"case": case, "busy": BUSY, "reason": reasons[case.run_id]}


RULES = (
    Rule("settings", "batch_series", find_batch_series),
    Rule("settings", "precision", find_precisions),
    Rule("settings", "machines", find_machines, spans_machines=True),
    Rule("trust", "flagged_points", find_flagged_points, BOTH),
    Rule("trust", "repeats_apart", find_repeats_apart, MEASURED),
    Rule("trust", "disturbed", find_disturbed, MEASURED),
)


# ---------------------------------------------------------------- hypotheses


@dataclass(frozen=True, slots=True)
class Test:
    """One place where a hypothesis can be wrong, and what its macro in statements.j2 says of it."""

    is_met: bool
    configurations: Sequence[Case]
    values: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """A claim, the rule by which it is judged, and what a study needs to judge it."""

    name: str  # "H1"; its macro has the same in small letters
    claim: str
    rule: str
    needs: str
    tests: Callable[[Sequence[Case]], Iterator[Test]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of a hypothesis."""

    hypothesis: Hypothesis
    outcome: str  # HELD, PARTLY, FAILED or OPEN
    evidence: str
    run_ids: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.hypothesis.name


def verdicts(study: Study) -> tuple[Verdict, ...]:
    """Every hypothesis, judged by this study without the runs during which the machine was busy."""
    quiet = [case for case in study.cases if case.run_id not in study.disturbed]
    return tuple(_judge(hypothesis, quiet) for hypothesis in HYPOTHESES)


def _judge(hypothesis: Hypothesis, configurations: Sequence[Case]) -> Verdict:
    """The evidence is that of the tests that speak against it, if there are any."""
    tests = list(hypothesis.tests(configurations))
    if not tests:
        evidence = f"The study has no {hypothesis.needs}."
        return Verdict(hypothesis=hypothesis, outcome=OPEN, evidence=evidence)
    met = sum(test.is_met for test in tests)
    against = [test for test in tests if not test.is_met]
    texts = [write_sentence(hypothesis.name.lower(), test.values) for test in against or tests]
    lead = f"{met} of {counted(len(tests), 'test')} met{'; not met' if against and met else ''}"
    run_ids = list_runs(case for test in tests for case in test.configurations)
    return Verdict(
        hypothesis=hypothesis,
        outcome=HELD if not against else PARTLY if met else FAILED,
        evidence=f"{lead}: {some(texts, most=4)}.",
        run_ids=tuple(dict.fromkeys(run_ids)),
    )


def larger_batches(configurations: Sequence[Case]) -> Iterator[Test]:
    """H1, tested on each series of batch sizes."""
    for group in series(configurations):
        gains = [per_doubling(small, large) for small, large in pairwise(group)]
        near = [(large.efficiency or 0.0) >= NEAR_ROOF for large in group[1:]]
        is_met = all(gain >= GAIN or roof for gain, roof in zip(gains, near, strict=True))
        yield Test(is_met, group, {"group": group, "gains": gains})


def backward_twice(configurations: Sequence[Case]) -> Iterator[Test]:
    """H2, tested on each training configuration."""
    low, high = BACKWARD
    for case in configurations:
        forward, backward = number(case.run.get("forward_s")), number(case.run.get("backward_s"))
        if case.mode == "train" and forward and backward:
            ratio = backward / forward
            yield Test(low <= ratio <= high, [case], {"case": case, "ratio": ratio})


def time_follows_flops(configurations: Sequence[Case]) -> Iterator[Test]:
    """H3, tested where one machine ran several models in one precision."""

    def rate(case: Case) -> float:
        return number(case.step.get("attained_flops_per_s")) or 0.0

    placed = largest([case for case in configurations if rate(case)], *ONE_ROOF, *NETWORK)
    keys = (tuple(case.settings[name] for name in ONE_ROOF) for case in placed)
    for group in group_by(placed, keys).values():
        if len(group) > 1:
            slow, fast = min(group, key=rate), max(group, key=rate)
            values = {"slow": slow, "fast": fast, "rates": [rate(slow), rate(fast)]}
            yield Test(rate(fast) <= SAME_RATE * rate(slow), group, values)


HYPOTHESES = (
    Hypothesis(
        name="H1",
        claim="Larger batches raise the throughput until a roof is near.",
        rule=f"In a series of batch sizes, every doubling multiplies the samples per second by at"
        f" least {GAIN:g}, or the efficiency of the larger batch is {NEAR_ROOF:g} or more.",
        needs="configuration that was run with several batch sizes",
        tests=larger_batches,
    ),
    Hypothesis(
        name="H2",
        claim="Backward takes about twice as long as forward.",
        rule=f"In every training configuration, backward over forward is between {BACKWARD[0]:g}"
        f" and {BACKWARD[1]:g}.",
        needs="training run whose phases were timed",
        tests=backward_twice,
    ),
    Hypothesis(
        name="H3",
        claim="Across models, time is proportional to FLOPs.",
        rule="The models that one machine ran in one precision (each at its largest batch) attain"
        f" FLOP/s within {SAME_RATE:g} times of each other.",
        needs="machine that ran several counted models in one precision",
        tests=time_follows_flops,
    ),
)
