"""A count of a PyTorch model, and beside it that of its ONNX file at the same sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ridgeline.count.result import CountResult
from ridgeline.errors import RidgelineError
from ridgeline.onnx.against import Against, compare
from ridgeline.onnx.dims import open_dims
from ridgeline.onnx.load import load
from ridgeline.onnx.pieces import BIAS_UNSEEN
from ridgeline.records import WorkloadSpec
from ridgeline.workloads import resolve

SEQUENCE = "sequence"  # as `ridgeline export` names it


def count_beside(
    pytorch: CountResult, path: Path, *, spec: WorkloadSpec, dims: Mapping[str, int] | None = None
) -> tuple[CountResult, Against]:
    """Count `path` at the sizes of `pytorch`, which is the count of `spec`, and compare them."""
    from ridgeline.onnx import count_onnx  # it needs onnx, this module does not

    check_comparable(path, mode=pytorch.mode, precision=pytorch.precision)
    names = open_dims(load(path).graph)
    given = {**own_dims(names, spec), **(dims or {})}
    # a file without open dimensions has its batch, which no axis need show: a list of images
    onnx = count_onnx(path, batch_size=pytorch.batch_size if names else None, dims=given)
    found = compare(pytorch, onnx, **at_first(pytorch))
    is_sure = not found.is_unexplained and not found.has(BIAS_UNSEEN)
    return onnx, found if is_sure else compare_closely(
        pytorch, onnx, spec=spec, is_open=bool(names)
    )


def at_first(pytorch: CountResult) -> dict[str, Any]:
    """What the count itself says of its operators."""
    from ridgeline.onnx.biases import Vectors, biases  # of torch's tensors
    from ridgeline.onnx.operands import foldable

    return {"foldable": foldable(pytorch), "biases": biases(pytorch, Vectors())}


def compare_closely(
    pytorch: CountResult, onnx: CountResult, *, spec: WorkloadSpec, is_open: bool
) -> Against:
    """Compare two counts by what their operands are, too, which takes another count or two."""
    from ridgeline.onnx.biases import biases, vectors_of  # of torch's tensors
    from ridgeline.onnx.operands import (
        Origins,
        foldable,
        is_nothing,
        origins,
        unused,
        values,
    )

    larger, vectors = one_more(spec), vectors_of(spec, pytorch)
    found = origins(pytorch, larger, is_open=is_open) if larger else Origins()
    return compare(
        pytorch,
        onnx,
        of_weights=found.of_weights,
        with_weights=found.with_weights,
        unused=unused(pytorch),
        needless={number for number, op in enumerate(pytorch.op_costs) if is_nothing(op)},
        values=values(pytorch.op_costs, vectors.norms),
        foldable=foldable(pytorch),
        biases=biases(pytorch, vectors),
    )


def one_more(spec: WorkloadSpec) -> CountResult | None:
    """The count of a batch that is larger by one, if the model takes it."""
    from ridgeline.count.counting import count_workload
    from ridgeline.count.settings import Settings

    try:
        return count_workload(replace(spec, batch_size=spec.batch_size + 1), Settings())
    except RidgelineError:
        return None


def check_comparable(path: Path, *, mode: str, precision: str) -> None:
    """A file of torch holds a forward pass in the precision of its weights."""
    if not path.is_file():
        raise RidgelineError(
            f"--against: there is no file {path}", hint="`ridgeline export MODEL -o FILE` makes one"
        )
    refused = [f"--mode {mode}"] if mode != "infer" else []
    refused += [f"--precision {precision}"] if precision != "fp32" else []
    if refused:
        raise RidgelineError(
            f"--against cannot compare {' and '.join(refused)}",
            hint=f"it compares a forward pass in fp32; leave {' and '.join(refused)} out",
        )


def own_dims(names: list[str], spec: WorkloadSpec) -> dict[str, int]:
    """The sequence length that the model has, for a file that leaves it open under that name."""
    seq_len = spec.seq_len or resolve(spec).describe.get("seq_len")
    return {SEQUENCE: seq_len} if SEQUENCE in names and isinstance(seq_len, int) else {}
