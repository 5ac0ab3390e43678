"""One configuration measured: build, warm up, time, then the passes that would disturb a timing.

The order is the point. Whole steps are timed first, with nothing attached to the model; the passes
for kernels, energy and layers follow, and none of them can change a time that was taken before.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import repeat
from math import ceil
from pathlib import Path
from time import perf_counter

import torch

from ridgeline.measure import advice
from ridgeline.measure.backends import choose_backend, choose_precision
from ridgeline.measure.energy import CallLoop, Pass, measure_energy
from ridgeline.measure.layer_energy import measure_layer_energies
from ridgeline.measure.layers import time_layers
from ridgeline.measure.run_record import Case, Measurement, timed_result
from ridgeline.measure.step import (
    Placement,
    Stepper,
    loader_options,
    make_stepper,
    torch_settings,
)
from ridgeline.measure.timing import (
    NoMarks,
    StepRecorder,
    Timing,
    choose_iters,
    measure_kernel_time,
    process_stats,
    time_steps,
    warm_up,
)
from ridgeline.records import DeviceMemory, RunConditions, WarmUp, WorkloadSpec
from ridgeline.sensors.meters import find_meters
from ridgeline.sensors.sampler import DURING_TIMING_S, Meters, Sampler, within
from ridgeline.sensors.sampler import summarise as summarise_readings
from ridgeline.settings import SYNTHETIC, SYNTHETIC_HOST, Settings
from ridgeline.workloads import Inputs, Workload
from ridgeline.workloads.data import Source, open_data

OnProgress = Callable[[str, int, int], None]  # what is going on, how much is done, of how much

LEAST_IN_FLIGHT, IN_FLIGHT_S = 4, 0.2  # steps between two waits in the energy pass
OPTIMIZER_SETTINGS = ("lr", "momentum", "weight_decay")  # that are kept, defaults included


def measure_workload(
    workload: Workload,
    spec: WorkloadSpec,
    settings: Settings,
    on_progress: OnProgress = lambda what, done, total: None,
) -> tuple[Measurement, Stepper]:
    """Measure one configuration; also the model with all that its steps need."""
    case = _choose_case(workload, spec, settings)
    meters = find_meters(case.backend.kind, uuid=case.backend.uuid)
    log: list[str] = []
    with capture_warnings(log), torch_settings(settings, case.precision):
        measurement, stepper = _build_and_time(case, meters, on_progress)
        _other_passes(measurement, stepper, meters, on_progress)
    measurement.log = log
    if stepper.last_loss is not None:
        measurement.is_loss_finite = bool(stepper.last_loss.isfinite().all())
    start_s, end_s = measurement.timing.start_s, measurement.timing.end_s
    readings = len(within(measurement.readings, start_s, end_s))  # with none, those just before
    conditions = measurement.result.conditions
    measurement.add(
        conditions=replace(conditions, after=meters.conditions(), readings_during=readings),
        warnings=(*stepper.notes, *advice.warnings(measurement)),
    )
    return measurement, stepper


def _choose_case(workload: Workload, spec: WorkloadSpec, settings: Settings) -> Case:
    backend = choose_backend(settings.backend, settings.device)
    precision = choose_precision(settings.precision, backend)
    return Case(
        workload=workload, spec=spec, settings=settings, backend=backend, precision=precision
    )


def _build_and_time(
    case: Case, meters: Meters, on_progress: OnProgress
) -> tuple[Measurement, Stepper]:
    """Build, warm up and time; clocks are read meanwhile, too rarely to disturb, and no meter."""
    before = meters.conditions()
    with Sampler(replace(meters, available=())) as sampler:
        on_progress("building", 0, 0)
        start_s = perf_counter()
        stepper, data = _build(case)
        build_time_s = perf_counter() - start_s
        warmup, timing, memory = _time(stepper, case.settings, sampler, on_progress)
    used = stepper.optimizer.defaults if stepper.optimizer is not None else {}
    during = within(sampler.readings, timing.start_s, timing.end_s)
    during = during or within(sampler.readings, end_s=timing.end_s)[-3:]  # it was too short
    process = process_stats()
    is_cpu = case.backend.kind == "cpu"
    result = timed_result(
        case,
        timing,
        data=data,
        optimizer_settings={name: used[name] for name in OPTIMIZER_SETTINGS if name in used},
        warmup=replace(warmup, build_time_s=build_time_s),
        memory=memory,
        peak_memory_bytes=process.peak_rss_bytes if is_cpu else memory.allocated_bytes,
        process=process,
        threads=torch.get_num_threads(),
        conditions=RunConditions(before=before, during=summarise_readings(during)),
    )
    return Measurement(
        case=case,
        timing=timing,
        result=result,
        readings=sampler.readings,
        passes=(Pass(name="timed", start_s=timing.start_s, end_s=timing.end_s),),
    ), stepper


def build_stepper(workload: Workload, spec: WorkloadSpec, settings: Settings) -> Stepper:
    """The model of a configuration, ready to take steps."""
    return _build(_choose_case(workload, spec, settings))[0]


def _build(case: Case) -> tuple[Stepper, str]:
    """The model with its batches, and the kind of data that they are."""
    settings, batch_size = case.settings, case.spec.batch_size
    opened: list[Source] = []

    def batches(placement: Placement) -> tuple[Iterator[Inputs], bool]:
        template = case.workload.inputs(batch_size)
        if settings.data == SYNTHETIC:
            return repeat(placement.inputs(template)), True
        if settings.data == SYNTHETIC_HOST:
            return repeat(placement.host_inputs(template)), False
        opened.append(
            open_data(
                Path(settings.data), template, batch_size, augment=settings.augment,
                seed=settings.seed, loader=loader_options(settings),
            )
        )  # fmt: skip
        return opened[0].batches, False

    stepper = make_stepper(case.workload, settings, case.backend, case.precision, batches)
    for source in opened:
        source.check_fits(stepper.module)
    return stepper, opened[0].kind if opened else settings.data


def _time(
    stepper: Stepper, settings: Settings, sampler: Sampler, on_progress: OnProgress
) -> tuple[WarmUp, Timing, DeviceMemory]:
    """The warm-up and the steps that count; nothing is attached to the model."""
    backend = stepper.backend
    warmup = warm_up(
        stepper.step,
        backend.synchronize,
        steps=settings.warmup_iters,
        clock_hz=lambda: sampler.readings[-1].conditions.clock_hz if sampler.readings else None,
        on_progress=partial(on_progress, "warming up"),
    )
    iters = choose_iters(settings.iters, warmup)
    backend.reset_peak_memory()
    sampler.interval_s = DURING_TIMING_S
    timing = time_steps(
        stepper.step,
        StepRecorder(backend.timeline() if backend.has_events else None),
        backend.synchronize,
        iters=iters,
        parts=stepper.parts,
        on_progress=partial(on_progress, "timing"),
    )
    return warmup, timing, backend.peak_memory()


def _other_passes(
    measurement: Measurement, stepper: Stepper, meters: Meters, on_progress: OnProgress
) -> None:
    """Kernels, energy and layers, each apart from the timing and from one another."""
    settings, backend = measurement.case.settings, stepper.backend
    if backend.kind == "cuda":
        on_progress("kernels", 0, 0)
        measurement.add_kernels(measure_kernel_time(stepper.step, backend.synchronize))
    if settings.energy is not False:
        if meters.available:
            on_progress("energy", 0, 0)
        _measure_energy(measurement, stepper, meters)
    if settings.layers or settings.layer_energy:
        layers = time_layers(
            stepper,
            backend,
            step_time_s=measurement.result.step_time_s.median,
            on_progress=partial(on_progress, "layers"),
        )
        measurement.add_layers(layers)
    if settings.layer_energy and measurement.result.energy is not None:
        measurement.layer_energies = measure_layer_energies(
            stepper,
            meters,
            refresh_s=measurement.result.energy.refresh_interval_s,
            on_progress=partial(on_progress, "energy of layers"),
        )


def _measure_energy(measurement: Measurement, stepper: Stepper, meters: Meters) -> None:
    in_flight = max(LEAST_IN_FLIGHT, ceil(IN_FLIGHT_S / measurement.result.step_time_s.median))
    loop = CallLoop(
        partial(stepper.step, NoMarks()), stepper.backend.synchronize, calls_per_batch=in_flight
    )
    measured = measure_energy(
        loop.run_for,
        meters,
        total_s=measurement.case.settings.energy_time_s,
        samples_per_step=measurement.result.samples_per_step or 1,
    )
    measurement.add(energy=measured.energy, energy_reasons=measured.reasons)
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
