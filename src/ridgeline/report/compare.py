"""Two sides compared: their runs matched by configuration, each match compared; or two passports.

A setting that has one value on all of one side and another on all of the other is what is being
compared (`--compile`, the device, the model), so it need not agree. All others must. The workload
(the model, the batch, …) must agree in any case where whole folders or commits are compared:
there, a configuration that is lacking is no reason to compare it with a different one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, fsum, log
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.errors import RidgelineError
from ridgeline.machine.compare import (
    Difference,
    another_machine,
    changed_settings,
    differences,
    drift,
    label,
)
from ridgeline.machine.passport import LOWER_IS_BETTER
from ridgeline.report.cases import OPTIONS, WORK
from ridgeline.report.checked import check_table
from ridgeline.report.compare_runs import (
    SAMPLE,
    ComparedRuns,
    Runs,
    Setting,
    change_dict,
    compare_runs,
    find_settings,
    setting_text,
)
from ridgeline.report.run_facts import environment_text
from ridgeline.report.selectors import COMMIT, FOLDER, RUN, RunCache, Selection, select
from ridgeline.report.text import some
from ridgeline.report.two_samples import FASTER, NO_DIFFERENCE, NOT_JUDGED, SLOWER
from ridgeline.serialize import FieldError
from ridgeline.store import DEFAULT_RESULTS, ResultsFolder, Run
from ridgeline.units import format_change

if TYPE_CHECKING:
    import pandas as pd

WORKLOAD = tuple(name for name in WORK if name not in ("precision", "digest"))
ENVIRONMENT = "environment"
SETTINGS = ("precision", "backend", "device_name", *OPTIONS, ENVIRONMENT)
FROM_RESULT = ("precision", "backend", "device_name")  # as used, perhaps not as requested
REQUEST_NAMES = {"data_root": "data"}  # under another name than in the table of runs
ALWAYS_NAMED = ("model", "batch_size", "mode", "precision")
WITHOUT_TITLE = ("model", "mode", "precision", "backend", "device_name")
VERDICTS = (SLOWER, FASTER, NO_DIFFERENCE, NOT_JUDGED)
FEW_RUNS = 3
MOST_NAMED = 3

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two sides with runs. Rows are sorted: shown differences first, the largest first."""

    before: Selection
    after: Selection
    rows: tuple[ComparedRuns, ...]
    only_before: tuple[str, ...]  # configurations that the other side lacks
    only_after: tuple[str, ...]
    settings: tuple[Setting, ...]
    notes: tuple[str, ...]

    @property
    def mean_ratio(self) -> float:
        """The geometric mean over the configurations."""
        return exp(fsum(log(row.time.ratio) for row in self.rows) / len(self.rows))

    def count(self, verdict: str) -> int:
        return sum(row.time.verdict == verdict for row in self.rows)

    def slower_by_more_than(self, share: float) -> list[str]:
        """The configurations that are shown to be slower, and by more than this share."""
        return [_name_change(row) for row in self.rows
                if row.time.verdict == SLOWER and row.time.share > share]  # fmt: skip

    def undecided(self, share: float) -> list[str]:
        """Those with a larger change, and too few samples to show it."""
        return [_name_change(row) for row in self.rows
                if row.time.is_judged and row.time.interval is None
                and row.time.share > share]  # fmt: skip

    def not_judged(self) -> list[str]:
        """Those during which the machine was busy, whatever their change: it may hide another."""
        return [f"{_name_change(row)}: {row.why_not_judged}" for row in self.rows
                if not row.time.is_judged]  # fmt: skip

    def table(self) -> pd.DataFrame:
        """A row per configuration."""
        import pandas as pd

        rows = [
            {"configuration": row.name, "verdict": row.time.verdict, "per": row.per,
             **change_dict(row.time)}
            for row in self.rows
        ]  # fmt: skip
        return pd.DataFrame(rows).drop(columns=["test", "is_shown"])

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; changes are shares."""
        return {
            "before": _side_dict(self.before) | {"runs": [r.run_id for r in self.before.runs]},
            "after": _side_dict(self.after) | {"runs": [r.run_id for r in self.after.runs]},
            "configurations": [row.to_dict() for row in self.rows],
            "mean_change": self.mean_ratio - 1,
            "verdicts": {name: self.count(name) for name in VERDICTS},
            "only_before": list(self.only_before),
            "only_after": list(self.only_after),
            "settings": {s.name: [s.before, s.after] for s in self.settings},
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        from ridgeline.report.compare_text import as_markdown

        return as_markdown(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineComparison:
    """Two passports; the largest change first."""

    before: Selection
    after: Selection
    differences: tuple[Difference, ...]
    settings: tuple[str, ...]  # drivers, caps and libraries that differ
    notes: tuple[str, ...]

    def slower_by_more_than(self, share: float) -> list[str]:
        """The roofs that are worse by more than this share, and by more than their noise."""
        return [
            f"the {label(d.before)} roof of {d.before.device}, {format_change(d.change)}"
            for d in self.differences
            if d.before.kind != "power"
            and _loss(d) > max(share, d.before.spread, d.after.spread)
        ]  # fmt: skip

    def undecided(self, share: float) -> list[str]:
        """None: a roof is compared with its own noise."""
        return []

    def not_judged(self) -> list[str]:
        """None: a roof is the best of many rounds, which a busy moment does not move."""
        return []

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "before": _side_dict(self.before),
            "after": _side_dict(self.after),
            "differences": [
                {"ceiling": label(d.before), "device": d.before.device, "before": d.before.best,
                 "after": d.after.best, "change": d.change, "explanation": d.explanation}
                for d in self.differences
            ],
            "settings": list(self.settings),
            "notes": list(self.notes),
        }  # fmt: skip

    __str__ = Comparison.__str__


def _name_change(row: ComparedRuns) -> str:
    return f"{row.name}, {format_change(row.time.share)}"


def _loss(difference: Difference) -> float:
    """By what share the second machine has less, or takes longer."""
    return difference.change * (1 if difference.before.kind in LOWER_IS_BETTER else -1)


def _side_dict(side: Selection) -> dict[str, Any]:
    return {"name": side.text, "kind": side.kind}


def compare(
    a: str | Path,
    b: str | Path,
    *,
    results: str | Path = DEFAULT_RESULTS,
    layers: bool | None = None,
) -> Comparison | MachineComparison:
    """Compare two runs, labels, models, commits, results folders or passports.

    `layers` says whether layers are compared; None: if each side is one configuration.
    """
    cache, folder = RunCache(), ResultsFolder(Path(results))
    before, after = select(str(a), folder, cache), select(str(b), folder, cache)
    if (before.passport is None) != (after.passport is None):
        machine, runs = (before, after) if before.passport else (after, before)
        raise RidgelineError(
            f"{machine.text!r} is a machine and {runs.text!r} is not",
            hint="compare two passports, or two sides that are runs; `label:`, `model:`, `run:` "
            "or `machine:` in front of a name says which is meant",
        )
    if before.passport is not None:
        return compare_machines(before, after)
    return compare_sides(before, after, layers=layers)


def compare_machines(before: Selection, after: Selection) -> MachineComparison:
    """Compare two sides that are passports."""
    assert before.passport is not None and after.passport is not None
    changed = differences(before.passport, after.passport)
    other = another_machine(before.passport.description, after.passport.description)
    notes = [f"these are two different machines ({other})"] if other else []
    if not changed:
        notes.append("the two passports have no ceiling in common")
    if not other:
        notes += drift(before.passport, after.passport)
    return MachineComparison(
        before=before,
        after=after,
        differences=tuple(changed),
        settings=() if other else tuple(changed_settings(before.passport, after.passport)),
        notes=tuple(notes),
    )


def compare_sides(before: Selection, after: Selection, *, layers: bool | None = None) -> Comparison:
    """Match the runs of two sides by configuration and compare each match."""
    is_strict = not {before.kind, after.kind}.isdisjoint((FOLDER, COMMIT))
    left, right = match_runs(before.runs, after.runs, is_strict=is_strict)
    pairs = [(left[key], right[key]) for key in left if key in right]
    if not pairs:
        sides = (f"{side.text} has {some(_describe(side.runs), most=MOST_NAMED)}"
                 for side in (before, after))  # fmt: skip
        raise RidgelineError(
            f"{before.text} and {after.text} have no configuration in common", hint=". ".join(sides)
        )
    with_layers = len(pairs) == 1 if layers is None else layers
    matched = [[run for pair in pairs for run in pair[n]] for n in (0, 1)]
    names = _choose_names(*matched)
    problems: list[str] = []
    rows = []
    for one, other in pairs:
        tables = _read_layers([*one, *other], problems) if with_layers else {}
        rows.append(compare_runs(_name_pair(one, other, names), one, other, layers=tables))
    return Comparison(
        before=before,
        after=after,
        rows=tuple(sorted(rows, key=lambda r: (not r.time.is_shown, -abs(log(r.time.ratio))))),
        only_before=_name_unmatched(left, right),
        only_after=_name_unmatched(right, left),
        settings=find_settings(matched[0], matched[1]),
        notes=tuple(dict.fromkeys([*_find_notes(before, after, rows, layers), *problems])),
    )


# ---------------------------------------------------------------- matching


def read_setting(run: Run, name: str) -> str:
    """One setting of a run as text."""
    if name == ENVIRONMENT:
        return environment_text(run.made.environment) or setting_text(None)
    is_result = name in FROM_RESULT
    return setting_text(
        run.found.get(name) if is_result else run.asked.get(REQUEST_NAMES.get(name, name))
    )


def match_runs(
    before: Runs, after: Runs, *, is_strict: bool
) -> tuple[dict[Key, list[Run]], dict[Key, list[Run]]]:
    """The runs of each side by the settings that must agree; equal keys are a match."""

    def is_compared(name: str) -> bool:
        left, right = ({read_setting(run, name) for run in runs} for runs in (before, after))
        return len(left) == len(right) == 1 and left != right

    must_agree = [
        name
        for name in WORKLOAD + SETTINGS
        if (is_strict and name in WORKLOAD) or not is_compared(name)
    ]
    sides: tuple[dict[Key, list[Run]], dict[Key, list[Run]]] = ({}, {})
    for groups, runs in zip(sides, (before, after), strict=True):
        for run in runs:
            key = tuple(read_setting(run, name) for name in must_agree)
            groups.setdefault(key, []).append(run)
    return sides


def _describe(runs: Runs) -> list[str]:
    names = _choose_names(runs)
    return list(dict.fromkeys(_name_pair([run], [run], names) for run in runs))


def _name_unmatched(
    side: Mapping[Key, list[Run]], other: Mapping[Key, list[Run]]
) -> tuple[str, ...]:
    names = _choose_names([run for runs in side.values() for run in runs])
    return tuple(_name_pair(runs, runs, names) for key, runs in side.items() if key not in other)


def _choose_names(*sides: Runs) -> list[str]:
    """The settings in which a side's configurations differ, and those that are always named."""
    return [
        name
        for name in WORKLOAD + SETTINGS
        if name in ALWAYS_NAMED
        or any(len({read_setting(run, name) for run in runs}) > 1 for runs in sides)
    ]


