"""Joules under their own ceilings: hand-computed rows, the published formula, stored runs."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.report.hand_study import layer_row, phase_row, run_row, step_row

from ridgeline.findings import describe_joules
from ridgeline.machine.passport import Coefficient, EnergyModel
from ridgeline.roofline.floors import (
    EnergyRoofline,
    add_energies,
    find_capped_time,
    find_energies,
    find_energy_rooflines,
    price_of_flop,
)
from ridgeline.roofline.points import COLUMNS as POINT_COLUMNS
from ridgeline.roofline.roofs import Roofs

DATA = Path(__file__).parents[1] / "data"

# 1 pJ per FLOP, 10 per byte, 100 W; 100 TFLOP/s and 10 TB/s. So constant power adds 1 pJ to a FLOP
# at its roof, and both balances are 10 FLOP/B.
HAND = EnergyRoofline(
    precision="fp16", j_per_flop=1e-12, j_per_byte=10e-12, constant_power_w=100.0,
    flops_per_s=1e14, bytes_per_s=1e13,
)  # fmt: skip


def fixed(value: float) -> Coefficient:
    return Coefficient(value=value, interval=(value, value))


def model(**changes: Any) -> EnergyModel:
    """10 pJ per fp32 FLOP, 100 pJ per byte, 2 W: the toy's joules can be added up in the head."""
    values: dict[str, Any] = {
        "device": "cpu", "j_per_flop": {"fp32": fixed(10e-12)},
        "j_per_byte": {"dram": fixed(100e-12)}, "constant_power_w": fixed(2.0), "r_squared": 1.0,
        "r_squared_power": 1.0, "mean_residual": 0.0, "points": (), "how": "a meter",
        "measured_at": "2026-11-19",
    }  # fmt: skip
    return EnergyModel(**{**values, **changes})


# ---------------------------------------------------------------- one precision


@pytest.mark.parametrize(
    ("intensity", "flops_per_j", "power_w"),
    [
        (10.0, 1 / 3e-12, 300.0),  # 1 + 1 pJ, and 1 pJ constant
        (5.0, 1 / 5e-12, 250.0),  # 1 + 2 pJ, and 2 pJ constant, at half of the rate
        (1e9, 1 / 2e-12, 200.0),  # FLOPs alone: 1 pJ, and 1 pJ constant
        (1e-3, 1 / 20001e-12, 200.0),  # bytes alone: 10 pJ at 10 TB/s is 100 W
    ],
)
def test_the_arch_and_the_power_of_a_hand_computed_device(
    intensity: float, flops_per_j: float, power_w: float
) -> None:
    assert HAND.attainable_flops_per_j(intensity) == pytest.approx(flops_per_j, rel=1e-4)
    assert HAND.power_w(intensity) == pytest.approx(power_w, rel=1e-3)


def test_balances_of_a_hand_computed_device() -> None:
    # at 20/3 FLOP/B a FLOP takes 1 + 1.5 + 1.5 pJ, twice the 2 pJ of FLOPs alone
    assert (HAND.time_balance, HAND.energy_balance) == (10.0, 10.0)
    assert HAND.half_intensity == pytest.approx(20 / 3)
    assert HAND.is_racing_right
    assert not replace(HAND, j_per_byte=300e-12).is_racing_right


def test_a_power_cap_is_a_ceiling_of_time() -> None:
    # given 150 W for work: at 10 FLOP/B a FLOP and its bytes take 2 pJ
    capped = replace(HAND, power_cap_w=250.0)

    assert capped.cap_flops_per_s(10.0) == pytest.approx(7.5e13)
    assert capped.attainable_flops_per_s(10.0) == pytest.approx(7.5e13)
    assert capped.power_w(10.0) == pytest.approx(250.0)
    assert capped.attainable_flops_per_j(10.0) == pytest.approx(7.5e13 / 250)
    assert capped.attainable_flops_per_s(1000.0) == 1e14  # 1 pJ: 200 W
    assert HAND.cap_flops_per_s(10.0) == inf


POSITIVE = st.floats(1e-2, 1e2)


