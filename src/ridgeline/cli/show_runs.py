"""What `ridgeline run` prints: a line for scripts, a table for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ridgeline.cli.tables import Grid, print_grid, print_text, screen
from ridgeline.errors import RidgelineError
from ridgeline.measure.statistics import DISTURBED, is_disturbed
from ridgeline.plain import plain_text
from ridgeline.records import EnergyResult, LayerSum, RunResult, WorkloadSpec
from ridgeline.serialize import to_dict
from ridgeline.signals import INTERRUPTED
from ridgeline.store import FailedRun, MeasuredRun, ResultsFolder, Run
from ridgeline.units import format_bytes, format_percent, format_time, si

if TYPE_CHECKING:
    import pandas as pd

    from ridgeline.pipeline.cases import CaseRunner

SOME_FAILED = 3  # the exit code
SCHEMA = 1
STEP_KEYS = ("median", "mean", "std", "min", "max")
HEADER = ["model", "batch", "precision", "samples/s", "step", "± (95 %)", "busy", "J/step",
          "J/sample", "power", "peak memory"]  # fmt: skip
LAYERS_SHOWN = 15
SPARE_OF_LAYERS = (("input",), ("kind",), ("forward", "backward"))
SAMPLES = ["forward_samples_s", "backward_samples_s"]  # of layers: in the stored table only
NOT_MEASURED = "–"
MARK = "*"
FOOTNOTE = f"{MARK} mean is more than {DISTURBED} times the median: some samples were disturbed"


def show(
    runs: Sequence[Run],
    results: ResultsFolder,
    written: list[Path],
    *,
    as_json: bool = False,
    quiet: bool = False,
) -> None:
    """Results to stdout; notes on them, and places unless quiet, to stderr."""
    if as_json:
        rows = [run_to_json(run, results) for run in runs]
        print(json.dumps({"schema": SCHEMA, "runs": rows}, indent=2))
    else:
        _show_tables([run for run in runs if isinstance(run.result, RunResult)], results)
    for run in runs:
        if isinstance(run.result, RunResult):
            # with --quiet, too: these are about the numbers
            advise([f"{_name(run)}: {text}" for text in run.result.warnings], quiet=False)
        else:
            reason, hint = run.result.reason, run.result.hint
            print(f"ridgeline: {_name(run)}: failed: {reason}\n  hint: {hint}", file=sys.stderr)
    if runs and not quiet:
        print(f"runs are in {results.runs_path}; {_names(written)}", file=sys.stderr)


def run_to_json(run: Run, results: ResultsFolder) -> dict[str, Any]:
    """One run for programs; what was not measured is null."""
    request, result = run.request, run.result
    is_ok = isinstance(result, RunResult)
    step = result.step_time_s if is_ok else None
    energy = (result.energy if is_ok else None) or EnergyResult()

    def measured(name: str) -> Any:
        return getattr(result, name) if is_ok else None

    return {
        "run_id": run.run_id,
        "model": request.model,
        "batch_size": request.batch_size,
        "mode": request.mode,
        "precision": result.precision if is_ok else request.precision,
        "backend": result.backend,
        "status": result.status,
        "samples_per_s": measured("samples_per_s"),
        "step_time_s": {key: getattr(step, key) for key in STEP_KEYS} if step else None,
        "busy_fraction": measured("busy_fraction"),
        "energy_j_per_step": energy.energy_j_per_step,
        "peak_memory_bytes": measured("peak_memory_bytes"),
        "warnings": list(measured("warnings") or ()),
        "reason": None if is_ok else result.reason,
        "asked_precision": request.precision,
        "device_name": result.device_name,
        "label": request.label,
        "repeat": request.repeat,
        "iters": measured("iters"),
        "elapsed_s": measured("elapsed_s"),
        "step_time_interval_s": step.interval if step else None,
        "split_s": {name: part.median for name, part in result.split_s.items()} if step else None,
        "energy_j_per_sample": energy.energy_j_per_sample,
        "mean_power_w": energy.mean_power_w,
        "energy_meter": energy.meter,
        "energy_scope": energy.scope or None,
        "provenance": measured("provenance"),
        "threads": measured("threads"),
        "layers": _layer_rows(run, results),
        "layers_together": to_dict(measured("layers")),
        "max_batch": result.max_batch,
    }


def _layer_rows(run: Run, results: ResultsFolder) -> list[dict[str, Any]] | None:
    """The rows of layers.parquet but for their samples; None if no layers were timed."""
    if not isinstance(run.result, RunResult) or run.result.layers is None:
        return None
    table = results.read_table(run.run_id, "layers").drop(columns=SAMPLES, errors="ignore")
    return [
        {str(name): _plain_cell(value) for name, value in row.items()}
        for row in table.to_dict("records")
    ]


def _plain_cell(value: Any) -> Any:
    """A cell of a table in JSON's own types; what a row does not have is null."""
    import pandas as pd

    if pd.api.types.is_list_like(value):
        return [_plain_cell(part) for part in value]
    if pd.isna(value):
        return None
    return value.item() if hasattr(value, "item") else value


