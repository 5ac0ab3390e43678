"""What `roofline`, `report` and `analyze` share: choosing runs, counting, reading the study."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.cli.interrupts import import_tables
from ridgeline.errors import RidgelineError
from ridgeline.plain import plain_text
from ridgeline.store import MeasuredRun, ResultsFolder, StoredCapture

if TYPE_CHECKING:
    from ridgeline.report.study import Study
    from ridgeline.roofline.roofs import Roofs

SOME = 5  # names in a hint


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Which runs and captures, and under which roofs."""

    results: Path
    wanted: tuple[str, ...] = ()  # ids, their beginnings or ends, labels, models, machines
    label: str | None = None  # only what has this label
    peak_compute: str | None = None
    peak_bw: str | None = None
    peaks: Path | None = None
    count_files: bool = False  # counting a Python file runs it
    quiet: bool = False


def read(chosen: Chosen) -> Study:
    """The study of the chosen runs; runs that nobody counted are counted first, where torch is."""
    import_tables()
    from ridgeline.report.study import read_study

    results = ResultsFolder(chosen.results)
    run_ids = choose_runs(results, chosen.wanted, chosen.label)
    problems = _count(results, run_ids, chosen)
    study = read_study(
        results,
        run_ids=run_ids,
        given=_peaks(chosen.peaks),
        everywhere=_everywhere(chosen.peak_compute, chosen.peak_bw),
    )
    for text in (*problems, *study.problems, *study.remarks):  # also with --quiet: on the numbers
        print(f"note: {plain_text(text)}", file=sys.stderr)
    return study


def choose_runs(
    results: ResultsFolder, wanted: Sequence[str], label: str | None = None
) -> list[str] | None:
    """The ids of the runs and captures that were named; None: all of them."""
    problems: list[str] = []
    labels, machines = _names(results, problems)
    if not labels:
        why = f": {'; '.join(problems[:SOME])}" if problems else ""
        raise RidgelineError(
            f"there are no completed runs in {results.path}{why}",
            hint="make some: ridgeline run resnet50 --layers; or all at once: ridgeline analyze;"
            " or take a capture made elsewhere: ridgeline import FILE",
        )
    if not wanted and label is None:
        return None
    found = [*labels]
    if wanted:
        named = {run_id: [*names, *machines[run_id]] for run_id, names in labels.items()}
        found = [run_id for name in wanted for run_id in _matching(named, name)]
    if label is not None:
        labelled = _matching(labels, label)
        found = [run_id for run_id in found if run_id in labelled]
        if not found:
            raise RidgelineError(
                f"nothing called {' or '.join(wanted)} has the label {label!r}",
                hint=f"with that label there are {', '.join(labelled[:SOME])}",
            )
    return list(dict.fromkeys(found))


def _names(
    results: ResultsFolder, problems: list[str]
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Of every run and capture what it may be called, and what its machine may be."""
    from ridgeline.report.machines import Machines
    from ridgeline.report.stored import label_of, stored_profiles

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
    found = [
        run_id
        for run_id, names in named.items()
        if name in names or run_id.startswith(name) or run_id.endswith(f"-{name}")
    ]
    if found:
        return found
    known = sorted({one for names in named.values() for one in names if one})
    raise RidgelineError(
        f"no run is called {name!r}",
        hint=f"name a run, a label, a model or a machine; here are: {', '.join(known[:SOME])}",
    )


def _count(results: ResultsFolder, run_ids: Sequence[str] | None, chosen: Chosen) -> list[str]:
    """Count what was not counted; without torch, say so and go on."""
    from ridgeline.report.stored import uncounted

    missing = uncounted(results.index(), run_ids)
    if not missing:
        return []
    from ridgeline.cli.progress import progress_bar
    from ridgeline.pipeline.count import count_missing

    try:
        with progress_bar(len(missing), quiet=chosen.quiet, first="counting") as step:
            return count_missing(results, run_ids, step, with_files=chosen.count_files)[1]
    except ImportError:
        return [f"{len(missing)} runs are not counted, and torch is not here to do it"]


def _peaks(path: Path | None) -> dict[str, Roofs]:
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


def _everywhere(compute: str | None, bandwidth: str | None) -> Roofs | None:
    """The roofs of --peak-compute and --peak-bw: TFLOP/s and GB/s if no unit is named."""
    if compute is None and bandwidth is None:
        return None
    from ridgeline.roofline.roofs import BITS, GIGA, TERA, parse_rate, user_roofs

    rates: dict[str, float] = {}
    if compute is not None:
        for part in compute.split(","):
            precision, has_name, rate = part.rpartition("=")
            name = precision.strip() if has_name else ""
            parsed = parse_rate(rate, option="--peak-compute", plain=TERA)
            for one in (name,) if name else BITS:
                rates[one] = parsed
    slope = None
    if bandwidth is not None:
        slope = parse_rate(bandwidth, option="--peak-bw", plain=GIGA)
    return user_roofs("given", "", compute=rates, dram_bytes_per_s=slope)
