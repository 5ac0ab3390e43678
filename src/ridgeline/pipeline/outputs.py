"""The study of the runs that are chosen, and everything that is made from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from ridgeline.errors import RidgelineError
from ridgeline.measure.worker import ignore_message
from ridgeline.report.stored import Machines, label_of, stored_profiles, uncounted
from ridgeline.report.study import Study, read_study
from ridgeline.report.sweeps import list_sweeps, read_case_runs
from ridgeline.roofline.roofs import (
    BITS,
    GIGA,
    TERA,
    Roofs,
    parse_rate,
    peaks_from_json,
    user_roofs,
)
from ridgeline.store import MeasuredRun, ResultsFolder, StoredCapture

if TYPE_CHECKING:
    from ridgeline.report.figures import Figure
    from ridgeline.report.hypotheses import Hypothesis

OnProgress = Callable[[str], None]
SHOWN_NAMES = 5  # in a hint

# ---------------------------------------------------------------- the study


def read_chosen(
    results: Path,
    names: Sequence[str] = (),
    *,
    label: str | None = None,
    peak_compute: str | None = None,
    peak_bw: str | None = None,
    peaks: Path | None = None,
    count_files: bool = False,
    on_progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> tuple[Study, list[str]]:
    """The study of some runs and captures, under roofs of the user's if there are any.

    `names` are ids, their beginnings or ends, labels, models or machines; of these, only what has
    the `label`. Runs that nobody counted are counted first, where torch is; to count a Python file
    runs it. Also what went wrong with counting.
    """
    folder = ResultsFolder(results)
    run_ids = choose_runs(folder, names, label)
    problems: list[str] = []
    if missing := len(uncounted(folder.index(), run_ids)):
        from ridgeline.pipeline.count_models import count_missing

        done = count()

        def on_count(what: str) -> None:
            on_progress(f"counting {what}", next(done), missing)

        try:
            problems = count_missing(folder, run_ids, on_count, with_files=count_files)[1]
        except ImportError:
            problems = [f"{missing} runs are not counted, and torch is not here to do it"]
    study = read_study(
        folder,
        run_ids=run_ids,
        user_roofs=_read_peaks(peaks),
        everywhere=_parse_peaks(peak_compute, peak_bw),
    )
    return study, problems


def choose_runs(
    results: ResultsFolder, names: Sequence[str], label: str | None = None
) -> list[str] | None:
    """The ids of the runs and captures that were named; None: all of them."""
    index = results.index()
    problems = [*index.problems]
    stored = stored_profiles(index, (), problems)
    every: list[MeasuredRun | StoredCapture] = [*index.runs, *stored.captures]
    if not every and not index.trainings:
        why = f": {'; '.join(problems[:SHOWN_NAMES])}" if problems else ""
        raise RidgelineError(
            f"there are no completed runs in {results.path}{why}",
            hint="make some: ridgeline run resnet50 --layers; or all at once: ridgeline analyze;"
            " or take a capture made elsewhere: ridgeline import FILE",
        )
    labels = {run.run_id: [run.request.model, run.request.label] for run in index.runs}
    labels |= {run.run_id: [label_of(run), stored.names[run.run_id]] for run in stored.captures}
    labels |= {run.run_id: [str(run.request.settings.get("model"))] for run in index.trainings}
    for sweep in list_sweeps(results.path):
        for case in read_case_runs(results.path, sweep).cases:
            labels.get(case.run_id, []).append(sweep)  # perhaps measured for another sweep
    chosen = [*labels]
    if names:
        machines = Machines(results, [], {}, None)
        roofs = {run.run_id: machines.of(run).roofs for run in every}
        named = {
            run_id: [*known, *([of.env, of.whole_env] if (of := roofs.get(run_id)) else [])]
            for run_id, known in labels.items()
        }
        chosen = [run_id for name in names for run_id in _find_named(named, name)]
    if label is not None:
        labelled = _find_named(labels, label)
        chosen = [run_id for run_id in chosen if run_id in labelled]
        if not chosen:
            raise RidgelineError(
                f"nothing called {' or '.join(names)} has the label {label!r}",
                hint=f"with that label there are {', '.join(labelled[:SHOWN_NAMES])}",
            )
    return list(dict.fromkeys(chosen)) if names or label is not None else None


def _find_named(named: Mapping[str, Sequence[str]], name: str) -> list[str]:
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


def _read_peaks(path: Path | None) -> dict[str, Roofs]:
    if path is None:
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RidgelineError(
            f"{path} cannot be read: {error}",
            hint="name a peaks.json; `ridgeline machine export NAME --peaks` makes one",
        ) from error
    return peaks_from_json(content, where=str(path))


def _parse_peaks(compute: str | None, bandwidth: str | None) -> Roofs | None:
    """The roofs of --peak-compute and --peak-bw: TFLOP/s and GB/s if no unit is named."""
    if compute is None and bandwidth is None:
        return None
    rates: dict[str, float] = {}
    for part in compute.split(",") if compute is not None else ():
        precision, _, rate = part.rpartition("=")
        parsed = parse_rate(rate, option="--peak-compute", plain=TERA)
        rates |= dict.fromkeys([precision.strip()] if precision else BITS, parsed)
    slope = None
    if bandwidth is not None:
        slope = parse_rate(bandwidth, option="--peak-bw", plain=GIGA)
    return user_roofs("given", "", compute=rates, dram_bytes_per_s=slope)


# ---------------------------------------------------------------- what is written


@dataclass(slots=True, kw_only=True)
class Outputs:
    """What was written."""

    points: Path | None = None
    energies: Path | None = None
    page: Path | None = None
    markdown: Path | None = None
    notebook: Path | None = None
    figures: list[Figure] = field(default_factory=list)
    tables: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what happened to files that were there


def write_points(
    study: Study, *, figures: bool = True, on_progress: OnProgress = ignore_message
) -> Outputs:
    """The points of runs, of joules where they are known, and the figures into `figures/`."""
    from ridgeline.report import tables
    from ridgeline.report.figures import write_figures

    outputs = Outputs(points=tables.write_points(study, study.results / "roofline_points.csv"))
    if len(study.energies):
        outputs.energies = tables.write_energies(study, study.results / "energy_points.csv")
    if figures:
        folder = study.results / "figures"
        outputs.figures = write_figures(study, folder, on_progress=on_progress)
    return outputs


def write_report(
    study: Study,
    outputs: Outputs,
    *,
    title: str | None = None,
    notebook: bool = False,
    own_hypotheses: Sequence[Hypothesis] = (),
    on_progress: OnProgress = ignore_message,
) -> None:
    """The page, report.md with the figures that were made, tables, and a notebook if asked."""
    from ridgeline.report import markdown, tables
    from ridgeline.report import page as pages

    folder, notes = study.results, outputs.notes
    on_progress("page")
    outputs.page = pages.write_page(study, folder / "report.html", title=title)
    on_progress("report.md")
    outputs.markdown = markdown.write_report_md(
        study, folder / "report.md", outputs.figures, title=title, on_message=notes.append,
        own_hypotheses=own_hypotheses,
    )  # fmt: skip
    on_progress("tables")
    outputs.tables = tables.write_tables(study, folder / "tables")
    if notebook:
        on_progress("notebook")
        outputs.notebook = markdown.write_notebook(study, folder / "report.ipynb")
