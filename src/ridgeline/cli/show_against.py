"""What `ridgeline count MODEL --against FILE.onnx` prints."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ridgeline.cli.tables import Grid, Rows, print_grid, print_text
from ridgeline.count.onnx.causes import EXPLANATIONS
from ridgeline.errors import RidgelineError
from ridgeline.records import Cost
from ridgeline.units import format_bytes, format_percent, si

if TYPE_CHECKING:
    from rich.console import Console

    from ridgeline.count.onnx.against import Against

HEADER = ["cause", "what", "places", "MACs", "other FLOPs", "transcend.", "read", "written"]
SPARE = (("transcend.",), ("places",), ("what",))


def print_against(console: Console, against: Against) -> None:
    print_text(console, f"\n{heading(against)}")
    print_text(console, verdict(against))
    rows = difference_rows(against)
    print_grid(console, Grid(header=HEADER, rows=rows, text_columns=2, spare=SPARE))
    for line in explanation_lines(against):
        print_text(console, line)


def heading(against: Against) -> str:
    return f"{against.file} against {against.model}, batch {against.batch_size}: ONNX less PyTorch"


def verdict(against: Against) -> str:
    """The products, to the last one."""
    ours, theirs = against.pytorch.macs, against.onnx.macs
    if ours == theirs:
        return f"MACs: {ours:,} in both"
    return f"MACs: {ours:,} in PyTorch, {theirs:,} in the file: {theirs - ours:+,}"


def difference_rows(against: Against) -> Rows:
    """A row for each cause, the sum, and the sum as a share of PyTorch's."""
    rows = [
        [row.cause, row.what, str(row.places), *_cells(row.change)] for row in against.differences
    ]
    return [*rows, ["sum", "", "", *_cells(against.change)], ["share", "", "", *_shares(against)]]


def _cells(change: Cost) -> list[str]:
    counts = (change.macs, change.other_flops, change.transcendentals)
    sizes = (change.read_bytes, change.written_bytes)
    return [_signed(n, si) for n in counts] + [_signed(n, format_bytes) for n in sizes]


def _signed(value: int, form: Callable[[int], str]) -> str:
    text = form(abs(value))
    return text if not value else f"{'+' if value > 0 else '−'}{text}"


def _shares(against: Against) -> list[str]:
    names = ("macs", "other_flops", "transcendentals", "read_bytes", "written_bytes")
    found = []
    for name in names:
        change, whole = getattr(against.change, name), getattr(against.pytorch, name)
        sign = "+" if change > 0 else "−" if change < 0 else ""
        found.append(f"{sign}{format_percent(abs(change) / whole)}" if whole else "–")
    return found


def explanation_lines(against: Against) -> list[str]:
    causes = dict.fromkeys(row.cause for row in against.differences)
    return [f"{cause}: {EXPLANATIONS[cause]}" for cause in causes]


def check_macs(against: Against) -> None:
    """Another number of products is another network."""
    if not against.has_equal_macs:
        raise RidgelineError(
            f"{against.file} is not {against.model} at batch {against.batch_size}:"
            f" {verdict(against)}",
            hint="give the sizes that the file was made for: -b, --input-size, --seq-len, --dim",
        )
