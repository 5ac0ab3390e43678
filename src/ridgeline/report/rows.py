"""Tables row by row, and their cells as plain values."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def no_rows() -> pd.DataFrame:
    """A table of nothing, for fields of records."""
    import pandas as pd

    return pd.DataFrame()


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table, as mappings."""
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def number(value: Any) -> float | None:
    """A finite number, or None: tables say not-a-number for what is not known."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if isfinite(found) else None


def plain(value: Any) -> Any:
    """A cell as a plain value: None for nothing, int for a whole number of numpy's."""
    if value is None or value != value:
        return None
    item = value.item() if hasattr(value, "item") else value
    return int(item) if isinstance(item, float) and item.is_integer() else item
