"""The progress bar of the commands that take a while."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