def measured_line(spec: WorkloadSpec, result: RunResult) -> str:
    """One line that scripts look for; it is printed as soon as a configuration is measured."""
    return (
        f"MEASURED_SEC={result.elapsed_s:.6f} IMGS_PER_SEC={result.samples_per_s:.3f} "
        f"BATCH={spec.batch_size} ARCH={spec.model} BACKEND={result.backend}"
    )


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
    advise(problems, quiet)
    return written


def show_message(quiet: bool) -> Callable[[str], None]:
    """Prints messages to stderr, unless quiet."""
    return (lambda text: None) if quiet else (lambda text: print(text, file=sys.stderr))


def show_log(debug: bool) -> Callable[[str], None]:
    """Prints the log of a case that failed to stderr, for --debug."""
    return (lambda log: print(log, end="", file=sys.stderr)) if debug else (lambda log: None)


def show_failed(runs: Sequence[FailedRun]) -> None:
    """A line for every run that failed."""
    for run in runs:
        name = f"{run.request.model}, batch {run.request.batch_size}"
        print(f"ridgeline: {name}: failed: {run.result.reason}", file=sys.stderr)


def raise_last(errors: Sequence[RidgelineError]) -> NoReturn:
    """The last error ends the command; those before it are printed."""
    *earlier, last = errors
    for error in earlier:
        print(f"ridgeline: {error}", file=sys.stderr)
    raise last


def end_interrupted(kept: str) -> NoReturn:
    """End the command as one that Ctrl-C ended; `kept` says what there is."""
    print(f"ridgeline: interrupted{kept}", file=sys.stderr)
    sys.exit(INTERRUPTED)


def advise(texts: Iterable[str], quiet: bool) -> None:
    """Warnings on stderr."""
    if not quiet:
        for text in texts:
            print(f"note: {plain_text(text)}", file=sys.stderr)


def _names(written: list[Path]) -> str:
    if not written:
        return "no views"
    rest = len(written) - 1
    more = f" and {rest} more file{'s' if rest > 1 else ''}" if rest else ""
    return f"views: {written[0]}{more}"


def _name(run: Run) -> str:
    request = run.request
    return f"{request.model}, batch {request.batch_size}, {request.precision}"


def _show_tables(runs: Sequence[MeasuredRun], results: ResultsFolder) -> None:
    console = screen()
    if runs:
        rows = [_row(run) for run in runs]
        print_grid(console, Grid(header=HEADER, rows=rows, text_columns=3, turns=True))
        _explain_mark(console, rows)
    for line in (*map(_split_line, runs), *_energy_lines(runs)):
        print_text(console, line)
    for run in runs:
        if run.result.layers is not None:
            table = results.read_table(run.run_id, "layers")
            _show_layers(console, run, run.result.layers, table)
    for line in _repeat_lines(runs):
        print_text(console, line)


def _row(run: MeasuredRun) -> list[str]:
    result, request = run.result, run.request
    step, energy = result.step_time_s, result.energy or EnergyResult()
    busy, memory = result.busy_fraction, result.peak_memory_bytes
    return [
        request.model,
        str(request.batch_size),
        f"{result.precision} {request.mode}",
        _plain(result.samples_per_s),
        _marked_time(step.median, step.mean),
        _half_width(step.interval, step.median) if step.interval else NOT_MEASURED,
        format_percent(busy) if busy is not None else NOT_MEASURED,
        _joules(energy.energy_j_per_step),
        _joules(energy.energy_j_per_sample),
        si(energy.mean_power_w, "W") if energy.mean_power_w else NOT_MEASURED,
        format_bytes(memory) if memory else NOT_MEASURED,
    ]


