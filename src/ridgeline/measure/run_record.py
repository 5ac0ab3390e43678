"""The record of a measurement: the result that a run folder keeps, and its tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import pandas as pd

from ridgeline.measure.layer_energy import RepeatedEnergy
from ridgeline.measure.layers import layer_table
from ridgeline.measure.marks import SPLIT, StepTimes
from ridgeline.measure.measurement import Measurement
from ridgeline.measure.power import readings_table
from ridgeline.measure.statistics import Summary, spread
from ridgeline.records import (
    HostTimes,
    LayerSum,
    PhaseTime,
    RunConditions,
    RunResult,
    StepTime,
)

if TYPE_CHECKING:
    from torch import nn

ENERGY_COLUMNS = (
    "energy_per_layer_j", "energy_interval_j", "energy_attribution", "is_energy_narrow",
    "power_mean_w", "power_std_w", "power_samples",
)  # fmt: skip
WITHOUT_GAPS = "device, without gaps between kernels"


def run_result(measured: Measurement) -> RunResult:
    """Everything but the tables. Seconds, bytes, joules; every sample is kept."""
    timing, workload, backend = measured.timing, measured.workload, measured.backend
    steps = len(timing.device.steps_s)
    return RunResult(
        model=workload.name,
        source=workload.source,
        describe=dict(workload.describe),
        backend=backend.kind,
        device_name=backend.name,
        device_uuid=backend.uuid,
        precision=measured.precision.used,
        data=measured.data,
        optimizer_settings=dict(measured.optimizer_settings),
        iters=steps,
        samples_per_step=measured.samples_per_step,
        samples_processed=measured.samples_per_step * steps,
        samples_per_s=measured.samples_per_s,
        elapsed_s=timing.elapsed_s,
        clock=_clock(measured),
        step_time_s=_step_time(measured.step_time, timing.device.steps_s),
        split_s=_split(timing.device),
        host=HostTimes(step_time_s=tuple(timing.host.steps_s), split_s=_split(timing.host)),
        warmup=replace(measured.warmup, build_time_s=measured.build_time_s),
        busy_fraction=measured.busy_fraction,
        kernels=measured.kernels,
        memory=measured.memory,
        peak_memory_bytes=peak_memory_bytes(measured),
        process=measured.process,
        threads=measured.threads,
        timed_usage=timing.usage,
        conditions=RunConditions(
            before=measured.before,
            during=measured.during,
            after=measured.after,
            readings_during=_readings_during(measured),
        ),
        energy=measured.energy,
        energy_reasons=tuple(measured.energy_reasons),
        layers=_layer_sum(measured),
        warnings=tuple(measured.warnings),
    )


def make_tables(measured: Measurement, module: nn.Module) -> dict[str, pd.DataFrame]:
    """A row per layer, and a row per reading of a meter, where there are any."""
    tables: dict[str, pd.DataFrame] = {}
    if measured.layers is not None:
        tables["layers"] = _with_energy(layer_table(module, measured.layers), measured)
    if measured.readings:
        tables["power"] = readings_table(measured.readings, measured.passes)
    return tables


def _with_energy(table: pd.DataFrame, measured: Measurement) -> pd.DataFrame:
    """Joules of each layer in a step: of all its calls, each repeated alone."""
    rows = [_energy_row(measured.layer_energies.get(path, ())) for path in table["layer"]]
    columns = pd.DataFrame(rows, index=table.index).astype({"energy_per_layer_j": "float64"})
    return pd.concat([table, columns], axis=1)


def _energy_row(calls: tuple[RepeatedEnergy, ...]) -> dict[str, Any]:
    if not calls:
        return dict.fromkeys(ENERGY_COLUMNS)
    intervals = [one.interval_j_per_call for one in calls]
    power = calls[0].power
    return {
        "energy_per_layer_j": sum(one.energy_j_per_call for one in calls),
        "energy_interval_j": _sum_of(intervals),
        "energy_attribution": calls[0].attribution,
        "is_energy_narrow": all(one.has_reached_target for one in calls),
        "power_mean_w": power.mean_w if power else None,
        "power_std_w": power.std_w if power else None,
        "power_samples": power.count if power else None,
    }


def _sum_of(intervals: Sequence[tuple[float, float] | None]) -> list[float] | None:
    """End by end; None if one of them is not known."""
    known = [interval for interval in intervals if interval is not None]
    if len(known) < len(intervals):
        return None
    return [sum(ends) for ends in zip(*known, strict=True)]


def _readings_during(measured: Measurement) -> int:
    """How many there were; with none, `during` is from just before."""
    start_s, end_s = measured.timing.start_s, measured.timing.end_s
    return sum(start_s <= reading.time_s <= end_s for reading in measured.readings)


def peak_memory_bytes(measured: Measurement) -> int | None:
    """What the device's allocator held at most; on a CPU, the process."""
    if measured.backend.kind == "cpu":
        return measured.process.peak_rss_bytes if measured.process else None
    return measured.memory.allocated_bytes


def _step_time(summary: Summary, samples: Sequence[float]) -> StepTime:
    width = spread(samples) if len(samples) > 1 else None
    return StepTime(**asdict(summary), spread=width, samples=tuple(samples))


def _split(times: StepTimes) -> dict[str, PhaseTime]:
    """Median, mean and samples of each phase that the step has, in the order of SPLIT."""
    return {
        phase: PhaseTime(median=median(taken), mean=fmean(taken), samples=tuple(taken))
        for phase in SPLIT
        if (taken := times.phases_s.get(phase))
    }


def _layer_sum(measured: Measurement) -> LayerSum | None:
    """How the layers add up, compared with the unprofiled step."""
    layers = measured.layers
    if layers is None:
        return None
    step_s = measured.step_time.median
    return LayerSum(
        sum_s=layers.sum_s,
        step_time_s=step_s,
        difference_s=layers.sum_s - step_s,
        difference=layers.sum_s / step_s - 1,
        pass_times_s=tuple(layers.steps_s),
        mark_cost_s=layers.mark_cost_s,
        clock=WITHOUT_GAPS if layers.is_held_back else _clock(measured),
    )


def _clock(measured: Measurement) -> str:
    return "device events" if measured.timing.has_events else "host, monotonic"
