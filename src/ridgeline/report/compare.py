"""Two sides compared: their runs matched by configuration, and each match compared.

A side is named by one of

2026-03-01T12…    a run, by its id, its beginning or the six characters at its end
before            all runs with that --label
resnet50          all completed runs of that model
commit:4f2a9c     all runs of that commit, of the working directory or of ridgeline itself
after/            all runs of another results folder
after:resnet50    any of these, in another results folder

A setting that has one value on all of one side and another on all of the other is what is being
compared (`--compile`, the device, the model), so it need not agree. All others must. The workload
(the model, the batch, …) must agree in any case where whole folders or commits are compared:
there, a configuration that is lacking is no reason to compare it with a different one.

Two values of a sweep (`compare_values`) are compared with everything else equal, the device, too.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import log
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from ridgeline.errors import RidgelineError
from ridgeline.machine.passport import Passports
from ridgeline.provenance import speed_variables
from ridgeline.records import Failure
from ridgeline.report.comparison import (
    COMMIT,
    FOLDER,
    KINDS,
    LABEL,
    MODEL,
    RUN,
    SWEEP,
    Change,
    ComparedRuns,
    Comparison,
    Part,
    Selection,
    center,
    compare_groups,
    find_interval,
)
from ridgeline.report.configurations import OPTIONS, WORK, read_all_settings, word
from ridgeline.report.stored import read_table
from ridgeline.report.study import BUSY
from ridgeline.report.sweeps import choose_runs_of_value, read_case_runs
from ridgeline.report.text import group_by, some
from ridgeline.report.views import disturbance, metrics
from ridgeline.serialize import to_dict
from ridgeline.store import DEFAULT_RESULTS, MeasuredRun, ResultsFolder, ResultsIndex

if TYPE_CHECKING:
    import pandas as pd

WORKLOAD = tuple(name for name in WORK if name not in ("precision", "digest"))
MATCHED = (*WORKLOAD, "precision", "backend", "device_name", *OPTIONS, "environment")
ALWAYS_NAMED = ("model", "batch_size", "mode", "precision")
AS_USUAL = "default"
MOST_NAMED = 3
STEP, SAMPLE = "step", "sample"
FOLLOWING = {  # what changes with a setting, and is no difference of its own
    "model": ("digest", "config", "input_size", "seq_len"), "backend": ("device_name",),
    "gpu": ("device_name",), "data": ("data_root",),
}  # fmt: skip
CLOCK_DIFFERS = 0.03  # as a share; what differs by less is the same
NOT_SETTINGS = (  # of the request: names, and what does not change a step
    "command", "label", "repeat", "precision", "backend", "layers", "energy", "energy_time_s",
    "layer_energy",
)  # fmt: skip
RESULT_SETTINGS = ("precision", "backend", "device_name", "device_uuid", "threads")
NOT_PROVENANCE = ("time", "command", "environment")  # the first two differ between any two runs
NOT_SET, NOT_KNOWN = "not set", "not known"  # the first of an environment variable
SHOWN_SHA = 10
AT_ANY_LOAD = ("peak_memory_bytes",)  # a busy machine does not change it

Key = tuple[Any, ...]
RunSettings = Mapping[str, Any]
Runs = Sequence[MeasuredRun]
Groups = dict[Key, list[MeasuredRun]]
Parts = Mapping[str, Sequence[float]]  # samples of each part of a run's step


def compare(
    a: str | Path,
    b: str | Path,
    *,
    results: str | Path = DEFAULT_RESULTS,
    layers: bool | None = None,
) -> Comparison:
    """Compare two runs, labels, models, commits or results folders.

    `layers` says whether layers are compared; None: if each side is one configuration.
    """
    folder = ResultsFolder(Path(results))
    return compare_sides(select(str(a), folder), select(str(b), folder), layers=layers)


def compare_values(
    sweep: str,
    a: str,
    b: str,
    *,
    results: str | Path = DEFAULT_RESULTS,
    layers: bool | None = None,
) -> Comparison:
    """Compare two values of a setting of a sweep, `precision=fp32` and `precision=amp`."""
    folder = ResultsFolder(Path(results))
    cases = read_case_runs(folder.path, sweep)
    runs = {run.run_id: run for run in _read_timed(folder).runs}
    names, sides = [], []
    for text in (a, b):
        name, run_ids, note = choose_runs_of_value(cases, text)
        mine = tuple(run for run_id, run in runs.items() if run_id in run_ids)
        names.append(name)
        sides.append(Selection(text=f"{sweep} {text}", kind=SWEEP, runs=mine,
                               problems=(note,) if note else ()))  # fmt: skip
    if names[0] != names[1]:
        raise RidgelineError(f"{a} and {b} are values of two settings",
                             hint="name two values of one: all else is equal then")  # fmt: skip
    compared = (names[0], *FOLLOWING.get(names[0], ()))
    return compare_sides(*sides, layers=layers, compared=compared)


def compare_sides(
    before: Selection,
    after: Selection,
    *,
    layers: bool | None = None,
    compared: Collection[str] | None = None,
) -> Comparison:
    """Match the runs of two sides by configuration and compare each match.

    `compared` are the settings that may differ; None: those that tell the sides apart.
    """
    of_run = read_run_settings([*before.runs, *after.runs])
    if compared is None:
        compared = find_compared(before.runs, after.runs, of_run)
    if not {before.kind, after.kind}.isdisjoint((FOLDER, COMMIT)):
        compared = {*compared} - {*WORKLOAD}
    left, right = (match_runs(side.runs, of_run, compared) for side in (before, after))
    pairs = [(left[key], right[key]) for key in left if key in right]
    names = _choose_names(of_run, before.runs, after.runs)
    left_names, right_names = (_name_groups(groups, of_run, names) for groups in (left, right))
    if not pairs:
        sides = (f"{side.text} has {some(list(named.values()), most=MOST_NAMED)}"
                 for side, named in ((before, left_names), (after, right_names)))  # fmt: skip
        raise RidgelineError(
            f"{before.text} and {after.text} have no configuration in common", hint=". ".join(sides)
        )
    matched = [[run for pair in pairs for run in pair[n]] for n in (0, 1)]
    problems: list[str] = []
    rows = []
    for one, other in pairs:
        with_layers = len(pairs) == 1 if layers is None else layers
        tables = _read_layers([*one, *other], problems) if with_layers else {}
        title = _name_pair(of_run[one[0].run_id], of_run[other[0].run_id], names)
        rows.append(compare_runs(title, one, other, layers=tables))
    return Comparison(
        before=before,
        after=after,
        rows=tuple(sorted(rows, key=lambda r: (not r.time.is_shown, -abs(log(r.time.ratio))))),
        only_before=tuple(name for key, name in left_names.items() if key not in right),
        only_after=tuple(name for key, name in right_names.items() if key not in left),
        settings=find_settings(matched[0], matched[1]),
        notes=tuple(dict.fromkeys([*_find_notes(before, after, rows, layers), *problems])),
    )


def _read_layers(runs: Runs, problems: list[str]) -> dict[str, pd.DataFrame]:
    needs = ("layer", "time_s")
    tables = {run.run_id: read_table(run, "layers", problems, needs=needs) for run in runs}
    return {run_id: table for run_id, table in tables.items() if table is not None}


# ---------------------------------------------------------------- matching


def read_run_settings(runs: Runs) -> dict[str, RunSettings]:
    """The settings of each run in which two configurations may differ, by run."""
    table = metrics(runs)
    table["model"] = table["arch"]
    every = zip(table["run_id"], read_all_settings(table), strict=True)
    return {str(run_id): {name: one[name] for name in MATCHED} for run_id, one in every}


def match_runs(
    runs: Runs, settings: Mapping[str, RunSettings], compared: Collection[str]
) -> Groups:
    """The runs of a side by the settings that must agree with the other side's."""
    names = [name for name in MATCHED if name not in compared]
    return group_by(runs, (tuple(settings[run.run_id][name] for name in names) for run in runs))


