"""A predicted step: where its times are from, its interval, its bound, its memory and joules."""

from __future__ import annotations

import json
from dataclasses import replace
from math import exp, log
from typing import Any

import pytest
import torch
from tests.predict.calibrations import (
    MEBI,
    PRODUCTS,
    calibration,
    counted,
    measured,
    product,
    relu,
    use,
)

import ridgeline
from ridgeline.machine.passport import Coefficient, EnergyModel
from ridgeline.predict.calibration import (
    Calibration,
    HostCosts,
    PastPrediction,
    calibration_of_roofs,
    scale_calibration,
)
from ridgeline.predict.operators import OperatorPoint, Use
from ridgeline.predict.predict import find_energy, is_inside, points_to_refine, predict_step
from ridgeline.roofline.roofs import Roofs

KNOWN = product(512, 512, 512)


def estimate(point: OperatorPoint, known: Calibration) -> tuple[float, str]:
    """Seconds of its only operator, and where they are from."""
    found = predict_step(counted(), known, uses=[use(point)])
    (provenance,) = found.provenance
    return found.kernel_time_s, provenance


@pytest.mark.parametrize(
    ("point", "time_s", "provenance", "rel"),
    [
        (KNOWN, PRODUCTS[512], "measured", 1e-9),
        (product(512, 512, 640), 2 * 512 * 512 * 640 / 50e9, "interpolated", 0.1),
        (relu(3 * MEBI), 3e-3, "interpolated", 0.1),
        (relu(512 * MEBI), 0.512, "extrapolated", 0.3),
        (relu(3 * MEBI, op="relu_"), 3e-3, "borrowed", 0.1),
        # bf16 has twice the peak; of pointwise operators nothing is said
        (product(512, 512, 512, precision="bf16"), PRODUCTS[512] / 2, "borrowed", 0.1),
        (relu(3 * MEBI, precision="bf16"), 3e-3, "borrowed", 0.1),
        (relu(3 * MEBI, op="sin"), 3e-3, "extrapolated", 0.3),  # as other pointwise operators
    ],
)
def test_where_a_time_is_from(
    point: OperatorPoint, time_s: float, provenance: str, rel: float
) -> None:
    found_s, found = estimate(point, calibration())

    assert found == provenance
    assert found_s == pytest.approx(time_s, rel=rel)


def test_a_step_in_full() -> None:
    uses = [use(KNOWN, "a"), use(relu(2 * MEBI), "b", repeats=2)]

    found = predict_step(counted(), calibration(), uses=uses, with_layers=True)

    kernel_s = PRODUCTS[512] + 2 * 2e-3
    error = pytest.approx(0.03 * found.kernel_time_s / found.time_s, rel=0.3)
    assert found.expected_error == error
    width = log(found.interval_s[1] / found.time_s)
    assert found.interval_s == pytest.approx((found.time_s / exp(width), found.time_s * exp(width)))
    row = json.loads(json.dumps(found.to_dict()))
    assert {name: row.pop(name) for name in ("interval_s", "layers")}["layers"] == [
        {"path": path, "type": type_name, "time_s": pytest.approx(time_s),
         "share": pytest.approx(time_s / kernel_s), "provenance": "measured"}
        for path, type_name, time_s in (
            ("(model)", "Net", kernel_s), ("a", "Linear", PRODUCTS[512]), ("b", "ReLU", 4e-3),
        )
    ]  # fmt: skip
    assert row == {
        "model": "net", "batch_size": 4, "mode": "infer", "precision": "fp32", "machine": "small",
        "time_s": pytest.approx(kernel_s + 3e-5), "confidence": 0.8,
        "kernel_time_s": pytest.approx(kernel_s), "host_time_s": pytest.approx(3e-5),
        "bound": "compute", "memory_bytes": 600 * MEBI, "fits": True, "power_w": None,
        "energy_j": None, "provenance": {"measured": 1.0},
        "past": {"n": 0, "mean_error": None, "inside": 0},
        "optimizer": None, "source": "measured", "notes": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("known", "points", "options", "note"),
    [
        (calibration(host=HostCosts()), [KNOWN], {}, "the host was not measured: give"),
        (calibration(), [KNOWN, relu(4 * MEBI, op="sin")], {},
         "% of the time is of operators of which nothing was measured (aten::sin): by their bytes"),
        (calibration(), [product(64, 64, 64, precision="bf16")], {"precision": "bf16"},
         "not measured in bf16 are borrowed from another precision: `ridgeline machine calibrate"),
        (calibration(points=(), source="scaled from X"), [KNOWN], {},
         "small is scaled from X: nothing was measured with operators"),
    ],
)  # fmt: skip
def test_what_a_reader_has_to_know(
    known: Calibration, points: list[OperatorPoint], options: dict[str, str], note: str
) -> None:
    found = predict_step(counted(**options), known, uses=[use(point) for point in points])

    assert len(found.notes) == 1
    assert note in found.notes[0]


def test_a_compiled_step_is_fused_by_a_rule() -> None:
    # given a norm and a ReLU, which move half of their bytes when they are one kernel
    layers = torch.nn.Sequential(torch.nn.BatchNorm2d(1), torch.nn.ReLU())
    count = ridgeline.count(layers, torch.zeros(1, 1, 1024, 1024))
    eager = predict_step(count, calibration())

    found = predict_step(count, calibration(), compile_mode="default")

    # 4 MiB in and 4 MiB out; one by one 8 MiB more
    assert found.kernel_time_s / eager.kernel_time_s == pytest.approx(8 / 16, rel=0.01)
    assert "fusion is predicted by a rule" in found.notes[0]
    assert found.expected_error >= 0.3


