"""Every model of timm, counted without data."""

from __future__ import annotations

from benchmarks import sweep
from benchmarks.report import Report

LIMIT_S = 120.0


def run() -> Report:
    """Count all that `timm.list_models()` names."""
    import timm

    names = [f"timm:{name}" for name in timm.list_models()]
    outcomes = sweep.sweep("timm_sweep", names, limit_s=LIMIT_S)
    title = "Every model of timm, counted without data"
    return sweep.report(title, outcomes, limit_s=LIMIT_S, what="models")
