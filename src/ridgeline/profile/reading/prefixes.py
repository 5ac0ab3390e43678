"""What stands before every line of a capture that was pasted somewhere.

A quote has `> `, a comment `// `, ` * ` or `# `, a listing `17: `, and the log of a parallel
program the number of its task, `0: `. Lines of several tasks are not put in order again.
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
    r"[ \t]*(?:(?:> ?)+|//+|#+|\*|\||\d+\t|\[\w+\]:|(?P<number>\d+):)(?=[\s\"]|$)[ \t]?"
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
    numbers = [n for n in map(_number, lines[first:]) if n is not None]
    are_of_lines = len(numbers) > 1 and all(a < b for a, b in pairwise(numbers))
    return Prefixes(None if are_of_lines or not numbers else numbers[0])


class Prefixes(NamedTuple):
    """Of all lines, or of the lines of one task."""

    task: int | None


def _begins_capture(line: str) -> bool:
    if "Context " not in line and "Name" not in line:  # which is soon told of many lines
        return False
    bare = without_prefix(line)
    return KERNEL_LINE.match(bare) is not None or parse_header(bare) is not None


def _number(line: str) -> int | None:
    found = _PREFIX.match(line)
    return int(found["number"]) if found and found["number"] else None


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
        task = _number(line)
        if self._task is not None and task not in (None, self._task):
            raise RidgelineError(
                f"{self._path} has lines of several tasks ({self._task} and {task})",
                hint=f"import those of each by itself: grep '^{self._task}:' {self._path.name}"
                f" > task{self._task}.txt",
            )

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self.readline()
        if not line:
            raise StopIteration
        return line
