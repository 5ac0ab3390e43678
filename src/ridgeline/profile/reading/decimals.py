"""Numbers as tools write them in any country: 1,234.56 or 1.234,56 or 1 234,56.

Which of comma and full stop is the decimal mark is decided once per file, from its own evidence:
`65,77`, `1.234,5` and `1,718E+10` can be read in one way only, `117.344` in two. Where there is no
evidence, the full stop is taken, as most files have it, and a remark says so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

POINT, COMMA = ".", ","
_SPACES = re.compile(r"[\s'\u2019\u00a0\u202f_]")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_MARKED = re.compile(r"[+-]?(\d*)((?:[.,]\d+)+)([eE][+-]?\d+)?")
_INSTANCES = re.compile(r"\s*[{(;].*", re.DOTALL)  # "12 {3; 4; 5}": the values of the parts
_LONGEST = 400  # characters; longer texts are no numbers
_GROUPS = re.compile(r"[1-9]\d{0,2}([.,'\u2019\u00a0\u2009\u202f ])(?:\d{2,3}\1)*\d{3}")
_WHOLE = re.compile(r"(\d+)[.,]0{1,2}")  # as pandas writes a column that has gaps


@dataclass(slots=True)
class Evidence:
    """What the numbers of a file say about their decimal mark."""

    point: int = 0
    comma: int = 0
    unclear: str = ""  # a number that can be read in two ways, where one was seen

    def see(self, texts: Iterable[str], *, are_whole: bool = False) -> None:
        """Take notice of numbers; those that are whole have no decimals, only groups of digits."""
        for text in texts:
            if POINT not in text and COMMA not in text:
                continue
            mark = decimal_mark(text)
            if mark == "" and are_whole:  # whole: the mark that is there groups digits
                mark = COMMA if POINT in text else POINT
            self.point += mark == POINT
            self.comma += mark == COMMA
            if mark == "" and not self.unclear:
                self.unclear = text.strip()

    @property
    def mark(self) -> str:
        return COMMA if self.comma > self.point else POINT

    def remarks(self) -> list[str]:
        if self.point and self.comma:
            return [
                f"numbers are written in two ways; {self.mark!r} is taken as the decimal mark of"
                " those that could be either"
            ]
        if self.unclear and not self.point and not self.comma:
            read = read_number(self.unclear, POINT)
            return [
                f"the decimal mark of this file is not clear: {self.unclear} is read as {read:g};"
                " export it with --print-units base in an English locale if that is wrong"
            ]
        return []


def decimal_mark(text: str) -> str | None:
    """The mark that a number must have; "" if it could be either, None if nothing can be told."""
    text = _SPACES.sub("", _shortened(text))
    found = _MARKED.fullmatch(text)
    if found is None:
        return None
    marks: list[str] = re.findall(r"[.,]", found[2])
    groups = re.split(r"[.,]", found[2])[1:]
    is_grouped = 1 <= len(found[1]) <= 3 and not found[1].startswith("0")
    if len(marks) == 1:
        is_unclear = is_grouped and len(groups[0]) == 3 and not found[3]
        return "" if is_unclear else marks[0]  # nobody groups digits before an exponent
    before = groups if len(set(marks)) == 1 else groups[:-1]
    if not is_grouped or any(len(group) != 3 for group in before) or len(set(marks[:-1])) != 1:
        return None  # 127.0.0.1 is no number
    if len(set(marks)) == 2:
        return marks[-1]
    return COMMA if marks[0] == POINT else POINT  # 1.234.567: groups of digits, no decimals


def read_number(text: str, mark: str) -> float:
    """The number in a text; nan where there is none. Its own evidence goes before `mark`."""
    text = _SPACES.sub("", _shortened(text))
    own = decimal_mark(text) or mark
    plain = text.replace(POINT if own == COMMA else COMMA, "").replace(COMMA, POINT)
    if not _NUMBER.fullmatch(plain):
        return math.nan
    value = float(plain)
    return value if math.isfinite(value) else math.nan


def ungrouped(text: str) -> str:
    """`17313` of `17,313` or `17313.0`, in any locale: of a whole number; others as they are."""
    text = text.strip()
    if text.isdigit():
        return text
    if _GROUPS.fullmatch(text):
        return re.sub(r"\D", "", text)
    whole = _WHOLE.fullmatch(text)
    return whole[1] if whole else text


def _shortened(text: str) -> str:
    """Without the values of parts, and without the mark of a doubtful value, `(!) n/a`."""
    text = text[:_LONGEST].strip().removeprefix("(!)").strip()
    return _INSTANCES.sub("", text)
