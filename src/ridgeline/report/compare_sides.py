"""Two sides compared: their runs matched by configuration, each match compared.

A setting that has one value on all of one side and another on all of the other is what is being
compared (`--compile`, the device, the model), so it need not agree. All others must. What is run
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
from ridgeline.fields import FieldError
from ridgeline.report.checked import check_table
from ridgeline.report.compare import SAMPLE, Compared, change_dict, compare_runs
from ridgeline.report.compare_machines import MachineComparison, compare_machines
from ridgeline.report.compare_settings import Setting, changed_settings, plain
from ridgeline.report.configuration import MANNER, WORK, environment_text
from ridgeline.report.sides import COMMIT, FOLDER, RUN, Shelves, Side, select
from ridgeline.report.two_samples import FASTER, NO_DIFFERENCE, NOT_JUDGED, SLOWER
from ridgeline.report.words import some
from ridgeline.store import DEFAULT_RESULTS, ResultsFolder, Run
from ridgeline.units import format_change

if TYPE_CHECKING:
    import pandas as pd

WORKLOAD = tuple(name for name in WORK if name not in ("precision", "digest"))
ENVIRONMENT = "environment"
SETTINGS = ("precision", "backend", "device_name", *MANNER, ENVIRONMENT)
FOUND = ("precision", "backend", "device_name")  # as used, which may be another than was asked
ASKED = {"data_root": "data"}  # under another name than in the table of runs
ALWAYS_NAMED = ("model", "batch_size", "mode", "precision")
VERDICTS = (SLOWER, FASTER, NO_DIFFERENCE, NOT_JUDGED)
FEW_RUNS = 3
MOST_NAMED = 3

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two sides with runs. Rows are sorted: shown differences first, the largest first."""

    before: Side
    after: Side
    rows: tuple[Compared, ...]
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
        return [
            f"{row.name}, {format_change(row.time.share)}"
            for row in self.rows
            if row.time.verdict == SLOWER and row.time.share > share
        ]

    def undecided(self, share: float) -> list[str]:
        """Those with a larger change, and too few samples to show it."""
        return [
            f"{row.name}, {format_change(row.time.share)}"
            for row in self.rows
            if row.time.is_judged and row.time.interval is None and row.time.share > share
        ]

    def not_judged(self) -> list[str]:
        """Those during which the machine was busy, whatever their change: it may hide another."""
        return [
            f"{row.name}, {format_change(row.time.share)}: {row.why_not_judged}"
            for row in self.rows
            if not row.time.is_judged
        ]

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
            "before": _side_dict(self.before),
            "after": _side_dict(self.after),
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


def _side_dict(side: Side) -> dict[str, Any]:
    return {"name": side.text, "kind": side.kind, "runs": [run.run_id for run in side.runs]}


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
    shelves, folder = Shelves(), ResultsFolder(Path(results))
    before, after = select(str(a), folder, shelves), select(str(b), folder, shelves)
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


def compare_sides(before: Side, after: Side, *, layers: bool | None = None) -> Comparison:
    """Match the runs of two sides by configuration and compare each match."""
    is_strict = not {before.kind, after.kind}.isdisjoint((FOLDER, COMMIT))
    left, right = match_keys(before.runs, after.runs, is_strict=is_strict)
    both = [key for key in left if key in right]
    if not both:
        raise _nothing_in_common(before, after)
    pairs = [(left[key], right[key]) for key in both]
    with_layers = len(pairs) == 1 if layers is None else layers
    names = _names(*([run for pair in pairs for run in pair[n]] for n in (0, 1)))
    problems: list[str] = []
    rows = []
    for one, other in pairs:
        tables = _layer_tables([*one, *other], problems) if with_layers else {}
        rows.append(compare_runs(_pair_name(one, other, names), one, other, layers=tables))
    return Comparison(
        before=before,
        after=after,
        rows=tuple(sorted(rows, key=lambda r: (not r.time.is_shown, -abs(log(r.time.ratio))))),
        only_before=_unmatched(left, right),
        only_after=_unmatched(right, left),
        settings=changed_settings(*([run for pair in pairs for run in pair[n]] for n in (0, 1))),
        notes=tuple(dict.fromkeys([*_notes(before, after, rows, layers), *problems])),
    )


# ---------------------------------------------------------------- matching


def setting(run: Run, name: str) -> str:
    """One setting of a run as text."""
    if name == ENVIRONMENT:
        return environment_text(run.provenance) or plain(None)
    return plain(run.found.get(name) if name in FOUND else run.asked.get(ASKED.get(name, name)))