def _half_width(interval: Sequence[float], middle: float) -> str:
    """How far an interval reaches to its farther side, as a share of the median."""
    return format_percent(max(middle - interval[0], interval[1] - middle) / middle)


def _plain(value: float) -> str:
    """Four digits or more, never as a power of ten: `12.35`, `97774`."""
    return f"{value:.4g}" if value < 1e4 else f"{value:.0f}"


def _joules(value: float | None) -> str:
    return si(value, "J") if value is not None else NOT_MEASURED


def _split_line(run: MeasuredRun) -> str:
    """`resnet50, batch 32, amp: 21.3 ms on average = data 0 s + copy 0 s + forward 7.1 ms + …`."""
    parts = run.result.split_s
    texts = [f"{name} {format_time(part.mean or 0.0)}" for name, part in parts.items()]
    whole = format_time(run.result.step_time_s.mean)
    return f"{_name(run)}: {whole} on average = {' + '.join(texts)}"


def _energy_lines(runs: Sequence[MeasuredRun]) -> list[str]:
    """One for all runs if they are alike, else one for each."""
    lines = [_energy_line(run.result) for run in runs]
    if len(set(lines)) <= 1:
        return lines[:1]
    return [f"{_name(run)}: {line}" for run, line in zip(runs, lines, strict=True)]


def _energy_line(result: RunResult) -> str:
    if result.energy is None:
        reasons = "; ".join(result.energy_reasons) or "it was not asked for"
        return f"energy: not measured: {reasons}"
    return f"energy: {result.energy.meter}, {result.energy.scope}"


def _show_layers(console: Any, run: MeasuredRun, layers: LayerSum, table: pd.DataFrame) -> None:
    """The layers that take longest, by their medians, and how all of them add up."""
    slowest = table.sort_values("time_s", ascending=False).head(LAYERS_SHOWN)
    rows = [
        [
            str(row["layer"]),
            str(row["kind"]),
            row["input_shape"] if isinstance(row["input_shape"], str) else "",
            format_time(row["forward_s"]),
            format_time(row["backward_s"]),
            _marked_time(row["time_s"], row["mean_s"]),
            f"{row['percentage']:.1f} %",
        ]
        for _, row in slowest.iterrows()
    ]
    header = ["layer", "kind", "input", "forward", "backward", "own time", "of all layers"]
    title = f"{run.request.model}, batch {run.request.batch_size}"
    print_text(console, f"\n{title}: {len(slowest)} of {len(table)} rows, the slowest first")
    print_grid(console, Grid(header=header, rows=rows, text_columns=3, spare=SPARE_OF_LAYERS))
    _explain_mark(console, rows)
    print_text(console, _sum_line(layers))


def _marked_time(median_s: float, mean_s: float) -> str:
    """The median, with a mark where some samples took much longer."""
    return format_time(median_s) + (MARK if is_disturbed(median=median_s, mean=mean_s) else "")


def _explain_mark(console: Any, rows: Sequence[Sequence[str]]) -> None:
    if any(cell.endswith(MARK) for row in rows for cell in row):
        print_text(console, FOOTNOTE)


def _sum_line(layers: LayerSum) -> str:
    off, whole = layers.difference or 0.0, format_time(layers.step_time_s or 0.0)
    return (
        f"all layers together {format_time(layers.sum_s or 0.0)}, a step {whole}: "
        f"{format_percent(abs(off))} {'more' if off > 0 else 'less'} ({layers.clock})"
    )


def _repeat_lines(runs: Sequence[MeasuredRun]) -> list[str]:
    """How far the medians of repeated runs lie apart."""
    groups: dict[str, list[float]] = {}
    for run in runs:
        groups.setdefault(_name(run), []).append(run.result.step_time_s.median)
    return [
        f"{name}: medians of {len(taken)} runs lie "
        f"{format_percent((max(taken) - min(taken)) / min(taken))} apart"
        for name, taken in groups.items()
        if len(taken) > 1
    ]
