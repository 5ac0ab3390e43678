"""`ridgeline count`: what a model must do in one step."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ridgeline.cli.interrupts import stopped_at_once
from ridgeline.cli.options import (
    MODEL_FORMS,
    Config,
    Debug,
    InputSize,
    JsonFormat,
    Mode,
    Optimizer,
    Precision,
    Quiet,
    SeqLen,
    check_choice,
    choice,
    complete_model,
    flag,
    folder,
    parse_config,
    parse_dims,
    parse_input_size,
    parse_numbers,
)
from ridgeline.cli.progress import progress_bar
from ridgeline.errors import RidgelineError
from ridgeline.signals import INTERRUPTED
from ridgeline.units import parse_bytes

if TYPE_CHECKING:
    from ridgeline.pipeline.count_models import CountOutcome

EXAMPLES = """
[bold]Examples[/]

  ridgeline count resnet50
  ridgeline count resnet50 vgg16 mobilenet_v2 -b 16,32,64 --mode train --output-dir summaries
  ridgeline count vit_b_16 --mode train --optimizer adamw --precision amp --depth 3
  ridgeline count transformers:llama --seq-len 2048 --config hidden_size=8192,num_hidden_layers=80
  ridgeline count net.py:make --input-size 3,64,64 --formulas
  ridgeline count resnet50 --mode train --find-max-batch 24GB
  ridgeline count bert.onnx -b 8 --dim seq=128
  ridgeline count resnet50 -b 8 --compare-onnx resnet50.onnx
  ridgeline count --list 'resnet*'
"""

SCHEMA = 1  # of the JSON form
FORMATS = ("table", "markdown", "csv", "json")
TABLES = ("layers", "ops")
CAUSAL = ("full", "half")
ENDINGS = (".csv", ".parquet", ".md", ".json")


def count(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL…",
            help=f"{MODEL_FORMS}, FILE.onnx",
            autocompletion=complete_model,
            show_default=False,
        ),
    ] = None,
    batch_size: Annotated[
        str | None,
        typer.Option(
            "-b",
            "--batch-size",
            "--batch-sizes",
            help="One or several: 1,8,32.",
            show_default="1; an ONNX file may ask for it",
        ),
    ] = None,
    mode: Mode = "infer",
    precision: Precision = "fp32",
    optimizer: Optimizer = "sgd",
    input_size: InputSize = None,
    seq_len: SeqLen = None,
    config: Config = None,
    dim: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=N",
            help="An open dimension of an .onnx file, or a loop's trip count; may be repeated.",
        ),
    ] = None,
    causal: Annotated[
        str, choice("Causal attention: count it in full, or the unmasked half.", CAUSAL)
    ] = "full",
    depth: Annotated[
        int | None, typer.Option(help="Show modules down to this depth; 0 is the model.", min=0)
    ] = None,
    formulas: Annotated[
        bool, flag("--formulas", "Show formulas that add up to the FLOPs of each row.")
    ] = False,
    growth: Annotated[
        bool, flag("--growth", "Show how cost grows with batch and input size.")
    ] = False,
    find_max_batch: Annotated[
        str | None, typer.Option(metavar="BYTES", help="Largest batch that fits in 24GB, 80GiB, …")
    ] = None,
    compare_onnx: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.onnx", help="Compare with the model's ONNX file, and say why it differs."
        ),
    ] = None,
    against: Annotated[Path | None, typer.Option(hidden=True)] = None,  # its former name
    form: Annotated[
        str, choice("table, markdown, csv or json, on stdout.", FORMATS, "--format")
    ] = "table",
    table: Annotated[str, choice("Rows of csv, parquet and json: layers or ops.", TABLES)] = (
        "layers"
    ),
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "-o", "--output", help="Write to a .csv, .parquet, .md or .json file; may be repeated."
        ),
    ] = None,
    output_dir: Annotated[
        Path | None, folder("Write a text file per model and batch, and summary.json.")
    ] = None,
    results: Annotated[Path | None, folder("Keep each count as a run in this folder.")] = None,
    list_models: Annotated[
        bool, flag("--list", "List the models; MODEL is then a pattern.")
    ] = False,
    as_json: JsonFormat = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Count what models must do in one step: FLOPs, bytes, parameters, memory; by layer and phase.

    Nothing is run and no weights are needed: a model with 70 billion parameters counts on a laptop.
    """
    form = "json" if as_json else form
    if list_models:
        with stopped_at_once():
            return _list_models(models or [], as_json=form == "json")
    with _errors_as_json(form):
        with stopped_at_once(before=lambda: _print_nothing(form)):  # torch would lose Ctrl-C
            from ridgeline.cli import render_count
            from ridgeline.pipeline import count_models

            count_models.import_counting(tuple(models or ()))
        options = count_models.CountOptions(
            models=tuple(models or ()),
            batch_sizes=parse_numbers("--batch-size", batch_size, like="1,8,32")
            if batch_size is not None
            else None,
            mode=mode,
            precision=precision,
            optimizer=optimizer,
            causal=causal,
            input_size=parse_input_size(input_size),
            seq_len=seq_len,
            config=parse_config(config),
            dims=parse_dims(dim or []),
            growth=growth,
            limit_bytes=parse_bytes(find_max_batch) if find_max_batch is not None else None,
            compare_onnx=compare_onnx or against,
        )
        count_models.check_options(options)
        check_choice("--format", form, FORMATS)
        check_choice("--table", table, TABLES)
        for path in output or ():
            check_choice("the ending of --output", path.suffix, ENDINGS)

    with progress_bar(options.steps, quiet=quiet, first="importing") as progress:
        outcome = count_models.count_models(options, progress.start)
    stored = count_models.save_counts(options, outcome, results) if results is not None else []
    view = render_count.CountView(
        table=table, depth=depth, formulas=formulas, limit_bytes=options.limit_bytes
    )
    try:
        if outcome.results or form == "json":  # a table of nothing is none
            render_count.print_counts(outcome, view, form)
    finally:  # files are written even if nobody reads what is printed: `… -o FILE | head`
        written = render_count.write_files(outcome, view, output or [], output_dir)
        for path in [*written, *stored] if not quiet else ():
            print(f"wrote {path}", file=sys.stderr)
    _end(outcome)


