"""Imported captures in a results folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ridgeline.profile.capture import Capture, sums
from ridgeline.store import ResultsFolder, Run


def keep(results: ResultsFolder, capture: Capture, *, label: str | None) -> Run:
    """Store a capture as a run of the command `import`, with its kernels."""
    from ridgeline.provenance import collect

    files = files_of(capture)
    name = label or Path(files[0]).name
    return results.write_run(
        label=f"import-{name}",
        asked={"command": "import", "files": files, "label": label or ""},
        found=found(capture),
        provenance=collect(),
        tables={"kernels": capture.kernels},
    )


def files_of(capture: Capture) -> list[str]:
    """The files that a capture was read from."""
    from ridgeline.profile.reading.joining import BETWEEN

    return capture.file.split(BETWEEN)


def found(capture: Capture) -> dict[str, Any]:
    """What the capture tells, without its kernels."""
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
