"""Captures in a results folder: from elsewhere, or of a program that was profiled here."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from ridgeline.captures.capture import BETWEEN_FILES, Capture, sums
from ridgeline.store import ResultsFolder, Run, StoredCapture


def store_capture(results: ResultsFolder, capture: Capture, *, label: str | None) -> Run:
    """Store a capture as a run of the command `import`, with its kernels."""
    from ridgeline.provenance import collect

    files = files_of(capture)
    name = label or Path(files[0]).name
    return results.write_run(
        label=f"import-{name}",
        asked={"command": "import", "files": files, "label": label or ""},
        found=_result(capture),
        provenance=collect(),
        tables={"kernels": capture.kernels},
    )


def files_of(capture: Capture) -> list[str]:
    """The files that a capture was read from."""
    return capture.file.split(BETWEEN_FILES)


def _result(capture: Capture) -> dict[str, Any]:
    """The totals of a capture and all else but its kernels."""
    return {
        "status": "ok",
        "provenance": "imported",
        "device_name": capture.device,
        "compute_capability": capture.compute_capability,
        "backend": "cuda",
        "kind": capture.kind,
        "totals": sums(capture.kernels),
        "kernel_time_s": capture.kernel_time_s,
        "launches": capture.launches,
        "passes": capture.passes,
        "metrics": list(capture.metrics),
        "warnings": list(capture.warnings),
    }


def sources_of(run: StoredCapture) -> list[str]:
    """The files of a stored capture, or the command line of a program.

    Programs were once stored as if they had been imported, their command line as the one file.
    """
    return [shlex.join(run.request.program)] if run.request.program else list(run.request.files)
