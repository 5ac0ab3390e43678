"""What `ridgeline count` prints: tables, Markdown, CSV, JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ridgeline.cli import render_onnx_comparison as render
from ridgeline.cli.count import SCHEMA, error_dict
from ridgeline.cli.tables import FORMULA, Grid, Rows, print_grid, print_text, screen
from ridgeline.count import result as layers
from ridgeline.count.growth import QUANTITIES
from ridgeline.count.result import CountResult
from ridgeline.plain import plain_line
from ridgeline.units import (
    format_bytes,
    format_count,
    format_flops,
    format_percent,
    format_ratio,
    si,
)

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from ridgeline.cli.counted import Asked, Counted
    from ridgeline.count.growth import Growth, Polynomial


def show(asked: Asked, counted: Counted) -> None:
    """Print the answer in the form that was asked for."""
    if asked.form == "json":
        print(json.dumps(as_json(counted, asked), indent=2))
    elif asked.form == "csv":
        print(table(asked, counted).to_csv(index=False), end="")
    elif asked.form == "markdown":
        print(as_markdown(asked, counted))
    else:
        _print_tables(asked, counted)


def as_json(counted: Counted, asked: Asked | None = None) -> dict[str, Any]:
    """The form that scripts read; see docs/count.md."""
    answer: dict[str, Any] = {
        "schema": SCHEMA,
        "models": [{**result.to_dict(), **_json_rows(result, asked)} for result in counted.results],
    }
    if counted.growths:
        answer["growth"] = {model: growth_dict(g) for model, g in counted.growths.items()}
    if counted.max_batches:
        answer["max_batch"] = counted.max_batches
    if counted.comparisons:
        answer["onnx_comparison"] = [one.to_dict() for one in counted.comparisons]
    if counted.errors:
        answer["errors"] = [error_dict(model, error) for model, error in counted.errors]
    return answer


def _json_rows(result: CountResult, asked: Asked | None) -> dict[str, Any]:
    """Operators or layers, where the command line says which."""
    if asked is None:
        return {}
    if asked.table == "ops":
        return {"ops": _records(result.ops)}
    if asked.depth is not None or asked.formulas:
        return {"layers": _records(result.layers(asked.depth))}
    return {}


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    names = list(map(str, table))
    return [dict(zip(names, row, strict=True)) for row in table.itertuples(index=False)]


def growth_dict(growth: Growth) -> dict[str, Any]:
    """The formulas, null where no polynomial fits."""
    return {
        "by_batch": _formula_dicts(growth.by_batch),
        "by_size": _formula_dicts(growth.by_size) if growth.sizes else {},
        "size_name": growth.size_name,
        "sizes": list(growth.sizes),
        "notes": [*growth.notes, *growth.misfits],
    }


def _formula_dicts(formulas: dict[str, Polynomial]) -> dict[str, Any]:
    found: dict[str, Any] = dict.fromkeys(QUANTITIES)
    for name, p in formulas.items():
        found[name] = {"formula": str(p), "coefficients": [float(c) for c in p.coefficients]}
    return found


# ---------------------------------------------------------------- rows of text

SUMMARY_HEADER = ["model", "batch", "params", "MACs", "FLOPs", "bytes moved", "bytes, fused",
                  "FLOP/B", "peak memory", "coverage"]  # fmt: skip
PHASE_HEADER = ["phase", "MACs", "FLOPs", "transcend.", "read", "written", "share of FLOPs"]
LAYER_HEADER = ["module", "type", "input", "output", "params", "MACs", "FLOPs", "read", "written"]
OP_HEADER = ["module", "op", "phase", "input", "output", "MACs", "FLOPs", "read", "written"]
MOST_ROWS = 200  # where no depth is asked for
LONGEST_CELL = 120  # characters of names and shapes
LAYER_SPARE = (("input",), ("output",), ("type",), ("params",), ("read", "written"), ("MACs",))
OP_SPARE = (("input",), ("output",), ("read", "written"), ("phase",), ("MACs",))


def summary_rows(results: Iterable[CountResult]) -> Rows:
    rows = []
    for r in results:
        low, high = r.intensity_range
        rows.append([
            r.model, str(r.batch_size), format_count(r.params), si(r.total.macs),
            format_flops(r.total.flops), format_bytes(r.total.moved_bytes),
            format_bytes(r.fused.total_bytes),
            f"{format_ratio(low)}–{format_ratio(high)}", format_bytes(r.memory.peak_bytes),
            format_percent(r.coverage),
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
    return _layer_texts(layers.layer_rows(result, depth), formulas=formulas)


def _layer_texts(found: Iterable[dict[str, Any]], *, formulas: bool) -> Rows:
    rows = []
    for layer in found:
        name = "  " * max(layer["depth"] - 1, 0) + layer["path"].rpartition(".")[2]
        row = [
            *map(_short, (name, layer["type"], layer["input_shapes"], layer["output_shapes"])),
            format_count(layer["params"]), si(layer["macs"]), format_flops(layer["flops"]),
            format_bytes(layer["read_bytes"]), format_bytes(layer["written_bytes"]),
        ]  # fmt: skip
        rows.append([*row, layer["formula"]] if formulas else row)
    return rows


def _op_texts(found: Iterable[dict[str, Any]], *, formulas: bool) -> Rows:
    rows = []
    for op in found:
        names = ("path", "op", "phase", "input_shapes", "output_shapes")
        row = [
            *(_short(op[name]) for name in names), si(op["macs"]), format_flops(op["flops"]),
            format_bytes(op["read_bytes"]), format_bytes(op["written_bytes"]),
        ]  # fmt: skip
        rows.append([*row, op["formula"]] if formulas else row)
    return rows


def _short(text: str) -> str:
    """A cell that does not make all others as wide: a node may have thousands of operands."""
    return text if len(text) <= LONGEST_CELL else f"{text[:LONGEST_CELL]}…"


def _largest(found: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """The rows with most FLOPs, then bytes, in their order."""

    def size(row: dict[str, Any]) -> tuple[int, int]:
        return row["flops"], row["read_bytes"] + row["written_bytes"]

    by_size = sorted(range(len(found)), key=lambda n: size(found[n]), reverse=True)
    return [found[n] for n in sorted(by_size[:most])]


def memory_rows(result: CountResult) -> Rows:
    m = result.memory
    parts = {
        "parameters": m.parameter_bytes, "buffers": m.buffer_bytes, "inputs": m.input_bytes,
        "gradients": m.gradient_bytes, "optimizer state": m.optimizer_bytes,
        "saved activations and outputs": m.activation_bytes, "peak": m.peak_bytes,
    }  # fmt: skip
    return [[name, format_bytes(size)] for name, size in parts.items() if size]


GROWTH_NAMES = {
    "macs": "MACs", "flops": "FLOPs", "moved_bytes": "bytes moved", "peak_bytes": "peak bytes"
}  # fmt: skip


def growth_lines(model: str, growth: Growth) -> list[str]:
    """`FLOPs = 8.22e9·N` and its like; exact, checked at one more size."""
    lines = [f"{model} grows with the batch N ({growth.size_name} {growth.size}):"]
    lines += _formula_lines(growth.by_batch)
    if growth.sizes:
        first, second, *_, last = growth.sizes
        span = f"{first}…{last} in steps of {second - first}"
        lines.append(f"and, one sample, with the {growth.size_name} S ({span}):")
        lines += _formula_lines(growth.by_size)
    return [*lines, *(f"  note: {note}" for note in growth.notes)]


def _formula_lines(formulas: dict[str, Polynomial]) -> list[str]:
    return [
        f"  {name} = {formulas[key]}"
        if key in formulas
        else f"  {name}: no polynomial fits these sizes"
        for key, name in GROWTH_NAMES.items()
    ]


def max_batch_lines(asked: Asked, counted: Counted) -> list[str]:
    limit = format_bytes(asked.limit_bytes or 0)
    return [
        f"{model}: the largest batch within {limit} is {batch}"
        for model, batch in counted.max_batches.items()
    ]


def note_lines(result: CountResult) -> list[str]:
    """What a reader must know beside the numbers."""
    lines = [f"note: {note}" for note in result.notes]
    with_formula = {op.op for op in result.op_costs if op.work is None and op.kind != "unknown"}
    for op, entry in result.unknown.items():
        if op not in with_formula:
            lines.append(
                f"note: {op} has no formula: {int(entry['calls'])} calls,"
                f" {format_percent(entry['share'])} of the bytes, FLOPs not counted"
            )
    lost = [entry for op, entry in result.unknown.items() if op in with_formula]
    if lost:
        lines.append(
            f"note: {sum(int(entry['calls']) for entry in lost)} calls of operators that have a"
            f" formula, {format_percent(sum(entry['share'] for entry in lost))} of the bytes,"
            " are not counted: their shapes are not known or do not fit"
        )
    return lines


def heading(result: CountResult) -> str:
    optimizer = f", {result.optimizer}" if result.optimizer else ""
    model = plain_line(result.model)
    return f"{model}, batch {result.batch_size}, {result.mode}, {result.precision}{optimizer}"


# ---------------------------------------------------------------- the terminal


def _print_tables(asked: Asked, counted: Counted) -> None:
    console = screen()
    print_grid(console, Grid(header=SUMMARY_HEADER, rows=summary_rows(counted.results), turns=True))
    for comparison in counted.comparisons:
        render.print_comparison(console, comparison, asked.depth)
    for result in counted.results if not counted.comparisons else ():
        _print_result(console, asked, result)
    for model, growth in counted.growths.items():
        print_text(console, "\n" + "\n".join(growth_lines(model, growth)))
    for line in max_batch_lines(asked, counted):
        print_text(console, "\n" + line)


def _print_result(console: Console, asked: Asked, result: CountResult) -> None:
    print_text(console, "\n" + heading(result), style="bold")
    if result.mode == "train":
        print_grid(console, Grid(header=PHASE_HEADER, rows=phase_rows(result), turns=True))
    print_grid(console, Grid(header=["memory", "bytes"], rows=memory_rows(result)))
    header, rows, further = _rows(asked, result)
    texts, spare = (5, OP_SPARE) if asked.table == "ops" else (4, LAYER_SPARE)
    print_grid(console, Grid(header=header, rows=rows, text_columns=texts, spare=spare))
    for line in [*further, *note_lines(result)]:
        print_text(console, line)


def _rows(asked: Asked, result: CountResult) -> tuple[list[str], Rows, list[str]]:
    """Header and rows, and what was left out: a file without modules may have any number."""
    if asked.table == "ops":
        header, texts, found = OP_HEADER, _op_texts, _records(result.ops)
        shown, all_are_in = _largest(found, MOST_ROWS), "-o FILE.csv"
    else:
        header, texts = LAYER_HEADER, _layer_texts
        found = layers.layer_rows(result, 1 if asked.depth is None else asked.depth)
        shown = found if asked.depth is not None else _largest(found, MOST_ROWS)
        all_are_in = "--depth 1 or -o FILE.csv"
    further = len(found) - len(shown)
    lines = [f"the {MOST_ROWS} largest rows; {all_are_in} has the other {further:,}, too"]
    header = [*header, FORMULA] if asked.formulas else header
    return header, texts(shown, formulas=asked.formulas), lines if further else []


# ---------------------------------------------------------------- Markdown and tables


def as_markdown(asked: Asked, counted: Counted) -> str:
    parts = [_markdown(SUMMARY_HEADER, summary_rows(counted.results))]
    for comparison in counted.comparisons:
        parts += [f"## {render.heading(comparison)}", render.verdict(comparison)]
        parts += [_markdown(*table) for table in render.tables(comparison, asked.depth)]
        parts += render.explanation_lines(comparison)
    for result in counted.results:
        parts.append(f"## {heading(result)}")
        if result.mode == "train":
            parts.append(_markdown(PHASE_HEADER, phase_rows(result)))
        header, rows, further = _rows(asked, result)
        parts.append(_markdown(header, rows))
        parts += [*further, *note_lines(result)]
    for model, growth in counted.growths.items():
        parts.append("```\n" + "\n".join(growth_lines(model, growth)) + "\n```")
    parts += max_batch_lines(asked, counted)
    return "\n\n".join(parts)


def _markdown(header: list[str], rows: Rows) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(
        "| " + " | ".join(plain_line(c).replace("|", "\\|") for c in line) + " |" for line in lines
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
