"""What the data of a study says, in sentences. Pure functions of a study.

A statement is made only where the data supports it: what was not measured is not mentioned here,
but under the report's limitations. Terms: the floor of a step is the least time its roofs allow;
what sets it (arithmetic, a memory level, launches) is its bound; efficiency is floor over time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
    largest,
    series,
)
from ridgeline.report.study import Study
from ridgeline.report.summary import WORDS
from ridgeline.report.text import counted, listed, number, some, three_digits, times
from ridgeline.units import format_percent, format_ratio, format_time

MEASURED, STATIC, BOTH = "measured", "static", "measured and static"
TOPICS = {
    "bound": "What sets the floor",
    "layer-bounds": "The time of the layers, by what sets their floors",
    "batch": "With the batch size",
    "precision": "With the precision",
    "settings": "With other settings",
    "machines": "Between machines",
    "gap": "What the gap is made of",
    "executed": "What the hardware did",
    "phases": "Forward and backward",
    "layers": "Which layers take the time",
    "energy": "Energy",
    "physics": "What does not fit",
    "stability": "How far the times can be trusted",
}
FLAT = 1.05  # a doubling of the batch that gives less than this gives nothing
WIDTH = {"fp64": 0, "fp32": 1, "tf32": 2, "amp": 3, "bf16": 3, "fp16": 4, "fp8": 5}
SWITCHES = ("compile", "channels_last", "cudnn_benchmark", "deterministic", "optimizer")
SMALL_SHARE = 0.01  # of the time of all layers: not worth a word
LITTLE = 0.05  # a share that moved by less than this did not move


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A sentence or a few, where its numbers come from, and the runs that it is about."""

    topic: str  # one of TOPICS
    text: str
    provenance: str
    run_ids: tuple[str, ...]


def bounds(_study: Study, found: Sequence[Case]) -> Iterable[Statement]:
    """Which configurations have their floor set by what, machine by machine."""
    for env in dict.fromkeys(case.env for case in found):
        placed = [case for case in found if case.env == env and case.bound]
        for bound in WORDS:
            mine = [case for case in placed if case.bound == bound]
            if not mine:
                continue
            mine.sort(key=lambda case: -(case.efficiency or 0.0))
            names = [f"{case.title} ({format_percent(case.efficiency or 0.0)})" for case in mine]
            yield Statement(
                topic="bound",
                text=f"On {env}, {WORDS[bound]} sets the floor of the step in"
                f" {of_all(len(mine), len(placed))} (efficiency in brackets): {some(names)}.",
                provenance=_place(mine),
                run_ids=ids(mine),
            )


def of_all(number_of: int, of: int) -> str:
    """`2 of 5 configurations`."""
    if number_of == of:
        return "the one configuration" if of == 1 else f"all {of} configurations"
    return f"{number_of} of {counted(of, 'configuration')}"


def _place(found: Iterable[Case]) -> str:
    """Times are measured; the work is static or counted by the hardware."""
    kinds = sorted({str(case.step.get("provenance", STATIC)) for case in found})
    return " and ".join([MEASURED, *reversed(kinds)])


def phase_bounds(_study: Study, found: Sequence[Case]) -> Iterable[Statement]:
    """Phases whose floor is set by something else than that of the step."""
    for env in dict.fromkeys(case.env for case in found):
        mine = [case for case in found if case.env == env and case.bound and case.mode == "train"]
        others: dict[tuple[str, str], list[Case]] = {}
        for case in mine:
            for phase, point in case.phases.items():
                bound = point.get("bound")
                if number(point.get("time_s")) and isinstance(bound, str) and bound != case.bound:
                    others.setdefault((phase, bound), []).append(case)
        if not others:
            continue
        texts = [
            f"{WORDS[bound]} for the {phase} in {of_all(len(these), len(mine))}"
            for (phase, bound), these in others.items()
        ]
        yield Statement(
            topic="bound",
            text=f"On {env}, a phase of a training step can have another bound than the whole:"
            f" {listed(texts)}.",
            provenance=_place(mine),
            run_ids=ids(case for these in others.values() for case in these),
        )


def layer_bounds(_study: Study, found: Sequence[Case]) -> Iterable[Statement]:
    """How the time of the layers is shared out by what bounds them."""
    for case, layers in timed_layers(found):
        texts = [
            f"{format_percent(share)} {WORDS.get(bound, 'nothing that is known')}"
            for bound, share in time_shares(layers, lambda layer: layer.bound or "").items()
            if share >= SMALL_SHARE
        ]
        yield Statement(
            topic="layer-bounds",
            text=f"{case.title} on {case.env}: {listed(texts)}.",
            provenance=BOTH,
            run_ids=(case.run_id,),
        )


