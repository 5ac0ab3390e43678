"""torch's two exporters, and the graph that they make."""

from __future__ import annotations

import inspect
import io
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_ir
import torch
from torch import nn

from ridgeline.onnx.export.model_inputs import Axes, Call, nest_axes, tensors_in
from ridgeline.onnx.export.records import Port, data_file
from ridgeline.workloads import refuse_downloads

DYNAMO, TORCHSCRIPT = "dynamo", "torchscript"
DYNAMO_OLDEST_OPSET = 18  # asked for an older one, it writes 18 and says so in a log
SMALL_BYTES = 1024  # tensors up to this stay in the model's own file: shapes may need them
PRIVATE = ("pkg.torch.onnx.stack_trace",)  # names folders of the machine that made the file
NOISY = ("torch.onnx", "onnxscript", "onnx_ir", "torch.export", "torch.fx", "torch._dynamo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """A graph in memory."""

    exporter: str
    graph: onnx_ir.Model

    @property
    def opset(self) -> int:
        return int(self.graph.opset_imports[""])

    @property
    def nodes(self) -> int:
        return sum(1 for _ in self.graph.graph)

    @property
    def weight_bytes(self) -> int:
        values = self.graph.graph.initializers.values()
        return sum(v.const_value.nbytes for v in values if v.const_value is not None)

    def operators(self) -> set[str]:
        return {node.op_type for node in self.graph.graph}


def run(module: nn.Module, call: Call) -> dict[str, torch.Tensor]:
    """What the module answers, by name: `logits`, or `output` where it has none."""
    buffers = {name: value.clone() for name, value in module.named_buffers()}
    with torch.no_grad(), refuse_downloads():
        answer = module(*call.args, **call.kwargs)
    for name, value in module.named_buffers():  # a batch norm in training moves its statistics
        value.detach().copy_(buffers[name])
    return dict(tensors_in("" if isinstance(answer, dict) else "output", answer))


def trace(
    exporter: str, module: nn.Module, call: Call, axes: Axes, *, outputs: Sequence[str],
    opset: int | None, mode: str,
) -> Traced:  # fmt: skip
    """The module as a graph whose `axes` are open; raises what torch raises."""
    with quiet(), torch.no_grad(), refuse_downloads(), _unfused_attention():
        if exporter == DYNAMO:
            graph = _by_dynamo(module, call, axes, list(outputs), opset)
        else:
            with _without_defaults(module, call):
                graph = _by_torchscript(module, call, axes, list(outputs), opset, mode)
    traced = Traced(exporter=exporter, graph=graph)
    if opset is not None and traced.opset != opset:
        raise RuntimeError(f"torch's {exporter} exporter wrote opset {traced.opset}, not {opset}")
    _remove_local_paths(graph)
    return traced


def _by_dynamo(
    module: nn.Module, call: Call, axes: Axes, outputs: list[str], opset: int | None
) -> onnx_ir.Model:
    shapes = {name: nest_axes(value, name, axes) for name, value in call.named().items()}
    program = torch.onnx.export(
        module,
        call.args,
        kwargs=call.kwargs,
        dynamo=True,
        input_names=list(call.tensors()),
        output_names=outputs,
        dynamic_shapes=shapes if any(axes.values()) else None,
        opset_version=opset,
        verbose=False,
    )
    assert program is not None
    return program.model


def _by_torchscript(
    module: nn.Module, call: Call, axes: Axes, outputs: list[str], opset: int | None, mode: str
) -> onnx_ir.Model:
    modes = torch.onnx.TrainingMode
    written = io.BytesIO()
    torch.onnx.export(
        module,
        call.args,
        written,  # type: ignore[arg-type]  # the older exporter takes a stream as well
        kwargs=call.kwargs,
        dynamo=False,
        input_names=list(call.tensors()),
        output_names=outputs,
        dynamic_axes={name: dict(open_) for name, open_ in axes.items() if open_},
        opset_version=opset,
        training=modes.TRAINING if mode == "train" else modes.EVAL,
        do_constant_folding=mode != "train",
        verbose=False,
    )
    import onnx

    return onnx_ir.from_proto(onnx.load_from_string(written.getvalue()))


@contextmanager
def _unfused_attention() -> Iterator[None]:
    """Without the fused kernels of inference, which have no counterpart in older opsets."""
    was_on = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(was_on)


@contextmanager
def _without_defaults(module: nn.Module, call: Call) -> Iterator[None]:
    """The older exporter makes tensors of defaults, and `is_causal=False` must not be one."""
    parameters = list(inspect.signature(module.forward).parameters.values())
    has_switches = any(isinstance(p.default, bool) for p in parameters[len(call.args) :])
    if call.kwargs or not has_switches or "forward" in vars(module):
        yield
        return
    forward = module.forward
    module.forward = lambda *args: forward(*args)  # which has no defaults
    try:
        yield
    finally:
        del module.forward


def _remove_local_paths(graph: onnx_ir.Model) -> None:
    """A file is given to others: where it was made on this machine is nobody's business."""
    for owner in (graph.graph, *graph.functions.values()):
        for node in owner:
            for key in PRIVATE:
                node.metadata_props.pop(key, None)


@contextmanager
def quiet() -> Iterator[None]:
    """torch's exporters warn of themselves and print whole graphs; what matters is said by us."""
    loggers = [logging.getLogger(name) for name in NOISY]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), discard_output():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def discard_output() -> Iterator[None]:
    """Also by code that does not print by way of Python."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(number) for number in (1, 2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for number in (1, 2):
            os.dup2(nowhere, number)
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            yield
    finally:
        for number, was in zip((1, 2), kept, strict=True):
            os.dup2(was, number)
        for opened in (*kept, nowhere):
            os.close(opened)


# ---------------------------------------------------------------- to a file, and what is in it


def write(traced: Traced, path: Path, *, inline_bytes: int) -> None:
    """Write the graph; of more than `inline_bytes` of weights, large ones go to a second file."""
    data = data_file(path)
    data.unlink(missing_ok=True)  # of an attempt before
    is_large = traced.weight_bytes > inline_bytes
    name = data.name if is_large else None
    onnx_ir.save(traced.graph, path, external_data=name, size_threshold_bytes=SMALL_BYTES)
    if data.exists() and not data.stat().st_size:
        data.unlink()


def ports(values: Sequence[Any]) -> tuple[Port, ...]:
    """Inputs or outputs of a graph, for people."""
    return tuple(
        Port(name=value.name or "", dtype=_dtype(value), shape=_shape(value)) for value in values
    )


def _dtype(value: Any) -> str:
    if value.dtype is None:
        return ""
    name = str(value.dtype.name).lower()
    return {"float": "float32", "double": "float64"}.get(name, name)


def _shape(value: Any) -> tuple[int | str, ...]:
    sides = value.shape or ()
    return tuple(side if isinstance(side, int) else str(side.value) for side in sides)
