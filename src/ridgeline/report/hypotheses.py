"""Hypotheses that a study of this kind poses, each with a rule, tested against the data.

A hypothesis held where every test of it came out that way, held in part where some did, did not
hold where none did, and cannot be decided where the study has no data to test it with.

A number has three digits, and more where it would read like the limit that it is above or below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from ridgeline.report.analysis import WIDTH, ids, per_doubling
from ridgeline.report.analysis_gap import backward_ratio
from ridgeline.report.configurations import NETWORK, Case, alike, cases, largest, series
from ridgeline.report.study import BUSY, Study
from ridgeline.report.text import counted, listed, number, some, three_digits
from ridgeline.units import format_percent, format_ratio, si

HELD, PARTLY, FAILED, OPEN = "held", "held in part", "did not hold", "cannot be decided here"
GAIN = 1.05  # per doubling of the batch
NEAR_ROOF = 0.8
BACKWARD = (1.5, 2.5)
SAME_RATE = 1.5
MORE_DIGITS = range(4, 18)  # more than three, up to all of a float
ONE_ROOF = ("env", "mode", "precision")  # cases that share them are judged by the same roofs


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """One place where a hypothesis can be wrong."""

    is_met: bool
    text: str
    run_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A hypothesis and what became of it."""

    name: str  # "H1"
    claim: str
    rule: str
    outcome: str  # HELD, PARTLY, FAILED or OPEN
    evidence: str
    run_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """A claim, the rule by which it is judged, and what a study needs to judge it."""

    name: str
    claim: str
    rule: str
    needs: str
    tests: Callable[[Study, Sequence[Case]], list[Test]]


def verdicts(study: Study, found: Sequence[Case] | None = None) -> tuple[Verdict, ...]:
    """Every hypothesis, judged by this study, whose cases may be `found` already.

    Configurations during whose run the machine was busy are left out.
    """
    found = cases(study) if found is None else found
    quiet = [case for case in found if case.run_id not in study.disturbed]
    return tuple(_judge(hypothesis, study, quiet, len(found)) for hypothesis in HYPOTHESES)


def _judge(hypothesis: Hypothesis, study: Study, found: Sequence[Case], total: int) -> Verdict:
    tests = hypothesis.tests(study, found)
    met = sum(test.is_met for test in tests)
    outcome, evidence = OPEN, f"The study has no {hypothesis.needs}."
    if not tests and len(found) < total:
        left_out = counted(total - len(found), "configuration")
        evidence = f"{left_out} left out: {BUSY}. What is left has no {hypothesis.needs}."
    if tests:
        outcome = HELD if met == len(tests) else PARTLY if met else FAILED
        against = [test.text for test in tests if not test.is_met]
        told = against or [test.text for test in tests]
        lead = f"{met} of {counted(len(tests), 'test')} met"
        evidence = f"{lead}{'; not met' if against and met else ''}: {some(told, most=4)}."
    return Verdict(
        name=hypothesis.name,
        claim=hypothesis.claim,
        rule=hypothesis.rule,
        outcome=outcome,
        evidence=evidence,
        run_ids=tuple(dict.fromkeys(run_id for test in tests for run_id in test.run_ids)),
    )


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


show_times = partial(show_apart, form=three_digits)
show_percent = partial(show_apart, form=format_percent, factor=100.0, unit=" %")


def larger_batches(_study: Study, found: Sequence[Case]) -> list[Test]:
    """H1, tested on each series of batch sizes."""
    tests = []
    for group in series(found):
        steps = list(pairwise(group))
        gains = [per_doubling(small, large) for small, large in steps]
        near = [(large.efficiency or 0.0) >= NEAR_ROOF for _, large in steps]
        is_met = all(gain >= GAIN or roof for gain, roof in zip(gains, near, strict=True))
        sizes = listed(str(case.batch_size) for case in group)
        text = (
            f"{group[0].family} on {group[0].env}, batches {sizes}: per doubling"
            f" {listed(f'{show_times(gain, GAIN)} times' for gain in gains)}"
        )
        efficiency = group[-1].efficiency
        if efficiency is not None:
            text += f", efficiency {show_percent(efficiency, NEAR_ROOF)} at the end"
        tests.append(Test(is_met=is_met, text=text, run_ids=ids(group)))
    return tests


def ridge(case: Case) -> float | None:
    """FLOPs per byte at which the roofs of a step meet."""
    peak = number(case.step.get("peak_flops_per_s"))
    rate = number(case.step.get("peak_bytes_per_s"))
    return peak / rate if peak and rate else None


def roof_share(case: Case) -> float | None:
    """Attained FLOP/s over those of the arithmetic roof."""
    attained = number(case.step.get("attained_flops_per_s"))
    peak = number(case.step.get("peak_flops_per_s"))
    return attained / peak if attained and peak else None


