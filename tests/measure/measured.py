"""A measurement made by hand: two samples a step, ten steps of a second each, nothing amiss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch
from tests.measure.fakes import FP32, workload

from ridgeline.measure.backends import Backend, CudaBackend, Precision
from ridgeline.measure.run_record import Case, Measurement, timed_result
from ridgeline.measure.timing import StepTimes, Timing, WarmUp
from ridgeline.records import Conditions, EnergyWindowResult, RunConditions, Usage, WorkloadSpec
from ridgeline.settings import Settings


def backend(kind: str) -> Backend:
    made = CudaBackend if kind == "cuda" else Backend
    return made(kind=kind, device=torch.device("cpu"), name="a chip")


def timing_of(*steps_s: float, data_s: float = 0.0, elapsed_s: float | None = None) -> Timing:
    times = StepTimes(
        steps_s=steps_s,
        phases_s={
            "data": (data_s,) * len(steps_s),
            "forward": tuple(step_s - data_s for step_s in steps_s),
        },
    )
    return Timing(
        elapsed_s=elapsed_s or sum(steps_s), device=times, host=times, start_s=0.0,
        usage=Usage(user_time_s=1.0, system_time_s=0.0, elapsed_s=1.0, involuntary_switches=0),
        end_s=sum(steps_s),
    )  # fmt: skip


def measured(
    kind: str = "cpu",
    timing: Timing | None = None,
    *,
    mode: str = "train",
    settings: Settings | None = None,
    precision: Precision | None = None,
    during: Conditions | None = None,
    kernels: Any = None,
    layers: Any = None,
    describe: Mapping[str, object] | None = None,
    **changes: Any,
) -> Measurement:
    """`changes` are fields of the measurement or of its result."""
    spec = WorkloadSpec(model="line", batch_size=2, mode=mode)
    timing, settings = timing or timing_of(*[1.0] * 10), settings or Settings()
    own = {field.name for field in fields(Measurement)}
    values: dict[str, Any] = {
        "data": "synthetic",
        "warmup": WarmUp(times_s=(1.0,) * 10, is_steady=True, build_time_s=0.5),
        "conditions": RunConditions(during=during or Conditions()),
        **{name: value for name, value in changes.items() if name not in own},
    }  # fmt: skip
    case = Case(
        workload=workload(describe=dict(describe or {})), spec=spec, settings=settings,
        backend=backend(kind), precision=precision or FP32,
    )  # fmt: skip
    made = Measurement(**{
        "case": case, "timing": timing, "result": timed_result(case, timing, **values),
        **{name: value for name, value in changes.items() if name in own},
    })  # fmt: skip
    if kernels is not None:
        made.add_kernels(kernels)
    if layers is not None:
        made.add_layers(layers)
    return made


def energy_window(
    *, start_s: float = 0.0, end_s: float, steps: int, mean_power_w: float, **powers_w: float | None
) -> EnergyWindowResult:
    """A window of known power; its joules follow."""
    energy_j = mean_power_w * (end_s - start_s)
    return EnergyWindowResult(
        start_s=start_s, end_s=end_s, steps=steps, mean_power_w=mean_power_w, energy_j=energy_j,
        energy_j_per_step=energy_j / steps, **powers_w,
    )  # fmt: skip
