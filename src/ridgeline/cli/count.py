"""`ridgeline count`: what a model must do in one step."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ridgeline.cli.arguments import config_values, folder, named_sizes, sizes, whole_numbers
from ridgeline.cli.choices import (
    CAUSAL,
    FORMATS,
    MODELS,
    OPTIMIZERS,
    SOURCES,
    TABLES,
    complete,
    one_of,
)
from ridgeline.cli.interrupts import stopped_at_once
from ridgeline.errors import RidgelineError
from ridgeline.records import MODES, PRECISIONS
from ridgeline.units import parse_bytes

if TYPE_CHECKING:
    from ridgeline.cli.counted import Asked

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
NOTHING = {"schema": SCHEMA, "models": []}


def count(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL…",
            help="resnet50, torchvision:NAME, timm:NAME, transformers:TYPE, file.py:factory,"
            " FILE.onnx",
            autocompletion=complete(MODELS + SOURCES),
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
    mode: Annotated[
        str, typer.Option(help="infer or train.", autocompletion=complete(MODES))
    ] = "infer",
    precision: Annotated[
        str,
        typer.Option(help="fp32, tf32, amp, bf16 or fp16.", autocompletion=complete(PRECISIONS)),
    ] = "fp32",
    optimizer: Annotated[
        str,
        typer.Option(
            help="In train mode: sgd, momentum, adam, adamw, rmsprop, …",
            autocompletion=complete(OPTIMIZERS),
        ),
    ] = "sgd",
    input_size: Annotated[
        str | None, typer.Option(help="224, or 224,320, or 3,64,64 for a model of your own.")
    ] = None,
    seq_len: Annotated[int | None, typer.Option(help="Tokens per sample.")] = None,
    config: Annotated[
        str | None, typer.Option(help="hidden_size=1024,num_layers=4 or a config.json.")
    ] = None,
    dim: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=N",
            help="An open dimension of an .onnx file, or a loop's trip count; may be repeated.",
        ),
    ] = None,
    causal: Annotated[
        str,
        typer.Option(
            help="Causal attention: count it in full, or the unmasked half.",
            autocompletion=complete(CAUSAL),
        ),
    ] = "full",
    depth: Annotated[
        int | None, typer.Option(help="Show modules down to this depth; 0 is the model.", min=0)
    ] = None,
    formulas: Annotated[
        bool, typer.Option("--formulas", help="Show formulas that add up to the FLOPs of each row.")
    ] = False,
    growth: Annotated[
        bool, typer.Option("--growth", help="Show how cost grows with batch and input size.")
    ] = False,
    find_max_batch: Annotated[
        str | None,
        typer.Option(metavar="BYTES", help="Largest batch that fits in 24GB, 80GiB, …"),
    ] = None,
    compare_onnx: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.onnx", help="Compare with the model's ONNX file, and say why it differs."
        ),
    ] = None,
    against: Annotated[Path | None, typer.Option(hidden=True)] = None,  # its former name
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="table, markdown, csv or json, on stdout.",
            autocompletion=complete(FORMATS),
        ),
    ] = "table",
    table: Annotated[
        str,
        typer.Option(
            help="Rows of csv, parquet and json: layers or ops.", autocompletion=complete(TABLES)
        ),
    ] = "layers",
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "-o",
            "--output",
            help="Write to a .csv, .parquet, .md or .json file; may be repeated.",
        ),
    ] = None,
    output_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=folder,
            help="Write a text file per model and batch, and summary.json.",
        ),
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(metavar="DIR", parser=folder, help="Keep each count as a run in this folder."),
    ] = None,
    list_models: Annotated[
        bool, typer.Option("--list", help="List the models; MODEL is then a pattern.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Same as --format json.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress, no advice.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Count what models must do in one step: FLOPs, bytes, parameters, memory; by layer and phase.

    Nothing is run and no weights are needed: a model with 70 billion parameters counts on a laptop.
    """
    if list_models:
        with _stopped_at_once("table"):
            return _list(models, as_json=as_json or form == "json")
    form = "json" if as_json else form
    with _told_as_json(form), _stopped_at_once(form):
        from ridgeline.measure.worker import torch_needed

        with torch_needed():
            from ridgeline.cli.counted import Asked, run
            from ridgeline.workloads.sources import is_onnx

            if not all(map(is_onnx, models or ())):
                import ridgeline.count.counting  # noqa: F401 (and torch, inside of which Ctrl-C is lost)

    with _told_as_json(form):
        asked = Asked(
            models=tuple(models or ()),
            batch_sizes=whole_numbers("--batch-size", batch_size or "1", like="1,8,32"),
            batch_given=batch_size is not None,
            dims=named_sizes("--dim", dim or []),
            mode=mode,
            precision=precision,
            optimizer=optimizer,
            input_size=sizes(input_size),
            seq_len=seq_len,
            config=config_values(config),
            causal=causal,
            depth=depth,
            formulas=formulas,
            growth=growth,
            limit_bytes=parse_bytes(find_max_batch) if find_max_batch is not None else None,
            compare_onnx=compare_onnx or against,
            form=form,
            table=table,
            outputs=tuple(output or ()),
            output_dir=output_dir,
            results=results,
            quiet=quiet,
        )
        _check(asked)
    run(asked)


def _check(asked: Asked) -> None:
    from ridgeline.cli.counted import check

    if not asked.models:
        raise RidgelineError(
            "no model was named",
            hint="for example: ridgeline count resnet50; --list shows all names",
        )
    one_of("--format", asked.form, FORMATS)
    one_of("--table", asked.table, TABLES)
    for path in asked.outputs:
        one_of("the ending of --output", path.suffix, (".csv", ".parquet", ".md", ".json"))
    check(asked)


def error_dict(model: str | None, error: RidgelineError) -> dict[str, str | None]:
    """An error in the JSON form; no model is to blame for an option."""
    return {"model": model, "problem": error.problem, "hint": error.hint}


@contextmanager
def _told_as_json(form: str) -> Iterator[None]:
    """For scripts, an error that comes before any counting is JSON, too."""
    try:
        yield
    except RidgelineError as error:
        if form == "json":
            print(json.dumps({**NOTHING, "errors": [error_dict(None, error)]}, indent=2))
        raise


def _stopped_at_once(form: str) -> AbstractContextManager[None]:
    """For scripts, JSON with nothing in it is printed before the end."""

    def nothing() -> None:
        if form == "json":
            print(json.dumps(NOTHING), flush=True)

    return stopped_at_once(before=nothing)


def _list(models: list[str] | None, *, as_json: bool) -> None:
    """Print the known models, a line each."""
    from ridgeline.workloads import list_models

    patterns: Sequence[str | None] = models or [None]
    found = [row for pattern in patterns for row in list_models(pattern)]
    if as_json:
        rows = [{"model": name, "source": source, "about": about} for name, source, about in found]
        print(json.dumps(rows, indent=2))
    if not found:
        raise RidgelineError(
            f"no model matches {' '.join(models or [])!r}",
            hint="try a part of the name, or a pattern in quotes: --list '*net*'",
        )
    if as_json:
        return
    width = max(len(name) for name, _, _ in found)
    for name, source, about in found:
        print(f"{name:<{width}}  {source:<12}  {about}".rstrip())
    print(f"{len(found)} models", file=sys.stderr)
