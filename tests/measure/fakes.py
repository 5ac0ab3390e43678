"""A clock that stands still, a device behind it, and a network to take steps with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ridgeline.measure.backends import Backend, Precision, Timeline
from ridgeline.measure.step import Stepper, make_stepper
from ridgeline.settings import Settings
from ridgeline.workloads import Inputs, Workload

CPU = Backend(kind="cpu", device=torch.device("cpu"), name="a processor")
FP32 = Precision(requested="fp32", used="fp32")


class Clock:
    """Time passes only when somebody spends it."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def spend(self, time_s: float) -> None:
        self.now_s += time_s


class Gpu:
    """Works behind its host: what it is given waits in a queue. A mark takes it `mark_cost_s`."""

    def __init__(self, clock: Clock, mark_cost_s: float = 0.0) -> None:
        self.clock, self.mark_cost_s = clock, mark_cost_s
        self.free_s = 0.0
        self.calls: list[str] = []

    def launch(self, time_s: float) -> None:
        self.free_s = max(self.free_s, self.clock.now_s) + time_s

    def synchronize(self) -> None:
        self.calls.append("synchronize")
        self.clock.now_s = max(self.clock.now_s, self.free_s)

    def event(self) -> GpuEvent:
        return GpuEvent(self)

    def timeline(self) -> Timeline:
        return Timeline(self.event)


class GpuEvent:
    """As torch's: stamped when the device gets there, in milliseconds."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.at_s = gpu, -1.0

    def record(self) -> None:
        self.gpu.calls.append("record")
        self.gpu.launch(self.gpu.mark_cost_s)
        self.at_s = self.gpu.free_s

    def elapsed_time(self, end: GpuEvent) -> float:
        return 1e3 * (end.at_s - self.at_s)


class Said:
    """Marks that remember the phases."""

    def __init__(self) -> None:
        self.phases: list[str] = []

    def end(self, phase: str) -> None:
        self.phases.append(phase)


def marked_gpu(monkeypatch: pytest.MonkeyPatch, log: list[str]) -> Backend:
    """A GPU that is the CPU in truth; `log` gets the calls around a marked step."""

    class MarkedGpu(Backend):
        def synchronize(self) -> None:
            log.append("synchronize")

    def start_range(name: str) -> int:
        log.append(f"start range {name}")
        return 7

    calls = {
        "profiler.start": lambda: log.append("start profiler"),
        "profiler.stop": lambda: log.append("stop profiler"),
        "nvtx.range_start": start_range,
        "nvtx.range_end": lambda number: log.append(f"end range {number}"),
    }
    for name, call in calls.items():
        monkeypatch.setattr(f"torch.cuda.{name}", call)
    return MarkedGpu(kind="cuda", device=CPU.device, name="a GPU")


def squares(output: Tensor, inputs: Inputs) -> Tensor:
    assert isinstance(inputs.targets, Tensor)
    return ((output - inputs.targets) ** 2).mean()


def line_batch(batch_size: int) -> Inputs:
    """Numbers from 0 to 1, three features and one target each."""
    numbers = torch.linspace(0, 1, 4 * batch_size).reshape(batch_size, 4)
    return Inputs(args=(numbers[:, :3],), targets=numbers[:, 3:])


def workload(
    mode: str = "train",
    make: Callable[[], nn.Module] = lambda: nn.Linear(3, 1),
    make_inputs: Callable[[int], Inputs] = line_batch,
    **named: Any,
) -> Workload:
    return Workload(
        name="line", source="file", mode=mode, make=make, make_inputs=make_inputs,
        **{"loss": squares, **named},
    )  # fmt: skip


def stepper(
    work: Workload,
    *batches: Inputs,
    settings: Settings | None = None,
    backend: Backend = CPU,
    precision: Precision = FP32,
) -> Stepper:
    """One that is fed these batches, which are in place already."""
    return make_stepper(
        work, settings or Settings(), backend, precision, lambda _placement: (iter(batches), True)
    )
