"""What was measured, and its record: the result that a run folder keeps, and its tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import pandas as pd

from ridgeline.machine.sampling import summarise
from ridgeline.measure.backends import Backend, Precision
from ridgeline.measure.energy import Pass
from ridgeline.measure.layer_energy import is_certain
from ridgeline.measure.layers import LayerTimes, layer_table
from ridgeline.measure.timing import SPLIT, StepTimes, Timing
from ridgeline.records import (
    EnergyResult,
    HostTimes,
    KernelTime,
    LayerSum,
    PhaseTime,
    RunResult,
    WorkloadSpec,
)
from ridgeline.sensors.sampler import Reading
from ridgeline.settings import Settings
from ridgeline.workloads import Workload

if TYPE_CHECKING:
    from torch import nn

ENERGY_COLUMNS = (
    "energy_per_layer_j", "energy_interval_j", "energy_attribution", "is_energy_narrow",
    "power_mean_w", "power_std_w", "power_samples",
)  # fmt: skip
WITHOUT_GAPS = "device, without gaps between kernels"
BETWEEN = "between"  # a reading that belongs to no pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A configuration, and what it runs on."""

    workload: Workload
    spec: WorkloadSpec
    settings: Settings
    backend: Backend
    precision: Precision


@dataclass(slots=True, kw_only=True)
class Measurement:
    """A configuration that is measured, pass by pass: its result so far, and what it is made of."""

    case: Case
    timing: Timing
    result: RunResult
    layers: LayerTimes | None = None
    layer_energies: dict[str, tuple[EnergyResult, ...]] = field(default_factory=dict)
    readings: tuple[Reading, ...] = ()
    passes: tuple[Pass, ...] = ()  # which readings belong to what
    log: list[str] = field(default_factory=list)
    is_loss_finite: bool = True

    def add(self, **values: Any) -> None:
        """What a further pass found."""
        self.result = replace(self.result, **values)

    def add_kernels(self, kernels: KernelTime | None) -> None:
        """Also how much of a step the GPU works: kernel time over step time.

        The two come from two passes, so a full GPU may seem to work a little longer than a step.
        """
        kernel_s = kernels.time_s if kernels else None
        step_s = self.result.step_time_s.median
        busy = None if kernel_s is None else min(1.0, kernel_s / step_s)
        self.add(kernels=kernels, busy_fraction=busy)

    def add_layers(self, layers: LayerTimes) -> None:
        """Also how the layers add up, compared with the unprofiled step."""
        step_s = self.result.step_time_s.median
        total = LayerSum(
            sum_s=layers.sum_s,
            step_time_s=step_s,
            difference_s=layers.sum_s - step_s,
            difference=layers.sum_s / step_s - 1,
            pass_times_s=layers.steps_s,
            mark_cost_s=layers.mark_cost_s,
            clock=WITHOUT_GAPS if layers.is_held_back else self.result.clock,
        )
        self.layers = layers
        self.add(layers=total)


def timed_result(case: Case, timing: Timing, **values: Any) -> RunResult:
    """The result once the steps are timed; `values` are further fields."""
    workload, backend, steps = case.workload, case.backend, len(timing.device.steps_s)
    samples = case.spec.batch_size * case.settings.batches_in_step(case.spec.mode)
    return RunResult(
        model=workload.name,
        source=workload.source,
        describe=dict(workload.describe),
        backend=backend.kind,
        device_name=backend.name,
        device_uuid=backend.uuid,
        precision=case.precision.used,
        iters=steps,
        samples_per_step=samples,
        samples_processed=samples * steps,
        elapsed_s=timing.elapsed_s,
        clock="device events" if backend.has_events else "host, monotonic",
        step_time_s=summarise(timing.device.steps_s),
        split_s=_split(timing.device),
        host=HostTimes(step_time_s=tuple(timing.host.steps_s), split_s=_split(timing.host)),
        timed_usage=timing.usage,
        **values,
    )


def _split(times: StepTimes) -> dict[str, PhaseTime]:
    """Median, mean and samples of each phase that the step has, in the order of SPLIT."""
    return {
        phase: PhaseTime(median=median(taken), mean=fmean(taken), samples=tuple(taken))
        for phase in SPLIT
        if (taken := times.phases_s.get(phase))
    }


# ---------------------------------------------------------------- tables


def make_tables(measured: Measurement, module: nn.Module) -> dict[str, pd.DataFrame]:
    """A row per layer, and a row per reading of a meter, where there are any."""
    tables: dict[str, pd.DataFrame] = {}
    if measured.layers is not None:
        layers = layer_table(module, measured.layers)
        rows = [_energy_row(measured.layer_energies.get(path, ())) for path in layers["layer"]]
        joules = pd.DataFrame(rows, index=layers.index).astype({"energy_per_layer_j": "float64"})
        tables["layers"] = pd.concat([layers, joules], axis=1)
    if measured.readings:
        tables["power"] = readings_table(measured.readings, measured.passes)
    return tables


def _energy_row(calls: tuple[EnergyResult, ...]) -> dict[str, Any]:
    """Joules of a layer in a step: of all its calls, each repeated alone."""
    if not calls:
        return dict.fromkeys(ENERGY_COLUMNS)
    intervals: list[Any] = [one.interval_j_per_step for one in calls]
    ends = [sum(one[end] for one in intervals if one is not None) for end in (0, 1)]
    return {
        "energy_per_layer_j": sum(one.energy_j_per_step or 0.0 for one in calls),
        "energy_interval_j": ends if None not in intervals else None,
        "energy_attribution": "repeated alone",
        "is_energy_narrow": all(is_certain(one) for one in calls),
        "power_mean_w": calls[0].power_mean_w,
        "power_std_w": calls[0].power_std_w,
        "power_samples": calls[0].power_samples or None,
    }


def readings_table(readings: Sequence[Reading], passes: Sequence[Pass]) -> pd.DataFrame:
    """Columns time_s, pass, power_w, energy_j, clock_hz, memory_clock_hz, temperature_c and
    throttle_reasons (joined by "; ", empty where none held, absent where it was not asked).
    """
    numbers = ("clock_hz", "memory_clock_hz", "temperature_c")
    seen = [reading.conditions for reading in readings]
    table = pd.DataFrame(
        {
            "time_s": [reading.time_s for reading in readings],
            "pass": [pass_at(reading.time_s, passes) for reading in readings],
            "power_w": [  # by the meter, or in the conditions where the meter was not asked
                one.conditions.power_w if one.power_w is None else one.power_w for one in readings
            ],
            "energy_j": [reading.energy_j for reading in readings],
            **{name: [getattr(one, name) for one in seen] for name in numbers},
        }
    ).astype(dict.fromkeys(("time_s", "power_w", "energy_j", *numbers), "float64"))
    return table.assign(throttle_reasons=["; ".join(one.throttle_reasons) for one in seen])


def pass_at(time_s: float, passes: Sequence[Pass]) -> str:
    """The name of the pass at this time."""
    return next((one.name for one in passes if one.start_s <= time_s <= one.end_s), BETWEEN)
