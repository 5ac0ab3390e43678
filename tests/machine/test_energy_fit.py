"""Energy coefficients: fitted to loads of known work, refused where they cannot be had."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgeline.errors import RidgelineError
from ridgeline.machine.energy_fit import (
    ANY,
    fit_energy,
    read_energy_points,
    solve_nonnegative,
)
from ridgeline.machine.passport import EnergyModel, EnergyPoint, Passport, Passports
from ridgeline.serialize import from_dict

DATA = Path(__file__).parents[1] / "data"
PAGODA = Path(__file__).parents[2] / "benchmarks" / "data" / "pagoda-energy.csv"


def load(
    label: str, *, fp32: float = 0.0, bf16: float = 0.0, dram: float = 0.0, time_s: float = 2.0,
    off: float = 0.0, clock_hz: float | None = None,
) -> EnergyPoint:  # fmt: skip
    """A load on a device of 10 pJ per fp32 FLOP, 1 per bf16 FLOP, 100 per byte, and 50 W.

    Rates are in T per second, so that 1 T of fp32 for 2 s takes 20 J and 100 J constant.
    """
    flops = {"fp32": fp32 * 1e12 * time_s, "bf16": bf16 * 1e12 * time_s}
    power_w = 10 * fp32 + 1 * bf16 + 100 * dram + 50
    return EnergyPoint(
        label=label,
        time_s=time_s,
        energy_j=power_w * time_s * (1 + off),
        flops={name: amount for name, amount in flops.items() if amount},
        moved_bytes={"dram": dram * 1e12 * time_s} if dram else {},
        clock_hz=clock_hz,
    )


LOADS = [
    load("spinning"),
    load("dram read", dram=4.0),
    load("fp32 chains", fp32=50.0),
    load("fp32 products", fp32=40.0, dram=0.1),
    load("bf16 products", bf16=600.0, dram=0.3),
    load("bf16, half of the time", bf16=300.0, dram=0.15),
    load("by turns", fp32=20.0, dram=2.0),
]


def fit(points: list[EnergyPoint]) -> EnergyModel:
    return fit_energy(points, device="cuda:0", how="a counter", measured_at="2026-11-19T09:00:00Z")


def test_exact_loads_give_the_coefficients_of_the_device() -> None:
    model = fit(LOADS)

    found = {
        name: one.value for name, one in (*model.j_per_flop.items(), *model.j_per_byte.items())
    }
    assert found == pytest.approx({"fp32": 10e-12, "bf16": 1e-12, "dram": 100e-12})
    assert model.constant_power_w.value == pytest.approx(50.0)
    assert (model.r_squared, model.mean_residual) == pytest.approx((1.0, 0.0))
    assert all(point.residual == pytest.approx(0.0, abs=1e-9) for point in model.points)


@settings(max_examples=10, deadline=None)
@given(errors=st.lists(st.floats(-0.02, 0.02), min_size=len(LOADS), max_size=len(LOADS)))
def test_meters_that_are_a_little_off_move_the_coefficients_a_little(errors: list[float]) -> None:
    noisy = [replace(p, energy_j=p.energy_j * (1 + e)) for p, e in zip(LOADS, errors, strict=True)]

    model = fit(noisy)

    bf16, power = model.j_per_flop["bf16"], model.constant_power_w
    assert bf16.value == pytest.approx(1e-12, rel=0.1)
    assert power.value == pytest.approx(50.0, rel=0.1)
    assert 0 <= bf16.interval[0] <= bf16.value <= bf16.interval[1]


@given(
    st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=4, max_size=8),
    st.lists(st.floats(-1, 1), min_size=8, max_size=8),
)
def test_no_step_that_keeps_above_zero_fits_better(
    rows: list[list[float]], all_values: list[float]
) -> None:
    # the conditions of Karush, Kuhn and Tucker: the slope is zero inside, and none goes down
    matrix, values = np.array(rows), np.array(all_values[: len(rows)])

    x = solve_nonnegative(matrix, values)

    slope = matrix.T @ (matrix @ x - values)
    assert (x >= 0).all()
    assert (slope >= -1e-6).all()
    assert abs(slope[x > 1e-6]).max(initial=0.0) < 1e-6


@pytest.mark.parametrize(
    ("left_out", "missing"),
    [
        # bytes only beside FLOPs in the same proportion
        ({"dram read", "by turns", "fp32 chains", "bf16 products", "bf16, half of the time"},
         "no point that only moves bytes (dram)"),
        ({"dram read", "by turns", "fp32 chains", "fp32 products"},
         "no point that only moves bytes (dram)"),
    ],
)  # fmt: skip
def test_loads_in_the_same_proportions_are_refused(left_out: set[str], missing: str) -> None:
    points = [p for p in LOADS if p.label not in left_out]
    often = [replace(p, label=f"{p.label} {n}") for n in (1, 2) for p in points]

    with pytest.raises(RidgelineError) as error:
        fit(often)

    assert missing in error.value.problem


def test_a_busy_gpu_draws_more_than_its_flops_and_bytes() -> None:
    # given 30 W while kernels run, and a load that hardly does more
    points = [replace(p, busy_s=0.0 if p.label == "spinning" else
                      1.0 if "half" in p.label else 2.0) for p in LOADS]  # fmt: skip
    points += [replace(load("L1 read"), busy_s=2.0), replace(load("L1 read, half"), busy_s=1.0)]
    points = [replace(p, energy_j=p.energy_j + 30 * (p.busy_s or 0.0)) for p in points]

    model = fit(points)

    assert model.busy_power_w is not None
    assert model.busy_power_w.value == pytest.approx(30.0)
    assert model.constant_power_w.value == pytest.approx(50.0)
    assert model.working_power_w == pytest.approx(80.0)
    assert model.j_per_byte["dram"].value == pytest.approx(100e-12)


def test_loads_that_the_cap_slowed_down_tell_how_joules_fall_with_the_clock() -> None:
    # given products at half of the clock that take half of the joules of work: 50 + 315 W
    full = load("bf16 products", bf16=600.0, dram=0.3)
    slow = replace(full, label="slow", energy_j=(50 + 315) * 2.0, clock_hz=1e9)
    points = [replace(p, clock_hz=2e9) for p in LOADS]

    model = fit([*points, slow])

    assert model.clock_exponent is not None
    assert model.clock_exponent.value == pytest.approx(1.0)
    assert fit(points).clock_exponent is None


def test_loads_measured_on_an_h200_give_its_prices() -> None:
    # 2026-11-20, NVML's counter, bytes by hardware counters
    stored = json.loads((DATA / "energy-h200.json").read_text())

    model = fit([from_dict(EnergyPoint, one) for one in stored])

    flops = {name: 1e12 * one.value for name, one in model.j_per_flop.items()}
    assert flops == pytest.approx(
        {"fp32": 5.94, "fp32 vector": 2.32, "tf32": 1.10, "bf16": 0.498, "fp16": 0.680}, rel=0.01
    )
    assert model.j_per_byte["dram"].value == pytest.approx(68.7e-12, rel=0.01)
    assert model.j_per_byte["l2"].value == pytest.approx(26.1e-12, rel=0.01)
    assert model.busy_power_w is not None
    assert model.clock_exponent is not None
    powers = model.constant_power_w.value, model.busy_power_w.value
    assert powers == pytest.approx((127.5, 190.2), rel=0.01)
    assert model.clock_exponent.value == pytest.approx(1.0, abs=0.01)
    assert model.r_squared_power > 0.99
    every = (*model.j_per_flop.values(), *model.j_per_byte.values(), model.constant_power_w,
             model.busy_power_w)  # fmt: skip
    assert all(one.interval[1] - one.interval[0] < 0.3 * one.value for one in every)  # ±15 %


def test_too_few_points_are_refused() -> None:
    with pytest.raises(RidgelineError) as error:
        fit(LOADS[:3])

    assert error.value.problem == (
        "3 points are too few for 3 coefficients: joules per byte (dram), joules per FLOP (fp32),"
        " constant power"
    )


def test_points_that_follow_no_model_are_refused_with_the_worst() -> None:
    wild = [replace(p, energy_j=p.energy_j * (6.0 if n % 2 else 1.0)) for n, p in enumerate(LOADS)]

    with pytest.raises(RidgelineError, match=r"follow no one energy model: it is off by .* at "):
        fit(wild)


def test_a_reading_that_does_not_fit_its_neighbours_is_left_out_and_shown() -> None:
    # given a copy at three sizes, one of which draws a third of the others
    copies = [load(f"copy {n}", dram=3.0 + 0.1 * n, off=-0.67 * (n == 1)) for n in range(3)]

    model = fit([*LOADS, *copies])

    (wrong,) = [p for p in model.points if p.note]
    assert wrong.label == "copy 1"
    assert wrong.note == ("119 W where loads of the same rates draw 360 W: likely a wrong reading")
    assert wrong.residual == pytest.approx(1 / 0.33 - 1)
    assert model.constant_power_w.value == pytest.approx(50.0)


def test_loads_at_a_lower_clock_are_left_out() -> None:
    # given a device whose products run into the power cap, where FLOPs cost less
    full = [replace(p, clock_hz=1980e6) for p in LOADS]
    slow = load("products at the cap", bf16=600.0, dram=0.3, off=-0.2, clock_hz=1500e6)
    idle = load("idle", clock_hz=345e6, off=-0.4)

    model = fit([idle, slow, *full])

    assert model.j_per_flop["bf16"].value == pytest.approx(1e-12)
    assert [p.note for p in model.points[:2]] == [
        "idle at 17.4 % of the highest clock: not the constant power of work",
        "at 75.8 % of the highest clock: not of the same fit",
    ]
    assert {p.note for p in model.points[2:]} == {""}
    assert model.points[1].residual == pytest.approx(1 / 0.8 - 1)


def test_a_passport_keeps_the_model(tmp_path: Path) -> None:
    model = fit(LOADS)
    passport = Passport(name="box", measured_at="2026-11-19T09:00:00+00:00", is_quick=False,
                        ceilings=(), energy=(model,))  # fmt: skip
    store = Passports(tmp_path)

    store.write(passport)

    assert store.read("box") == passport
    assert store.read("box").energy_model("cuda:0") == model
    assert store.read("box").energy_model("cuda:1") is None


# ---------------------------------------------------------------- from a file


def test_pagodas_table_is_fitted_without_its_wrong_reading() -> None:
    model = fit(read_energy_points(PAGODA))

    assert [p.label for p in model.points if p.note] == ["resnet50 batch 32"]
    assert model.j_per_flop[ANY].value == pytest.approx(8.67e-12, rel=1e-3)
    assert model.j_per_byte["dram"].value == pytest.approx(134e-12, rel=5e-3)
    assert model.constant_power_w.value == pytest.approx(23.1, rel=2e-3)
    # joules grow with time whatever the model says; watts show how poor one price per FLOP is
    assert (model.r_squared, model.r_squared_power) == pytest.approx((0.819, 0.244), abs=1e-3)
    berts = [p.residual for p in model.points if p.label.startswith("bert")]
    assert max(r for r in berts if r is not None) < -0.25


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_file_may_have_joules_precisions_and_clocks(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.csv",
        "label,time_s,energy_j,flops,bytes,precision,clock_hz,temperature_c",
        "copy,2,500,0,4e12,,1.98e9,41",
        "product,2,900,8e14,1e11,bf16,,",
    )

    copy, product = read_energy_points(path)

    assert copy == EnergyPoint(
        label="copy",
        time_s=2.0,
        energy_j=500.0,
        flops={ANY: 0.0},
        moved_bytes={"dram": 4e12},
        clock_hz=1.98e9,
        temperature_c=41.0,
    )
    assert (product.flops, product.power_w) == ({"bf16": 8e14}, 450.0)


HEADER = "label,time_s,power_w,flops,bytes"


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([HEADER], " has no rows"),
        (["a;b", "1;2"], ", line 2, column label is missing"),
        (
            ["label,time_s,flops,bytes", "a,1,1,1"],
            ", line 2, column power_w or energy_j is missing",
        ),
        (
            [HEADER, "a,1,1,1,1", "b,-1,1,1,1"],
            ", line 3, column time_s is -1.0, not a number above",
        ),
        ([HEADER, "a,1,1,1e400,1"], ", line 2, column flops is inf, not a number of zero or more"),
        ([HEADER, "a,1,much,1,1"], ", line 2, column power_w is 'much', not a number above zero"),
        ([HEADER, "a,1,,1,1"], ", line 2, column power_w or energy_j is missing"),
        ([HEADER, "a,1"], ", line 2, column flops is missing"),
        ([HEADER, ",1,1,1,1"], ", line 2, column label is missing"),
        ([HEADER, "a,0,5,1,1,7"], ", line 2, column after the last one of the header has a value"),
    ],
)
def test_a_broken_file_is_an_error_with_its_place(
    tmp_path: Path, lines: list[str], problem: str
) -> None:
    path = write(tmp_path / "a.csv", *lines)

    with pytest.raises(RidgelineError) as error:
        read_energy_points(path)

    assert error.value.problem.startswith(f"{path}{problem}")
