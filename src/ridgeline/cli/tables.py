"""Tables for a terminal of any width. A number is never cut.

A table that is too wide becomes a list of records, or loses the columns that matter least and says
so; then rich wraps names and formulas. What is still too wide runs over the edge.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from textwrap import fill
from typing import TYPE_CHECKING, Any, TextIO

from ridgeline.plain import plain_line, plain_text

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

Rows = list[list[str]]

NOT_KNOWN = "–"
TITLE_WIDTH = 16  # a model's name as the title of a record
UNLIMITED = 100_000  # columns of a file or a pipe
FORMULA = "formula"
PROSE = (FORMULA, "how", "why", "limited by", "confidence")  # columns of words behind the numbers
LEAST_WIDTH, LEAST_NAME = {FORMULA: 24}, 8  # columns that a wrapped cell keeps


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table as text, and how it may shrink."""

    header: list[str]
    rows: Rows
    text_columns: int = 1  # so many names in front; numbers follow
    turns: bool = False  # becomes a list of records rather than lose a column
    spare: tuple[str, ...] = ()  # columns that may go, the least important first


def screen(file: TextIO | None = None) -> Console:
    """A console on stdout that is as wide as the terminal; a file or a pipe has any width."""
    from rich.console import Console

    is_terminal = file is None and sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if is_terminal else UNLIMITED
    # with a height too, rich believes the width: it takes any dumb terminal to have 80 columns
    return Console(file=file, width=width, height=25, highlight=False)


def print_text(text: str, console: Console | None = None, *, style: str = "") -> None:
    """Print a line; on a narrow screen several, broken between words."""
    from rich.text import Text

    (console or screen()).print(Text(plain_text(text), style))


def print_grid(grid: Grid, console: Console | None = None) -> None:
    """Print a table so that it fits, and say which columns are hidden."""
    console = console or screen()
    header, *rows = [[plain_text(cell) for cell in row] for row in [grid.header, *grid.rows]]
    grid = replace(grid, header=header, rows=rows)
    if grid.turns and _measure_width(grid) > console.width:
        for record in _split_records(grid):
            console.print(_to_rich(record, console.width), crop=False)
        return
    hidden = []
    for name in grid.spare:
        if name in grid.header and _measure_width(grid, wrapped=(FORMULA,)) > console.width:
            hidden.append(name)
            grid = _drop_column(grid, grid.header.index(name))
    console.print(_to_rich(grid, console.width), crop=False)
    if hidden:
        line = f"hidden columns (terminal too narrow): {', '.join(hidden)}"
        console.print(line, style="dim", markup=False)


def to_markdown(header: Sequence[str], rows: Rows) -> str:
    """The table in Markdown; whatever a cell contains, it stays a cell."""
    from ridgeline.report.markup import markdown_table

    return markdown_table(header, [[plain_line(cell) for cell in row] for row in rows])


def to_records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table for JSON: numpy's values as Python's, null where there is no number."""
    clean = table.astype(object).where(table.notna(), None)
    return [{str(k): _to_json(v) for k, v in row.items()} for row in clean.to_dict("records")]


def _to_json(value: Any) -> Any:
    value = value.tolist() if hasattr(value, "tolist") else value
    is_number = isinstance(value, float)
    return None if is_number and value in (float("inf"), -float("inf")) else value


def _split_records(grid: Grid) -> list[Grid]:
    """A table of names and values for each row."""
    first, *names = grid.header
    return [
        Grid(
            header=[first, fill(row[0], TITLE_WIDTH)],
            rows=[list(pair) for pair in zip(names, row[1:], strict=True)],
        )
        for row in grid.rows
    ]


def _drop_column(grid: Grid, place: int) -> Grid:
    header, *rows = [row[:place] + row[place + 1 :] for row in [grid.header, *grid.rows]]
    text_columns = grid.text_columns - (place < grid.text_columns)
    return replace(grid, header=header, rows=rows, text_columns=text_columns)


def _measure_width(grid: Grid, wrapped: tuple[str, ...] = ()) -> int:
    """As rich draws it, a space at both edges and three between columns."""
    from rich.cells import cell_len

    columns = zip(grid.header, *grid.rows, strict=True)
    widths = [max(cell_len(line) for c in cells for line in c.split("\n")) for cells in columns]
    for number, name in enumerate(grid.header):
        if name in wrapped:
            widths[number] = min(widths[number], LEAST_WIDTH.get(name, LEAST_NAME))
    return sum(widths) + 3 * (len(widths) - 1) + 2


def _to_rich(grid: Grid, width: int) -> Any:
    """The table in `width` columns, or in as many as its numbers take; names and formulas wrap."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    wrapped = (grid.header[0], FORMULA)
    width = max(_measure_width(grid, wrapped), min(_measure_width(grid), width))
    table = Table(box=SIMPLE_HEAD, pad_edge=False, width=width)
    for number, name in enumerate(grid.header):
        is_text = number < grid.text_columns or name in PROSE
        table.add_column(
            Text(name),
            justify="left" if is_text else "right",
            no_wrap=name not in wrapped,
            overflow="fold",
        )
    for row in grid.rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
