"""Export by the first of torch's exporters whose file passes the checks.

The checks are onnx.checker, and onnxruntime beside torch on the same input, at two batch sizes.
"""

from __future__ import annotations

import io
import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir
import torch
from torch import Tensor, nn

from ridgeline.errors import RidgelineError
from ridgeline.onnx.export import (
    CheckResult,
    Exported,
    ExportSettings,
    Port,
    check_opset,
    data_file,
)
from ridgeline.onnx.export.model_inputs import (
    BATCH,
    SEQUENCE,
    Axes,
    Call,
    ExportModel,
    find_open_axes,
    make_call,
    names_in,
    nest_axes,
    tensors_in,
)
from ridgeline.workloads import refuse_downloads
from ridgeline.workloads.workload import one_line

OnProgress = Callable[[str], None]
Array = np.ndarray[Any, Any]

DYNAMO, TORCHSCRIPT = "dynamo", "torchscript"
DYNAMO_OLDEST_OPSET = 18  # asked for an older one, it writes 18 and says so in a log
SMALL_BYTES = 1024  # tensors up to this stay in the model's own file: shapes may need them
PRIVATE = "pkg.torch.onnx.stack_trace"  # names folders of the machine that made the file
SEED = 0
TOLERANCE = 1e-3  # of the largest value of an output: fp32 in another order stays far below it
NO_CHECK = "--no-check (in Python check=False) writes the file as it is"
STATIC = "--static (in Python static=True) makes all dimensions numbers"
DEBUG = "--debug shows where it happened"
LONGEST_REASON = 300  # characters of an error of onnx or onnxruntime, from its end
FATAL_ONLY = 4  # of onnxruntime's log; its errors are reported here
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
WORDS = {DYNAMO: "torch's exporter", TORCHSCRIPT: "torch's older exporter"}
FIXED_BATCH = "the batch is fixed: the model takes a list of samples"


def export_model(
    model: ExportModel, settings: ExportSettings, path: Path, on_progress: OnProgress
) -> Exported:
    """Write `model` to `path`: by the newer exporter, else by the older one."""
    check_opset(settings)
    with torch.random.fork_rng(devices=[]), _unfused_attention():
        torch.manual_seed(SEED)  # the caller's random numbers stay as they are
        on_progress("building the model")
        module = model.build()
        axes = {} if settings.is_static else find_open_axes(module, model)
        return _Export(model, module, axes, settings, path, on_progress).run()


@dataclass(frozen=True, slots=True)
class _Export:
    """One export: the attempts, and what they have in common."""

    model: ExportModel
    module: nn.Module
    axes: Axes
    settings: ExportSettings
    path: Path
    on_progress: OnProgress

    def run(self) -> Exported:
        """By the first exporter that works; why others did not is a note."""
        model, names = self.model, names_in(self.axes)
        notes = [] if self.settings.is_static or names else [FIXED_BATCH]
        example = make_call(self.module, model.feed(self._traced_batch, None))
        outputs = list(run(self.module, example))
        if not outputs:
            raise RidgelineError(
                f"{model.name} returns no tensor",
                hint="its forward has to return a tensor, or a list or dictionary of tensors",
            )
        failure: Exception | None = None
        is_old = (self.settings.opset or DYNAMO_OLDEST_OPSET) < DYNAMO_OLDEST_OPSET
        for exporter in (TORCHSCRIPT,) if is_old else (DYNAMO, TORCHSCRIPT):
            try:
                exported = self._try(exporter, example, outputs)
            except Exception as error:  # torch's exporters raise anything; the next may work
                failure = error
                notes.append(f"not by {WORDS[exporter]}: {_first_reason(error)}")
                continue
            return replace(exported, notes=(*notes, *exported.notes))
        hints = [failure.hint if isinstance(failure, RidgelineError) else DEBUG]
        problem = f"{model.name} cannot be exported: {'; '.join(notes)}"
        raise RidgelineError(
            problem, hint="; ".join([*[STATIC] * bool(names), *hints])
        ) from failure

    def _try(self, exporter: str, example: Call, outputs: list[str]) -> Exported:
        """The file by one exporter, checked."""
        self.on_progress(f"exporting by {WORDS[exporter]}")
        opset = self.settings.opset
        graph = trace(exporter, self.module, example, self.axes, outputs=outputs, opset=opset)
        self.on_progress("writing")
        write(graph, self.path, inline_bytes=self.settings.inline_bytes)
        checks, notes = self._check()
        data = data_file(self.path)
        return Exported(
            model=self.model.name,
            path=self.path,
            exporter=exporter,
            opset=int(graph.opset_imports[""]),
            nodes=sum(1 for _ in graph.graph),
            inputs=ports(graph.graph.inputs),
            outputs=ports(graph.graph.outputs),
            file_bytes=self.path.stat().st_size,
            data_bytes=data.stat().st_size if data.exists() else 0,
            checks=checks,
            notes=notes,
        )

    def _check(self) -> tuple[tuple[CheckResult, ...], tuple[str, ...]]:
        """Run the file beside torch; the differences, and why there are none."""
        import onnx

        if not self.settings.is_checked:
            return (), ("not checked",)
        self.on_progress("onnx.checker")
        with _refusals("onnx.checker refuses the file"):
            onnx.checker.check_model(str(self.path), full_check=True)
        session, results = Session(self.path), []
        for batch_size, tokens in self._sizes_to_check():
            self.on_progress(f"onnxruntime and torch, batch {batch_size}")
            call = make_call(self.module, self.model.feed(batch_size, tokens))
            expected, outputs = run(self.module, call), session.run(call.tensors())
            seq_len = tokens or self.model.seq_len
            compared = compare_outputs(expected, outputs, batch_size=batch_size, seq_len=seq_len)
            results.append(compared)
        return tuple(results), ()

    @property
    def _traced_batch(self) -> int:
        is_static = self.settings.is_static
        return self.model.batch_size if is_static else self.model.traced_batch

    def _sizes_to_check(self) -> list[tuple[int, int | None]]:
        """Batch and tokens: as requested, and where they are open others that were not traced."""
        names = names_in(self.axes)
        if BATCH not in names:
            return [(self._traced_batch, None)]
        other = self.model.other_seq_len if SEQUENCE in names else None
        return [(self.model.batch_size, None), (self.model.batch_size + 2, other)]


