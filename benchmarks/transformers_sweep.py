"""Every model type of transformers that can be built offline, at its default size."""

from __future__ import annotations

from benchmarks import sweep
from benchmarks.report import Report

LIMIT_S = 60.0


def run() -> Report:
    """Count every type that ridgeline lists."""
    import ridgeline

    names = [name for name, source, _ in ridgeline.list_models() if source == "transformers"]
    outcomes = sweep.sweep("transformers_sweep", names, limit_s=LIMIT_S)
    title = "Every model type of transformers, at its default size"
    return sweep.report(title, outcomes, limit_s=LIMIT_S, what="model types")
