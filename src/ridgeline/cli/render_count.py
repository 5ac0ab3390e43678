"""What `ridgeline count` prints and writes: tables, Markdown, CSV, JSON, text files."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import nlargest
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.cli.tables import (
    FORMULA,
    NOT_KNOWN,
    Columns,
    Grid,
    Rows,
    make_grid,
    print_grid,
    print_text,
    screen,
    to_markdown,
)
from ridgeline.count import result as layers
from ridgeline.count.records import cost_dict
from ridgeline.onnx.compare import EXPLANATIONS, OTHER
from ridgeline.pipeline.count_models import CountOptions
from ridgeline.plain import plain_line
from ridgeline.records import Cost
from ridgeline.store import atomic_write_text
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

    from ridgeline.count.growth import Formulas, Growth
    from ridgeline.count.result import CountResult
    from ridgeline.onnx.compare import OnnxComparison
    from ridgeline.pipeline.count_models import CountOutcome

SCHEMA = 1  # of the JSON form
ENDINGS = {".csv": "csv", ".md": "markdown", ".json": "json"}


class Heading(str):
    """The title of what follows."""


class Lines(str):
    """Lines whose breaks and indent matter."""


Block = Grid | str  # a table, a heading, lines, or a paragraph


def print_counts(outcome: CountOutcome, view: CountOptions, form: str) -> None:
    """Print the counts as a table, markdown, csv or json."""
    if form == "table":
        _print_blocks(_describe_counts(outcome, view, is_terminal=True), screen())
    else:
        print(_render(outcome, view, form), end="")


def _print_blocks(blocks: Iterable[Block], console: Console) -> None:
    for block in blocks:
        if isinstance(block, Grid):
            print_grid(block, console)
        elif isinstance(block, Heading | Lines):
            print_text(f"\n{block}", console, style="bold" if isinstance(block, Heading) else "")
        else:
            print_text(block, console)


def _render(outcome: CountOutcome, view: CountOptions, form: str) -> str:
    if form == "json":
        return json.dumps(to_json(outcome, view), indent=2) + "\n"
    if form == "csv":
        return str(_to_table(outcome, view).to_csv(index=False))
    blocks = _describe_counts(outcome, view, is_terminal=False)
    return "\n\n".join(map(_block_to_markdown, blocks)) + "\n"


def _block_to_markdown(block: Block) -> str:
    if isinstance(block, Grid):
        return to_markdown(block.header, block.rows)
    if isinstance(block, Heading):
        return f"## {block}"
    return f"```\n{block}\n```" if isinstance(block, Lines) else block


# ---------------------------------------------------------------- files


def write_files(
    outcome: CountOutcome, view: CountOptions, outputs: Sequence[Path], folder: Path | None
) -> list[Path]:
    """Write each output in the form that its ending names, and a folder of texts; their paths."""
    if not outcome.results:
        return []
    for path in outputs:
        atomic_write_text(path, _render(outcome, view, ENDINGS[path.suffix]), elsewhere="-o FILE")
    return [*outputs, *(_write_folder(outcome, folder) if folder is not None else [])]


def _write_folder(outcome: CountOutcome, folder: Path) -> list[Path]:
    """A text file for each model and batch, and the summaries that roofline scripts read."""
    import pandas as pd

    has_sizes = _has_sizes(outcome.results)
    texts: dict[Path, str] = {}
    summary: dict[str, dict[str, Any]] = {}
    for r in outcome.results:
        size = f" {r.input_text}" if has_sizes else ""
        name = "".join(c if c.isalnum() or c in "._-" else "_" for c in r.model)
        path = folder / f"{name}_bs{r.batch_size}{size.replace(' ', '_')}.txt"
        texts[path] = _describe_all(r)
        columns = {**_forward_columns(r), **r.to_dict()}
        summary.setdefault(f"{r.model}{size}", {})[str(r.batch_size)] = columns
    rows = pd.DataFrame(map(_summary_row, outcome.results))
    texts[folder / "summary.json"] = json.dumps(summary, indent=2) + "\n"
    texts[folder / "summary.csv"] = rows.to_csv(index=False)
    for path, text in texts.items():
        atomic_write_text(path, text, elsewhere="--output-dir DIR")
    return list(texts)


def _describe_all(result: CountResult) -> str:
    """Everything about one model in plain text: all layers, shapes and formulas."""
    every = CountOptions(models=(), depth=EVERY_DEPTH, formulas=True)
    blocks = [describe_summary([result]), *_describe_result(result, every, with_memory=True)]
    file = StringIO()
    _print_blocks(blocks, screen(file))
    return file.getvalue()


def _forward_columns(r: CountResult) -> dict[str, float]:
    """Counts of the forward pass, in the names that roofline scripts use."""
    forward, batch = r.phase("forward"), r.batch_size
    return {
        "mult_adds_per_batch_forward": forward.macs,
        "mult_adds_per_sample_forward": forward.macs / batch,
        "flops_per_batch_forward": forward.flops,
        "flops_per_sample_forward": forward.flops / batch,
    }


def _summary_row(r: CountResult) -> dict[str, Any]:
    """A row of summary.csv: what is one number in summary.json."""
    return {
        **{name: getattr(r, name) for name in ("model", "batch_size", "mode", "precision")},
        "input": r.input_text,
        "params": r.params,
        "parameter_bytes": r.memory.parameter_bytes,
        "activation_bytes": r.memory.activation_bytes,
        "layer_output_bytes": r.layer_output_bytes,
        "peak_bytes": r.memory.peak_bytes,
        **_forward_columns(r),
        **cost_dict(r.total),
        "fused_bytes": r.fused.total_bytes,
        "coverage": r.coverage,
    }


def _has_sizes(results: Sequence[CountResult]) -> bool:
    """Whether the same model and batch was counted at several input sizes."""
    return len({(r.model, r.batch_size) for r in results}) < len(results)


# ---------------------------------------------------------------- JSON and tables


def to_json(outcome: CountOutcome, view: CountOptions) -> dict[str, Any]:
    """The form that scripts read; see docs/count.md."""
    optional = {
        "growth": {model: _growth_to_json(g) for model, g in outcome.growths.items()},
        "max_batch": outcome.max_batches,
        "onnx_comparison": [one.to_dict() for one in outcome.comparisons],
        "errors": [
            {"model": model, "problem": error.problem, "hint": error.hint}
            for model, error in outcome.errors
        ],
    }
    models = [result.to_dict() for result in outcome.results]
    for content, result in zip(models, outcome.results, strict=True):
        if view.table == "ops":
            content["ops"] = result.ops.to_dict("records")
        elif view.breaks_down:
            content["layers"] = result.layers(view.depth).to_dict("records")
    known = {name: content for name, content in optional.items() if content}
    return {"schema": SCHEMA, "models": models, **known}


def _growth_to_json(growth: Growth) -> dict[str, Any]:
    """The formulas, null where no polynomial fits."""
    return {
        "by_batch": _formulas_to_json(growth.by_batch),
        "by_size": _formulas_to_json(growth.by_size),
        "size_name": growth.size_name,
        "sizes": list(growth.sizes),
        "notes": list(growth.notes),
    }


def _formulas_to_json(formulas: Formulas) -> dict[str, Any]:
    return {
        name: p and {"formula": str(p), "coefficients": [float(c) for c in p.coefficients]}
        for name, p in formulas.items()
    }


def _to_table(outcome: CountOutcome, view: CountOptions) -> pd.DataFrame:
    """Layers or operators of all results, with the model and batch in front."""
    import pandas as pd

    tables = []
    for result in outcome.results:
        rows = result.ops.copy() if view.table == "ops" else result.layers(view.depth)
        for name in ("precision", "mode", "batch_size", "model"):
            rows.insert(0, name, getattr(result, name))
        if _has_sizes(outcome.results):
            rows.insert(2, "model_input", result.input_text)
        tables.append(rows)
    return pd.concat(tables, ignore_index=True)


# ---------------------------------------------------------------- for people

SUMMARY: Columns = {
    "model": lambda r: r.model,
    "batch": lambda r: str(r.batch_size),
    "params": lambda r: format_count(r.params),
    "MACs": lambda r: si(r.total.macs),
    "FLOPs": lambda r: format_flops(r.total.flops),
    "bytes moved": lambda r: format_bytes(r.total.moved_bytes),
    "bytes, fused": lambda r: format_bytes(r.fused.total_bytes),
    "FLOP/B": lambda r: "–".join(map(format_ratio, r.intensity_range)),
    "peak memory": lambda r: format_bytes(r.memory.peak_bytes),
    "coverage": lambda r: format_percent(r.coverage),
}
SUMMARY_SPARE = ("coverage", "bytes, fused", "params", "FLOP/B", "MACs", "peak memory")
PHASES: Columns = {  # of a phase's name, its cost and its share of the FLOPs
    "phase": lambda p: p[0],
    "MACs": lambda p: si(p[1].macs),
    "FLOPs": lambda p: format_flops(p[1].flops),
    "transcend.": lambda p: si(p[1].transcendentals),
    "read": lambda p: format_bytes(p[1].read_bytes),
    "written": lambda p: format_bytes(p[1].written_bytes),
    "share of FLOPs": lambda p: format_percent(p[2]),
}
LAYER_HEADER = ["module", "type", "input", "output", "params", "MACs", "FLOPs", "read", "written"]
OP_HEADER = ["module", "op", "phase", "input", "output", "MACs", "FLOPs", "read", "written"]
SPARE = ("input", "output", "type", "params", "read", "written", "phase", "MACs")
MOST_ROWS = 200  # where no depth is asked for
EVERY_DEPTH = 10**6
MORE_OF_SEVERAL = "--depth 1 adds the phases, memory and layers of each."
LONGEST_CELL = 120  # characters of names and shapes


def _shorten(text: str) -> str:
    """A cell that does not make all others as wide: a node may have thousands of operands."""
    return text if len(text) <= LONGEST_CELL else f"{text[:LONGEST_CELL]}…"


def _name_module(row: dict[str, Any]) -> str:
    """A layer by its own name, indented by its depth; the path of an operator."""
    if "depth" not in row:
        return _shorten(row["path"])
    return _shorten("  " * max(row["depth"] - 1, 0) + row["path"].rpartition(".")[2])


COLUMNS: Columns = {
    "module": _name_module,
    "type": lambda row: _shorten(row["type"]),
    "op": lambda row: _shorten(row["op"]),
    "phase": lambda row: row["phase"],
    "input": lambda row: _shorten(row["input_shapes"]),
    "output": lambda row: _shorten(row["output_shapes"]),
    "params": lambda row: format_count(row["params"]),
    "MACs": lambda row: si(row["macs"]),
    "FLOPs": lambda row: format_flops(row["flops"]),
    "read": lambda row: format_bytes(row["read_bytes"]),
    "written": lambda row: format_bytes(row["written_bytes"]),
    FORMULA: lambda row: row["formula"],
}


def _describe_counts(
    outcome: CountOutcome, view: CountOptions, *, is_terminal: bool
) -> Iterator[Block]:
    """Everything for people, in order; the terminal shows either comparisons or layers."""
    yield describe_summary(outcome.results)
    for comparison in outcome.comparisons:
        yield from _describe_comparison(comparison, view.depth)
    if len(outcome.results) > 1 + len(outcome.comparisons) and not view.breaks_down:
        yield from _describe_together(outcome.results)
    else:
        for result in () if is_terminal and outcome.comparisons else outcome.results:
            yield from _describe_result(result, view, with_memory=is_terminal)
    for model, growth in outcome.growths.items():
        yield Lines("\n".join(_growth_lines(model, growth)))
    limit = format_bytes(view.limit_bytes or 0)
    for model, batch in outcome.max_batches.items():
        yield f"{model}: the largest batch within {limit} is {batch}"


def _describe_together(results: Sequence[CountResult]) -> Iterator[Block]:
    """What several counts are of, and their notes, each once."""
    yield f"{'; '.join(dict.fromkeys(map(_name_settings, results)))}. {MORE_OF_SEVERAL}"
    models_of = defaultdict(list)
    for result in results:
        for note in _list_notes(result):
            models_of[note].append(plain_line(result.model))
    for note, models in models_of.items():
        yield f"{', '.join(dict.fromkeys(models))}: {note}"


def _name_settings(result: CountResult) -> str:
    """`train, fp32, sgd`."""
    optimizer = f", {result.optimizer}" if result.optimizer else ""
    return f"{result.mode}, {result.precision}{optimizer}"


def _describe_result(
    result: CountResult, view: CountOptions, *, with_memory: bool
) -> Iterator[Block]:
    name = f"{plain_line(result.model)}, batch {result.batch_size}"
    yield Heading(f"{name}, {_name_settings(result)}")
    if result.mode == "train":
        yield describe_phases(result)
    if with_memory:
        yield Grid(header=["memory", "bytes"], rows=_memory_rows(result))
    yield from _describe_rows(result, view)
    yield from _list_notes(result)


def _describe_rows(result: CountResult, view: CountOptions) -> Iterator[Block]:
    """Layers or operators, the largest: a file without modules may have any number."""
    is_ops = view.table == "ops"
    depth = 1 if view.depth is None else view.depth
    rows: list[dict[Any, Any]] = (
        result.ops.to_dict("records") if is_ops else layers.layer_rows(result, depth)
    )
    shown = rows if view.depth is not None and not is_ops else _find_largest(rows)
    header = [*(OP_HEADER if is_ops else LAYER_HEADER), *([FORMULA] if view.formulas else [])]
    columns = {title: COLUMNS[title] for title in header}
    names = header.index("output") + 1
    yield make_grid(shown, columns, names=names, spare=SPARE)
    if len(shown) < len(rows):
        source = "-o FILE.csv" if is_ops else "--depth 1 or -o FILE.csv"
        others = f"{len(rows) - len(shown):,}"
        yield f"the {MOST_ROWS} largest rows; {source} has the other {others}, too"


def _find_largest(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with most FLOPs, then bytes, in their order."""

    def size(number: int) -> tuple[int, int]:
        row = rows[number]
        return row["flops"], row["read_bytes"] + row["written_bytes"]

    return [rows[number] for number in sorted(nlargest(MOST_ROWS, range(len(rows)), key=size))]


