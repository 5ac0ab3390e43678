"""`ridgeline report`: the page and report.md from what is stored."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from ridgeline.cli.study_options import (
    CountFiles,
    Debug,
    Json,
    PeakBandwidth,
    PeakCompute,
    Peaks,
    Quiet,
    Results,
    Runs,
    read_study,
)

EXAMPLES = """
[bold]Examples[/]

  ridgeline report
  ridgeline report resnet50 vgg16 --title "Two networks on one card"
  ridgeline report my-label --notebook
  ridgeline report --results other/results --no-figures
  ridgeline report --json | jq -r .report
"""


def report(
    runs: Runs = None,
    title: Annotated[str | None, typer.Option(help="Of the page and of report.md.")] = None,
    figures: Annotated[
        bool, typer.Option("--figures/--no-figures", help="Draw figures for report.md.")
    ] = True,
    notebook: Annotated[
        bool, typer.Option("--notebook", help="Also a notebook that reloads the data.")
    ] = False,
    peak_compute: PeakCompute = None,
    peak_bw: PeakBandwidth = None,
    peaks: Peaks = None,
    count: CountFiles = False,
    results: Results = Path("results"),
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Write the page, report.md, figures and tables of what is stored; nothing is run.

    What you wrote into the places for your own words in report.md stays there.
    """
    from ridgeline.cli.interrupts import import_figures, stop_if_pressed
    from ridgeline.cli.progress import progress_bar
    from ridgeline.pipeline.outputs import Outputs, write_figures, write_points, write_report

    study = read_study(
        runs, results=results, peak_compute=peak_compute, peak_bw=peak_bw, peaks=peaks,
        count_files=count, quiet=quiet,
    )  # fmt: skip
    outputs = Outputs()
    if figures:
        import_figures()
    with progress_bar(4, quiet=quiet, first="points") as progress:
        write_points(study, outputs)
        if figures:
            write_figures(study, outputs, on_progress=lambda name: stop_if_pressed())
        write_report(study, outputs, title=title, notebook=notebook, on_progress=progress.start)
    for note in outputs.notes:
        print(f"note: {note}", file=sys.stderr)
    if as_json:
        content = {
            "report": str(outputs.page),
            "markdown": str(outputs.markdown),
            "notebook": str(outputs.notebook) if outputs.notebook else None,
            "points_csv": str(outputs.points),
            "figures": [str(figure.path) for figure in outputs.figures],
            "tables": [str(path) for path in outputs.tables],
            "problems": list(study.problems),
        }
        print(json.dumps(content, indent=2))
        return
    if not quiet:
        made = f"{len(outputs.figures)} figures, {len(outputs.tables)} tables"
        print(f"wrote {outputs.markdown}, {outputs.points}, {made}", file=sys.stderr)
    print(outputs.page)
