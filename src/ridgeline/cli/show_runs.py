"""What `ridgeline run` prints: a line for scripts, a table for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from ridgeline.cli.messages import name_run, print_json, show_message, show_notes
from ridgeline.cli.tables import (
    NOT_KNOWN,
    Columns,
    Grid,
    format_known,
    make_grid,
    print_grid,
    print_text,
    to_records,
)
from ridgeline.errors import RidgelineError
from ridgeline.machine.sampling import DISTURBED, is_disturbed
from ridgeline.records import EnergyResult, LayerSum, RunResult, StepTime, WorkloadSpec
from ridgeline.serialize import to_dict
from ridgeline.store import MeasuredRun, ResultsFolder, Run
from ridgeline.units import format_bytes, format_percent, format_time, si

if TYPE_CHECKING:
    import pandas as pd

    from ridgeline.cli.options import Output
    from ridgeline.pipeline.cases import CaseRunner

SCHEMA = 1
REQUEST_KEYS = ("model", "batch_size", "mode", "label", "repeat")
RESULT_KEYS = (
    "backend", "device_name", "status", "samples_per_s", "busy_fraction", "peak_memory_bytes",
    "iters", "elapsed_s", "provenance", "threads", "max_batch",
)  # fmt: skip
ENERGY_KEYS = ("energy_j_per_step", "energy_j_per_sample", "mean_power_w")
STEP_KEYS = ("median", "mean", "std", "min", "max")
LAYERS_SHOWN = 15
SAMPLES = ["forward_samples_s", "backward_samples_s"]  # of layers: in the stored table only
MARK = "*"
FOOTNOTE = f"{MARK} mean is more than {DISTURBED} times the median: some samples were disturbed"
OF_MEDIAN = "; samples/s is that of the median step"


def show(runs: Sequence[Run], results: ResultsFolder, written: list[Path], output: Output) -> None:
    """Results to stdout; notes on them, and places unless quiet, to stderr."""
    measured = [run for run in runs if isinstance(run.result, RunResult)]
    if output.as_json:
        rows = [run_to_json(run, results) for run in runs]
        print_json({"schema": SCHEMA, "runs": rows})
    else:
        show_tables(measured, results)
    for run in measured:  # with --quiet, too: these are about the numbers
        show_notes(f"{name_run(run)}: {text}" for text in run.result.warnings)
    if runs and not output.quiet:
        show_message(f"runs are in {results.runs_path}, {len(written)} views in {results.path}")


def make_views(runner: CaseRunner, *, quiet: bool) -> list[Path]:
    """Write the views of a folder with new runs; where that fails, it is an error of the runner."""
    from ridgeline.report.views import write_views

    if not runner.completed:
        return []
    try:
        written, problems = write_views(runner.results)
    except RidgelineError as error:
        problem = f"the runs are kept, and their views could not be made: {error.problem}"
        runner.errors.append(RidgelineError(problem, hint=error.hint))
        return []
    show_notes(() if quiet else problems)
    return written


# ---------------------------------------------------------------- for programs


def measured_line(spec: WorkloadSpec, result: RunResult) -> str:
    """One line that scripts look for; it is printed as soon as a configuration is measured."""
    return (
        f"MEASURED_SEC={result.elapsed_s:.6f} IMGS_PER_SEC={result.samples_per_s:.3f} "
        f"BATCH={spec.batch_size} ARCH={spec.model} BACKEND={result.backend}"
    )


def run_to_json(run: Run, results: ResultsFolder) -> dict[str, Any]:
    """One run for programs; what was not measured is null."""
    request, result = run.request, run.result
    is_ok = isinstance(result, RunResult)
    step = result.step_time_s if is_ok else None
    layers = result.layers if is_ok else None
    energy = (result.energy if is_ok else None) or EnergyResult()
    layer_rows = None
    if layers:  # the rows of layers.parquet but for their samples
        table = results.read_table(run.run_id, "layers")
        layer_rows = to_records(table.drop(columns=SAMPLES, errors="ignore"))
    return {
        "run_id": run.run_id,
        **{key: getattr(request, key) for key in REQUEST_KEYS},
        **{key: getattr(result, key, None) for key in RESULT_KEYS},
        **{key: getattr(energy, key) for key in ENERGY_KEYS},
        "energy_meter": energy.meter,
        "energy_scope": energy.scope or None,
        "precision": result.precision if is_ok else request.precision,
        "asked_precision": request.precision,
        "warnings": list(result.warnings) if is_ok else [],
        "reason": None if is_ok else result.reason,
        "step_time_s": {key: getattr(step, key) for key in STEP_KEYS} if step else None,
        "step_time_interval_s": step.interval if step else None,
        "split_s": {name: part.median for name, part in result.split_s.items()} if step else None,
        "layers": layer_rows,
        "layers_together": to_dict(layers),
    }


# ---------------------------------------------------------------- for people


def show_tables(runs: Sequence[MeasuredRun], results: ResultsFolder) -> None:
    if runs:
        sizes = {run.request.model: _input_text(run) for run in runs}
        has_sizes = any(sizes[run.request.model] != _input_text(run) for run in runs)
        columns = {name: cell for name, cell in RUNS.items() if has_sizes or name != "input"}
        _print_marked(make_grid(runs, columns, names=3 + has_sizes, spare=RUNS_SPARE), OF_MEDIAN)
    for line in (*map(split_line, runs), *_energy_lines(runs)):
        print_text(line)
    for run in runs:
        if run.result.layers is not None:
            _show_layers(run, run.result.layers, results.read_table(run.run_id, "layers"))
    for line in _repeat_lines(runs):
        print_text(line)


def _format_rate(rate: float) -> str:
    return f"{rate:.4g}" if rate < 1e4 else f"{rate:.0f}"  # never as a power of ten


def _format_half_width(step: StepTime) -> str:
    """How far the interval reaches to its farther side, as a share of the median."""
    low, high = step.interval or (step.median, step.median)
    width = format_percent(max(step.median - low, high - step.median) / step.median)
    return width if step.interval else NOT_KNOWN


def _format_marked_time(median_s: float, mean_s: float) -> str:
    """The median, with a mark where some samples took much longer."""
    return format_time(median_s) + (MARK if is_disturbed(median=median_s, mean=mean_s) else "")


def _format_energy(name: str, unit: str) -> Callable[[MeasuredRun], str]:
    return lambda run: format_known(
        getattr(run.result.energy, name, None) or None, lambda value: si(value, unit)
    )


def _input_text(run: MeasuredRun) -> str:
    """`224x320`; empty where the model has its own size."""
    return "x".join(map(str, run.request.input_size or ()))


RUNS: Columns = {
    "model": lambda run: run.request.model,
    "input": _input_text,
    "batch": lambda run: str(run.request.batch_size),
    "precision": lambda run: f"{run.result.precision} {run.request.mode}",
    "samples/s": lambda run: _format_rate(run.result.samples_per_s),
    "step": lambda run: _format_marked_time(
        run.result.step_time_s.median, run.result.step_time_s.mean
    ),
    "± (95 %)": lambda run: _format_half_width(run.result.step_time_s),
    "busy": lambda run: format_known(run.result.busy_fraction, format_percent),
    "J/step": _format_energy("energy_j_per_step", "J"),
    "J/sample": _format_energy("energy_j_per_sample", "J"),
    "power": _format_energy("mean_power_w", "W"),
    "peak memory": lambda run: format_known(run.result.peak_memory_bytes or None, format_bytes),
}
RUNS_SPARE = ("busy", "power", "J/step", "± (95 %)", "peak memory", "J/sample", "precision")
LAYERS: Columns = {
    "layer": lambda row: str(row["layer"]),
    "kind": lambda row: str(row["kind"]),
    "input": lambda row: row["input_shape"] if isinstance(row["input_shape"], str) else "",
    "forward": lambda row: format_time(row["forward_s"]),
    "backward": lambda row: format_time(row["backward_s"]),
    "own time": lambda row: _format_marked_time(row["time_s"], row["mean_s"]),
    "of all layers": lambda row: f"{row['percentage']:.1f} %",
}
LAYERS_SPARE = ("input", "kind", "forward", "backward")


def _print_marked(grid: Grid, more: str = "") -> None:
    print_grid(grid)
    if any(cell.endswith(MARK) for row in grid.rows for cell in row):
        print_text(FOOTNOTE + more)


def split_line(run: MeasuredRun) -> str:
    """`resnet50, batch 32, amp: 21.3 ms on average = data 0 s + copy 0 s + forward 7.1 ms + …`."""
    parts = run.result.split_s
    texts = [f"{name} {format_time(part.mean or 0.0)}" for name, part in parts.items()]
    whole = format_time(run.result.step_time_s.mean)
    return f"{name_run(run)}: {whole} on average = {' + '.join(texts)}"


def _energy_lines(runs: Sequence[MeasuredRun]) -> list[str]:
    """One for all runs if they are alike, else one for each."""
    lines = []
    for run in runs:
        energy = run.result.energy
        reasons = "; ".join(run.result.energy_reasons) or "it was not asked for"
        source = f"{energy.meter}, {energy.scope}" if energy else f"not measured: {reasons}"
        lines.append(f"energy: {source}")
    if len(set(lines)) <= 1:
        return lines[:1]
    return [f"{name_run(run)}: {line}" for run, line in zip(runs, lines, strict=True)]


def _show_layers(run: MeasuredRun, layers: LayerSum, table: pd.DataFrame) -> None:
    """The layers that take longest, by their medians, and how all of them add up."""
    slowest = table.sort_values("time_s", ascending=False).head(LAYERS_SHOWN)
    title = f"{run.request.model}, batch {run.request.batch_size}"
    print_text(f"\n{title}: {len(slowest)} of {len(table)} rows, the slowest first")
    _print_marked(make_grid(slowest.to_dict("records"), LAYERS, names=3, spare=LAYERS_SPARE))
    off, whole = layers.difference or 0.0, format_time(layers.step_time_s or 0.0)
    print_text(
        f"all layers together {format_time(layers.sum_s or 0.0)}, a step {whole}: "
        f"{format_percent(abs(off))} {'more' if off > 0 else 'less'} ({layers.clock})"
    )


def _repeat_lines(runs: Sequence[MeasuredRun]) -> Iterator[str]:
    """Throughput over repeated runs, and how far their medians lie apart."""
    groups: dict[str, list[RunResult]] = {}
    for run in runs:
        groups.setdefault(name_run(run), []).append(run.result)
    for name, results in groups.items():
        if len(results) > 1:
            medians = [one.step_time_s.median for one in results]
            rates = [one.samples_per_s for one in results]
            apart = format_percent((max(medians) - min(medians)) / min(medians))
            yield (
                f"{name}: {len(results)} runs, {_format_rate(fmean(rates))} ±"
                f" {_format_rate(stdev(rates))} samples/s (mean and standard deviation);"
                f" medians lie {apart} apart"
            )
