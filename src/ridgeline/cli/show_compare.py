"""What `ridgeline compare` prints: tables for people, Markdown for a pull request, JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ridgeline.cli.tables import Grid, print_grid, print_text, screen
from ridgeline.plain import plain_text
from ridgeline.report.comparison import (
    Comparison,
    MachineComparison,
    Table,
    as_markdown,
    details,
    explanations,
    main_table,
    summary,
)
from ridgeline.store import atomic_write_text, to_json

SCHEMA = 1
SPARE = ("p", "peak memory", "J/sample", "samples/s", "why", "of A's step", "of A's sample")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """How a comparison is to be shown, and what it must not exceed."""

    form: str  # "table", "markdown" or "json"
    top: int
    outputs: tuple[Path, ...]
    fail_above: float | None  # a share
    quiet: bool


def show(found: Comparison | MachineComparison, shown: Shown) -> None:
    """The comparison to stdout and to files; notes and places to stderr."""
    if shown.form == "json":
        print(json.dumps(as_json(found, shown), indent=2))
    elif shown.form == "markdown":
        print(plain_text(as_markdown(found, top=shown.top)), end="")
    else:
        _print_tables(found, shown.top)
    if not shown.quiet and shown.form != "markdown":  # Markdown has its notes in it
        for note in found.notes:
            print(f"note: {plain_text(note)}", file=sys.stderr)


def keep(found: Comparison | MachineComparison, shown: Shown) -> None:
    """Write the files that were asked for, each in the form its ending names."""
    for path in shown.outputs:
        is_json = path.suffix == ".json"
        text = to_json(as_json(found, shown)) if is_json else as_markdown(found, top=shown.top)
        atomic_write_text(path, text)
        if not shown.quiet:
            print(f"wrote {path}", file=sys.stderr)


def as_json(found: Comparison | MachineComparison, shown: Shown) -> dict[str, Any]:
    """The form that scripts read; see docs/compare.md."""
    limit = shown.fail_above
    too_slow = found.slower_by_more_than(limit) if limit is not None else []
    return {
        "schema": SCHEMA,
        **found.to_dict(),
        "fail_above": limit,
        "too_slow": too_slow,
        "not_judged": found.not_judged(),
    }


def _print_tables(found: Comparison | MachineComparison, top: int) -> None:
    console = screen()
    print_text(console, f"A: {found.before}")
    print_text(console, f"B: {found.after}")
    _print_table(console, main_table(found), names=2)
    if isinstance(found, Comparison):
        print_text(console, summary(found))
    for block in details(found, top):
        if isinstance(block, Table):
            print_text(console, f"\n{block.title}")
            _print_table(console, block)
        else:
            print_text(console, block)
    for line in explanations(found):
        print_text(console, line)


def _print_table(console: Any, table: Table, *, names: int = 1) -> None:
    if table.rows:
        rows = [list(row) for row in table.rows]
        spare = tuple((name,) for name in SPARE if name in table.header)
        grid = Grid(header=list(table.header), rows=rows, text_columns=names, spare=spare)
        print_grid(console, grid)
