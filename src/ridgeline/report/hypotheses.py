"""Hypotheses that a study of this kind poses: a table of claims, conditions and sentences.

A hypothesis held where every test of it came out that way, held in part where some did, did not
hold where none did, and cannot be decided where the study has no data to test it with.

A number has three digits, and more where it would read like the limit that it is above or below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from ridgeline.report.configurations import NETWORK, Case, cases, largest, series
from ridgeline.report.markup import write_sentence
from ridgeline.report.statements import list_runs, pair_precisions, per_doubling
from ridgeline.report.study import BUSY, Study
from ridgeline.report.text import counted, number, some, three_digits, times
from ridgeline.units import format_percent, format_ratio

HELD, PARTLY, FAILED, OPEN = "held", "held in part", "did not hold", "cannot be decided here"
GAIN = 1.05  # per doubling of the batch
NEAR_ROOF = 0.8
BACKWARD = (1.5, 2.5)
SAME_RATE = 1.5
MORE_DIGITS = range(4, 18)  # more than three, up to all of a float
ONE_ROOF = ("env", "mode", "precision")  # cases that share them are judged by the same roofs


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A hypothesis and what became of it."""

    name: str  # "H1"
    claim: str
    rule: str
    outcome: str  # HELD, PARTLY, FAILED or OPEN
    evidence: str
    run_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Test:
    """One place where a hypothesis can be wrong, and what its macro in statements.j2 says of it."""

    is_met: bool
    configurations: Sequence[Case]
    values: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """A claim, the rule by which it is judged, and what a study needs to judge it."""

    name: str  # its macro has the same in small letters
    claim: str
    rule: str
    needs: str
    tests: Callable[[Sequence[Case]], Iterator[Test]]


def verdicts(study: Study, configurations: Sequence[Case] | None = None) -> tuple[Verdict, ...]:
    """Every hypothesis, judged by this study, whose `configurations` may be known already.

    Configurations during whose run the machine was busy are left out.
    """
    configurations = cases(study) if configurations is None else configurations
    quiet = [case for case in configurations if case.run_id not in study.disturbed]
    left_out = len(configurations) - len(quiet)
    return tuple(_judge(hypothesis, quiet, left_out) for hypothesis in HYPOTHESES)


def _judge(hypothesis: Hypothesis, configurations: Sequence[Case], left_out: int) -> Verdict:
    tests = list(hypothesis.tests(configurations))
    outcome, evidence = OPEN, f"The study has no {hypothesis.needs}."
    if tests:
        outcome, evidence = _sum_up(hypothesis.name.lower(), tests)
    elif left_out:
        number_of = counted(left_out, "configuration")
        evidence = f"{number_of} left out: {BUSY}. What is left has no {hypothesis.needs}."
    run_ids = list_runs(case for test in tests for case in test.configurations)
    return Verdict(
        name=hypothesis.name,
        claim=hypothesis.claim,
        rule=hypothesis.rule,
        outcome=outcome,
        evidence=evidence,
        run_ids=tuple(dict.fromkeys(run_ids)),
    )


def _sum_up(macro: str, tests: Sequence[Test]) -> tuple[str, str]:
    """Outcome and evidence of tests: those that speak against it, if there are any."""
    met = sum(test.is_met for test in tests)
    against = [test for test in tests if not test.is_met]
    texts = [write_sentence(macro, test.values) for test in against or tests]
    lead = f"{met} of {counted(len(tests), 'test')} met{'; not met' if against and met else ''}"
    outcome = HELD if not against else PARTLY if met else FAILED
    return outcome, f"{lead}: {some(texts, most=4)}."


# ---------------------------------------------------------------- numbers beside their limits


def show_apart(
    value: float,
    *limits: float,
    form: Callable[[float], str] = format_ratio,
    factor: float = 1.0,
    unit: str = "",
) -> str:
    """A value in its form, with as many more digits as it takes to differ from unequal limits."""
    unequal = [limit for limit in limits if limit != value]
    longer = [partial(_show_digits, digits, factor, unit) for digits in MORE_DIGITS]
    forms: list[Callable[[float], str]] = [form, *longer]
    texts = (show(value) for show in forms if show(value) not in map(show, unequal))
    return next(texts, form(value))


def _show_digits(digits: int, factor: float, unit: str, value: float) -> str:
    return f"{factor * value:.{digits}g}{unit}"


show_factor = partial(show_apart, form=three_digits)
show_times = partial(show_apart, form=times, unit=" times")
show_percent = partial(show_apart, form=format_percent, factor=100.0, unit=" %")


# ---------------------------------------------------------------- tests


def larger_batches(configurations: Sequence[Case]) -> Iterator[Test]:
    """H1, tested on each series of batch sizes."""
    for group in series(configurations):
        gains = [per_doubling(small, large) for small, large in pairwise(group)]
        near = [(large.efficiency or 0.0) >= NEAR_ROOF for large in group[1:]]
        is_met = all(gain >= GAIN or roof for gain, roof in zip(gains, near, strict=True))
        end = group[-1].efficiency
        efficiency = "" if end is None else show_percent(end, NEAR_ROOF)
        shown_gains = [show_times(gain, GAIN) for gain in gains]
        yield Test(is_met, group, {"group": group, "gains": shown_gains, "efficiency": efficiency})


