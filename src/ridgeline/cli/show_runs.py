"""What `ridgeline run` prints: a line for scripts, a table for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.cli.tables import Grid, print_grid, print_text, screen
from ridgeline.measure.statistics import DISTURBED, is_disturbed
from ridgeline.plain import plain_text
from ridgeline.records import WorkloadSpec
from ridgeline.store import ResultsFolder, Run
from ridgeline.units import format_bytes, format_percent, format_time, si

if TYPE_CHECKING:
    import pandas as pd

    from ridgeline.cli.measured import Asked

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


def show(asked: Asked, runs: Sequence[Run], results: ResultsFolder, written: list[Path]) -> None:
    """Results to stdout; notes on them, and places unless quiet, to stderr."""
    if asked.as_json:
        rows = [as_json(run, results) for run in runs]
        print(json.dumps({"schema": SCHEMA, "runs": rows}, indent=2))
    else:
        _show_tables(runs, results)
    for run in runs:
        if run.found["status"] != "ok":  # said in any case: it is no advice
            print(f"ridgeline: {_name(run)}: {_why(run)}", file=sys.stderr)
        else:
            # said in any case, too: these are about the numbers
            advise([f"{_name(run)}: {text}" for text in run.found["warnings"]], quiet=False)
    if runs and not asked.quiet:
        print(f"runs are in {results.runs_path}; {_names(written)}", file=sys.stderr)


def as_json(run: Run, results: ResultsFolder) -> dict[str, Any]:
    """One run for programs; what was not measured is null."""
    asked, found = run.asked, run.found
    step, energy = found.get("step_time_s"), found.get("energy") or {}
    return {
        "run_id": run.run_id,
        "model": asked["model"],
        "batch_size": asked["batch_size"],
        "mode": asked["mode"],
        "precision": found.get("precision", asked["precision"]),
        "backend": found.get("backend"),
        "status": found["status"],
        "samples_per_s": found.get("samples_per_s"),
        "step_time_s": {key: step[key] for key in STEP_KEYS} if step else None,
        "busy_fraction": found.get("busy_fraction"),
        "energy_j_per_step": energy.get("energy_j_per_step"),
        "peak_memory_bytes": found.get("peak_memory_bytes"),
        "warnings": found.get("warnings", []),
        "reason": found.get("reason"),
        "asked_precision": asked["precision"],
        "device_name": found.get("device_name"),
        "label": asked["label"],
        "repeat": asked["repeat"],
        "iters": found.get("iters"),
        "elapsed_s": found.get("elapsed_s"),
        "step_time_interval_s": step["interval"] if step else None,
        "split_s": {name: part["median"] for name, part in found["split_s"].items()}
        if step
        else None,
        "energy_j_per_sample": energy.get("energy_j_per_sample"),
        "mean_power_w": energy.get("mean_power_w"),
        "energy_meter": energy.get("meter"),
        "energy_scope": energy.get("scope"),
        "provenance": found.get("provenance"),
        "threads": found.get("threads"),
        "layers": _layer_rows(run, results),
        "layers_together": found.get("layers"),
        "max_batch": found.get("max_batch"),
    }


def _layer_rows(run: Run, results: ResultsFolder) -> list[dict[str, Any]] | None:
    """The rows of layers.parquet but for their samples; None if no layers were timed."""
    if run.found.get("layers") is None:
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


def measured_line(spec: WorkloadSpec, found: Mapping[str, Any]) -> str:
    """One line that scripts look for; it is printed as soon as a configuration is measured."""
    return (
        f"MEASURED_SEC={found['elapsed_s']:.6f} IMGS_PER_SEC={found['samples_per_s']:.3f} "
        f"BATCH={spec.batch_size} ARCH={spec.model} BACKEND={found['backend']}"
    )


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
    return f"{run.asked['model']}, batch {run.asked['batch_size']}, {run.asked['precision']}"


def _why(run: Run) -> str:
    return f"failed: {run.found['reason']}\n  hint: {run.found['hint']}"


def _show_tables(runs: Sequence[Run], results: ResultsFolder) -> None:
    done = [run for run in runs if run.found["status"] == "ok"]
    console = screen()
    if done:
        rows = [_row(run) for run in done]
        print_grid(console, Grid(header=HEADER, rows=rows, text_columns=3, turns=True))
        _explain_mark(console, rows)
    for line in (*map(_split_line, done), *_energy_lines(done)):
        print_text(console, line)
    for run in done:
        if run.found["layers"] is not None:
            _show_layers(console, run, results.read_table(run.run_id, "layers"))
    for line in _repeat_lines(done):
        print_text(console, line)


def _row(run: Run) -> list[str]:
    found, asked = run.found, run.asked
    step, energy = found["step_time_s"], found["energy"] or {}
    interval = step["interval"]
    busy = found["busy_fraction"]
    return [
        str(asked["model"]),
        str(asked["batch_size"]),
        f"{found['precision']} {asked['mode']}",
        _plain(found["samples_per_s"]),
        _marked_time(step["median"], step["mean"]),
        _half_width(interval, step["median"]) if interval else NOT_MEASURED,
        format_percent(busy) if busy is not None else NOT_MEASURED,
        _joules(energy.get("energy_j_per_step")),
        _joules(energy.get("energy_j_per_sample")),
        si(energy["mean_power_w"], "W") if energy.get("mean_power_w") else NOT_MEASURED,
        format_bytes(found["peak_memory_bytes"]) if found["peak_memory_bytes"] else NOT_MEASURED,
    ]


def _half_width(interval: Sequence[float], middle: float) -> str:
    """How far an interval reaches to its farther side, as a share of the median."""
    return format_percent(max(middle - interval[0], interval[1] - middle) / middle)


def _plain(value: float) -> str:
    """Four digits or more, never as a power of ten: `12.35`, `97774`."""
    return f"{value:.4g}" if value < 1e4 else f"{value:.0f}"


def _joules(value: float | None) -> str:
    return si(value, "J") if value is not None else NOT_MEASURED


def _split_line(run: Run) -> str:
    """`resnet50, batch 32, amp: 21.3 ms on average = data 0 s + copy 0 s + forward 7.1 ms + …`."""
    parts = run.found["split_s"]
    texts = [f"{name} {format_time(part['mean'])}" for name, part in parts.items()]
    whole = format_time(run.found["step_time_s"]["mean"])
    return f"{_name(run)}: {whole} on average = {' + '.join(texts)}"


def _energy_lines(runs: Sequence[Run]) -> list[str]:
    """One for all runs if they are alike, else one for each."""
    lines = [_energy_line(run) for run in runs]
    if len(set(lines)) <= 1:
        return lines[:1]
    return [f"{_name(run)}: {line}" for run, line in zip(runs, lines, strict=True)]


def _energy_line(run: Run) -> str:
    energy = run.found["energy"]
    if energy is None:
        reasons = "; ".join(run.found["energy_reasons"]) or "it was not asked for"
        return f"energy: not measured: {reasons}"
    return f"energy: {energy['meter']}, {energy['scope']}"


def _show_layers(console: Any, run: Run, table: pd.DataFrame) -> None:
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
    title = f"{run.asked['model']}, batch {run.asked['batch_size']}"
    print_text(console, f"\n{title}: {len(slowest)} of {len(table)} rows, the slowest first")
    print_grid(console, Grid(header=header, rows=rows, text_columns=3, spare=SPARE_OF_LAYERS))
    _explain_mark(console, rows)
    print_text(console, _sum_line(run.found["layers"]))


def _marked_time(median_s: float, mean_s: float) -> str:
    """The median, with a mark where some samples took much longer."""
    return format_time(median_s) + (MARK if is_disturbed(median=median_s, mean=mean_s) else "")


def _explain_mark(console: Any, rows: Sequence[Sequence[str]]) -> None:
    if any(cell.endswith(MARK) for row in rows for cell in row):
        print_text(console, FOOTNOTE)


def _sum_line(layers: dict[str, Any]) -> str:
    off, whole = layers["difference"], format_time(layers["step_time_s"])
    return (
        f"all layers together {format_time(layers['sum_s'])}, a step {whole}: "
        f"{format_percent(abs(off))} {'more' if off > 0 else 'less'} ({layers['clock']})"
    )


def _repeat_lines(runs: Sequence[Run]) -> list[str]:
    """How far the medians of repeated runs lie apart."""
    groups: dict[tuple[Any, ...], list[float]] = {}
    for run in runs:
        key = tuple(run.asked[name] for name in ("model", "batch_size", "precision"))
        groups.setdefault(key, []).append(run.found["step_time_s"]["median"])
    return [
        f"{model}, batch {batch}, {precision}: medians of {len(taken)} runs lie "
        f"{format_percent((max(taken) - min(taken)) / min(taken))} apart"
        for (model, batch, precision), taken in groups.items()
        if len(taken) > 1
    ]
