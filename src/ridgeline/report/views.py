"""The CSV files of a results folder: views of its runs.

    metrics.csv         a row per run: throughput, times, energy, memory, what it ran on
    MODEL_overall.csv   a row per run of one model: step time in milliseconds, power, energy
    MODEL_layers.csv    a row per layer of each run whose layers were timed

Only runs that were completed are in them. A file can be thrown away: the next run makes it again.
One whose runs were all deleted stays as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.errors import RidgelineError
from ridgeline.fields import FieldError
from ridgeline.report.checked import check_run, check_table
from ridgeline.report.configuration import LOADING, config_text, environment_text
from ridgeline.report.run_facts import disturbance
from ridgeline.store import IN_RESULTS, ResultsFolder, Run, atomic_write_text

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
    runs, problems = measured_runs(results)
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


def measured_runs(results: ResultsFolder) -> tuple[list[Run], list[str]]:
    """The completed runs of `ridgeline run`, oldest first, and why others were passed over."""
    runs = list[Run]()
    problems = [
        f"{results.runs_path / name} has no run.json and is passed over: restore it,"
        " or delete the folder"
        for name in results.lost_runs()
    ]
    for run_id in results.run_ids():
        try:
            run = results.read_run(run_id)
        except RidgelineError as error:
            problems.append(str(error))
            continue
        if run.asked.get("command") != "run" or run.found.get("status") != "ok":
            continue
        try:
            check_run(run)
        except FieldError as error:
            problems.append(_unlike(run, error))
        else:
            runs.append(run)
    return runs, problems


def _unlike(run: Run, error: FieldError) -> str:
    """Of a run that can be read and is not what this ridgeline stores."""
    return f"run {run.run_id} is passed over: {error}"


def metrics(runs: Iterable[Run]) -> pd.DataFrame:
    """A row per run."""
    import pandas as pd

    return pd.DataFrame([_metrics_row(run) for run in runs])


def _metrics_row(run: Run) -> dict[str, Any]:
    asked, found, made = run.asked, run.found, run.provenance
    step, energy = found["step_time_s"], found.get("energy") or {}
    used = found.get("optimizer_settings") or {}
    process, memory = found.get("process") or {}, found.get("memory") or {}
    during = (found.get("conditions") or {}).get("during") or {}
    low, high = step.get("interval") or (None, None)
    return {
        "timestamp": made.get("time"),
        "hostname": (made.get("host") or {}).get("name"),
        "arch": asked["model"],
        "backend": found["backend"],
        "device_name": found["device_name"],
        "batch_size": asked["batch_size"],
        "warmup_iters": len(found["warmup"]["times_s"]),
        "measured_iters": found["iters"],
        "precision": found["precision"],
        **{name: used.get(name) for name in ("lr", "momentum", "weight_decay")},
        "elapsed_sec": found["elapsed_s"],
        "images_per_sec": found["samples_per_s"],
        "images_processed": found["samples_processed"],
        "data_root": asked["data"],
        "label": asked["label"],
        "torch_version": (made.get("libraries") or {}).get("torch"),
        **{
            name: asked.get(name)
            for name in ("channels_last", "grad_accum_steps", "deterministic", "cudnn_benchmark")
        },
        # beyond the columns that are usual elsewhere
        "run_id": run.run_id,
        "repeat": asked.get("repeat"),
        "mode": asked["mode"],
        "asked_precision": asked["precision"],
        "input_size": _size(run),
        "seq_len": asked.get("seq_len"),
        "optimizer": asked["optimizer"] if asked["mode"] == "train" else None,
        "compile": asked.get("compile"),
        "config": config_text(asked.get("config")),
        "digest": asked.get("digest"),
        **{name: asked.get(name) for name in LOADING},
        "seed": asked.get("seed"),
        **{f"step_{name}_s": step.get(name) for name in ("median", "mean", "std", "min", "max")},
        "step_interval_low_s": low,
        "step_interval_high_s": high,
        **{f"{phase}_s": _phase(found, phase) for phase in SPLIT},
        "threads": found.get("threads"),
        "environment": environment_text(made),
        "busy_fraction": found.get("busy_fraction"),
        "kernel_time_s": (found.get("kernels") or {}).get("time_s"),
        "energy_meter": energy.get("meter"),
        **{name: energy.get(name) for name in ENERGY_COLUMNS},
        "peak_memory_bytes": found.get("peak_memory_bytes"),
        "reserved_memory_bytes": memory.get("reserved_bytes"),
        **{name: process.get(name) for name in PROCESS_COLUMNS},
        **{name: during.get(name) for name in ("clock_hz", "memory_clock_hz", "temperature_c")},
        "throttle_reasons": ";".join(during.get("throttle_reasons") or ()),
        "warnings": len(found.get("warnings") or ()),
        "disturbed": disturbance(run),
    }


ENERGY_COLUMNS = ("energy_j_per_step", "energy_j_per_sample", "mean_power_w", "idle_power_w")
PROCESS_COLUMNS = (
    "user_time_s", "system_time_s", "peak_rss_bytes", "minor_faults", "major_faults",
    "voluntary_switches", "involuntary_switches",
)  # fmt: skip
POWER_COLUMNS = ("power_mean_w", "power_std_w", "power_min_w", "power_max_w")


def overall(runs: Iterable[Run]) -> pd.DataFrame:
    """A row per run of a model. mean, std, min, max and median are of a step, in milliseconds."""
    import pandas as pd

    return pd.DataFrame([_overall_row(run) for run in runs])


def _overall_row(run: Run) -> dict[str, Any]:
    asked, found = run.asked, run.found
    step, energy = found["step_time_s"], found.get("energy") or {}
    return {
        **_key(run),
        **{name: _ms(step.get(name)) for name in ("mean", "std", "min", "max", "median")},
        **{name: energy.get(name) for name in POWER_COLUMNS},
        "energy_total_j": energy.get("energy_total_j"),
        "energy_per_inference_j": energy.get("energy_j_per_sample"),
        "power_samples": energy.get("power_samples"),
        "energy_per_step_j": energy.get("energy_j_per_step"),
        "energy_meter": energy.get("meter"),
        "mode": asked["mode"],
        "precision": found["precision"],
        "backend": found["backend"],
        "device_name": found["device_name"],
        "images_per_sec": found["samples_per_s"],
        "label": asked["label"],
        "run_id": run.run_id,
    }


def _ms(time_s: float | None) -> float | None:
    """None for what a single sample does not have."""
    return None if time_s is None else MS * time_s


def _key(run: Run) -> dict[str, Any]:
    return {
        "model": run.asked["model"],
        "algorithm": ALGORITHM,
        "batch_size": run.asked["batch_size"],
        "input_size": _size(run),
    }


def layers(run: Run, table: pd.DataFrame) -> pd.DataFrame:
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
        precision=run.found["precision"],
        backend=run.found["backend"],
        mode=run.asked["mode"],
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
    results: ResultsFolder, runs: Iterable[Run], problems: list[str]
) -> pd.DataFrame | None:
    import pandas as pd

    found = []
    for run in runs:
        if run.found.get("layers") is None:
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


def _size(run: Run) -> str | None:
    """The height and width (or one number for a square) that the network was given."""
    size = (run.found.get("describe") or {}).get("input_size") or run.asked.get("input_size")
    if not size:
        return None
    sides = list(dict.fromkeys(size)) if len(set(size)) == 1 else size
    return "x".join(str(side) for side in sides)


def _phase(found: Mapping[str, Any], phase: str) -> float | None:
    part = (found.get("split_s") or {}).get(phase)
    return part["median"] if part else None


def _file_name(run: Run) -> str:
    """Of its model; the end of a long path says most."""
    name = re.sub(r"[^A-Za-z0-9_.]+", "-", str(run.asked["model"]))
    return name[-LONGEST_NAME:].strip("-.") or "model"


def _write(path: Path, table: pd.DataFrame) -> Path:
    atomic_write_text(path, table.to_csv(index=False), elsewhere=IN_RESULTS)
    return path
