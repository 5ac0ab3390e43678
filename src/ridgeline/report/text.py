"""Words around numbers, and rows of tables as plain values."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pandas as pd

Item = TypeVar("Item")
MOST_LISTED = 6
LONGEST_NAME = 100  # of a file


def counted(number: int, thing: str, things: str | None = None) -> str:
    """`1 run`, `2 runs`, `2 batches`."""
    return f"{number} {thing if number == 1 else things or thing + 's'}"


def listed(parts: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *first, last = [*parts] or [""]
    return f"{', '.join(first)} and {last}" if first else last


def some(parts: Sequence[str], *, most: int = MOST_LISTED, joint: str = "; ") -> str:
    """The first of many, and how many more there are."""
    shown = joint.join(parts[:most])
    left = len(parts) - most
    return f"{shown}{joint}and {left} more" if left > 0 else shown


def capped(sentence: str) -> str:
    """With a capital letter."""
    return sentence[:1].upper() + sentence[1:]


def three_digits(value: float) -> str:
    """Three significant digits, zeros included, so that numbers side by side look alike."""
    if value == 0 or abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:#.3g}".removesuffix(".")


def times(ratio: float) -> str:
    """`1.25 times`."""
    return f"{three_digits(ratio)} times"


def safe_name(text: str, *, otherwise: str) -> str:
    """For a file: letters, digits, dots, dashes and underscores; never hidden. An end says most."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", text)[-LONGEST_NAME:]
    return safe.strip("-.") or otherwise


def no_rows() -> pd.DataFrame:
    """A table of nothing, for fields of records."""
    import pandas as pd

    return pd.DataFrame()


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table, as mappings."""
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def group_by(items: Iterable[Item], keys: Iterable[Hashable]) -> dict[Any, list[Item]]:
    """Items by their keys, in the order of first appearance."""
    groups: dict[Any, list[Item]] = {}
    for item, same in zip(items, keys, strict=True):
        groups.setdefault(same, []).append(item)
    return groups


def number(value: Any) -> float | None:
    """A finite number, or None: tables say not-a-number for what is not known."""
    try:
        known = float(value)
    except (TypeError, ValueError):
        return None
    return known if isfinite(known) else None


def plain(value: Any) -> Any:
    """A cell as a plain value: None for nothing, int for a whole number of numpy's."""
    if value is None or value != value:
        return None
    item = value.item() if hasattr(value, "item") else value
    return int(item) if isinstance(item, float) and item.is_integer() else item
