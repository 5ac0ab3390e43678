"""`ridgeline analyze`: from a model's name to a report."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ridgeline.cli import messages
from ridgeline.cli.options import Label, Notebook, Output, Title, option, takes_groups
from ridgeline.cli.step_options import InProcess, Repeats, Step, Work, make_runner

if TYPE_CHECKING:
    from ridgeline.pipeline.analyze import Analysis

EXAMPLES = """
[bold]Examples[/]

  ridgeline analyze resnet50
  ridgeline analyze resnet18 mobilenet_v2 --quick
  ridgeline analyze resnet50 vgg16 mobilenet_v2 --precision fp32,amp -b 32,128
  ridgeline analyze examples/your_network.py:make --mode infer -b 1,8
  ridgeline analyze resnet50 --json | jq '.findings[0]'

[bold]Exit code[/]: 0 all went well; 2 something asked for is not possible; 3 a run failed (its
reason is told and stored); 130 interrupted. What was completed is kept in every case.
"""


@takes_groups
def analyze(
    work: Work,
    quick: bool = option(
        False, "Quick ceilings, one batch size, fewer steps: a first look.", "--quick"
    ),
    remeasure: bool = option(False, "Measure the machine, even if it was before.", "--remeasure"),
    counters: bool = option(
        True, "Read hardware counters where there is an NVIDIA GPU.", "--profile/--no-profile"
    ),
    *,
    step: Step,
    repeats: Repeats = 1,
    in_process: InProcess = False,
    label: Label = None,
    title: Title = None,
    notebook: Notebook = False,
    output: Output,
) -> None:
    """Tell how fast models could be here, how fast they are, what holds them back: one report.

    The machine is measured (once, then kept), the models are counted and run, layer by layer, and
    all of it is joined into a page, report.md and figures. The last line is the report's path.
    """
    work.check_named("analyze")
    selection = work.select(step, label=label, repeats=repeats, layers=True)
    from ridgeline.cli.interrupts import import_figures, import_tables, interrupts_raised
    from ridgeline.cli.progress import progress_bar
    from ridgeline.pipeline.analyze import Analysis, find_device, run_stages

    runner = make_runner(output, in_process=in_process)
    analysis = Analysis(
        selection=selection,
        runner=runner,
        is_quick=quick,
        with_counters=counters,
        remeasure=remeasure,
        title=title,
        notebook=notebook,
    )
    try:
        with interrupts_raised():
            find_device(analysis)
            import_tables()
            import_figures()
            expected_s = analysis.expected_s
            if not output.quiet:
                messages.show_message(analysis.plan)
            with progress_bar(expected_s, quiet=output.quiet) as progress:
                run_stages(analysis, progress)
            _show(analysis, output)
    except KeyboardInterrupt:
        _end_interrupted(analysis)


def _show(analysis: Analysis, output: Output) -> None:
    """The answer, and the exit code with the reason where nothing came of it."""
    from ridgeline.cli import show_study
    from ridgeline.pipeline.analyze import check_report

    if output.as_json:
        messages.print_json(show_study.analysis_to_json(analysis))
    elif analysis.study is not None:
        show_study.show_analysis(analysis, analysis.study, quiet=output.quiet)
    messages.end_runs(analysis.runner)
    check_report(analysis)


def _end_interrupted(analysis: Analysis) -> None:
    from ridgeline.report.views import write_views
    from ridgeline.signals import interrupts_later

    kept = len(analysis.run_ids)
    if not kept:
        messages.end_interrupted()
    with suppress(KeyboardInterrupt), interrupts_later():
        write_views(analysis.runner.results)
    messages.end_interrupted(f"; runs kept: {kept}; `ridgeline report` tells about them")
