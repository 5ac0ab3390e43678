"""Query-key pairs of attention: how many scores there are."""

from __future__ import annotations


def scored_pairs(queries: int, keys: int, *, causal: bool, convention: str, past: int = 0) -> int:
    """Causal: query i sees the past and keys 0…i after it; the convention "full" counts all."""
    if not causal or convention == "full":
        return queries * keys
    rising = max(min(queries, keys - past), 0)  # queries that see one key more than the one before
    return rising * past + rising * (rising + 1) // 2 + (queries - rising) * keys
