"""`ridgeline doctor`: what works here, and how to get what does not."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from ridgeline.cli.messages import print_json
from ridgeline.cli.options import Debug, Json, Results, option
from ridgeline.cli.progress import progress_bar
from ridgeline.store import DEFAULT_RESULTS

if TYPE_CHECKING:
    from ridgeline.machine.doctor import Check

EXAMPLES = """
[bold]Examples[/]

  ridgeline doctor
  ridgeline doctor --json
  ridgeline doctor --quiet && ridgeline count resnet50
"""

SCHEMA = 1
GROUPS = ("software", "gpu", "counters", "power", "noise")
COLOURS = {"ok": "green", "missing": "yellow", "broken": "bold red", "note": "cyan"}


def doctor(
    results: Results = DEFAULT_RESULTS,
    as_json: Json = False,
    quiet: bool = option(False, "Show only what is broken; no progress.", "-q", "--quiet"),
    debug: Debug = False,
) -> None:
    """Check what works on this machine, and say how to get what does not.

    ok, missing (ridgeline does without it), broken (there, but not usable), or a note on what makes
    measurements noisy. The exit code is 1 if something is broken, and 0 otherwise.
    """
    from ridgeline.machine.doctor import Facts, diagnose, is_healthy

    with progress_bar(None, quiet=quiet or as_json, first="looking around") as progress:
        checks = diagnose(
            Facts(results=str(results)), before=lambda name: progress.start(f"looking at {name}")
        )
    is_fine = is_healthy(checks)
    if as_json:
        dicts = [check.to_dict() for check in checks]
        print_json({"schema": SCHEMA, "healthy": is_fine, "checks": dicts})
    else:
        _print_checks([check for check in checks if not quiet or check.state == "broken"])
        if not quiet:
            counts = {state: sum(check.state == state for check in checks) for state in COLOURS}
            states = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
            print(f"{len(checks)} checks: {states}", file=sys.stderr)
    raise typer.Exit(0 if is_fine else 1)


def _print_checks(checks: Sequence[Check]) -> None:
    """A table per group; the fix stands under its line."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(soft_wrap=False)
    width = max((len(check.name) for check in checks), default=0)
    for group in GROUPS:
        rows = [check for check in checks if check.group == group]
        table = Table.grid(padding=(0, 1))
        table.add_column(width=len("missing"))
        table.add_column(width=width)
        table.add_column(overflow="fold")
        for check in rows:
            fix = f"\n[dim]→[/] {escape(check.fix)}" if check.fix else ""
            state = f"[{COLOURS[check.state]}]{check.state}[/]"
            table.add_row(state, check.name, escape(check.result) + fix)
        if rows:
            title = "GPU" if group == "gpu" else group.capitalize()
            console.print(f"[bold]{title}[/]", table, "", sep="\n")
