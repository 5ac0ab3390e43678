"""`ridgeline count FILE.onnx`: the options that a file has, and those that it has not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ridgeline.errors import RidgelineError
from ridgeline.workloads.sources import is_onnx

if TYPE_CHECKING:
    from ridgeline.cli.counted import Asked
    from ridgeline.count.result import CountResult


def check_options(asked: Asked) -> None:
    """Refuse options that mean nothing for what was named."""
    files = [model for model in asked.models if is_onnx(model)]
    if not files:
        if asked.dims and asked.compare_onnx is None:
            raise RidgelineError(
                "--dim is for .onnx files",
                hint="PyTorch models take --batch-size, --input-size and --seq-len",
            )
        return
    how = "the file has its own; open dimensions are given as --dim NAME=N"
    refused = {
        "--input-size": (asked.input_size is not None, how),
        "--seq-len": (asked.seq_len is not None, how),
        "--config": (bool(asked.config), "a file is as it was exported; export it again"),
        "--precision": (asked.precision != "fp32", "a file has the precision it was exported in"),
        "--growth": (asked.growth, "count several batches instead: -b 1,2,4"),
    }
    for option, (given, hint) in refused.items():
        if given:
            raise RidgelineError(f"{option} means nothing for {files[0]}", hint=hint)


def check_comparison(asked: Asked) -> None:
    """Refuse what cannot be compared before anything is counted."""
    from ridgeline.onnx.compare import SEQUENCE, check_comparable

    if asked.compare_onnx is None:
        return
    if len(asked.models) != 1 or is_onnx(asked.models[0]):
        raise RidgelineError(
            "--compare-onnx compares one PyTorch model with its file",
            hint="for example: ridgeline count resnet50 --compare-onnx resnet50.onnx",
        )
    check_comparable(asked.compare_onnx, mode=asked.mode, precision=asked.precision)
    length = asked.dims.get(SEQUENCE, asked.seq_len)
    if asked.seq_len is not None and length != asked.seq_len:
        raise RidgelineError(
            f"--seq-len {asked.seq_len} and --dim {SEQUENCE}={length} name the same dimension",
            hint="give one of them",
        )


def count_file(asked: Asked, model: str, batch_size: int) -> CountResult:
    from ridgeline.onnx import count_onnx

    return count_onnx(
        Path(model),
        batch_size=batch_size if asked.batch_given else None,
        dims=asked.dims,
        mode=asked.mode,
        optimizer=asked.optimizer,
        causal=asked.causal,
    )
