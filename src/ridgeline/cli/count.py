"""`ridgeline count`: what a model must do in one step."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ridgeline.cli import options as opt
from ridgeline.cli.interrupts import stopped_at_once
from ridgeline.cli.messages import (
    end_interrupted,
    raise_last,
    show_message,
    show_models,
    show_notes,
)
from ridgeline.cli.progress import progress_bar
from ridgeline.count.records import CAUSAL
from ridgeline.errors import RidgelineError
from ridgeline.settings import one_of
from ridgeline.signals import interrupts_noted
from ridgeline.units import parse_bytes

EXAMPLES = """
[bold]Examples[/]

  ridgeline count resnet50
  ridgeline count resnet50 vgg16 mobilenet_v2 -b 16,32,64 --mode train --output-dir summaries
  ridgeline count transformers:llama --seq-len 2048 --config hidden_size=8192,num_hidden_layers=80
  ridgeline count resnet50 --mode train --find-max-batch 24GB
  ridgeline count bert.onnx -b 8 --dim seq=128
  ridgeline count resnet50 -b 8 --compare-onnx resnet50.onnx
  ridgeline count --list 'resnet*'
"""

SCHEMA = 1  # of the JSON form
FORMATS = ("table", "markdown", "csv", "json")
TABLES = ("layers", "ops")
ENDINGS = (".csv", ".md", ".json")
LEAST_LIMIT_BYTES = 1e6  # a smaller number was meant in gigabytes


def _parse_limit(text: str) -> int:
    """An amount of memory; a small number without a unit is refused."""
    limit_bytes = parse_bytes(text)
    if limit_bytes < LEAST_LIMIT_BYTES:
        raise RidgelineError(
            f"--find-max-batch {text} is {limit_bytes} bytes, which hold no network",
            hint=f"write a unit: --find-max-batch {text.rstrip('kKMGTiBb ')}GB",
        )
    return limit_bytes


@dataclass(frozen=True, kw_only=True)
class Counts(opt.Counted):
    """What is counted, at which sizes, and what else is found out."""

    causal: str = opt.option(
        "full", "Causal attention: count it in full, or the unmasked half.", choices=CAUSAL
    )
    depth: int | None = opt.option(None, "Show modules down to this depth; 0 is the model.", min=0)
    formulas: bool = opt.option(
        False, "Show formulas that add up to the FLOPs of each row.", "--formulas"
    )
    growth: bool = opt.option(False, "Show how cost grows with batch and input size.", "--growth")
    limit_bytes: int | None = opt.option(
        None,
        "Largest batch that fits in 24GB, 80GiB, …",
        "--find-max-batch",
        metavar="BYTES",
        parser=_parse_limit,
    )
    compare_onnx: Path | None = opt.option(
        None, "Compare with the model's ONNX file, and say why it differs.", metavar="FILE.onnx"
    )


@opt.takes_groups
def count(
    counted: Counts,
    against: Path | None = opt.option(None, "", hidden=True),  # former name of --compare-onnx
    form: str = opt.option(
        "table", "table, markdown, csv or json, on stdout.", "--format", choices=FORMATS
    ),
    table: str = opt.option("layers", "Rows of csv and json: layers or ops.", choices=TABLES),
    output: opt.Outputs = None,
    output_dir: Path | None = opt.folder(
        None, "Write a text file per model and batch, and summary.json."
    ),
    results: Path | None = opt.folder(None, "Keep each count as a run in this folder."),
    list_models: bool = opt.option(
        False, "List the models; MODEL is then a pattern.", "--list", "--list-models"
    ),
    as_json: opt.JsonFormat = False,
    quiet: opt.Quiet = False,
    debug: opt.Debug = False,
) -> None:
    """Count what models must do in one step: FLOPs, bytes, parameters, memory; by layer and phase.

    Nothing is run and no weights are needed: a model with 70 billion parameters counts on a laptop.
    """
    form = "json" if as_json else form
    if list_models:
        with stopped_at_once():
            return show_models(counted.models or [], as_json=form == "json")
    with stopped_at_once():  # torch would lose Ctrl-C
        from ridgeline.cli import render_count
        from ridgeline.pipeline import count_models

        count_models.import_counting(tuple(counted.models or ()))
    options = counted.options(table=table, compare_onnx=counted.compare_onnx or against)
    count_models.check_options(options)
    opt.check_outputs(form, FORMATS, output, ENDINGS)
    one_of("--table", table, TABLES)
    interrupts: list[int] = []
    outcome = count_models.CountOutcome()
    with (
        interrupts_noted(interrupts),
        progress_bar(options.steps, quiet=quiet, first="importing") as progress,
    ):
        count_models.count_models(options, outcome, progress.start)
    stored = count_models.save_counts(options, outcome, results) if results is not None else []
    try:
        if outcome.results or form == "json":  # a table of nothing is none
            render_count.print_counts(outcome, options, form)
    finally:  # files are written even if nobody reads what is printed: `… -o FILE | head`
        written = render_count.write_files(outcome, options, output or [], output_dir)
        for path in [*written, *stored] if not quiet else ():
            show_message(f"wrote {path}")
    show_notes(outcome.notes)
    if interrupts:
        end_interrupted("; what was counted until then is above" if outcome.results else "")
    raise_last([error for _, error in outcome.errors])
    for one in outcome.comparisons:
        if one.unexplained_macs:  # a file of another model, or of other sizes
            raise RidgelineError(
                f"{one.file} is not {one.model} at batch {one.batch_size}:"
                f" {render_count.describe_macs(one)}",
                hint="give the sizes that the file was exported with (-b, --input-size, --seq-len,"
                " --dim), or export it again",
            )
