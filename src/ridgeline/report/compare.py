"""Two sides compared: their runs matched by configuration, each match compared; or two passports.

A side is named by one of

2026-03-01T12…    a run, by its id, its beginning or the six characters at its end
before            all runs with that --label
resnet50          all completed runs of that model
commit:4f2a9c     all runs of that commit, of the working directory or of ridgeline itself
after/            all runs of another results folder
after:resnet50    any of these, in another results folder
nvidia-h200       a machine's passport, also a .json file

A setting that has one value on all of one side and another on all of the other is what is being
compared (`--compile`, the device, the model), so it need not agree. All others must. The workload
(the model, the batch, …) must agree in any case where whole folders or commits are compared:
there, a configuration that is lacking is no reason to compare it with a different one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import log
from pathlib import Path

from ridgeline.errors import RidgelineError
from ridgeline.machine.compare import another_machine, changed_settings, differences, drift
from ridgeline.machine.passport import Passports, read_passport
from ridgeline.records import Failure
from ridgeline.report.compare_runs import (
    SAMPLE,
    ComparedRuns,
    Runs,
    compare_runs,
    find_settings,
    setting_text,
)
from ridgeline.report.comparison import (
    COMMIT,
    FOLDER,
    KINDS,
    MACHINE,
    RUN,
    Comparison,
    MachineComparison,
    Selection,
)
from ridgeline.report.configurations import OPTIONS, WORK, group_by
from ridgeline.report.stored import read_table
from ridgeline.report.text import some
from ridgeline.report.views import environment_text
from ridgeline.store import (
    DEFAULT_RESULTS,
    InvalidRunError,
    MeasuredRun,
    ResultsFolder,
    ResultsIndex,
)

WORKLOAD = tuple(name for name in WORK if name not in ("precision", "digest"))
ENVIRONMENT = "environment"
SETTINGS = ("precision", "backend", "device_name", *OPTIONS, ENVIRONMENT)
FROM_RESULT = ("precision", "backend", "device_name")  # as used, perhaps not as requested
REQUEST_NAMES = {"data_root": "data"}  # under another name than in the table of runs
ALWAYS_NAMED = ("model", "batch_size", "mode", "precision")
WITHOUT_TITLE = ("model", "mode", "precision", "backend", "device_name")
FEW_RUNS = 3
MOST_NAMED = 3

Key = tuple[str, ...]
Groups = dict[Key, list[MeasuredRun]]


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
    folder = ResultsFolder(Path(results))
    before, after = select(str(a), folder), select(str(b), folder)
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
        tables = {
            run.run_id: table
            for run in (*one, *other)
            if with_layers
            and (table := read_table(run, "layers", problems, needs=("layer", "time_s")))
            is not None
        }
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


def read_setting(run: MeasuredRun, name: str) -> str:
    """One setting of a run as text."""
    if name == ENVIRONMENT:
        return environment_text(run.made.environment) or setting_text(None)
    if name in FROM_RESULT:
        return setting_text(getattr(run.result, name))
    return setting_text(getattr(run.request, REQUEST_NAMES.get(name, name)))


def match_runs(before: Runs, after: Runs, *, is_strict: bool) -> tuple[Groups, Groups]:
    """The runs of each side by the settings that must agree; equal keys are a match."""

    def is_compared(name: str) -> bool:
        left, right = ({read_setting(run, name) for run in runs} for runs in (before, after))
        return len(left) == len(right) == 1 and left != right

    must_agree = [
        name
        for name in WORKLOAD + SETTINGS
        if (is_strict and name in WORKLOAD) or not is_compared(name)
    ]
    left, right = (
        group_by(runs, (tuple(read_setting(run, name) for name in must_agree) for run in runs))
        for runs in (before, after)
    )
    return left, right


def _describe(runs: Runs) -> list[str]:
    names = _choose_names(runs)
    return list(dict.fromkeys(_name_pair([run], [run], names) for run in runs))


def _name_unmatched(side: Groups, other: Groups) -> tuple[str, ...]:
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


# ---------------------------------------------------------------- selecting a side


def select(text: str, results: ResultsFolder) -> Selection:
    """The side that `text` names, first of all in `results`."""
    kind, colon, name = text.partition(":")
    path = Path(text)
    if not text or (colon and not name):
        raise RidgelineError(
            f"{text!r} names no side of a comparison",
            hint="name a run, a label, a model, commit:SHA, a results folder or a passport",
        )
    if colon and kind in KINDS:
        index = _read_timed(results)
        return _choose(text, [_find(kind, name, results, index)], results, index)
    if colon and is_results(Path(kind)):
        return replace(select(name, ResultsFolder(Path(kind))), text=text)
    if path.suffix == ".json":
        return Selection(text=text, kind=MACHINE, passport=read_passport(path))
    if (path / "run.json").is_file():
        return replace(select(path.name, ResultsFolder(path.parent.parent)), text=text)
    if text.endswith("/"):
        return _read_folder(text)
    index = _read_timed(results)
    candidates = [_find(kind, text, results, index) for kind in KINDS if kind != COMMIT]
    if is_results(path):
        candidates.append(_read_folder(text))
    return _choose(text, candidates, results, index)


def is_results(path: Path) -> bool:
    """Whether there are runs or passports in a folder."""
    return (path / "runs").is_dir() or (path / "machines").is_dir()


def _read_timed(results: ResultsFolder) -> ResultsIndex:
    """The index of a folder, without the runs that have no step times; why, is a problem."""
    index = results.index()
    problems = [
        f"run {run.run_id} is passed over: it has no step times"
        for run in index.runs
        if not _has_step_times(run)
    ]
    timed = tuple(filter(_has_step_times, index.runs))
    return replace(index, runs=timed, problems=(*index.problems, *problems))


def _has_step_times(run: MeasuredRun) -> bool:
    samples = run.result.step_time_s.samples
    return bool(samples) and min(samples) > 0


def _read_folder(text: str) -> Selection:
    index = _read_timed(ResultsFolder(Path(text)))
    if not index.runs:
        why = index.problems[0] if index.problems else None
        raise RidgelineError(
            f"there are no completed runs in {text}",
            hint=why or "name a folder that `ridgeline run --results` made",
        )
    return Selection(text=text, kind=FOLDER, runs=index.runs, problems=index.problems)


def _find(kind: str, name: str, results: ResultsFolder, index: ResultsIndex) -> Selection:
    """Everything of this kind that has this name; perhaps nothing."""
    if kind == MACHINE:
        passports = Passports(results.path)
        is_known = name in passports.names()
        return Selection(text=name, kind=kind, passport=passports.read(name) if is_known else None)
    if kind == RUN:  # problems of other runs do not concern it
        runs = tuple(run for run in index.runs if _has_id(run.run_id, name))
        return Selection(text=name, kind=kind, runs=runs)
    if kind == COMMIT:
        runs = _find_commit(name, index.runs)
    else:
        runs = tuple(run for run in index.runs if getattr(run.request, kind) == name)
    return Selection(text=name, kind=kind, runs=runs, problems=index.problems)


def _has_id(run_id: str, name: str) -> bool:
    return run_id.startswith(name) or run_id.endswith(f"-{name}")


def _find_commit(name: str, runs: Iterable[MeasuredRun]) -> tuple[MeasuredRun, ...]:
    matches = [
        (run, commit.sha)
        for run in runs
        for commit in (run.made.commit, run.made.ridgeline_commit)
        if commit is not None and commit.sha.startswith(name)
    ]
    if len(shas := sorted({sha for _, sha in matches})) > 1:
        raise RidgelineError(
            f"{name!r} is the beginning of {len(shas)} commits",
            hint=f"write more of it: {some(shas, joint=', ')}",
        )
    return tuple({run.run_id: run for run, _ in matches}.values())


def _choose(
    text: str, candidates: list[Selection], results: ResultsFolder, index: ResultsIndex
) -> Selection:
    """The one candidate that exists; RidgelineError if there are none or several."""
    there = [one for one in candidates if one.runs or one.passport]
    exact = [one for one in there if [run.run_id for run in one.runs] == [one.text]]
    there = exact or [one for one in there if one.kind != RUN or len(one.runs) == 1] or there
    different = {(tuple(run.run_id for run in one.runs), one.passport is None): one
                 for one in reversed(there)}  # fmt: skip
    if not different:
        raise _explain_nothing(text, candidates[0].text, results, index)
    if len(different) > 1:
        forms = [f"{one.text}/" if one.kind == FOLDER else f"{one.kind}:{one.text}"
                 for one in there]  # fmt: skip
        raise RidgelineError(
            f"{text!r} may mean {len(different)} things", hint=f"write one of {', '.join(forms)}"
        )
    (selection,) = different.values()
    if selection.kind == RUN and len(selection.runs) > 1:
        raise RidgelineError(
            f"{text!r} is the name of {len(selection.runs)} runs",
            hint=f"write more of it: {some([run.run_id for run in selection.runs], joint=', ')}",
        )
    return replace(selection, text=text)


def _explain_nothing(
    text: str, name: str, results: ResultsFolder, index: ResultsIndex
) -> RidgelineError:
    """Why there is no such side: a run that cannot be compared, or nothing of that name."""
    named = [run_id for run_id in results.run_ids() if _has_id(run_id, name)]
    if len(named) == 1:
        return _explain_run(results, named[0])
    if Path(text).is_dir():
        return RidgelineError(
            f"{text} is not a results folder", hint="name one that `ridgeline run --results` made"
        )
    choices = {
        "labels": sorted({run.request.label for run in index.runs if run.request.label}),
        "models": sorted({run.request.model for run in index.runs}),
        "newest runs": [run.run_id for run in reversed(index.runs)],
        "machines": Passports(results.path).names(),
    }
    listed = "; ".join(
        f"{kind}: {some(names, joint=', ')}" for kind, names in choices.items() if names
    )
    nothing = "there are no runs in this folder; name another one with --results DIR"
    if results.run_ids():
        nothing = "it has counts or captures alone, and what `ridgeline run` made is compared"
    return RidgelineError(
        f"there is nothing called {text!r} to compare in {results.path}", hint=listed or nothing
    )


def _explain_run(results: ResultsFolder, run_id: str) -> RidgelineError:
    """Why this run cannot be compared."""
    try:
        run = results.read_run(run_id)
    except InvalidRunError as error:
        return RidgelineError(f"run {run_id} cannot be compared: {error.reason}", hint=error.hint)
    except RidgelineError as error:
        return error
    if isinstance(run.result, Failure):
        return RidgelineError(
            f"run {run_id} failed, so it has no times: {run.result.reason}",
            hint="name a run that was completed",
        )
    command = run.request.command
    return RidgelineError(
        f"run {run_id} is of `ridgeline {command}` and has no step times",
        hint="name a run of `ridgeline run`",
    )