@given(
    intensity=st.floats(1e-3, 1e4), j_per_flop=POSITIVE, j_per_byte=POSITIVE, power_w=POSITIVE,
    flops_per_s=POSITIVE, bytes_per_s=POSITIVE,
)  # fmt: skip
def test_the_arch_is_the_published_formula(
    intensity: float, j_per_flop: float, j_per_byte: float, power_w: float, flops_per_s: float,
    bytes_per_s: float,
) -> None:  # fmt: skip
    """W/E = (1/ê) / (1 + B(I)/I), B(I) = η·βe + (1−η)·max(0, βt − I), with ê = e + p·t."""
    ours = EnergyRoofline(
        precision="fp32", j_per_flop=j_per_flop, j_per_byte=j_per_byte, constant_power_w=power_w,
        flops_per_s=flops_per_s, bytes_per_s=bytes_per_s,
    )  # fmt: skip
    whole_j = j_per_flop + power_w / flops_per_s
    eta = j_per_flop / whole_j
    time_balance, energy_balance = flops_per_s / bytes_per_s, j_per_byte / j_per_flop
    balance = eta * energy_balance + (1 - eta) * max(0.0, time_balance - intensity)

    formula = 1 / whole_j / (1 + balance / intensity)

    assert ours.attainable_flops_per_j(intensity) == pytest.approx(formula, rel=1e-9)
    half = ours.attainable_flops_per_j(ours.half_intensity)
    assert half == pytest.approx(1 / whole_j / 2, rel=1e-9)


def test_rooflines_of_a_machine_are_of_precisions_with_a_price_and_a_roof() -> None:
    roofs = Roofs(env="toy", device="cpu", bandwidth={"dram": 1e11},
                  compute={"fp32 matrix": 1e12, "fp16 matrix": 4e12})  # fmt: skip
    priced = model(j_per_flop={"fp32": fixed(10e-12), "fp16": fixed(2e-12), "fp64": fixed(9e-11)})

    found = find_energy_rooflines(priced, roofs)

    assert [(one.precision, one.flops_per_s) for one in found] == [("fp16", 4e12), ("fp32", 1e12)]
    assert find_energy_rooflines(model(j_per_byte={}), roofs) == []


# ---------------------------------------------------------------- runs


def points(*rows: dict[str, Any]) -> pd.DataFrame:
    """Points with all FLOPs in fp32 products."""
    table = pd.DataFrame(list(rows), columns=[*POINT_COLUMNS, "flag"])
    return table.assign(flops_fp32_matrix=table["flops"], device="cpu")


def energies(
    rows: list[dict[str, Any]], step_j: float = nan, *, power_w: float = nan,
    kernel_s: float = nan, **changes: Any,
) -> pd.DataFrame:  # fmt: skip
    run = {"energy_j_per_step": step_j, "mean_power_w": power_w, "kernel_time_s": kernel_s}
    runs = pd.DataFrame([run_row(**run)])
    return find_energies(points(*rows), runs, {"a": model(**changes)})


def test_the_joules_of_a_step_in_parts() -> None:
    # 10 GFLOP, 500 MB, 20 ms: 100 + 50 + 40 mJ; at its floor of 10 ms it takes 20 mJ constant
    (step,) = energies([step_row()], step_j=0.25).to_dict("records")

    assert step["flops_j"] == pytest.approx(0.1)
    assert step["bytes_j"] == pytest.approx(0.05)
    assert step["constant_j"] == pytest.approx(0.04)
    assert (step["modelled_j"], step["energy_j"]) == pytest.approx((0.19, 0.25))
    assert step["energy_provenance"] == "measured"
    assert step["energy_floor_j"] == pytest.approx(0.17)
    assert step["energy_efficiency"] == pytest.approx(0.68)
    shares = [step[f"{name}_share"] for name in ("flops", "bytes", "constant")]
    assert shares == pytest.approx([0.4, 0.2, 0.16])  # 0.24 is not explained
    assert (step["power_w"], step["flops_per_j"]) == pytest.approx((12.5, 4e10))
    assert step["energy_j_per_sample"] == pytest.approx(0.25 / 8)


def test_without_a_meter_joules_are_modelled() -> None:
    (step,) = energies([step_row()]).to_dict("records")
    assert (step["energy_provenance"], step["energy_j"]) == ("modelled", pytest.approx(0.19))


