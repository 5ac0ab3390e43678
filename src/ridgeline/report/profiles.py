"""Stored profiles and captures: which kernels belong to which run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from ridgeline.captures.storage import is_capture, sources_of
from ridgeline.errors import RidgelineError
from ridgeline.fields import FieldError
from ridgeline.profile.metrics import TIERS
from ridgeline.report.checked import check_capture, check_profile
from ridgeline.store import ResultsFolder, Run

COUNTERS, TIME = TIERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles:
    """What counters and traces are stored."""

    of_run: dict[str, Run] = field(default_factory=dict)  # the newest good profile of each run
    captures: tuple[Run, ...] = ()  # imported, or of a program; oldest first
    names: dict[str, str] = field(default_factory=dict)  # of all captures by id, no two alike


def stored_profiles(
    results: ResultsFolder,
    runs: Iterable[Run],
    problems: list[str],
    run_ids: Sequence[str] | None = None,
) -> Profiles:
    """Profiles of `runs`, and captures: all, or those among `run_ids`.

    A profile that failed is a problem, unless a later one of the same run did not.
    """
    known = {run.run_id for run in runs}
    of_run: dict[str, Run] = {}
    failures: dict[str, str] = {}
    every = []
    for run in _of_commands(results, "profile", "import"):
        try:
            if is_capture(run):
                check_capture(run)
                every.append(run)
                continue
            check_profile(run)
        except FieldError as error:
            problems.append(f"{run.asked['command']} {run.run_id} is passed over: {error}")
            continue
        parent = str(run.asked["of_run"])
        if run.found["status"] == "ok" and parent in known:
            of_run[parent] = run
            failures.pop(parent, None)
        elif run.found["status"] == "ok" and run_ids is None:
            problems.append(f"profile {run.run_id} is of the run {parent}, which is not here")
        elif run.found["status"] != "ok" and (run_ids is None or parent in known):
            failures[parent] = _failure(run)
    problems += failures.values()
    chosen = [run for run in every if run_ids is None or run.run_id in run_ids]
    return Profiles(of_run=of_run, captures=tuple(chosen), names=names_of(every))


def stored_captures(results: ResultsFolder) -> list[Run]:
    """The captures that are stored and can be read."""
    return list(stored_profiles(results, (), []).captures)


def _of_commands(results: ResultsFolder, *commands: str) -> Iterable[Run]:
    for run_id in results.run_ids():
        try:
            run = results.read_run(run_id)
        except RidgelineError:  # told by who reads all runs
            continue
        if run.asked.get("command") in commands:
            yield run


def _failure(run: Run) -> str:
    """`resnet50, train, amp, batch 32: its profile failed: …`."""
    asked = run.asked
    told = [str(asked[name]) for name in ("model", "mode", "precision") if asked.get(name)]
    told += [f"batch {asked['batch_size']}"] if asked.get("batch_size") else []
    hint = f" ({run.found['hint']})" if run.found.get("hint") else ""
    return f"{', '.join(told)}: its profile failed: {run.found.get('reason') or 'unknown'}{hint}"


def label_of(capture: Run) -> str:
    """The label of a capture, or the name of its first file or its program."""
    label = str(capture.asked.get("label") or "")
    names = [PurePath(source).name for source in sources_of(capture)]
    return label or next(iter(names), "") or capture.run_id


def names_of(captures: Iterable[Run]) -> dict[str, str]:
    """Captures by their labels; those that share one also by what tells them apart.

    `two (a.csv)`: that is the file's name, else its path, else the time, else the end of the id.
    """
    names: dict[str, str] = {}
    alike = list(captures)
    for more in ((), (file_names,), (_paths,), (file_names, _time), (file_names, _end)):
        told = {run.run_id: _named(run, *(tell(run) for tell in more)) for run in alike}
        names |= told
        often = Counter(names.values())
        alike = [run for run in alike if often[told[run.run_id]] > 1]
    return names


def _named(capture: Run, *more: str) -> str:
    label = label_of(capture)
    told = ", ".join(part for part in more if part and part != label)
    return f"{label} ({told})" if told else label


def file_names(capture: Run) -> str:
    """`flops.csv + bytes.csv`."""
    return " + ".join(PurePath(source).name for source in sources_of(capture))


def _paths(capture: Run) -> str:
    return " + ".join(sources_of(capture))


def _time(capture: Run) -> str:
    return str(capture.provenance.get("time") or "")[:19].replace("T", " ")


def _end(capture: Run) -> str:
    """Six characters that no other run has."""
    return capture.run_id.rpartition("-")[2]


def busy_time_s(profile: Run | None) -> float | None:
    """In which at least one kernel or copy of a step ran; all together where only that is known."""
    found = profile.found if profile is not None else {}
    value: Any = found.get("busy_time_s") or found.get("kernel_time_s")
    return float(value) if value else None
