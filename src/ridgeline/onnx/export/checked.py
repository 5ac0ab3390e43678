"""Export by the first of torch's exporters whose file passes the checks.

The checks are onnx.checker, and onnxruntime beside torch on the same input, at two batch sizes.
"""

from __future__ import annotations

import inspect
import io
import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np
import onnx_ir
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

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
FATAL_ONLY = 4  # of onnxruntime's log; its errors are reported here
# what onnxruntime puts before the reason: a code, the node, a line of its source
BEFORE_REASON = re.compile(
    r"^\[ONNXRuntimeError\] : \d+ : \w+ : |^.*Status Message: |^/\S+\.(cc|h):\d+ ", re.DOTALL
)
LONGEST_REASON = 300  # characters
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
RANDOM = {"Dropout", "RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike",
          "Bernoulli", "Multinomial"}  # fmt: skip
WORDS = {DYNAMO: "torch's exporter", TORCHSCRIPT: "torch's older exporter"}
FIXED_BATCH = "the batch is fixed: the model takes a list of samples"
FORWARD_ONLY = (
    "the forward pass as in training: torch's exporters write no backward pass and no optimizer"
)


def export_model(
    model: ExportModel, settings: ExportSettings, path: Path, on_progress: OnProgress
) -> Exported:
    """Write `model` to `path`: by the newer exporter, else by the older one; static if need be."""
    check_opset(settings)
    with torch.random.fork_rng(devices=[]):  # the caller's random numbers stay as they are
        torch.manual_seed(SEED)
        on_progress("building the model")
        return _Export(model, model.build(), settings, path, on_progress).run()


def exporters_for(module: nn.Module, mode: str, opset: int | None) -> tuple[str, ...]:
    """In training the older one first: the newer takes batch norms for those of inference."""
    if opset is not None and opset < DYNAMO_OLDEST_OPSET:
        return (TORCHSCRIPT,)
    if mode == "infer":
        return (DYNAMO, TORCHSCRIPT)
    has_norms = any(isinstance(part, _BatchNorm) for part in module.modules())
    return (TORCHSCRIPT,) if has_norms else (TORCHSCRIPT, DYNAMO)


