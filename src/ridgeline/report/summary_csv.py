"""One row for each step and each imported capture: where it stands under its roofs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ridgeline.report.study import Study
from ridgeline.report.tables import SEED_COLUMNS, points_csv, with_whole_numbers
from ridgeline.store import atomic_write_text

if TYPE_CHECKING:
    import pandas as pd

WHOLE = ("step", "capture")
COLUMNS = (
    *SEED_COLUMNS, "grain", "provenance", "launches", "flops", "dram_bytes", "time_s", "floor_s",
    "bound", "efficiency", "headroom_s", "roof_source", "flag", "note",
    "run_id",
)  # fmt: skip


def summary_csv(study: Study) -> pd.DataFrame:
    """Steps by count and, where there are counters, by these; captures. `time_s` of a capture is
    the sum of its kernels' times."""
    points = points_csv(study)
    return points.loc[points["grain"].isin(WHOLE), list(COLUMNS)]


def write_summary(study: Study, path: Path) -> Path:
    """Write the summary where the user says."""
    atomic_write_text(
        path, with_whole_numbers(summary_csv(study)).to_csv(index=False), elsewhere="--summary FILE"
    )
    return path
