"""Hypotheses that a study tests, and what became of them.

A hypothesis held where every test of it came out that way, held in part where some did, did not
hold where none did, and cannot be decided where the study has no data to test it with. To add one,
write a function that finds its tests, and a row in HYPOTHESES.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import log2
from pathlib import Path
from typing import Any

from ridgeline.errors import RidgelineError
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


def judge_hypotheses(study: Study, own: Sequence[Hypothesis] = ()) -> tuple[Verdict, ...]:
    """Every hypothesis, the author's own first, judged without runs on a busy machine."""
    quiet = [case for case in study.cases if case.run_id not in study.disturbed]
    note = " Runs of a busy machine do not count." if len(quiet) < len(study.cases) else ""
    return tuple(_judge(hypothesis, quiet, note) for hypothesis in (*own, *HYPOTHESES))


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
            f" {listed(times(gain) for gain in gains)}"
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


# ---------------------------------------------------------------- an author's own

FORM = "resnet18.step_time_s > 1.5 * vgg11[precision=fp32].step_time_s"
QUANTITIES = {  # of study.runs, or of the point of its step, with their units
    **dict.fromkeys(("step_time_s", "forward_s", "backward_s", "optimizer_s", "floor_s"), "s"),
    **dict.fromkeys(("energy_j_per_sample", "energy_j_per_step"), "J"),
    **dict.fromkeys(("peak_memory_bytes", "moved_bytes", "fused_bytes"), "B"),
    **dict.fromkeys(("busy_fraction", "efficiency"), "%"),
    "samples_per_s": "samples/s", "mean_power_w": "W", "params": "", "macs": "MAC",
    "flops": "FLOP",
}  # fmt: skip
COLUMNS = {"step_time_s": "step_median_s"}  # where they have another name
PAIRED = ("batch", "precision", "mode", "input", "machine")  # alike on both sides, unless named
COMPARED = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_SIDE = re.compile(
    r"(?:(?P<factor>\d+(?:\.\d+)?)\s*\*\s*)?(?P<model>[^\s\[\]*]+?)"
    r"(?:\[(?P<where>[^\]]*)\])?\.(?P<quantity>[a-z_]+)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a comparison: a number, or a quantity of a model, times a factor."""

    factor: float
    model: str = ""  # empty: the factor alone
    quantity: str = ""
    where: Mapping[str, str]

    def value(self, case: Case) -> float | None:
        column = COLUMNS.get(self.quantity, self.quantity)
        return number({**case.step, **case.run}.get(column))

    def find(self, cases: Sequence[Case]) -> list[Case]:
        """The configurations that it is about, and whose quantity is known."""
        return [
            case
            for case in cases
            if case.model == self.model
            and all(_setting(case, name) == value for name, value in self.where.items())
            and self.value(case) is not None
        ]

    def text(self, value: float) -> str:
        factor = f"{three_digits(self.factor)} · " if self.factor != 1 else ""
        unit = QUANTITIES[self.quantity]
        return factor + (format_percent(value) if unit == "%" else si(value, unit).strip())


def read_own_hypotheses(path: Path) -> tuple[Hypothesis, ...]:
    """Those of a YAML file: a list of claims, each with a comparison."""
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise RidgelineError(f"{path} cannot be read: {first}", hint="name a YAML file") from error
    rows = content.get("hypotheses") if isinstance(content, dict) else content
    if not isinstance(rows, list) or not rows:
        raise RidgelineError(
            f"{path} is no list of hypotheses", hint=f"for example: - claim: …\n    test: {FORM}"
        )
    return tuple(_read_own(path, n, row) for n, row in enumerate(rows, start=1))


def _read_own(path: Path, n: int, row: Any) -> Hypothesis:
    if not isinstance(row, dict) or not {"claim", "test"} <= set(row):
        raise RidgelineError(
            f"{path}: hypothesis {n} has no claim and test", hint=f"claim: …, test: {FORM}"
        )
    rule = str(row["test"])
    parts = re.split(r"(>=|<=|>|<)", rule)
    try:
        if len(parts) != 3:
            raise ValueError("a test has one of > >= < <=")
        left, right = _read_side(parts[0]), _read_side(parts[2])
        if not left.model:
            raise ValueError("the left side names no model")
    except ValueError as error:
        raise RidgelineError(
            f"{path}: the test of hypothesis {n}, {rule!r}: {error}", hint=f"for example: {FORM}"
        ) from error
    about = " and ".join(f"{one.model} with {one.quantity}" for one in (left, right) if one.model)
    alike = " under the same settings" if right.model else ""
    return Hypothesis(
        name=str(row.get("name", f"A{n}")),
        claim=str(row["claim"]),
        rule=rule,
        needs=f"runs of {about}{alike}, on a machine that was not busy",
        find_tests=partial(find_own_tests, left, parts[1], right),
    )


def _read_side(text: str) -> Side:
    """`1.5 * vgg11[precision=amp].step_time_s`, or a number."""
    text = text.strip()
    try:
        return Side(factor=float(text), where={})
    except ValueError:
        found = _SIDE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no MODEL.QUANTITY and no number")
    if found["quantity"] not in QUANTITIES:
        raise ValueError(f"quantities are {', '.join(QUANTITIES)}, not {found['quantity']}")
    pairs = [part.partition("=") for part in (found["where"] or "").split(",") if part.strip()]
    where = {name.strip(): value.strip() for name, _, value in pairs}
    if unknown := [name for name in where if name not in PAIRED]:
        raise ValueError(f"{unknown[0]} is none of {', '.join(PAIRED)}")
    return Side(
        factor=float(found["factor"] or 1),
        model=found["model"],
        quantity=found["quantity"],
        where=where,
    )


def find_own_tests(left: Side, sign: str, right: Side, cases: Sequence[Case]) -> Iterator[Test]:
    """Each pair of configurations that are alike but for what the sides name; of a number, each
    configuration alone.
    """
    same = [name for name in PAIRED if name not in {*left.where, *right.where}]
    for one in left.find(cases):
        ours = left.value(one) or 0.0
        if not right.model:
            is_met = COMPARED[sign](left.factor * ours, right.factor)
            yield Test(is_met, [one], f"{_name_place(one, PAIRED)}: {left.text(ours)}")
            continue
        for other in right.find(cases):
            if all(_setting(one, name) == _setting(other, name) for name in same):
                theirs = right.value(other) or 0.0
                is_met = COMPARED[sign](left.factor * ours, right.factor * theirs)
                numbers = f"{left.text(ours)} against {right.text(theirs)}"
                yield Test(is_met, [one, other], f"{_name_place(one, same)}: {numbers}")


def _name_place(case: Case, names: Sequence[str]) -> str:
    """`batch 32, fp32, train on nvidia-h200`."""
    texts = {name: _setting(case, name) for name in names if name != "machine"}
    words = [f"{name} {text}" if name in ("batch", "input") else text
             for name, text in texts.items() if text]  # fmt: skip
    return ", ".join(words) + (f" on {case.env}" if "machine" in names else "")


def _setting(case: Case, name: str) -> str:
    key = {"machine": "env", "batch": "batch_size", "input": "input_size"}.get(name, name)
    return str(case.settings[key] if case.settings[key] is not None else "")
