"""Kernels that a file tells more than once: files put together, or a table for each metric.

A kernel is known by its process and number, and by its host where there are several. Another table
of it adds metrics; those that it tells again are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

_NUMBER = ["process_id", "id"]


def once(
    texts: pd.DataFrame, metrics: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """A row per kernel, with the index of its first; and what is to be said about the others."""
    import pandas as pd

    is_numbered = (texts["id"] != "") & (texts["process_id"] != "")
    number = _number(texts)
    key = [*number, "kernel"]  # one number with two names is of two kernels
    is_again = texts.duplicated(key) & is_numbered
    said = _shared(texts[~is_again & is_numbered], number)
    said += _shared(texts[~is_numbered & (texts["id"] != "")], ["id", "kernel"])
    if not is_again.any():
        return texts, metrics, said
    groups = metrics[is_numbered].groupby([texts.loc[is_numbered, n] for n in key], sort=False)
    twice = int((groups.count() > 1).any(axis=1).sum())
    said += told_again(twice)
    kept = texts[~is_again]
    firsts = groups.first().set_axis(kept.index[is_numbered[~is_again]])
    return kept, pd.concat([firsts, metrics[~is_numbered]]).reindex(kept.index), said


def told_again(count: int, under: str = "process and number") -> list[str]:
    """The remark for so many kernels of which a metric is there more than once."""
    said = f"kernels that are told again under the same {under} count once: {count:,}"
    return [said] * (count > 0)


def _number(texts: pd.DataFrame) -> list[str]:
    """What a kernel is known by. Nodes of a cluster may have processes of one number."""
    hosts = set(texts["host"].unique()) - {""}
    return ["host", *_NUMBER] if len(hosts) > 1 else _NUMBER


def _shared(texts: pd.DataFrame, number: list[str]) -> list[str]:
    count = int(texts.duplicated(number).sum())
    return [f"kernels whose number another one has are counted, too: {count:,}"] * (count > 0)
