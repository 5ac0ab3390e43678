"""Points from hardware counters, on a recorded training step (ResNet-50, amp, batch 32, H200)."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from tests.roofline.hand_points import run_points

from ridgeline.machine.passport import read_passport
from ridgeline.roofline.points import CountedStep, MeasuredStep
from ridgeline.roofline.roofs import measured_roofs
from ridgeline.roofline.work import find_kernel_work, sum_kernel_work

DATA = Path(__file__).parent.parent / "data"
ROOFS = measured_roofs(read_passport(DATA / "passport-h200.json"), "cuda:0")
MEASURED = MeasuredStep(
    run_id="r", model="resnet50", mode="train", precision="amp", batch_size=32, step_time_s=0.0225
)


@pytest.fixture(scope="module")
def kernels() -> pd.DataFrame:
    return pd.read_csv(DATA / "kernels-h200-resnet50-amp.csv")


def test_sums_of_the_step(kernels: pd.DataFrame) -> None:
    # when all kernels are taken together
    step = sum_kernel_work(find_kernel_work(kernels).assign(grain="step"), ["grain"]).iloc[0]
    # then the totals are those of the capture
    assert step["launches"] == 637
    assert step["flops_fp16_matrix"] == 797_680_599_040
    assert step["dram_bytes"] == 10_510_359_552
    assert step["time_s"] == pytest.approx(7.924e-3, rel=1e-3)


def test_a_point_for_each_kernel_and_one_for_the_step(kernels: pd.DataFrame) -> None:
    points = run_points(MEASURED, ROOFS, kernels=kernels)
    assert set(points["provenance"]) == {"counter"}
    assert (points["grain"] == "kernel").sum() == len(kernels)
    step = points[points["grain"] == "step"].iloc[0]
    # 32.1 GB through L2 at 8.7 TB/s: more than 637 launches of 4.28 µs (2.7 ms), 10.5 GB from DRAM
    # at 4.5 TB/s (2.3 ms), or 798 GFLOP on tensor cores (1.0 ms) and 22 on the vector units
    assert step["bound"] == "l2"
    assert step["floor_s"] == pytest.approx(32.12e9 / ROOFS.bandwidth["l2"], rel=1e-3)
    assert step["launch_s"] == pytest.approx(637 * ROOFS.launch_s["kernel"])
    assert step["time_s"] == 0.0225
    assert step["ai"] == pytest.approx(step["flops"] / 10_510_359_552)


def test_no_recorded_kernel_is_above_its_roof(kernels: pd.DataFrame) -> None:
    points = run_points(MEASURED, ROOFS, kernels=kernels)
    alone = points[points["grain"].eq("kernel") & points["time_s"].gt(2e-5)]
    assert len(alone) > 20
    assert alone["efficiency"].max() < 1.1


def test_counters_stand_beside_the_count(kernels: pd.DataFrame) -> None:
    product = {"path": "fc", "op": "aten::mm", "kind": "matmul", "phase": "forward",
               "dtype": "fp16", "input_shapes": "2x2", "macs": 390e9, "other_flops": 0,
               "flops": 780e9, "read_bytes": 4, "written_bytes": 4}  # fmt: skip
    ops = pd.DataFrame([product])
    points = run_points(MEASURED, ROOFS, counted=CountedStep(ops=ops), kernels=kernels)
    steps = points[points["grain"] == "step"].set_index("provenance")["flops"]
    assert steps["static"] == 780e9
    assert steps["counter"] == pytest.approx(797.7e9 + 21.9e9, rel=0.01)


def test_what_was_not_captured_is_not_zero() -> None:
    work = find_kernel_work(pd.DataFrame({"kernel": ["a"], "time_s": [1.0]}))
    assert work["flops"].isna().all()
    assert "dram_bytes" not in work
