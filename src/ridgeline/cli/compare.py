"""`ridgeline compare`: what differs between two runs, labels, models or commits."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ridgeline.cli.interrupts import import_tables
from ridgeline.cli.options import Debug, JsonFormat, Results, check_choice, choice
from ridgeline.cli.tables import Grid, print_grid, print_text, screen
from ridgeline.errors import RidgelineError
from ridgeline.plain import plain_text
from ridgeline.store import DEFAULT_RESULTS, atomic_write_text, to_json

if TYPE_CHECKING:
    from ridgeline.report.comparison import Comparison, Table

EXAMPLES = """
[bold]Examples[/]

  ridgeline compare before after             # all runs with these labels
  ridgeline compare resnet50 resnet101       # where both ran with the same settings
  ridgeline compare 0d4349 4f2a9c            # two runs, with phases and layers
  ridgeline compare commit:cf37d28 commit:ccd1cc1
  ridgeline compare main/ branch/ --fail-above 5% --format markdown
  ridgeline compare main:resnet50 branch:resnet50 -o difference.md

[bold]Sides[/]: a run (its id, its beginning or its last six characters),
a label, a model, commit:SHA, another results folder, FOLDER:any of these.
Where a name may mean several things, write label:, model: or run: in front.

[bold]Exit code[/]: 0 compared; 1 B is slower than --fail-above allows;
2 something asked for is not possible.
"""

SCHEMA = 1
FORMATS = ("table", "markdown", "json")
ENDINGS = (".md", ".json")
TOO_SLOW = 1
PERCENT = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(%?)")
SPARE = ("p", "peak memory", "J/sample", "samples/s", "why", "of A's step", "of A's sample")


def compare(
    a: Annotated[
        str, typer.Argument(metavar="A", help="What was before: a run, label, model, …, see below.")
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="What is compared with it.")],
    results: Results = DEFAULT_RESULTS,
    fail_above: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT", help="Exit with 1 if B is shown to be slower by more than this: 5%."
        ),
    ] = None,
    layers: Annotated[
        bool | None,
        typer.Option(
            "--layers/--no-layers",
            help="Compare layers; by default where there is one configuration.",
            show_default=False,
        ),
    ] = None,
    top: Annotated[int, typer.Option(help="Layers that are shown.", min=1)] = 10,
    form: Annotated[str, choice("table, markdown or json, on stdout.", FORMATS, "--format")] = (
        "table"
    ),
    output: Annotated[
        list[Path] | None,
        typer.Option("-o", "--output", help="Write to a .md or .json file; may be repeated."),
    ] = None,
    as_json: JsonFormat = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No advice.")] = False,
    debug: Debug = False,
) -> None:
    """Compare two runs, labels, models, commits or results folders.

    Ratio of the medians with its interval, a rank test, energy, memory, phases, layers;
    and what else differs between the sides: versions, commits, clocks, limits.
    """
    form = "json" if as_json else form
    check_choice("--format", form, FORMATS)
    for path in output or ():
        check_choice("the ending of --output", path.suffix, ENDINGS)
    limit = parse_percentage(fail_above)
    import_tables()
    from ridgeline.report.compare import compare as compare_sides
    from ridgeline.report.comparison import as_markdown

    comparison = compare_sides(a, b, results=results, layers=layers)
    content = _to_dict(comparison, limit)
    try:
        if form == "json":
            print(json.dumps(content, indent=2))
        elif form == "markdown":
            print(plain_text(as_markdown(comparison, top=top)), end="")
        else:
            _print_tables(comparison, top)
        if not quiet and form != "markdown":  # which has its notes in it
            for note in comparison.notes:
                print(f"note: {plain_text(note)}", file=sys.stderr)
    finally:  # files are written even if nobody reads what is printed: `… -o FILE | head`
        for path in output or ():
            is_json = path.suffix == ".json"
            atomic_write_text(
                path, to_json(content) if is_json else as_markdown(comparison, top=top)
            )
            if not quiet:
                print(f"wrote {path}", file=sys.stderr)
    if limit is not None:
        _judge(comparison, limit, f"--fail-above {fail_above}")


def _judge(comparison: Comparison, limit: float, option: str) -> None:
    """Say what is too slow or cannot be judged, even if quiet; exit with TOO_SLOW for the first."""
    too_slow = comparison.slower_by_more_than(limit)
    messages = {
        "not judged": comparison.not_judged(),
        "cannot tell from so few steps": comparison.undecided(limit),
        "slower than that": too_slow,
    }
    for message, names in messages.items():
        for name in names:
            print(f"ridgeline: {option}: {message}: {plain_text(name)}", file=sys.stderr)
    if too_slow:
        sys.exit(TOO_SLOW)


def parse_percentage(text: str | None) -> float | None:
    """`5%` and `5` as 0.05."""
    if text is None:
        return None
    match = PERCENT.fullmatch(text.strip())
    if match is None:
        raise RidgelineError(
            f"--fail-above {text!r} is not a percentage", hint="write 5% for five per cent"
        )
    number = float(match[1])
    if 0 < number < 1 and not match[2]:
        raise RidgelineError(
            f"--fail-above {text} may mean {number:g} % or {100 * number:g} %",
            hint=f"write {number:g}% or {100 * number:g}%",
        )
    return number / 100


def _to_dict(comparison: Comparison, limit: float | None) -> dict[str, Any]:
    """The form that scripts read; see docs/compare.md."""
    return {
        "schema": SCHEMA,
        **comparison.to_dict(),
        "fail_above": limit,
        "too_slow": comparison.slower_by_more_than(limit) if limit is not None else [],
        "not_judged": comparison.not_judged(),
    }


def _print_tables(comparison: Comparison, top: int) -> None:
    from ridgeline.report.comparison import details, explanations, main_table, summary

    console = screen()
    print_text(console, f"A: {comparison.before}")
    print_text(console, f"B: {comparison.after}")
    _print_table(console, main_table(comparison), names=2)
    print_text(console, summary(comparison))
    for table in details(comparison, top):
        print_text(console, f"\n{table.title}")
        _print_table(console, table)
    for line in explanations(comparison):
        print_text(console, line)


def _print_table(console: Any, table: Table, *, names: int = 1) -> None:
    if table.rows:
        rows = [list(row) for row in table.rows]
        spare = tuple((name,) for name in SPARE if name in table.header)
        grid = Grid(header=list(table.header), rows=rows, text_columns=names, spare=spare)
        print_grid(console, grid)
