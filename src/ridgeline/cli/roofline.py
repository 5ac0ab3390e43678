"""`ridgeline roofline`: runs under their roofs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ridgeline.cli.interrupts import import_figures, stop_if_pressed
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
from ridgeline.errors import RidgelineError

if TYPE_CHECKING:
    from ridgeline.pipeline.outputs import Outputs
    from ridgeline.report.study import Study

EXAMPLES = """
[bold]Examples[/]

  ridgeline roofline
  ridgeline roofline resnet50 --layers
  ridgeline roofline my-label --kind classic,time --format svg
  ridgeline roofline --peak-compute 8.1 --peak-bw 300
  ridgeline roofline --peak-compute fp32=67T,tf32=494T --peak-bw 4.8TB/s
  ridgeline roofline --peaks peaks.json --json | jq '.points[0].bound'
  ridgeline import step.csv --label "RN18 FP32 BS128"
  ridgeline roofline --label "RN18 FP32 BS128" --peak-compute 8.1 --peak-bw 300 \\
    --out roofline.png --summary summary.csv
"""


def roofline(
    runs: Runs = None,
    peak_compute: PeakCompute = None,
    peak_bw: PeakBandwidth = None,
    peaks: Peaks = None,
    label: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only runs and captures with this label.")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(help="Figures to draw: classic, layers, hierarchical, time, training, …"),
    ] = None,
    form: Annotated[str, typer.Option("--format", help="png, svg, pdf; one or several.")] = (
        "png,svg"
    ),
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR|FILE",
            help="Where figures go: a folder, or a file for one figure. [default: DIR/figures]",
        ),
    ] = None,
    summary: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also a CSV with a row for each step and capture."),
    ] = None,
    figures: Annotated[
        bool, typer.Option("--figures/--no-figures", help="Draw, or only join.")
    ] = True,
    layers: Annotated[bool, typer.Option("--layers", help="Show layers, too.")] = False,
    top: Annotated[int, typer.Option(help="How many layers.", min=1)] = 15,
    count: CountFiles = False,
    results: Results = Path("results"),
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Put stored runs under their roofs: floor, what bounds it, efficiency, headroom; and draw it.

    Steps, phases, layers and kernels are joined with the ceilings of the machine that ran them, and
    so are captures from `ridgeline import`. Points go to roofline_points.csv, figures to figures/.
    """
    from ridgeline.pipeline.outputs import Outputs, write_points

    formats = _formats(form)
    study = read_study(
        runs, results=results, label=label, peak_compute=peak_compute, peak_bw=peak_bw,
        peaks=peaks, count_files=count, quiet=quiet,
    )  # fmt: skip
    outputs = Outputs()
    write_points(study, outputs)
    if summary is not None:
        from ridgeline.report.tables import write_summary

        write_summary(study, summary)
    if figures:
        kinds = tuple(part.strip() for part in kind.split(",")) if kind else None
        try:
            _draw(study, outputs, out, formats, kinds)
        except RidgelineError:
            _show_written(outputs, summary, quiet=quiet)  # what does not need a picture is there
            raise
        if not outputs.figures and not quiet:
            print("note: no figure of that kind can be drawn from these runs", file=sys.stderr)
    if as_json:
        print(json.dumps(to_json(study, outputs), indent=2, allow_nan=False))
        return
    from ridgeline.cli import show_study

    show_study.print_steps(study)
    show_study.print_captures(study)
    if layers:
        show_study.print_layers(study, top)
    show_study.print_flags(study)
    _show_written(outputs, summary, quiet=quiet)


def _show_written(outputs: Outputs, summary: Path | None, *, quiet: bool) -> None:
    figures = [figure.path for figure in outputs.figures]
    for path in () if quiet else (outputs.points, *figures, summary):
        if path is not None:
            print(f"wrote {path}", file=sys.stderr)


def _draw(
    study: Study,
    outputs: Outputs,
    out: Path | None,
    formats: tuple[str, ...],
    kinds: tuple[str, ...] | None,
) -> None:
    """All figures into a folder, or one into a file."""
    import_figures()
    from ridgeline.pipeline.outputs import write_figures
    from ridgeline.report.figures import FORMATS, write_figure

    ending = out.suffix.lower().removeprefix(".") if out is not None else ""
    if ending in ("gif", "jpg", "jpeg", "eps", "bmp", "tif", "tiff", "webp"):
        raise RidgelineError(
            f"--out {out}: no figure can be written as {ending}",
            hint=f"name a file that ends in {', '.join(FORMATS)}, or a folder",
        )
    if out is None or ending not in FORMATS:
        write_figures(study, outputs, folder=out, formats=formats, kinds=kinds,
                      on_progress=lambda name: stop_if_pressed())  # fmt: skip
        return
    if kinds is not None and len(kinds) > 1:
        raise RidgelineError(
            f"--out {out} is one file, and --kind names {len(kinds)} figures",
            hint="name one kind, or a folder",
        )
    outputs.figures = [write_figure(study, out, kind=kinds[0] if kinds else "classic")]


def _formats(text: str) -> tuple[str, ...]:
    from ridgeline.report.figures import FORMATS

    formats = tuple(part.strip().lower() for part in text.split(","))
    for name in formats:
        if name not in FORMATS:
            raise RidgelineError(
                f"--format {name!r} is not known", hint=f"choose from {', '.join(FORMATS)}"
            )
    return formats


def to_json(study: Study, outputs: Outputs) -> dict[str, Any]:
    """Points and findings as rows; what is not known is null."""
    from ridgeline.cli.show_study import rows

    points = study.every_point
    return {
        "machines": [
            {
                "env": m.env,
                "device": m.roofs.device,
                "source": m.roofs.source,
                "flops_per_s": dict(m.roofs.compute),
                "operations_per_s": dict(m.roofs.integer),
                "bytes_per_s": dict(m.roofs.bandwidth),
                "launch_s": dict(m.roofs.launch_s),
            }
            for m in study.machines
        ],
        "points": [
            {**_point(row), "note": note}
            for row, note in zip(rows(points), study.notes_on(points), strict=True)
        ],
        "reconciled": rows(study.reconciled),
        "findings": rows(study.findings),
        "points_csv": str(outputs.points),
        "figures": [str(figure.path) for figure in outputs.figures],
        "problems": [*study.problems, *study.remarks],
    }


def _point(row: dict[str, Any]) -> dict[str, Any]:
    """A capture has no batch and no precision of its own."""
    size = row["batch_size"]
    return {
        **row,
        "batch_size": None if size is None else int(size),
        "precision": row["precision"] or None,
    }
