"""Kernels that a file tells more than once: files put together, or a table for each metric.

A kernel is known by its process and number. Another table of it adds metrics; those that it tells
again are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

_NUMBER = ["process_id", "id"]
_KEY = [*_NUMBER, "kernel"]  # one number with two names is of two kernels


def once(
    texts: pd.DataFrame, metrics: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """A row per kernel, with the index of its first; and what is to be said about the others."""
    is_numbered = (texts["id"] != "") & (texts["process_id"] != "")
    is_again = texts.duplicated(_KEY) & is_numbered
    said = _shared(texts[~is_again & is_numbered])
    if not is_again.any():
        return texts, metrics, said
    groups = metrics.groupby([texts[name] for name in _KEY], sort=False)
    twice = int((groups.count() > 1).any(axis=1).sum())
    if twice:
        said.append(
            f"kernels that are told again under the same process and number count once: {twice:,}"
        )
    kept = texts[~is_again]
    return kept, groups.first().set_axis(kept.index), said


def _shared(texts: pd.DataFrame) -> list[str]:
    count = int(texts.duplicated(_NUMBER).sum())
    return [f"kernels whose number another one has are counted, too: {count:,}"] * (count > 0)