def _end(outcome: CountOutcome) -> None:
    """Exit after Ctrl-C; raise the last error, with those before it printed."""
    from ridgeline.cli.render_count import check_same_macs

    if outcome.is_interrupted:
        above = "; what was counted until then is above" if outcome.results else ""
        print(f"ridgeline: interrupted{above}", file=sys.stderr)
        sys.exit(INTERRUPTED)
    for _, error in outcome.errors[:-1]:
        print(f"ridgeline: {error}", file=sys.stderr)
    if outcome.errors:
        raise outcome.errors[-1][1]
    for comparison in outcome.comparisons:
        check_same_macs(comparison)


@contextmanager
def _errors_as_json(form: str) -> Iterator[None]:
    """For scripts, an error that comes before any counting is JSON, too."""
    try:
        yield
    except RidgelineError as error:
        if form == "json":
            reason = {"model": None, "problem": error.problem, "hint": error.hint}
            print(json.dumps({"schema": SCHEMA, "models": [], "errors": [reason]}, indent=2))
        raise


def _print_nothing(form: str) -> None:
    if form == "json":
        print(json.dumps({"schema": SCHEMA, "models": []}), flush=True)


def _list_models(patterns: list[str], *, as_json: bool) -> None:
    """Print the known models, a line each."""
    from ridgeline.workloads import list_models

    models = [model for pattern in patterns or [""] for model in list_models(pattern or None)]
    if as_json:
        rows = [{"model": name, "source": source, "about": about} for name, source, about in models]
        print(json.dumps(rows, indent=2))
    if not models:
        raise RidgelineError(
            f"no model matches {' '.join(patterns)!r}",
            hint="try a part of the name, or a pattern in quotes: --list '*net*'",
        )
    if as_json:
        return
    width = max(len(name) for name, _, _ in models)
    for name, source, about in models:
        print(f"{name:<{width}}  {source:<12}  {about}".rstrip())
    print(f"{len(models)} models", file=sys.stderr)
