"""What `ridgeline count MODEL --compare-onnx FILE.onnx` prints."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from ridgeline.cli.tables import Grid, Rows, print_grid, print_text
from ridgeline.errors import RidgelineError
from ridgeline.onnx.compare import EXPLANATIONS, OTHER
from ridgeline.records import Cost
from ridgeline.units import format_bytes, format_percent, si

if TYPE_CHECKING:
    from rich.console import Console

    from ridgeline.onnx.compare import OnnxComparison

COSTS = ["MACs", "other FLOPs", "transcend.", "read", "written"]
CAUSES_HEADER = ["cause", "operators", "modules", *COSTS]
MODULES_HEADER = ["module", "MACs, PyTorch", "MACs, ONNX", *COSTS]
SPARE = (("transcend.",), ("modules",), ("MACs",))  # the verdict has the MACs
MOST_MODULES = 3  # named in the verdict


def print_comparison(console: Console, comparison: OnnxComparison, depth: int | None) -> None:
    print_text(console, f"\n{heading(comparison)}\n{verdict(comparison)}")
    for header, rows in tables(comparison, depth):
        texts = header.index("modules") if "modules" in header else 1
        print_grid(console, Grid(header=header, rows=rows, text_columns=texts, spare=SPARE))
    for line in explanation_lines(comparison):
        print_text(console, line)


def heading(comparison: OnnxComparison) -> str:
    names = f"{comparison.file} compared with {comparison.model}"
    return f"{names}, batch {comparison.batch_size}: ONNX less PyTorch"


def verdict(comparison: OnnxComparison) -> str:
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


def tables(comparison: OnnxComparison, depth: int | None) -> list[tuple[list[str], Rows]]:
    """The causes with their sum and its share of the model's, and modules down to `depth`."""
    rows = [[row.cause, row.what, str(row.modules), *_cells(row.change)]
            for row in comparison.differences]  # fmt: skip
    rows += [["sum", "", "", *_cells(comparison.change)], ["share", "", "", *_shares(comparison)]]
    modules = _module_rows(comparison, 1 if depth is None else depth)
    return [(CAUSES_HEADER, rows), *([(MODULES_HEADER, modules)] if modules else [])]


def _module_rows(comparison: OnnxComparison, depth: int) -> Rows:
    sums: dict[str, list[Cost]] = defaultdict(lambda: [Cost(), Cost()])
    for row in comparison.modules:
        name = ".".join(row.module.split(".")[:depth])
        sums[name][0] += row.pytorch
        sums[name][1] += row.onnx
    return [[name or "(model)", si(ours.macs), si(theirs.macs), *_cells(theirs - ours)]
            for name, (ours, theirs) in sums.items()]  # fmt: skip


def _cells(change: Cost) -> list[str]:
    counts = (change.macs, change.other_flops, change.transcendentals)
    sizes = (change.read_bytes, change.written_bytes)
    return [_signed(n, si) for n in counts] + [_signed(n, format_bytes) for n in sizes]


def _shares(comparison: OnnxComparison) -> list[str]:
    names = ("macs", "other_flops", "transcendentals", "read_bytes", "written_bytes")
    pairs = [(getattr(comparison.change, n), getattr(comparison.pytorch, n)) for n in names]
    return [_signed(part / whole, format_percent) if whole else "–" for part, whole in pairs]


def _signed(value: float, form: Callable[[float], str]) -> str:
    return form(abs(value)) if not value else f"{'+' if value > 0 else '−'}{form(abs(value))}"


def explanation_lines(comparison: OnnxComparison) -> list[str]:
    causes = dict.fromkeys(row.cause for row in comparison.differences)
    share = {OTHER: f", up to {format_percent(comparison.other_share)} of FLOPs or bytes"}
    return [f"{cause}: {EXPLANATIONS[cause]}{share.get(cause, '')}" for cause in causes]


def check_same_macs(comparison: OnnxComparison) -> None:
    """A file with other products is one of another model, or of other sizes."""
    if comparison.unexplained_macs:
        raise RidgelineError(
            f"{comparison.file} is not {comparison.model} at batch {comparison.batch_size}:"
            f" {verdict(comparison)}",
            hint="give the sizes that the file was exported with (-b, --input-size, --seq-len,"
            " --dim), or export it again",
        )
