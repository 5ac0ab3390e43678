"""`ridgeline export`: a model as an ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ridgeline.cli.arguments import config_values, sizes, whole_numbers
from ridgeline.cli.choices import MODELS, SOURCES, complete
from ridgeline.errors import RidgelineError
from ridgeline.onnx.export import ExportSettings, check_mode, check_packages
from ridgeline.records import MODES, WorkloadSpec
from ridgeline.units import parse_bytes
from ridgeline.workloads.sources import is_onnx

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

OPSETS = tuple(str(opset) for opset in range(17, 24))  # offered by completion; others work too


def export(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="resnet50, torchvision:NAME, timm:NAME, transformers:TYPE, file.py:factory",
            autocompletion=complete(MODELS + SOURCES),
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE.onnx", help="The file; MODEL.onnx if left out."
        ),
    ] = None,
    batch_size: Annotated[
        str,
        typer.Option("-b", "--batch-size", help="Of the checks; of the file if it is static."),
    ] = "1",
    input_size: Annotated[
        str | None, typer.Option(help="224, or 224,320, or 3,64,64 for a model of your own.")
    ] = None,
    seq_len: Annotated[int | None, typer.Option(help="Tokens per sample.")] = None,
    config: Annotated[
        str | None, typer.Option(help="hidden_size=1024,num_layers=4 or a config.json.")
    ] = None,
    mode: Annotated[
        str,
        typer.Option(
            help="infer, or train: the forward pass with dropout and batch statistics.",
            autocompletion=complete(MODES),
        ),
    ] = "infer",
    opset: Annotated[
        int | None,
        typer.Option(help="Version of ONNX's operators.", autocompletion=complete(OPSETS)),
    ] = None,
    static: Annotated[
        bool, typer.Option("--static", help="All dimensions are numbers: none is left open.")
    ] = False,
    external_above: Annotated[
        str,
        typer.Option(
            metavar="BYTES", help="Weights of more than this go to FILE.onnx.data beside it."
        ),
    ] = "1GB",
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Run it in onnxruntime and in torch.")
    ] = True,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs, on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress, no advice.")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks; work in this process.")
    ] = False,
) -> None:
    """Write a model as an ONNX file, and check that it computes the same.

    Batch and sequence are left open. The file goes through onnx.checker, and onnxruntime and torch
    are run on the same random input, at two batch sizes: the largest difference is printed.
    Weights are random, as for `count`.
    """
    from ridgeline.cli.exported import run

    settings = ExportSettings(
        opset=opset,
        is_static=static,
        is_checked=check,
        external_above_bytes=parse_bytes(external_above),
    )
    check_mode(mode)
    check_packages(settings)
    if is_onnx(model):
        raise RidgelineError(
            f"{model} is an ONNX file already",
            hint="name a PyTorch model; `ridgeline count FILE.onnx` counts a file",
        )
    spec = WorkloadSpec(
        model=model,
        batch_size=_one(whole_numbers("--batch-size", batch_size, like="1")),
        mode=mode,
        input_size=sizes(input_size),
        seq_len=seq_len,
        config=config_values(config),
    )
    run(spec, settings, output, force=force, as_json=as_json, quiet=quiet, debug=debug)


def _one(numbers: tuple[int, ...]) -> int:
    if len(numbers) > 1:
        raise RidgelineError(
            "--batch-size takes one number here", hint="leave it out: the batch is left open"
        )
    return numbers[0]
