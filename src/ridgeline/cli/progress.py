"""The progress bar of the commands that take a while."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def progress_bar(total: int, *, quiet: bool, first: str) -> Iterator[Callable[[str], None]]:
    """A bar on stderr where someone can see it; call what it yields with the name of each step.

    `first` is shown before the first step.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda _what: None
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
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(first, total=total)
        yield lambda what: bar.update(task, advance=1, description=what)


class RunProgress:
    """Two bars: the runs, and the work on the one that is going on."""

    def start(self, what: str, *, advance: bool = True) -> None:
        """The next run begins; without `advance` something beside the runs does."""

    def update(self, what: str, done: int, total: int) -> None:
        """So much of a part of it is done; a total of 0 is not known."""

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
        self._bar.update(self._all, description=what, completed=self._started)
        self._started += advance
        self._bar.reset(self._part, description="starting", total=None)

    def update(self, what: str, done: int, total: int) -> None:
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
        TextColumn("{task.description}"),
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
