"""What stands before every line of a capture that was pasted somewhere.

A quote has `> `, a comment `// ` or `# `, a listing `17: `, and the log of a parallel program the
number of its task, `0: `. Lines of several tasks are not put in order again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import TextIO

from ridgeline.profile.reading.header import parse_header

KERNEL_LINE = re.compile(r"\s*\S.*, Context \d+, Stream \d+")
_PREFIX = re.compile(r"[ \t]*(?:>+|//+|#+|(?P<number>\d+):)(?=\s|$)[ \t]?")
_LOOKED_AT = 4  # lines, from the first of a capture on


def has_prefixes(text: str) -> bool:
    """Whether lines of the first capture in a text begin with something that is not its own."""
    lines = [line for line in text.splitlines() if line.strip()]
    first = next((n for n, line in enumerate(lines) if _begins_capture(line)), None)
    if first is None:
        return False
    found = [_PREFIX.match(line) for line in lines[first : first + _LOOKED_AT]]
    return len(found) > 1 and all(found) and _is_of_one(lines[first:])


def _begins_capture(line: str) -> bool:
    if "Context " not in line and "Name" not in line:  # which is soon told of many lines
        return False
    bare = without_prefix(line)
    return KERNEL_LINE.match(bare) is not None or parse_header(bare) is not None


def _is_of_one(lines: list[str]) -> bool:
    """Whether the numbers before lines are those of lines, or all of one task."""
    found = filter(None, map(_PREFIX.match, lines))
    numbers = [int(match["number"]) for match in found if match["number"]]
    return len(set(numbers)) < 2 or all(a < b for a, b in pairwise(numbers))


def without_prefix(line: str) -> str:
    """The line behind its prefix, if it has one."""
    found = _PREFIX.match(line)
    return line[found.end() :] if found else line


class BareLines:
    """A text whose lines are read without their prefixes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_inside = False  # a line that was read in part

    def readline(self, size: int = -1) -> str:
        """A line, or so many of its characters."""
        line = self._stream.readline(size)
        bare = line if self._is_inside else without_prefix(line)
        self._is_inside = not line.endswith("\n")
        return bare

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self.readline()
        if not line:
            raise StopIteration
        return line
