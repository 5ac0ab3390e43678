"""Fields of a file, checked by name: what is said about each that is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from ridgeline.fields import (
    INTERVAL,
    LIST,
    MAPPING,
    NUMBER,
    POSITIVE,
    TEXT,
    WHOLE,
    FieldError,
    Kind,
    check,
    shown,
)

NEEDED = {"a": MAPPING, "a.size": WHOLE, "parts.*.time_s": POSITIVE}
OPTIONAL = {"parts": LIST, "name": TEXT, "range": INTERVAL}
GOOD = {"a": {"size": 1}, "parts": [{"time_s": 2.5}], "name": None}


def test_what_is_as_it_should_be() -> None:
    check(GOOD, needed=NEEDED, optional=OPTIONAL)
    check({"a": {"size": 1}}, needed=NEEDED, optional=OPTIONAL)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"a": None}, "a is null, not a mapping"),
        ({"a": {}}, "a.size is missing"),
        ({"a": {"size": 1.5}}, "a.size is 1.5, not a whole number above zero"),
        ({"a": {"size": True}}, "a.size is True, not a whole number above zero"),
        ({"parts": [{"time_s": 1}, {}]}, "parts.1.time_s is missing"),
        ({"parts": [{"time_s": "1"}]}, "parts.0.time_s is '1', not a number above zero"),
        ({"parts": ["x"]}, "parts.0 is 'x', not a mapping"),
        ({"parts": 3}, "parts is 3, not a list or a mapping"),
        ({"name": 3}, "name is 3, not a text"),
        ({"name": "\ud800"}, r"name is '\ud800', not a text"),
        ({"range": [2, 1]}, "range is [2, 1], not two numbers above zero, the lower first"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(FieldError) as refused:
        check(GOOD | changes, needed=NEEDED, optional=OPTIONAL)
    assert str(refused.value) == told


@pytest.mark.parametrize(
    ("kind", "value", "is_it"),
    [
        (NUMBER, 0, True),
        (NUMBER, float("nan"), False),
        (NUMBER, float("inf"), False),
        (NUMBER, 10**400, False),
        (POSITIVE, 1e-320, False),
        (WHOLE, 8.0, True),
        (TEXT, "x" * 10_001, False),
    ],
)
def test_kinds(kind: Kind, value: Any, is_it: bool) -> None:
    assert kind.accepts(value) is is_it


def test_a_value_in_a_message_is_short_and_harmless() -> None:
    assert shown("\x1b[2J") == r"'\x1b[2J'"
    assert len(shown("x" * 1000)) == 40
    assert shown(10**5000) == "a very large int"
