"""Small files that make much: functions, loops and sequences inside each other multiply."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ridgeline.errors import RidgelineError

MOST_CALLS = 250_000  # inside of functions and loops, whose calls multiply
MOST_KEPT_BYTES = 1 << 28  # of names, attributes, values and sequences likewise
DEEPEST = 40  # graphs and functions inside each other; real files have a handful


@dataclass(slots=True)
class Limits:
    """How much a walk has made so far; an error where it is too much."""

    path: str  # of the file
    calls: int = 0
    kept_bytes: int = 0
    depth: int = 0

    @property
    def is_nested(self) -> bool:
        """Whether the walk is in a function or a loop: then there may be more than is stored."""
        return self.depth > 1

    @contextmanager
    def inside(self, where: str) -> Iterator[None]:
        """Around the nodes of a graph or a function."""
        self.depth += 1
        try:
            if self.depth > DEEPEST:
                raise RidgelineError(
                    f"{self.path}: graphs or functions are nested more than {DEEPEST} deep"
                    f" at {where or 'the top'!r}",
                    hint="a function that calls itself has no end; check the file",
                )
            yield
        finally:
            self.depth -= 1

    def call(self) -> None:
        """One more node."""
        self.calls += self.is_nested
        if self.calls > MOST_CALLS:
            raise RidgelineError(
                f"{self.path}: functions and loops make more than {MOST_CALLS:,} nodes",
                hint="inside each other they multiply; check the file",
            )

    def keep(self, nbytes: int) -> None:
        """Count what stays in memory and is not in the file as often as it is here."""
        self.kept_bytes += nbytes
        if self.kept_bytes > MOST_KEPT_BYTES:
            raise RidgelineError(
                f"{self.path}: its nodes would take more than {MOST_KEPT_BYTES >> 20} MiB of names"
                " and values",
                hint="in functions, loops and sequences they multiply; check the file",
            )