def find_compared(before: Runs, after: Runs, settings: Mapping[str, RunSettings]) -> set[str]:
    """The settings that have one value on all of one side, and another on all of the other."""
    values = {
        name: [{settings[run.run_id][name] for run in side} for side in (before, after)]
        for name in MATCHED
    }
    return {
        name
        for name, (left, right) in values.items()
        if len(left) == len(right) == 1 and left != right
    }


def _name_groups(
    groups: Groups, settings: Mapping[str, RunSettings], names: Sequence[str]
) -> dict[Key, str]:
    firsts = {key: settings[runs[0].run_id] for key, runs in groups.items()}
    return {key: _name_pair(first, first, names) for key, first in firsts.items()}


def _choose_names(settings: Mapping[str, RunSettings], *sides: Runs) -> list[str]:
    """The settings in which a side's configurations differ, and those that are always named."""
    return [
        name
        for name in MATCHED
        if name in ALWAYS_NAMED
        or any(len({settings[run.run_id][name] for run in runs}) > 1 for runs in sides)
    ]


def _name_pair(before: RunSettings, after: RunSettings, names: Iterable[str]) -> str:
    """`resnet50, batch 32, train, amp`; `fp32 → amp` for what differs."""
    words = []
    for name in names:
        left, right = (word(name, one[name]) for one in (before, after))
        words.append(left if left == right else f"{left or AS_USUAL} → {right or AS_USUAL}")
    return ", ".join(filter(None, words))


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
    if any(1 in row.time.runs for row in rows):
        yield (
            "the interval is of one process; another process may differ by more:"
            " `ridgeline run … --repeats 3` tells the rest"
        )
    if any(row.per == SAMPLE for row in rows):
        yield "the batches differ, so times are those of a sample, not of a step"
    if layers and not any(row.layers for row in rows):
        yield "layers were not timed on both sides; measure with `ridgeline run … --layers`"


