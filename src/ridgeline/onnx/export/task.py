"""What a process of its own does: export one model to a draft."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ridgeline.onnx.export.result import Exported
from ridgeline.onnx.export.settings import ExportSettings
from ridgeline.records import WorkloadSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportTask:
    """A model by name, and where its file is written."""

    spec: WorkloadSpec
    settings: ExportSettings
    draft: Path


def export_task(task: ExportTask, send: Callable[[str], None]) -> Exported:
    """Export; `send` gets the name of each step."""
    from ridgeline.onnx.export.attempts import export
    from ridgeline.onnx.export.subject import named_subject

    send("importing")
    return export(named_subject(task.spec), task.settings, task.draft, send)
