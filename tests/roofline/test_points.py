"""The points of a run: what was counted joined with what was measured."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from tests.roofline.hand_points import run_points

from ridgeline.roofline.points import CountedStep, MeasuredStep
from ridgeline.roofline.roofs import Roofs
from ridgeline.roofline.work import find_static_work

ROOFS = Roofs(
    env="m", device="cpu", compute={"fp32 matrix": 1e9, "fp32 vector": 1e9},
    bandwidth={"dram": 1e8, "l3": 4e8}, launch_s={"eager dispatch": 1e-6}, cache_level="l3",
    cache_bytes=1000,
)  # fmt: skip


def op(
    path: str, name: str, phase: str, shapes: str, macs: int, other: int, read: int, written: int
) -> dict[str, Any]:
    """A counted operator in fp32."""
    return {"path": path, "op": f"aten::{name}", "kind": name.split("_")[0], "phase": phase,
            "dtype": "fp32", "input_shapes": shapes, "macs": macs, "other_flops": other,
            "flops": 2 * macs + other, "read_bytes": read, "written_bytes": written}  # fmt: skip


# a convolution, a ReLU that fits the cache, the loss, their gradients, and the update
OPS = pd.DataFrame([
    op("conv", "conv", "forward", "8x3", 500, 0, 6000, 2000),
    op("relu", "relu", "forward", "8x4", 0, 100, 400, 400),
    op("", "nll_loss", "forward", "8", 0, 10, 80, 20),
    op("", "nll_back", "input-grad", "8", 0, 10, 80, 20),
    op("relu", "relu_back", "input-grad", "8x4", 0, 100, 800, 400),
    op("conv", "conv_back", "weight-grad", "8x3", 500, 0, 6000, 2000),
    op("conv", "add_", "optimizer", "9", 0, 20, 72, 36),
])  # fmt: skip
LAYERS = pd.DataFrame(
    {
        "layer": ["conv", "relu", "(forward)", "(loss)", "(optimizer)", "(data)"],
        "kind": ["Conv2d", "ReLU", "", "", "", ""],
        "input_shape": ["8x3", "8x4", "", "", "", ""],
        "forward_s": [1e-4, 1e-5, 2e-6, 0.0, 0.0, 0.0],
        "backward_s": [2e-4, 2e-5, 0.0, 3e-6, 0.0, 0.0],
        "time_s": [3e-4, 3e-5, 2e-6, 3e-6, 4e-6, 5e-6],
    }
)
MEASURED = MeasuredStep(
    run_id="r1", model="net", mode="train", precision="fp32", batch_size=8, step_time_s=4e-4,
    phase_times_s={"forward": 1.2e-4, "backward": 2.3e-4, "optimizer": 5e-6},
)  # fmt: skip


def points_of(**changes: object) -> pd.DataFrame:
    usual: dict[str, object] = {
        "counted": CountedStep(ops=OPS, fused_bytes=9000.0),
        "layers": LAYERS,
    }
    return run_points(MEASURED, ROOFS, **{**usual, **changes})  # type: ignore[arg-type]


def one(points: pd.DataFrame, **where: str) -> pd.Series:
    for name, value in where.items():
        points = points[points[name].eq(value)]
    assert len(points) == 1
    return points.iloc[0]


def test_the_step() -> None:
    step = one(points_of(), grain="step")
    assert step["flops"] == 2240
    assert step["dram_bytes"] == 8000 + 800 + 100 + 100 + 1200 + 8000 + 108
    assert step["least_bytes"] == 8000 + 1200 + 8000  # operators that do not fit 1000 bytes
    assert step["launches"] == 6  # the optimizer's operators share kernels
    assert step["ai"] == pytest.approx(2240 / 18308)
    assert step["ai_high"] == pytest.approx(2240 / 9000)
    # 2240 FLOP at 1e9: 2.24 µs; 17200 B at 1e8: 172 µs; 18308 B at 4e8: 45.8 µs; 6 µs of launches
    assert step["floor_s"] == pytest.approx(1.72e-4)
    assert step["bound"] == "dram"
    assert step["efficiency"] == pytest.approx(0.43)
    assert step["fused_floor_s"] == pytest.approx(9e-5)


def test_phases_have_their_times_and_the_halves_of_backward_have_none() -> None:
    phases = points_of().query("grain == 'phase'").set_index("phase")
    assert list(phases.index) == ["forward", "backward", "input-grad", "weight-grad", "optimizer"]
    assert phases["flops"].to_list() == [1110, 1110, 110, 1000, 20]
    assert phases["time_s"].fillna(-1).to_list() == [1.2e-4, 2.3e-4, -1, -1, 5e-6]
    assert phases.loc["weight-grad", "floor_s"] == pytest.approx(8e-5)


def test_layers_are_joined_by_their_path() -> None:
    points = points_of()
    conv = one(points, grain="layer", layer="conv", phase="all")
    assert (conv["flops"], conv["kind"], conv["shapes"], conv["time_s"]) == (
        2000, "Conv2d", "8x3", 3e-4)  # fmt: skip
    assert conv["floor_s"] == pytest.approx(1.6e-4)
    assert conv["headroom_s"] == pytest.approx(1.4e-4)
    backward = one(points, grain="layer", layer="conv", phase="backward")
    assert (backward["flops"], backward["time_s"]) == (1000, 2e-4)
    # the optimizer's share of a layer is in the optimizer's row, as its time is
    assert one(points, grain="layer", layer="(optimizer)", phase="all")["flops"] == 20


def test_a_layer_has_the_sides_of_its_largest_forward_product() -> None:
    # given two products in a layer, with a bias and without, and the gradient of one
    ops = pd.DataFrame([
        op("fc", "mm", "forward", "4x8 8x9", 288, 0, 1, 1),
        op("fc", "addmm", "forward", "5 4x8 8x5", 160, 20, 1, 1),
        op("fc", "mm", "weight-grad", "9x4 4x8", 288, 0, 1, 1),
        op("relu", "relu", "forward", "4x9", 0, 36, 1, 1),
    ])  # fmt: skip
    points = points_of(counted=CountedStep(ops=ops))
    sides = points[points["grain"].eq("layer")].set_index(["layer", "phase"])["product_sides"]
    assert sides["fc", "all"] == sides["fc", "backward"] == "8x9"
    assert sides["relu", "all"] == ""


def test_what_is_in_no_layer_is_one() -> None:
    # given operators outside of layers, 10 FLOP forward and 10 backward, timed as the loss' and as
    # the model's own
    inside = {**LAYERS.iloc[0].to_dict(), "layer": "(model)", "kind": "Net", "time_s": 7e-6,
              "forward_s": 4e-6, "backward_s": 3e-6}  # fmt: skip
    points = points_of(layers=pd.concat([LAYERS, pd.DataFrame([inside])], ignore_index=True))
    # then they are one, whoever of these they belong to
    whole = one(points, grain="layer", layer="(model)", phase="all")
    assert (whole["flops"], whole["time_s"]) == (20, pytest.approx(7e-6 + 2e-6 + 3e-6))
    forward = one(points, grain="layer", layer="(model)", phase="forward")
    assert (forward["flops"], forward["time_s"]) == (10, pytest.approx(4e-6 + 2e-6))
    assert not points["layer"].isin(["(loss)", "(forward)"]).any()


def test_what_was_timed_and_not_counted_stays() -> None:
    waiting = one(points_of(), grain="layer", layer="(data)", phase="all")
    assert waiting["time_s"] == 5e-6
    assert pd.isna(waiting["floor_s"])
    assert pd.isna(waiting["flops"])
    assert pd.isna(waiting["headroom_s"])  # copies from the host have a floor, and nobody knows it


def test_a_module_without_operators_has_no_work_and_all_of_its_time_is_headroom() -> None:
    # given a container that takes 7 µs by itself
    box = {**LAYERS.iloc[0].to_dict(), "layer": "box", "kind": "Sequential", "time_s": 7e-6}
    points = points_of(layers=pd.concat([LAYERS, pd.DataFrame([box])], ignore_index=True))
    found = one(points, grain="layer", layer="box", phase="all")
    assert (found["flops"], found["dram_bytes"], found["headroom_s"]) == (0, 0, 7e-6)
    assert pd.isna(found["floor_s"])


UPDATES = pd.DataFrame([op("w", "add_", "optimizer", "9", 0, 20, 400, 200)] * 2)


@pytest.mark.parametrize(
    ("ops", "options", "sums"),
    [
        (OPS, {"parts": 3}, {"flops": 3 * 2220 + 20}),  # all but the update three times
        (OPS, {"precision": "tf32"}, {"flops_tf32_matrix": 2000, "flops_fp32_vector": 240}),
        # updates that fit the cache one by one and not together: all of them come from DRAM
        (UPDATES, {"cache_level": "l3", "cache_bytes": 1000}, {"least_bytes": 1200}),
        # a compiled step promises FLOPs only; its optimizer is not compiled
        (OPS, {"cache_level": "l3", "cache_bytes": 0, "is_fused": True},
         {"least_bytes": 108, "launches": 0, "flops": 2240}),
    ],
    ids=["batches", "tf32", "optimizer", "compiled"],
)  # fmt: skip
def test_sums_of_static_work(
    ops: pd.DataFrame, options: dict[str, Any], sums: dict[str, float]
) -> None:
    work = find_static_work(ops, **{"precision": "fp32", **options})
    assert {name: work[name].sum() for name in sums} == sums


def test_the_intensity_of_a_layer_ends_at_its_fused_bytes() -> None:
    # given a layer of 2000 FLOP that moves 16000 bytes, and 5000 bytes if each tensor moved once
    counted = CountedStep(ops=OPS, layer_fused_bytes={"conv": 5000.0, "relu": 1e9})
    points = points_of(counted=counted)
    conv = one(points, grain="layer", layer="conv", phase="all")
    assert (conv["ai"], conv["ai_high"]) == (2000 / 16000, 2000 / 5000)
    # then of one that has more fused bytes than it moves, it is a point
    relu = one(points, grain="layer", layer="relu", phase="all")
    assert relu["ai_high"] == relu["ai"]


def test_recomputation_is_backward_work() -> None:
    # given the forward pass of the convolution, 1000 FLOP, done again
    again = OPS[OPS["path"].eq("conv") & OPS["phase"].eq("forward")]
    ops = pd.concat([OPS, again.assign(phase="recompute")], ignore_index=True)
    points = points_of(counted=CountedStep(ops=ops, fused_bytes=9000.0))
    # then it is a part of backward, and in its time
    phases = points[points["grain"].eq("phase")].set_index("phase")
    assert phases["flops"].to_dict() == {
        "forward": 1110, "backward": 2110, "input-grad": 110, "weight-grad": 1000,
        "recompute": 1000, "optimizer": 20,
    }  # fmt: skip
    assert phases.loc["backward", "time_s"] == 2.3e-4
    assert one(points, grain="layer", layer="conv", phase="forward")["flops"] == 1000
    assert one(points, grain="layer", layer="conv", phase="backward")["flops"] == 2000
