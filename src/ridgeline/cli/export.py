"""`ridgeline export`: a model as an ONNX file."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ridgeline.cli.options import (
    Config,
    InputSize,
    Json,
    Model,
    Quiet,
    SeqLen,
    choice,
    flag,
    parse_config,
    parse_input_size,
    parse_numbers,
)
from ridgeline.cli.progress import progress_bar
from ridgeline.errors import RidgelineError
from ridgeline.plain import plain_text
from ridgeline.records import MODES, WorkloadSpec
from ridgeline.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from ridgeline.onnx.export import CheckResult, Exported

EXAMPLES = """
[bold]Examples[/]

  ridgeline export resnet50 -o resnet50.onnx
  ridgeline export bert -o bert.onnx --seq-len 128
  ridgeline export yolo -o yolo.onnx --input-size 480,640 --opset 18
  ridgeline export net.py:make -o net.onnx --input-size 3,64,64 --static -b 8
  ridgeline export resnet18_cifar -o training.onnx --mode train
  ridgeline export vit_b_16 -o vit.onnx --json | jq '.exported.checks'
  ridgeline count resnet50 --compare-onnx resnet50.onnx -b 8

[bold]Exit code[/]: 0 the file is written and passed its checks; 2 it could not be made; 130
interrupted. There is a whole file afterwards or none.
"""

SCHEMA = 1  # of the JSON form
OPSETS = tuple(str(opset) for opset in range(17, 24))  # offered by completion; others work too


def export(
    model: Model,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE.onnx", help="The file; MODEL.onnx if left out."
        ),
    ] = None,
    batch_size: Annotated[
        str,
        typer.Option(
            "-b", "--batch-size", help="Batch of the checks; of the file if it is static."
        ),
    ] = "1",
    input_size: InputSize = None,
    seq_len: SeqLen = None,
    config: Config = None,
    mode: Annotated[
        str, choice("infer, or train: the forward pass with dropout and batch statistics.", MODES)
    ] = "infer",
    opset: Annotated[int | None, choice("Version of ONNX's operators.", OPSETS)] = None,
    static: Annotated[
        bool, flag("--static", "All dimensions are numbers: none is left open.")
    ] = False,
    external_above: Annotated[
        str,
        typer.Option(
            metavar="BYTES", help="Weights of more than this go to FILE.onnx.data beside it."
        ),
    ] = "1GB",
    check: Annotated[bool, flag("--check/--no-check", "Run it in onnxruntime and in torch.")] = (
        True
    ),
    force: Annotated[bool, flag("--force", "Replace a file that is there.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Annotated[bool, flag("--debug", "Show tracebacks; work in this process.")] = False,
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
        external_above_bytes=parse_bytes(external_above),
    )
    spec = WorkloadSpec(
        model=model,
        batch_size=_parse_batch_size(batch_size),
        mode=mode,
        input_size=parse_input_size(input_size),
        seq_len=seq_len,
        config=parse_config(config),
    )
    check_export(spec, settings)
    path = output or default_path(model)
    try:
        with progress_bar(STEPS, quiet=quiet) as progress:
            exported = export_model(
                spec, settings, path, progress.start, force=force, in_process=debug
            )
    except RidgelineError as error:
        if as_json:
            _print_json({"error": {"problem": error.problem, "hint": error.hint}})
        raise
    if as_json:
        _print_json({"exported": exported.to_dict()})
        return
    print("\n".join(plain_text(line) for line in exported_lines(exported)))
    if not quiet and mode != "train":  # which has no count to go with
        print(f"next: {next_command(spec, path)}", file=sys.stderr)


def _parse_batch_size(text: str) -> int:
    first, *others = parse_numbers("--batch-size", text, like="1")
    if others:
        raise RidgelineError(
            "--batch-size takes one number here", hint="leave it out: the batch is left open"
        )
    return first


def _print_json(content: dict[str, Any]) -> None:
    print(json.dumps({"schema": SCHEMA, **content}, indent=2))


def next_command(spec: WorkloadSpec, path: Path) -> str:
    """How to compare the file with its model, at the same size and configuration."""
    command = ["ridgeline", "count", spec.model, "--compare-onnx", str(path)]
    if spec.input_size is not None:
        command += ["--input-size", ",".join(map(str, spec.input_size))]
    if spec.seq_len is not None:
        command += ["--seq-len", str(spec.seq_len)]
    if spec.config:
        pairs = ",".join(f"{key}={value}" for key, value in spec.config.items())
        command += ["--config", str(spec.config.get("config_file") or pairs)]
    return shlex.join(command)


def exported_lines(exported: Exported) -> list[str]:
    """The file, its inputs and outputs, how far it is from torch, and what was not possible."""
    weights = ""
    if exported.data_path:
        weights = f" and {exported.data_path} {format_bytes(exported.data_bytes)}"
    return [
        f"{exported.path} {format_bytes(exported.file_bytes)}{weights}: opset {exported.opset},"
        f" {exported.nodes} nodes, {exported.mode}, {exported.exporter} exporter",
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
