"""A measurement as plain values: what a run folder keeps under `found`, and its tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import pandas as pd

from ridgeline.measure.layer_energy import RepeatedEnergy
from ridgeline.measure.layers import layer_table
from ridgeline.measure.marks import SPLIT, StepTimes
from ridgeline.measure.measurement import Measurement
from ridgeline.measure.power import readings_table
from ridgeline.measure.statistics import Summary, spread
from ridgeline.serialize import to_dict

if TYPE_CHECKING:
    from torch import nn

ENERGY_COLUMNS = (
    "energy_per_layer_j", "energy_interval_j", "energy_attribution", "is_energy_narrow",
    "power_mean_w", "power_std_w", "power_samples",
)  # fmt: skip
WITHOUT_GAPS = "device, without gaps between kernels"


def found(measured: Measurement) -> dict[str, Any]:
    """Everything but the tables. Seconds, bytes, joules; every sample is kept."""
    timing = measured.timing
    return {
        "status": "ok",
        "provenance": "measured",
        "model": measured.workload.name,
        "source": measured.workload.source,
        "describe": dict(measured.workload.describe),
        "backend": measured.backend.kind,
        "device_name": measured.backend.name,
        "device_uuid": measured.backend.uuid,
        "precision": measured.precision.used,
        "data": measured.data,
        "optimizer_settings": dict(measured.optimizer_settings),
        "iters": len(timing.device.steps_s),
        "samples_per_step": measured.samples_per_step,
        "samples_processed": measured.samples_per_step * len(timing.device.steps_s),
        "samples_per_s": measured.samples_per_s,
        "elapsed_s": timing.elapsed_s,
        "clock": _clock(measured),
        "step_time_s": _summary(measured.step_time, timing.device.steps_s),
        "split_s": _split(timing.device),
        "host": {"step_time_s": list(timing.host.steps_s), "split_s": _split(timing.host)},
        "warmup": {**asdict(measured.warmup), "build_time_s": measured.build_time_s},
        "busy_fraction": measured.busy_fraction,
        "kernels": asdict(measured.kernels) if measured.kernels else None,
        "memory": asdict(measured.memory),
        "peak_memory_bytes": peak_memory_bytes(measured),
        "process": asdict(measured.process) if measured.process else None,
        "threads": measured.threads,
        "timed_usage": asdict(timing.usage),
        "conditions": {
            **{when: asdict(getattr(measured, when)) for when in ("before", "during", "after")},
            "readings_during": _readings_during(measured),
        },
        "energy": to_dict(measured.energy),
        "energy_reasons": list(measured.energy_reasons),
        "layers": _layers(measured),
        "warnings": list(measured.warnings),
    }


def tables(measured: Measurement, module: nn.Module) -> dict[str, pd.DataFrame]:
    """A row per layer, and a row per reading of a meter, where there are any."""
    made: dict[str, pd.DataFrame] = {}
    if measured.layers is not None:
        made["layers"] = _with_energy(layer_table(module, measured.layers), measured)
    if measured.readings:
        made["power"] = readings_table(measured.readings, measured.passes)
    return made


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


def _summary(summary: Summary, samples: Sequence[float]) -> dict[str, Any]:
    wide = spread(samples) if len(samples) > 1 else None
    return {**asdict(summary), "spread": wide, "samples": list(samples)}


def _split(times: StepTimes) -> dict[str, dict[str, Any]]:
    """Median, mean and samples of each phase that the step has, in the order of SPLIT."""
    return {
        phase: {"median": median(taken), "mean": fmean(taken), "samples": list(taken)}
        for phase in SPLIT
        if (taken := times.phases_s.get(phase))
    }


def _layers(measured: Measurement) -> dict[str, Any] | None:
    """How the layers add up, beside the step that nobody watched."""
    layers = measured.layers
    if layers is None:
        return None
    whole_s = measured.step_time.median
    return {
        "sum_s": layers.sum_s,
        "step_time_s": whole_s,
        "difference_s": layers.sum_s - whole_s,
        "difference": layers.sum_s / whole_s - 1,
        "pass_times_s": list(layers.steps_s),
        "mark_cost_s": layers.mark_cost_s,
        "clock": WITHOUT_GAPS if layers.is_held_back else _clock(measured),
    }


def _clock(measured: Measurement) -> str:
    return "device events" if measured.timing.has_events else "host, monotonic"
