"""The CSV files of a results folder, and what else a table says about one stored run.

    metrics.csv         a row per run: throughput, times, energy, memory, what it ran on
    throughput_summary.csv  a row per configuration: mean and standard deviation over its runs
    MODEL_overall.csv   a row per run of one model: step time in milliseconds, power, energy
    MODEL_layers.csv    a row per layer of each run whose layers were timed
    MODEL_ALGORITHM_overall.csv and _layers.csv   the same of one algorithm of convolutions, where
                        a model was run under several

Only runs that were completed are in them. A file can be thrown away: the next run makes it again.
One whose runs were all deleted stays as it was.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.machine.sampling import is_disturbed
from ridgeline.measure.advice import is_processor_shared
from ridgeline.provenance import speed_variables
from ridgeline.records import Provenance, RunRequest
from ridgeline.report.configurations import (
    SETTINGS,
    describe_settings,
    find_differing,
    key,
    read_all_settings,
)
from ridgeline.report.stored import read_table
from ridgeline.report.text import group_by, safe_name
from ridgeline.sensors.power_mode import POWER_KEYS
from ridgeline.settings import LOADING, STEP_SETTINGS, Settings, option
from ridgeline.store import IN_RESULTS, MeasuredRun, ResultsFolder, atomic_write_text
from ridgeline.units import format_percent

if TYPE_CHECKING:
    import pandas as pd

MS = 1e3  # per second: the columns that others' scripts read are in milliseconds
CONFIGURATION_COLUMNS = (  # of throughput_summary.csv
    "arch", "mode", "precision", "batch_size", "input_size", "settings", "env", "backend",
    "device_name", "label",
)  # fmt: skip
AVERAGED = ("images_per_sec", "samples_per_s", "elapsed_sec", "step_median_s")
MOST_PASSES = 3  # over a folder that others write to
TOO_WIDE = 0.5  # of the median; chosen, not calibrated: host-bound steps of an H200 moved by 30 %
LIBRARIES = ("torch", "torchvision", "timm", "transformers", "triton")
OBJECT = "object"  # the source of a module from somebody's program
# Variables that say where something is, or which of several equal devices is used. They are stored
# and shown, and runs that differ in them alone are repeats.
NO_SETTINGS = (
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_HOME", "CUDA_PATH", "TORCH_HOME",
    "KMP_DUPLICATE_LIB_OK", "TORCH_WARM_POOL",  # torch itself sets the last three
)  # fmt: skip
SPLIT = ("data", "copy", "forward", "backward", "optimizer")
USED = ("lr", "momentum", "weight_decay")  # of an optimizer, as they were used
SUMMARY = ("median", "mean", "std", "min", "max")
ENERGY_COLUMNS = ("energy_j_per_step", "energy_j_per_sample", "mean_power_w", "idle_power_w")
PROCESS_COLUMNS = (
    "user_time_s", "system_time_s", "peak_rss_bytes", "minor_faults", "major_faults",
    "voluntary_switches", "involuntary_switches",
)  # fmt: skip
POWER_COLUMNS = ("power_mean_w", "power_std_w", "power_min_w", "power_max_w")
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
    table = metrics(runs)
    tables = {"metrics.csv": table, "throughput_summary.csv": throughput_summary(table)}
    names = (safe_name(run.request.model, otherwise="model") for run in runs)
    for name, mine in group_by(runs, names).items():  # ./a.py and a.py share a file
        algorithms = {run.request.algorithm for run in mine} - {Settings.algorithm}
        if algorithms:
            algorithms.add(Settings.algorithm)
        tables |= _list_tables(name, mine, problems)
        for algorithm in sorted(algorithms):
            same = [run for run in mine if run.request.algorithm == algorithm]
            tables |= _list_tables(f"{name}_{algorithm.replace(' ', '_')}", same, problems)
    written = [_write(results.path / name, table) for name, table in tables.items() if len(table)]
    return written, list(dict.fromkeys(problems))


def _list_tables(
    name: str, runs: Sequence[MeasuredRun], problems: list[str]
) -> dict[str, pd.DataFrame]:
    """The two files of a model."""
    return {
        f"{name}_overall.csv": overall(runs),
        f"{name}_layers.csv": all_layers(runs, problems),
    }


def metrics(runs: Iterable[MeasuredRun]) -> pd.DataFrame:
    """A row per run."""
    import pandas as pd

    return pd.DataFrame([_metrics_row(run) for run in runs])


def throughput_summary(runs: pd.DataFrame) -> pd.DataFrame:
    """A row per configuration of the table of runs: mean, standard deviation and number of runs.

    The standard deviation is that of a sample, so a single run has none.
    """
    import pandas as pd

    if runs.empty:
        return pd.DataFrame(columns=[*CONFIGURATION_COLUMNS, "n"])
    env = runs["env"] if "env" in runs else runs["hostname"]
    table = runs.assign(env=env, model=runs["arch"])
    settings = read_all_settings(table)
    own = [name for name in SETTINGS if name not in (*CONFIGURATION_COLUMNS, "model")]
    names = find_differing(settings, own)
    table["settings"] = [", ".join(describe_settings(one, names)) for one in settings]
    groups = group_by(range(len(table)), (key(one) for one in settings))
    return pd.DataFrame([_average(table.iloc[list(rows)]) for rows in groups.values()])


def _average(same: pd.DataFrame) -> dict[str, Any]:
    """One row for the runs of one configuration."""
    averages = {
        f"{name}_{what}": getattr(same[name].astype(float), what)()
        for name in AVERAGED
        if name in same
        for what in ("mean", "std")
    }
    named = {name: same.iloc[0][name] for name in CONFIGURATION_COLUMNS}
    return {**named, "n": len(same), **averages, "run_ids": " ".join(same["run_id"])}


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
        "warmup_iters": len(result.warmup.times_s) or request.warmup_iters or 0,
        "measured_iters": result.iters,
        "precision": result.precision,
        **{name: used.get(name) for name in USED},
        "elapsed_sec": result.elapsed_s,
        "images_per_sec": result.samples_per_s,
        "images_processed": result.samples_processed,
        "data_root": request.data,
        "label": request.label,
        "torch_version": made.libraries.get("torch"),
        **_pick(request, *STEP_SETTINGS),
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
        **{f"{phase}_s": getattr(result.split_s.get(phase), "median", None) for phase in SPLIT},
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


def overall(runs: Iterable[MeasuredRun]) -> pd.DataFrame:
    """A row per run of a model. mean, std, min, max and median are of a step, in milliseconds."""
    import pandas as pd

    return pd.DataFrame([_overall_row(run) for run in runs])


def _overall_row(run: MeasuredRun) -> dict[str, Any]:
    request, result = run.request, run.result
    step, energy = result.step_time_s, result.energy
    return {
        **_key(run),
        **{
            name: None if (time_s := getattr(step, name)) is None else MS * time_s
            for name in (*SUMMARY[1:], "median")
        },
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


def _key(run: MeasuredRun) -> dict[str, Any]:
    return {
        "model": run.request.model,
        "algorithm": run.request.algorithm,
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


def all_layers(runs: Iterable[MeasuredRun], problems: list[str]) -> pd.DataFrame:
    """The layers of all runs that timed them."""
    import pandas as pd

    timed = [run for run in runs if run.result.layers is not None]
    tables = [(run, read_table(run, "layers", problems, needs=LAYERS_NEED)) for run in timed]
    known = [layers(run, table) for run, table in tables if table is not None]
    return pd.concat(known, ignore_index=True) if known else pd.DataFrame()


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
    sides = list(dict.fromkeys(map(str, size)))
    return sides[0] if len(sides) == 1 else "x".join(map(str, size))


def _write(path: Path, table: pd.DataFrame) -> Path:
    atomic_write_text(path, table.to_csv(index=False), elsewhere=IN_RESULTS)
    return path


# ---------------------------------------------------------------- one run in words


def disturbance(run: MeasuredRun) -> str:
    """Why the steps of a run are to be doubted: the machine was busy. Empty if it was not.

    Real data may come in bursts: only steps that read none are expected to be alike.
    """
    usage, step = run.result.timed_usage, run.result.step_time_s
    if (
        usage
        and run.result.backend == "cpu"
        and is_processor_shared(
            cores=usage.cores,
            threads=run.result.threads or 0,
            elapsed_s=usage.elapsed_s,
            involuntary_switches=usage.involuntary_switches,
        )
    ):
        return "other programs had the processor"
    if not run.request.is_synthetic:
        return ""
    if is_disturbed(median=step.median, mean=step.mean):
        ratio = step.mean / step.median
        return f"some steps were held up: their mean is {ratio:.2f} times their median"
    if (step.spread or 0.0) > TOO_WIDE:
        wide = format_percent(step.spread or 0.0)
        return f"steps vary: the middle 80 % of them span {wide} of the median"
    return ""


def config_text(config: Mapping[str, Any]) -> str:
    """The sizes that a model was configured with, as a cell: the same text for the same sizes."""
    return json.dumps(config, sort_keys=True, default=str) if config else ""


def versions_text(made: Provenance) -> str:
    """`ridgeline 0.4 (4f2a9c01b), torch 2.11, cuda 12.8, Python 3.12`: what a run was made with."""
    commit, libraries = made.ridgeline_commit, made.libraries
    parts = [f"ridgeline {made.ridgeline}" + (f" ({commit.sha[:9]})" if commit else "")]
    parts += [f"{name} {libraries[name]}" for name in LIBRARIES if name in libraries]
    parts += [f"{name} {version}" for name, version in made.backends.items()]
    return ", ".join([*parts, f"Python {made.python}"])


def environment_text(environment: Mapping[str, str]) -> str:
    """`OMP_NUM_THREADS=1 OMP_PROC_BIND=true`, as a shell takes it; only what is a setting."""
    recorded = speed_variables(environment)
    return " ".join(
        f"{name}={shlex.quote(str(value))}"
        for name, value in recorded.items()
        if name not in NO_SETTINGS
    )


# ---------------------------------------------------------------- the command that makes it again


def repeat_command(run: MeasuredRun) -> str:
    """`ridgeline run MODEL …`, after environment variables that change its speed.

    Of a module from a program, what started the program; of an imported run, what imported it.
    """
    if run.result.source == OBJECT or run.result.provenance == "imported":
        return shlex.join(run.made.command)
    variables = environment_text(
        {name: value for name, value in run.made.environment.items() if name not in POWER_KEYS}
    )
    command = shlex.join(["ridgeline", "run", *_arguments(run.request)])
    return f"{variables} {command}" if variables else command


def _arguments(request: RunRequest) -> Iterator[str]:
    """The model, what is always said, and the options whose setting is not its default."""
    yield request.model
    yield from ("-b", str(request.batch_size), "--mode", request.mode)
    yield from ("--precision", request.precision)
    if request.input_size:
        yield from ("--input-size", "x".join(map(str, request.input_size)))
    if request.config:
        yield from ("--config", ",".join(f"{k}={v}" for k, v in request.config.items()))
    if request.seq_len is not None:
        yield from ("--seq-len", str(request.seq_len))
    changed = {
        f.name: value
        for f in fields(Settings)
        if (value := getattr(request, f.name)) != f.default and f.name != "precision"
    }
    for name, value in changed.items():
        if not isinstance(value, bool):
            yield from ("--compile-mode" if name == "compile" else option(name), str(value))
    if request.label:
        yield from ("--label", request.label)
    for name, value in changed.items():
        if isinstance(value, bool):
            yield option(name) if value else option(name).replace("--", "--no-", 1)
