"""The options that `roofline` and `report` share, and the reading of the runs that they choose."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ridgeline.cli.interrupts import import_tables
from ridgeline.cli.options import parse_folder
from ridgeline.plain import plain_text

if TYPE_CHECKING:
    from ridgeline.report.study import Study

Runs = Annotated[
    list[str] | None,
    typer.Argument(metavar="RUN…", help="Runs, labels, models or machines; all if none is named."),
]
PeakCompute = Annotated[
    str | None,
    typer.Option(metavar="RATE", help="TFLOP/s instead of what was measured: 8.1, fp32=8.1T."),
]
PeakBandwidth = Annotated[
    str | None,
    typer.Option(metavar="RATE", help="GB/s of memory instead of what was measured: 300."),
]
Peaks = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A peaks.json with roofs by machine.")
]
CountFiles = Annotated[
    bool, typer.Option("--count", help="Also count networks from Python files, which runs them.")
]
Results = Annotated[
    Path, typer.Option(metavar="DIR", parser=parse_folder, help="The results folder.")
]
Json = Annotated[bool, typer.Option("--json", help="For programs, on stdout.")]
Quiet = Annotated[
    bool, typer.Option("-q", "--quiet", help="No progress, no advice; notes on the numbers stay.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]


def read_study(names: list[str] | None, *, quiet: bool, **request: Any) -> Study:
    """The study of the runs that were named; what to know about it is printed to stderr."""
    import_tables()
    from ridgeline.cli.progress import progress_bar
    from ridgeline.pipeline.outputs import read_chosen

    @contextmanager
    def counting_bar(total: int) -> Iterator[Callable[[str], None]]:
        with progress_bar(total, quiet=quiet, first="counting") as progress:
            yield progress.start

    study, problems = read_chosen(names=names or (), counting_bar=counting_bar, **request)
    for text in (*problems, *study.problems, *study.remarks):  # also with --quiet: on the numbers
        print(f"note: {plain_text(text)}", file=sys.stderr)
    return study