def timed_layers(found: Sequence[Case]) -> list[tuple[Case, Sequence[TimedLayer]]]:
    """Of each network the configuration with the largest batch whose layers were timed well."""
    timed = [case for case in found if case.layers]
    chosen = largest(timed, "env", *NETWORK, "mode", "precision", "compile")
    return [(case, case.layers) for case in chosen]


def time_shares(layers: Sequence[TimedLayer], by: Callable[[TimedLayer], str]) -> dict[str, float]:
    """Parts of the time of all layers, the largest first."""
    sums: dict[str, float] = {}
    for layer in layers:
        sums[by(layer)] = sums.get(by(layer), 0.0) + layer.time_s
    whole = sum(sums.values())
    return {name: sums[name] / whole for name in sorted(sums, key=lambda name: -sums[name])}


def batch_sizes(_study: Study, found: Sequence[Case]) -> Iterable[Statement]:
    """How throughput, intensity and efficiency move with the batch size."""
    for group in series(found):
        first, last = group[0], group[-1]
        gain = last.samples_per_s / first.samples_per_s
        sentences = [
            f"{first.family} on {first.env}: from batch {first.batch_size} to {last.batch_size},"
            f" throughput {_moves(gain)} from {format_ratio(first.samples_per_s)} to"
            f" {format_ratio(last.samples_per_s)} samples/s,"
            f" {times(gain)} for {last.batch_size / first.batch_size:g} times the batch",
            _levels_off(group),
            _with_batch(first, last),
            _unclear(group),
        ]
        yield Statement(
            topic="batch",
            text=". ".join(text for text in sentences if text) + ".",
            provenance=BOTH if first.efficiency and last.efficiency else MEASURED,
            run_ids=ids(group),
        )


def _moves(gain: float) -> str:
    if gain > FLAT:
        return "rises"
    return "falls" if gain < 1 / FLAT else "hardly moves:"


def per_doubling(small: Case, large: Case) -> float:
    """By what factor a doubling of the batch multiplies the throughput between two sizes."""
    gain = large.samples_per_s / small.samples_per_s
    return float(gain ** (1 / log2(large.batch_size / small.batch_size)))


def _levels_off(group: Sequence[Case]) -> str:
    gains = [per_doubling(a, b) for a, b in pairwise(group)]
    flat = next((n for n, gain in enumerate(gains) if all(g < FLAT for g in gains[n:])), None)
    text = f"Each doubling multiplies it by {listed(three_digits(gain) for gain in gains)}"
    if flat is None:
        return f"{text}; at batch {group[-1].batch_size} it is still rising"
    return f"{text}; beyond batch {group[flat].batch_size} nothing is gained"


def _with_batch(first: Case, last: Case) -> str:
    if None in (first.intensity, last.intensity, first.efficiency, last.efficiency):
        return ""
    text = (
        f"Intensity goes from {format_ratio(first.intensity or 0)} to"
        f" {format_ratio(last.intensity or 0, 'FLOP/B')}, efficiency from"
        f" {format_percent(first.efficiency or 0)} to {format_percent(last.efficiency or 0)}"
    )
    if first.bound != last.bound:
        text += f", and the bound from {WORDS[first.bound or '']} to {WORDS[last.bound or '']}"
    return text


def _unclear(group: Sequence[Case]) -> str:
    """Neighbours whose intervals overlap."""
    pairs = [
        f"{a.batch_size} and {b.batch_size}"
        for a, b in pairwise(group)
        if a.interval and b.interval and a.interval[1] > b.interval[0]
        and b.interval[1] > a.interval[0]
    ]  # fmt: skip
    return f"The 95 % intervals of batches {listed(pairs)} overlap" if pairs else ""


def precisions(_study: Study, found: Sequence[Case]) -> Iterable[Statement]:
    """A lower precision against the highest one: what was gained, and what the floors allow."""
    pairs: dict[tuple[Any, ...], list[tuple[Case, Case]]] = {}
    for group in alike(found, but=("precision",)):
        group.sort(key=lambda case: WIDTH.get(case.precision, len(WIDTH)))
        for case in group[1:]:
            key = _same(group[0], "batch_size"), case.precision
            pairs.setdefault(key, []).append((group[0], case))
    for same in pairs.values():
        base, case = same[0]
        yield Statement(
            topic="precision",
            text=f"{base.model} ({base.kind}) on {base.env}, {case.precision} against"
            f" {base.precision}: {_compared(same)}.",
            provenance=_place([base, case]) if base.step and case.step else MEASURED,
            run_ids=ids(case for pair in same for case in pair),
        )


