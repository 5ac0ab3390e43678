"""`ridgeline run`: how fast a model runs here, and what it costs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ridgeline.cli.options import parse_folder
from ridgeline.cli.step_options import (
    STEP,
    Config,
    Debug,
    InputSize,
    Json,
    Label,
    Mode,
    Models,
    SeqLen,
    Step,
    check_label,
    check_named,
    in_output,
    in_work,
    precision_option,
    select,
    takes_step,
)
from ridgeline.errors import RidgelineError
from ridgeline.settings import DEFAULT_BATCH, check_mode

if TYPE_CHECKING:
    from ridgeline.cli.progress import Progress
    from ridgeline.pipeline.cases import Case, CaseRunner
    from ridgeline.records import RunResult

EXAMPLES = """
[bold]Examples[/]

  ridgeline run resnet50
  ridgeline run resnet50 vgg16 mobilenet_v2 -b 16,32,64,128 --mode train --precision amp
  ridgeline run resnet50 --layers --no-energy
  ridgeline run resnet50 --mode train --data data/imagenet-mini --workers 4 --pin-memory
  ridgeline run transformers:gpt2 --mode train --seq-len 512 --data tokens/ --optimizer adamw
  ridgeline run resnet50 -b 32 --repeats 3 --label first-try
  ridgeline run vit_b_16 --mode train --precision amp --find-max-batch
  ridgeline run resnet18_cifar --json | jq '.runs[0].step_time_s.median'

[bold]Exit code[/]: 0 all went well; 2 something asked for is not possible; 3 a run failed (its
reason is stored with it); 130 interrupted. What was completed is kept in every case.
"""
EXAMPLE = "ridgeline run resnet50; `ridgeline count --list` shows all names"
BATCH_SIZE = str(DEFAULT_BATCH)


@takes_step()
def run(
    models: Models = None,
    batch_size: Annotated[
        str | None,
        in_work(
            "-b",
            "--batch-size",
            "--batch-sizes",
            help="One or several: 1,8,32.",
            show_default=BATCH_SIZE,
        ),
    ] = None,
    mode: Mode = "train",
    precision: Annotated[str, precision_option(rich_help_panel=STEP)] = "fp32",
    input_size: InputSize = None,
    seq_len: SeqLen = None,
    config: Config = None,
    *,
    step: Step,
    label: Label = None,
    results: Annotated[
        Path, in_output(metavar="DIR", parser=parse_folder, help="Where runs are kept.")
    ] = Path("results"),
    as_json: Json = False,
    quiet: Annotated[
        bool, in_output("-q", "--quiet", help="No progress, no places; notes on the numbers stay.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Time training or inference steps of models, with energy and layers; every sample is kept.

    Each configuration runs in a process of its own and is stored as a run in the results folder,
    which also gets a row in metrics.csv.
    """
    named = check_named(models, EXAMPLE)
    text = check_label(label)
    if step["find_max_batch"] and batch_size is not None:
        raise RidgelineError(
            "--batch-size and --find-max-batch exclude each other",
            hint="leave --batch-size out to run the largest batch that fits",
        )
    settings = step.settings(precision)
    selection = select(
        named, batch_size or BATCH_SIZE, mode, input_size, seq_len, config,
        settings=settings, repeats=step["repeats"], label=text,
    )  # fmt: skip
    check_mode(mode)
    from ridgeline.cli import show_runs
    from ridgeline.cli.interrupts import stopped_at_once
    from ridgeline.cli.progress import progress_bar
    from ridgeline.pipeline.cases import CaseRunner, Executor, run_selection
    from ridgeline.store import ResultsFolder

    store = ResultsFolder(results)
    store.check_writable()  # now rather than after minutes of measuring
    runner = CaseRunner(
        results=store,
        executor=Executor(in_process=step["in_process"]),
        reraises=debug,
        on_failure_log=show_runs.show_log(debug),
    )
    interrupted = False
    try:
        if step["in_process"]:
            with stopped_at_once():
                _import_all()
        with progress_bar(selection.case_count, quiet=quiet) as progress:
            runner.progress = progress
            if not as_json:
                runner.on_result = _line_printer(progress)
            run_selection(
                selection,
                runner,
                find_max_batch=step["find_max_batch"],
                on_message=show_runs.show_message(quiet),
            )
    except KeyboardInterrupt:
        interrupted = True
    _finish(runner, as_json=as_json, quiet=quiet, interrupted=interrupted)


def _import_all() -> None:
    """What a measurement in this process needs; where it is missing, the run itself says so."""
    with suppress(ImportError, OSError):
        import ridgeline.measure.preload  # noqa: F401


def _line_printer(progress: Progress) -> Callable[[Case, RunResult], None]:
    """Prints the line for scripts, before anything can happen to the run."""
    from ridgeline.cli.show_runs import measured_line
    from ridgeline.cli.stdout import StdoutError

    def print_line(case: Case, result: RunResult) -> None:
        # where nobody reads any more, the run is stored all the same, and the end says it again
        with progress.aside(), suppress(StdoutError):
            print(measured_line(case.spec, result), flush=True)

    return print_line


def _finish(runner: CaseRunner, *, as_json: bool, quiet: bool, interrupted: bool) -> None:
    """Views and tables of what there is, and the exit code."""
    from ridgeline.cli import show_runs
    from ridgeline.signals import interrupts_later

    try:
        with interrupts_later():  # what is stored is shown
            written = show_runs.make_views(runner, quiet=quiet)
            if runner.runs or as_json:
                show_runs.show(runner.runs, runner.results, written, as_json=as_json, quiet=quiet)
    except KeyboardInterrupt:
        interrupted = True
    if interrupted:
        kept = f"; runs kept: {len(runner.runs)}" if runner.runs else ""
        show_runs.end_interrupted(kept)
    if runner.errors:
        show_runs.raise_last(runner.errors)
    if runner.failed:
        sys.exit(show_runs.SOME_FAILED)
