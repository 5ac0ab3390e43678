"""`ridgeline run` on a real GPU: events, kernels, energy, layers and memory agree."""

from typing import Any

import pytest
import torch
from torch import nn

import ridgeline
from ridgeline.measure.isolation import run_isolated
from ridgeline.measure.measure_workload import build_stepper
from ridgeline.measure.worker import Task, measure_task, memory_task
from ridgeline.records import WorkloadSpec
from ridgeline.sensors.meters import find_meters
from ridgeline.settings import Settings
from ridgeline.workloads import resolve

NO_ENERGY: dict[str, Any] = {"energy": False, "iters": 20}


@pytest.mark.parametrize("precision", ["fp32", "tf32", "amp", "bf16", "fp16"])
def test_every_precision_trains(precision: str) -> None:
    result = ridgeline.measure("resnet18", batch_size=8, precision=precision, **NO_ENERGY)
    assert result.result.precision == precision
    assert result.result.clock == "device events"
    assert result.step_time_s > 0


def test_the_split_adds_up_to_the_step_and_host_and_device_agree() -> None:
    # when a step is timed by events and by the host
    result = ridgeline.measure("resnet50", batch_size=64, **NO_ENERGY)
    # then the parts are the whole, and over all steps both clocks tell the same
    assert sum(result.split_s.values()) == pytest.approx(result.step_time_s, rel=0.05)
    assert sum(result.result.step_time_s.samples) == pytest.approx(
        result.result.elapsed_s, rel=0.02
    )


def test_busy_fraction_is_a_fraction_and_large_batches_fill_the_gpu() -> None:
    small = ridgeline.measure("resnet50", batch_size=2, mode="infer", **NO_ENERGY)
    large = ridgeline.measure("resnet50", batch_size=128, **NO_ENERGY)
    assert small.busy_fraction is not None
    assert large.busy_fraction is not None
    assert 0 < small.busy_fraction < large.busy_fraction <= 1
    assert large.busy_fraction > 0.9


def test_layers_add_up_to_the_time_of_the_kernels() -> None:
    # when the layers of a step that fills the GPU are timed
    result = ridgeline.measure("resnet50", batch_size=128, layers=True, **NO_ENERGY)
    # then their sum is the kernels' time, and convolutions are most of it
    assert result.result.kernels is not None
    kernels_s = result.result.kernels.time_s
    assert result.layers["time_s"].sum() == pytest.approx(kernels_s, rel=0.05)
    by_kind = result.layers.groupby("kind")["time_s"].sum()
    assert by_kind["Conv2d"] > by_kind["BatchNorm2d"] > by_kind["Linear"]


def test_energy_counter_and_sensor_agree() -> None:
    if find_meters("cuda", uuid=_uuid()).first("counter") is None:
        pytest.skip("this GPU has no energy counter")
    result = ridgeline.measure("resnet50", batch_size=128, precision="amp", energy_time_s=10)
    energy = result.result.energy
    assert energy is not None
    assert energy.kind == "counter"
    assert energy.counter_over_sampled == pytest.approx(1, abs=0.03)
    assert (energy.mean_power_w or 0) > (energy.idle_power_w or 0) > 0


def test_a_batch_that_does_not_fit_is_a_failure_with_a_reason() -> None:
    task = Task(spec=WorkloadSpec(model="resnet50", batch_size=100_000, mode="train"),
                settings=Settings())  # fmt: skip
    outcome = run_isolated(measure_task, task)
    assert outcome.failure is not None
    assert outcome.failure.is_out_of_memory
    assert outcome.failure.reason.startswith("out of memory")


def test_memory_is_found_by_trying() -> None:
    task = Task(spec=WorkloadSpec(model="resnet50", batch_size=8, mode="train"),
                settings=Settings())  # fmt: skip
    peak_bytes, total_bytes = run_isolated(memory_task, task).value()
    assert 10**8 < peak_bytes < 10**10 < total_bytes


def test_layers_can_be_repeated_for_their_energy() -> None:
    net = nn.Sequential(  # few layers: each one is repeated for seconds
        nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.AdaptiveAvgPool2d(8), nn.Flatten(),
        nn.Linear(4096, 1024),
    )  # fmt: skip
    images = torch.randn(256, 3, 112, 112)
    result = ridgeline.measure(net, images, mode="infer", layer_energy=True, iters=20)
    repeated = result.layers[result.layers["energy_attribution"] == "repeated alone"]
    assert set(repeated["kind"]) >= {"Conv2d", "BatchNorm2d", "Linear"}
    assert (repeated["energy_per_layer_j"] > 0).all()


def _uuid() -> str | None:
    spec = WorkloadSpec(model="resnet18_cifar", mode="infer")
    return build_stepper(resolve(spec), spec, Settings(backend="cuda")).backend.uuid
