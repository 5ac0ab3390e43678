"""`ridgeline export`: a model by name to an ONNX file, in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ridgeline.errors import RidgelineError
from ridgeline.measure.isolation import run_isolated, stdout_to_stderr
from ridgeline.measure.worker import torch_needed
from ridgeline.onnx.export import (
    Exported,
    ExportSettings,
    check_packages,
    destination,
)
from ridgeline.records import WorkloadSpec
from ridgeline.workloads.sources import ONNX_ENDING, is_onnx

STEPS = 8  # of which `on_progress` hears when all goes well
ExportTask = tuple[WorkloadSpec, ExportSettings, Path]  # the path is that of the draft


def default_path(model: str) -> Path:
    """The file of a model in the working directory."""
    name = "".join(c if c.isalnum() or c in "._-" else "_" for c in model)
    return Path(f"{name}{ONNX_ENDING}")


def check_export(spec: WorkloadSpec, settings: ExportSettings) -> None:
    """Refuse what cannot be exported before any work."""
    check_packages(settings)
    if is_onnx(spec.model):
        raise RidgelineError(
            f"{spec.model} is an ONNX file already",
            hint="name a PyTorch model; `ridgeline count FILE.onnx` counts a file",
        )


def export_model(
    spec: WorkloadSpec,
    settings: ExportSettings,
    path: Path,
    on_progress: Callable[[str], None],
    *,
    force: bool = False,
    in_process: bool = False,
) -> Exported:
    """Write and check the file. There is a whole one afterwards or none, whatever happens."""
    with destination(path, force=force) as target:
        task = (spec, settings, target.draft)
        if in_process:
            with torch_needed(), stdout_to_stderr():
                exported = run_export_task(task, on_progress)
        else:
            outcome = run_isolated(run_export_task, task, on_progress)
            if (failure := outcome.failure) is not None and not failure.is_input:
                raise RidgelineError(
                    f"{spec.model} cannot be exported: {failure.reason}",
                    hint="the weights are needed twice: try a smaller model, --batch-size or"
                    " --no-check"
                    if failure.is_out_of_memory
                    else "--debug shows where it happened",
                )
            exported = outcome.value()
        target.commit()
    return exported.at(path)


def run_export_task(task: ExportTask, on_progress: Callable[[str], None]) -> Exported:
    """Export a model; `on_progress` gets the name of each step."""
    on_progress("importing")
    from ridgeline.onnx.export.checked import export_model as export_and_check
    from ridgeline.onnx.export.model_inputs import model_by_name

    spec, settings, draft = task
    return export_and_check(model_by_name(spec), settings, draft, on_progress)
