"""Joules of a call and of layers that are repeated alone, on a device of known power."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.measure.fakes import stepper, workload
from tests.measure.simulated import Device, SteppedSampler
from torch import Tensor, nn

from ridgeline.measure import layer_energy
from ridgeline.measure.layer_energy import (
    CapturedCall,
    capture_layer_calls,
    is_certain,
    make_repeatable,
    measure_layer_energies,
    repeat_energy,
)
from ridgeline.measure.step import Stepper
from ridgeline.records import EnergyResult
from ridgeline.sensors.sampler import Meters
from ridgeline.workloads import Inputs


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


def repeated(layer: Layer, meters: Meters | None = None, **named: float) -> EnergyResult | None:
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
    assert energy.energy_j_per_step == pytest.approx(0.5, rel=0.02)
    assert energy.step_time_s == pytest.approx(0.001, rel=0.01)
    assert is_certain(energy)
    assert len(energy.windows) == 6  # of 1 s: ten refreshes each
    assert layer.calls / layer.syncs == pytest.approx(50, rel=0.05)  # not waited for at each call


# ---------------------------------------------------------------- every layer of a network


class Draws(nn.Module):
    """A layer that takes 1 ms and a power: 500 W for a millisecond is 0.5 J."""

    def __init__(self, device: Device, power_w: float) -> None:
        super().__init__()
        self.device, self.power_w = device, power_w
        self.calls = 0

    def extra_repr(self) -> str:
        return f"power_w={self.power_w}"

    def forward(self, given: Tensor) -> Tensor:
        self.calls += 1
        self.device.spend(0.001, self.power_w)
        return given


class NotAlone(nn.Module):
    """Works in its network only."""

    def __init__(self) -> None:
        super().__init__()
        self.is_first = True

    def forward(self, given: Tensor) -> Tensor:
        assert self.is_first, "somebody has to prepare this"
        self.is_first = False
        return given


def batch(size: int = 2) -> Inputs:
    return Inputs(args=(torch.ones(size, 3),), targets=torch.zeros(size, 3))


def stepper_of(*parts: nn.Module, mode: str = "infer") -> Stepper:
    return stepper(workload(mode, make=lambda: nn.Sequential(*parts)), batch())


def energies(
    monkeypatch: pytest.MonkeyPatch, device: Device, taken: Stepper, meters: Meters | None = None
) -> tuple[dict[str, Any], list[tuple[int, int]]]:
    meters = meters or device.meters()
    refreshes: list[float] = []

    def on_the_device(*args: Any, refresh_s: float, **named: Any) -> Any:
        refreshes.append(refresh_s)
        sampler = SteppedSampler(device, meters)
        return repeat_energy(
            *args, refresh_s=refresh_s, clock=device.clock, sampler=sampler, **named
        )

    monkeypatch.setattr(layer_energy, "repeat_energy", on_the_device)
    told: list[tuple[int, int]] = []
    found = measure_layer_energies(
        taken, meters, refresh_s=None, limit_s=2.0,
        on_progress=lambda done, total: told.append((done, total)),
    )  # fmt: skip
    assert set(refreshes) <= {0.1}  # what is assumed where nobody found out
    return found, told


def joules(found: dict[str, Any]) -> dict[str, list[float]]:
    return {path: [one.energy_j_per_step for one in calls] for path, calls in found.items()}


def test_layers_that_are_alike_are_repeated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device()
    first, second, other = Draws(device, 500.0), Draws(device, 500.0), Draws(device, 200.0)
    taken = stepper_of(first, other, second)

    found, told = energies(monkeypatch, device, taken)

    assert joules(found) == {
        "0": [pytest.approx(0.5, rel=0.05)],
        "1": [pytest.approx(0.2, rel=0.05)],
        "2": [pytest.approx(0.5, rel=0.05)],
    }
    assert found["0"][0] is found["2"][0]
    assert min(first.calls, second.calls) == 1  # only in the step that they were seen in
    assert told == [(1, 2), (2, 2)]


def test_a_layer_that_cannot_be_called_alone_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device()
    taken = stepper_of(Draws(device, 500.0), NotAlone())

    found, told = energies(monkeypatch, device, taken)

    assert list(found) == ["0"]
    assert told == [(1, 2), (2, 2)]


class PerRow(Draws):
    """A row takes it 1 ms."""

    def forward(self, given: Tensor) -> Tensor:
        self.calls += 1
        self.device.spend(0.001 * len(given), self.power_w)
        return given


class Twice(nn.Module):
    """Calls its layer with all rows, with one, and with all again."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, given: Tensor) -> Tensor:
        self.layer(given[:1] + self.layer(given)[:1])
        output: Tensor = self.layer(given)
        return output


def test_every_call_of_a_layer_has_its_own_joules(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device()
    taken = stepper_of(Twice(PerRow(device, 500.0)))

    found, told = energies(monkeypatch, device, taken)

    one, two = pytest.approx(0.5, rel=0.05), pytest.approx(1.0, rel=0.05)
    assert joules(found) == {"0.layer": [two, one, two]}
    assert found["0.layer"][0] is found["0.layer"][2]
    assert told == [(1, 2), (2, 2)]


def test_what_each_layer_is_given() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shared = nn.Linear(3, 3)
            self.inner = nn.Sequential(nn.ReLU())
            self.never = nn.Linear(1, 1)

        def forward(self, given: Tensor) -> Tensor:
            output: Tensor = self.shared(input=self.inner(self.shared(given)))
            return output

    taken = stepper(workload(make=Net), batch())

    given = capture_layer_calls(taken)

    assert [one.path for one in given] == ["shared", "inner.0", "shared"]  # calls of leaves
    assert torch.equal(given[0].args[0], torch.ones(2, 3)) and given[0].kwargs == {}
    assert given[2].args == () and list(given[2].kwargs) == ["input"]
    assert not any(part._forward_pre_hooks for part in taken.module.modules())


def given_to(layer: nn.Module, taken: Stepper) -> CapturedCall:
    return next(one for one in capture_layer_calls(taken) if one.layer is layer)


def test_training_repeats_the_backward_too_and_trains_nothing() -> None:
    layer = nn.Linear(3, 3)
    taken = stepper_of(nn.Linear(3, 3), layer, mode="train")
    with make_repeatable(given_to(layer, taken), taken) as call:
        assert call is not None
        gradients = call()

    assert isinstance(gradients, tuple)
    input_grad, weight_grad, bias_grad = gradients
    assert torch.allclose(input_grad, layer.weight.detach().sum(0).expand(2, 3))
    assert torch.equal(bias_grad, torch.full((3,), 2.0))
    assert weight_grad.shape == (3, 3)
    assert [weight.grad for weight in layer.parameters()] == [None, None]