def describe_summary(results: Sequence[CountResult]) -> Grid:
    """A row per count."""
    if not _has_sizes(results):
        return make_grid(results, SUMMARY, spare=SUMMARY_SPARE)
    model, batch, *others = SUMMARY.items()
    columns: Columns = dict([model, ("input", lambda r: r.input_text), batch, *others])
    return make_grid(results, columns, names=2, spare=SUMMARY_SPARE)


def describe_phases(result: CountResult) -> Grid:
    total = max(result.total.flops, 1)
    phases = [(name, cost, cost.flops / total) for name, cost in result.phases.items()]
    spare = ("transcend.", "share of FLOPs", "MACs", "written", "read")
    return make_grid(phases, PHASES, spare=spare)


def _memory_rows(result: CountResult) -> Rows:
    m = result.memory
    parts = {
        "parameters": m.parameter_bytes, "buffers": m.buffer_bytes, "inputs": m.input_bytes,
        "gradients": m.gradient_bytes, "optimizer state": m.optimizer_bytes,
        "saved activations and outputs": m.activation_bytes,
        "outputs of layers": 0 if result.mode == "train" else result.layer_output_bytes,
        "peak": m.peak_bytes,
    }  # fmt: skip
    return [[name, format_bytes(size)] for name, size in parts.items() if size]


