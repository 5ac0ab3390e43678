"""The progress bar of the commands that take a while."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from ridgeline.cli.interrupts import stop_if_pressed
from ridgeline.plain import plain_text


@contextmanager
def progress_bar(total: int, *, quiet: bool, first: str) -> Iterator[Callable[[str], None]]:
    """A bar on stderr where someone can see it; call what it yields with the name of each step.

    `first` is shown before the first step.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda _what: stop_if_pressed()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(first, total=total)

        def step(what: str) -> None:
            stop_if_pressed()
            bar.update(task, advance=1, description=plain_text(what))

        yield step


class RunProgress:
    """Two bars: the runs, and the work on the one that is going on."""

    def expect(self, seconds: float) -> None:
        """So long the next unit will take, about."""

    def start(self, what: str, *, advance: bool = True) -> None:
        """The next run begins; without `advance` something beside the runs does."""
        stop_if_pressed()

    def update(self, what: str, done: int, total: int) -> None:
        """So much of a part of it is done; a total of 0 is not known."""
        stop_if_pressed()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Room for lines on stdout, which may be the same terminal."""
        yield


class _ShownProgress(RunProgress):
    def __init__(self, bar: Any, total: int) -> None:
        self._bar, self._started = bar, 0
        self._all = bar.add_task("starting", total=total)
        self._part = bar.add_task("", total=None)
        self._live = self._shown()

    def start(self, what: str, *, advance: bool = True) -> None:
        super().start(what, advance=advance)
        self._bar.update(self._all, description=what, completed=self._started)
        self._started += advance
        self._bar.reset(self._part, description="starting", total=None)

    def update(self, what: str, done: int, total: int) -> None:
        super().update(what, done, total)
        self._bar.update(self._part, description=what, completed=done, total=total or None)

    @contextmanager
    def aside(self) -> Iterator[None]:
        self.stop()
        try:
            yield
        finally:
            self._live = self._shown()

    def stop(self) -> None:
        self._live.stop()

    def _shown(self) -> Any:
        """A new one each time: one that was shown before would wipe out the lines since then."""
        from rich.live import Live

        # stdout is not redirected: rich would send it to stderr, where the bars are
        live = Live(
            self._bar,
            console=self._bar.console,
            refresh_per_second=10,
            transient=True,
            redirect_stdout=False,
        )
        live.start(refresh=True)
        return live


@contextmanager
def run_progress(total: int, *, quiet: bool) -> Iterator[RunProgress]:
    """Bars on stderr where someone can see them."""
    if quiet or not sys.stderr.isatty():
        yield RunProgress()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    shown = _ShownProgress(Progress(*columns, console=Console(stderr=True)), total)
    try:
        yield shown
    finally:
        shown.stop()


class StageProgress(RunProgress):
    """One bar over work of known weight; nothing is shown unless someone can see it."""

    def finish(self) -> None:
        """All is done."""


class _ShownStages(StageProgress):
    """The bar moves with the clock inside a unit of work and never beyond its end."""

    SLACK = 0.97  # of a unit's weight, until it has really ended

    def __init__(self, bar: Any, total_s: float) -> None:
        self._bar, self._base, self._weight, self._total_s = bar, 0.0, 0.0, total_s
        self._task = bar.add_task("starting", total=total_s, left=_minutes(total_s))
        self._started_s = monotonic()
        self._what = ""
        bar.start()

    def expect(self, seconds: float) -> None:
        self._base += self._weight
        self._weight, self._started_s = seconds, monotonic()
        self._show(self._base, self._what)

    def start(self, what: str, *, advance: bool = True) -> None:
        super().start(what, advance=advance)
        self._what = what
        self._bar.update(self._task, description=what)

    def update(self, what: str, done: int, total: int) -> None:
        super().update(what, done, total)
        spent_s = monotonic() - self._started_s
        reached = self._base + min(spent_s, self.SLACK * self._weight)
        self._show(reached, f"{self._what}: {what}" if what else self._what)

    def _show(self, reached_s: float, what: str) -> None:
        left = _minutes(max(self._total_s - reached_s, 0.0))
        self._bar.update(self._task, completed=reached_s, description=what, left=left)

    def finish(self) -> None:
        self._bar.stop()


def _minutes(seconds: float) -> str:
    """`0:42`, `3:05`."""
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02d}"


@contextmanager
def stage_progress(total_s: float, *, quiet: bool) -> Iterator[StageProgress]:
    """A bar on stderr with the time that is left, where someone can see it."""
    if quiet or not sys.stderr.isatty():
        yield StageProgress()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("about {task.fields[left]} left"),
    )
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    shown = _ShownStages(bar, total_s)
    try:
        yield shown
    finally:
        shown.finish()