def _same(case: Case, *but: str) -> tuple[Any, ...]:
    return tuple(value for name, value in case.settings.items() if name not in but)


def _compared(pairs: Sequence[tuple[Case, Case]]) -> str:
    """By batch size: how many times as fast the second of a pair is, and what the floors say."""
    pairs = sorted(pairs, key=lambda pair: pair[0].batch_size)
    ratios = [
        f"{three_digits(a.step_s / b.step_s)} at batch {a.batch_size} ({format_time(a.step_s)}"
        f" → {format_time(b.step_s)})"
        for a, b in pairs
    ]
    text = f"speed-up {listed(ratios)}"
    floors = [ratio for a, b in pairs if (ratio := floor_ratio(a, b)) is not None]
    if len(floors) < len(pairs):
        return text
    told = listed(three_digits(ratio) for ratio in floors)
    return f"{text}; the ratio of the floors is {told}{_bounds_of(pairs[-1], len(pairs) > 1)}"


def _bounds_of(pair: tuple[Case, Case], is_one_of_several: bool) -> str:
    """What sets the floors of a pair."""
    base, case = pair
    first, second = (WORDS[one.bound or ""] for one in pair)
    at = f" at batch {base.batch_size}" if is_one_of_several else ""
    if first == second:
        return f", both set by {first}{at}"
    names = (base.precision, case.precision) if base.env == case.env else (base.env, case.env)
    return f", set{at} by {first} for {names[0]} and by {second} for {names[1]}"


def floor_ratio(base: Case, case: Case) -> float | None:
    """How much lower the floor of the second is, where both are of the same kind."""
    if base.step.get("provenance") != case.step.get("provenance"):
        return None
    return base.floor_s / case.floor_s if base.floor_s and case.floor_s else None


def _faster(base: Case, case: Case) -> str:
    """`2.00 times as fast (40 ms → 20 ms)`."""
    change = f"{format_time(base.step_s)} → {format_time(case.step_s)}"
    return f"{times(base.step_s / case.step_s)} as fast ({change})"


def switches(_study: Study, found: Sequence[Case]) -> Iterable[Statement]:
    """What one other setting changes, all else being equal."""
    for name in SWITCHES:
        for group in alike(found, but=(name,)):
            group.sort(key=lambda case: str(case.settings[name] or ""))
            base, *others = group
            for case in others:
                yield Statement(
                    topic="settings",
                    text=f"{base.title} on {base.env}: {_switched(name, base, case)} makes a step"
                    f" {_faster(base, case)}{_busy(base, case)}.",
                    provenance=MEASURED,
                    run_ids=ids([base, case]),
                )


def _switched(name: str, base: Case, case: Case) -> str:
    """`channels last`, `compile max-autotune`, `adamw in place of sgd`."""
    before, after = base.settings[name], case.settings[name]
    label = "" if name == "optimizer" else f"{name.replace('_', ' ')} "
    told = f"{label}{'' if after is True else after}".strip()
    return told if before in (None, False) else f"{told} in place of {before}"


def _busy(base: Case, case: Case) -> str:
    before, after = (number(one.run.get("busy_fraction")) for one in (base, case))
    if before is None or after is None or abs(after - before) < LITTLE:
        return ""
    return (
        f"; the GPU is then busy {format_percent(after)} of the step, not {format_percent(before)}"
    )


def machines(_study: Study, found: Sequence[Case]) -> Iterable[Statement]:
    """The same configurations on two machines."""
    pairs: dict[tuple[Any, ...], list[tuple[Case, Case]]] = {}
    for group in alike(found, but=(*PLACE, *ENVIRONMENT)):
        group.sort(key=lambda case: -case.step_s)
        for case in group[1:]:
            if case.env != group[0].env:
                key = _same(group[0], "batch_size"), _same(case, "batch_size")
                pairs.setdefault(key, []).append((group[0], case))
    for same in pairs.values():
        slow, fast = same[0]
        yield Statement(
            topic="machines",
            text=f"{slow.family}, {fast.env} against {slow.env}: {_compared(same)}.",
            provenance=_place([slow, fast]) if slow.step and fast.step else MEASURED,
            run_ids=ids(case for pair in same for case in pair),
        )


def ids(found: Iterable[Case]) -> tuple[str, ...]:
    """The runs of configurations."""
    return tuple(dict.fromkeys(run_id for case in found for run_id in case.run_ids))


ANALYSIS_PARTS: tuple[Callable[[Study, Sequence[Case]], Iterable[Statement]], ...] = (
    bounds, phase_bounds, layer_bounds, batch_sizes, precisions, switches, machines,
)  # fmt: skip
