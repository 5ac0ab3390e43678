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

    Each call also raises an interrupt again that a library has lost.
    """

    _bars: Any = None  # rich's; None: nothing is shown
    _live: Any = None
    _in_seconds = False  # units weigh their seconds, and the bar moves with the clock
    _follows_parts = False  # the number of units is not known: the bar is that of their parts
    _finished = _weight = _shown = 0.0  # of the units before, of this one, of the bar
    _started_s = 0.0
    _what = ""

    def __init__(
        self, bars: Any = None, *, in_seconds: bool = False, follows_parts: bool = False
    ) -> None:
        self._bars, self._in_seconds, self._follows_parts = bars, in_seconds, follows_parts

    def start(self, what: str, *, advance: bool = True) -> None:
        """Begin the next unit; without `advance`, something that is none of them."""
        stop_if_pressed()
        self._what = what
        if not self._in_seconds:
            self._finished += self._weight
            self._weight = float(advance)
        self._advance(self._finished, what)

    def update(self, what: str, done: int, total: int) -> None:
        """So much of a part of this unit is done; a total of 0 is not known."""
        stop_if_pressed()
        text = ": ".join(part for part in (self._what, what) if part)
        if self._follows_parts:
            self._draw(text, completed=done, total=total or None)
        elif self._in_seconds:
            spent_s = min(monotonic() - self._started_s, SLACK * self._weight)
            self._advance(self._finished + spent_s, text)
        else:
            self._advance(self._finished + (self._weight * done / total if total else 0.0), text)

    def expect(self, seconds: float) -> None:
        """The next unit will take about so long; only a bar in seconds minds."""
        if self._in_seconds:
            self._finished += self._weight
            self._weight, self._started_s = seconds, monotonic()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Hide the bar: lines on stdout may go to the same terminal."""
        self.hide()
        try:
            yield
        finally:
            self.show()

    def _advance(self, reached: float, text: str) -> None:
        """Move the bar, which never goes back."""
        self._shown = max(self._shown, reached)
        self._draw(text, completed=self._shown)

    def _draw(self, text: str, **values: float | None) -> None:
        if self._bars is not None:
            (task,) = self._bars.task_ids
            self._bars.update(task, description=plain_text(text), **values)

    def show(self) -> None:
        """Show the bar, by a new Live: one that was shown before would wipe out later lines."""
        if self._bars is None:
            return
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
    total: float | None, *, quiet: bool, first: str = "starting", in_seconds: bool = False
) -> Iterator[Progress]:
    """Progress over `total` units, or seconds; `first` is shown before the first unit."""
    is_seen = not quiet and sys.stderr.isatty()
    with_count = not in_seconds and total is not None
    bars = _make_bar(total, first, with_count=with_count) if is_seen else None
    progress = Progress(bars, in_seconds=in_seconds, follows_parts=total is None)
    progress.show()
    try:
        yield progress
    finally:
        progress.hide()


def _make_bar(total: float | None, first: str, *, with_count: bool) -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bars

    bars = Bars(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        *([MofNCompleteColumn()] if with_count else []),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
    bars.add_task(first, total=total)
    return bars
