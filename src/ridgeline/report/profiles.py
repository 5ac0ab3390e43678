"""Stored profiles and captures: which kernels belong to which run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from ridgeline.captures.capture import sources_of
from ridgeline.profile.metrics import TIERS
from ridgeline.store import MeasuredRun, ResultsIndex, StoredCapture, StoredProfile

COUNTERS, TIME = TIERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles:
    """What counters and traces are stored."""

    of_run: dict[str, StoredProfile] = field(default_factory=dict)  # the newest good one
    captures: tuple[StoredCapture, ...] = ()  # imported, or of a program; oldest first
    names: dict[str, str] = field(default_factory=dict)  # of all captures by id, no two alike


def stored_profiles(
    index: ResultsIndex,
    runs: Iterable[MeasuredRun],
    problems: list[str],
    run_ids: Sequence[str] | None = None,
) -> Profiles:
    """Profiles of `runs`, and captures: all, or those among `run_ids`.

    A profile that failed is a problem, unless a later one of the same run did not.
    """
    known = {run.run_id for run in runs}
    of_run: dict[str, StoredProfile] = {}
    failures: dict[str, str] = {}
    for profile in index.profiles:
        parent, is_ok = profile.request.of_run, profile.result.status == "ok"
        if is_ok and parent in known:
            of_run[parent] = profile
            failures.pop(parent, None)
        elif is_ok and run_ids is None:
            problems.append(f"profile {profile.run_id} is of the run {parent}, which is not here")
        elif not is_ok and (run_ids is None or parent in known):
            failures[parent] = _failure(profile)
    problems += failures.values()
    chosen = [run for run in index.captures if run_ids is None or run.run_id in run_ids]
    return Profiles(of_run=of_run, captures=tuple(chosen), names=names_of(index.captures))


def _failure(profile: StoredProfile) -> str:
    """`resnet50, train, amp, batch 32: its profile failed: …`."""
    request, result = profile.request, profile.result
    what = f"{request.model}, {request.mode}, {request.precision}, batch {request.batch_size}"
    hint = f" ({result.hint})" if result.hint else ""
    return f"{what}: its profile failed: {result.reason or 'unknown'}{hint}"


def label_of(capture: StoredCapture) -> str:
    """The label of a capture, or the name of its first file or its program."""
    label = capture.request.label
    names = [PurePath(source).name for source in sources_of(capture)]
    return label or next(iter(names), "") or capture.run_id


def names_of(captures: Iterable[StoredCapture]) -> dict[str, str]:
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


def _named(capture: StoredCapture, *more: str) -> str:
    label = label_of(capture)
    told = ", ".join(part for part in more if part and part != label)
    return f"{label} ({told})" if told else label


def file_names(capture: StoredCapture) -> str:
    """`flops.csv + bytes.csv`."""
    return " + ".join(PurePath(source).name for source in sources_of(capture))


def _paths(capture: StoredCapture) -> str:
    return " + ".join(sources_of(capture))


def _time(capture: StoredCapture) -> str:
    return capture.made.time[:19].replace("T", " ")


def _end(capture: StoredCapture) -> str:
    """Six characters that no other run has."""
    return capture.run_id.rpartition("-")[2]


def busy_time_s(profile: StoredProfile | None) -> float | None:
    """In which at least one kernel or copy of a step ran; all together where only that is known."""
    if profile is None:
        return None
    return profile.result.busy_time_s or profile.result.kernel_time_s or None