def _first_reason(error: BaseException) -> str:
    """The first error of a chain, without the colours that torch writes."""
    if isinstance(error, RidgelineError):
        return error.problem
    while error.__cause__ is not None:
        error = error.__cause__
    return COLOURS.sub("", one_line(error, 200))


# ---------------------------------------------------------------- torch's two exporters


def run(module: nn.Module, call: Call) -> dict[str, torch.Tensor]:
    """What the module answers, by name: `logits`, or `output` where it has none."""
    with torch.no_grad(), refuse_downloads():
        answer = module(*call.args, **call.kwargs)
    return dict(tensors_in("" if isinstance(answer, dict) else "output", answer))


def trace(
    exporter: str, module: nn.Module, call: Call, axes: Axes, *, outputs: Sequence[str],
    opset: int | None,
) -> onnx_ir.Model:  # fmt: skip
    """The module as a graph whose `axes` are open; raises what torch raises."""
    export = _by_dynamo if exporter == DYNAMO else _by_torchscript
    settings: dict[str, Any] = {
        "kwargs": call.kwargs, "input_names": list(call.tensors()), "output_names": list(outputs),
        "opset_version": opset, "verbose": False,
    }  # fmt: skip
    with _quiet(), torch.no_grad(), refuse_downloads():
        graph = export(module, call, axes, settings)
    if opset is not None and graph.opset_imports[""] != opset:
        written = graph.opset_imports[""]
        raise RuntimeError(f"torch's {exporter} exporter wrote opset {written}, not {opset}")
    for owner in (graph.graph, *graph.functions.values()):
        for node in owner:
            node.metadata_props.pop(PRIVATE, None)
    return graph


def _by_dynamo(
    module: nn.Module, call: Call, axes: Axes, settings: dict[str, Any]
) -> onnx_ir.Model:
    shapes = {name: nest_axes(value, name, axes) for name, value in call.named().items()}
    program = torch.onnx.export(
        module,
        call.args,
        dynamo=True,
        dynamic_shapes=shapes if any(axes.values()) else None,
        **settings,
    )
    assert program is not None
    return program.model


