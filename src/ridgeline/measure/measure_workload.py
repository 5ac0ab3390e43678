"""One configuration measured: build, warm up, time, then the passes that would disturb a timing.

The order is the point. Whole steps are timed first, with nothing attached to the model; the passes
for kernels, energy and layers follow, and none of them can change a time that was taken before.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from ridgeline.measure import advice
from ridgeline.measure.backends import Backend, choose_backend
from ridgeline.measure.energy import measure_energy
from ridgeline.measure.kernels import measure_kernel_time
from ridgeline.measure.layer_energy import measure_layer_energies
from ridgeline.measure.layers import time_layers
from ridgeline.measure.marks import NoMarks, StepRecorder
from ridgeline.measure.measurement import Measurement
from ridgeline.measure.power import Pass
from ridgeline.measure.precision import Precision, choose_precision
from ridgeline.measure.process import process_stats
from ridgeline.measure.statistics import summarise
from ridgeline.measure.step import Stepper, make_stepper, torch_settings
from ridgeline.measure.tensors import Placement, pinned
from ridgeline.measure.timing import Timing, choose_iters, time_steps, warm_up
from ridgeline.records import Conditions, DeviceMemory, WarmUp, WorkloadSpec
from ridgeline.sensors.meter import Meters
from ridgeline.sensors.meters import find_meters
from ridgeline.sensors.sampler import DURING_TIMING_S, Reading, Sampler
from ridgeline.sensors.sampler import summarise as summarise_readings
from ridgeline.settings import SYNTHETIC, SYNTHETIC_HOST, Settings
from ridgeline.workloads import Inputs, Workload

if TYPE_CHECKING:
    from ridgeline.workloads.data import Source

OnProgress = Callable[[str, int, int], None]  # what is going on, how much is done, of how much

LEAST_IN_FLIGHT, IN_FLIGHT_S = 4, 0.2  # steps between two waits in the energy pass


def measure_workload(
    workload: Workload,
    spec: WorkloadSpec,
    settings: Settings,
    on_progress: OnProgress = lambda what, done, total: None,
) -> tuple[Measurement, Stepper]:
    """Measure one configuration; also the model with all that its steps need."""
    backend = choose_backend(settings.backend, settings.device)
    precision = choose_precision(settings.precision, backend)
    meters = find_meters(backend.kind, uuid=backend.uuid)
    log: list[str] = []
    with capture_warnings(log), torch_settings(settings, precision):
        measurement, stepper = _build_and_time(
            workload, spec, settings, backend, precision, meters, on_progress
        )
        _other_passes(measurement, stepper, meters, on_progress)
    measurement.after = meters.conditions()
    measurement.log = log
    measurement.warnings = advice.warnings(measurement, stepper.last_loss)
    return measurement, stepper


def _build_and_time(
    workload: Workload,
    spec: WorkloadSpec,
    settings: Settings,
    backend: Backend,
    precision: Precision,
    meters: Meters,
    on_progress: OnProgress,
) -> tuple[Measurement, Stepper]:
    """Build, warm up and time; meters are read beside it, too rarely to disturb."""
    before = meters.conditions()
    with Sampler(
        replace(meters, available=())
    ) as sampler:  # conditions only: meters are slow to read
        on_progress("building", 0, 0)
        start_s = perf_counter()
        stepper, data = _build(workload, spec, settings, backend, precision)
        build_time_s = perf_counter() - start_s
        warmup, timing, memory = _time(stepper, settings, sampler, on_progress)
    return Measurement(
        spec=spec,
        settings=settings,
        workload=workload,
        backend=backend,
        precision=precision,
        data=data,
        build_time_s=build_time_s,
        warmup=warmup,
        timing=timing,
        step_time=summarise(timing.device.steps_s),
        memory=memory,
        optimizer_settings=_optimizer_settings(stepper),
        before=before,
        during=_during(sampler.readings, timing),
        process=process_stats(),
        threads=torch.get_num_threads(),
        readings=sampler.readings,
        passes=(Pass(name="timed", start_s=timing.start_s, end_s=timing.end_s),),
    ), stepper


def _optimizer_settings(stepper: Stepper) -> dict[str, Any]:
    """What the optimizer was made with, its defaults included."""
    used = stepper.optimizer.defaults if stepper.optimizer is not None else {}
    return {name: used[name] for name in ("lr", "momentum", "weight_decay") if name in used}


def build_stepper(workload: Workload, spec: WorkloadSpec, settings: Settings) -> Stepper:
    """The model of a configuration, ready to take steps."""
    backend = choose_backend(settings.backend, settings.device)
    precision = choose_precision(settings.precision, backend)
    return _build(workload, spec, settings, backend, precision)[0]


def _build(
    workload: Workload,
    spec: WorkloadSpec,
    settings: Settings,
    backend: Backend,
    precision: Precision,
) -> tuple[Stepper, str]:
    opened: list[Source] = []

    def batches(placement: Placement) -> tuple[Iterator[Inputs], bool]:
        template = workload.inputs(spec.batch_size)
        if settings.data == SYNTHETIC:
            return repeat(placement.inputs(template)), True
        if settings.data == SYNTHETIC_HOST:
            can_pin = settings.pin_memory and backend.kind == "cuda"
            return repeat(pinned(template) if can_pin else template), False
        opened.append(_open(template, spec, settings))
        return opened[0].batches, False

    stepper = make_stepper(workload, settings, backend, precision, batches)
    for source in opened:
        source.check_fits(stepper.module)
    return stepper, opened[0].kind if opened else settings.data


def _open(template: Inputs, spec: WorkloadSpec, settings: Settings) -> Source:
    from ridgeline.workloads.data import Loading, open_data

    loading = Loading(
        batch_size=spec.batch_size,
        workers=settings.workers,
        pin_memory=settings.pin_memory,
        prefetch_factor=settings.prefetch_factor,
        augment=settings.augment,
        seed=settings.seed,
    )
    return open_data(Path(settings.data), template, loading)


def _time(
    stepper: Stepper, settings: Settings, sampler: Sampler, on_progress: OnProgress
) -> tuple[WarmUp, Timing, DeviceMemory]:
    """The warm-up and the steps that count; nothing is attached to the model."""
    backend = stepper.backend
    warmup = warm_up(
        stepper.step,
        backend.synchronize,
        least=settings.warmup_iters,
        clock_hz=lambda: sampler.readings[-1].conditions.clock_hz if sampler.readings else None,
        on_progress=lambda done, total: on_progress("warming up", done, total),
    )
    iters = choose_iters(settings.iters, warmup)
    backend.reset_peak_memory()
    sampler.interval_s = DURING_TIMING_S
    timing = time_steps(
        stepper.step,
        StepRecorder(backend.timeline() if backend.has_events else None),
        backend.synchronize,
        iters=iters,
        has_events=backend.has_events,
        parts=stepper.parts,
        on_progress=lambda done, total: on_progress("timing", done, total),
    )
    return warmup, timing, backend.peak_memory()


def _during(readings: tuple[Reading, ...], timing: Timing) -> Conditions:
    """What was read while the steps were timed; the last readings before, if that was too short."""
    inside = [r for r in readings if timing.start_s <= r.time_s <= timing.end_s]
    return summarise_readings(inside or [r for r in readings if r.time_s <= timing.end_s][-3:])


def _other_passes(
    measurement: Measurement, stepper: Stepper, meters: Meters, on_progress: OnProgress
) -> None:
    """Kernels, energy and layers, each apart from the timing and from one another."""
    settings, backend = measurement.settings, measurement.backend
    step_time_s = measurement.step_time.median
    if backend.kind == "cuda":
        on_progress("kernels", 0, 0)
        measurement.kernels = measure_kernel_time(stepper.step, backend.synchronize)
    if settings.energy is not False:
        if meters.available:
            on_progress("energy", 0, 0)
        _measure_energy(measurement, stepper, meters)
    if settings.layers or settings.layer_energy:
        measurement.layers = time_layers(
            stepper,
            backend,
            step_time_s=step_time_s,
            on_progress=lambda done, total: on_progress("layers", done, total),
        )
    if settings.layer_energy and measurement.energy is not None:
        measurement.layer_energies = measure_layer_energies(
            stepper,
            meters,
            refresh_s=measurement.energy.refresh_interval_s,
            on_progress=lambda done, total: on_progress("energy of layers", done, total),
        )


def _measure_energy(measurement: Measurement, stepper: Stepper, meters: Meters) -> None:
    step, backend, no_marks = stepper.step, stepper.backend, NoMarks()
    in_flight = max(LEAST_IN_FLIGHT, math.ceil(IN_FLIGHT_S / measurement.step_time.median))

    def run_for(duration_s: float) -> int:
        """Steps until the time is over; the device is waited for now and then only."""
        steps, end_s = 0, perf_counter() + duration_s
        while perf_counter() < end_s:
            for _ in range(in_flight):
                step(no_marks)
            backend.synchronize()
            steps += in_flight
        return steps

    measured = measure_energy(
        run_for,
        meters,
        windows=None,
        total_s=measurement.settings.energy_time_s,
        samples_per_step=measurement.samples_per_step,
    )
    measurement.energy, measurement.energy_reasons = measured.energy, measured.reasons
    measurement.readings += measured.readings
    measurement.passes += measured.passes


@contextmanager
def capture_warnings(log: list[str]) -> Iterator[None]:
    """What Python and torch warn of goes into a list, each text once, not onto the screen."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        try:
            yield
        finally:
            log += dict.fromkeys(f"{one.category.__name__}: {one.message}" for one in caught)
