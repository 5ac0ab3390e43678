"""Sentences that the data of a study supports: rules find the numbers, statements.j2 words them.

A statement is made only where the data supports it: what was not measured is not mentioned here,
but under the report's limitations. Terms: the floor of a step is the least time its roofs allow;
what sets it (arithmetic, a memory level, launches) is its bound; efficiency is floor over time.

To add a statement, write a function that finds its values, a macro that words them, and a row in
RULES.
"""

from __future__ import annotations

from collections import Counter, defaultdict
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
    find_misfits,
    key,
    largest,
    series,
)
from ridgeline.report.markup import write_sentence
from ridgeline.report.study import BUSY, GRAPH_MODES, Study
from ridgeline.report.summary import WORDS
from ridgeline.report.text import number, records
from ridgeline.roofline.causes import AGREE
from ridgeline.settings import SWITCHES

TOPICS = {
    "bound": "What sets the floor",
    "settings": "What batch size, precision and other settings change",
    "gap": "Where the time of a step goes",
    "executed": "What the hardware did",
    "energy": "Energy",
    "trust": "What does not fit, and how far the times can be trusted",
}
MEASURED, BOTH, COUNTER = "measured", "measured and static", "static and counter"
PLACED = "placed"  # measured times beside work that is static or counted, as the points say
FLAT = 1.05  # a doubling of the batch that gives less than this gives nothing
WIDTH = {"fp64": 0, "fp32": 1, "tf32": 2, "amp": 3, "bf16": 3, "fp16": 4, "fp8": 5}
SMALL_SHARE = 0.01  # of the time of all layers: not worth a word
SAME_SHARE = 0.05  # a share that moved by less than this did not move
WORK = ("compute_s", "dram_s", "l3_s", "l2_s", "l1_s")  # a floor without launches
TOP_LAYERS = 3
REPEATS_DIFFER = 0.05  # between the slowest and the fastest, as a share of the fastest
SLOW_STEPS = 0.05  # by which the mean step is above the median
CAUSE = "likely cause: "
MEMORY_BAND = (0.5, 2.0)  # measured over counted: caches of the library explain less

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
    provenance: str = MEASURED
    spans_machines: bool = False  # find gets the configurations of all machines


