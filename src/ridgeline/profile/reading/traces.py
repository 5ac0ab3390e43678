"""Captures with time only, from tools that trace and count nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ridgeline.profile.capture import TEXTS, Capture

TIME_ONLY = "a trace tells time only: no FLOPs and no bytes"


def several(devices: Sequence[str]) -> list[str]:
    """The remark for kernels of more than one device."""
    if len(devices) < 2:
        return []
    return [f"kernels of several devices are added up: {', '.join(devices)}"]


def from_times(
    file: str,
    kind: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    device: str | None = None,
    compute_capability: str | None = None,
    remarks: Sequence[str] = (),
) -> Capture:
    """Rows have kernel, time_s and any of launches, grid, block, stream, id, process_id."""
    import pandas as pd

    table = pd.DataFrame(list(rows))
    columns: dict[str, Any] = {"kernel": table["kernel"]}
    columns["launches"] = table.get("launches", pd.Series(1, index=table.index)).astype("int64")
    columns["time_s"] = table["time_s"].astype(float)
    columns["counter_time_s"] = float("nan")
    for name in TEXTS:
        columns[name] = table[name].fillna("").astype(str) if name in table else ""
    columns["time_source"] = "profiler"
    return Capture(
        file=file,
        kind=kind,
        kernels=pd.DataFrame(columns),
        device=device or (f"CC {compute_capability}" if compute_capability else None),
        compute_capability=compute_capability,
        passes=None,
        metrics=(),
        warnings=(TIME_ONLY, *remarks),
    )
