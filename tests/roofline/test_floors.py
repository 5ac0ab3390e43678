"""Floors, bounds, efficiencies and headrooms, against numbers worked out by hand."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.roofline.floors import add_floors, flops_columns, roof_of
from ridgeline.roofline.roofs import Roofs

# Three machines with round numbers.
LAPTOP = Roofs(
    env="laptop", device="cpu", compute={"fp32 vector": 1e11, "fp32 matrix": 8e10},
    bandwidth={"dram": 5e10, "l3": 2e11}, launch_s={"eager dispatch": 1e-6},
)  # fmt: skip
CARD = Roofs(
    env="card", device="cuda:0",
    compute={"fp32 vector": 2e13, "tf32 matrix": 1e14, "fp16 matrix": 2e14},
    bandwidth={"dram": 1e12, "l2": 4e12, "l1": 1.6e13},
    launch_s={"kernel": 5e-6, "graph replay": 1e-6},
)  # fmt: skip
BARE = Roofs(env="bare", device="cuda:0", compute={"fp32 matrix": 1e13}, bandwidth={"dram": 5e11})

# machine, FLOPs and bytes, launches, time → terms worked out by hand, floor, bound
BY_HAND = [
    # 1e11 FLOP at 1e11 FLOP/s: 1 s; 1e10 B at 5e10 B/s: 0.2 s
    (LAPTOP, {"flops_fp32_matrix": 1e11, "dram_bytes": 1e10}, 4.0, 1.0, "compute"),
    # the same FLOPs with ten times the bytes: 2 s
    (LAPTOP, {"flops_fp32_matrix": 1e11, "dram_bytes": 1e11}, 4.0, 2.0, "dram"),
    # 4e10 B through L3 at 2e11 B/s: 0.2 s; only 5e9 B of them from DRAM: 0.1 s
    (LAPTOP, {"dram_bytes": 4e10, "least_bytes": 5e9, "l3_bytes": 4e10}, 0.5, 0.2, "l3"),
    # a million dispatches of 1 µs: 1 s
    (LAPTOP, {"flops_fp32_vector": 1e9, "dram_bytes": 1e9, "launches": 10**6}, 2.0, 1.0, "launch"),
    # mixed precision adds up: 2e14 fp16 products take 1 s, 2e13 fp32 FLOPs another
    (CARD, {"flops_fp16_matrix": 2e14, "flops_fp32_vector": 2e13, "dram_bytes": 1e12}, 4.0, 2.0,
     "compute"),
    # tf32 products have their own roof: 1e13 / 1e14
    (CARD, {"flops_tf32_matrix": 1e13, "dram_bytes": 1e10}, 0.2, 0.1, "compute"),
    # each memory level against its own slope: 0.1 s, 0.5 s, 0.25 s
    (CARD, {"flops_fp16_matrix": 2e12, "dram_bytes": 1e11, "l2_bytes": 2e12, "l1_bytes": 4e12},
     1.0, 0.5, "l2"),
    (CARD, {"flops_fp16_matrix": 2e12, "dram_bytes": 1e11, "l2_bytes": 2e11, "l1_bytes": 1.6e13},
     2.0, 1.0, "l1"),
    # 600 kernels of 5 µs: 3 ms of a step of 12 ms
    (CARD, {"flops_fp16_matrix": 2e11, "dram_bytes": 1e9, "launches": 600}, 0.012, 0.003, "launch"),
    # no launch cost known, and bytes without a roof of their level take no part
    (BARE, {"flops_fp32_matrix": 1e13, "dram_bytes": 1e11, "l2_bytes": 9e15, "launches": 10**9},
     1.25, 1.0, "compute"),
]  # fmt: skip


@pytest.mark.parametrize(("roofs", "work", "time_s", "floor_s", "bound"), BY_HAND)
def test_ten_points_under_three_machines(
    roofs: Roofs, work: dict[str, float], time_s: float, floor_s: float, bound: str
) -> None:
    # when floors are added
    placed = add_floors(pd.DataFrame([{**work, "time_s": time_s}]), roofs).iloc[0]
    # then its floor, bound, efficiency and headroom are those worked out by hand
    assert placed["floor_s"] == pytest.approx(floor_s, rel=1e-12)
    assert placed["bound"] == bound
    assert placed["efficiency"] == pytest.approx(floor_s / time_s, rel=1e-12)
    assert placed["headroom_s"] == pytest.approx(time_s - floor_s, rel=1e-12)


def test_a_graph_launches_for_less() -> None:
    work = pd.DataFrame([{"launches": 1000, "time_s": 0.1, "flops_fp16_matrix": 1.0}])
    assert add_floors(work, CARD)["launch_s"].item() == pytest.approx(5e-3)
    assert add_floors(work, CARD, is_graph=True)["launch_s"].item() == pytest.approx(1e-3)


def test_what_was_not_timed_has_a_floor_and_no_efficiency() -> None:
    placed = add_floors(pd.DataFrame([{"flops_fp32_matrix": 1e11, "time_s": None}]), LAPTOP).iloc[0]
    assert placed["floor_s"] == pytest.approx(1.0)
    assert placed["bound"] == "compute"
    assert pd.isna(placed["efficiency"])
    assert pd.isna(placed["headroom_s"])


def test_nothing_known_is_no_floor() -> None:
    placed = add_floors(pd.DataFrame([{"time_s": 1.0}]), LAPTOP).iloc[0]
    assert placed[["floor_s", "bound", "efficiency", "headroom_s"]].isna().all()
    assert add_floors(pd.DataFrame({"time_s": []}), LAPTOP).empty


def test_time_without_work_is_headroom() -> None:
    # given work that takes 1 s and does nothing, and one whose work has no roof
    idle = {"time_s": 1.0, "flops": 0.0, "flops_fp32_matrix": 0.0, "flops_int4_matrix": 0.0}
    other = {**idle, "flops": 1e12, "flops_int4_matrix": 1e12}
    work = pd.DataFrame([idle, other])
    # then all of the first could be saved; of the second nothing is known, nor of any without roofs
    assert add_floors(work, LAPTOP)["headroom_s"].fillna(-1).tolist() == [1.0, -1]
    unknown = Roofs(env="m", device="cpu")
    assert add_floors(work, unknown)["headroom_s"].isna().all()


def test_columns_of_flops() -> None:
    table = pd.DataFrame(columns=["flops", "flops_fp16_matrix", "flops_fp32_vector", "flops_x"])
    assert flops_columns(table) == ["flops_fp16_matrix", "flops_fp32_vector"]
    assert roof_of("flops_fp16_matrix") == ("fp16", "matrix")


amounts = st.floats(min_value=0, max_value=1e18)
rates = st.floats(min_value=1e3, max_value=1e18)


@given(flops=amounts, moved=amounts, peak=rates, slope=rates, slack=st.floats(1, 1e6))
def test_efficiency_is_at_most_one_where_time_is_at_least_the_floor(
    flops: float, moved: float, peak: float, slope: float, slack: float
) -> None:
    roofs = Roofs(env="m", device="cpu", compute={"fp32 matrix": peak}, bandwidth={"dram": slope})
    work = {"flops_fp32_matrix": flops, "dram_bytes": moved}
    floor_s = add_floors(pd.DataFrame([{**work, "time_s": 1.0}]), roofs)["floor_s"].item()
    if floor_s != floor_s or floor_s * slack in (0.0, float("inf")):
        return
    placed = add_floors(pd.DataFrame([{**work, "time_s": floor_s * slack}]), roofs).iloc[0]
    assert placed["efficiency"] <= 1 + 1e-12
    assert placed["headroom_s"] >= -1e-9 * floor_s


@given(flops=amounts, moved=amounts, more=st.floats(1, 1e3), peak=rates, slope=rates)
def test_more_work_never_lowers_the_floor_and_higher_roofs_never_raise_it(
    flops: float, moved: float, more: float, peak: float, slope: float
) -> None:
    def floor_s(f: float, b: float, p: float, s: float) -> float:
        roofs = Roofs(env="m", device="cpu", compute={"fp32 matrix": p}, bandwidth={"dram": s})
        table = pd.DataFrame([{"flops_fp32_matrix": f, "dram_bytes": b, "time_s": 1.0}])
        return float(add_floors(table, roofs)["floor_s"].fillna(0).item())

    base = floor_s(flops, moved, peak, slope)
    assert floor_s(flops * more, moved, peak, slope) >= base
    assert floor_s(flops, moved * more, peak, slope) >= base
    assert floor_s(flops, moved, peak * more, slope) <= base
    assert floor_s(flops, moved, peak, slope * more) <= base


@given(flops=amounts, moved=amounts, scale=st.sampled_from([1e-9, 1e-3, 1e3, 1e9]))
def test_units_cancel(flops: float, moved: float, scale: float) -> None:
    """The same work under the same roofs in other units of FLOPs and bytes: the same seconds."""

    def floor_s(by: float) -> float:
        roofs = Roofs(env="m", device="cpu", compute={"fp32 matrix": 1e12 * by},
                      bandwidth={"dram": 1e11 * by})  # fmt: skip
        table = pd.DataFrame(
            [{"flops_fp32_matrix": flops * by, "dram_bytes": moved * by, "time_s": 1.0}]
        )
        return float(add_floors(table, roofs)["floor_s"].fillna(0).item())

    assert floor_s(scale) == pytest.approx(floor_s(1.0), rel=1e-9)
