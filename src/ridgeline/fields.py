"""What a stored file may hold: its fields by name, and the kind of value that each must have.

    check({"found": {"iters": 0}}, needed={"found.iters": WHOLE}, optional={})
    FieldError: found.iters is 0, not a whole number above zero

A name is a way through mappings and lists; `*` stands for every entry of either. A needed field
must be there wherever that which it belongs to is; an optional one may be absent or null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

LARGEST = 9e18  # what a whole number in a table can be
SMALLEST = 1e-30  # above zero
LONGEST_TEXT = 10_000
SHOWN = 40  # characters of a value in a message
DEEPEST = 40  # of mappings and lists in each other; a few are usual
EVERY = "*"
ABSENT = object()


class FieldError(ValueError):
    """A field that is missing, or of another kind; its message is for people."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a value must be, in words and as a test."""

    words: str
    accepts: Callable[[Any], bool]


Fields = Mapping[str, Kind]


def check(content: Mapping[str, Any], *, needed: Fields, optional: Fields) -> None:
    """Raise FieldError for the first field that is not what it should be.

    Name that which holds others before these: then its own kind is what a message is about.
    """
    _check_depth(content)
    for fields, is_needed in ((needed, True), (optional, False)):
        for name, kind in fields.items():
            for where, value in _found(content, name):
                if value is ABSENT and is_needed:
                    raise FieldError(f"{where} is missing")
                if (is_needed or value is not None) and value is not ABSENT:
                    _check_kind(where, value, kind)


def _check_depth(content: Any) -> None:
    """Who goes through nested values must come to an end."""
    level = [content]
    for _ in range(DEEPEST):
        level = [item for holder in level for item in _held(holder)]
        if not level:
            return
    raise FieldError(f"it has more than {DEEPEST} lists or mappings in each other")


def _held(holder: Any) -> list[Any]:
    """The mappings and lists in another."""
    items = holder.values() if isinstance(holder, Mapping) else holder
    return [item for item in items if isinstance(item, Mapping | list | tuple)]


def _check_kind(where: str, value: Any, kind: Kind) -> None:
    if not kind.accepts(value):
        raise FieldError(f"{where} is {shown(value)}, not {kind.words}")


def _found(content: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every value that a name leads to, with its own name; nothing where a holder is absent."""
    ways: list[tuple[str, Any]] = [("", content)]
    for part in name.split("."):
        ways = [
            (f"{where}.{key}".lstrip("."), value)
            for where, holder in ways
            if holder is not None and holder is not ABSENT
            for key, value in _entries(where, holder, part)
        ]
    yield from ways


def _entries(where: str, holder: Any, part: str) -> list[tuple[str, Any]]:
    if part == EVERY and isinstance(holder, list | tuple):
        return [(str(number), value) for number, value in enumerate(holder)]
    if not isinstance(holder, Mapping):
        words = "a list or a mapping" if part == EVERY else MAPPING.words
        raise FieldError(f"{where} is {shown(holder)}, not {words}")
    if part == EVERY:
        return [(str(key), value) for key, value in holder.items()]
    return [(part, holder.get(part, ABSENT))]


def shown(value: Any) -> str:
    """A value in a message: short, on one line, with nothing that a terminal would obey."""
    if value is None:
        return "null"
    try:
        text = ascii(value) if isinstance(value, str) else repr(value)
    except (ValueError, RecursionError):  # a whole number of thousands of digits
        return f"a very large {type(value).__name__}"
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def is_number(value: Any) -> bool:
    """Whether one can calculate with it: true and false are no numbers, nor is infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= LARGEST and isfinite(value)


def is_positive(value: Any) -> bool:
    return is_number(value) and value >= SMALLEST


def is_whole(value: Any) -> bool:
    return is_positive(value) and value == int(value)


def is_text(value: Any) -> bool:
    """Whether it can be written to a file; a file name that is not UTF-8 cannot."""
    if not isinstance(value, str) or len(value) > LONGEST_TEXT:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _all(accepts: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list | tuple) and all(accepts(item) for item in value)


def _is_interval(value: Any) -> bool:
    return _all(is_positive)(value) and len(value) == 2 and value[0] <= value[1]


NUMBER = Kind("a number", is_number)
NOT_NEGATIVE = Kind("a number of zero or more", lambda v: is_number(v) and v >= 0)
POSITIVE = Kind("a number above zero", is_positive)
WHOLE = Kind("a whole number above zero", is_whole)
INDEX = Kind("a whole number", lambda v: is_number(v) and v >= 0 and v == int(v))
FLAG = Kind("true or false", lambda v: isinstance(v, bool))
TEXT = Kind("a text", is_text)
WRITABLE = Kind("a value that can be written", lambda v: is_text(v) or not isinstance(v, str))
NAME = Kind("a name", lambda v: is_text(v) and bool(v.strip()))
MAPPING = Kind("a mapping", lambda v: isinstance(v, Mapping) and all(is_text(key) for key in v))
LIST = Kind("a list", lambda v: isinstance(v, list | tuple))
NUMBERS = Kind("a list of numbers", _all(is_number))
TEXTS = Kind("a list of texts", _all(is_text))
SIZES = Kind("a list of whole numbers above zero", _all(is_whole))
INTERVAL = Kind("two numbers above zero, the lower first", _is_interval)
