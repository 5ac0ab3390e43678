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


class _ShownProgress(RunProgress):
    def __init__(self, bar: Any, total: int) -> None:
        self._bar, self._started = bar, 0
        self._all = bar.add_task("starting", total=total)
        self._part = bar.add_task("", total=None)

    def start(self, what: str, *, advance: bool = True) -> None:
        self._bar.update(self._all, description=what, completed=self._started)
        self._started += advance
        self._bar.reset(self._part, description="starting", total=None)

    def update(self, what: str, done: int, total: int) -> None:
        self._bar.update(self._part, description=what, completed=done, total=total or None)


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
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield _ShownProgress(bar, total)