def both_sides(_study: Study, found: Sequence[Case]) -> list[Test]:
    """H2, tested where one machine ran models on both sides of its ridge."""
    tests = []
    placed = [case for case in found if case.intensity and ridge(case) and roof_share(case)]
    for group in _by_roof(largest(placed, *ONE_ROOF, *NETWORK)):
        low = [case for case in group if (case.intensity or 0) < (ridge(case) or 0)]
        high = [case for case in group if case not in low]
        if not low or not high:
            continue
        best_low = max(low, key=lambda case: roof_share(case) or 0)
        worst_high = min(high, key=lambda case: roof_share(case) or 0)
        is_met = (roof_share(best_low) or 0) < (roof_share(worst_high) or 0)
        tests.append(
            Test(
                is_met=is_met,
                text=f"{_side(best_low, 'below', worst_high)}, while"
                f" {_side(worst_high, 'above', best_low)}",
                run_ids=ids([*low, *high]),
            )
        )
    return tests


def _side(case: Case, side: str, other: Case) -> str:
    where = f" on {case.env}" if side == "below" else ""
    intensity, limit, share = case.intensity or 0, ridge(case) or 0, roof_share(case) or 0
    return (
        f"{case.title}{where} has {show_apart(intensity, limit)} FLOP/B{_at_best(case)},"
        f" {side} its ridge at {show_apart(limit, intensity)}, and attains"
        f" {show_percent(share, roof_share(other) or 0)} of the arithmetic roof"
    )


def _at_best(case: Case) -> str:
    """The other end of its intensity."""
    best = number(case.step.get("ai_high"))
    return f" ({format_ratio(best)} if each tensor moved once)" if best else ""


def _by_roof(found: Sequence[Case]) -> list[list[Case]]:
    groups: dict[tuple[str, str, str], list[Case]] = {}
    for case in found:
        groups.setdefault((case.env, case.mode, case.precision), []).append(case)
    return list(groups.values())


def lower_precision(_study: Study, found: Sequence[Case]) -> list[Test]:
    """H3, tested on layers that were timed in two precisions, bound by bound."""
    tests = []
    for group in alike(found, but=("precision",)):
        group.sort(key=lambda case: WIDTH.get(case.precision, len(WIDTH)))
        base = group[0]
        for case in group[1:]:
            gains = _gains_by_bound(base, case)
            if gains is None:
                continue
            bound, free = gains
            tests.append(
                Test(
                    is_met=bound > free,
                    text=f"{base.model}, batch {base.batch_size} on {base.env}, {case.precision}"
                    f" against {base.precision}: layers bound by arithmetic"
                    f" {show_times(bound, free)} times as fast,"
                    f" the others {show_times(free, bound)} times",
                    run_ids=ids([base, case]),
                )
            )
    return tests


def _gains_by_bound(base: Case, case: Case) -> tuple[float, float] | None:
    """How much faster the layers bound by arithmetic became, and how much all others."""
    after_s = {layer.name: layer.time_s for layer in case.layers}
    both = [layer for layer in base.layers if layer.name in after_s and layer.bound]
    gains = []
    for is_bound in (True, False):
        part = [layer for layer in both if (layer.bound == "compute") == is_bound]
        if not part:
            return None
        before = sum(layer.time_s for layer in part)
        gains.append(before / sum(after_s[layer.name] for layer in part))
    return gains[0], gains[1]


def backward_twice(_study: Study, found: Sequence[Case]) -> list[Test]:
    """H4, tested on each training configuration."""
    low, high = BACKWARD
    return [
        Test(
            is_met=low <= ratio <= high,
            text=f"{case.title} on {case.env}: {show_apart(ratio, low, high)}",
            run_ids=case.run_ids,
        )
        for case in found
        if case.mode == "train" and (ratio := backward_ratio(case))
    ]


def time_follows_flops(_study: Study, found: Sequence[Case]) -> list[Test]:
    """H5, tested where one machine ran several models in one precision."""
    tests = []
    placed = [case for case in found if number(case.step.get("attained_flops_per_s"))]
    for group in _by_roof(largest(placed, *ONE_ROOF, *NETWORK)):
        if len(group) < 2:
            continue
        rates = {case.title: float(case.step["attained_flops_per_s"]) for case in group}
        slow, fast = min(rates, key=lambda t: rates[t]), max(rates, key=lambda t: rates[t])
        spread = rates[fast] / rates[slow]
        tests.append(
            Test(
                is_met=spread <= SAME_RATE,
                text=f"on {group[0].env}, rates reach from {si(rates[slow], 'FLOP/s')} ({slow}) to"
                f" {si(rates[fast], 'FLOP/s')} ({fast}),"
                f" {show_times(spread, SAME_RATE)} times apart",
                run_ids=ids(group),
            )
        )
    return tests


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
