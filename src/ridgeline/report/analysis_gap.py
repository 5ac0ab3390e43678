"""The analysis of where time and energy go: the gap, the phases, the layers, the joules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from ridgeline.report.analysis import (
    BOTH,
    MEASURED,
    Statement,
    ids,
    of_all,
    time_shares,
    timed_layers,
)
from ridgeline.report.configurations import Case, TimedLayer, key
from ridgeline.report.study import Study
from ridgeline.report.text import counted, listed, number, some, span, three_digits, times
from ridgeline.units import format_percent, format_ratio, si

WORK = ("compute_s", "dram_s", "l3_s", "l2_s", "l1_s")  # a floor without launches
TOP_LAYERS = 3
LITTLE = 0.01  # of a step


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

    def share(self, part_s: float | None) -> float | None:
        """Of the step; None of what is not known."""
        return None if part_s is None else part_s / self.case.step_s


def gaps(found: Iterable[Case]) -> list[Gap]:
    """The steps of all configurations that have a floor, taken apart."""
    return [gap for gap in map(_gap, found) if gap is not None]


def _gap(case: Case) -> Gap | None:
    terms = [value for name in WORK if (value := number(case.step.get(name))) is not None]
    if not terms or max(terms) <= 0:
        return None
    floor_s = min(max(terms), case.step_s)
    kernel_s = number(case.run.get("kernel_time_s"))
    kernels_s = waiting_s = rest_s = None
    if kernel_s is None:
        rest_s = case.step_s - floor_s
    else:
        busy_s = min(kernel_s, case.step_s)
        floor_s = min(floor_s, busy_s)
        kernels_s, waiting_s = busy_s - floor_s, case.step_s - busy_s
    data = [s for name in ("data_s", "copy_s") if (s := number(case.run.get(name))) is not None]
    return Gap(
        case=case,
        floor_s=floor_s,
        kernels_s=kernels_s,
        waiting_s=waiting_s,
        rest_s=rest_s,
        data_s=sum(data) if data else None,
        optimizer_s=number(case.run.get("optimizer_s")),
    )


def shares(found: Iterable[Gap], part: str) -> list[tuple[float, Gap]]:
    """How much of their steps a part of the gap is, the smallest first; where it is known."""
    known = [(share, gap) for gap in found if (share := gap.share(getattr(gap, part))) is not None]
    return sorted(known, key=lambda pair: pair[0])


def gap_statements(_study: Study, found: Sequence[Case]) -> Iterable[Statement]:
    """What the largest part of the steps is, machine by machine."""
    every = gaps(found)
    for env in dict.fromkeys(case.env for case in found):
        mine = [gap for gap in every if gap.case.env == env]
        yield from _kernel_gaps(env, [gap for gap in mine if gap.waiting_s is not None])
        yield from _plain_gaps(env, [gap for gap in mine if gap.waiting_s is None])
        yield from _small_parts(env, mine)


def _kernel_gaps(env: str, mine: Sequence[Gap]) -> Iterable[Statement]:
    if not mine:
        return
    waits, over = shares(mine, "waiting_s"), shares(mine, "kernels_s")
    longest, most = waits[-1]
    yield Statement(
        topic="gap",
        text=f"On {env}, kernels take {_range(over)} of the step beyond the floor of"
        f" their work (most in {over[-1][1].case.title}). The device is idle, and waits for"
        f" the host, for {_range(waits)} of the step"
        + (f", most in {most.case.title}." if longest > LITTLE else "."),
        provenance=BOTH,
        run_ids=ids(gap.case for gap in mine),
    )
    stalled = [gap for gap in mine if (gap.waiting_s or 0) > (gap.kernels_s or 0)]
    if stalled:
        yield Statement(
            topic="gap",
            text=f"On {env}, waiting is the larger part of the gap in"
            f" {of_all(len(stalled), len(mine))}: {some([gap.case.title for gap in stalled])}."
            " There, better kernels would gain less than fewer or larger ones.",
            provenance=BOTH,
            run_ids=ids(gap.case for gap in stalled),
        )


def _range(ordered: Sequence[tuple[float, Gap]]) -> str:
    return span(*(format_percent(share) for share, _ in (ordered[0], ordered[-1])))


def _plain_gaps(env: str, mine: Sequence[Gap]) -> Iterable[Statement]:
    """Where kernels have no time of their own: by phase, if those were timed."""
    if not mine:
        return
    text = (
        f"On {env}, where kernels were not timed apart from the step,"
        f" {_range(shares(mine, 'rest_s'))} of it is above the floor"
    )
    tops = [name for gap in mine if (name := _widest_phase(gap.case))]
    if tops:
        often = sorted(set(tops), key=lambda name: (-tops.count(name), name))
        parts = listed(f"{name} in {tops.count(name)}" for name in often)
        of = counted(len(tops), "training step")
        text += f"; the phase that loses most is {parts} of {of}"
    yield Statement(
        topic="gap", text=f"{text}.", provenance=BOTH, run_ids=ids(gap.case for gap in mine)
    )


def _widest_phase(case: Case) -> str | None:
    """The phase with the largest headroom."""
    lost = {
        phase: value
        for phase, point in case.phases.items()
        if (value := number(point.get("headroom_s"))) is not None
    }
    return max(lost, key=lambda phase: lost[phase]) if len(lost) > 1 else None


def _small_parts(env: str, mine: Sequence[Gap]) -> Iterable[Statement]:
    """Data and optimizer, of the steps whose split is known."""
    data, updates = shares(mine, "data_s"), shares(mine, "optimizer_s")
    texts = []
    if data:
        share = format_percent(data[-1][0])
        texts.append(f"waiting for data and copying it takes at most {share} of a step")
    if updates:
        longest, most = updates[-1]
        told = f"at most {format_percent(longest)}"
        told = told if data else f"takes {told} of a step"
        texts.append(f"the optimizer {told} ({most.case.title})")
    if texts:
        yield Statement(
            topic="gap",
            text=f"On {env}, {' and '.join(texts)}.",
            provenance=MEASURED,
            run_ids=ids(gap.case for _, gap in (*data, *updates)),
        )


def backward_ratio(case: Case) -> float | None:
    """Time of backward over that of forward."""
    forward, backward = number(case.run.get("forward_s")), number(case.run.get("backward_s"))
    return backward / forward if forward and backward else None


def phase_shares(_study: Study, found: Sequence[Case]) -> Iterable[Statement]:
    """Backward against forward, in time and in FLOPs."""
    for env in dict.fromkeys(case.env for case in found):
        ratios = {
            case.title: r for case in found if case.env == env and (r := backward_ratio(case))
        }
        if not ratios:
            continue
        mine = [case for case in found if case.env == env and case.title in ratios]
        text = f"On {env}, backward takes {_ratios(ratios)}"
        work = [r for case in mine if (r := _flops_ratio(case))]
        if work:
            ends = span(three_digits(min(work)), three_digits(max(work)))
            text += f"; in FLOPs it is {ends} times"
        yield Statement(topic="phases", text=f"{text}.", provenance=BOTH if work else MEASURED,
                        run_ids=ids(mine))  # fmt: skip


def _ratios(ratios: Mapping[str, float]) -> str:
    """`1.34 (net, …) to 2.19 times (other, …) the forward`."""
    low, high = min(ratios, key=lambda t: ratios[t]), max(ratios, key=lambda t: ratios[t])
    if three_digits(ratios[low]) == three_digits(ratios[high]):
        return f"{times(ratios[low])} the forward in {of_all(len(ratios), len(ratios))}"
    return (
        f"{three_digits(ratios[low])} ({low}) to {times(ratios[high])} ({high}) the forward,"
        f" {three_digits(median(ratios.values()))} in the middle"
    )


def _flops_ratio(case: Case) -> float | None:
    forward, backward = (
        number(case.phases.get(name, {}).get("flops")) for name in ("forward", "backward")
    )
    return backward / forward if forward and backward else None


def heavy_layers(_study: Study, found: Sequence[Case]) -> Iterable[Statement]:
    """The layers that take most of the time of a model."""
    for case, layers in timed_layers(found):
        if len(layers) <= TOP_LAYERS:
            continue
        whole = sum(layer.time_s for layer in layers)
        top = sorted(layers, key=lambda layer: -layer.time_s)[:TOP_LAYERS]
        names = [
            f"{layer.name} ({_kind(layer)}{format_percent(layer.time_s / whole)})" for layer in top
        ]
        share = format_percent(sum(layer.time_s for layer in top) / whole)
        yield Statement(
            topic="layers",
            text=f"{case.title} on {case.env}: of {len(layers)} timed layers, the longest"
            f" {TOP_LAYERS} take {share} of the layers' time: {listed(names)}{_by_kind(layers)}.",
            provenance=MEASURED,
            run_ids=(case.run_id,),
        )


def _kind(layer: TimedLayer) -> str:
    return f"{layer.kind}, " if layer.kind else ""


def _by_kind(layers: Sequence[TimedLayer]) -> str:
    """The kind of layer with most of the time, where there are several."""
    shares = time_shares(layers, lambda layer: layer.kind)
    named = [(kind, share) for kind, share in shares.items() if kind]
    if len(named) < 2:
        return ""
    kind, share = named[0]
    return f"; by kind, {kind} has the most, {format_percent(share)}"


def energy(_study: Study, found: Sequence[Case]) -> Iterable[Statement]:
    """Joules per sample and per FLOP, and the power behind them."""
    for env in dict.fromkeys(case.env for case in found):
        mine = [case for case in found if case.env == env and _joules(case)]
        if not mine:
            continue
        mine = _cheapest(mine)
        texts = [f"{si(_joules(case), 'J')} for {case.title}{_per_flop(case)}" for case in mine]
        yield Statement(
            topic="energy",
            text=f"On {env}, a sample costs, at the cheapest batch size of what is otherwise"
            f" alike, {some(texts)}{_power(mine)}.",
            provenance=BOTH if any(_per_flop(case) for case in mine) else MEASURED,
            run_ids=tuple(case.run_id for case in mine),
        )


def _cheapest(found: Iterable[Case]) -> list[Case]:
    """Of configurations that differ in their batch alone, the one with least energy a sample."""
    best: dict[tuple[Any, ...], Case] = {}
    for case in sorted(found, key=_joules):
        best.setdefault(key(case.settings, but=("batch_size", "label")), case)
    return list(best.values())


def _joules(case: Case) -> float:
    return number(case.run.get("energy_j_per_sample")) or 0.0


def _per_flop(case: Case) -> str:
    joules, flops = number(case.run.get("energy_j_per_step")), number(case.run.get("flops"))
    return f" ({si(joules / flops, 'J/FLOP')})" if joules and flops else ""


def _power(mine: Sequence[Case]) -> str:
    watts = [w for case in mine if (w := number(case.run.get("mean_power_w")))]
    idle = [w for case in mine if (w := number(case.run.get("idle_power_w")))]
    if not watts:
        return ""
    text = f"; mean power {_watts(watts)}"
    return f"{text}, of which an idle device takes {_watts(idle)}" if idle else text


def _watts(values: Sequence[float]) -> str:
    return span(format_ratio(min(values)), format_ratio(max(values))) + " W"


GAP_PARTS: tuple[Callable[[Study, Sequence[Case]], Iterable[Statement]], ...] = (
    gap_statements, phase_shares, heavy_layers, energy,
)  # fmt: skip
