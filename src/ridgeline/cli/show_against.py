"""What `ridgeline count MODEL --against FILE.onnx` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ridgeline.cli.tables import (
    NAME_BREAKS,
    Grid,
    Rows,
    folded,
    print_grid,
    print_text,
    total_width,
)
from ridgeline.errors import RidgelineError
from ridgeline.onnx.pieces import EXPLANATIONS, UNEXPLAINED
from ridgeline.records import Cost
from ridgeline.units import format_bytes, format_percent, si

if TYPE_CHECKING:
    from rich.console import Console

    from ridgeline.onnx.against import Against

HEADER = ["cause", "what", "places", "MACs", "other FLOPs", "transcend.", "read", "written"]
COSTS = ("macs", "other_flops", "transcendentals", "read_bytes", "written_bytes")
SPARE = (("transcend.",), ("places",), ("other FLOPs",), ("MACs",))  # the verdict has the MACs
TEXTS = 2  # columns of words: the cause, and what
MOST_NAMED = 3  # operators in an error
FOLDED_CAUSE = 16
FOLDED_WHAT = (48, 32, 20)  # tried one after another on a narrow screen


def print_against(console: Console, against: Against) -> None:
    print_text(console, f"\n{heading(against)}")
    print_text(console, verdict(against))
    print_grid(console, against_grid(against, console.width))
    for line in explanation_lines(against):
        print_text(console, line)


def against_grid(against: Against, width: int) -> Grid:
    """The table; where it is too wide without columns of zeros, then with its words folded."""
    grid = Grid(header=HEADER, rows=difference_rows(against), text_columns=TEXTS, spare=SPARE)
    if total_width(grid) <= width:
        return grid
    grid = _without_zeros(grid, against)
    narrower = [grid, *(_folded(grid, widest) for widest in FOLDED_WHAT)]
    return next((one for one in narrower if total_width(one) <= width), narrower[-1])


def _without_zeros(grid: Grid, against: Against) -> Grid:
    zero = tuple(
        name
        for name, cost in zip(HEADER[-len(COSTS) :], COSTS, strict=True)
        if not any(getattr(row.change, cost) for row in against.differences)
    )
    kept = [n for n, name in enumerate(HEADER) if name not in zero]
    return replace(
        grid,
        header=[HEADER[n] for n in kept],
        rows=[[row[n] for n in kept] for row in grid.rows],
        spare=tuple(names for names in SPARE if not set(names) & set(zero)),
        left_out=zero,
    )


def _folded(grid: Grid, widest: int) -> Grid:
    rows = [
        [folded(cause, FOLDED_CAUSE, NAME_BREAKS), folded(what, widest, NAME_BREAKS), *numbers]
        for cause, what, *numbers in grid.rows
    ]
    return replace(grid, rows=rows)


def heading(against: Against) -> str:
    return f"{against.file} against {against.model}, batch {against.batch_size}: ONNX less PyTorch"


def verdict(against: Against) -> str:
    """The products, to the last one, and why there are fewer or more in the file."""
    ours, theirs = against.pytorch.macs, against.onnx.macs
    if ours == theirs and not against.unexplained_macs:
        return f"MACs: {ours:,} in both"
    changes: Counter[str] = Counter()
    for row in against.differences:
        changes[row.cause] += row.change.macs
    causes = [(cause, macs) for cause, macs in changes.items() if macs]
    text = f"MACs: {ours:,} in PyTorch, {theirs:,} in the file: {theirs - ours:+,}"
    if len(causes) == 1:
        return f"{text}, {causes[0][0]}"
    return f"{text} = {', '.join(f'{macs:+,} {cause}' for cause, macs in causes)}"


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
    found = []
    for name in COSTS:
        change, whole = getattr(against.change, name), getattr(against.pytorch, name)
        sign = "+" if change > 0 else "−" if change < 0 else ""
        found.append(f"{sign}{format_percent(abs(change) / whole)}" if whole else "–")
    return found


def explanation_lines(against: Against) -> list[str]:
    causes = dict.fromkeys(row.cause for row in against.differences)
    return [f"{cause}: {EXPLANATIONS[cause]}" for cause in causes]


def check_same(against: Against) -> None:
    """Work that the other side has not, and no reason for it, is another network."""
    if not against.is_unexplained:
        return
    problem = verdict(against)
    hint = "give the sizes that the file was made for: -b, --input-size, --seq-len, --dim"
    if not against.unexplained_macs:
        hint = "export the model again: the file is of another network, or of other settings"
        rows = [row for row in against.differences if row.cause == UNEXPLAINED]
        what = "; ".join(f"{row.what} ({row.change.flops:+,} FLOPs)" for row in rows[:MOST_NAMED])
        problem = f"not explained: {what}{'; …' if len(rows) > MOST_NAMED else ''}"
    raise RidgelineError(
        f"{against.file} is not {against.model} at batch {against.batch_size}: {problem}",
        hint=hint,
    )