def _by_roof(configurations: Sequence[Case]) -> list[list[Case]]:
    """The models that one machine ran in one precision, each at its largest batch."""
    groups: dict[tuple[str, str, str], list[Case]] = {}
    for case in largest(configurations, *ONE_ROOF, *NETWORK):
        groups.setdefault((case.env, case.mode, case.precision), []).append(case)
    return list(groups.values())


def _ratio(case: Case, above: str, below: str) -> float:
    """Of two numbers of a step; 0 where one is not known."""
    a, b = number(case.step.get(above)), number(case.step.get(below))
    return a / b if a and b else 0.0


def ridge(case: Case) -> float:
    """FLOPs per byte at which the roofs of a step meet."""
    return _ratio(case, "peak_flops_per_s", "peak_bytes_per_s")


def roof_share(case: Case) -> float:
    """Attained FLOP/s over those of the arithmetic roof."""
    return _ratio(case, "attained_flops_per_s", "peak_flops_per_s")


def both_sides(configurations: Sequence[Case]) -> Iterator[Test]:
    """H2, tested where one machine ran models on both sides of its ridge."""
    placed = [
        case for case in configurations if case.intensity and ridge(case) and roof_share(case)
    ]
    for group in _by_roof(placed):
        low = [case for case in group if (case.intensity or 0) < ridge(case)]
        high = [case for case in group if case not in low]
        if low and high:
            best, worst = max(low, key=roof_share), min(high, key=roof_share)
            values = {"low": _side(best, worst), "high": _side(worst, best)}
            yield Test(roof_share(best) < roof_share(worst), [*low, *high], values)


def _side(case: Case, other: Case) -> dict[str, Any]:
    """A configuration beside its ridge, in words; `best` is the other end of its intensity."""
    intensity, limit = case.intensity or 0, ridge(case)
    return {
        "case": case,
        "intensity": show_apart(intensity, limit),
        "best": number(case.step.get("ai_high")),
        "ridge": show_apart(limit, intensity),
        "share": show_percent(roof_share(case), roof_share(other)),
    }


def lower_precision(configurations: Sequence[Case]) -> Iterator[Test]:
    """H3, tested on layers that were timed in two precisions, bound by bound."""
    for base, case in pair_precisions(configurations):
        bound, others = (_gain(base, case, is_bound) for is_bound in (True, False))
        if bound and others:
            values = {"base": base, "case": case, "bound": show_factor(bound, others),
                      "others": show_factor(others, bound)}  # fmt: skip
            yield Test(bound > others, [base, case], values)


def _gain(base: Case, case: Case, is_bound: bool) -> float | None:
    """How much faster the layers bound by arithmetic became, or all others."""
    after_s = {layer.name: layer.time_s for layer in case.layers}
    both = [layer for layer in base.layers if layer.name in after_s and layer.bound]
    part = [layer for layer in both if (layer.bound == "compute") == is_bound]
    after = sum(after_s[layer.name] for layer in part)
    return sum(layer.time_s for layer in part) / after if part else None


def backward_twice(configurations: Sequence[Case]) -> Iterator[Test]:
    """H4, tested on each training configuration."""
    low, high = BACKWARD
    for case in configurations:
        forward, backward = number(case.run.get("forward_s")), number(case.run.get("backward_s"))
        if case.mode == "train" and forward and backward:
            ratio = backward / forward
            values = {"case": case, "ratio": show_apart(ratio, low, high)}
            yield Test(low <= ratio <= high, [case], values)


def time_follows_flops(configurations: Sequence[Case]) -> Iterator[Test]:
    """H5, tested where one machine ran several models in one precision."""

    def rate(case: Case) -> float:
        return number(case.step.get("attained_flops_per_s")) or 0.0

    for group in _by_roof([case for case in configurations if rate(case)]):
        if len(group) > 1:
            slow, fast = min(group, key=rate), max(group, key=rate)
            spread = rate(fast) / rate(slow)
            values = {"slow": slow, "fast": fast, "rates": [rate(slow), rate(fast)],
                      "spread": show_factor(spread, SAME_RATE)}  # fmt: skip
            yield Test(spread <= SAME_RATE, group, values)


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
        claim="Networks of low intensity are held back by memory or launches, dense ones by"
        " arithmetic.",
        rule="Of the models that one machine ran in one precision (each at its largest batch), all"
        " whose intensity is below the ridge attain a smaller share of the arithmetic roof than"
        " all above it.",
        needs="machine with models on both sides of its ridge in one precision",
        tests=both_sides,
    ),
    Hypothesis(
        name="H3",
        claim="A lower precision speeds up work that is bound by arithmetic more than the rest.",
        rule="Between two precisions of one configuration, the layers bound by arithmetic in the"
        " higher one gain more, as a whole, than the other layers.",
        needs="configuration whose layers were timed in two precisions",
        tests=lower_precision,
    ),
    Hypothesis(
        name="H4",
        claim="Backward takes about twice as long as forward.",
        rule=f"In every training configuration, backward over forward is between {BACKWARD[0]:g}"
        f" and {BACKWARD[1]:g}.",
        needs="training run whose phases were timed",
        tests=backward_twice,
    ),
    Hypothesis(
        name="H5",
        claim="Across models, time is proportional to FLOPs.",
        rule="The models that one machine ran in one precision (each at its largest batch) attain"
        f" FLOP/s within {SAME_RATE:g} times of each other.",
        needs="machine that ran several counted models in one precision",
        tests=time_follows_flops,
    ),
)
