"""What `ridgeline count` prints and writes: tables, Markdown, CSV, JSON, Parquet, text files."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.count.result import CountResult
from ridgeline.errors import RidgelineError
from ridgeline.store import ResultsFolder, atomic_write_text
from ridgeline.units import format_bytes, format_count, format_flops, format_percent, si

if TYPE_CHECKING:
    import pandas as pd

    from ridgeline.cli.counted import Asked, Counted
    from ridgeline.count.growth import Growth

SCHEMA = 1
Rows = list[list[str]]


def show(asked: Asked, counted: Counted) -> None:
    """Print the answer in the form that was asked for."""
    if asked.form == "json":
        print(json.dumps(as_json(counted), indent=2))
    elif asked.form == "csv":
        print(_table(asked, counted).to_csv(index=False), end="")
    elif asked.form == "markdown":
        print(as_markdown(asked, counted))
    else:
        _print_tables(asked, counted)


def keep(asked: Asked, counted: Counted) -> None:
    """Write the files that were asked for, and say where they are."""
    written = []
    if asked.output is not None:
        written.append(_write(asked, counted, asked.output))
    if asked.output_dir is not None:
        written += _write_folder(asked, counted, asked.output_dir)
    if asked.results is not None:
        written += _write_runs(asked, counted, asked.results)
    if not asked.quiet:
        for path in written:
            print(f"wrote {path}", file=sys.stderr)


def as_json(counted: Counted) -> dict[str, Any]:
    """The form that scripts read; see docs/count.md."""
    answer: dict[str, Any] = {
        "schema": SCHEMA,
        "models": [result.to_dict() for result in counted.results],
    }
    if counted.growths:
        answer["growth"] = {model: growth_dict(g) for model, g in counted.growths.items()}
    if counted.max_batches:
        answer["max_batch"] = counted.max_batches
    if counted.errors:
        answer["errors"] = [
            {"model": model, "problem": error.problem, "hint": error.hint}
            for model, error in counted.errors
        ]
    return answer


def growth_dict(growth: Growth) -> dict[str, Any]:
    def coefficients(formulas: Any) -> dict[str, Any]:
        return {
            name: {"formula": str(p), "coefficients": [float(c) for c in p.coefficients]}
            for name, p in formulas.items()
        }

    return {
        "by_batch": coefficients(growth.by_batch),
        "by_size": coefficients(growth.by_size),
        "size_name": growth.size_name,
        "sizes": list(growth.sizes),
        "notes": list(growth.notes),
    }


# ---------------------------------------------------------------- rows of text

SUMMARY_HEADER = ["model", "batch", "params", "MACs", "FLOPs", "bytes moved", "least bytes",
                  "FLOP/B", "peak memory", "coverage"]  # fmt: skip
PHASE_HEADER = ["phase", "MACs", "FLOPs", "transcend.", "read", "written", "share of FLOPs"]
LAYER_HEADER = ["module", "type", "input", "output", "params", "MACs", "FLOPs", "read", "written"]


def summary_rows(results: Iterable[CountResult]) -> Rows:
    rows = []
    for r in results:
        low, high = r.intensity_range
        rows.append([
            r.model, str(r.batch_size), format_count(r.params), si(r.total.macs), format_flops(r.total.flops),
            format_bytes(r.total.moved_bytes), format_bytes(r.ideal.moved_bytes),
            f"{low:.3g}–{high:.3g}", format_bytes(r.memory.peak_bytes), format_percent(r.coverage),
        ])  # fmt: skip
    return rows


def phase_rows(result: CountResult) -> Rows:
    total = max(result.total.flops, 1)
    return [
        [name, si(c.macs), format_flops(c.flops), si(c.transcendentals), format_bytes(c.read_bytes),
         format_bytes(c.written_bytes), format_percent(c.flops / total)]
        for name, c in result.phases.items()
    ]  # fmt: skip


def layer_rows(result: CountResult, depth: int | None, *, formulas: bool) -> Rows:
    rows = []
    for layer in result.layers(depth).itertuples():
        name = "  " * max(layer.depth - 1, 0) + layer.path.rpartition(".")[2]
        row = [
            name, layer.type, layer.input_shapes, layer.output_shapes, format_count(layer.params),
            si(layer.macs), format_flops(layer.flops), format_bytes(layer.read_bytes),
            format_bytes(layer.written_bytes),
        ]  # fmt: skip
        rows.append([*row, layer.formula] if formulas else row)
    return rows


def memory_rows(result: CountResult) -> Rows:
    m = result.memory
    parts = {
        "parameters": m.parameter_bytes, "buffers": m.buffer_bytes, "inputs": m.input_bytes,
        "gradients": m.gradient_bytes, "optimizer state": m.optimizer_bytes,
        "saved activations and outputs": m.activation_bytes, "peak": m.peak_bytes,
    }  # fmt: skip
    return [[name, format_bytes(size)] for name, size in parts.items() if size]


def growth_lines(model: str, growth: Growth) -> list[str]:
    """`FLOPs = 8.22e9·N` and its like; exact, checked at one more size."""
    names = {"macs": "MACs", "flops": "FLOPs", "moved_bytes": "bytes moved", "peak_bytes": "peak bytes"}
    lines = [f"{model} grows with the batch N:"]
    lines += [f"  {names[key]} = {formula}" for key, formula in growth.by_batch.items()]
    if growth.by_size:
        span = f"{growth.sizes[0]}…{growth.sizes[-1]} in steps of {growth.sizes[1] - growth.sizes[0]}"
        lines.append(f"and, one sample, with the {growth.size_name} S ({span}):")
        lines += [f"  {names[key]} = {formula}" for key, formula in growth.by_size.items()]
    return [*lines, *(f"  note: {note}" for note in growth.notes)]


def note_lines(result: CountResult) -> list[str]:
    """What a reader must know beside the numbers."""
    lines = [f"note: {note}" for note in result.notes]
    for op, entry in result.unknown.items():
        lines.append(
            f"note: {op} has no formula: {int(entry['calls'])} calls, {format_percent(entry['share'])}"
            " of the bytes, FLOPs not counted"
        )
    return lines


def heading(result: CountResult) -> str:
    optimizer = f", {result.optimizer}" if result.optimizer else ""
    return f"{result.model}, batch {result.batch_size}, {result.mode}, {result.precision}{optimizer}"


# ---------------------------------------------------------------- the terminal


def _print_tables(asked: Asked, counted: Counted) -> None:
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    console.print(_rich("", SUMMARY_HEADER, summary_rows(counted.results), text_columns=1))
    for result in counted.results:
        console.print(f"\n[bold]{heading(result)}[/]")
        if result.mode == "train":
            console.print(_rich("", PHASE_HEADER, phase_rows(result), text_columns=1))
        console.print(_rich("", ["memory", "bytes"], memory_rows(result), text_columns=1))
        header, rows = _layers(asked, result)
        console.print(_rich("", header, rows, text_columns=4))
        for line in note_lines(result):
            console.print(line, markup=False)
    for model, growth in counted.growths.items():
        console.print("\n" + "\n".join(growth_lines(model, growth)), markup=False)
    for model, batch in counted.max_batches.items():
        console.print(f"\n{model}: the largest batch within {asked.limit} is {batch}", markup=False)


def _layers(asked: Asked, result: CountResult) -> tuple[list[str], Rows]:
    depth = asked.depth if asked.depth is not None else 1
    header = [*LAYER_HEADER, "formula"] if asked.formulas else LAYER_HEADER
    return header, layer_rows(result, depth, formulas=asked.formulas)


def _rich(title: str, header: list[str], rows: Rows, *, text_columns: int) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, box=SIMPLE_HEAD, pad_edge=False)
    for number, name in enumerate(header):
        is_text = number < text_columns or name == "formula"
        table.add_column(name, justify="left" if is_text else "right", overflow="fold", no_wrap=not is_text)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


# ---------------------------------------------------------------- Markdown and files


def as_markdown(asked: Asked, counted: Counted) -> str:
    parts = [_markdown(SUMMARY_HEADER, summary_rows(counted.results))]
    for result in counted.results:
        parts.append(f"## {heading(result)}")
        if result.mode == "train":
            parts.append(_markdown(PHASE_HEADER, phase_rows(result)))
        parts.append(_markdown(*_layers(asked, result)))
        parts += note_lines(result)
    for model, growth in counted.growths.items():
        parts.append("```\n" + "\n".join(growth_lines(model, growth)) + "\n```")
    return "\n\n".join(parts)


def _markdown(header: list[str], rows: Rows) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(c.replace("|", "\\|") for c in line) + " |" for line in lines)


def _table(asked: Asked, counted: Counted) -> pd.DataFrame:
    """Layers or operators of all results, with the model and batch in front."""
    import pandas as pd

    tables = []
    for result in counted.results:
        table = result.ops if asked.table == "ops" else result.layers(asked.depth)
        front = {"model": result.model, "batch_size": result.batch_size, "mode": result.mode,
                 "precision": result.precision}  # fmt: skip
        tables.append(table.assign(**front)[[*front, *table.columns]])
    return pd.concat(tables, ignore_index=True)


def _write(asked: Asked, counted: Counted, path: Path) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".parquet":
            _table(asked, counted).to_parquet(path, index=False)
        elif path.suffix == ".csv":
            atomic_write_text(path, _table(asked, counted).to_csv(index=False))
        elif path.suffix == ".md":
            atomic_write_text(path, as_markdown(asked, counted) + "\n")
        else:
            atomic_write_text(path, json.dumps(as_json(counted), indent=2) + "\n")
    except OSError as error:
        raise _cannot_write(path, error) from error
    return path


def _cannot_write(path: Path, error: OSError) -> RidgelineError:
    return RidgelineError(
        f"cannot write {path}: {error.strerror}", hint="name a place that you may write to"
    )


def _write_folder(asked: Asked, counted: Counted, folder: Path) -> list[Path]:
    """A text file for each model and batch, and the summary.json that roofline scripts read."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for result in counted.results:
            path = folder / f"{safe_name(result.model)}_bs{result.batch_size}.txt"
            atomic_write_text(path, as_text(result))
            written.append(path)
        summary = folder / "summary.json"
        atomic_write_text(summary, json.dumps(complexity(counted.results), indent=2) + "\n")
    except OSError as error:
        raise _cannot_write(folder, error) from error
    return [*written, summary]


