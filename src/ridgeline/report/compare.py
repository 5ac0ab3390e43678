"""One configuration on two sides: what changed in its steps, phases and layers, and by how much.

Runs and their tables come in, records go out; which runs are on a side is decided in sides.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ridgeline.report.compare_settings import changed_conditions
from ridgeline.report.run_facts import disturbance
from ridgeline.report.two_samples import Change, Group, center, compare_groups, difference_interval
from ridgeline.store import Run

if TYPE_CHECKING:
    import pandas as pd

STEP, SAMPLE = "step", "sample"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A phase or a layer on two sides; None on the side that lacks it."""

    name: str
    before_s: float | None
    after_s: float | None
    interval_s: tuple[float, float] | None = None  # of the difference, 95 %

    @property
    def difference_s(self) -> float:
        """What the second side takes longer."""
        return (self.after_s or 0.0) - (self.before_s or 0.0)

    @property
    def is_on_both(self) -> bool:
        return self.before_s is not None and self.after_s is not None

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "before_s": self.before_s,
            "after_s": self.after_s,
            "difference_s": self.difference_s if self.is_on_both else None,
            "interval_s": self.interval_s,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One configuration on two sides. Parts are sorted by what they add to the difference."""

    name: str  # "resnet50, batch 32, train, amp"
    per: str  # what times are of: STEP, or SAMPLE where the sides' steps have different sizes
    time: Change
    others: Mapping[str, Change]  # of QUANTITIES, those that all runs have
    phases: tuple[Part, ...]
    layers: tuple[Part, ...]  # none if they were not timed on both sides
    conditions: tuple[str, ...]  # what was different while the steps were timed
    warnings: tuple[str, ...]  # that the runs came with
    run_ids: tuple[tuple[str, ...], tuple[str, ...]]
    disturbed: tuple[str, ...] = ()  # sides on which the machine was busy: "A (…)"

    @property
    def why_not_judged(self) -> str:
        """Empty if it is judged."""
        busy = f"the machine was busy during {' and '.join(self.disturbed)}"
        return busy if self.disturbed else ""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "configuration": self.name,
            "verdict": self.time.verdict,
            "per": self.per,
            "time_s": change_dict(self.time),
            **{name: change_dict(change) for name, change in self.others.items()},
            "phases": [part.to_dict() for part in self.phases],
            "layers": [part.to_dict() for part in self.layers],
            "conditions": list(self.conditions),
            "warnings": list(self.warnings),
            "why_not_judged": self.why_not_judged or None,
            "runs": {"before": list(self.run_ids[0]), "after": list(self.run_ids[1])},
        }


def change_dict(change: Change) -> dict[str, Any]:
    """Shares: 0.05 is five per cent more on the second side."""
    test = change.test
    return {
        "before": change.before,
        "after": change.after,
        "change": change.share,
        "interval": [end - 1 for end in change.interval] if change.interval else None,
        "is_shown": change.is_shown,
        "test": {"name": "Mann-Whitney U", "u": test.u, "p": test.p, "method": test.method,
                 "of": test.of, "counts": list(test.counts)},
        "runs": list(change.runs),
    }  # fmt: skip


def compare_runs(
    name: str,
    before: Sequence[Run],
    after: Sequence[Run],
    *,
    layers: Mapping[str, pd.DataFrame] | None = None,
) -> Compared:
    """Compare runs of one configuration; `layers` has tables by run id, where there are any."""
    sizes = {samples_per_step(run) for run in (*before, *after)}
    per = STEP if len(sizes) == 1 else SAMPLE

    def scale(run: Run) -> float:
        return 1.0 if per == STEP else 1 / samples_per_step(run)

    times = [[_scaled(step_samples(run), scale(run)) for run in runs] for runs in (before, after)]
    disturbed = (*_disturbed("A", before), *_disturbed("B", after))
    time = compare_groups(times[0], times[1], is_judged=not disturbed)
    return Compared(
        name=name,
        per=per,
        time=time,
        others=_other_quantities(before, after, is_judged=not disturbed),
        phases=_compare_parts(before, after, scale, phase_samples),
        layers=_compare_layers(before, after, scale, layers or {}),
        conditions=changed_conditions(before, after, time.ratio),
        warnings=tuple(dict.fromkeys(text for run in (*before, *after) for text in _warnings(run))),
        run_ids=(tuple(r.run_id for r in before), tuple(r.run_id for r in after)),
        disturbed=disturbed,
    )


def _disturbed(side: str, runs: Sequence[Run]) -> tuple[str, ...]:
    """`A (other programs had the processor)`, if the machine was busy in half of its runs or more.

    In fewer, the median of the runs' medians is that of a quiet one.
    """
    reasons = [reason for run in runs if (reason := disturbance(run))]
    if 2 * len(reasons) < len(runs):
        return ()
    return (f"{side} ({'; '.join(dict.fromkeys(reasons))})",)


def step_samples(run: Run) -> list[float]:
    """The time of every step; KeyError and TypeError say that the run has none."""
    return [float(sample) for sample in run.found["step_time_s"]["samples"]]


def samples_per_step(run: Run) -> int:
    return int(run.found.get("samples_per_step") or run.asked["batch_size"])


def _warnings(run: Run) -> list[str]:
    return list(run.found.get("warnings") or ())


def _scaled(samples: list[float], scale: float) -> list[float]:
    return [scale * sample for sample in samples]


# ---------------------------------------------------------------- beside the time


def _throughput(run: Run) -> list[float]:
    """Of the median step, as everywhere: the mean follows a single slow step."""
    return [samples_per_step(run) / run.found["step_time_s"]["median"]]


def _energy_per_sample(run: Run) -> list[float]:
    """Of every window; of the run as a whole if its windows are not known."""
    energy = run.found.get("energy") or {}
    windows = [window["energy_j_per_step"] for window in energy.get("windows") or ()]
    if not windows:
        return [energy["energy_j_per_sample"]]
    return [window / samples_per_step(run) for window in windows]


def _peak_memory(run: Run) -> list[float]:
    return [run.found["peak_memory_bytes"]]


AT_ANY_LOAD = ("peak_memory_bytes",)  # what a busy machine does not change
QUANTITIES: dict[str, tuple[Callable[[Run], list[float]], str]] = {  # and what its samples are
    "samples_per_s": (_throughput, "runs"),
    "energy_j_per_sample": (_energy_per_sample, "windows"),
    "peak_memory_bytes": (_peak_memory, "runs"),
}


def _other_quantities(
    before: Sequence[Run], after: Sequence[Run], *, is_judged: bool
) -> dict[str, Change]:
    found = {}
    for name, (samples, of) in QUANTITIES.items():
        groups = [[_positive(samples, run) for run in runs] for runs in (before, after)]
        if all(groups[0]) and all(groups[1]):
            counts = is_judged or name in AT_ANY_LOAD
            found[name] = compare_groups(groups[0], groups[1], of=of, is_judged=counts)
    return found


def _positive(samples: Callable[[Run], list[float]], run: Run) -> list[float]:
    """None at all where the run lacks them, or has a zero that no ratio can be made of."""
    try:
        values = [float(value) for value in samples(run)]
    except (KeyError, TypeError):
        return []
    return values if all(value > 0 for value in values) else []


# ---------------------------------------------------------------- parts of a step


def _compare_parts(
    before: Sequence[Run],
    after: Sequence[Run],
    scale: Callable[[Run], float],
    samples: Callable[[Run], dict[str, list[float]]],
) -> tuple[Part, ...]:
    """What `samples` finds in runs; what both sides have first, the largest difference first."""
    sides = [[(samples(run), scale(run)) for run in runs] for runs in (before, after)]
    names = dict.fromkeys(name for side in sides for found, _ in side for name in found)
    parts = []
    for name in names:
        groups = [[_scaled(found[name], by) for found, by in side if name in found]
                  for side in sides]  # fmt: skip
        parts.append(_part(name, groups[0], groups[1]))
    return tuple(sorted(parts, key=lambda part: (not part.is_on_both, -abs(part.difference_s))))


def phase_samples(run: Run) -> dict[str, list[float]]:
    """Time of each phase in each step."""
    split: dict[str, Any] = run.found.get("split_s") or {}
    return {name: part.get("samples") or [part["median"]] for name, part in split.items()}


def _compare_layers(
    before: Sequence[Run],
    after: Sequence[Run],
    scale: Callable[[Run], float],
    tables: Mapping[str, pd.DataFrame],
) -> tuple[Part, ...]:
    """Of the runs that have a table; of none if one side has none."""
    timed = [[run for run in runs if run.run_id in tables] for runs in (before, after)]
    if not all(timed):
        return ()
    return _compare_parts(timed[0], timed[1], scale, lambda run: layer_samples(tables[run.run_id]))


def layer_samples(table: pd.DataFrame) -> dict[str, list[float]]:
    """Time of each layer in each step that was watched; the one that is known where none is.

    Needs columns layer and time_s, and takes forward_samples_s and backward_samples_s.
    """
    found = {}
    for row in table.to_dict("records"):
        stages = [row.get(f"{stage}_samples_s") for stage in ("forward", "backward")]
        taken = [list(stage) for stage in stages if stage is not None and len(stage)]
        sums = [sum(step) for step in zip(*taken, strict=False)]
        found[str(row["layer"])] = sums or [row["time_s"]]
    return found


def _part(name: str, before: Group, after: Group) -> Part:
    return Part(
        name=name,
        before_s=center(before) if before else None,
        after_s=center(after) if after else None,
        interval_s=difference_interval(before, after) if before and after else None,
    )