@pytest.mark.parametrize(
    ("uses", "bound"),
    [
        ([use(product(1024, 1024, 1024))], "compute"),
        ([use(relu(8 * MEBI))], "memory"),
        ([use(product(8, 8, 8), repeats=1000)], "host"),
    ],
)
def test_the_bound(uses: list[Use], bound: str) -> None:
    known = calibration(
        points=(*calibration().points, measured(product(8, 8, 8), 1e-6)),
        host=HostCosts(per_operator_s=1e-5),
    )

    assert predict_step(counted(), known, uses=uses).bound == bound


@pytest.mark.parametrize(
    ("memory_bytes", "fits"), [(599 * MEBI, False), (600 * MEBI, True), (None, None)]
)
def test_a_step_fits_where_its_peak_does(memory_bytes: int | None, fits: bool | None) -> None:
    known = calibration(memory_bytes=memory_bytes)

    assert predict_step(counted(), known, uses=[use(KNOWN)]).fits is fits


def test_earlier_predictions_are_told_and_set_the_interval() -> None:
    past = [
        PastPrediction(model="net", predicted_s=1.0, measured_s=measured_s, expected_error=0.1,
                       is_inside=measured_s < 1.2)
        for measured_s in (1.1, 1.1, 1.1, 1.25)
    ]  # fmt: skip

    found = predict_step(counted(), calibration(past=tuple(past)), uses=[use(KNOWN)])

    # the largest of four errors, in units of what was expected: log(1.25) / 0.1
    width = log(1.25) / 0.1 * found.expected_error
    assert log(found.interval_s[1] / found.time_s) == pytest.approx(width)
    assert (found.past.n, found.past.inside) == (4, 3)
    assert found.past.mean_error == pytest.approx((3 * (1 - 1 / 1.1) + 0.2) / 4)
    assert found.past.text.endswith("mean error, 3 of 4 inside the interval")
    assert is_inside(found, found.time_s)
    assert not is_inside(found, 2 * found.time_s)


def test_points_to_refine_are_those_with_most_time_at_stake() -> None:
    large, small = relu(12 * MEBI), relu(3 * MEBI // 2)
    uses = [use(small), use(KNOWN), use(large)]

    found = predict_step(counted(), calibration(), uses=uses)

    assert points_to_refine(uses, found) == [large, small]


# ---------------------------------------------------------------- joules


def energy_model(**changes: Any) -> EnergyModel:
    def number(value: float) -> Coefficient:
        return Coefficient(value=value, interval=(value, value))

    model = EnergyModel(
        device="cpu", j_per_flop={"fp32": number(1e-11)}, j_per_byte={"dram": number(1e-10)},
        constant_power_w=number(10), r_squared=1.0, r_squared_power=1.0, mean_residual=0.0,
        points=(), how="by hand", measured_at="2026-11-19T00:00:00+00:00",
    )  # fmt: skip
    return replace(model, **changes)


@pytest.mark.parametrize(
    ("model", "watts"),
    [
        (None, None),
        # 2e9 FLOPs: 0.02 J; 12 MB: 1.2 mJ; 0.1 s: 1 J
        (energy_model(), 10.2 + 0.012),
        (energy_model(power_cap_w=10.1), 10.1),
        (energy_model(j_per_flop={}), None),
    ],
)
def test_power_and_energy(model: EnergyModel | None, watts: float | None) -> None:
    point = replace(product(1000, 1000, 1000), moved_bytes=12e6)

    found = find_energy([use(point)], model, time_s=0.1)

    expected = (None, None) if watts is None else pytest.approx((watts, watts / 10))
    assert found == expected


# ---------------------------------------------------------------- scaled


def roofs(factor: float, env: str = "gpu") -> Roofs:
    return Roofs(
        env=env, device="cuda:0", device_name=env,
        compute={"fp32 vector": 50e12 * factor, "bf16 matrix": 800e12 * factor},
        bandwidth={"dram": 2e12 * factor},
    )  # fmt: skip


def of_roofs(factor: float, env: str = "gpu") -> Calibration:
    return calibration_of_roofs(roofs(factor, env), source="scaled from X", units=100,
                                memory_bytes=1 << 30)  # fmt: skip


def test_limits_alone_give_scaled_times() -> None:
    time_s, provenance = estimate(relu(256 * MEBI), of_roofs(1))

    assert provenance == "scaled"
    assert time_s == pytest.approx(8 * 256 * MEBI / 2e12, rel=0.3)
    # a guess at the host: 10 µs for an operator
    guess = predict_step(counted(), of_roofs(1), uses=[use(relu(8))])
    assert guess.bound == "host"
    assert guess.interval_s[1] > 1.5 * guess.time_s


@pytest.mark.parametrize("point", [KNOWN, relu(2 * MEBI)])
def test_measured_times_are_scaled_by_the_limits_of_both(point: OperatorPoint) -> None:
    known = replace(calibration(), device="cuda:0")

    scaled = scale_calibration(known, of_roofs(1), of_roofs(0.01, "slow"), "scaled from small")

    time_s, provenance = estimate(point, scaled)
    assert provenance == "scaled"
    here_s, _ = estimate(point, known)
    assert time_s / here_s == pytest.approx(100, rel=0.02)  # but for the least time of a kernel
    assert (scaled.machine, scaled.past, scaled.uuid) == ("slow", (), None)