GROWTH_NAMES = {
    "macs": "MACs", "flops": "FLOPs", "moved_bytes": "bytes moved", "peak_bytes": "peak bytes"
}  # fmt: skip


def _growth_lines(model: str, growth: Growth) -> Iterator[str]:
    """`FLOPs = 8.22e9·N` and its like; exact, checked at one more size."""
    yield f"{model} grows with the batch N ({growth.size_name} {growth.size}):"
    yield from _formula_lines(growth.by_batch)
    if growth.sizes:
        first, second, *_, last = growth.sizes
        span = f"{first}…{last} in steps of {second - first}"
        yield f"and, one sample, with the {growth.size_name} S ({span}):"
        yield from _formula_lines(growth.by_size)
    yield from (f"  note: {note}" for note in growth.notes)


def _formula_lines(formulas: Formulas) -> Iterator[str]:
    for key, name in GROWTH_NAMES.items():
        formula = formulas[key]
        yield f"  {name} = {formula}" if formula else f"  {name}: no polynomial fits these sizes"


def _list_notes(result: CountResult) -> Iterator[str]:
    """Notes of the count, and what is not in its numbers."""
    yield from (f"note: {note}" for note in result.notes)
    with_formula = {op.op for op in result.op_costs if op.work is None and op.kind != "unknown"}
    for op, entry in result.unknown.items():
        calls, share = int(entry["calls"]), format_percent(entry["share"])
        why = "its shapes are not known or do not fit" if op in with_formula else "no formula"
        yield f"note: {op}: {why}: {calls} calls, {share} of the bytes, FLOPs not counted"


