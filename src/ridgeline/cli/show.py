"""What `ridgeline count` prints: tables, Markdown, CSV, JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ridgeline.count import layers
from ridgeline.count.result import CountResult
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
        print(table(asked, counted).to_csv(index=False), end="")
    elif asked.form == "markdown":
        print(as_markdown(asked, counted))
    else:
        _print_tables(asked, counted)


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
            r.model, str(r.batch_size), format_count(r.params), si(r.total.macs),
            format_flops(r.total.flops), format_bytes(r.total.moved_bytes),
            format_bytes(r.ideal.moved_bytes),
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
    for layer in layers.layer_rows(result, depth):
        name = "  " * max(layer["depth"] - 1, 0) + layer["path"].rpartition(".")[2]
        row = [
            name, layer["type"], layer["input_shapes"], layer["output_shapes"],
            format_count(layer["params"]), si(layer["macs"]), format_flops(layer["flops"]),
            format_bytes(layer["read_bytes"]), format_bytes(layer["written_bytes"]),
        ]  # fmt: skip
        rows.append([*row, layer["formula"]] if formulas else row)
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
    names = {
        "macs": "MACs",
        "flops": "FLOPs",
        "moved_bytes": "bytes moved",
        "peak_bytes": "peak bytes",
    }
    lines = [f"{model} grows with the batch N ({growth.size_name} {growth.size}):"]
    lines += [f"  {names[key]} = {formula}" for key, formula in growth.by_batch.items()]
    if growth.by_size:
        span = (
            f"{growth.sizes[0]}…{growth.sizes[-1]} in steps of {growth.sizes[1] - growth.sizes[0]}"
        )
        lines.append(f"and, one sample, with the {growth.size_name} S ({span}):")
        lines += [f"  {names[key]} = {formula}" for key, formula in growth.by_size.items()]
    return [*lines, *(f"  note: {note}" for note in growth.notes)]


def max_batch_lines(asked: Asked, counted: Counted) -> list[str]:
    limit = format_bytes(asked.limit_bytes or 0)
    return [
        f"{model}: the largest batch within {limit} is {batch}"
        for model, batch in counted.max_batches.items()
    ]


def note_lines(result: CountResult) -> list[str]:
    """What a reader must know beside the numbers."""
    lines = [f"note: {note}" for note in result.notes]
    for op, entry in result.unknown.items():
        lines.append(
            f"note: {op} has no formula: {int(entry['calls'])} calls,"
            f" {format_percent(entry['share'])} of the bytes, FLOPs not counted"
        )
    return lines


def heading(result: CountResult) -> str:
    optimizer = f", {result.optimizer}" if result.optimizer else ""
    return (
        f"{result.model}, batch {result.batch_size}, {result.mode}, {result.precision}{optimizer}"
    )


# ---------------------------------------------------------------- the terminal


def _print_tables(asked: Asked, counted: Counted) -> None:
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    console.print(_rich(SUMMARY_HEADER, summary_rows(counted.results), text_columns=1))
    for result in counted.results:
        console.print(f"\n[bold]{heading(result)}[/]")
        if result.mode == "train":
            console.print(_rich(PHASE_HEADER, phase_rows(result), text_columns=1))
        console.print(_rich(["memory", "bytes"], memory_rows(result), text_columns=1))
        console.print(_rich(*_layers(asked, result), text_columns=4))
        for line in note_lines(result):
            console.print(line, markup=False)
    for model, growth in counted.growths.items():
        console.print("\n" + "\n".join(growth_lines(model, growth)), markup=False)
    for line in max_batch_lines(asked, counted):
        console.print("\n" + line, markup=False)


def _layers(asked: Asked, result: CountResult) -> tuple[list[str], Rows]:
    depth = asked.depth if asked.depth is not None else 1
    header = [*LAYER_HEADER, "formula"] if asked.formulas else LAYER_HEADER
    return header, layer_rows(result, depth, formulas=asked.formulas)


def _rich(header: list[str], rows: Rows, *, text_columns: int) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for number, name in enumerate(header):
        is_text = number < text_columns or name == "formula"
        table.add_column(
            name, justify="left" if is_text else "right", overflow="fold", no_wrap=not is_text
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


# ---------------------------------------------------------------- Markdown and tables


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
    parts += max_batch_lines(asked, counted)
    return "\n\n".join(parts)


def _markdown(header: list[str], rows: Rows) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(
        "| " + " | ".join(c.replace("|", "\\|") for c in line) + " |" for line in lines
    )


def table(asked: Asked, counted: Counted) -> pd.DataFrame:
    """Layers or operators of all results, with the model and batch in front."""
    import pandas as pd

    tables = []
    for result in counted.results:
        rows = result.ops.copy() if asked.table == "ops" else result.layers(asked.depth)
        for name in ("precision", "mode", "batch_size", "model"):
            rows.insert(0, name, getattr(result, name))
        tables.append(rows)
    return pd.concat(tables, ignore_index=True)