def _name_pair(before: Runs, after: Runs, names: Iterable[str]) -> str:
    """`resnet50, batch 32, train, amp`; `fp32 → amp` for what differs."""
    words = []
    for name in names:
        left, right = read_setting(before[0], name), read_setting(after[0], name)
        value = left if left == right else f"{left} → {right}"
        title = "batch" if name == "batch_size" else REQUEST_NAMES.get(name, name).replace("_", " ")
        words.append(value if name in WITHOUT_TITLE else f"{title} {value}")
    return ", ".join(words)


# ---------------------------------------------------------------- layers and notes


def _read_layers(runs: Iterable[Run], problems: list[str]) -> dict[str, pd.DataFrame]:
    """The tables of the runs whose layers were timed."""
    tables = {}
    for run in runs:
        if run.found.get("layers") is None:
            continue
        try:
            table = ResultsFolder(run.path.parent.parent).read_table(run.run_id, "layers")
            tables[run.run_id] = check_table("layers", table, needs=("layer", "time_s"))
        except RidgelineError as error:
            problems.append(str(error))
        except FieldError as error:
            problems.append(f"the table layers of run {run.run_id} is passed over: {error}")
    return tables


def _find_notes(
    before: Selection, after: Selection, rows: Sequence[ComparedRuns], layers: bool | None
) -> Iterable[str]:
    """Reasons for caution with the numbers."""
    for side in (before, after):
        if side.kind != RUN:  # problems of other runs do not concern two runs
            yield from side.problems
    shared = {run.run_id for run in before.runs} & {run.run_id for run in after.runs}
    if shared:
        yield f"on both sides: {', '.join(sorted(shared)[:MOST_NAMED])}"
    if any(row.time.interval is None for row in rows):
        yield (
            "too few steps for an interval, so no difference is shown; measure with"
            " `ridgeline run … --iters 20`"
        )
    fewest = min(min(row.time.runs) for row in rows)
    if fewest == 1:
        both = all(row.time.runs == (1, 1) for row in rows)
        yield (
            f"the interval is of one process on {'each' if both else 'one'} side; another process "
            "may differ by more: `ridgeline run … --repeats 3` tells the rest"
        )
    elif fewest < FEW_RUNS:
        yield "two runs say little about how runs differ; `ridgeline run … --repeats 3` says more"
    if any(row.per == SAMPLE for row in rows):
        yield "the batches differ, so times are those of a sample, not of a step"
    if layers and not any(row.layers for row in rows):
        yield "layers were not timed on both sides; measure with `ridgeline run … --layers`"
    warned = list(dict.fromkeys(text for row in rows for text in row.warnings))
    if warned:
        more = f" (and {len(warned) - 1} more, in the runs)" if len(warned) > 1 else ""
        yield f"runs came with a warning: {warned[0]}{more}"
