"""`ridgeline compare`: what differs between two runs, labels, models, commits or machines."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ridgeline.cli.arguments import folder
from ridgeline.cli.choices import complete, one_of
from ridgeline.cli.interrupts import import_tables
from ridgeline.errors import RidgelineError
from ridgeline.plain import plain_text

if TYPE_CHECKING:
    from ridgeline.report.comparison import Comparison, MachineComparison

EXAMPLES = """
[bold]Examples[/]

  ridgeline compare before after             # all runs with these labels
  ridgeline compare resnet50 resnet101       # where both ran with the same settings
  ridgeline compare 0d4349 4f2a9c            # two runs, with phases and layers
  ridgeline compare commit:cf37d28 commit:ccd1cc1
  ridgeline compare main/ branch/ --fail-above 5% --format markdown
  ridgeline compare main:resnet50 branch:resnet50 -o difference.md
  ridgeline compare nvidia-h200 other-machine.json

[bold]Sides[/]: a run (its id, its beginning or its last six characters),
a label, a model, commit:SHA, another results folder, FOLDER:any of these,
a machine's passport by name or .json file. Where a name may mean several
things, write label:, model:, run: or machine: in front of it.

[bold]Exit code[/]: 0 compared; 1 B is slower than --fail-above allows;
2 something asked for is not possible.
"""

FORMATS = ("table", "markdown", "json")
TOO_SLOW = 1
PERCENT = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(%?)")


def compare(
    a: Annotated[
        str, typer.Argument(metavar="A", help="What was before: a run, label, model, …, see below.")
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="What is compared with it.")],
    results: Annotated[
        Path, typer.Option(metavar="DIR", parser=folder, help="Where runs are kept.")
    ] = Path("results"),
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
    form: Annotated[
        str,
        typer.Option(
            "--format", help="table, markdown or json, on stdout.", autocompletion=complete(FORMATS)
        ),
    ] = "table",
    output: Annotated[
        list[Path] | None,
        typer.Option("-o", "--output", help="Write to a .md or .json file; may be repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Same as --format json.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No advice.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Compare two runs, labels, models, commits, results folders or machines.

    Ratio of the medians with its interval, a rank test, energy, memory, phases, layers;
    and what else differs between the sides: versions, commits, clocks, limits.
    """
    outputs = tuple(output or ())
    form = "json" if as_json else form
    _check(form, outputs)
    limit = percentage(fail_above)
    import_tables()
    from ridgeline.cli.show_compare import Shown, keep, show
    from ridgeline.report.compare import compare as find

    found = find(a, b, results=results, layers=layers)
    shown = Shown(form=form, top=top, outputs=outputs, fail_above=limit, quiet=quiet)
    try:
        show(found, shown)
    finally:  # files are written even if nobody reads what is printed: `… -o FILE | head`
        keep(found, shown)
    if limit is not None:
        _judge(found, limit, f"--fail-above {fail_above}")


def _judge(found: Comparison | MachineComparison, limit: float, option: str) -> None:
    """Say what is too slow or cannot be judged, even if quiet; exit with TOO_SLOW for the first."""
    for name in found.not_judged():
        print(f"ridgeline: {option}: not judged: {plain_text(name)}", file=sys.stderr)
    for name in found.undecided(limit):
        print(f"ridgeline: {option}: cannot tell from so few steps: {plain_text(name)}",
              file=sys.stderr)  # fmt: skip
    too_slow = found.slower_by_more_than(limit)
    for name in too_slow:
        print(f"ridgeline: {option}: slower than that: {plain_text(name)}", file=sys.stderr)
    if too_slow:
        sys.exit(TOO_SLOW)


def percentage(text: str | None) -> float | None:
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


def _check(form: str, outputs: tuple[Path, ...]) -> None:
    one_of("--format", form, FORMATS)
    for path in outputs:
        one_of("the ending of --output", path.suffix, (".md", ".json"))
