"""`ridgeline analyze`: from a model's name to a report."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ridgeline.cli.step_options import (
    WORK,
    Config,
    Debug,
    InputSize,
    Json,
    Label,
    Mode,
    Models,
    Quiet,
    Results,
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

if TYPE_CHECKING:
    from ridgeline.pipeline.analyze import Analysis

EXAMPLES = """
[bold]Examples[/]

  ridgeline analyze resnet50
  ridgeline analyze resnet18 mobilenet_v2 --quick
  ridgeline analyze resnet50 vgg16 mobilenet_v2 --precision fp32,amp -b 32,128
  ridgeline analyze examples/your_network.py:make --mode infer -b 1,8
  ridgeline analyze transformers:gpt2 --seq-len 512 --optimizer adamw
  ridgeline analyze resnet50 --json | jq '.findings[0]'

[bold]Exit code[/]: 0 all went well; 2 something asked for is not possible; 3 a run failed (its
reason is told and stored); 130 interrupted. What was completed is kept in every case.
"""
EXAMPLE = "ridgeline analyze resnet50; `ridgeline count --list` has all names"
HOW = "How"


@takes_step(panel=HOW)
def analyze(
    models: Models = None,
    batch_size: Annotated[
        str | None,
        in_work("-b", "--batch-size", "--batch-sizes", help="1,8,32; chosen if not given."),
    ] = None,
    mode: Mode = "train",
    precision: Annotated[str, precision_option(rich_help_panel=WORK)] = "fp32",
    input_size: InputSize = None,
    seq_len: SeqLen = None,
    config: Config = None,
    quick: Annotated[
        bool,
        in_work(
            "--quick",
            rich_help_panel=HOW,
            help="Quick ceilings, one batch size, fewer steps: a first look.",
        ),
    ] = False,
    remeasure: Annotated[
        bool,
        in_work(
            "--remeasure", rich_help_panel=HOW, help="Measure the machine, even if it was before."
        ),
    ] = False,
    *,
    step: Step,
    label: Label = None,
    title: Annotated[str | None, in_output(help="Of the report.")] = None,
    notebook: Annotated[
        bool, in_output("--notebook", help="Also a notebook that reloads the data.")
    ] = False,
    results: Results = Path("results"),
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Tell how fast models could be here, how fast they are, what holds them back: one report.

    The machine is measured (once, then kept), the models are counted and run, layer by layer, and
    all of it is joined into a page, report.md and figures. The last line is the report's path.
    """
    named = check_named(models, EXAMPLE)
    text = check_label(label)
    selection = select(
        list(dict.fromkeys(named)), batch_size, mode, input_size, seq_len, config,
        settings=step.settings(precision, layers=True), repeats=step["repeats"], label=text,
    )  # fmt: skip
    from ridgeline.cli.interrupts import import_figures, import_tables, interrupts_raised
    from ridgeline.cli.progress import progress_bar
    from ridgeline.cli.show_runs import show_log
    from ridgeline.pipeline.analyze import Analysis, find_device, run_stages
    from ridgeline.pipeline.cases import CaseRunner, Executor
    from ridgeline.store import ResultsFolder

    runner = CaseRunner(
        results=ResultsFolder(results),
        executor=Executor(in_process=step["in_process"]),
        reraises=debug,
        on_failure_log=show_log(debug),
    )
    analysis = Analysis(
        selection=selection,
        runner=runner,
        is_quick=quick,
        with_counters=step["profile"],
        remeasure=remeasure,
        title=title,
        notebook=notebook,
    )
    try:
        with interrupts_raised():
            find_device(analysis)
            import_tables()
            import_figures()
            with progress_bar(analysis.expected_s, quiet=quiet, in_seconds=True) as progress:
                run_stages(analysis, progress)
            _show(analysis, as_json=as_json, quiet=quiet)
    except KeyboardInterrupt:
        _end_interrupted(analysis)


def _show(analysis: Analysis, *, as_json: bool, quiet: bool) -> None:
    """The answer, and the exit code with the reason where nothing came of it."""
    from ridgeline.cli import show_analysis, show_runs
    from ridgeline.pipeline.analyze import check_report

    if as_json:
        print(json.dumps(show_analysis.as_json(analysis), indent=2, allow_nan=False))
    elif analysis.study is not None:
        show_analysis.show(analysis, analysis.study, quiet=quiet)
    runner = analysis.runner
    if runner.errors:
        show_runs.raise_last(runner.errors)
    if runner.failed or not runner.completed:
        show_runs.show_failed(runner.failed)
        sys.exit(show_runs.SOME_FAILED)
    check_report(analysis)


def _end_interrupted(analysis: Analysis) -> None:
    from ridgeline.cli.show_runs import end_interrupted
    from ridgeline.report.views import write_views
    from ridgeline.signals import interrupts_later

    kept = len(analysis.run_ids)
    if not kept:
        end_interrupted("")
    with suppress(KeyboardInterrupt), interrupts_later():
        write_views(analysis.runner.results)
    end_interrupted(f"; runs kept: {kept}; `ridgeline report` tells about them")
