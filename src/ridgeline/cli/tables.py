"""Tables and lines of text for a terminal of any width. A number is never cut.

A table that is too wide loses the columns that matter least and says so; then its names wrap. What
is still too wide runs over the edge. A file and a pipe get all of it.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from ridgeline.plain import plain_line, plain_text

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

Rows = list[list[str]]
Columns = Mapping[str, Callable[[Any], str]]  # title: the cell of a record

NOT_KNOWN = "–"
UNLIMITED = 100_000  # columns of a file or a pipe
FORMULA = "formula"
PROSE = (FORMULA, "how", "why", "limited by", "confidence")  # columns of words behind the numbers
LEAST_WIDTH, LEAST_NAME = {FORMULA: 24}, 8  # columns that a wrapped cell keeps


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table as text, and which columns it may lose."""

    header: list[str]
    rows: Rows
    text_columns: int = 1  # so many names in front; numbers follow
    spare: tuple[str, ...] = ()  # columns that may go, the least important first


def make_grid(
    records: Iterable[Any], columns: Columns, *, names: int = 1, spare: tuple[str, ...] = ()
) -> Grid:
    """A row for each record, a cell for each column."""
    rows = [[cell(record) for cell in columns.values()] for record in records]
    return Grid(header=[*columns], rows=rows, text_columns=names, spare=spare)


def format_known(value: Any, form: Callable[[Any], str]) -> str:
    """A cell; a dash where the value is not known."""
    return NOT_KNOWN if value is None else form(value)


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
    columns = zip(grid.header, *grid.rows, strict=True)
    unknown = {name for name, *cells in columns if set(cells) == {NOT_KNOWN}}
    spare = [name for name in grid.spare if name in grid.header]
    spare.sort(key=lambda name: name not in unknown)  # a column of dashes goes first
    hidden: list[str] = []
    table = _to_rich(grid, hidden)
    unlimited = console.options.update(width=UNLIMITED)
    while hidden != spare and table.__rich_measure__(console, unlimited).minimum > console.width:
        hidden = spare[: len(hidden) + 1]
        table = _to_rich(grid, hidden)
    console.print(table, crop=False)
    if hidden:
        line = f"hidden columns (terminal too narrow): {', '.join(hidden)}"
        console.print(line, style="dim", markup=False)


def to_markdown(header: Sequence[str], rows: Rows) -> str:
    """The table in Markdown; whatever a cell contains, it stays a cell."""
    from ridgeline.report.text import markdown_table

    return markdown_table(header, [[plain_line(cell) for cell in row] for row in rows])


def to_records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table for JSON: numpy's values as Python's, null where there is no number."""
    clean = table.astype(object).where(table.notna(), None)
    return [{str(k): _to_json(v) for k, v in row.items()} for row in clean.to_dict("records")]


def _to_json(value: Any) -> Any:
    value = value.tolist() if hasattr(value, "tolist") else value
    is_number = isinstance(value, float)
    return None if is_number and value in (float("inf"), -float("inf")) else value


def _to_rich(grid: Grid, hidden: Collection[str]) -> Any:
    """The table without some columns. The first one and formulas wrap, if there is no room."""
    from rich.box import SIMPLE_HEAD
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    shown = [number for number, name in enumerate(grid.header) if name not in hidden]
    cells = [[plain_text(row[number]) for number in shown] for row in (grid.header, *grid.rows)]
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for number, column in zip(shown, zip(*cells, strict=True), strict=True):
        name = grid.header[number]
        least = max(cell_len(line) for cell in column for line in cell.split("\n"))
        wraps = number == 0 or name == FORMULA
        least = min(least, LEAST_WIDTH.get(name, LEAST_NAME)) if wraps else least
        is_text = number < grid.text_columns or name in PROSE
        justify: Any = "left" if is_text else "right"
        table.add_column(
            Text(column[0]), justify=justify, min_width=least, no_wrap=not wraps, overflow="fold"
        )
    for row in cells[1:]:
        table.add_row(*(Text(cell) for cell in row))
    return table