def test_a_floor_at_the_power_cap_takes_longer() -> None:
    # given 5 W: 150 mJ of work need 50 ms of the 3 W above constant power
    (step,) = energies([step_row()], power_cap_w=5.0).to_dict("records")
    assert (step["cap_s"], step["energy_floor_j"]) == pytest.approx((0.05, 0.25))


def test_a_lower_clock_under_the_cap_makes_work_cheaper() -> None:
    # given 150 mJ of work in 20 ms at full clock, and 3 W: at a clock of s they are s · 150 mJ,
    # in 20 ms / s, so s² = 3 · 0.02 / 0.15
    (capped_s,) = find_capped_time(np.array([0.15]), np.array([0.02]), above_w=3.0, busy_w=0.0,
                                   exponent=1.0)  # fmt: skip
    assert capped_s == pytest.approx(0.02 / 0.4**0.5)


def test_a_waiting_gpu_draws_constant_power_alone() -> None:
    # given 0.25 J at 10 W: a step of 25 ms while joules were measured, 10 ms of it with kernels
    (step,) = energies([step_row()], step_j=0.25, kernel_s=0.01, power_w=10.0,
                       busy_power_w=fixed(3.0)).to_dict("records")  # fmt: skip
    assert (step["constant_j"], step["busy_j"]) == pytest.approx((2 * 0.025, 3 * 0.01))


def test_bytes_of_a_cache_are_those_that_dram_does_not_supply() -> None:
    row = step_row(dram_bytes=1e8, l2_bytes=3e8)
    (step,) = energies([row], j_per_byte={"dram": fixed(1e-10), "l2": fixed(2e-11)}).to_dict(
        "records"
    )
    assert step["bytes_j"] == pytest.approx(1e8 * 1e-10 + 2e8 * 2e-11)


def test_modelled_joules_of_layers_add_up_to_the_measured_step() -> None:
    rows = [
        step_row(),
        phase_row("forward", time_s=0.006, flops=3e9, dram_bytes=1e8),
        layer_row("a", flops=6e9, dram_bytes=1e8, time_s=0.01),
        layer_row("b", flops=4e9, dram_bytes=4e8, time_s=0.01),
    ]

    table = energies(rows, step_j=0.25)

    layers = table[table["grain"].eq("layer")]
    assert layers["energy_j"].sum() == pytest.approx(0.25)
    assert layers["energy_j"].tolist() == pytest.approx([0.25 * 90 / 190, 0.25 * 100 / 190])
    assert set(layers["energy_provenance"]) == {"modelled"}
    (forward,) = table[table["grain"].eq("phase")].to_dict("records")
    assert forward["energy_j"] == pytest.approx(0.03 + 0.01 + 0.012)


def test_flops_without_a_price_leave_joules_unknown() -> None:
    assert energies([step_row()], j_per_flop={"fp8": fixed(1e-13)}).empty
    assert price_of_flop(model(j_per_flop={"bf16": fixed(1e-12)}), "fp16") == 1e-12
    assert price_of_flop(model(j_per_flop={"any": fixed(1e-12)}), "fp64") == 1e-12
    assert price_of_flop(model(), "bf16") is None


def test_the_front_has_what_nothing_else_beats() -> None:
    # time and joules per step of 8 samples: the third takes longer and more than the second
    cases = {"a": (0.02, 0.5), "b": (0.03, 0.3), "c": (0.04, 0.4)}
    runs = pd.DataFrame([run_row(run_id=i, energy_j_per_step=j) for i, (_, j) in cases.items()])
    rows = points(*(step_row(run_id=i, time_s=t) for i, (t, _) in cases.items()))

    table = find_energies(rows, runs, {})

    assert table["is_on_front"].tolist() == [True, True, False]

    larger = find_energies(rows, runs.assign(input_size=["224", "224", "512"]), {})

    assert larger["is_on_front"].tolist() == [True, True, True]  # other work: not to be compared


# ---------------------------------------------------------------- stored runs


