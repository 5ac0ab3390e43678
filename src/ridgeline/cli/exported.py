"""The work behind `ridgeline export`, and what it prints."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ridgeline.cli.progress import progress_bar
from ridgeline.errors import RidgelineError
from ridgeline.measure.isolation import Failure, run_isolated, stdout_to_stderr
from ridgeline.measure.worker import torch_needed
from ridgeline.onnx.export import (
    CheckResult,
    Exported,
    ExportSettings,
    ExportTask,
    destination,
    run_export_task,
)
from ridgeline.plain import plain_text
from ridgeline.records import WorkloadSpec
from ridgeline.units import format_bytes
from ridgeline.workloads.sources import ONNX_ENDING

SCHEMA = 1  # of the JSON form
STEPS = 8  # that are told of when all goes well


def run(
    spec: WorkloadSpec, settings: ExportSettings, output: Path | None, *,
    force: bool, as_json: bool, quiet: bool, debug: bool,
) -> None:  # fmt: skip
    """Export and show; with JSON an error is there too."""
    path = output if output is not None else Path(f"{safe_name(spec.model)}{ONNX_ENDING}")
    try:
        with progress_bar(STEPS, quiet=quiet, first="starting") as step:
            done = _export(spec, settings, path, step, force=force, debug=debug)
    except RidgelineError as error:
        if as_json:
            _print_json({"error": {"problem": error.problem, "hint": error.hint}})
        raise
    if as_json:
        _print_json({"exported": done.to_dict()})
    else:
        print("\n".join(plain_text(line) for line in lines(done)))
    if not quiet and not as_json and spec.mode != "train":  # which has no count to go with
        print(f"next: {next_command(spec, path)}", file=sys.stderr)


def next_command(spec: WorkloadSpec, path: Path) -> str:
    """How the file is compared with what it was made from, the same size and configuration."""
    command = ["ridgeline", "count", spec.model, "--compare-onnx", str(path)]
    if spec.input_size is not None:
        command += ["--input-size", ",".join(map(str, spec.input_size))]
    if spec.seq_len is not None:
        command += ["--seq-len", str(spec.seq_len)]
    if spec.config:
        values = dict(spec.config)
        file = values.get("config_file")
        command += ["--config", str(file or ",".join(f"{k}={v}" for k, v in values.items()))]
    return shlex.join(command)


def safe_name(model: str) -> str:
    """A model's name as the name of a file."""
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in model)


def _export(
    spec: WorkloadSpec, settings: ExportSettings, path: Path, step: Callable[[str], None], *,
    force: bool, debug: bool,
) -> Exported:  # fmt: skip
    """The draft is made elsewhere; it is moved and cleared away here, whatever happens there."""
    with destination(path, force=force) as place:
        task = ExportTask(spec=spec, settings=settings, draft=place.draft)
        if debug:
            with torch_needed(), stdout_to_stderr():
                done = run_export_task(task, step)
        else:
            outcome = run_isolated(run_export_task, task, step)
            if outcome.failure is not None:
                raise _error(spec.model, outcome.failure)
            done = outcome.value()
        place.commit()
    return done.at(path)


def _error(model: str, failure: Failure) -> RidgelineError:
    if failure.is_input:
        return failure.error()
    if failure.is_out_of_memory:
        hint = "the weights are needed twice: try a smaller model, --batch-size or --no-check"
    else:
        hint = "--debug shows where it happened"
    return RidgelineError(f"{model} cannot be exported: {failure.reason}", hint=hint)


def _print_json(content: dict[str, Any]) -> None:
    print(json.dumps({"schema": SCHEMA, **content}, indent=2))


def _compared(check: CheckResult) -> str:
    if not check.numbers:
        return "nothing was compared: no output has a finite number, in onnxruntime or in torch"
    return (
        f"onnxruntime and torch differ by at most {check.absolute:.2g},"
        f" {check.relative:.2g} of the largest value"
    )


def lines(done: Exported) -> list[str]:
    """The file, what goes in and out, how far it is from torch, and what was not possible."""
    weights = f" and {done.data_path} {format_bytes(done.data_bytes)}" if done.data_path else ""
    found = [
        f"{done.path} {format_bytes(done.file_bytes)}{weights}:"
        f" opset {done.opset}, {done.nodes} nodes, {done.mode}, {done.exporter} exporter"
    ]
    found += [f"  input   {port}" for port in done.inputs]
    found += [f"  output  {port}" for port in done.outputs]
    for check in done.checks:
        tokens = f", {check.seq_len} tokens" if check.seq_len else ""
        found.append(f"  check   batch {check.batch_size}{tokens}: {_compared(check)}")
    return [*found, *(f"note: {note}" for note in done.notes)]
