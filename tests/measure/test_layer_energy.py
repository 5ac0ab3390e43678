"""Joules of one call, by repeating it on a device of known power."""

from __future__ import annotations

import pytest
from tests.measure.simulated import Device, SteppedSampler

from ridgeline.measure.layer_energy import RepeatedEnergy, repeat_energy
from ridgeline.sensors.meter import Meters


class Layer:
    """A call of 1 ms at 500 W, which is 0.5 J; `noise_w` is added in turns of a second."""

    def __init__(self, device: Device, noise_w: float = 0.0) -> None:
        self.device, self.noise_w = device, noise_w
        self.calls = self.syncs = 0

    def call(self) -> None:
        self.calls += 1
        if self.calls == 1:
            self.device.spend(0.5, 100.0)  # as a compiler does
        self.device.spend(0.001, 500.0 + self.noise_w * (int(self.device.now_s) % 4))

    def sync(self) -> None:
        self.syncs += 1


def repeated(layer: Layer, meters: Meters | None = None, **named: float) -> RepeatedEnergy | None:
    device = layer.device
    meters = meters or device.meters()
    return repeat_energy(
        layer.call, layer.sync, meters, refresh_s=0.1, clock=device.clock,
        sampler=SteppedSampler(device, meters), **named,
    )  # fmt: skip


def test_the_energy_of_one_call() -> None:
    layer = Layer(Device())

    energy = repeated(layer)

    assert energy is not None
    assert energy.energy_j_per_call == pytest.approx(0.5, rel=0.02)
    assert energy.time_s_per_call == pytest.approx(0.001, rel=0.01)
    assert (energy.attribution, energy.has_reached_target) == ("repeated alone", True)
    assert len(energy.windows) == 6  # of 1 s: ten refreshes each
    assert energy.calls_per_batch == 50
    assert layer.calls / layer.syncs == pytest.approx(50, rel=0.05)  # not waited for at each call


def test_it_ends_at_the_limit_and_says_so() -> None:
    layer = Layer(Device(), noise_w=200.0)

    energy = repeated(layer, target=0.001, limit_s=8.0)

    assert energy is not None
    assert not energy.has_reached_target
    assert layer.device.now_s == pytest.approx(8.9, abs=0.5)  # with 0.9 s of finding out
    assert energy.power is not None and energy.power.std_w > 100


def test_a_short_limit_still_has_windows_enough() -> None:
    layer = Layer(Device())

    energy = repeated(layer, limit_s=2.0)

    assert energy is not None and len(energy.windows) == 6
    assert layer.device.now_s == pytest.approx(3.1, abs=0.2)
    assert energy.energy_j_per_call == pytest.approx(0.5, rel=0.05)


def test_no_meter_no_energy() -> None:
    layer = Layer(Device())

    assert repeated(layer, Meters(reasons=("no counters",))) is None
    assert layer.calls == 0


def test_a_meter_that_does_not_work_gives_none() -> None:
    layer = Layer(Device())
    layer.device.break_counter = lambda _energy_j: 42.0

    assert repeated(layer, layer.device.meters("counter")) is None