def _by_torchscript(
    module: nn.Module, call: Call, axes: Axes, settings: dict[str, Any]
) -> onnx_ir.Model:
    import onnx

    written = io.BytesIO()
    torch.onnx.export(
        module,
        call.args,
        written,  # type: ignore[arg-type]  # the older exporter takes a stream as well
        dynamo=False,
        dynamic_axes={name: dict(open_) for name, open_ in axes.items() if open_},
        **settings,
    )
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
def _quiet() -> Iterator[None]:
    """Without what torch's exporters and onnxruntime print, also below Python."""
    was_off = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    sys.stdout.flush()
    sys.stderr.flush()
    saved = [os.dup(number) for number in (1, 2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        with (
            warnings.catch_warnings(),
            redirect_stdout(io.StringIO()),
            redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(was_off)
        for number, was in zip((1, 2), saved, strict=True):
            os.dup2(was, number)
        for opened in (*saved, nowhere):
            os.close(opened)


def write(graph: onnx_ir.Model, path: Path, *, inline_bytes: int) -> None:
    """Write the graph; of more than `inline_bytes` of weights, large ones go to a second file."""
    data = data_file(path)
    data.unlink(missing_ok=True)  # of an attempt before
    values = (value.const_value for value in graph.graph.initializers.values())
    is_large = sum(value.nbytes for value in values if value is not None) > inline_bytes
    name = data.name if is_large else None
    onnx_ir.save(graph, path, external_data=name, size_threshold_bytes=SMALL_BYTES)
    if data.exists() and not data.stat().st_size:
        data.unlink()


def ports(values: Sequence[Any]) -> tuple[Port, ...]:
    """Inputs or outputs of a graph, for people."""
    result = []
    for value in values:
        dtype = str(value.dtype.name).lower() if value.dtype is not None else ""
        dtype = {"float": "float32", "double": "float64"}.get(dtype, dtype)
        shape = (side if isinstance(side, int) else str(side.value) for side in value.shape or ())
        result.append(Port(name=value.name or "", dtype=dtype, shape=tuple(shape)))
    return tuple(result)


# ---------------------------------------------------------------- checks


@contextmanager
def _refusals(problem: str) -> Iterator[None]:
    """Errors of onnx's checker and of onnxruntime as ours; neither prints for itself."""
    try:
        with _quiet():
            yield
    except Exception as error:
        reason = " ".join(str(error).rpartition("Status Message: ")[2].split())
        raise RidgelineError(f"{problem}: {reason[-LONGEST_REASON:]}", hint=NO_CHECK) from error


class Session:
    """The file in onnxruntime, on the CPU."""

    def __init__(self, path: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = FATAL_ONLY
        providers = ["CPUExecutionProvider"]
        with _refusals("onnxruntime cannot load the file"):
            self._session = onnxruntime.InferenceSession(str(path), options, providers=providers)

    def run(self, tensors: Mapping[str, Tensor]) -> list[Array]:
        """The outputs; an input that the graph does not use is left out."""
        names = {port.name for port in self._session.get_inputs()}
        inputs = {name: t.numpy() for name, t in tensors.items() if name in names}
        with _refusals("onnxruntime cannot run the file"):
            return list(self._session.run(None, inputs))


def compare_outputs(
    expected: Mapping[str, Tensor], outputs: list[Array], *, batch_size: int, seq_len: int | None
) -> CheckResult:
    """The largest differences of all outputs; RidgelineError where one is too large."""
    if len(expected) != len(outputs):
        raise RidgelineError(
            f"the file has {len(outputs)} outputs, the model {len(expected)}", hint=NO_CHECK
        )
    where = f"at batch {batch_size}" + (f" and {seq_len} tokens" if seq_len else "")
    found = []
    for (name, ours), theirs in zip(expected.items(), outputs, strict=True):
        try:
            found.append(_compare_output(ours.detach().numpy(), theirs))
        except ValueError as error:
            raise RidgelineError(f"{name} {error} {where}", hint=NO_CHECK) from error
    absolute, relative, numbers = zip(*found, strict=True) if found else ((0.0,), (0.0,), (0,))
    return CheckResult(
        batch_size=batch_size,
        seq_len=seq_len,
        outputs=len(found),
        numbers=sum(numbers),
        absolute=max(absolute),
        relative=max(relative),
    )


def _compare_output(ours: Array, theirs: Array) -> tuple[float, float, int]:
    """The largest difference, its share of the largest value, and of how many finite numbers."""
    if ours.shape != theirs.shape:
        raise ValueError(f"is {list(ours.shape)} in torch and {list(theirs.shape)} in onnxruntime")
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        raise ValueError("has other NaN or infinities in onnxruntime than in torch")
    absolute = float(np.abs(a[finite] - b[finite]).max(initial=0.0))
    relative = absolute / (float(np.abs(a[finite]).max(initial=0.0)) or 1.0)
    if relative > TOLERANCE:
        raise ValueError(
            f"differs by {relative:.2g} of its largest value between torch and onnxruntime;"
            f" {TOLERANCE:g} is allowed,"
        )
    return absolute, relative, int(finite.sum())