def test_the_floor_of_a_stored_run_is_below_its_measured_joules() -> None:
    """VGG-16 on an H200, with prices that the passport of that card tells net of its idle power."""
    recorded = json.loads((DATA / "run-h200-vgg16.json").read_text(encoding="utf-8"))
    measured_j = recorded["found"]["energy"]["energy_j_per_step"]
    passport = json.loads((DATA / "passport-h200.json").read_text(encoding="utf-8"))
    power = {c["what"]: c for c in passport["ceilings"] if c["kind"] == "power"}
    idle_w = power["idle"]["sustained"]

    def price(what: str, per: str) -> Coefficient:
        one = power[what]
        return fixed(one[f"energy_j_per_{per}"] * (1 - idle_w / one["sustained"]))

    prices = model(
        j_per_flop={"tf32": price("bf16 products", "flop")},  # no tf32 FLOP costs less
        j_per_byte={"dram": price("DRAM copy", "byte")},
        constant_power_w=fixed(idle_w),
        power_cap_w=700.0,
    )
    # 128 samples of 15.5 GMAC, three products each; every weight read and written once
    step = step_row(flops=128 * 3 * 2 * 15.47e9, dram_bytes=2 * 4 * 138.4e6, time_s=0.0898,
                    floor_s=0.0285)  # fmt: skip
    table = pd.DataFrame([step], columns=[*POINT_COLUMNS])

    (found,) = add_energies(table.assign(flops_tf32_matrix=table["flops"]), prices).to_dict(
        "records"
    )

    assert 0.1 * measured_j < found["energy_floor_j"] <= measured_j


@given(
    flops=st.floats(0, 1e12), moved=st.floats(1, 1e12), slack=st.floats(1, 10),
    cap_w=st.floats(3, 100), peak=st.floats(1e9, 1e13), bandwidth=st.floats(1e8, 1e12),
)  # fmt: skip
def test_no_floor_is_above_the_joules_of_the_same_model(
    flops: float, moved: float, slack: float, cap_w: float, peak: float, bandwidth: float
) -> None:
    floor_s = max(flops / peak, moved / bandwidth)
    prices = model(power_cap_w=cap_w)
    work_j = 10e-12 * flops + 100e-12 * moved
    time_s = slack * max(floor_s, work_j / (cap_w - 2.0))
    row = step_row(flops=flops, dram_bytes=moved, floor_s=floor_s, time_s=time_s)

    (step,) = add_energies(points(row), prices).to_dict("records")

    assert step["energy_floor_j"] <= step["modelled_j"] * (1 + 1e-9)
    assert step["energy_floor_j"] >= work_j * (1 - 1e-9)


# ---------------------------------------------------------------- findings

PRICES = {"fp32": 10e-12, "fp16": 1e-12, "fp8": 0.5e-12}


def measured(constant: float, moved: float, flops: float, **changes: Any) -> dict[str, Any]:
    shares = {"constant_share": constant, "bytes_share": moved, "flops_share": flops}
    step = {"precision": "fp32", "time_s": 0.02, "floor_s": 0.01, "power_w": 300.0,
            "energy_efficiency": 0.5}  # fmt: skip
    return {**step, **shares, **changes}


@pytest.mark.parametrize(
    ("step", "finding"),
    [
        (measured(0.62, 0.1, 0.2),
         "62.0 % of the joules are constant power: a larger batch, or whatever brings the step to"
         " its floor of time, saves up to 31.0 % of them all"),
        (measured(0.62, 0.1, 0.2, floor_s=0.0199),
         "62.0 % of the joules are constant power, and the step is near its floor of time"),
        (measured(0.2, 0.5, 0.2),
         "50.0 % of the joules move bytes: fused operators, memory that is kept or operands of half"
         " the size save up to that"),
        (measured(0.2, 0.1, 0.6),
         "60.0 % of the joules are FLOPs: one of fp16 costs 1.00 pJ, 10 times less than of fp32"),
        (measured(0.2, 0.1, 0.6, precision="fp16"),
         "60.0 % of the joules are FLOPs: only less work saves them"),
        (measured(0.3, 0.3, 0.3), ""),
        (measured(nan, nan, nan), ""),
        (measured(0.1, 0.1, 0.1, power_w=900.0),
         "900 W are more than the power cap of 700 W allows: likely a wrong reading, measure it"
         " again"),
        (measured(1.2, 0.7, 1.2, energy_efficiency=2.6),
         "it takes fewer joules than its floor: likely a wrong reading, or coefficients that do not"
         " fit"),
    ],
)  # fmt: skip
def test_what_most_joules_of_a_step_are_for(step: dict[str, Any], finding: str) -> None:
    assert describe_joules(step, PRICES, 700.0) == finding
