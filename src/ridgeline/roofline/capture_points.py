"""The points of a capture, made elsewhere or of a program: its kernels, and all of them as one.

Often nobody timed the step around such kernels. The time of the whole is therefore the sum of
theirs, without the time in which no kernel ran.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ridgeline.roofline.floors import add_floors, flops_columns
from ridgeline.roofline.kernel_work import LEVEL_BYTES, find_kernel_work, sum_work
from ridgeline.roofline.points import ALL, Measured, placed_kernels
from ridgeline.roofline.roofs import Roofs

if TYPE_CHECKING:
    import pandas as pd

CAPTURE = "capture"  # the grain of the whole
SAME = ("kernel", "grid", "block", "layer", "phase", "op", "device")
CACHE_BYTES = tuple(name for name in LEVEL_BYTES if name != "dram_bytes")
AMOUNTS = ("launches", "time_s", *LEVEL_BYTES)


def capture_points(
    run_id: str, name: str, roofs: Roofs, kernels: pd.DataFrame
) -> list[tuple[Measured, Roofs, pd.DataFrame]]:
    """Tables of placed pieces, as `points.finished` takes them; launches alike are one kernel."""
    pieces = find_kernel_work(group_identical_launches(kernels))
    known = kernels[is_complete(kernels)]
    if known.empty:  # the work of some kernels must not be set against the bytes of others
        known = _known_of_all(kernels)
    known = _with_whole_caches(known)
    whole = sum_work(
        find_kernel_work(group_identical_launches(known)).assign(grain=CAPTURE), ["grain"]
    )
    whole = whole.assign(name=name, layer="", phase=ALL, kind=CAPTURE)
    found = Measured(run_id=run_id, model=name, mode=CAPTURE, precision="", batch_size=None,
                     label=name, step_time_s=float(whole["time_s"].sum()))  # fmt: skip
    tables = [add_floors(whole, replace(roofs, launch_s={})), placed_kernels(pieces, roofs)]
    tables = [t.assign(headroom_s=t["headroom_s"].where(t["floor_s"].notna())) for t in tables]
    is_counted = "time_source" in kernels and kernels["time_source"].eq("counter").any()
    told = {"provenance": "counter", "time_provenance": "counter" if is_counted else "measured"}
    return [(found, roofs, table.assign(**told)) for table in tables if len(table)]


def _with_whole_caches(kernels: pd.DataFrame) -> pd.DataFrame:
    """Without the bytes of those caches that are known of some kernels alone."""
    partly = [name for name in CACHE_BYTES if name in kernels and kernels[name].isna().any()]
    return kernels.assign(**dict.fromkeys(partly, float("nan")))


def _known_of_all(kernels: pd.DataFrame) -> pd.DataFrame:
    """The kernels with those amounts that are known of each of them."""
    partly = [name for name in _told(kernels) if kernels[name].isna().any()]
    return kernels.assign(**dict.fromkeys(partly, float("nan")))


def group_identical_launches(kernels: pd.DataFrame) -> pd.DataFrame:
    """Launches of the same kernel, grid, block and place as one row; sums of what is known.

    Where all is known of some of them, the others are left out.
    """
    if "launches" not in kernels:
        kernels = kernels.assign(launches=1)
    by = [name for name in SAME if name in kernels]
    amounts = [name for name in (*AMOUNTS, *flops_columns(kernels)) if name in kernels]
    same = kernels.assign(**{name: kernels[name].fillna("") for name in by})
    is_whole = is_complete(same)
    if not is_whole.all():
        some = is_whole.groupby([same[name] for name in by]).transform("any")
        same = same[is_whole | ~some]
    for name in (cache for cache in CACHE_BYTES if cache in same):  # of all alike, or not known
        gaps = same[name].isna()
        if gaps.any():
            same[name] = same[name].mask(gaps.groupby([same[one] for one in by]).transform("any"))
    return same.groupby(by, sort=False)[amounts].sum(min_count=1).reset_index()


def is_complete(kernels: pd.DataFrame) -> pd.Series[bool]:
    """Of which kernels time, FLOPs and bytes are known, as far as they are of any."""
    return kernels[_told(kernels)].notna().all(axis=1)


def _told(kernels: pd.DataFrame) -> list[str]:
    """Amounts that are known of any kernel."""
    names = [name for name in ("time_s", "dram_bytes", *flops_columns(kernels)) if name in kernels]
    return [name for name in names if kernels[name].notna().any()]
