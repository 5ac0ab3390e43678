"""Records from plain values: by their type hints, with an error that names the field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from ridgeline.errors import RidgelineError
from ridgeline.serialize import (
    STORED,
    FieldError,
    Index,
    Interval,
    Name,
    NotNegative,
    Positive,
    Whole,
    from_dict,
    to_dict,
)


@dataclass(frozen=True, kw_only=True)
class Part:
    name: Name
    share: NotNegative = 0.5


@dataclass(frozen=True, kw_only=True)
class Thing:
    size: Whole
    batch: Whole = field(default=1, metadata=STORED)
    time_s: Positive | None = None
    number: Index = 0
    is_new: bool = False
    range_s: Interval | None = None
    sizes: tuple[Whole, ...] = ()
    parts: Mapping[str, Part] = field(default_factory=dict)
    rest: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.size == 13:
            raise RidgelineError("13 is not possible", hint="take another")


WHOLE = {
    "size": 2, "batch": 8, "time_s": 0.5, "number": 3, "is_new": True, "range_s": [1.0, 2.0],
    "sizes": [224, 224], "parts": {"a": {"name": "x", "share": 0}}, "rest": {"k": [1, None]},
}  # fmt: skip


def test_a_record_reads_back_as_it_was_written() -> None:
    thing = from_dict(Thing, WHOLE, "thing")

    assert thing == Thing(
        size=2, batch=8, time_s=0.5, number=3, is_new=True, range_s=(1.0, 2.0), sizes=(224, 224),
        parts={"a": Part(name="x", share=0)}, rest={"k": [1, None]},
    )  # fmt: skip
    assert to_dict(thing) == WHOLE


def test_what_has_a_default_may_be_absent_or_null_and_more_keys_are_ignored() -> None:
    assert from_dict(Thing, {"size": 2.0, "batch": 1, "sizes": None, "later": 1}) == Thing(size=2)
    assert to_dict({"nan": float("nan"), "inf": [float("inf")]}) == {"nan": None, "inf": [None]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": None}, "thing.size is null, not a whole number above zero"),
        ({"size": 0}, "thing.size is 0, not a whole number above zero"),
        ({"size": 1.5}, "thing.size is 1.5, not a whole number above zero"),
        ({"size": True}, "thing.size is True, not a whole number above zero"),
        ({"size": 10**400}, "thing.size is "),
        ({"size": 13}, "thing: 13 is not possible"),
        ({"batch": None}, "thing.batch is null, not a whole number above zero"),
        ({"time_s": "fast"}, "thing.time_s is 'fast', not a number above zero"),
        ({"time_s": float("inf")}, "thing.time_s is inf, not a number above zero"),
        ({"number": -1}, "thing.number is -1, not a whole number"),
        ({"is_new": 1}, "thing.is_new is 1, not true or false"),
        ({"range_s": [2, 1]}, "thing.range_s is [2, 1], not two numbers above zero, the lower f"),
        ({"range_s": [1, 2, 3]}, "thing.range_s is [1, 2, 3], not two numbers above zero, the lo"),
        ({"sizes": "224"}, "thing.sizes is '224', not a list"),
        ({"sizes": [224, "x"]}, "thing.sizes.1 is 'x', not a whole number above zero"),
        ({"parts": []}, "thing.parts is [], not a mapping"),
        ({"parts": {"a": None}}, "thing.parts.a is null, not a mapping"),
        ({"parts": {"a": {}}}, "thing.parts.a.name is missing"),
        ({"parts": {"a": {"name": " "}}}, "thing.parts.a.name is ' ', not a name"),
        ({"rest": {"k": ["\ud800"]}}, "thing.rest.k.0 is '\\ud800', not a value that can be wri"),
    ],
)
def test_an_error_names_the_field(change: dict[str, Any], message: str) -> None:
    with pytest.raises(FieldError) as error:
        from_dict(Thing, {**WHOLE, **change}, "thing")
    assert str(error.value).startswith(message)


def test_nesting_without_end_is_refused() -> None:
    deep: Any = 1
    for _ in range(50):
        deep = [deep]
    with pytest.raises(FieldError, match="more than 40 lists or mappings in each other"):
        from_dict(Thing, {**WHOLE, "rest": {"k": deep}})