# ---------------------------------------------------------------- one configuration


def compare_runs(
    name: str, before: Runs, after: Runs, *, layers: Mapping[str, pd.DataFrame] | None = None
) -> ComparedRuns:
    """Compare runs of one configuration; `layers` has tables by run id, where there are any."""
    runs, tables = [*before, *after], layers or {}
    per = STEP if len({samples_per_step(run) for run in runs}) == 1 else SAMPLE
    busy = [*_name_disturbance("A", before), *_name_disturbance("B", after)]

    def compare_parts(read: Callable[[MeasuredRun], Parts]) -> tuple[Part, ...]:
        return _compare_parts(*(_gather(read, side, per) for side in (before, after)))

    def read_phases(run: MeasuredRun) -> Parts:
        return {name: p.samples or (p.median,) for name, p in run.result.split_s.items()}

    def read_layers(run: MeasuredRun) -> Parts:
        return layer_samples(tables[run.run_id]) if run.run_id in tables else {}

    steps = [_gather(lambda run: {STEP: run.result.step_time_s.samples}, side, per)[STEP]
             for side in (before, after)]  # fmt: skip
    time = compare_groups(*steps, is_judged=not busy)
    has_layers = all(any(map(read_layers, side)) for side in (before, after))
    return ComparedRuns(
        name=name,
        per=per,
        time=time,
        others=_compare_quantities(before, after, is_judged=not busy),
        phases=compare_parts(read_phases),
        layers=compare_parts(read_layers) if has_layers else (),
        conditions=find_conditions(before, after, time.ratio),
        warnings=tuple(dict.fromkeys(text for run in runs for text in run.result.warnings)),
        run_ids=(tuple(r.run_id for r in before), tuple(r.run_id for r in after)),
        why_not_judged=f"{BUSY} during {' and '.join(busy)}" if busy else "",
    )


