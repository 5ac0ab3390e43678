"""What people name as a side of a comparison, and the runs or the passport it stands for.

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
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path

from ridgeline.errors import RidgelineError
from ridgeline.fields import FieldError
from ridgeline.machine.passport import Passport, Passports, read_passport
from ridgeline.report.checked import check_run
from ridgeline.report.compare import step_samples
from ridgeline.report.views import measured_runs
from ridgeline.report.words import some
from ridgeline.store import ResultsFolder, Run

RUN, LABEL, MODEL, COMMIT, MACHINE, FOLDER = "run", "label", "model", "commit", "machine", "folder"
KINDS = (RUN, LABEL, MODEL, COMMIT, MACHINE)  # that may be written in front: `label:before`


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a comparison: runs, or a passport."""

    text: str  # as it was written
    kind: str  # one of KINDS, or FOLDER
    runs: tuple[Run, ...] = ()
    passport: Passport | None = None
    problems: tuple[str, ...] = ()  # why runs of its folder were passed over

    def __str__(self) -> str:
        if self.passport is not None:
            return f"{self.text} (passport of {self.passport.measured_at[:10]})"
        count = len(self.runs)
        return f"{self.text} ({self.kind}, {count} run{'s' if count > 1 else ''})"


@dataclass(slots=True)
class Shelves:
    """Results folders, each read once."""

    read: dict[Path, tuple[list[Run], list[str]]] = field(default_factory=dict)

    def runs(self, results: ResultsFolder) -> tuple[list[Run], list[str]]:
        """Completed runs that have step times, and why others were passed over."""
        if results.path not in self.read:
            runs, problems = measured_runs(results)
            has_steps = {run.run_id: _has_steps(run) for run in runs}
            problems += [f"run {name} is passed over: it has no step times"
                         for name, has in has_steps.items() if not has]  # fmt: skip
            self.read[results.path] = ([run for run in runs if has_steps[run.run_id]], problems)
        return self.read[results.path]


def _has_steps(run: Run) -> bool:
    try:
        samples = step_samples(run)
    except (KeyError, TypeError, ValueError):
        return False
    return bool(samples) and all(isfinite(sample) and sample > 0 for sample in samples)


def select(text: str, results: ResultsFolder, shelves: Shelves | None = None) -> Side:
    """The side that `text` names, first of all in `results`."""
    shelves = shelves or Shelves()
    kind, colon, name = text.partition(":")
    if not text or (colon and not name):
        raise RidgelineError(
            f"{text!r} names no side of a comparison",
            hint="name a run, a label, a model, commit:SHA, a results folder or a passport",
        )
    if colon and kind in KINDS:
        return _chosen(text, [_find(kind, name, results, shelves)], results, shelves)
    if colon and is_results(Path(kind)):
        inner = select(name, ResultsFolder(Path(kind)), shelves)
        return _renamed(inner, text)
    path = Path(text)
    if path.suffix == ".json":
        return Side(text=text, kind=MACHINE, passport=read_passport(path))
    if (path / "run.json").is_file():
        return _renamed(select(path.name, ResultsFolder(path.parent.parent), shelves), text)
    if text.endswith("/"):
        return _folder(text, shelves)
    found = [_find(kind, text, results, shelves) for kind in KINDS if kind != COMMIT]
    if is_results(path):
        found.append(_folder(text, shelves))
    return _chosen(text, found, results, shelves)


def is_results(path: Path) -> bool:
    """Whether there are runs or passports in a folder."""
    return (path / "runs").is_dir() or (path / "machines").is_dir()


def _renamed(side: Side, text: str) -> Side:
    return Side(text=text, kind=side.kind, runs=side.runs, passport=side.passport,
                problems=side.problems)  # fmt: skip


def _folder(text: str, shelves: Shelves) -> Side:
    runs, problems = shelves.runs(ResultsFolder(Path(text)))
    if not runs:
        raise RidgelineError(
            f"there are no completed runs in {text}",
            hint=problems[0] if problems else "name a folder that `ridgeline run --results` made",
        )
    return Side(text=text, kind=FOLDER, runs=tuple(runs), problems=tuple(problems))


