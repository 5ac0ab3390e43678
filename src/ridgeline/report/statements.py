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

from collections import defaultdict
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
    TimedLayer,
    alike,
    cases,
    key,
    largest,
    series,
)
from ridgeline.report.markup import write_sentence
from ridgeline.report.study import BUSY, Study
from ridgeline.report.summary import WORDS
from ridgeline.report.text import counted, group_by, number, records, some

TOPICS = {
    "bound": "What sets the floor",
    "settings": "What batch size, precision and machine change",
    "gap": "Where the time of a step goes",
    "trust": "What does not fit, and how far the times can be trusted",
}
MEASURED, BOTH = "measured", "measured and static"
PLACED = "placed"  # measured times beside work that is static or counted, as the points say
GAIN = 1.05  # a doubling of the batch that gives less than this gives nothing
WIDTH = {"fp64": 0, "fp32": 1, "tf32": 2, "amp": 3, "bf16": 3, "fp16": 4, "fp8": 5}
SMALL_SHARE = 0.01  # of the time of all layers: not worth a word
FLOORS = ("compute_s", "dram_s", "l3_s", "l2_s", "l1_s")  # of work: all but launches
TOP_LAYERS = 3
REPEATS_DIFFER = 0.05  # between the slowest and the fastest, as a share of the fastest
CAUSE = "likely cause: "
HELD, PARTLY, FAILED, OPEN = "held", "held in part", "did not hold", "cannot be decided here"
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


def analyse(study: Study, configurations: Sequence[Case] | None = None) -> tuple[Statement, ...]:
    """All statements that the data supports, in the order of TOPICS.

    `configurations` are the cases of the study, from who has them already.
    """
    every = cases(study) if configurations is None else configurations
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


# ---------------------------------------------------------------- floors and settings


def find_step_bounds(_study: Study, mine: Sequence[Case]) -> Evidence:
    """Which configurations have their floor set by what."""
    placed = [case for case in mine if case.bound]
    for bound, words in WORDS.items():
        same = [case for case in placed if case.bound == bound]
        same.sort(key=lambda case: -(case.efficiency or 0.0))
        if same:
            values = {"bound": words, "configurations": same, "of": len(placed)}
            yield list_runs(same), values


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


def pair_precisions(configurations: Sequence[Case]) -> list[Pair]:
    """Each lower precision after the highest one, all else being equal."""
    pairs = []
    for group in alike(configurations, but=("precision",)):
        base, *others = sorted(group, key=lambda case: WIDTH.get(case.precision, len(WIDTH)))
        pairs += [(base, case) for case in others]
    return pairs


def find_precisions(_study: Study, mine: Sequence[Case]) -> Evidence:
    """A lower precision against the highest one: what was gained, and what the floors allow."""
    yield from _compare(pair_precisions(mine), lambda case: case.precision)


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