def _name_disturbance(side: str, runs: Runs) -> Iterable[str]:
    """`A (other programs had the processor)`, if the machine was busy in half of its runs or more.

    In fewer, the median of the runs' medians is that of a quiet one.
    """
    reasons = [reason for run in runs if (reason := disturbance(run))]
    if 2 * len(reasons) >= len(runs):
        yield f"{side} ({'; '.join(dict.fromkeys(reasons))})"


def samples_per_step(run: MeasuredRun) -> int:
    return run.result.samples_per_step or run.request.batch_size


def _read_energy(run: MeasuredRun) -> list[float]:
    """Joules per sample of every window; of the run as a whole if its windows are not known."""
    energy = run.result.energy
    if energy is None:
        return []
    if not energy.windows:
        return [energy.energy_j_per_sample or 0.0]
    return [window.energy_j_per_step / samples_per_step(run) for window in energy.windows]


QUANTITIES: dict[str, Callable[[MeasuredRun], list[float]]] = {
    # of the median step, as everywhere: the mean follows a single slow step
    "samples_per_s": lambda run: [run.result.samples_per_s],
    "energy_j_per_sample": _read_energy,
    "peak_memory_bytes": lambda run: [run.result.peak_memory_bytes or 0.0],
}


def _compare_quantities(before: Runs, after: Runs, *, is_judged: bool) -> dict[str, Change]:
    """Those that all runs have; no ratio can be made of a zero."""
    changes = {}
    for name, read in QUANTITIES.items():
        left, right = ([read(run) for run in runs] for runs in (before, after))
        if all(values and min(values) > 0 for values in (*left, *right)):
            judge = is_judged or name in AT_ANY_LOAD
            changes[name] = compare_groups(left, right, is_judged=judge)
    return changes


def _gather(
    read: Callable[[MeasuredRun], Parts], runs: Runs, per: str
) -> dict[str, list[list[float]]]:
    """The samples of each part, run by run, on the scale of `per`."""
    parts: dict[str, list[list[float]]] = {}
    for run in runs:
        scale = 1.0 if per == STEP else 1 / samples_per_step(run)
        for name, samples in read(run).items():
            parts.setdefault(name, []).append([scale * sample for sample in samples])
    return parts


def _compare_parts(
    before: dict[str, list[list[float]]], after: dict[str, list[list[float]]]
) -> tuple[Part, ...]:
    """Parts of both sides first, the largest difference first."""
    parts = []
    for name in dict.fromkeys([*before, *after]):
        left, right = before.get(name), after.get(name)
        parts.append(Part(
            name=name,
            before_s=center(left) if left else None,
            after_s=center(right) if right else None,
            interval_s=find_interval(left, right) if left and right else None,
        ))  # fmt: skip
    return tuple(sorted(parts, key=lambda part: (not part.is_on_both, -abs(part.difference_s))))


def layer_samples(table: pd.DataFrame) -> Parts:
    """Time of each layer in each timed step; its one known time where it has no samples."""
    layers = {}
    for row in table.to_dict("records"):
        stages = [row.get(f"{stage}_samples_s") for stage in ("forward", "backward")]
        timed = [list(stage) for stage in stages if stage is not None and len(stage)]
        sums = [sum(step) for step in zip(*timed, strict=False)]
        layers[str(row["layer"])] = sums or [row["time_s"]]
    return layers


# ---------------------------------------------------------------- settings and conditions


