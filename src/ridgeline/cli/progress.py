"""The progress bar of the commands that take a while."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from ridgeline.cli.interrupts import stop_if_pressed
from ridgeline.plain import plain_text

SLACK = 0.97  # of the time that a unit of work is expected to take, until it has ended


class Progress:
    """Units of work, one after another; a bar on stderr only where somebody can see it.

    A unit weighs 1, or the seconds that it is expected to take. Each call also raises an interrupt
    again that a library has lost.
    """

    def __init__(self, bars: Any = None) -> None:
        self._bars = bars  # rich's; None: nothing is shown
        self._finished = self._weight = self._shown = 0.0  # of units before, of this, of the bar
        self._expected_s = self._started_s = 0.0
        self._what = ""
        self._live: Any = None

    def start(self, what: str, seconds: float = 0.0, *, advance: bool = True) -> None:
        """Begin the next unit; without `advance`, something that is none of them.

        With the `seconds` that it will take about, the bar moves with the clock.
        """
        stop_if_pressed()
        self._what = what
        if advance:
            self._finished += self._weight
            self._weight, self._expected_s = seconds or 1.0, seconds
            self._started_s = monotonic()
        self._draw(what, self._finished)

    def update(self, what: str, done: int, total: int) -> None:
        """So much of a part of this unit is done; a total of 0 is not known."""
        stop_if_pressed()
        share = done / total if total else 0.0
        if self._expected_s:
            share = min((monotonic() - self._started_s) / self._expected_s, SLACK)
        text = ": ".join(part for part in (self._what, what) if part)
        self._draw(text, self._finished + share * self._weight)

    def _draw(self, text: str, reached: float) -> None:
        """Move the bar, which never goes back."""
        self._shown = max(self._shown, reached)
        if self._bars is not None:
            (task,) = self._bars.task_ids
            self._bars.update(task, description=plain_text(text), completed=self._shown)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Hide the bar: lines on stdout may go to the same terminal."""
        self.hide()
        try:
            yield
        finally:
            self.show()

    def show(self) -> None:
        """Show the bar, by a new Live: one that was shown before would wipe out later lines."""
        if self._bars is not None:
            from rich.live import Live

            # stdout is not redirected: rich would send it to stderr, where the bar is
            self._live = Live(self._bars, console=self._bars.console, refresh_per_second=10,
                              transient=True, redirect_stdout=False)  # fmt: skip
            self._live.start(refresh=True)

    def hide(self) -> None:
        if self._live is not None:
            self._live.stop()


@contextmanager
def progress_bar(
    total: float | None, *, quiet: bool, first: str = "starting"
) -> Iterator[Progress]:
    """Progress over `total` units, or seconds; `first` is shown before the first unit."""
    is_seen = not quiet and sys.stderr.isatty()
    progress = Progress(_make_bar(total, first) if is_seen else None)
    progress.show()
    try:
        yield progress
    finally:
        progress.hide()


def _make_bar(total: float | None, first: str) -> Any:
    from rich import progress as rich
    from rich.console import Console

    bars = rich.Progress(
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(),
        *([rich.MofNCompleteColumn()] if isinstance(total, int) and total > 1 else []),
        rich.TimeElapsedColumn(),
        rich.TimeRemainingColumn(),
        console=Console(stderr=True),
    )
    bars.add_task(first, total=total)
    return bars
