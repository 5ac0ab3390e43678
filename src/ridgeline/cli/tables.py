"""Tables for a terminal of any width. A number is never cut.

A table that is too wide is turned on its side, or loses the columns that matter least and says
so; then names fold. What is still too wide runs over the edge, which the terminal wraps.
"""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ridgeline.plain import plain_text

if TYPE_CHECKING:
    from rich.console import Console

Rows = list[list[str]]

UNLIMITED = 100_000  # columns of a file or a pipe
FORMULA = "formula"
PROSE = (FORMULA, "how", "why", "limited by", "confidence")  # columns of words behind the numbers
LEAST_FORMULA = 24
LEAST_NAME = 8
TURNED_NAME = 16  # a model's name as the title of a column
NAME_BREAKS = r"(?<=[ ._:/-])"
FORMULA_BREAKS = r"(?<=[ ·])"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table as text, and how it may shrink."""

    header: list[str]
    rows: Rows
    text_columns: int = 1  # so many names in front; numbers follow
    turns: bool = False  # rather turned on its side than shrunk
    spare: tuple[tuple[str, ...], ...] = ()  # columns that may go, the least important first
    left_out: tuple[str, ...] = ()


def terminal_width() -> int:
    """Columns that stdout has: those of the terminal, and all one wants in a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else UNLIMITED


def screen() -> Console:
    """A console on stdout that is as wide as stdout."""
    from rich.console import Console

    # with a height too, rich believes the width: it takes any dumb terminal to have 80 columns
    return Console(width=terminal_width(), height=25, highlight=False)


def print_grid(console: Console, grid: Grid) -> None:
    """Print a table so that it fits, and what was left out of it."""
    for part in fit(_plain_grid(grid), console.width):
        console.print(_rich(part), crop=False)
        if part.left_out:
            names = ", ".join(part.left_out)
            line = f"left out at this width: {names}; a wider window or a pipe has all"
            console.print(line, style="dim", markup=False)


def print_text(console: Console, text: str, *, style: str = "") -> None:
    """Print a line; on a narrow screen several, broken between words."""
    from rich.text import Text

    console.print(Text(plain_text(text), style))


def _plain_grid(grid: Grid) -> Grid:
    rows = [[plain_text(cell) for cell in row] for row in grid.rows]
    return replace(grid, header=[plain_text(name) for name in grid.header], rows=rows)


def fit(grid: Grid, width: int) -> list[Grid]:
    """The table in one or several parts that fit into `width`, as far as that is possible."""
    if total_width(grid) <= width:
        return [grid]
    return _turned(grid, width) if grid.turns else [_shrunk(grid, width)]


def total_width(grid: Grid) -> int:
    """As rich draws it: a space at both edges, three between columns."""
    return sum(_widths(grid)) + 3 * (len(grid.header) - 1) + 2


def _widths(grid: Grid) -> list[int]:
    from rich.cells import cell_len

    columns = zip(grid.header, *grid.rows, strict=True)
    return [max(cell_len(line) for cell in c for line in cell.split("\n")) for c in columns]


# ---------------------------------------------------------------- smaller


def _turned(grid: Grid, width: int) -> list[Grid]:
    """A row becomes a column, in as many tables as it takes."""
    parts: list[Grid] = []
    rows: Rows = []
    for row in grid.rows:
        if rows and total_width(_on_its_side(grid.header, [*rows, row])) > width:
            parts.append(_on_its_side(grid.header, rows))
            rows = []
        rows.append(row)
    return [*parts, _on_its_side(grid.header, rows)]


def _on_its_side(header: list[str], rows: Rows) -> Grid:
    titles = [folded(row[0], TURNED_NAME, NAME_BREAKS) for row in rows]
    columns = [list(column) for column in zip(header, *rows, strict=True)]
    return Grid(header=[header[0], *titles], rows=columns[1:])


def _shrunk(grid: Grid, width: int) -> Grid:
    """Fewer columns until the rest fits, then a folded formula, then folded names."""
    for names in grid.spare:
        if _least_width(grid) <= width:
            break
        grid = _without(grid, names)
    if FORMULA in grid.header:
        column = grid.header.index(FORMULA)
        grid = _fold_column(grid, column, width, least=LEAST_FORMULA, breaks=FORMULA_BREAKS)
    return _fold_column(grid, 0, width, least=LEAST_NAME, breaks=NAME_BREAKS)


def _least_width(grid: Grid) -> int:
    """The width with its formulas folded."""
    formula = dict(zip(grid.header, _widths(grid), strict=True)).get(FORMULA, 0)
    return total_width(grid) - max(0, formula - LEAST_FORMULA)


def _without(grid: Grid, names: tuple[str, ...]) -> Grid:
    kept = [n for n, name in enumerate(grid.header) if name not in names]
    return replace(
        grid,
        header=[grid.header[n] for n in kept],
        rows=[[row[n] for n in kept] for row in grid.rows],
        text_columns=sum(n < grid.text_columns for n in kept),
        left_out=(*grid.left_out, *names),
    )


def _fold_column(grid: Grid, column: int, width: int, *, least: int, breaks: str) -> Grid:
    excess = total_width(grid) - width
    if excess <= 0:
        return grid
    target = max(_widths(grid)[column] - excess, least)
    rows = [
        [folded(cell, target, breaks) if n == column else cell for n, cell in enumerate(row)]
        for row in grid.rows
    ]
    return replace(grid, rows=rows)


def folded(text: str, width: int, breaks: str) -> str:
    """The text in lines of `width` at most, broken only where `breaks` allows; indent is kept."""
    indent = " " * (len(text) - len(text.lstrip()))
    lines = [""]
    for piece in re.split(breaks, text.strip()):
        if lines[-1] and len(indent + lines[-1] + piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return "\n".join(indent + line.rstrip() for line in lines)


# ---------------------------------------------------------------- on the screen


def _rich(grid: Grid) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, width=total_width(grid))
    for number, name in enumerate(grid.header):
        is_text = number < grid.text_columns or name in PROSE
        table.add_column(Text(name), justify="left" if is_text else "right", no_wrap=True)
    for row in grid.rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
