"""Query-key pairs of attention: how many scores there are."""

from __future__ import annotations


def scored_pairs(
    queries: int,
    keys: int,
    *,
    causal: bool,
    convention: str,
    past: int = 0,
    window: int | None = None,
) -> int:
    """Causal: query i sees the past and keys 0…i after it; the convention "full" counts all.

    With a window it sees the last of these alone, so many.
    """
    if not causal or convention == "full":
        return queries * keys
    most = keys if window is None else min(keys, window)
    rising = max(min(queries, most - past), 0)  # queries that see one key more than the one before
    return rising * past + rising * (rising + 1) // 2 + (queries - rising) * most
