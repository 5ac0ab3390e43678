"""`ridgeline import`: captures of profilers, made elsewhere."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ridgeline.cli import INTERRUPTED
from ridgeline.cli.arguments import folder
from ridgeline.cli.interrupts import import_tables
from ridgeline.errors import RidgelineError
from ridgeline.plain import plain_text
from ridgeline.signals import interrupts_later
from ridgeline.store import ResultsFolder

if TYPE_CHECKING:
    from ridgeline.captures.capture import Capture

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
            readable=False,  # one that is not is told, and the others are read
        ),
    ],
    label: Annotated[
        str | None, typer.Option(help="A name for it in tables, figures and the report.")
    ] = None,
    results: Annotated[
        Path, typer.Option(metavar="DIR", parser=folder, help="The results folder.")
    ] = Path("results"),
    store: Annotated[bool, typer.Option("--store/--no-store", help="Keep it, or only show.")] = (
        True
    ),
    as_json: Annotated[bool, typer.Option("--json", help="For programs, on stdout.")] = False,
    quiet: Annotated[
        bool,
        typer.Option("-q", "--quiet", help="No progress, no advice; notes on the numbers stay."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Read what profilers wrote elsewhere: executed FLOPs, bytes by memory level and kernel times.

    Any version, locale and scaling of units. Several files of one capture are joined. What could
    not be used is said; a capture with nothing in it is refused with the reason.
    """
    if label is not None and not label.strip():
        raise RidgelineError("--label is empty", hint="give it a name, or leave it out")
    place = ResultsFolder(results)
    if store:
        place.check_writable()
    import_tables()
    captures, errors = _read(files, quiet=quiet)
    again = _stored_before(place, captures) if store else []
    interrupted = False
    kept: list[Path] = []
    try:
        with interrupts_later():  # all of them, or none
            kept = _keep(place, captures, label) if store else []
    except KeyboardInterrupt:
        interrupted = True
    try:
        _show(captures, label, as_json=as_json, quiet=quiet)
        for file, run_id in again if not quiet else ():
            print(f"note: {plain_text(file)}: already stored as {run_id}; stored again",
                  file=sys.stderr)  # fmt: skip
        for path in kept if not quiet else ():
            print(f"wrote {path}", file=sys.stderr)
    except KeyboardInterrupt:
        interrupted = True
    if interrupted:
        print(f"ridgeline: interrupted; captures kept: {len(kept)}", file=sys.stderr)
        sys.exit(INTERRUPTED)
    _raise(errors)


def _show(captures: list[Capture], label: str | None, *, as_json: bool, quiet: bool) -> None:
    """The captures, and what to know about their numbers; advice is left out where asked for."""
    from ridgeline.captures.capture import totals
    from ridgeline.cli import show_captures

    if as_json:
        content = {"captures": [totals(capture) for capture in captures]}
        print(json.dumps(content, indent=2, allow_nan=False))
    elif captures:
        show_captures.print_captures(captures, label)
    if not quiet:
        show_captures.tell_kinds(captures)
    if not as_json:  # which has them
        show_captures.tell_warnings(captures)


def _read(files: list[Path], *, quiet: bool) -> tuple[list[Capture], list[RidgelineError]]:
    """The captures of all files that can be read, and why the others cannot."""
    from ridgeline.captures.read import join_captures, read_part
    from ridgeline.cli.progress import run_progress

    def on_bytes(done: int, of: int) -> None:
        progress.update("% read", 100 * done // max(of, 1), 100)

    parts, errors = [], []
    once = list(dict.fromkeys(files))
    if len(once) < len(files) and not quiet:
        print("note: a file that is named twice is read once", file=sys.stderr)
    with run_progress(len(once), quiet=quiet) as progress:
        for file in once:
            progress.start(plain_text(file.name))
            try:
                parts.append(read_part(file, on_bytes))
            except RidgelineError as error:
                errors.append(error)
    captures, refused = join_captures(parts)
    return captures, errors + refused


def _stored_before(results: ResultsFolder, captures: list[Capture]) -> list[tuple[str, str]]:
    """Of captures that are stored already, the names of their files and the run that has them.

    No digest of a file is stored. The same are files of the same name that tell the same.
    """
    from ridgeline.captures.capture import files_of, sums
    from ridgeline.report.stored import file_names

    amounts = ("totals", "kernel_time_s", "launches")
    stored = [(run.run_id, file_names(run), [getattr(run.result, name) for name in amounts])
              for run in results.index().captures]  # fmt: skip
    found = []
    for capture in captures:
        files = " + ".join(Path(file).name for file in files_of(capture))
        tells = [sums(capture.kernels), capture.kernel_time_s, capture.launches]
        same = [run_id for run_id, *told in stored if told == [files, tells]]
        if same:
            found.append((files, same[-1]))
    return found


def _keep(results: ResultsFolder, captures: list[Capture], label: str | None) -> list[Path]:
    from ridgeline.captures.capture import store_capture

    return [store_capture(results, capture, label=label).path for capture in captures]


def _raise(errors: list[RidgelineError]) -> None:
    """The last error ends the command; those before it are printed."""
    for error in errors[:-1]:
        print(f"ridgeline: {plain_text(str(error))}", file=sys.stderr)
    if errors:
        raise errors[-1]
