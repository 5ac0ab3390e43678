"""`ridgeline compare`: what differs between two runs, labels, models or commits."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ridgeline.cli import options as opt
from ridgeline.cli.interrupts import import_tables
from ridgeline.cli.messages import print_json, show_notes, show_problem
from ridgeline.cli.options import Debug, argument, option
from ridgeline.cli.tables import Grid, print_grid, print_text
from ridgeline.errors import RidgelineError
from ridgeline.plain import plain_text
from ridgeline.settings import one_of
from ridgeline.store import DEFAULT_RESULTS

if TYPE_CHECKING:
    from ridgeline.report.comparison import Comparison, Table

EXAMPLES = """
[bold]Examples[/]

  ridgeline compare before after             # all runs with these labels
  ridgeline compare 0d4349 4f2a9c            # two runs, with phases and layers
  ridgeline compare main/ branch/ --fail-above 5% --format markdown
  ridgeline compare main:resnet50 branch:resnet50 --format markdown > difference.md
  ridgeline compare SWEEP precision=fp32 precision=amp   # two values, all else equal

[bold]Sides[/]: a run (its id, its beginning or its last six characters),
a label, a model, commit:SHA, another results folder, FOLDER:any of these.
Where a name may mean several things, write label:, model: or run: in front.

[bold]Exit code[/]: 0 compared; 1 B is slower than --fail-above allows; 2 something asked for is not
possible. Runs whose steps were disturbed are not judged: that is said, and the code is 0.
"""

SCHEMA = 1
FORMATS = ("table", "markdown", "json")
TOO_SLOW = 1
SPARE = ("peak memory", "J/sample", "samples/s", "why", "of A's step", "of A's sample")


def compare(
    a: str = argument(..., "A", "What was before: a run, label, model, …, see below."),
    b: str = argument(..., "B", "What is compared with it."),
    other: str | None = argument(
        None, "VALUE", "After the name of a sweep and SETTING=VALUE: the other value."
    ),
    results: opt.Results = DEFAULT_RESULTS,
    fail_above: str | None = option(
        None, "Exit with 1 if B is shown to be slower by more than this: 5%.", metavar="PERCENT"
    ),
    layers: bool | None = option(
        None, "Compare layers; by default where there is one configuration.", "--layers/--no-layers"
    ),
    top: int = option(10, "Layers that are shown.", min=1),
    form: str = option("table", "table, markdown or json, on stdout.", "--format", choices=FORMATS),
    as_json: opt.JsonFormat = False,
    quiet: bool = option(False, "No advice.", "-q", "--quiet"),
    debug: Debug = False,
) -> None:
    """Compare two runs, labels, models, commits or results folders.

    Ratio of the medians with its interval, energy, memory, phases, layers;
    and what else differs between the sides: versions, commits, clocks.
    """
    form = "json" if as_json else form
    one_of("--format", form, FORMATS)
    limit = None if fail_above is None else parse_percentage(fail_above)
    import_tables()
    from ridgeline.report.compare import compare as compare_sides
    from ridgeline.report.compare import compare_values
    from ridgeline.report.comparison import as_markdown

    if other is not None:
        comparison = compare_values(a, b, other, results=results, layers=layers)
    else:
        comparison = compare_sides(a, b, results=results, layers=layers)
    if form == "json":
        content = {  # the form that scripts read; see docs/compare.md
            "schema": SCHEMA,
            **comparison.to_dict(),
            "fail_above": limit,
            "too_slow": comparison.slower_by_more_than(limit) if limit is not None else [],
            "not_judged": comparison.not_judged(),
        }
        print_json(content)
    elif form == "markdown":
        print(plain_text(as_markdown(comparison, top=top)), end="")
    else:
        _print_tables(comparison, top)
    if not quiet and form != "markdown":  # which has its notes in it
        show_notes(comparison.notes)
    if limit is not None:
        _judge(comparison, limit, str(fail_above))


def _judge(comparison: Comparison, limit: float, text: str) -> None:
    """Say what is too slow or cannot be judged, even if quiet; exit with TOO_SLOW for the first."""
    too_slow = comparison.slower_by_more_than(limit)
    messages = {
        "not judged": comparison.not_judged(),
        "cannot tell from so few steps": comparison.undecided(limit),
        "slower than that": too_slow,
    }
    for message, names in messages.items():
        for name in names:
            show_problem(f"--fail-above {text}: {message}: {plain_text(name)}")
    if too_slow:
        sys.exit(TOO_SLOW)


def parse_percentage(text: str) -> float:
    """`5%` and `5` as 0.05."""
    number = text.strip().removesuffix("%").strip()
    if not number.replace(".", "", 1).isdecimal():
        raise RidgelineError(
            f"--fail-above {text!r} is not a percentage", hint="write 5% for five per cent"
        )
    if 0 < float(number) < 1 and number == text.strip():
        raise RidgelineError(
            f"--fail-above {number} may mean {number} % or {100 * float(number):g} %",
            hint=f"write {number}% or {100 * float(number):g}%",
        )
    return float(number) / 100


def _print_tables(comparison: Comparison, top: int) -> None:
    from ridgeline.report.comparison import details, explanations, main_table, summary

    print_text(f"A: {comparison.before}\nB: {comparison.after}")
    _print_table(main_table(comparison), names=2)
    print_text(summary(comparison))
    for table in details(comparison, top):
        print_text(f"\n{table.title}")
        _print_table(table)
    for line in explanations(comparison):
        print_text(line)


def _print_table(table: Table, *, names: int = 1) -> None:
    rows = [list(row) for row in table.rows]
    print_grid(Grid(header=list(table.header), rows=rows, text_columns=names, spare=SPARE))
