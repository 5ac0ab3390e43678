"""The CSV files of a results folder: views of its runs.

    metrics.csv         a row per run: throughput, times, energy, memory, what it ran on
    MODEL_overall.csv   a row per run of one model: step time in milliseconds, power, energy
    MODEL_layers.csv    a row per layer of each run whose layers were timed

Only runs that were completed are in them. A file can be thrown away: the next run makes it again.
One whose runs were all deleted stays as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.errors import RidgelineError
from ridgeline.report.checked import check_table
from ridgeline.report.run_facts import LOADING, config_text, disturbance, environment_text
from ridgeline.serialize import FieldError
from ridgeline.store import IN_RESULTS, MeasuredRun, ResultsFolder, atomic_write_text

if TYPE_CHECKING:
    import pandas as pd

MS = 1e3  # per second: the columns that others' scripts read are in milliseconds
ALGORITHM = "default"  # whatever the library under torch chooses
LONGEST_NAME = 100  # of a model, in the name of a file
MOST_PASSES = 3  # over a folder that others write to
SPLIT = ("data", "copy", "forward", "backward", "optimizer")


def write_views(results: ResultsFolder) -> tuple[list[Path], list[str]]:
    """Write all views; their paths, and what was wrong with runs that could not be read.

    Others may store runs and write views meanwhile. Whoever has written looks again whether there
    are more runs by now, so that the last one to write has seen them all.
    """
    for _ in range(MOST_PASSES):
        seen = results.run_ids()
        written, problems = _write_once(results)
        if results.run_ids() == seen:
            break
    return written, problems


def _write_once(results: ResultsFolder) -> tuple[list[Path], list[str]]:
    index = results.index()
    runs, problems = index.runs, list(index.problems)
    if not runs:
        return [], problems
    written = [_write(results.path / "metrics.csv", metrics(runs))]
    for name in dict.fromkeys(_file_name(run) for run in runs):  # ./a.py and a.py share a file
        mine = [run for run in runs if _file_name(run) == name]
        written.append(_write(results.path / f"{name}_overall.csv", overall(mine)))
        layers = _layers_of(results, mine, problems)
        if layers is not None:
            written.append(_write(results.path / f"{name}_layers.csv", layers))
    return written, problems


def metrics(runs: Iterable[MeasuredRun]) -> pd.DataFrame:
    """A row per run."""
    import pandas as pd

    return pd.DataFrame([_metrics_row(run) for run in runs])


def _metrics_row(run: MeasuredRun) -> dict[str, Any]:
    request, result, made = run.request, run.result, run.made
    step, energy = result.step_time_s, result.energy
    used, during = result.optimizer_settings, result.conditions.during
    low, high = step.interval or (None, None)
    return {
        "timestamp": made.time or None,
        "hostname": made.host.name or None,
        "arch": request.model,
        "backend": result.backend,
        "device_name": result.device_name,
        "batch_size": request.batch_size,
        "warmup_iters": len(result.warmup.times_s),
        "measured_iters": result.iters,
        "precision": result.precision,
        **{name: used.get(name) for name in ("lr", "momentum", "weight_decay")},
        "elapsed_sec": result.elapsed_s,
        "images_per_sec": result.samples_per_s,
        "images_processed": result.samples_processed,
        "data_root": request.data,
        "label": request.label,
        "torch_version": made.libraries.get("torch"),
        **_pick(request, "channels_last", "grad_accum_steps", "deterministic", "cudnn_benchmark"),
        # beyond the columns that are usual elsewhere
        "run_id": run.run_id,
        "repeat": request.repeat,
        "mode": request.mode,
        "asked_precision": request.precision,
        "input_size": _size(run),
        "seq_len": request.seq_len,
        "optimizer": request.optimizer if request.mode == "train" else None,
        "compile": request.compile,
        "config": config_text(request.config),
        "digest": request.digest,
        **_pick(request, *LOADING),
        "seed": request.seed,
        **{f"step_{name}_s": getattr(step, name) for name in SUMMARY},
        "step_interval_low_s": low,
        "step_interval_high_s": high,
        **{f"{phase}_s": _phase(run, phase) for phase in SPLIT},
        "threads": result.threads,
        "environment": environment_text(made.environment),
        "busy_fraction": result.busy_fraction,
        "kernel_time_s": result.kernels.time_s if result.kernels else None,
        "energy_meter": energy.meter if energy else None,
        **_pick(energy, *ENERGY_COLUMNS),
        "peak_memory_bytes": result.peak_memory_bytes,
        "reserved_memory_bytes": result.memory.reserved_bytes,
        **_pick(result.process, *PROCESS_COLUMNS),
        **_pick(during, "clock_hz", "memory_clock_hz", "temperature_c"),
        "throttle_reasons": ";".join(during.throttle_reasons),
        "warnings": len(result.warnings),
        "disturbed": disturbance(run),
    }


def _pick(record: object, *names: str) -> dict[str, Any]:
    """Fields of a record as columns; None where there is no record."""
    return {name: getattr(record, name, None) for name in names}


SUMMARY = ("median", "mean", "std", "min", "max")
ENERGY_COLUMNS = ("energy_j_per_step", "energy_j_per_sample", "mean_power_w", "idle_power_w")
PROCESS_COLUMNS = (
    "user_time_s", "system_time_s", "peak_rss_bytes", "minor_faults", "major_faults",
    "voluntary_switches", "involuntary_switches",
)  # fmt: skip
POWER_COLUMNS = ("power_mean_w", "power_std_w", "power_min_w", "power_max_w")


def overall(runs: Iterable[MeasuredRun]) -> pd.DataFrame:
    """A row per run of a model. mean, std, min, max and median are of a step, in milliseconds."""
    import pandas as pd

    return pd.DataFrame([_overall_row(run) for run in runs])


def _overall_row(run: MeasuredRun) -> dict[str, Any]:
    request, result = run.request, run.result
    step, energy = result.step_time_s, result.energy
    return {
        **_key(run),
        **{name: _ms(getattr(step, name)) for name in ("mean", "std", "min", "max", "median")},
        **_pick(energy, *POWER_COLUMNS, "energy_total_j"),
        "energy_per_inference_j": energy.energy_j_per_sample if energy else None,
        "power_samples": energy.power_samples if energy else None,
        "energy_per_step_j": energy.energy_j_per_step if energy else None,
        "energy_meter": energy.meter if energy else None,
        "mode": request.mode,
        "precision": result.precision,
        "backend": result.backend,
        "device_name": result.device_name,
        "images_per_sec": result.samples_per_s,
        "label": request.label,
        "run_id": run.run_id,
    }


def _ms(time_s: float | None) -> float | None:
    """None for what a single sample does not have."""
    return None if time_s is None else MS * time_s


def _key(run: MeasuredRun) -> dict[str, Any]:
    return {
        "model": run.request.model,
        "algorithm": ALGORITHM,
        "batch_size": run.request.batch_size,
        "input_size": _size(run),
    }


def layers(run: MeasuredRun, table: pd.DataFrame) -> pd.DataFrame:
    """The layers of one run. `input_size` is the layer's own; mean_ms is of a step.

    `percentage` is `time_s`, a median, of the sum of all layers' medians. It is made here, since
    earlier versions stored shares of means.
    """
    new = table.drop(columns=[*SAMPLES])
    new = new.assign(
        **{name: value for name, value in _key(run).items() if name != "input_size"},
        network_input_size=_size(run),
        input_size=new["input_shape"].map(_spatial),
        mean_ms=MS * new["mean_s"],
        std_ms=MS * new["std_s"],
        percentage=100 * new["time_s"] / new["time_s"].sum(),
        precision=run.result.precision,
        backend=run.result.backend,
        mode=run.request.mode,
        run_id=run.run_id,
    )
    return new[[*LAYER_COLUMNS, *(name for name in new.columns if name not in LAYER_COLUMNS)]]


SAMPLES = ("forward_samples_s", "backward_samples_s", "energy_interval_j")
LAYER_COLUMNS = (
    "model", "algorithm", "input_size", "layer", "in_channels", "out_channels", "kernel_size",
    "stride", "padding", "mean_ms", "std_ms", "percentage", "power_mean_w", "power_std_w",
    "energy_per_layer_j", "power_samples", "energy_attribution",
)  # fmt: skip
LAYERS_NEED = (  # what is not made here
    *SAMPLES, "layer", "input_shape", "time_s", "mean_s", "std_s",
    *(name for name in LAYER_COLUMNS
      if name not in ("model", "algorithm", "input_size", "mean_ms", "std_ms", "percentage")),
)  # fmt: skip


def _layers_of(
    results: ResultsFolder, runs: Iterable[MeasuredRun], problems: list[str]
) -> pd.DataFrame | None:
    import pandas as pd

    found = []
    for run in runs:
        if run.result.layers is None:
            continue
        try:
            table = results.read_table(run.run_id, "layers")
            found.append(layers(run, check_table("layers", table, needs=LAYERS_NEED)))
        except RidgelineError as error:
            problems.append(str(error))
        except FieldError as error:
            problems.append(f"the table layers of run {run.run_id} is passed over: {error}")
    return pd.concat(found, ignore_index=True) if found else None


def _spatial(shape: str | None) -> str | None:
    """`56x56` of `32x64x56x56`; the features of a row of them."""
    if not isinstance(shape, str):
        return None
    sizes = shape.split("x")
    return "x".join(sizes[2:]) if len(sizes) > 2 else sizes[-1]


def _size(run: MeasuredRun) -> str | None:
    """The height and width (or one number for a square) that the network was given."""
    size = run.result.describe.get("input_size") or run.request.input_size
    if not isinstance(size, list | tuple) or not size:
        return None
    sides = list(dict.fromkeys(size)) if len(set(size)) == 1 else size
    return "x".join(str(side) for side in sides)


def _phase(run: MeasuredRun, phase: str) -> float | None:
    part = run.result.split_s.get(phase)
    return part.median if part else None


def _file_name(run: MeasuredRun) -> str:
    """Of its model; the end of a long path says most."""
    name = re.sub(r"[^A-Za-z0-9_.]+", "-", run.request.model)
    return name[-LONGEST_NAME:].strip("-.") or "model"


def _write(path: Path, table: pd.DataFrame) -> Path:
    atomic_write_text(path, table.to_csv(index=False), elsewhere=IN_RESULTS)
    return path
