"""Where pieces of work stand under their roofs: the arithmetic of the roofline.

A piece has FLOPs by roof (columns `flops_fp16_matrix`, `flops_fp32_vector`, …), bytes by memory
level (`dram_bytes`, `l3_bytes`, `l2_bytes`, `l1_bytes`), `launches`, and `time_s` where it was
measured. Then, with the roofs of a device,

    compute_s = Σ over precisions F_p / peak_p
    LEVEL_s   = B_level / bandwidth_level
    launch_s  = launches · launch cost
    floor_s   = the largest of them, and `bound` its name
    efficiency = floor_s / time_s,   headroom_s = time_s − floor_s

What is not known (a level without bytes or without a roof) takes no part. A static piece knows its
bytes as a range: `least_bytes` are those that must come from DRAM even if a cache helps; where
that column has a value, the floor uses it instead of `dram_bytes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.roofline.roofs import LEVELS, Roofs

if TYPE_CHECKING:
    import pandas as pd

FLOPS_PREFIX = "flops_"
BOUNDS = ("compute", *LEVELS, "launch")


def roof_of(column: str) -> tuple[str, str]:
    """The precision and path of a FLOPs column: `flops_fp16_matrix` → fp16, matrix."""
    precision, _, path = column.removeprefix(FLOPS_PREFIX).rpartition("_")
    return precision, path


def flops_column(precision: str, path: str) -> str:
    return f"{FLOPS_PREFIX}{precision}_{path}"


def flops_columns(pieces: pd.DataFrame) -> list[str]:
    """The columns that hold FLOPs of one roof; `flops_…` columns of other meaning are not."""
    return [
        name
        for name in pieces.columns
        if str(name).startswith(FLOPS_PREFIX) and str(name).endswith(("_matrix", "_vector"))
    ]


def place(pieces: pd.DataFrame, roofs: Roofs, *, is_graph: bool = False) -> pd.DataFrame:
    """The pieces with their floors, bounds, efficiencies and headrooms; nothing else changes."""
    import numpy as np
    import pandas as pd

    terms = pd.DataFrame(index=pieces.index, dtype=float)
    terms["compute"] = _compute_s(pieces, roofs)
    for level in LEVELS:
        terms[level] = _memory_s(pieces, roofs, level)
    terms["launch"] = _launch_s(pieces, roofs.launch(is_graph=is_graph))
    placed = pieces.copy()
    for name in BOUNDS:
        placed[f"{name}_s"] = terms[name]
    floor_s = terms.max(axis=1, skipna=True)
    has_floor = floor_s.notna() & (floor_s > 0)
    placed["floor_s"] = floor_s.where(has_floor)
    filled = terms.fillna(-1.0).to_numpy()
    names = np.array(BOUNDS, dtype=object)[filled.argmax(axis=1)] if len(terms) else []
    placed["bound"] = pd.Series(names, index=pieces.index, dtype=object).where(has_floor, None)
    time_s = pieces["time_s"].astype(float)
    known = time_s.where(time_s > 0)
    placed["efficiency"] = placed["floor_s"] / known
    placed["headroom_s"] = known - placed["floor_s"].fillna(0.0)
    return placed


def _compute_s(pieces: pd.DataFrame, roofs: Roofs) -> pd.Series:
    """Σ F_p / peak_p; unknown where no FLOPs of any precision are known, or no roof is."""
    import pandas as pd

    columns = flops_columns(pieces)
    total = pd.Series(float("nan"), index=pieces.index, dtype=float)
    for column in columns:
        peak = roofs.peak(*roof_of(column))
        if peak:
            part = pieces[column].astype(float) / peak
            total = total.add(part, fill_value=0.0)
    return total


def _memory_s(pieces: pd.DataFrame, roofs: Roofs, level: str) -> pd.Series:
    import pandas as pd

    rate, column = roofs.bandwidth.get(level), f"{level}_bytes"
    if not rate or column not in pieces:
        return pd.Series(float("nan"), index=pieces.index, dtype=float)
    moved = pieces[column].astype(float)
    if level == "dram" and "least_bytes" in pieces:
        moved = pieces["least_bytes"].astype(float).fillna(moved)
    return moved / rate


def _launch_s(pieces: pd.DataFrame, each_s: float | None) -> pd.Series:
    import pandas as pd

    if each_s is None or "launches" not in pieces:
        return pd.Series(float("nan"), index=pieces.index, dtype=float)
    return pieces["launches"].astype(float) * each_s
