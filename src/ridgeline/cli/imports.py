"""`ridgeline import`: captures of profilers, made elsewhere."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ridgeline.cli.interrupts import import_tables
from ridgeline.cli.options import Debug, Json, QuietButNotes, Results
from ridgeline.cli.progress import progress_bar
from ridgeline.errors import RidgelineError
from ridgeline.plain import plain_text
from ridgeline.signals import INTERRUPTED
from ridgeline.store import DEFAULT_RESULTS, ResultsFolder

if TYPE_CHECKING:
    from ridgeline.pipeline.import_captures import ImportOutcome

EXAMPLES = """
[bold]Examples[/]

  ncu --csv --page raw --set roofline python train.py > capture.csv
  ridgeline import capture.csv --label first-try
  ridgeline import report.ncu-rep
  ridgeline import flops.csv bytes.csv          (metrics of the same kernels are joined)
  ridgeline import trace.json.gz kernels_cuda_gpu_kern_sum.csv
  ridgeline import capture.csv --json | jq '.captures[0].flops'
  ridgeline import capture.csv && ridgeline roofline --peak-compute 8.1 --peak-bw 300

[bold]Exit code[/]: 0 all files were read; 2 one of them could not be; 130 interrupted. The others
are kept all the same.
"""


def import_files(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE…",
            help="Nsight Compute (CSV, text, the UI's export, .ncu-rep), PyTorch or Kineto traces"
            " (.json, .json.gz), kernel tables of nsys stats. What each is, is found out.",
            show_default=False,
            readable=False,  # one that is not is reported, and the others are read
        ),
    ],
    label: Annotated[
        str | None, typer.Option(help="A name for it in tables, figures and the report.")
    ] = None,
    results: Results = DEFAULT_RESULTS,
    store: Annotated[bool, typer.Option("--store/--no-store", help="Keep it, or only show.")] = (
        True
    ),
    as_json: Json = False,
    quiet: QuietButNotes = False,
    debug: Debug = False,
) -> None:
    """Read what profilers wrote elsewhere: executed FLOPs, bytes by memory level and kernel times.

    Any version, locale and scaling of units. Several files of one capture are joined. What could
    not be used is said; a capture with nothing in it is refused with the reason.
    """
    if label is not None and not label.strip():
        raise RidgelineError("--label is empty", hint="give it a name, or leave it out")
    folder = ResultsFolder(results) if store else None
    if folder:
        folder.check_writable()
    import_tables()
    from ridgeline.pipeline.import_captures import import_captures

    different = list(dict.fromkeys(files))
    if len(different) < len(files) and not quiet:
        print("note: a file that is named twice is read once", file=sys.stderr)
    with progress_bar(len(different), quiet=quiet) as progress:
        outcome = import_captures(different, folder, label, progress)
    try:
        _print_outcome(outcome, label, as_json=as_json, quiet=quiet)
    except KeyboardInterrupt:
        outcome.is_interrupted = True
    if outcome.is_interrupted:
        print(f"ridgeline: interrupted; captures kept: {len(outcome.paths)}", file=sys.stderr)
        sys.exit(INTERRUPTED)
    for error in outcome.errors[:-1]:
        print(f"ridgeline: {error}", file=sys.stderr)
    if outcome.errors:
        raise outcome.errors[-1]


def _print_outcome(
    outcome: ImportOutcome, label: str | None, *, as_json: bool, quiet: bool
) -> None:
    """The captures on stdout; notes on their numbers and, unless quiet, advice on stderr."""
    from ridgeline.captures.capture import totals
    from ridgeline.cli.render_captures import SOURCES, print_captures
    from ridgeline.pipeline.import_captures import name_files

    captures = outcome.captures
    if as_json:
        content = {"captures": [totals(capture) for capture in captures]}
        print(json.dumps(content, indent=2, allow_nan=False))
    elif captures:
        print_captures(captures, label)
    notes = [] if quiet else [f"{name_files(one)}: {SOURCES[one.kind]}" for one in captures]
    if not as_json:  # which has them
        notes += [f"note: {name_files(one)}: {text}" for one in captures for text in one.warnings]
    if not quiet:
        notes += [f"wrote {path}" for path in outcome.paths]
    for note in notes:
        print(plain_text(note), file=sys.stderr)