# ---------------------------------------------------------------- the comparison with ONNX

CHANGES: dict[str, tuple[str, Callable[[float], str]]] = {  # title: part of a cost, its format
    "MACs": ("macs", si),
    "other FLOPs": ("other_flops", si),
    "transcend.": ("transcendentals", si),
    "read": ("read_bytes", format_bytes),
    "written": ("written_bytes", format_bytes),
}
CHANGES_SPARE = ("transcend.", "modules", "MACs")  # the verdict has the MACs
MOST_MODULES = 3  # named in the verdict


def _describe_comparison(comparison: OnnxComparison, depth: int | None) -> Iterator[Block]:
    """The causes with their sum and its share of the model's, and modules down to `depth`."""
    names = f"{comparison.file} compared with {comparison.model}"
    yield Heading(f"{names}, batch {comparison.batch_size}: ONNX less PyTorch")
    yield describe_macs(comparison)
    rows = [[row.cause, row.what, str(row.modules), *_format_change(row.change)]
            for row in comparison.differences]  # fmt: skip
    rows.append(["sum", "", "", *_format_change(comparison.change)])
    rows.append(["share", "", "", *_format_shares(comparison)])
    header = ["cause", "operators", "modules", *CHANGES]
    yield Grid(header=header, rows=rows, text_columns=2, spare=CHANGES_SPARE)
    if modules := _module_rows(comparison, 1 if depth is None else depth):
        header = ["module", "MACs, PyTorch", "MACs, ONNX", *CHANGES]
        yield Grid(header=header, rows=modules, spare=CHANGES_SPARE)
    for cause in dict.fromkeys(row.cause for row in comparison.differences):
        share = f", up to {format_percent(comparison.other_share)} of FLOPs or bytes"
        yield f"{cause}: {EXPLANATIONS[cause]}{share if cause == OTHER else ''}"


