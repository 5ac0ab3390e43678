"""What stands before every line of a capture that was pasted somewhere.

A quote has `> `, a comment `// `, ` * ` or `# `, a listing `17: `, and the log of a parallel
program its task, `0: ` or `[rank0]: `. Lines of several tasks are not put in order again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TextIO

from ridgeline.errors import RidgelineError
from ridgeline.profile.reading.header import parse_header

KERNEL_LINE = re.compile(r"\s*\S.*, Context \d+, Stream \d+")
_PREFIX = re.compile(
    r"[ \t]*(?:(?:> ?)+|//+|#+|\*|\||\d+\t|(?P<task>\d+|\[\w+\]):)(?=[\s\"]|$)[ \t]?"
)
_LOOKED_AT = 4  # lines, from the first of a capture on


def prefixes_in(text: str) -> Prefixes | None:
    """What lines of the first capture in a text begin with, if it is not its own."""
    lines = [line for line in text.splitlines() if line.strip()]
    first = next((n for n, line in enumerate(lines) if _begins_capture(line)), None)
    if first is None:
        return None
    found = [_PREFIX.match(line) for line in lines[first : first + _LOOKED_AT]]
    if len(found) < 2 or not all(found):
        return None
    tasks = [task for task in map(_task, lines[first:]) if task is not None]
    return Prefixes(None if not tasks or _are_numbers_of_lines(tasks) else tasks[0])


class Prefixes(NamedTuple):
    """Of all lines, or of the lines of one task."""

    task: str | None


def _begins_capture(line: str) -> bool:
    if "Context " not in line and "Name" not in line:  # which is soon told of many lines
        return False
    bare = without_prefix(line)
    return KERNEL_LINE.match(bare) is not None or parse_header(bare) is not None


def _task(line: str) -> str | None:
    found = _PREFIX.match(line)
    return found["task"] if found else None


def _are_numbers_of_lines(tasks: list[str]) -> bool:
    numbers = [int(task) for task in tasks if task.isdigit()]
    is_rising = all(a < b for a, b in pairwise(numbers))
    return 1 < len(numbers) == len(tasks) and is_rising


def without_prefix(line: str) -> str:
    """The line behind its prefix, if it has one."""
    found = _PREFIX.match(line)
    return line[found.end() :] if found else line


class BareLines:
    """A text whose lines are read without their prefixes."""

    def __init__(self, stream: TextIO, path: Path, prefixes: Prefixes) -> None:
        self._stream, self._path, self._task = stream, path, prefixes.task
        self._is_inside = False  # a line that was read in part

    def readline(self, size: int = -1) -> str:
        """A line, or so many of its characters."""
        line = self._stream.readline(size)
        if self._is_inside:
            bare = line
        else:
            self._refuse_others(line)
            bare = without_prefix(line)
        self._is_inside = not line.endswith("\n")
        return bare

    def _refuse_others(self, line: str) -> None:
        """Lines of several tasks are mixed, and kernels may not be told from each other."""
        task = _task(line)
        if self._task is not None and task not in (None, self._task):
            raise RidgelineError(
                f"{self._path} has lines of several tasks ({self._task} and {task})",
                hint=f"import those of each by itself: grep -F '{self._task}:' {self._path.name}"
                " > task.txt",
            )

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self.readline()
        if not line:
            raise StopIteration
        return line