# ---------------------------------------------------------------- where the time goes


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A step taken apart. floor + kernels + waiting (or floor + rest) add up to the step."""

    case: Case
    floor_s: float  # of the work alone: arithmetic and bytes, without launches
    kernels_s: float | None  # what the kernels take beyond that; None: not known
    waiting_s: float | None  # in which the GPU is idle
    rest_s: float | None  # where kernels were not timed: all above the floor
    data_s: float | None  # waiting for a batch, and copying it
    optimizer_s: float | None


def find_gaps(configurations: Iterable[Case]) -> list[Gap]:
    """The steps of all configurations that have a floor, taken apart."""
    return [gap for gap in map(_find_gap, configurations) if gap is not None]


def _find_gap(case: Case) -> Gap | None:
    terms = [value for name in FLOORS if (value := number(case.step.get(name))) is not None]
    if not terms or max(terms) <= 0:
        return None
    step_s, kernel_s = case.step_s, number(case.run.get("kernel_time_s"))
    busy_s = None if kernel_s is None else min(kernel_s, step_s)
    floor_s = min(max(terms), step_s if busy_s is None else busy_s)
    data = [s for name in ("data_s", "copy_s") if (s := number(case.run.get(name))) is not None]
    return Gap(
        case=case,
        floor_s=floor_s,
        kernels_s=None if busy_s is None else busy_s - floor_s,
        waiting_s=None if busy_s is None else step_s - busy_s,
        rest_s=step_s - floor_s if busy_s is None else None,
        data_s=sum(data) if data else None,
        optimizer_s=number(case.run.get("optimizer_s")),
    )


def rank_shares(gaps: Iterable[Gap], part: str) -> list[tuple[float, Case]]:
    """How much of their steps a part of the gap is, the smallest first; where it is known."""
    parts = [(getattr(gap, part), gap.case) for gap in gaps]
    known = [(part_s / case.step_s, case) for part_s, case in parts if part_s is not None]
    return sorted(known, key=lambda pair: pair[0])


def find_kernel_gaps(_study: Study, mine: Sequence[Case]) -> Evidence:
    """Kernels beyond their floor, and waiting for the host."""
    timed = [gap for gap in find_gaps(mine) if gap.waiting_s is not None]
    if timed:
        values = {
            "over": rank_shares(timed, "kernels_s"),
            "waits": rank_shares(timed, "waiting_s"),
            "stalled": [gap.case for gap in timed if (gap.waiting_s or 0) > (gap.kernels_s or 0)],
        }
        yield list_runs(gap.case for gap in timed), values


def find_layer_times(_study: Study, mine: Sequence[Case]) -> Evidence:
    """The layers that take most of the time of a model, and what sets the floors of all."""
    timed = [case for case in mine if case.layers]
    for case in largest(timed, *NETWORK, "mode", "precision", "compile"):
        ranked = sorted(case.layers, key=lambda layer: -layer.time_s)[:TOP_LAYERS]
        total_s = sum(layer.time_s for layer in case.layers)
        values = {
            "case": case,
            "layers": [(layer, layer.time_s / total_s) for layer in ranked],
            "bounds": [pair for pair in _share_time(case.layers) if pair[1] >= SMALL_SHARE],
        }
        yield [case.run_id], values


def _share_time(layers: Iterable[TimedLayer]) -> list[tuple[str, float]]:
    """Parts of the time of all layers by what sets their floors, the largest first."""
    sums: dict[str, float] = defaultdict(float)
    for layer in layers:
        sums[WORDS.get(layer.bound or "", "")] += layer.time_s
    ranked = sorted(sums.items(), key=lambda item: -item[1])
    return [(name, time_s / sum(sums.values())) for name, time_s in ranked]


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
    Rule("bound", "step_bound", find_step_bounds),
    Rule("settings", "batch_series", find_batch_series),
    Rule("settings", "precision", find_precisions),
    Rule("settings", "machines", find_machines, spans_machines=True),
    Rule("gap", "kernel_gaps", find_kernel_gaps),
    Rule("gap", "layer_times", find_layer_times),
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


def verdicts(study: Study, configurations: Sequence[Case] | None = None) -> tuple[Verdict, ...]:
    """Every hypothesis, judged by this study, whose `configurations` may be known already.

    Configurations during whose run the machine was busy are left out.
    """
    every = cases(study) if configurations is None else configurations
    quiet = [case for case in every if case.run_id not in study.disturbed]
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


def _by_roof(configurations: Sequence[Case]) -> Iterable[list[Case]]:
    """The models that one machine ran in one precision, each at its largest batch."""
    chosen = largest(configurations, *ONE_ROOF, *NETWORK)
    return group_by(chosen, ((case.env, case.mode, case.precision) for case in chosen)).values()


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
            values = {
                side: {"case": case, "ridge": ridge(case), "share": roof_share(case)}
                for side, case in (("low", best), ("high", worst))
            }
            yield Test(roof_share(best) < roof_share(worst), [*low, *high], values)


def lower_precision(configurations: Sequence[Case]) -> Iterator[Test]:
    """H3, tested on layers that were timed in two precisions, bound by bound."""
    for base, case in pair_precisions(configurations):
        bound, others = (_gain(base, case, is_bound) for is_bound in (True, False))
        if bound and others:
            values = {"base": base, "case": case, "bound": bound, "others": others}
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
            yield Test(low <= ratio <= high, [case], {"case": case, "ratio": ratio})


def time_follows_flops(configurations: Sequence[Case]) -> Iterator[Test]:
    """H5, tested where one machine ran several models in one precision."""

    def rate(case: Case) -> float:
        return number(case.step.get("attained_flops_per_s")) or 0.0

    for group in _by_roof([case for case in configurations if rate(case)]):
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
