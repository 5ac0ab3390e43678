"""What physics forbids is flagged with its likely cause."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from ridgeline.roofline.sanity_checks import describe_clock, find_energy_flags, find_flags

POINT = {
    "run_id": "r", "grain": "layer", "layer": "conv", "phase": "all", "provenance": "static",
    "bound": "compute", "efficiency": 0.5, "time_s": 0.01, "flops": 1e9, "dram_bytes": 1e6,
}  # fmt: skip
STEP = {**POINT, "grain": "step", "layer": "", "time_s": 0.1}


def flag_of(**changes: Any) -> str:
    points = pd.DataFrame([STEP, {**POINT, **changes}])
    return str(find_flags(points).iloc[1])


def test_a_point_below_its_roof_has_no_flag() -> None:
    assert flag_of() == ""
    assert flag_of(efficiency=1.02) == ""  # clocks and roofs are not known better than that


@pytest.mark.parametrize(
    ("bound", "provenance", "source", "cause"),
    [("compute", "static", "measured", "Winograd"),
     ("dram", "static", "measured", "stayed in a cache"),
     ("launch", "static", "measured", "share a kernel"),
     ("l2", "static", "measured", "nearer to the cores"),
     ("compute", "counter", "measured", "the roof is too low: measure the machine again"),
     ("compute", "counter", "given", "the roof is too low: check the value that was given for it"),
     ("dram", "counter", "given", "the roof is too low: check the value that was given for it"),
     ("compute", "counter", "datasheet", "the roof is too low: measure this device")],
)  # fmt: skip
def test_a_point_above_its_roof(bound: str, provenance: str, source: str, cause: str) -> None:
    flag = flag_of(efficiency=1.25, bound=bound, provenance=provenance, roof_source=source)
    assert flag.startswith(f"above its {bound} roof: 25 % faster than its floor; likely cause: ")
    assert cause in flag


def test_a_piece_too_short_to_time_is_not_judged() -> None:
    assert flag_of(efficiency=3.0, time_s=2e-6) == ""


def test_what_no_counter_can_say_is_marked_however_short() -> None:
    fast = {"provenance": "counter", "time_s": 1e-6}
    assert flag_of(**fast, efficiency=1.9) == ""
    assert flag_of(**fast, efficiency=3.0, bound="launch") == ""  # a kernel alone waits for none
    assert flag_of(**fast, efficiency=50.0) == (
        "above its compute roof: 4900 % faster than its floor; likely cause: the roof is too low:"
        " measure the machine again; or times or counters are in another unit than they say"
    )


def test_a_hot_piece_without_flops() -> None:
    assert flag_of(flops=0, efficiency=float("nan")) == (
        "10 % of the step without FLOPs; likely cause: it only moves or compares data, or no"
        " formula and no counter tells its work"
    )
    assert "it waits" in flag_of(flops=0, dram_bytes=0, efficiency=float("nan"))
    assert flag_of(flops=0, time_s=0.004, efficiency=float("nan")) == ""


@pytest.mark.parametrize(
    ("grain", "executed", "text"),
    [("phase", 1e9, ""), ("phase", 0.45e9, ""), ("phase", 0.1e9, "executes 0.10 times"),
     ("phase", 2e9, "executes 2.00 times"), ("layer", 2e9, ""), ("layer", 0.25e9, ""),
     ("layer", 0.05e9, "executes 0.05 times"), ("layer", 12e9, "executes 12.00 times")],
)  # fmt: skip
def test_executed_flops_beside_those_of_the_model(grain: str, executed: float, text: str) -> None:
    model = {**POINT, "grain": grain, "flops_fp16_matrix": 9e8}
    counter = {**model, "provenance": "counter", "flops": executed}
    flag = str(find_flags(pd.DataFrame([STEP, model, counter])).iloc[2])
    assert flag.startswith(text)
    assert bool(flag) == bool(text)


def test_counters_and_times_of_two_runs_may_differ_by_a_tenth() -> None:
    assert flag_of(efficiency=1.08, provenance="counter", bound="dram") == ""
    flag = flag_of(efficiency=1.12, provenance="counter", bound="dram")
    assert flag.startswith("above its dram roof: 12 % faster than its floor")
    assert "the time is of another run than the counters" in flag


def test_a_kernel_whose_flops_were_not_counted_is_not_without_them() -> None:
    assert flag_of(grain="kernel", provenance="counter", flops=float("nan"),
                   dram_bytes=float("nan"), efficiency=float("nan")) == ""  # fmt: skip
    assert flag_of(grain="kernel", provenance="counter", flops=0.0, efficiency=0.5) != ""


def runs(energies: list[float], batches: list[int]) -> pd.DataFrame:
    return pd.DataFrame(
        {"env": "m", "model": "net", "mode": "train", "precision": "fp32", "batch_size": batches,
         "energy_j_per_sample": energies}
    )  # fmt: skip


def test_energy_that_doubles_between_neighbours() -> None:
    # given joules per sample that fall slowly with the batch, but for one reading
    table = runs([1.0, 0.3, 0.8, 0.75], [8, 16, 32, 64])
    # then that one is flagged, and its neighbours are not judged by it
    found = find_energy_flags(table)
    assert found[1].startswith(
        "0.3 J per sample where batches 8 and 32 suggest 0.894; likely cause"
    )
    assert found[[0, 2, 3]].eq("").all()


def test_energy_that_falls_smoothly_is_fine() -> None:
    assert find_energy_flags(runs([1.0, 0.9, 0.82], [8, 16, 32])).eq("").all()
    assert find_energy_flags(runs([1.0, 0.9], [8, 16])).eq("").all()
    assert find_energy_flags(pd.DataFrame({"batch_size": [1]})).eq("").all()


def test_another_clock_than_the_roofs() -> None:
    assert describe_clock(1.5e9, 1.98e9) == (
        "ran at 1500 MHz, its roof is of 1980 MHz: at the run's clock, that roof is 76 % of the one"
        " drawn"
    )
    assert describe_clock(1.98e9, 1.5e9) == ""  # a power cap holds large products down
    assert describe_clock(1.95e9, 1.98e9) == ""
    assert describe_clock(None, 1.98e9) == ""