def safe_name(name: str) -> str:
    """A model's name as part of a file name."""
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name)


def as_text(result: CountResult) -> str:
    """Everything about one model in plain text: all layers, shapes and formulas."""
    parts = [
        heading(result),
        _aligned(SUMMARY_HEADER, summary_rows([result])),
        _aligned(PHASE_HEADER, phase_rows(result)),
        _aligned(["memory", "bytes"], memory_rows(result)),
        _aligned([*LAYER_HEADER, "formula"], layer_rows(result, None, formulas=True)),
        *note_lines(result),
    ]
    return "\n\n".join(parts) + "\n"


def _aligned(header: list[str], rows: Rows) -> str:
    widths = [max(len(row[n]) for row in [header, *rows]) for n in range(len(header))]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def complexity(results: Iterable[CountResult]) -> dict[str, dict[str, Any]]:
    """Model → batch → counts of the forward pass, in the names that roofline scripts use."""
    summary: dict[str, dict[str, Any]] = {}
    for r in results:
        forward, batch = r.phase("forward"), r.batch_size
        summary.setdefault(r.model, {})[str(batch)] = {
            "model": r.model,
            "batch_size": batch,
            "params": r.params,
            "mult_adds_per_batch_forward": forward.macs,
            "mult_adds_per_sample_forward": forward.macs / batch,
            "flops_per_batch_forward": forward.flops,
            "flops_per_sample_forward": forward.flops / batch,
            **r.to_dict(),
        }
    return summary


def _write_runs(asked: Asked, counted: Counted, folder: Path) -> list[Path]:
    """Each count as a run folder: what was asked, what was found, where, and the tables."""
    from ridgeline.provenance import collect

    store = ResultsFolder(folder)
    where = collect()
    paths = []
    for result in counted.results:
        run = store.write_run(
            label=f"count-{safe_name(result.model)}-bs{result.batch_size}",
            asked={"command": "count", "model": result.model, "batch_size": result.batch_size,
                   "mode": result.mode, "precision": result.precision, "optimizer": result.optimizer},
            found={"provenance": "static", **result.to_dict()},
            provenance=where,
            tables={"ops": result.ops, "layers": result.layers()},
        )  # fmt: skip
        paths.append(store.runs_path / run.run_id)
    return paths