@dataclass(frozen=True, slots=True)
class _Export:
    """One export: the attempts, and what they have in common."""

    model: ExportModel
    module: nn.Module
    settings: ExportSettings
    path: Path
    on_progress: OnProgress

    def run(self) -> Exported:
        axes = {} if self.settings.is_static else find_open_axes(self.module, self.model)
        example = make_call(self.module, self.model.feed(self._traced_batch, None))
        outputs = list(run(self.module, example))
        if not outputs:
            raise RidgelineError(
                f"{self.model.name} returns no tensor",
                hint="its forward has to return a tensor, or a list or dictionary of tensors",
            )
        exporters = exporters_for(self.module, self.model.mode, self.settings.opset)
        failures: dict[str, Exception] = {}
        for open_axes, exporter in product([axes, {}] if names_in(axes) else [{}], exporters):
            names = names_in(open_axes)
            attempt = f"{WORDS[exporter]}, {' and '.join(names) + ' open' if names else 'static'}"
            try:
                self.on_progress(f"exporting: {attempt}")
                graph = trace(
                    exporter, self.module, example, open_axes,
                    outputs=outputs, opset=self.settings.opset, mode=self.model.mode,
                )  # fmt: skip
                self.on_progress("writing")
                write(graph, self.path, inline_bytes=self.settings.inline_bytes)
                checks, notes = self._check(graph, open_axes)
            except Exception as error:  # torch's exporters raise anything; the next may work
                failures[attempt] = error
                continue
            notes = [*self._notes(axes, failures), *notes]
            return self._result(graph, exporter, checks, tuple(notes))
        tried = "; ".join(describe_failures(failures))
        hints = [error.hint for error in failures.values() if isinstance(error, RidgelineError)]
        hint = hints[-1] if hints else "--debug shows where it happened"
        problem = f"{self.model.name} cannot be exported: {tried}"
        raise RidgelineError(problem, hint=hint) from next(iter(failures.values()))

    @property
    def _traced_batch(self) -> int:
        is_static = self.settings.is_static
        return self.model.batch_size if is_static else self.model.traced_batch

    def _check(self, graph: onnx_ir.Model, axes: Axes) -> tuple[tuple[CheckResult, ...], list[str]]:
        if not self.settings.is_checked:
            return (), ["not checked"]
        self.on_progress("onnx.checker")
        check_valid(self.path)
        random = sorted({node.op_type for node in graph.graph} & RANDOM)
        if self.model.mode == "train" and random:
            return (), [f"not compared with torch: {', '.join(random)} draws random numbers"]
        session, results = Session(self.path), []
        for batch_size, tokens in self._sizes_to_check(axes):
            self.on_progress(f"onnxruntime and torch, batch {batch_size}")
            call = make_call(self.module, self.model.feed(batch_size, tokens))
            expected, outputs = run(self.module, call), session.run(call.tensors())
            seq_len = tokens or self.model.seq_len
            checked = compare_outputs(expected, outputs, batch_size=batch_size, seq_len=seq_len)
            results.append(checked)
        return tuple(results), []

    def _sizes_to_check(self, axes: Axes) -> list[tuple[int, int | None]]:
        """Batch and tokens: as requested, and where they are open others that were not traced."""
        names = names_in(axes)
        if BATCH not in names:
            return [(self._traced_batch, None)]
        other = self.model.other_seq_len if SEQUENCE in names else None
        return [(self.model.batch_size, None), (self.model.batch_size + 2, other)]

    def _notes(self, axes: Axes, failures: Mapping[str, Exception]) -> list[str]:
        is_fixed = not self.settings.is_static and not names_in(axes)
        notes = [FIXED_BATCH] if is_fixed else []
        notes += describe_failures(failures)
        return [*notes, FORWARD_ONLY] if self.model.mode == "train" else notes

    def _result(
        self,
        graph: onnx_ir.Model,
        exporter: str,
        checks: tuple[CheckResult, ...],
        notes: tuple[str, ...],
    ) -> Exported:
        data = data_file(self.path)
        return Exported(
            model=self.model.name,
            path=self.path,
            mode=self.model.mode,
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


def describe_failures(failures: Mapping[str, Exception]) -> list[str]:
    """The attempts that failed, those of one reason together."""
    attempts: dict[str, list[str]] = {}
    for attempt, error in failures.items():
        attempts.setdefault(_first_reason(error), []).append(attempt)
    return [f"not by {'; '.join(names)}: {reason}" for reason, names in attempts.items()]


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
    buffers = {name: value.clone() for name, value in module.named_buffers()}
    with torch.no_grad(), refuse_downloads():
        answer = module(*call.args, **call.kwargs)
    for name, value in module.named_buffers():  # a batch norm in training moves its statistics
        value.detach().copy_(buffers[name])
    return dict(tensors_in("" if isinstance(answer, dict) else "output", answer))


def trace(
    exporter: str, module: nn.Module, call: Call, axes: Axes, *, outputs: Sequence[str],
    opset: int | None, mode: str,
) -> onnx_ir.Model:  # fmt: skip
    """The module as a graph whose `axes` are open; raises what torch raises."""
    export = _by_dynamo if exporter == DYNAMO else _by_torchscript
    with quiet(), torch.no_grad(), refuse_downloads(), _unfused_attention():
        graph = export(module, call, axes, list(outputs), opset, mode)
    if opset is not None and graph.opset_imports[""] != opset:
        written = graph.opset_imports[""]
        raise RuntimeError(f"torch's {exporter} exporter wrote opset {written}, not {opset}")
    for owner in (graph.graph, *graph.functions.values()):
        for node in owner:
            node.metadata_props.pop(PRIVATE, None)
    return graph


def _by_dynamo(
    module: nn.Module, call: Call, axes: Axes, outputs: list[str], opset: int | None, mode: str
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
    import onnx

    modes = torch.onnx.TrainingMode
    written = io.BytesIO()
    with _without_defaults(module, call):
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


@contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings and graphs that the exporters print; what matters is in our notes."""
    was_off = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), discard_output():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(was_off)


@contextmanager
def discard_output() -> Iterator[None]:
    """Also by code that does not print by way of Python."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = [os.dup(number) for number in (1, 2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            yield
    finally:
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


def check_valid(path: Path) -> None:
    """By onnx's own checker; the weights stay where they are."""
    import onnx

    try:
        onnx.checker.check_model(str(path), full_check=True)
    except Exception as error:
        raise RidgelineError(
            f"onnx.checker refuses the file: {one_line(error)}", hint=NO_CHECK
        ) from error


class Session:
    """The file in onnxruntime, on the CPU."""

    def __init__(self, path: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = FATAL_ONLY
        providers = ["CPUExecutionProvider"]
        self._session = _call_onnxruntime(
            "load", lambda: onnxruntime.InferenceSession(str(path), options, providers=providers)
        )

    def run(self, tensors: Mapping[str, Tensor]) -> list[Array]:
        """The outputs; an input that the graph does not use is left out."""
        names = {port.name for port in self._session.get_inputs()}
        inputs = {name: t.numpy() for name, t in tensors.items() if name in names}
        return list(_call_onnxruntime("run", lambda: self._session.run(None, inputs)))


def _call_onnxruntime(verb: str, call: Callable[[], Any]) -> Any:
    try:
        with discard_output():
            return call()
    except Exception as error:
        text = str(error)
        while (shorter := BEFORE_REASON.sub("", text, count=1)) != text:
            text = shorter
        reason = shorten(text, LONGEST_REASON, placeholder=" …") or type(error).__name__
        raise RidgelineError(
            f"onnxruntime cannot {verb} the file: {reason}", hint=NO_CHECK
        ) from error


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
