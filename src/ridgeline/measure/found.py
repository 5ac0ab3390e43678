"""A measurement as plain values: what a run folder keeps under `found`, and its tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pandas as pd

from ridgeline.measure.layer_energy import RepeatedEnergy
from ridgeline.measure.layer_table import layer_table
from ridgeline.measure.marks import SPLIT, StepTimes
from ridgeline.measure.measurement import Measurement
from ridgeline.measure.power_table import readings_table
from ridgeline.measure.statistics import Summary, spread, summarise

if TYPE_CHECKING:
    from torch import nn

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
        "warmup": {"build_time_s": measured.build_time_s, **asdict(measured.warmup)},
        "busy_fraction": measured.busy_fraction,
        "kernels": asdict(measured.kernels) if measured.kernels else None,
        "memory": asdict(measured.memory),
        "peak_memory_bytes": peak_memory_bytes(measured),
        "process": asdict(measured.process) if measured.process else None,
        "timed_usage": {**asdict(timing.usage), "cores": timing.usage.cores},
        "conditions": {
            when: asdict(getattr(measured, when)) for when in ("before", "during", "after")
        },
        "energy": measured.energy.to_dict() if measured.energy else None,
        "energy_reasons": list(measured.energy_reasons),
        "layers": _layers(measured),
        "warnings": list(measured.warnings),
    }


def tables(measured: Measurement, module: nn.Module) -> dict[str, pd.DataFrame]:
    """A row per layer, and a row per reading of a meter, where there are any."""
    made: dict[str, pd.DataFrame] = {}
    if measured.layers is not None:
        table = layer_table(module, measured.layers, measured.step_time.median)
        made["layers"] = _with_energy(table, measured)
    if measured.readings:
        made["power"] = readings_table(measured.readings, measured.passes)
    return made


def _with_energy(table: pd.DataFrame, measured: Measurement) -> pd.DataFrame:
    """Joules of each layer in a step: those of one call, repeated alone, times its calls."""
    rows = [
        _energy_row(measured.layer_energies.get(path), calls)
        for path, calls in zip(table["layer"], table["calls"], strict=True)
    ]
    columns = pd.DataFrame(rows, index=table.index).astype({"energy_per_layer_j": "float64"})
    return pd.concat([table, columns], axis=1)


def _energy_row(one: RepeatedEnergy | None, calls: int) -> dict[str, Any]:
    power = one.power if one else None
    interval = one.interval_j_per_call if one else None
    return {
        "energy_per_layer_j": one.energy_j_per_call * calls if one else None,
        "energy_interval_j": [end_j * calls for end_j in interval] if interval else None,
        "energy_attribution": one.attribution if one else None,
        "power_mean_w": power.mean_w if power else None,
        "power_std_w": power.std_w if power else None,
        "power_samples": power.count if power else None,
    }


def peak_memory_bytes(measured: Measurement) -> int | None:
    """What the device's allocator held at most; on a CPU, the process."""
    if measured.backend.kind == "cpu":
        return measured.process.peak_rss_bytes if measured.process else None
    return measured.memory.allocated_bytes


def _summary(summary: Summary, samples: Sequence[float]) -> dict[str, Any]:
    wide = spread(samples) if len(samples) > 1 else None
    return {**asdict(summary), "spread": wide, "samples": list(samples)}


def _split(times: StepTimes) -> dict[str, dict[str, Any]]:
    """Median and samples of each phase that the step has, in the order of SPLIT."""
    return {
        phase: {"median": summarise(taken).median, "samples": list(taken)}
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
