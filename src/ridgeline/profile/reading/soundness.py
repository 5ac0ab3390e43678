"""Numbers that no counter can have: negative, or beyond what a number can hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ridgeline.profile.capture import in_words

if TYPE_CHECKING:
    import pandas as pd

_NAMED = 5


def sound(table: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The table with nothing in the place of such numbers, and what is to be said about it."""
    import numpy as np

    negative = [name for name in table.columns if bool((table[name] < 0).any())]
    endless = [name for name in table.columns if bool((table[name] == np.inf).any())]
    kept = {
        str(name): table[name].where(table[name].between(0, np.inf, inclusive="left"))
        for name in dict.fromkeys([*negative, *endless])
    }
    said = _told("negative", negative) + _told("too large for a number", endless)
    return (table.assign(**kept) if kept else table), said


def _told(what: str, names: Sequence[str]) -> list[str]:
    shown = ", ".join(map(in_words, names[:_NAMED]))
    return [f"values that are {what} are not used: {shown}"] if names else []
