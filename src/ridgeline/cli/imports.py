"""`ridgeline import`: captures of profilers, made elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ridgeline.cli import messages
from ridgeline.cli.interrupts import import_tables
from ridgeline.cli.options import Label, Output, argument, option, takes_groups
from ridgeline.cli.progress import progress_bar
from ridgeline.errors import RidgelineError
from ridgeline.plain import plain_text
from ridgeline.signals import interrupts_noted
from ridgeline.store import MeasuredRun, ResultsFolder

if TYPE_CHECKING:
    from ridgeline.pipeline.import_captures import ImportOutcome

EXAMPLES = """
[bold]Examples[/]

  ncu --csv --page raw --set roofline python train.py > capture.csv
  ridgeline import capture.csv --label first-try
  ridgeline import trace.json.gz kernels_cuda_gpu_kern_sum.csv
  ridgeline import step.csv --run resnet50      (counters of the step of a stored run)
  ridgeline import logs/metrics.csv             (runs of another tool: a row each)

[bold]Exit code[/]: 0 all files were read; 2 one of them could not be; 130 interrupted. The others
are kept all the same.
"""


@takes_groups
def import_files(
    files: list[Path] = argument(
        ...,
        "FILE…",
        "Nsight Compute (CSV, text, the UI's export, .ncu-rep), PyTorch or Kineto traces"
        " (.json, .json.gz), kernel tables of nsys stats; a metrics.csv of runs. What each is, is"
        " found out.",
        readable=False,
    ),
    label: Label = None,
    device: str | None = option(
        None,
        "The device of files that do not name one, as a datasheet calls it: v100, h200.",
        "--device",
        metavar="NAME",
    ),
    run: str | None = option(
        None, "The stored run whose step the files are a capture of.", "--run", metavar="RUN"
    ),
    steps: int = option(1, "With --run: steps that the capture holds.", "--steps", min=1),
    store: bool = option(True, "Keep it, or only show.", "--store/--no-store"),
    *,
    output: Output,
) -> None:
    """Read what profilers wrote elsewhere: executed FLOPs, bytes by memory level and kernel times.

    Any version, locale and scaling of units. Several files of one capture are joined. What could
    not be used is said, also with --quiet; a capture with nothing in it is refused with the reason.
    """
    results = ResultsFolder(output.results) if store else None
    if results:
        results.check_writable()
    import_tables()
    from ridgeline.pipeline.import_captures import (
        describe_reading,
        import_captures,
        is_metrics_file,
        store_captures,
    )

    of_run = _choose_run(output.results, run) if run is not None else None
    different = list(dict.fromkeys(files))
    metrics = [path for path in different if is_metrics_file(path)]
    for path in metrics:
        _import_runs(path, results, label, output)
    different = [path for path in different if path not in metrics]
    if not different:
        return
    if not output.quiet:
        messages.show_message(describe_reading(different))
    interrupts: list[int] = []
    with progress_bar(len(different), quiet=output.quiet) as progress:
        outcome = import_captures(different, progress.start, device=device)
    with interrupts_noted(interrupts):
        if results:
            store_captures(outcome, results, label, of_run, steps)
    with interrupts_noted(interrupts):
        _print_outcome(outcome, label, output)
    if interrupts:
        messages.end_interrupted(f"; captures kept: {len(outcome.paths)}")
    messages.raise_last(outcome.errors)


def _choose_run(results: Path, name: str) -> MeasuredRun:
    """The one run that is called so."""
    from ridgeline.pipeline.outputs import choose_runs

    folder = ResultsFolder(results)
    ids = choose_runs(folder, [name]) or []
    runs = [run for run in folder.index().runs if run.run_id in ids]
    if len(runs) != 1:
        raise RidgelineError(
            f"--run {name!r} names {len(runs)} runs",
            hint=f"name one by its id: {', '.join([one.run_id for one in runs][-3:]) or 'none'}",
        )
    return runs[0]


def _import_runs(
    path: Path, results: ResultsFolder | None, label: str | None, output: Output
) -> None:
    """Take the rows of a metrics.csv as runs, and tell of which."""
    from ridgeline.pipeline.import_captures import import_metrics
    from ridgeline.report.text import counted
    from ridgeline.report.views import write_views

    if results is None:
        raise RidgelineError(
            f"{path} holds runs, which are imported into a results folder",
            hint="leave out --no-store; --results DIR names the folder",
        )
    found = import_metrics(path, results, label)
    written, _ = write_views(results)
    if output.as_json:
        messages.print_json({"runs": [one.run_id for one in found.runs], "known": found.known})
    elif found.runs:
        models = dict.fromkeys(one.request.model for one in found.runs)
        print(plain_text(f"{path.name}: {counted(len(found.runs), 'run')} of {', '.join(models)}"))
    messages.show_notes(found.notes)
    if not output.quiet:
        if found.known:
            messages.show_message(f"{counted(found.known, 'row')} of it were imported before")
        messages.show_message(f"runs are in {results.runs_path}, {len(written)} views beside them")
    if not found.runs and not found.known:
        raise RidgelineError(f"{path} has no run", hint="each row is a run: see docs/import.md")


def _print_outcome(outcome: ImportOutcome, label: str | None, output: Output) -> None:
    """The captures on stdout; notes on their numbers and, unless quiet, advice on stderr."""
    from ridgeline.captures.capture import totals
    from ridgeline.cli.show_profiles import print_captures
    from ridgeline.pipeline.import_captures import name_files

    captures = outcome.captures
    if output.as_json:
        messages.print_json({"captures": [totals(capture) for capture in captures]})
    elif captures:
        print_captures(captures, label)
    for one in () if output.quiet else captures:
        messages.show_message(plain_text(f"{name_files(one)}: {one.kind}"))
    for one in () if output.as_json else captures:  # which has them
        messages.show_notes(f"{name_files(one)}: {text}" for text in one.warnings)
    if not output.quiet:
        for path in outcome.paths:
            messages.show_message(plain_text(f"wrote {path}"))
