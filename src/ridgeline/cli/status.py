"""`ridgeline status`: how far sweeps are."""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

from ridgeline.cli.messages import print_json
from ridgeline.cli.options import Output, argument, option, takes_groups

if TYPE_CHECKING:
    from ridgeline.sweep.status import StageStatus

EXAMPLES = """
[bold]Examples[/]

  ridgeline status
  ridgeline status study --watch
  ridgeline status --json | jq '.sweeps[] | {name, stage, done, total}'
"""
WATCH_S = 30.0  # squeue is a burden for a cluster: not more often
MOST_REASONS = 5


@takes_groups
def status(
    name: str | None = argument(None, "NAME", "One sweep; all if none."),
    watch: bool = option(False, "Show it again until it is over.", "--watch"),
    *,
    output: Output,
) -> None:
    """Show how far sweeps are: done, running, waiting, failed and why, and the time to go."""
    from ridgeline.store import ResultsFolder
    from ridgeline.sweep.slurm import Slurm
    from ridgeline.sweep.status import read_status

    folder, slurm = ResultsFolder(output.results), Slurm()
    while True:
        stages = read_status(folder, name, slurm=slurm)
        print_stages(stages, as_json=output.as_json)
        if not watch or not any(one.running or one.pending for one in stages):
            return
        time.sleep(WATCH_S)


def print_stages(stages: list[StageStatus], *, as_json: bool) -> None:
    """The stages of sweeps as a table, with the reasons of what failed or waits."""
    if as_json:
        print_json({"sweeps": [one.to_dict() for one in stages]})
        return
    from ridgeline.cli.tables import Grid, print_grid
    from ridgeline.units import format_time

    rows = [
        [one.name, one.stage, str(one.total), str(one.done), str(one.running), str(one.pending),
         str(one.failed),
         "–" if one.is_finished else f"{'~' if one.is_guess else ''}{format_time(one.remaining_s)}"]
        for one in stages
    ]  # fmt: skip
    header = ["sweep", "stage", "cases", "done", "running", "pending", "failed", "to go"]
    print_grid(Grid(header=header, rows=rows, text_columns=2))
    for one in stages:
        reasons = Counter(f"{r.status}: {r.detail}" if r.detail else r.status
                          for _, r in one.failures)  # fmt: skip
        for reason, count in reasons.most_common(MOST_REASONS):
            print(f"{one.name} {one.stage}: {count} × {reason}")
        if len(reasons) > MOST_REASONS:
            print(
                f"{one.name} {one.stage}: {len(reasons) - MOST_REASONS} more reasons, with --json"
            )
        for line in (*one.waits, *one.notes):
            print(f"{one.name} {one.stage}: {line}")
    sys.stdout.flush()
