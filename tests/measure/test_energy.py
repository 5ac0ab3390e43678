"""Joules from meters: hand-computed readings, and a simulated device of known energy."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pandas as pd
import pytest
from tests.measure.measured import energy_window
from tests.measure.simulated import Device, SteppedSampler, readings_while

from ridgeline.measure.energy import (
    EnergyMeasurement,
    Pass,
    Update,
    advise_on_energy,
    counter_fault,
    counter_power_w,
    evaluate_passes,
    measure_energy,
    refresh_interval_s,
    sampled_power_w,
    summarise_windows,
    updates,
)
from ridgeline.measure.run_record import readings_table
from ridgeline.records import Conditions, EnergyResult
from ridgeline.sensors.sampler import Meters, Reading

TICKS = [  # the counter advances by 10 J between 1 and 2 s, and 30 J between 4 and 5 s
    Reading(time_s=0.0, energy_j=100.0),
    Reading(time_s=1.0, energy_j=100.0),
    Reading(time_s=2.0, energy_j=110.0),
    Reading(time_s=3.0, energy_j=110.0),
    Reading(time_s=4.0, energy_j=110.0),
    Reading(time_s=5.0, energy_j=140.0),
    Reading(time_s=6.0, energy_j=140.0),
]
POWERS = [
    Reading(time_s=0.0, power_w=900.0),  # from before
    Reading(time_s=1.0, power_w=900.0),
    Reading(time_s=3.0, power_w=100.0),
    Reading(time_s=5.0, power_w=100.0),
    Reading(time_s=7.0, power_w=200.0),
    Reading(time_s=8.0, power_w=200.0),
]


def trapezoid_j(readings: list[Reading]) -> float:
    """What a spreadsheet would do with all samples in a row."""
    known = [(r.time_s, r.power_w) for r in readings if r.power_w is not None]
    return sum((b - a) * (p + q) / 2 for (a, p), (b, q) in pairwise(known))


# ---- arithmetic ----------------------------------------------------------------------------------


def test_an_update_lies_between_the_two_readings_that_show_it() -> None:
    assert updates(TICKS, "energy_j") == [Update(1.5, 110.0), Update(4.5, 140.0)]
    assert updates(TICKS, "power_w") == []


def test_counter_power_is_the_slope_between_updates() -> None:
    assert counter_power_w(TICKS, 0.0, 6.0) == 10.0  # 30 J in 3 s
    assert counter_power_w(TICKS, 2.0, 6.0) is None  # one update has no slope


def test_sampled_power_begins_with_the_first_update_inside() -> None:
    # 100 W from 2 to 6 s, 200 W from 6 to 8 s; the 900 W are from before the window
    assert sampled_power_w(POWERS, 0.0, 8.0) == pytest.approx(800 / 6)
    assert sampled_power_w(POWERS, 7.0, 8.0) == 200.0  # it stayed the same
    assert sampled_power_w(POWERS, 20.0, 30.0) is None


def test_the_gap_between_two_windows_has_no_joules() -> None:
    # given 100 W in two windows of 1 s, and 8 s between them
    first = [Reading(time_s=0.1 * n, power_w=99.0 + n % 3) for n in range(11)]
    second = [Reading(time_s=9.0 + 0.1 * n, power_w=99.0 + n % 3) for n in range(11)]
    readings = first + second

    windows_w = [sampled_power_w(readings, start_s, start_s + 1.0) for start_s in (0.0, 9.0)]

    assert windows_w == pytest.approx([100.0, 100.0], rel=0.01)
    assert trapezoid_j(readings) == pytest.approx(1000.0, rel=0.01)  # five times the truth


def test_the_refresh_interval_is_the_middle_distance_of_changes() -> None:
    times_s = [0.0, 0.1, 0.2, 0.3, 0.9]  # one change was missed for long
    readings = [Reading(time_s=t + d, power_w=100 + t) for t in times_s for d in (0, 0.02, 0.05)]
    counted = [Reading(time_s=r.time_s, power_w=5.0, energy_j=r.power_w) for r in readings]

    assert refresh_interval_s(readings) == pytest.approx(0.1)
    assert refresh_interval_s(counted) == pytest.approx(0.1)
    assert refresh_interval_s(TICKS) is None  # two changes are one distance
    assert refresh_interval_s([]) is None


@pytest.mark.parametrize(
    ("energies_j", "fault"),
    [
        ([0, 10, 20, 30, 40], None),
        ([0, 0, 0, 0, 0], "did not advance in 4 s of work"),
        ([50, 60, 70, 20, 30], "went backwards by 50 J"),
        ([None, None], "did not answer"),
    ],
    ids=str,
)
def test_a_broken_counter_is_found_out(energies_j: list[float | None], fault: str | None) -> None:
    readings = [Reading(time_s=float(n), energy_j=value) for n, value in enumerate(energies_j)]

    assert counter_fault(readings, 0.0, float(len(readings) - 1)) == fault


# ---- a device of known energy --------------------------------------------------------------------


def measurement_of(device: Device, *kinds: str, total_s: float = 10.0) -> EnergyMeasurement:
    meters = device.meters(*kinds)
    return measure_energy(
        device.run_for, meters, samples_per_step=8, total_s=total_s,
        sampler=SteppedSampler(device, meters), clock=device.clock, rest=device.spend,
    )  # fmt: skip


def measured(device: Device, *kinds: str, total_s: float = 10.0) -> EnergyResult:
    energy = measurement_of(device, *kinds, total_s=total_s).energy
    assert energy is not None
    return energy


def test_the_energy_of_a_step() -> None:
    device = Device()

    energy = measured(device)

    assert (energy.meter, energy.scope, energy.kind) == ("counter", "a board", "counter")
    assert energy.refresh_interval_s == pytest.approx(0.1, abs=0.003)
    assert [window.steps for window in energy.windows] == [51] * 5  # just over 2 s: 20 refreshes
    assert energy.energy_j_per_step == pytest.approx(Device.STEP_J, rel=0.01)
    assert energy.energy_j_per_sample == pytest.approx(3.0, rel=0.01)
    assert energy.mean_power_w == pytest.approx(600.0, rel=0.01)
    assert energy.energy_total_j == pytest.approx(51 * 5 * Device.STEP_J, rel=0.01)
    assert energy.idle_power_w == pytest.approx(100.0, rel=0.01)
    assert energy.energy_above_idle_j_per_step == pytest.approx(20.0, rel=0.01)
    assert energy.interval_j_per_step is None  # of five windows
    assert energy.step_time_s == pytest.approx(0.040)
    assert energy.counter_over_sampled == pytest.approx(1.0, abs=0.03)
    assert energy.conditions == Conditions(temperature_c=50.0)
    assert (energy.notes, energy.warnings) == ((), ())


@pytest.mark.parametrize("kind", ["counter", "power"])
@pytest.mark.parametrize("offset_s", [0.001, 0.05, 0.099])
def test_either_meter_will_do_however_it_is_late(kind: str, offset_s: float) -> None:
    energy = measured(Device(offset_s=offset_s), kind)

    assert energy.kind == kind
    assert energy.energy_j_per_step == pytest.approx(Device.STEP_J, rel=0.01)
    assert energy.counter_over_sampled is None
    assert energy.power_mean_w == pytest.approx(600.0, rel=0.02)


# ---- what can go wrong ---------------------------------------------------------------------------


def test_without_a_meter_there_is_no_energy_and_nothing_runs() -> None:
    def run_for(_duration_s: float) -> int:
        raise AssertionError("there is nothing to measure")

    measurement = measure_energy(
        run_for, Meters(reasons=("no counters",)), samples_per_step=1, total_s=5.0
    )

    assert (measurement.energy, measurement.reasons) == (None, ("no counters",))
    assert (measurement.readings, measurement.passes) == ((), ())


def test_a_stuck_counter_gives_way_to_the_sensor() -> None:
    device = Device()
    device.break_counter = lambda _energy_j: 42.0

    energy = measured(device)

    assert (energy.meter, energy.kind) == ("sensor", "power")
    assert energy.energy_j_per_step == pytest.approx(Device.STEP_J, rel=0.01)
    assert energy.notes == ("the counter did not advance in 10.2 s of work: it is not used",)


def energy_of(*powers_w: float, sampled_w: float | None = None) -> EnergyResult:
    windows = tuple(
        energy_window(start_s=2.0 * n, end_s=2.0 * n + 2.0, steps=4, mean_power_w=power_w,
                     counter_power_w=power_w, sampled_power_w=sampled_w)
        for n, power_w in enumerate(powers_w)
    )  # fmt: skip
    energy = summarise_windows(windows, samples_per_step=2, idle_power_w=10.0)
    return replace(energy, meter="m", scope="s", kind="counter")


def test_windows_that_differ_are_told_with_a_remedy() -> None:
    assert advise_on_energy(energy_of(100.0, 101.0, 102.0)) == []
    assert advise_on_energy(energy_of(0.0, 0.0, 0.0)) == []
    assert advise_on_energy(energy_of(100.0, 106.0, 112.0)) == [
        "windows differ by 11.3 %: run longer with `ridgeline run … --energy-time 12`"
    ]


def test_meters_that_disagree_are_told() -> None:
    (text,) = advise_on_energy(energy_of(37.4, 37.4, sampled_w=65.4))
    assert text.startswith(
        "the energy counter says 42.8 % less than the power sensor (37.4 W and 65.4 W): take that"
    )


def test_a_window_without_a_reading_is_left_out_and_told() -> None:
    readings = readings_while(lambda device: device.run_for(2.0))
    passes = [
        Pass(name="window 1", start_s=0.0, end_s=2.0, steps=50),
        Pass(name="window 2", start_s=2.1, end_s=3.0, steps=9),
    ]

    energy = evaluate_passes(Device().meters(), readings, passes, 1).energy

    assert energy is not None and len(energy.windows) == 1
    assert energy.notes == ("1 of 2 windows have no reading of their own",)
    assert energy.idle_power_w is None and energy.energy_above_idle_j_per_step is None


def test_readings_as_a_table() -> None:
    seen = Conditions(clock_hz=1e9, temperature_c=40.0, throttle_reasons=("power cap", "thermal"))
    readings = [
        Reading(time_s=1.0, power_w=50.0, energy_j=7.0, conditions=seen),
        Reading(time_s=2.5, energy_j=8.0),
        Reading(time_s=3.0, conditions=Conditions(power_w=60.0)),  # beside a timing
    ]

    table = readings_table(readings, [Pass(name="idle", start_s=0.0, end_s=2.0)])

    pd.testing.assert_frame_equal(
        table,
        pd.DataFrame(
            {
                "time_s": [1.0, 2.5, 3.0],
                "pass": ["idle", "between", "between"],
                "power_w": [50.0, None, 60.0],
                "energy_j": [7.0, 8.0, None],
                "clock_hz": [1e9, None, None],
                "memory_clock_hz": pd.Series([None] * 3, dtype="float64"),
                "temperature_c": [40.0, None, None],
                "throttle_reasons": ["power cap; thermal", "", ""],
            }
        ),
    )
    assert list(readings_table([], []).columns) == list(table.columns)
