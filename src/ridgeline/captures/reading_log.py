"""Messages of a profiler around its table, and what was skipped while reading."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ridgeline.captures.ncu_errors import MARKS, REASONS
from ridgeline.errors import RidgelineError

_MESSAGE = re.compile(r"==(?P<level>ERROR|WARNING)==\s*(?P<text>.*)")
_MOST_MESSAGES = 50
_LONGEST = 300  # characters of a message
CUT_OFF = "the file is cut off: what its last line ends in is not used"
OTHER_TABLE = "another kind of table follows and is not read: put it into a file of its own"
MAYBE_EMPTY = "it may have been cut off, or it is of a program that launched none"


@dataclass(slots=True)
class ReadingLog:
    """Collected while a file is read."""

    messages: list[str] = field(default_factory=list)  # of the profiler
    skipped: int = 0  # lines inside a table that are not rows of it
    is_cut: bool = False  # the last line has no end
    has_other_table: bool = False

    def add_line(self, line: str) -> None:
        """Keep a line that is a message of the profiler."""
        text = line.strip()
        is_message = _MESSAGE.match(text) or MARKS.search(text)
        if is_message and len(self.messages) < _MOST_MESSAGES:
            self.messages.append(text[:_LONGEST])

    def drop_messages(self, lines: Iterator[str]) -> Iterator[str]:
        """The lines that are not the profiler's own."""
        for line in lines:
            if line.startswith("=="):
                self.add_line(line)
            else:
                yield line

    @property
    def errors(self) -> list[str]:
        matches = map(_MESSAGE.match, self.messages)
        return [match["text"] for match in matches if match and match["level"] == "ERROR"]

    def refusal(self, file: str, problem: str, hint: str = "") -> RidgelineError:
        """The error for a file without anything to use; the profiler's reason comes first."""
        for reason in REASONS:
            if any(map(reason.is_told, self.messages)):
                problem = f"{file} {problem}: {reason.problem}"
                return RidgelineError(problem, hint=reason.hint_for_file)
        if self.errors:
            return RidgelineError(
                f"{file} {problem}: the profiler said {self.errors[0]!r}",
                hint="resolve that and capture again",
            )
        return RidgelineError(
            f"{file} {problem}", hint=hint or f"{MAYBE_EMPTY}; capture and export it again"
        )

    def notes(self) -> list[str]:
        notes = [f"the profiler reported an error: {text}" for text in self.errors[:1]]
        if self.skipped:
            notes.append(f"lines inside the table that are not rows are skipped: {self.skipped:,}")
        return notes + [OTHER_TABLE] * self.has_other_table + [CUT_OFF] * self.is_cut
