"""`ridgeline export`: a model as an ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ridgeline.cli import options as opt
from ridgeline.cli.messages import print_json
from ridgeline.cli.progress import progress_bar
from ridgeline.plain import plain_text
from ridgeline.records import WorkloadSpec
from ridgeline.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from ridgeline.onnx.export import CheckResult, Exported

EXAMPLES = """
[bold]Examples[/]

  ridgeline export resnet50 -o resnet50.onnx
  ridgeline export bert -o bert.onnx --seq-len 128
  ridgeline export net.py:make -o net.onnx --input-size 3,64,64 --static -b 8
  ridgeline export vit_b_16 -o vit.onnx --json | jq '.exported.checks'

[bold]Exit code[/]: 0 the file is written and passed its checks; 2 it could not be made; 130
interrupted. There is a whole file afterwards or none.
"""

SCHEMA = 1  # of the JSON form
OPSETS = tuple(map(str, range(17, 24)))  # offered by completion; others work too


def export(
    model: opt.Model,
    output: Path | None = opt.option(
        None, "The file; MODEL.onnx if left out.", "-o", "--output", metavar="FILE.onnx"
    ),
    batch_size: int = opt.option(
        1, "Batch of the checks; of the file if it is static.", "-b", "--batch-size", min=1
    ),
    input_size: opt.InputSize = None,
    seq_len: opt.SeqLen = None,
    config: opt.Config = None,
    opset: int | None = opt.option(None, "Version of ONNX's operators.", choices=OPSETS),
    static: bool = opt.option(False, "All dimensions are numbers: none is left open.", "--static"),
    external_above: int = opt.option(
        "1GB",
        "Weights of more than this go to FILE.onnx.data beside it.",
        metavar="BYTES",
        parser=parse_bytes,
    ),
    check: bool = opt.option(True, "Run it in onnxruntime and in torch.", "--check/--no-check"),
    force: bool = opt.option(False, "Replace a file that is there.", "--force"),
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
    debug: bool = opt.option(False, "Show tracebacks; work in this process.", "--debug"),
) -> None:
    """Write a model as an ONNX file, and check that it computes the same.

    Batch and sequence are left open. The file goes through onnx.checker, and onnxruntime and torch
    are run on the same random input, at two batch sizes: the largest difference is printed.
    Weights are random, as for `count`.
    """
    from ridgeline.onnx.export import ExportSettings
    from ridgeline.pipeline.export_model import STEPS, check_export, default_path, export_model

    settings = ExportSettings(
        opset=opset,
        is_static=static,
        is_checked=check,
        external_above_bytes=external_above,
    )
    spec = WorkloadSpec(
        model=model,
        batch_size=batch_size,
        input_size=input_size,
        seq_len=seq_len,
        config=config or {},
    )
    check_export(spec, settings)
    path = output or default_path(model)
    with progress_bar(STEPS, quiet=quiet) as progress:
        exported = export_model(spec, settings, path, progress.start, force=force, in_process=debug)
    if as_json:
        print_json({"schema": SCHEMA, "exported": exported.to_dict()})
        return
    print("\n".join(plain_text(line) for line in exported_lines(exported)))


def exported_lines(exported: Exported) -> list[str]:
    """The file, its inputs and outputs, how far it is from torch, and what was not possible."""
    weights = ""
    if exported.data_path:
        weights = f" and {exported.data_path} {format_bytes(exported.data_bytes)}"
    return [
        f"{exported.path} {format_bytes(exported.file_bytes)}{weights}: opset {exported.opset},"
        f" {exported.nodes} nodes, {exported.exporter} exporter",
        *(f"  input   {port}" for port in exported.inputs),
        *(f"  output  {port}" for port in exported.outputs),
        *(f"  check   {_describe_check(check)}" for check in exported.checks),
        *(f"note: {note}" for note in exported.notes),
    ]


def _describe_check(check: CheckResult) -> str:
    tokens = f", {check.seq_len} tokens" if check.seq_len else ""
    sizes = f"batch {check.batch_size}{tokens}: "
    if not check.numbers:
        reason = "no output has a finite number, in onnxruntime or in torch"
        return f"{sizes}nothing was compared: {reason}"
    return (
        f"{sizes}onnxruntime and torch differ by at most {check.absolute:.2g},"
        f" {check.relative:.2g} of the largest value"
    )
