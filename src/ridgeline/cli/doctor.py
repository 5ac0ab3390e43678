"""`ridgeline doctor`: what works here, and how to get what does not."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ridgeline.machine.doctor import Check

EXAMPLES = """
[bold]Examples[/]

  ridgeline doctor
  ridgeline doctor --results DIR
  ridgeline doctor --json
  ridgeline doctor --quiet && ridgeline count resnet50
"""

SCHEMA = 1
TITLES = {
    "software": "Software",
    "gpu": "GPU",
    "counters": "Counters",
    "power": "Power",
    "noise": "Noise",
}
COLOURS = {"ok": "green", "missing": "yellow", "broken": "bold red", "note": "cyan"}


def doctor(
    results: Annotated[
        str, typer.Option("--results", metavar="DIR", help="The folder that results will go to.")
    ] = "results",
    as_json: Annotated[bool, typer.Option("--json", help="For programs, on stdout.")] = False,
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="Show only what is broken; no progress.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Check what works on this machine, and say how to get what does not.

    ok, missing (ridgeline does without it), broken (there, but not usable), or a note on what makes
    measurements noisy. The exit code is 1 if something is broken, and 0 otherwise.
    """
    from ridgeline.machine.doctor import Facts, diagnose, is_healthy

    with _progress(quiet or as_json) as tell:
        checks = diagnose(Facts(results=results), before=tell)
    if as_json:
        print(json.dumps(_as_json(checks), indent=2))
    else:
        _show([check for check in checks if not quiet or check.state == "broken"])
        if not quiet:
            print(_summary(checks), file=sys.stderr)
    raise typer.Exit(0 if is_healthy(checks) else 1)


def _as_json(checks: Sequence[Check]) -> dict[str, object]:
    from ridgeline.machine.doctor import is_healthy

    return {
        "schema": SCHEMA,
        "healthy": is_healthy(checks),
        "checks": [check.to_dict() for check in checks],
    }


@contextmanager
def _progress(is_silent: bool) -> Iterator[Callable[[str], object]]:
    """Shows the name of the running check on stderr, where somebody looks on."""
    if is_silent:
        yield lambda name: None
        return
    from rich.console import Console

    with Console(stderr=True).status("looking around") as status:
        yield lambda name: status.update(f"looking at {name}")


def _show(checks: Sequence[Check]) -> None:
    """A table per group; the fix stands under its line."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(soft_wrap=False)
    width = max((len(check.name) for check in checks), default=0)
    for group, title in TITLES.items():
        rows = [check for check in checks if check.group == group]
        if not rows:
            continue
        table = Table(title=title, title_justify="left", title_style="bold", box=None,
                      show_header=False, pad_edge=False)  # fmt: skip
        table.add_column(width=len("missing"))
        table.add_column(width=width)
        table.add_column(overflow="fold")
        for check in rows:
            colour = COLOURS[check.state]
            fix = f"\n[dim]→[/] {escape(check.fix)}" if check.fix else ""
            table.add_row(f"[{colour}]{check.state}[/]", check.name, escape(check.result) + fix)
        console.print(table)
        console.print()


def _summary(checks: Sequence[Check]) -> str:
    counts = {state: sum(check.state == state for check in checks) for state in COLOURS}
    said = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    return f"{len(checks)} checks: {said}"
