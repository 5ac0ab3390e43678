"""Captures with time only, from tools that trace and count nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ridgeline.profile.capture import TEXTS, Capture

TIME_ONLY = "a trace tells time only: no FLOPs and no bytes"


def several(devices: Sequence[str], called: str = "") -> list[str]:
    """The remark for kernels of more than one device."""
    if len(devices) < 2:
        return []
    return [f"kernels of several devices are added up: {called}{', '.join(devices)}"]


def device_of_all(names: Collection[str], capabilities: Collection[str] = ()) -> str | None:
    """What all kernels ran on: a name, or "CC 9.0" where only that is told; nothing of several."""
    if len(names) > 1 or len(capabilities) > 1:
        return None
    return next(iter((*names, *(f"CC {capability}" for capability in capabilities))), None)


def from_times(
    file: str,
    kind: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    device: str | None = None,
    compute_capability: str | None = None,
    remarks: Sequence[str] = (),
) -> Capture:
    """Rows have kernel, time_s and any of launches, grid, block, stream, id, process_id, device."""
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
        device=device,
        compute_capability=compute_capability,
        passes=None,
        metrics=(),
        warnings=(TIME_ONLY, *remarks),
    )
