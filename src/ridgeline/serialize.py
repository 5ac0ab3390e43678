"""Records and JSON: reading and writing are derived from the type hints of frozen dataclasses.

    from_dict(RunResult, {"iters": 0}, "found")
    FieldError: found.iters is 0, not a whole number above zero

A field without a default, or with the metadata STORED, must be there; another one may be absent or
null. Keys that a record does not have are ignored, so that files of later versions can be read.
`Annotated` adds a limit to a type: `Positive` is a number above zero.
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

from ridgeline.errors import RidgelineError

LARGEST = 9e18  # what a whole number in a table can be
SMALLEST = 1e-30  # above zero
LONGEST_TEXT = 10_000
SHOWN = 40  # characters of a value in a message
DEEPEST = 40  # of mappings and lists in each other; a few are usual

# Metadata of a field: it must be there; its fields stand among those of its holder; its own name
# in a file is `key`.
STORED: Mapping[str, Any] = {"stored": True}
INLINE: Mapping[str, Any] = {"inline": True}

Record = TypeVar("Record")


class FieldError(ValueError):
    """A field that is missing, or of another type; its message is for people."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What a value must be beyond its type, in words and as a test."""

    words: str
    accepts: Callable[[Any], bool]


def is_number(value: Any) -> bool:
    """Whether one can calculate with it: true and false are no numbers, nor is infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= LARGEST and math.isfinite(value)


def is_whole(value: Any) -> bool:
    return is_number(value) and value == int(value)


def is_text(value: Any) -> bool:
    """Whether it can be written to a file; a file name that is not UTF-8 cannot."""
    if not isinstance(value, str) or len(value) > LONGEST_TEXT:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_interval(value: Any) -> bool:
    return bool(SMALLEST <= value[0] <= value[1])


Positive = Annotated[float, Limit("a number above zero", lambda v: v >= SMALLEST)]
NotNegative = Annotated[float, Limit("a number of zero or more", lambda v: v >= 0)]
Whole = Annotated[int, Limit("a whole number above zero", lambda v: v >= 1)]
Index = Annotated[int, Limit("a whole number", lambda v: v >= 0)]
Name = Annotated[str, Limit("a name", lambda v: bool(v.strip()))]
Interval = Annotated[
    tuple[float, float], Limit("two numbers above zero, the lower first", _is_interval)
]

_PLAIN: Mapping[object, tuple[str, Callable[[Any], bool]]] = {
    float: ("a number", is_number),
    int: ("a whole number", is_whole),
    str: ("a text", is_text),
    bool: ("true or false", lambda value: isinstance(value, bool)),
}


def from_dict(kind: type[Record], content: object, where: str = "") -> Record:
    """The record that plain values stand for; FieldError names the field that is wrong.

    `where` is the name of `content` in its file.
    """
    record: Record = read_value(kind, content, where)
    return record


def to_dict(value: object) -> Any:
    """Records, mappings and sequences in JSON's own types.

    A number that JSON cannot hold (nan, infinity) becomes null: other tools read these files.
    """
    if is_dataclass(value) and not isinstance(value, type):
        content: dict[str, Any] = {}
        for field in fields(value):
            item = to_dict(getattr(value, field.name))
            content |= item if field.metadata.get("inline") else {_key(field): item}
        return content
    if isinstance(value, Mapping):
        return {str(key): to_dict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_dict(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, str):  # undecodable bytes of a file name have no form in a file
        return value.encode(errors="backslashreplace").decode()
    if not isinstance(value, (int, float)) and hasattr(value, "item"):
        return to_dict(value.item())  # a numpy scalar
    return None if isinstance(value, float) and not math.isfinite(value) else value


def show_value(value: Any) -> str:
    """A value in a message: short, on one line, with nothing that a terminal would obey."""
    if value is None:
        return "null"
    try:
        text = ascii(value) if isinstance(value, str) else repr(value)
    except (ValueError, RecursionError):  # a whole number of thousands of digits
        return f"a very large {type(value).__name__}"
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def read_value(hint: Any, value: Any, where: str, words: str = "") -> Any:
    """A value as its type hint has it; `words` replace those of the type in a message."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        limit: Limit = parts[1]
        read = read_value(parts[0], value, where, limit.words)
        _require(limit.accepts(read), where, value, limit.words)
        return read
    if origin in (types.UnionType, typing.Union):
        (some,) = (part for part in parts if part is not types.NoneType)
        return None if value is None else read_value(some, value, where, words)
    if hint in _PLAIN:
        usual, accepts = _PLAIN[hint]
        _require(accepts(value), where, value, words or usual)
        return int(value) if hint is int else value
    if is_dataclass(hint):
        return _read_record(hint, value, where)
    if origin is tuple:
        return _read_list(parts, value, where, words)
    if origin is not None:  # a mapping
        _require(_is_mapping(value), where, value, "a mapping")
        return {key: read_value(parts[1], item, f"{where}.{key}") for key, item in value.items()}
    _require_writable(value, where)
    return value


def _read_record(kind: Any, value: Any, where: str) -> Any:
    _require(_is_mapping(value), where, value, "a mapping")
    read = {}
    for field, hint, is_needed in _hints_of(kind):
        name, key = field.name, _key(field)
        inside = f"{where}.{key}".lstrip(".")
        if field.metadata.get("inline"):
            read[name] = read_value(hint, value, where)
        elif value.get(key) is not None or (is_needed and key in value):
            read[name] = read_value(hint, value[key], inside)
        elif is_needed:
            raise FieldError(f"{inside} is missing")
    try:
        return kind(**read)
    except RidgelineError as error:  # fields that do not go together
        raise FieldError(f"{where}: {error.problem}") from error


def _read_list(parts: tuple[Any, ...], value: Any, where: str, words: str) -> tuple[Any, ...]:
    _require(isinstance(value, list | tuple), where, value, words or "a list")
    if parts[-1] is ...:
        return tuple(read_value(parts[0], item, f"{where}.{n}") for n, item in enumerate(value))
    _require(len(value) == len(parts), where, value, words or f"{len(parts)} values")
    both = zip(parts, value, strict=True)
    return tuple(read_value(part, item, f"{where}.{n}") for n, (part, item) in enumerate(both))


@cache
def _hints_of(kind: Any) -> tuple[tuple[Field[Any], Any, bool], ...]:
    """Each field with its type hint, and whether a file must have it."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return tuple((f, hints[f.name], _is_needed(f)) for f in fields(kind) if f.init)


def _key(field: Field[Any]) -> str:
    return str(field.metadata.get("key", field.name))


def _is_needed(field: Field[Any]) -> bool:
    return bool(field.metadata.get("stored")) or (
        field.default is MISSING and field.default_factory is MISSING
    )


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping) and all(is_text(key) for key in value)


def _require(is_right: bool, where: str, value: Any, words: str) -> None:
    if not is_right:
        raise FieldError(f"{where} is {show_value(value)}, not {words}")


def _require_writable(value: Any, where: str, depth: int = 0) -> None:
    """Texts inside a value of any type must have a form in a file, and nesting has an end."""
    if isinstance(value, Mapping | list | tuple):
        if depth == DEEPEST:
            raise FieldError(f"{where} has more than {DEEPEST} lists or mappings in each other")
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, item in items:
            _require_writable(item, f"{where}.{key}", depth + 1)
    elif isinstance(value, str):
        _require(is_text(value), where, value, "a value that can be written")
