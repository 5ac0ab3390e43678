"""Selectors of a comparison: the runs or the passport that a text stands for.

2026-03-01T12…    a run, by its id, its beginning or the six characters at its end
before            all runs with that --label
resnet50          all completed runs of that model
commit:4f2a9c     all runs of that commit, of the working directory or of ridgeline itself
after/            all runs of another results folder
after:resnet50    any of these, in another results folder
nvidia-h200       a machine's passport, also a .json file
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path

from ridgeline.errors import RidgelineError
from ridgeline.machine.passport import Passport, Passports, read_passport
from ridgeline.records import Failure
from ridgeline.report.text import some
from ridgeline.store import InvalidRunError, MeasuredRun, ResultsFolder, Run

RUN, LABEL, MODEL, COMMIT, MACHINE, FOLDER = "run", "label", "model", "commit", "machine", "folder"
KINDS = (RUN, LABEL, MODEL, COMMIT, MACHINE)  # that may be written in front: `label:before`


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """One side of a comparison: runs, or a passport."""

    text: str  # as the user wrote it
    kind: str  # one of KINDS, or FOLDER
    runs: tuple[Run, ...] = ()
    passport: Passport | None = None
    problems: tuple[str, ...] = ()  # why runs of its folder were passed over

    def __str__(self) -> str:
        if self.passport is not None:
            return f"{self.text} (passport of {self.passport.measured_at[:10]})"
        count = len(self.runs)
        return f"{self.text} ({self.kind}, {count} run{'s' if count > 1 else ''})"


ReadRuns = tuple[tuple[MeasuredRun, ...], tuple[str, ...]]


@dataclass(slots=True)
class RunCache:
    """Results folders, each read once."""

    folders: dict[Path, tuple[tuple[MeasuredRun, ...], tuple[str, ...]]] = field(
        default_factory=dict
    )

    def read(self, results: ResultsFolder) -> ReadRuns:
        """Completed runs that have step times, and why others were passed over."""
        if results.path not in self.folders:
            index = results.index()
            runs, problems = index.runs, list(index.problems)
            problems += [f"run {run.run_id} is passed over: it has no step times"
                         for run in runs if not has_step_times(run)]  # fmt: skip
            self.folders[results.path] = tuple(filter(has_step_times, runs)), tuple(problems)
        return self.folders[results.path]


def step_samples(run: MeasuredRun) -> list[float]:
    """The time of every step; KeyError and TypeError say that the run has none."""
    return [float(sample) for sample in run.result.step_time_s.samples]


def has_step_times(run: MeasuredRun) -> bool:
    try:
        samples = step_samples(run)
    except (KeyError, TypeError, ValueError):
        return False
    return bool(samples) and all(isfinite(sample) and sample > 0 for sample in samples)


def select(text: str, results: ResultsFolder, cache: RunCache | None = None) -> Selection:
    """The side that `text` names, first of all in `results`."""
    cache = cache or RunCache()
    kind, colon, name = text.partition(":")
    path = Path(text)
    if not text or (colon and not name):
        raise RidgelineError(
            f"{text!r} names no side of a comparison",
            hint="name a run, a label, a model, commit:SHA, a results folder or a passport",
        )
    if colon and kind in KINDS:
        return _choose(text, [_find(kind, name, results, cache)], results, cache)
    if colon and is_results(Path(kind)):
        return replace(select(name, ResultsFolder(Path(kind)), cache), text=text)
    if path.suffix == ".json":
        return Selection(text=text, kind=MACHINE, passport=read_passport(path))
    if (path / "run.json").is_file():
        return replace(select(path.name, ResultsFolder(path.parent.parent), cache), text=text)
    if text.endswith("/"):
        return _read_folder(text, cache)
    candidates = [_find(kind, text, results, cache) for kind in KINDS if kind != COMMIT]
    if is_results(path):
        candidates.append(_read_folder(text, cache))
    return _choose(text, candidates, results, cache)


def is_results(path: Path) -> bool:
    """Whether there are runs or passports in a folder."""
    return (path / "runs").is_dir() or (path / "machines").is_dir()


def _read_folder(text: str, cache: RunCache) -> Selection:
    runs, problems = cache.read(ResultsFolder(Path(text)))
    if not runs:
        raise RidgelineError(
            f"there are no completed runs in {text}",
            hint=problems[0] if problems else "name a folder that `ridgeline run --results` made",
        )
    return Selection(text=text, kind=FOLDER, runs=runs, problems=problems)


def _find(kind: str, name: str, results: ResultsFolder, cache: RunCache) -> Selection:
    """Everything of this kind that has this name; perhaps nothing."""
    if kind == MACHINE:
        passports = Passports(results.path)
        is_known = name in passports.names()
        return Selection(text=name, kind=kind, passport=passports.read(name) if is_known else None)
    runs, problems = cache.read(results)
    if kind == COMMIT:
        matching = _find_commit(name, runs)
    elif kind == RUN:
        matching, problems = tuple(r for r in runs if _has_id(r.run_id, name)), ()
    else:
        matching = tuple(run for run in runs if getattr(run.request, kind) == name)
    return Selection(text=name, kind=kind, runs=matching, problems=problems)


def _has_id(run_id: str, name: str) -> bool:
    return run_id.startswith(name) or run_id.endswith(f"-{name}")


def _find_commit(name: str, runs: Iterable[Run]) -> tuple[Run, ...]:
    matches = [(run, sha) for run in runs for sha in _shas(run) if sha.startswith(name)]
    if len(shas := sorted({sha for _, sha in matches})) > 1:
        raise RidgelineError(
            f"{name!r} is the beginning of {len(shas)} commits",
            hint=f"write more of it: {some(shas, joint=', ')}",
        )
    return tuple({run.run_id: run for run, _ in matches}.values())


def _shas(run: MeasuredRun) -> list[str]:
    commits = [run.provenance.get(name) or {} for name in ("commit", "ridgeline_commit")]
    return [str(commit["sha"]) for commit in commits if commit.get("sha")]


def _choose(
    text: str, candidates: list[Selection], results: ResultsFolder, cache: RunCache
) -> Selection:
    """The one candidate that exists; RidgelineError if there are none or several."""
    there = [one for one in candidates if one.runs or one.passport]
    exact = [one for one in there if [run.run_id for run in one.runs] == [one.text]]
    there = exact or [one for one in there if one.kind != RUN or len(one.runs) == 1] or there
    different = {(tuple(run.run_id for run in one.runs), one.passport is None): one
                 for one in reversed(there)}  # fmt: skip
    if not different:
        raise _explain_nothing(text, candidates[0].text, results, cache)
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
    text: str, name: str, results: ResultsFolder, cache: RunCache
) -> RidgelineError:
    """Why there is no such side: a run that cannot be compared, or nothing of that name."""
    named = [run_id for run_id in results.run_ids() if _has_id(run_id, name)]
    if len(named) == 1:
        return _explain_run(results, named[0])
    if Path(text).is_dir():
        return RidgelineError(
            f"{text} is not a results folder", hint="name one that `ridgeline run --results` made"
        )
    runs, _ = cache.read(results)
    choices = {
        "labels": sorted({run.request.label for run in runs if run.request.label}),
        "models": sorted({run.request.model for run in runs}),
        "newest runs": [run.run_id for run in reversed(runs)],
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