def analyse(study: Study, configurations: Sequence[Case] | None = None) -> tuple[Statement, ...]:
    """All statements that the data supports, in the order of TOPICS.

    `configurations` are the cases of the study, from who has them already.
    """
    configurations = cases(study) if configurations is None else configurations
    by_machine: dict[str, list[Case]] = {}
    for case in configurations:
        by_machine.setdefault(case.env, []).append(case)
    return tuple(
        Statement(
            topic=rule.topic,
            text=write_sentence(rule.macro, values),
            provenance=_name_provenance(rule, configurations, run_ids),
            run_ids=tuple(dict.fromkeys(run_ids)),
        )
        for rule in RULES
        for group in ([configurations] if rule.spans_machines else by_machine.values())
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
        flat = (n for n in range(len(gains)) if all(gain < FLAT for gain in gains[n:]))
        gain = last.samples_per_s / first.samples_per_s
        ends = (first.intensity, last.intensity, first.efficiency, last.efficiency)
        yield (
            list_runs(group),
            {
                "first": first,
                "last": last,
                "gain": gain,
                "trend": "up" if gain > FLAT else "down" if gain < 1 / FLAT else "flat",
                "gains": gains,
                "saturated_at": next((group[n].batch_size for n in flat), None),
                "is_placed": None not in ends,
                "bounds": _name_bounds((first, last)),
                "overlaps": [
                    (a.batch_size, b.batch_size) for a, b in pairwise(group) if _overlap(a, b)
                ],
            },
        )


def per_doubling(small: Case, large: Case) -> float:
    """By what factor a doubling of the batch multiplies the throughput between two sizes."""
    gain = large.samples_per_s / small.samples_per_s
    return float(gain ** (1 / log2(large.batch_size / small.batch_size)))


def _overlap(a: Case, b: Case) -> bool:
    if not a.interval or not b.interval:
        return False
    return a.interval[1] > b.interval[0] and b.interval[1] > a.interval[0]


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


def _compare(pairs: Iterable[Pair], name: Callable[[Case], str]) -> Evidence:
    """By batch size: how many times as fast the second of a pair is, and what the floors say."""
    groups: dict[tuple[Any, ...], list[Pair]] = {}
    for pair in sorted(pairs, key=lambda pair: pair[0].batch_size):
        same = tuple(key(case.settings, but=("batch_size",)) for case in pair)
        groups.setdefault(same, []).append(pair)
    for group in groups.values():
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


def find_switches(_study: Study, mine: Sequence[Case]) -> Evidence:
    """What one other setting changes, all else being equal."""
    for name in SWITCHES:
        for group in alike(mine, but=(name,)):
            base, *others = sorted(group, key=lambda case: str(case.settings[name] or ""))
            for case in others:
                shares = (number(one.run.get("busy_fraction")) for one in (base, case))
                known = [share for share in shares if share is not None]
                is_moved = len(known) == 2 and abs(known[1] - known[0]) >= SAME_SHARE
                values = {
                    "base": base,
                    "case": case,
                    "name": "" if name == "optimizer" else name.replace("_", " "),
                    "before": base.settings[name],
                    "after": case.settings[name],
                    "busy": known if is_moved else None,
                }
                yield list_runs((base, case)), values


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
    terms = [value for name in WORK if (value := number(case.step.get(name))) is not None]
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


def find_plain_gaps(_study: Study, mine: Sequence[Case]) -> Evidence:
    """Where kernels have no time of their own: by phase, if those were timed."""
    rest = rank_shares(find_gaps(mine), "rest_s")
    if rest:
        widest = Counter(phase for _, case in rest if (phase := _widest_phase(case)))
        values = {"rest": rest, "phases": widest.most_common(), "steps": widest.total()}
        yield list_runs(case for _, case in rest), values


def _widest_phase(case: Case) -> str | None:
    """The phase with the largest headroom."""
    known = {phase: number(point.get("headroom_s")) for phase, point in case.phases.items()}
    lost = {phase: value for phase, value in known.items() if value is not None}
    return max(lost, key=lambda phase: lost[phase]) if len(lost) > 1 else None


def find_layer_times(_study: Study, mine: Sequence[Case]) -> Evidence:
    """The layers that take most of the time of a model, and what sets the floors of all."""
    timed = [case for case in mine if case.layers]
    for case in largest(timed, *NETWORK, "mode", "precision", "compile"):
        ranked = sorted(case.layers, key=lambda layer: -layer.time_s)[:TOP_LAYERS]
        total_s = sum(layer.time_s for layer in case.layers)
        bounds = _share_time(case.layers, lambda layer: WORDS.get(layer.bound or "", ""))
        kinds = _share_time(case.layers, lambda layer: layer.kind)
        values = {
            "case": case,
            "layers": [(layer, layer.time_s / total_s) for layer in ranked],
            "kinds": [pair for pair in kinds if pair[0]],
            "bounds": [pair for pair in bounds if pair[1] >= SMALL_SHARE],
        }
        yield [case.run_id], values


def _share_time(
    layers: Iterable[TimedLayer], by: Callable[[TimedLayer], str]
) -> list[tuple[str, float]]:
    """Parts of the time of all layers, the largest first."""
    sums: dict[str, float] = defaultdict(float)
    for layer in layers:
        sums[by(layer)] += layer.time_s
    ranked = sorted(sums.items(), key=lambda item: -item[1])
    return [(name, time_s / sum(sums.values())) for name, time_s in ranked]


# ---------------------------------------------------------------- executed work and energy


def find_executed_work(study: Study, mine: Sequence[Case]) -> Evidence:
    """How far the executed FLOPs and bytes of each profiled step are from the model's."""
    if study.reconciled.empty:
        return
    by_run = {run_id: case for case in mine for run_id in case.run_ids}
    for row in records(study.reconciled[study.reconciled["grain"].eq("step")]):
        flops, moved = number(row["flops_ratio"]), number(row["bytes_ratio"])
        if row["run_id"] in by_run and (flops is not None or moved is not None):
            values = {
                "case": by_run[row["run_id"]],
                "row": row,
                "flops": flops,
                "bytes": moved,
                "products": number(row["products_ratio"]),
                "agree": AGREE,
            }
            yield [row["run_id"]], values


def find_energy(_study: Study, mine: Sequence[Case]) -> Evidence:
    """Joules per sample and per FLOP, and the power behind them, at the cheapest batch sizes."""
    cheapest: dict[tuple[Any, ...], Case] = {}
    costs = {case.run_id: number(case.run.get("energy_j_per_sample")) for case in mine}
    for case in sorted(mine, key=lambda case: costs[case.run_id] or 0.0):
        if costs[case.run_id]:
            cheapest.setdefault(key(case.settings, but=("batch_size", "label")), case)
    if cheapest:
        values = {
            "costs": [(costs[case.run_id], case, _joules_per_flop(case))
                      for case in cheapest.values()],
            "power": _list_known(cheapest.values(), "mean_power_w"),
            "idle": _list_known(cheapest.values(), "idle_power_w"),
        }  # fmt: skip
        yield [case.run_id for case in cheapest.values()], values


def _joules_per_flop(case: Case) -> float | None:
    joules, flops = number(case.run.get("energy_j_per_step")), number(case.run.get("flops"))
    return joules / flops if joules and flops else None


def _list_known(configurations: Iterable[Case], name: str) -> list[float]:
    return sorted(value for case in configurations if (value := number(case.run.get(name))))


# ---------------------------------------------------------------- contradictions and trust


def find_flagged_points(study: Study, mine: Sequence[Case]) -> Evidence:
    """What the physics gate flagged, with its likely cause."""
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


def find_flagged_runs(study: Study, mine: Sequence[Case]) -> Evidence:
    """Energy and clocks that contradict what is known of the device."""
    by_run = {run_id: case for case in mine for run_id in case.run_ids}
    for row in records(study.runs):
        for name in ("flag", "clock_flag"):
            text = row.get(name)
            if row["run_id"] in by_run and isinstance(text, str) and text:
                yield [row["run_id"]], {"case": by_run[row["run_id"]], "text": text}


def find_odd_memory(_study: Study, mine: Sequence[Case]) -> Evidence:
    """A GPU's peak memory that is far from the one that was counted."""
    low, high = MEMORY_BAND
    for case in mine:
        peak = number(case.run.get("peak_memory_bytes"))
        counted = number(case.run.get("counted_peak_bytes"))
        if case.is_gpu and peak and counted and not low <= peak / counted <= high:
            is_graph = case.settings.get("compile") in GRAPH_MODES
            reserved = number(case.run.get("reserved_memory_bytes")) if is_graph else None
            values = {"case": case, "peak": peak, "counted_bytes": counted, "reserved": reserved}
            yield [case.run_id], values


def find_repeats_apart(_study: Study, mine: Sequence[Case]) -> Evidence:
    """Repeats that differ."""
    for case in mine:
        low, high = min(case.step_times_s), max(case.step_times_s)
        if high > (1 + REPEATS_DIFFER) * low:
            yield case.run_ids, {"case": case, "low": low, "high": high}


def find_slow_steps(_study: Study, mine: Sequence[Case]) -> Evidence:
    """Steps that straggle."""
    for case in mine:
        mean_s = number(case.run.get("step_mean_s"))
        if mean_s is not None and mean_s > (1 + SLOW_STEPS) * case.step_s:
            yield [case.run_id], {"case": case, "mean_s": mean_s}


def find_disturbed(study: Study, mine: Sequence[Case]) -> Evidence:
    """Runs during which the machine was busy."""
    reasons = study.disturbed
    for case in mine:
        if case.run_id in reasons:
            yield [case.run_id], {"case": case, "busy": BUSY, "reason": reasons[case.run_id]}


def find_unusable_layers(study: Study, configurations: Sequence[Case]) -> Evidence:
    """Runs whose layers do not add up to their step."""
    misfits = find_misfits(study)
    names = {run_id: case.title for case in configurations for run_id in case.run_ids}
    wrong = {run_id: title for run_id, title in names.items() if run_id in misfits}
    if wrong:
        yield wrong, {"titles": list(wrong.values())}


RULES = (
    Rule("bound", "step_bound", find_step_bounds, PLACED),
    Rule("settings", "batch_series", find_batch_series, PLACED),
    Rule("settings", "precision", find_precisions, PLACED),
    Rule("settings", "switched", find_switches),
    Rule("settings", "machines", find_machines, PLACED, spans_machines=True),
    Rule("gap", "kernel_gaps", find_kernel_gaps, PLACED),
    Rule("gap", "plain_gaps", find_plain_gaps, PLACED),
    Rule("gap", "layer_times", find_layer_times, PLACED),
    Rule("executed", "executed_work", find_executed_work, COUNTER),
    Rule("energy", "energy", find_energy, BOTH),
    Rule("trust", "flagged_points", find_flagged_points, BOTH),
    Rule("trust", "flagged_run", find_flagged_runs),
    Rule("trust", "odd_memory", find_odd_memory, BOTH),
    Rule("trust", "repeats_apart", find_repeats_apart),
    Rule("trust", "slow_steps", find_slow_steps),
    Rule("trust", "disturbed", find_disturbed),
    Rule("trust", "unusable_layers", find_unusable_layers, spans_machines=True),
)
