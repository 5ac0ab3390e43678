"""Columns in few bytes: numbers with five digits, words by their place in a shared list."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

DIGITS = 5  # people see three
# Inside a script element only `<` can end it; the others are escaped so that no reader of HTML, XML
# or old JavaScript can take data for anything else.
ESCAPES = {c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


class Words:
    """Texts that are written once and named by number."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {"": 0}

    def place(self, text: object) -> int:
        """The number of a text; what is missing is the empty text."""
        known = "" if is_missing(text) else str(text)
        return self._places.setdefault(known, len(self._places))

    def column(self, texts: Iterable[object]) -> list[int]:
        return [self.place(text) for text in texts]

    @property
    def texts(self) -> list[str]:
        return list(self._places)


def is_missing(value: object) -> bool:
    return value is None or value != value


def rounded(value: Any) -> float | int | None:
    """Five digits, whole where it is whole: `51750000` is shorter than `51750000.0`."""
    if is_missing(value) or not math.isfinite(value):
        return None
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short.is_integer() else short


def numbers(values: Iterable[Any]) -> list[float | int | None] | None:
    """A column of numbers; None stands for a column that says nothing."""
    column = [rounded(value) for value in values]
    return column if any(value is not None for value in column) else None


def rates(values: Mapping[str, float]) -> dict[str, float | int | None]:
    return {name: rounded(value) for name, value in values.items()}


def to_script(payload: Mapping[str, Any]) -> str:
    """JSON that can stand in a script element whatever words are in it."""
    text = json.dumps(payload, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character, escape in ESCAPES.items():
        text = text.replace(character, escape)
    return text
