"""`ridgeline run`: how fast a model runs here, and what it costs."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ridgeline.cli import messages
from ridgeline.cli.options import Label, Output, option, takes_groups
from ridgeline.cli.step_options import MEASURED, STEP, InProcess, Repeats, Step, Work, make_runner
from ridgeline.errors import RidgelineError
from ridgeline.settings import DEFAULT_BATCH
from ridgeline.signals import interrupts_later, interrupts_noted

if TYPE_CHECKING:
    from ridgeline.pipeline.cases import Case
    from ridgeline.records import RunResult

EXAMPLES = """
[bold]Examples[/]

  ridgeline run resnet50
  ridgeline run resnet50 vgg16 mobilenet_v2 -b 16,32,64,128 --mode train --precision amp
  ridgeline run resnet50 --mode train --data data/imagenet-mini --workers 4 --pin-memory
  ridgeline run transformers:gpt2 --mode train --seq-len 512 --optimizer adamw
  ridgeline run resnet50 -b 32 --repeats 3 --label first-try
  ridgeline run resnet18_cifar --json | jq '.runs[0].step_time_s.median'

[bold]Exit code[/]: 0 all went well; 2 something asked for is not possible; 3 a run failed (its
reason is stored with it); 130 interrupted. What was completed is kept in every case.
"""


@takes_groups
def run(
    work: Work,
    step: Step,
    uses_compile: bool = option(False, "Use torch.compile.", "--compile", rich_help_panel=STEP),
    find_max_batch: bool = option(
        False,
        "Find the largest batch that fits and run it.",
        "--find-max-batch",
        rich_help_panel=MEASURED,
    ),
    repeats: Repeats = 1,
    in_process: InProcess = False,
    label: Label = None,
    list_models: bool = option(False, "List the models; MODEL is then a pattern.", "--list-models"),
    *,
    output: Output,
) -> None:
    """Time training or inference steps of models, with energy and layers; every sample is kept.

    Each configuration runs in a process of its own and is stored as a run in the results folder,
    which also gets a row in metrics.csv.
    """
    if list_models:
        return messages.show_models(work.models or [], as_json=output.as_json)
    work.check_named("run")
    if find_max_batch and work.batch_sizes is not None:
        raise RidgelineError(
            "--batch-size and --find-max-batch exclude each other",
            hint="leave --batch-size out to run the largest batch that fits",
        )
    fixed = {"compile": "default"} if uses_compile and not step.values["compile"] else {}
    selection = work.select(
        step, default_batch_sizes=(DEFAULT_BATCH,), label=label, repeats=repeats,
        several_sizes=True, **fixed,
    )  # fmt: skip
    from ridgeline.cli import show_runs
    from ridgeline.cli.interrupts import stopped_at_once
    from ridgeline.cli.progress import progress_bar
    from ridgeline.pipeline.cases import run_selection

    runner = make_runner(output, in_process=in_process)
    interrupts: list[int] = []
    with interrupts_noted(interrupts):
        if in_process:  # what a measurement needs; where it is missing, the run itself says so
            with stopped_at_once(), suppress(ImportError, OSError):
                import ridgeline.measure.preload  # noqa: F401
        with progress_bar(selection.case_count, quiet=output.quiet) as progress:
            runner.progress = progress

            def print_line(case: Case, result: RunResult) -> None:
                # where nobody reads any more, the run is stored all the same
                with progress.aside(), suppress(OSError):
                    print(show_runs.measured_line(case.spec, result), flush=True)

            if not output.as_json:
                runner.on_result = print_line
            run_selection(
                selection,
                runner,
                find_max_batch=find_max_batch,
                on_message=messages.messages_unless(output.quiet),
            )
    with interrupts_noted(interrupts), interrupts_later():  # what is stored is shown
        written = show_runs.make_views(runner, quiet=output.quiet)
        if runner.runs or output.as_json:
            show_runs.show(runner.runs, runner.results, written, output)
    if interrupts:
        messages.end_interrupted(f"; runs kept: {len(runner.runs)}" if runner.runs else "")
    messages.end_runs(runner)
