"""The point of a capture: the work of kernels over the time of the same kernels."""

from __future__ import annotations

from math import isnan, nan

import pandas as pd
import pytest

from ridgeline.roofline.points import (
    find_capture_floors,
    group_identical_launches,
    is_complete,
    join_points,
)
from ridgeline.roofline.roofs import user_roofs

ROOFS = user_roofs("here", "cpu", compute={"fp32": 67e12}, dram_bytes_per_s=4e12)


def kernels(*, times: list[float], flops: list[float], moved: list[float]) -> pd.DataFrame:
    """Kernels a, b, c, …"""
    names = [chr(ord("a") + n) for n in range(len(times))]
    return pd.DataFrame({"kernel": names, "launches": 1, "time_s": times, "flops_fp32_vector":
                         flops, "dram_bytes": moved})  # fmt: skip


def whole(table: pd.DataFrame) -> dict[str, float]:
    """The point of all kernels."""
    placed = [t for _, _, t in find_capture_floors("id", "it", ROOFS, table)]
    [row] = [r for t in placed for r in t.to_dict("records") if r["grain"] == "capture"]
    return {name: float(row[name]) for name in ("time_s", "flops", "dram_bytes", "launches")}


@pytest.mark.parametrize(
    ("times", "flops", "moved"),
    [
        ([1e-5, nan], [1e9, 1e9], [1e6, 1e6]),
        ([1e-5, 1e-5], [1e9, nan], [1e6, 1e6]),
        ([1e-5, 1e-5], [1e9, 1e9], [1e6, nan]),
    ],
)
def test_a_kernel_with_a_gap_is_left_out(
    times: list[float], flops: list[float], moved: list[float]
) -> None:
    table = kernels(times=times, flops=flops, moved=moved)
    assert is_complete(table).tolist() == [True, False]
    assert whole(table) == {"time_s": 1e-5, "flops": 1e9, "dram_bytes": 1e6, "launches": 1}


def test_where_no_kernel_has_everything_there_is_no_rate() -> None:
    table = kernels(times=[1e-5, nan], flops=[nan, 1e9], moved=[1e6, 1e6])
    assert isnan(whole(table)["time_s"])
    # and work of one kernel is not set against the bytes of another
    found = whole(kernels(times=[1e-5, 2e-5], flops=[1e9, nan], moved=[nan, 1e6]))
    assert found["time_s"] == pytest.approx(3e-5)
    assert isnan(found["flops"])
    assert isnan(found["dram_bytes"])


def test_launches_of_one_kernel_with_gaps() -> None:
    # given three launches of a, one without a time, and one of b, which has none
    table = kernels(times=[1.0, nan, 3.0, nan], flops=[10, 10, 10, 5], moved=[1, 1, 1, 1])
    table = table.assign(kernel=["a", "a", "a", "b"])
    a, b = group_identical_launches(table).to_dict("records")
    assert (a["launches"], a["time_s"], a["flops_fp32_vector"]) == (2, 4.0, 20)
    assert b["flops_fp32_vector"] == 5
    assert isnan(b["time_s"])


def test_bytes_of_a_cache_are_of_all_kernels_or_not_known() -> None:
    # given two kernels of which all is known but the bytes of L1 of one
    table = kernels(times=[1e-5, 2e-5], flops=[1e9, 3e9], moved=[1e6, 1e6])
    table["l1_bytes"] = [5e6, nan]
    # then neither is left out
    assert is_complete(table).all()
    found = whole(table)
    assert (found["flops"], found["launches"]) == (4e9, 2)
    [placed] = [t for _, _, t in find_capture_floors("id", "it", ROOFS, table) if len(t) == 1]
    assert isnan(placed["l1_bytes"].item())


def test_work_without_a_roof_has_no_floor() -> None:
    # given roofs down to fp32, and a kernel that also works on int4, which may be faster
    table = kernels(times=[1e-5], flops=[1e6], moved=[1e6]).assign(flops_int4_matrix=1e10)
    points = join_points(find_capture_floors("id", "it", ROOFS, table))
    unknown = ["floor_s", "efficiency", "headroom_s"]
    assert points[unknown].isna().all().all()
    assert points["peak_flops_per_s"].tolist() == pytest.approx([67e12, 67e12])  # of its fp32 work
    assert points["bound"].isna().all()
