"""What a profiler said around its table, and why a capture may be empty."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ridgeline.errors import RidgelineError
from ridgeline.profile.ncu_errors import MARKS, REASONS
from ridgeline.profile.reading.decimals import ungrouped

_MESSAGE = re.compile(r"==(?P<level>ERROR|WARNING)==\s*(?P<text>.*)")
_QUOTED = re.compile(r'(?:^|[,;\t])\s*"')  # a cell, from its beginning
_KEPT = 50  # lines
_LINE = 300  # characters of a line
CUT_OFF = "the file is cut off: its last row is not whole, and what follows is missing"
OTHER_FORM = "another table of another form follows, and is left out: give it a file of its own"
NO_END = "the last line has no end: it may be cut off, so a number at its end is not used"
SHIFTED = "rows have more cells than titles: quotes around names and numbers were lost"
NOTHING_SAID = "it may have been cut off, or it is of a program that launched none"


@dataclass(slots=True)
class Log:
    """Lines that are no part of a table."""

    lines: list[str] = field(default_factory=list)
    skipped: int = 0  # lines inside a table that are no rows of it
    too_long: int = 0  # lines inside a table with more in a cell than is read
    shifted: int = 0  # rows with more cells than titles, in a table without quotes
    open_end: str = ""  # the last character of a last line that has no end
    has_quotes: bool = False  # the line that was read last
    is_bare: bool = False  # the last row has no end, nor has its last cell a closing quote
    is_cut: bool = False  # the file ends inside a row
    has_other_form: bool = False  # a table that is not like the first follows it

    def see(self, line: str) -> None:
        """Keep it if it is a word of the profiler."""
        text = line.strip()
        is_word = _MESSAGE.match(text) or MARKS.search(text)
        if is_word and len(self.lines) < _KEPT:
            self.lines.append(text[:_LINE])

    @property
    def is_open(self) -> bool:
        """Whether the line that was read last has no end: no other follows."""
        return bool(self.open_end)

    @property
    def errors(self) -> list[str]:
        """What it called an error."""
        found = [_MESSAGE.match(line) for line in self.lines]
        return [m["text"] for m in found if m and m["level"] == "ERROR"]

    def sift(self, lines: Iterator[str]) -> Iterator[str]:
        """The lines that are not the profiler's own."""
        for line in lines:
            if line.startswith("=="):
                self.see(line)
            else:
                yield line

    def watch_end(self, lines: Iterator[str]) -> Iterator[str]:
        """The lines as they are; of the last it is known whether it is whole, and has quotes."""
        for line in lines:
            self.open_end = "" if line.endswith(("\n", "\r")) else line[-1:]
            self.has_quotes = _QUOTED.search(line) is not None
            yield line

    def leave_out(self, row: Sequence[str]) -> None:
        """Count a row that is none of the table; an empty one or the rest of a file is no loss."""
        if self.is_open and len(row) > 1 and ungrouped(row[0]).isdigit():
            self.is_cut = True  # it begins like a row
        if any(text.strip() for text in row) and not self.is_cut:
            self.skipped += 1

    def refusal(self, file: str, what: str, hint: str = "") -> RidgelineError:
        """The error for a capture with nothing in it: `what` it lacks, and why."""
        for reason in REASONS:
            if any(reason.is_told(line) for line in self.lines):
                return RidgelineError(f"{file} {what}: {reason.problem}", hint=reason.hint_for_file)
        if self.errors:
            return RidgelineError(
                f"{file} {what}: the profiler said {self.errors[0]!r}",
                hint="mend that and capture again",
            )
        if self.shifted:
            return RidgelineError(
                f"{file} {what}: {SHIFTED}", hint="export it again, and keep the quotes in it"
            )
        return RidgelineError(
            f"{file} {what}", hint=hint or f"{NOTHING_SAID}; capture and export it again"
        )

    def remarks(self) -> list[str]:
        """Errors beside kernels that are there all the same."""
        said = [f"the profiler reported an error: {self.errors[0]}"] if self.errors else []
        if self.skipped:
            said.append(
                f"lines inside the table that are no rows of it are left out: {self.skipped:,}"
            )
        if self.too_long:
            said.append(
                f"lines inside the table that are too long are left out: {self.too_long:,} (a cell"
                f" may have {csv.field_size_limit():,} characters)"
            )
        if self.shifted:
            said.append(f"{SHIFTED}; such rows are left out: {self.shifted:,}")
        said += [OTHER_FORM] * self.has_other_form
        return said + [CUT_OFF if self.is_cut else NO_END] * (self.is_cut or self.is_bare)
