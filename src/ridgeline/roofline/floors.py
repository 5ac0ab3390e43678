"""Floors of work items under their roofs: the arithmetic of the roofline.

A work item has FLOPs by roof (columns `flops_fp16_matrix`, `flops_fp32_vector`, …), bytes by memory
level (`dram_bytes`, `l3_bytes`, `l2_bytes`, `l1_bytes`), `launches`, and `time_s` where it was
measured. Then, with the roofs of a device,

    compute_s = Σ over precisions F_p / peak_p
    LEVEL_s   = B_level / bandwidth_level
    launch_s  = launches · launch cost
    floor_s   = the largest of them, and `bound` its name
    efficiency = floor_s / time_s,   headroom_s = time_s − floor_s

What is not known (a level without bytes or without a roof) takes no part; work that has no roof of
its own or as a stand-in leaves an item without a floor. An item that is known to have no work has
none either, and all of its time is headroom. A static item knows its bytes as a range:
`least_bytes` are those that DRAM must deliver even if the last cache keeps what fits in it; where
that column has a value, the floor uses it instead of `dram_bytes`.
"""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING

from ridgeline.roofline.roofs import LEVELS, Roofs

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    Numbers = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

FLOPS_PREFIX = "flops_"
BOUNDS = ("compute", *LEVELS, "launch")
UNROOFED = 0.01  # of the FLOPs that have a roof: what others may come to beside them


def roof_of(column: str) -> tuple[str, str]:
    """The precision and path of a FLOPs column: `flops_fp16_matrix` → fp16, matrix."""
    precision, _, path = column.removeprefix(FLOPS_PREFIX).rpartition("_")
    return precision, path


def flops_column(precision: str, path: str) -> str:
    return f"{FLOPS_PREFIX}{precision}_{path}"


def flops_columns(work: pd.DataFrame) -> list[str]:
    """The columns that hold FLOPs of one roof; `flops_…` columns of other meaning are not."""
    return [
        name
        for name in work.columns
        if str(name).startswith(FLOPS_PREFIX) and str(name).endswith(("_matrix", "_vector"))
    ]


def add_floors(work: pd.DataFrame, roofs: Roofs, *, is_graph: bool = False) -> pd.DataFrame:
    """The work with its floors, bounds, efficiencies and headrooms; nothing else changes."""
    import numpy as np

    each_s = roofs.launch(is_graph=is_graph)
    terms = np.column_stack(
        [
            _compute_s(work, roofs),
            *(_memory_s(work, roofs, level) for level in LEVELS),
            _numbers(work, "launches") * (nan if each_s is None else each_s),
        ]
    )
    roofed = _roofed_flops(work, roofs)
    filled = np.nan_to_num(terms, nan=-1.0)
    floor_s = filled.max(axis=1)  # -1: nothing is known
    is_unroofed = _numbers(work, "flops") - roofed > UNROOFED * roofed
    has_floor, is_idle = (floor_s > 0) & ~is_unroofed, (floor_s == 0) & ~is_unroofed
    floor_s = np.where(has_floor, floor_s, np.nan)
    bound = np.array(BOUNDS, dtype=object)[filled.argmax(axis=1)]
    bound[~has_floor] = None
    time_s = _numbers(work, "time_s")
    time_s = np.where(time_s > 0, time_s, np.nan)
    return work.assign(
        **{f"{name}_s": terms[:, number] for number, name in enumerate(BOUNDS)},
        roofed_flops=roofed,
        floor_s=floor_s,
        bound=bound,
        efficiency=floor_s / time_s,
        headroom_s=time_s - np.where(is_idle, 0.0, floor_s),
    )


def _numbers(work: pd.DataFrame, column: str) -> Numbers:
    """A column as floats; not a number where it is absent."""
    import numpy as np

    if column not in work:
        return np.full(len(work), np.nan)
    return work[column].to_numpy(dtype=float, na_value=np.nan)


def _compute_s(work: pd.DataFrame, roofs: Roofs) -> Numbers:
    """Σ F_p / peak_p; unknown where no FLOPs of any precision are known, or no roof is."""
    import numpy as np

    total, is_known = np.zeros(len(work)), np.zeros(len(work), dtype=bool)
    for column in flops_columns(work):
        peak = roofs.peak(*roof_of(column))
        if peak:
            part = _numbers(work, column) / peak
            is_known |= ~np.isnan(part)
            total += np.nan_to_num(part)
    return np.where(is_known, total, np.nan)


def _roofed_flops(work: pd.DataFrame, roofs: Roofs) -> Numbers:
    """The FLOPs for which a roof is known; all of them where none is."""
    import numpy as np

    columns = flops_columns(work)
    known = [column for column in columns if roofs.peak(*roof_of(column))]
    if not roofs.flats or not columns or len(known) == len(columns):
        return _numbers(work, "flops")
    return np.array(work[known].astype(float).sum(axis=1).to_numpy())


def _memory_s(work: pd.DataFrame, roofs: Roofs, level: str) -> Numbers:
    import numpy as np

    moved = _numbers(work, f"{level}_bytes")
    if level == "dram" and "least_bytes" in work:
        least = _numbers(work, "least_bytes")
        moved = np.where(np.isnan(least), moved, least)
    return moved / roofs.bandwidth.get(level, np.nan)
