"""A measurement made by hand: two samples a step, ten steps of a second each, nothing amiss."""

from __future__ import annotations

from typing import Any

import torch
from tests.measure.fakes import workload

from ridgeline.measure.backends import Backend, DeviceMemory
from ridgeline.measure.marks import StepTimes
from ridgeline.measure.measurement import Measurement
from ridgeline.measure.precision import Precision
from ridgeline.measure.statistics import summarise
from ridgeline.measure.timing import Timing, WarmUp
from ridgeline.records import Conditions, EnergyWindowResult, Usage, WorkloadSpec
from ridgeline.settings import Settings


def backend(kind: str) -> Backend:
    return Backend(kind=kind, device=torch.device("cpu"), name="a chip")


def timing_of(*steps_s: float, data_s: float = 0.0, elapsed_s: float | None = None) -> Timing:
    times = StepTimes(
        steps_s=steps_s,
        phases_s={
            "data": (data_s,) * len(steps_s),
            "forward": tuple(step_s - data_s for step_s in steps_s),
        },
    )
    return Timing(
        elapsed_s=elapsed_s or sum(steps_s), device=times, host=times, has_events=False,
        usage=Usage(user_time_s=1.0, system_time_s=0.0, elapsed_s=1.0, involuntary_switches=0),
        start_s=0.0, end_s=sum(steps_s),
    )  # fmt: skip


def measured(kind: str = "cpu", timing: Timing | None = None, **changes: Any) -> Measurement:
    timing = timing or timing_of(*[1.0] * 10)
    values: dict[str, Any] = {
        "spec": WorkloadSpec(model="line", batch_size=2, mode="train"),
        "settings": Settings(),
        "workload": workload(),
        "backend": backend(kind),
        "precision": Precision(requested="fp32", used="fp32"),
        "data": "synthetic",
        "build_time_s": 0.5,
        "warmup": WarmUp(times_s=(1.0,) * 10, is_steady=True),
        "timing": timing,
        "step_time": summarise(timing.device.steps_s),
        "memory": DeviceMemory(),
        "before": Conditions(),
        "during": Conditions(),
    }
    return Measurement(**(values | changes))


def energy_window(
    *, start_s: float = 0.0, end_s: float, steps: int, mean_power_w: float, **powers_w: float | None
) -> EnergyWindowResult:
    """A window of known power; its joules follow."""
    energy_j = mean_power_w * (end_s - start_s)
    return EnergyWindowResult(
        start_s=start_s, end_s=end_s, steps=steps, mean_power_w=mean_power_w, energy_j=energy_j,
        energy_j_per_step=energy_j / steps, **powers_w,
    )  # fmt: skip