def match_keys(
    before: Sequence[Run], after: Sequence[Run], *, is_strict: bool
) -> tuple[dict[Key, list[Run]], dict[Key, list[Run]]]:
    """The runs of each side by the settings that must agree; equal keys are a match."""
    must = [
        name
        for name in WORKLOAD + SETTINGS
        if (is_strict and name in WORKLOAD) or not _is_what_differs(name, before, after)
    ]
    sides: list[dict[Key, list[Run]]] = []
    for runs in (before, after):
        groups: dict[Key, list[Run]] = {}
        for run in runs:
            groups.setdefault(tuple(setting(run, name) for name in must), []).append(run)
        sides.append(groups)
    return sides[0], sides[1]


def _is_what_differs(name: str, before: Iterable[Run], after: Iterable[Run]) -> bool:
    left, right = ({setting(run, name) for run in runs} for runs in (before, after))
    return len(left) == len(right) == 1 and left != right


def _nothing_in_common(before: Side, after: Side) -> RidgelineError:
    sides = []
    for side in (before, after):
        sides.append(f"{side.text} has {some(_described(side.runs), most=MOST_NAMED)}")
    return RidgelineError(
        f"{before.text} and {after.text} have no configuration in common", hint=". ".join(sides)
    )


def _described(runs: Sequence[Run]) -> list[str]:
    names = _names(runs)
    return list(dict.fromkeys(_pair_name([run], [run], names) for run in runs))


def _unmatched(side: Mapping[Key, list[Run]], other: Mapping[Key, list[Run]]) -> tuple[str, ...]:
    alone = [runs for key, runs in side.items() if key not in other]
    names = _names([run for runs in side.values() for run in runs])
    return tuple(_pair_name(runs, runs, names) for runs in alone)


def _names(*sides: Sequence[Run]) -> list[str]:
    """The settings that tell a side's configurations apart, and those that are always named."""
    return [
        name
        for name in WORKLOAD + SETTINGS
        if name in ALWAYS_NAMED
        or any(len({setting(run, name) for run in runs}) > 1 for runs in sides)
    ]


def _pair_name(before: Sequence[Run], after: Sequence[Run], names: Iterable[str]) -> str:
    """`resnet50, batch 32, train, amp`; `fp32 → amp` for what differs."""
    words = []
    for name in names:
        left, right = setting(before[0], name), setting(after[0], name)
        value = left if left == right else f"{left} → {right}"
        plainly = name in ("model", "mode", "precision", "backend", "device_name")
        title = "batch" if name == "batch_size" else ASKED.get(name, name).replace("_", " ")
        words.append(value if plainly else f"{title} {value}")
    return ", ".join(words)


# ---------------------------------------------------------------- beside the rows


def _layer_tables(runs: Iterable[Run], problems: list[str]) -> dict[str, pd.DataFrame]:
    """Of the runs whose layers were timed."""
    found = {}
    for run in runs:
        if run.found.get("layers") is None:
            continue
        try:
            table = ResultsFolder(run.path.parent.parent).read_table(run.run_id, "layers")
            found[run.run_id] = check_table("layers", table, needs=("layer", "time_s"))
        except RidgelineError as error:
            problems.append(str(error))
        except FieldError as error:
            problems.append(f"the table layers of run {run.run_id} is passed over: {error}")
    return found


def _notes(
    before: Side, after: Side, rows: Sequence[Compared], layers: bool | None
) -> Iterable[str]:
    """What a reader should know before believing the numbers."""
    for side in (before, after):
        if side.kind != RUN:  # who names two runs is not told about others
            yield from side.problems
    shared = {run.run_id for run in before.runs} & {run.run_id for run in after.runs}
    if shared:
        yield f"on both sides: {', '.join(sorted(shared)[:MOST_NAMED])}"
    yield from _about_runs(rows)
    if any(row.per == SAMPLE for row in rows):
        yield "the batches differ, so times are those of a sample, not of a step"
    if layers and not any(row.layers for row in rows):
        yield "layers were not timed on both sides; measure with `ridgeline run … --layers`"
    warned = list(dict.fromkeys(text for row in rows for text in row.warnings))
    if warned:
        more = f" (and {len(warned) - 1} more, in the runs)" if len(warned) > 1 else ""
        yield f"runs came with a warning: {warned[0]}{more}"


def _about_runs(rows: Sequence[Compared]) -> Iterable[str]:
    fewest = min(min(row.time.runs) for row in rows)
    if any(row.time.interval is None for row in rows):
        yield (
            "too few steps for an interval, so no difference is shown; measure with"
            " `ridgeline run … --iters 20`"
        )
    if fewest == 1:
        both = all(row.time.runs == (1, 1) for row in rows)
        yield (
            f"the interval is of one process on {'each' if both else 'one'} side; another process "
            "may differ by more: `ridgeline run … --repeats 3` tells the rest"
        )
    elif fewest < FEW_RUNS:
        yield "two runs say little about how runs differ; `ridgeline run … --repeats 3` says more"
