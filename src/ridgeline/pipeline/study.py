"""The study of a results folder: which runs are chosen, counted where they are not, and joined."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.errors import RidgelineError
from ridgeline.measure.worker import ignore_message
from ridgeline.store import MeasuredRun, ResultsFolder, StoredCapture

if TYPE_CHECKING:
    from ridgeline.report.study import Study
    from ridgeline.roofline.roofs import Roofs

SHOWN_NAMES = 5  # in a hint
CountingBar = Callable[[int], AbstractContextManager[Callable[[str], None]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRequest:
    """Which runs and captures, and under which roofs."""

    results: Path
    names: tuple[str, ...] = ()  # ids, their beginnings or ends, labels, models, machines
    label: str | None = None  # only what has this label
    peak_compute: str | None = None
    peak_bw: str | None = None
    peaks: Path | None = None
    count_files: bool = False  # counting a Python file runs it


def read_chosen(
    request: StudyRequest, counting_bar: CountingBar = lambda total: nullcontext(ignore_message)
) -> tuple[Study, list[str]]:
    """The study of the chosen runs; runs that nobody counted are counted first, where torch is.

    Also what went wrong with counting.
    """
    from ridgeline.report.study import read_study

    results = ResultsFolder(request.results)
    run_ids = choose_runs(results, request.names, request.label)
    problems = _count(results, run_ids, request, counting_bar)
    study = read_study(
        results,
        run_ids=run_ids,
        user_roofs=_read_peaks(request.peaks),
        everywhere=_parse_peaks(request.peak_compute, request.peak_bw),
    )
    return study, problems


def choose_runs(
    results: ResultsFolder, names: Sequence[str], label: str | None = None
) -> list[str] | None:
    """The ids of the runs and captures that were named; None: all of them."""
    problems: list[str] = []
    labels, machines = _names_by_run(results, problems)
    if not labels:
        why = f": {'; '.join(problems[:SHOWN_NAMES])}" if problems else ""
        raise RidgelineError(
            f"there are no completed runs in {results.path}{why}",
            hint="make some: ridgeline run resnet50 --layers; or all at once: ridgeline analyze;"
            " or take a capture made elsewhere: ridgeline import FILE",
        )
    if not names and label is None:
        return None
    chosen = [*labels]
    if names:
        named = {run_id: [*known, *machines[run_id]] for run_id, known in labels.items()}
        chosen = [run_id for name in names for run_id in _matching(named, name)]
    if label is not None:
        labelled = _matching(labels, label)
        chosen = [run_id for run_id in chosen if run_id in labelled]
        if not chosen:
            raise RidgelineError(
                f"nothing called {' or '.join(names)} has the label {label!r}",
                hint=f"with that label there are {', '.join(labelled[:SHOWN_NAMES])}",
            )
    return list(dict.fromkeys(chosen))


def _names_by_run(
    results: ResultsFolder, problems: list[str]
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Of every run and capture what it may be called, and what its machine may be."""
    from ridgeline.report.stored import Machines, label_of, stored_profiles

    index = results.index()
    problems += index.problems
    stored = stored_profiles(index, (), problems)
    labels = {run.run_id: [run.request.model, run.request.label] for run in index.runs}
    labels |= {run.run_id: [label_of(run), stored.names[run.run_id]] for run in stored.captures}
    machines = Machines(results, [], {}, None)
    every: list[MeasuredRun | StoredCapture] = [*index.runs, *stored.captures]
    roofs = {run.run_id: machines.of(run).roofs for run in every}
    return labels, {run_id: [one.env, one.whole_env] for run_id, one in roofs.items()}


def _matching(named: Mapping[str, Sequence[str]], name: str) -> list[str]:
    """The ids of what is called so; none is an error that says what there is."""
    matching = [
        run_id
        for run_id, names in named.items()
        if name in names or run_id.startswith(name) or run_id.endswith(f"-{name}")
    ]
    if matching:
        return matching
    known = sorted({one for names in named.values() for one in names if one})
    raise RidgelineError(
        f"no run is called {name!r}",
        hint="name a run, a label, a model or a machine; here are: "
        f"{', '.join(known[:SHOWN_NAMES])}",
    )


def _count(
    results: ResultsFolder,
    run_ids: Sequence[str] | None,
    request: StudyRequest,
    counting_bar: CountingBar,
) -> list[str]:
    """Count what was not counted; without torch, say so and go on."""
    from ridgeline.report.stored import uncounted

    missing = uncounted(results.index(), run_ids)
    if not missing:
        return []
    from ridgeline.pipeline.count import count_missing

    try:
        with counting_bar(len(missing)) as step:
            return count_missing(results, run_ids, step, with_files=request.count_files)[1]
    except ImportError:
        return [f"{len(missing)} runs are not counted, and torch is not here to do it"]


def _read_peaks(path: Path | None) -> dict[str, Roofs]:
    if path is None:
        return {}
    from ridgeline.roofline.roofs import peaks_from_json

    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RidgelineError(
            f"{path} cannot be read: {error.strerror}", hint="name a peaks.json"
        ) from error
    except ValueError as error:
        raise RidgelineError(
            f"{path} is not JSON: {error}", hint="`ridgeline machine export NAME --peaks` makes one"
        ) from error
    return peaks_from_json(content, where=str(path))


def _parse_peaks(compute: str | None, bandwidth: str | None) -> Roofs | None:
    """The roofs of --peak-compute and --peak-bw: TFLOP/s and GB/s if no unit is named."""
    if compute is None and bandwidth is None:
        return None
    from ridgeline.roofline.roofs import BITS, GIGA, TERA, parse_rate, user_roofs

    rates: dict[str, float] = {}
    for part in compute.split(",") if compute is not None else ():
        precision, has_name, rate = part.rpartition("=")
        name = precision.strip() if has_name else ""
        parsed = parse_rate(rate, option="--peak-compute", plain=TERA)
        rates |= dict.fromkeys((name,) if name else BITS, parsed)
    slope = None
    if bandwidth is not None:
        slope = parse_rate(bandwidth, option="--peak-bw", plain=GIGA)
    return user_roofs("given", "", compute=rates, dram_bytes_per_s=slope)
