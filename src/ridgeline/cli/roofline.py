"""`ridgeline roofline`: runs under their roofs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.cli.interrupts import import_figures, stop_if_pressed
from ridgeline.cli.messages import print_json, show_message, show_notes
from ridgeline.cli.options import Figures, Output, StoredRuns, option, takes_groups
from ridgeline.errors import RidgelineError

if TYPE_CHECKING:
    from ridgeline.pipeline.outputs import Outputs
    from ridgeline.report.figures import Figure
    from ridgeline.report.study import Study

EXAMPLES = """
[bold]Examples[/]

  ridgeline roofline
  ridgeline roofline resnet50 --layers
  ridgeline roofline --peak-compute 8.1 --peak-bw 300
  ridgeline roofline --energy
  ridgeline import step.csv --label "RN18 FP32 BS128"
  ridgeline roofline --label "RN18 FP32 BS128" --peak-compute 8.1 --peak-bw 300 \\
    --out roofline.png --summary summary.csv
"""


@takes_groups
def roofline(
    stored: StoredRuns,
    label: str | None = option(None, "Only runs and captures with this label.", metavar="TEXT"),
    kind: str | None = option(
        None,
        "Figures to draw: classic, layers, kernels, hierarchical, …, or all.",
        show_default="classic, and layers with --layers",
    ),
    form: str = option("png,svg", "png, svg, pdf; one or several.", "--format"),
    out: Path | None = option(
        None,
        "Where figures go: a folder, or a file for one figure. [default: DIR/figures]",
        metavar="DIR|FILE",
    ),
    summary: Path | None = option(
        None, "Also a CSV with a row for each step and capture.", metavar="FILE"
    ),
    figures: Figures = True,
    energy: bool = option(
        False, "Joules: floors, shares, and their figures instead of the others.", "--energy"
    ),
    layers: bool = option(False, "Show layers, too.", "--layers"),
    top: int = option(15, "How many layers.", min=1),
    *,
    output: Output,
) -> None:
    """Put stored runs under their roofs: floor, what bounds it, efficiency, headroom; and draw it.

    Steps, phases, layers and kernels are joined with the ceilings of the machine that ran them, and
    so are captures from `ridgeline import`. Points go to roofline_points.csv, figures to figures/.
    """
    from ridgeline.pipeline.outputs import write_points

    study = stored.read(output, label)
    if energy and study.energies.empty:
        raise RidgelineError(
            "no run has joules: no meter counted any, and no machine has energy coefficients",
            hint="run where there is a meter (ridgeline doctor), or ridgeline machine measure"
            " --energy",
        )
    made = write_points(study, figures=False)
    if summary is not None:
        from ridgeline.report.tables import write_summary

        write_summary(study, summary)
    try:
        if figures:
            kinds = _choose_kinds(kind, energy=energy, layers=layers)
            made.figures = _draw(study, out, _split(form), kinds)
            if kind is None and not output.quiet:
                show_message("--kind all draws every figure that these runs allow")
            if not made.figures and not output.quiet:
                show_notes(["no figure of that kind can be drawn from these runs"])
        if output.as_json:
            print_json(to_json(study, made, energy=energy))
            return
        from ridgeline.cli import show_study

        if energy:
            show_study.print_energies(study, top if layers else 0)
        else:
            show_study.print_steps(study)
            show_study.print_captures(study)
            if layers:
                show_study.print_layers(study, top)
        show_study.print_flags(study)
    finally:  # what does not need a picture is there without one
        for path in (
            made.points,
            made.energies,
            *(figure.path for figure in made.figures),
            summary,
        ):
            if path is not None and not output.quiet and not output.as_json:
                show_message(f"wrote {path}")


def _choose_kinds(kind: str | None, *, energy: bool, layers: bool) -> tuple[str, ...] | None:
    """Those that the user names, or those of what is printed; None: all. Each takes a while."""
    from ridgeline.report.figures import ENERGY_KINDS

    if kind:
        return None if kind == "all" else _split(kind)
    return ENERGY_KINDS if energy else ("classic", "layers") if layers else ("classic",)


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


def _draw(
    study: Study, out: Path | None, formats: tuple[str, ...], kinds: tuple[str, ...] | None
) -> list[Figure]:
    """All figures into a folder, or one into a file: a name with an ending."""
    import_figures()
    from ridgeline.report.figures import write_figure, write_figures

    if out is None or not out.suffix:
        folder = out or study.results / "figures"
        return write_figures(
            study, folder, formats=formats, kinds=kinds, on_progress=lambda _: stop_if_pressed()
        )
    kind, *others = kinds or ("classic",)
    if others:
        raise RidgelineError(
            f"--out {out} is one file, and --kind names {1 + len(others)} figures",
            hint="name one kind, or a folder",
        )
    return [write_figure(study, out, kind=kind)]


def to_json(study: Study, made: Outputs, *, energy: bool = False) -> dict[str, Any]:
    """Points and findings as rows; what is not known is null."""
    from ridgeline.cli.tables import to_records

    points = to_records(study.points)
    for point, note in zip(points, study.notes_on(study.points), strict=True):
        size = point["batch_size"]  # a capture has none, and no precision of its own
        point["batch_size"] = None if size is None else int(size)
        point["precision"] = point["precision"] or None
        point["note"] = note
    machines = [
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
    ]
    return {
        "machines": machines,
        "points": points,
        "reconciled": to_records(study.reconciled),
        "findings": to_records(study.findings),
        **({"energies": to_records(study.energies)} if energy else {}),
        "points_csv": str(made.points),
        "figures": [str(figure.path) for figure in made.figures],
        "problems": [*study.problems, *study.remarks],
    }
