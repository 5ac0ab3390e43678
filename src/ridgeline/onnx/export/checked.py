"""Export by the first of torch's exporters whose file passes the checks.

The checks are onnx.checker, and onnxruntime beside torch on the same input, at two batch sizes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ridgeline.errors import RidgelineError
from ridgeline.onnx.export.exporters import (
    DYNAMO,
    DYNAMO_OLDEST_OPSET,
    TORCHSCRIPT,
    Traced,
    discard_output,
    ports,
    run,
    trace,
    write,
)
from ridgeline.onnx.export.model_inputs import (
    BATCH,
    SEQUENCE,
    Axes,
    ExportModel,
    find_open_axes,
    make_call,
    names_in,
)
from ridgeline.onnx.export.records import (
    CheckResult,
    Exported,
    ExportSettings,
    check_opset,
    data_file,
)
from ridgeline.workloads.workload import one_line

OnProgress = Callable[[str], None]
Array = np.ndarray[Any, Any]

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
                traced = trace(
                    exporter, self.module, example, open_axes,
                    outputs=outputs, opset=self.settings.opset, mode=self.model.mode,
                )  # fmt: skip
                self.on_progress("writing")
                write(traced, self.path, inline_bytes=self.settings.inline_bytes)
                checks, notes = self._check(traced, open_axes)
            except Exception as error:  # torch's exporters raise anything; the next may work
                failures[attempt] = error
                continue
            return self._result(traced, checks, [*self._notes(axes, failures), *notes])
        raise self._error(failures)

    @property
    def _traced_batch(self) -> int:
        is_static = self.settings.is_static
        return self.model.batch_size if is_static else self.model.traced_batch

    def _check(self, traced: Traced, axes: Axes) -> tuple[tuple[CheckResult, ...], list[str]]:
        if not self.settings.is_checked:
            return (), ["not checked"]
        self.on_progress("onnx.checker")
        check_valid(self.path)
        random = sorted(traced.operators() & RANDOM)
        if self.model.mode == "train" and random:
            return (), [f"not compared with torch: {', '.join(random)} draws random numbers"]
        return self._compare_with_torch(axes), []

    def _compare_with_torch(self, axes: Axes) -> tuple[CheckResult, ...]:
        session, found = Session(self.path), []
        for batch_size, tokens in self._sizes_to_check(axes):
            self.on_progress(f"onnxruntime and torch, batch {batch_size}")
            call = make_call(self.module, self.model.feed(batch_size, tokens))
            expected, outputs = run(self.module, call), session.run(call.tensors())
            tokens = tokens or self.model.seq_len
            found.append(compare_outputs(expected, outputs, batch_size=batch_size, seq_len=tokens))
        return tuple(found)

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
        self, traced: Traced, checks: tuple[CheckResult, ...], notes: list[str]
    ) -> Exported:
        data = data_file(self.path)
        return Exported(
            model=self.model.name,
            path=self.path,
            mode=self.model.mode,
            exporter=traced.exporter,
            opset=traced.opset,
            nodes=traced.nodes,
            inputs=ports(traced.graph.graph.inputs),
            outputs=ports(traced.graph.graph.outputs),
            file_bytes=self.path.stat().st_size,
            data_bytes=data.stat().st_size if data.exists() else 0,
            checks=checks,
            notes=tuple(notes),
        )

    def _error(self, failures: Mapping[str, Exception]) -> RidgelineError:
        tried = "; ".join(describe_failures(failures))
        hints = [error.hint for error in failures.values() if isinstance(error, RidgelineError)]
        hint = hints[-1] if hints else "--debug shows where it happened"
        error = RidgelineError(f"{self.model.name} cannot be exported: {tried}", hint=hint)
        error.__cause__ = next(iter(failures.values()))
        return error


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