def describe_macs(comparison: OnnxComparison) -> str:
    """Whether both have the same products, and which modules have not."""
    ours, theirs = comparison.pytorch.macs, comparison.onnx.macs
    text = f"MACs: {ours:,} in both"
    if ours != theirs:
        text = f"MACs: {ours:,} in PyTorch, {theirs:,} in the file: {theirs - ours:+,}"
    if comparison.totals_only:
        return f"{text}; {comparison.totals_only}"
    unequal = comparison.unequal_modules
    names = ", ".join(name or "(model)" for name in unequal[:MOST_MODULES])
    more = f" and {len(unequal) - MOST_MODULES} more" if len(unequal) > MOST_MODULES else ""
    return f"{text}; different in {names}{more}" if unequal else f"{text}, and in every module"


def _module_rows(comparison: OnnxComparison, depth: int) -> Rows:
    sums: dict[str, list[Cost]] = defaultdict(lambda: [Cost(), Cost()])
    for row in comparison.modules:
        name = ".".join(row.module.split(".")[:depth])
        sums[name][0] += row.pytorch
        sums[name][1] += row.onnx
    return [[name or "(model)", si(ours.macs), si(theirs.macs), *_format_change(theirs - ours)]
            for name, (ours, theirs) in sums.items()]  # fmt: skip


def _format_change(change: Cost) -> list[str]:
    return [_format_signed(getattr(change, part), form) for part, form in CHANGES.values()]


def _format_shares(comparison: OnnxComparison) -> list[str]:
    """The differences as shares of the model's own."""
    change, whole = comparison.change, comparison.pytorch
    return [
        _format_signed(getattr(change, part) / getattr(whole, part), format_percent)
        if getattr(whole, part)
        else NOT_KNOWN
        for part, _ in CHANGES.values()
    ]


def _format_signed(value: float, form: Callable[[float], str]) -> str:
    return form(abs(value)) if not value else f"{'+' if value > 0 else '−'}{form(abs(value))}"
