"""A model as an ONNX file, checked before it is moved to its place.

    records.py      the settings, the result, and the file: written beside its place, then moved
    model_inputs.py a model and its inputs at any batch and sequence length; its open axes
    exporters.py    torch's two exporters, and the graph that they write
    checked.py      export with the first exporter whose file passes the checks

Importing this package imports neither torch nor onnx.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ridgeline.onnx.export.records import CheckResult, Exported, ExportSettings, Port, destination
from ridgeline.records import WorkloadSpec

__all__ = [
    "CheckResult",
    "ExportSettings",
    "ExportTask",
    "Exported",
    "Port",
    "destination",
    "run_export_task",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportTask:
    """A model by name, and where its file is written; for a process of its own."""

    spec: WorkloadSpec
    settings: ExportSettings
    draft: Path


def run_export_task(task: ExportTask, on_progress: Callable[[str], None]) -> Exported:
    """Export a model; `on_progress` gets the name of each step."""
    on_progress("importing")
    from ridgeline.onnx.export.checked import export_model
    from ridgeline.onnx.export.model_inputs import model_by_name

    return export_model(model_by_name(task.spec), task.settings, task.draft, on_progress)
