"""The record of one measured configuration, before it is summarised for the store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ridgeline.measure.backends import Backend
from ridgeline.measure.layer_energy import RepeatedEnergy
from ridgeline.measure.layers import LayerTimes
from ridgeline.measure.power import Pass
from ridgeline.measure.precision import Precision
from ridgeline.measure.statistics import Summary
from ridgeline.measure.timing import Timing
from ridgeline.records import (
    Conditions,
    DeviceMemory,
    EnergyResult,
    KernelTime,
    ProcessStats,
    WarmUp,
    WorkloadSpec,
)
from ridgeline.sensors.sampler import Reading
from ridgeline.settings import Settings
from ridgeline.workloads import Workload


@dataclass(slots=True, kw_only=True)
class Measurement:
    """Everything that was measured, pass by pass."""

    spec: WorkloadSpec
    settings: Settings
    workload: Workload
    backend: Backend
    precision: Precision
    data: str  # the kind: "synthetic", "cifar10", …
    build_time_s: float
    warmup: WarmUp
    timing: Timing
    step_time: Summary
    memory: DeviceMemory
    before: Conditions
    during: Conditions
    after: Conditions = field(default_factory=Conditions)
    kernels: KernelTime | None = None
    energy: EnergyResult | None = None
    energy_reasons: tuple[str, ...] = ()  # why there is none
    optimizer_settings: dict[str, Any] = field(default_factory=dict)  # as they were used
    layers: LayerTimes | None = None
    layer_energies: dict[str, tuple[RepeatedEnergy, ...]] = field(default_factory=dict)
    process: ProcessStats | None = None  # up to the end of the timing
    threads: int | None = None  # that torch uses on the CPU
    readings: tuple[Reading, ...] = ()
    passes: tuple[Pass, ...] = ()  # which readings belong to what
    warnings: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    @property
    def samples_per_step(self) -> int:
        return self.spec.batch_size * self.settings.batches_in_step(self.spec.mode)

    @property
    def samples_per_s(self) -> float:
        """Over the whole of the timed steps, from an idle device to an idle device."""
        return self.samples_per_step * len(self.timing.device.steps_s) / self.timing.elapsed_s

    @property
    def busy_fraction(self) -> float | None:
        """Kernel time over step time; None where there are no kernels or nothing sees them.

        The two come from two passes, so a full GPU may seem to work a little longer than a step.
        """
        kernel_s = self.kernels.time_s if self.kernels else None
        return None if kernel_s is None else min(1.0, kernel_s / self.step_time.median)