def _find(kind: str, name: str, results: ResultsFolder, shelves: Shelves) -> Side:
    """All that has this name as a thing of this kind; perhaps nothing."""
    if kind == MACHINE:
        passports = Passports(results.path)
        known = name in passports.names()
        return Side(text=name, kind=kind, passport=passports.read(name) if known else None)
    runs, problems = shelves.runs(results)
    if kind == RUN:
        return Side(text=name, kind=kind, runs=tuple(r for r in runs if _is_named(r.run_id, name)))
    if kind == COMMIT:
        return Side(text=name, kind=kind, runs=_of_commit(name, runs), problems=tuple(problems))
    mine = tuple(run for run in runs if run.asked.get(kind) == name)
    return Side(text=name, kind=kind, runs=mine, problems=tuple(problems))


def _is_named(run_id: str, name: str) -> bool:
    return run_id.startswith(name) or run_id.endswith(f"-{name}")


def _of_commit(name: str, runs: Iterable[Run]) -> tuple[Run, ...]:
    found = {run.run_id: (run, sha) for run in runs for sha in _shas(run) if sha.startswith(name)}
    shas = sorted({sha for _, sha in found.values()})
    if len(shas) > 1:
        raise RidgelineError(
            f"{name!r} is the beginning of {len(shas)} commits",
            hint=f"write more of it: {some(shas, joint=', ')}",
        )
    return tuple(run for run, _ in found.values())


def _shas(run: Run) -> list[str]:
    commits = [run.provenance.get(name) or {} for name in ("commit", "ridgeline_commit")]
    return [str(commit["sha"]) for commit in commits if commit.get("sha")]


def _chosen(text: str, found: list[Side], results: ResultsFolder, shelves: Shelves) -> Side:
    """The one side among those found; RidgelineError if there are none or several."""
    there = [side for side in found if side.runs or side.passport]
    exact = [side for side in there if [run.run_id for run in side.runs] == [side.text]]
    there = exact or [s for s in there if s.kind != RUN or len(s.runs) == 1] or there
    different = {(tuple(run.run_id for run in side.runs), side.passport is None): side
                 for side in reversed(there)}  # fmt: skip
    if not different:
        raise _unknown(text, found[0].text, results, shelves)
    if len(different) > 1:
        forms = [f"{s.text}/" if s.kind == FOLDER else f"{s.kind}:{s.text}" for s in there]
        raise RidgelineError(
            f"{text!r} may mean {len(different)} things", hint=f"write one of {', '.join(forms)}"
        )
    side = next(iter(different.values()))
    if side.kind == RUN and len(side.runs) > 1:
        raise RidgelineError(
            f"{text!r} is the name of {len(side.runs)} runs",
            hint=f"write more of it: {some([run.run_id for run in side.runs], joint=', ')}",
        )
    return _renamed(side, text)


def _unknown(text: str, name: str, results: ResultsFolder, shelves: Shelves) -> RidgelineError:
    """Why there is no such side: a run that is of no use here, or nothing of that name."""
    named = [run_id for run_id in results.run_ids() if _is_named(run_id, name)]
    if len(named) == 1:
        return _useless(results, named[0])
    if Path(text).is_dir():
        return RidgelineError(
            f"{text} is not a results folder", hint="name one that `ridgeline run --results` made"
        )
    runs, _ = shelves.runs(results)
    choices = {
        "labels": sorted({run.asked["label"] for run in runs if run.asked.get("label")}),
        "models": sorted({str(run.asked["model"]) for run in runs}),
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


def _useless(results: ResultsFolder, run_id: str) -> RidgelineError:
    try:
        run = results.read_run(run_id)
    except RidgelineError as error:
        return error
    if run.found.get("status") == "failed":
        return RidgelineError(
            f"run {run_id} failed, so it has no times: {run.found.get('reason')}",
            hint="name a run that was completed",
        )
    if run.asked.get("command") == "run":
        try:
            check_run(run)
        except FieldError as error:
            return RidgelineError(
                f"run {run_id} cannot be compared: {error}",
                hint=f"the run was changed after it was written; remove {run.path} or restore it",
            )
    return RidgelineError(
        f"run {run_id} is of `ridgeline {run.asked.get('command')}` and has no step times",
        hint="name a run of `ridgeline run`",
    )
