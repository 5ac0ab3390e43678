"""Points and findings of one run, from tables that are written by hand."""

from __future__ import annotations

from typing import Any

import pandas as pd

from ridgeline.findings import COLUMNS, find_rows
from ridgeline.report.text import records
from ridgeline.roofline.points import (
    CountedStep,
    MeasuredStep,
    find_run_floors,
    group_static_work,
    join_points,
)
from ridgeline.roofline.roofs import Roofs


def run_points(
    measured: MeasuredStep,
    roofs: Roofs,
    *,
    counted: CountedStep | None = None,
    layers: pd.DataFrame | None = None,
    kernels: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """All points of a run."""
    static = None if counted is None else group_static_work(
        counted, roofs, precision=measured.precision, parts=measured.parts,
        is_compiled=measured.is_compiled,
    )  # fmt: skip
    tables = find_run_floors(measured, roofs, static, layers, kernels)
    return join_points([(measured, roofs, table) for table in tables])


def make_step(**changes: Any) -> MeasuredStep:
    """A measured step of 30 ms in fp32."""
    known = {"run_id": "r", "model": "net", "mode": "train", "precision": "fp32", "batch_size": 8}
    return MeasuredStep(**{**known, "step_time_s": 0.03, **changes})


def find(points: pd.DataFrame, step: MeasuredStep, roofs: Roofs, *, most: int = 10) -> pd.DataFrame:
    """The findings of one run as a table."""
    return pd.DataFrame(find_rows(records(points), step, roofs, most=most), columns=[*COLUMNS])