def find_settings(before: Runs, after: Runs) -> dict[str, tuple[str, str]]:
    """Settings, device, versions, commits and environment variables that differ between sides.

    Several values of one side are all named: `2.10.0, 2.11.0`.
    """
    variables = {
        name for run in (*before, *after) for name in speed_variables(run.made.environment)
    }
    left, right = _read_values(before, variables), _read_values(after, variables)
    names = dict.fromkeys([*left, *right])
    pairs = {name: (left.get(name, NOT_KNOWN), right.get(name, NOT_KNOWN)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _read_values(runs: Runs, variables: Collection[str]) -> dict[str, str]:
    values = defaultdict(set)
    for run in runs:
        recorded = {name: run.made.environment.get(name, NOT_SET) for name in sorted(variables)}
        for name, value in {**_read_settings(run), **recorded}.items():
            values[name].add(setting_text(value))
    return {name: ", ".join(sorted(texts)) for name, texts in values.items()}


def _read_settings(run: MeasuredRun) -> dict[str, Any]:
    request, made = to_dict(run.request), to_dict(run.made)
    origin = {name: value for name, value in made.items() if name not in NOT_PROVENANCE}
    for name in ("commit", "ridgeline_commit"):
        commit = getattr(run.made, name)
        dirty = " with changes" if commit and commit.is_dirty else ""
        origin[name] = f"{commit.sha[:SHOWN_SHA]}{dirty}" if commit else None
    return {
        **{name: value for name, value in request.items() if name not in NOT_SETTINGS},
        **{name: getattr(run.result, name) for name in RESULT_SETTINGS},
        **{_shorten(name): value for name, value in _flatten(origin)},
    }


def _flatten(content: Any, prefix: str = "") -> Iterable[tuple[str, Any]]:
    if isinstance(content, list | tuple):
        content = dict(enumerate(content))
    if not isinstance(content, Mapping):
        yield prefix, content
        return
    for name, item in content.items():
        yield from _flatten(item, f"{prefix}.{name}" if prefix else str(name))


def _shorten(name: str) -> str:
    """`torch` of `libraries.torch`, `device 0 driver` of `host.devices.0.driver`."""
    words = name.replace("host.devices.", "device ").split(".")
    if words[0] == "backends":  # that torch was built with: `cuda`, `cudnn`
        return f"torch's {' '.join(words[1:])}"
    return " ".join(words[1:] if words[0] == "libraries" else words)


def setting_text(value: Any) -> str:
    """A setting as people write it: `none`, `yes`, `224x224`, `a=1,b=2`."""
    if value is None or value in ({}, []):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return "x".join(str(item) for item in value)
    if isinstance(value, Mapping):
        return ",".join(f"{key}={json.dumps(value[key])}" for key in sorted(value))
    return str(value)


def find_conditions(before: Runs, after: Runs, ratio: float) -> tuple[str, ...]:
    """Clocks that differ, where all runs know theirs; `ratio` is that of the times."""
    every = [[run.result.conditions.during.clock_hz for run in side] for side in (before, after)]
    left, right = (median(clock or 0.0 for clock in clocks) for clocks in every)
    if not all(map(all, every)) or abs(right / left - 1) <= CLOCK_DIFFERS:
        return ()
    explains = " explains it" if abs(ratio * right / left - 1) < CLOCK_DIFFERS else ""
    return (f"clock {left / 1e6:.0f} → {right / 1e6:.0f} MHz{explains}",)


# ---------------------------------------------------------------- selecting a side


def select(text: str, results: ResultsFolder) -> Selection:
    """The side that `text` names, first of all in `results`."""
    kind, colon, name = text.partition(":")
    path = Path(text)
    if not text or (colon and not name):
        raise RidgelineError(
            f"{text!r} names no side of a comparison",
            hint="name a run, a label, a model, commit:SHA or a results folder",
        )
    if colon and kind not in KINDS and is_results(Path(kind)):
        return replace(select(name, ResultsFolder(Path(kind))), text=text)
    if path.suffix == ".json" or text in Passports(results.path).names():
        raise RidgelineError(
            f"{text!r} is a machine's passport", hint="compare two with `ridgeline machine diff`"
        )
    if (path / "run.json").is_file():
        return replace(select(path.name, ResultsFolder(path.parent.parent)), text=text)
    if text.endswith("/"):
        return _read_folder(text)
    kinds, name = ([kind], name) if colon and kind in KINDS else ((RUN, LABEL, MODEL), text)
    index = _read_timed(results)
    there = [side for one in kinds if (side := _find(one, name, index)).runs]
    if is_results(path):
        there.append(_read_folder(text))
    if not there:
        raise _explain_nothing(text, name, results, index)
    if len(there) > 1:
        forms = [f"{text}/" if one.kind == FOLDER else f"{one.kind}:{name}" for one in there]
        raise RidgelineError(
            f"{text!r} may mean {len(there)} things", hint=f"write one of {', '.join(forms)}"
        )
    return replace(there[0], text=text)


def is_results(path: Path) -> bool:
    """Whether there are runs in a folder."""
    return (path / "runs").is_dir()


def _read_timed(results: ResultsFolder) -> ResultsIndex:
    """The index of a folder, without the runs that have no step times; why, is a problem."""
    index = results.index()
    timed = tuple(run for run in index.runs if min(run.result.step_time_s.samples, default=0) > 0)
    problems = [
        f"run {run.run_id} is passed over: it has no step times"
        for run in index.runs
        if run not in timed
    ]
    return replace(index, runs=timed, problems=(*index.problems, *problems))


def _read_folder(text: str) -> Selection:
    index = _read_timed(ResultsFolder(Path(text)))
    if not index.runs:
        raise RidgelineError(
            f"there are no completed runs in {text}",
            hint="name a folder that `ridgeline run --results` made",
        )
    return Selection(text=text, kind=FOLDER, runs=index.runs, problems=index.problems)


def _find(kind: str, name: str, index: ResultsIndex) -> Selection:
    """Everything of this kind that has this name; perhaps nothing. A beginning that several runs
    or commits have is an error.
    """
    found = [(run, full) for run in index.runs for full in _list_names(kind, run, name)]
    full_names = sorted({full for _, full in found})
    if kind in (RUN, COMMIT) and len(full_names) > 1:
        raise RidgelineError(
            f"{name!r} may be {len(full_names)} {kind}s",
            hint=f"write more of it: {some(full_names, joint=', ')}",
        )
    runs = {run.run_id: run for run, _ in found}
    return Selection(text=name, kind=kind, runs=tuple(runs.values()), problems=index.problems)


def _list_names(kind: str, run: MeasuredRun, name: str) -> list[str]:
    """What a run is called in full, where that fits a name."""
    if kind == RUN:
        return [run.run_id] if _has_id(run.run_id, name) else []
    if kind == COMMIT:
        commits = (run.made.commit, run.made.ridgeline_commit)
        return [one.sha for one in commits if one is not None and one.sha.startswith(name)]
    return [name] if getattr(run.request, kind) == name else []


def _has_id(run_id: str, name: str) -> bool:
    return run_id.startswith(name) or run_id.endswith(f"-{name}")


def _explain_nothing(
    text: str, name: str, results: ResultsFolder, index: ResultsIndex
) -> RidgelineError:
    """Why there is no such side: a run that cannot be compared, or nothing of that name."""
    for run_id in results.run_ids():
        if _has_id(run_id, name):
            result = results.read_run(run_id).result  # or why it cannot be read
            reason = f": {result.reason}" if isinstance(result, Failure) else ""
            return RidgelineError(
                f"run {run_id} has no step times{reason}",
                hint="name a completed run of `ridgeline run`",
            )
    choices = {
        "labels": sorted({run.request.label for run in index.runs if run.request.label}),
        "models": sorted({run.request.model for run in index.runs}),
        "newest runs": [run.run_id for run in reversed(index.runs)],
    }
    listed = [f"{kind}: {some(names, joint=', ')}" for kind, names in choices.items() if names]
    nothing = "there are no completed runs in this folder; name another one with --results DIR"
    return RidgelineError(
        f"there is nothing called {text!r} to compare in {results.path}",
        hint="; ".join(listed) or nothing,
    )
