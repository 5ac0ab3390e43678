"""`ridgeline import`: captures of profilers, made elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ridgeline.cli import messages
from ridgeline.cli.interrupts import import_tables
from ridgeline.cli.options import Label, Output, argument, option, takes_groups
from ridgeline.cli.progress import progress_bar
from ridgeline.plain import plain_text
from ridgeline.signals import interrupts_noted
from ridgeline.store import ResultsFolder

if TYPE_CHECKING:
    from ridgeline.pipeline.import_captures import ImportOutcome

EXAMPLES = """
[bold]Examples[/]

  ncu --csv --page raw --set roofline python train.py > capture.csv
  ridgeline import capture.csv --label first-try
  ridgeline import report.ncu-rep
  ridgeline import flops.csv bytes.csv          (metrics of the same kernels are joined)
  ridgeline import trace.json.gz kernels_cuda_gpu_kern_sum.csv
  ridgeline import capture.csv --device v100
  ridgeline import capture.csv --json | jq '.captures[0].flops'
  ridgeline import capture.csv && ridgeline roofline --peak-compute 8.1 --peak-bw 300

[bold]Exit code[/]: 0 all files were read; 2 one of them could not be; 130 interrupted. The others
are kept all the same.
"""


@takes_groups
def import_files(
    files: list[Path] = argument(
        ...,
        "FILE…",
        "Nsight Compute (CSV, text, the UI's export, .ncu-rep), PyTorch or Kineto traces"
        " (.json, .json.gz), kernel tables of nsys stats. What each is, is found out.",
        readable=False,
    ),
    label: Label = None,
    device: str | None = option(
        None,
        "The device of files that do not name one, as a datasheet calls it: v100, h200.",
        "--device",
        metavar="NAME",
    ),
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
        store_captures,
    )

    different = list(dict.fromkeys(files))
    if len(different) < len(files) and not output.quiet:
        messages.show_notes(["a file that is named twice is read once"])
    if not output.quiet:
        messages.show_message(describe_reading(different))
    interrupts: list[int] = []
    with progress_bar(len(different), quiet=output.quiet) as progress:
        outcome = import_captures(different, progress.start, device=device)
    with interrupts_noted(interrupts):
        if results:
            store_captures(outcome, results, label)
    with interrupts_noted(interrupts):
        _print_outcome(outcome, label, output)
    if interrupts:
        messages.end_interrupted(f"; captures kept: {len(outcome.paths)}")
    messages.raise_last(outcome.errors)


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
