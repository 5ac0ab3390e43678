"""Sentences that several captions share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ridgeline.report.words import counted, listed
from ridgeline.roofline.captured import CAPTURE
from ridgeline.units import format_percent, si

if TYPE_CHECKING:
    import pandas as pd


def steps_told(*tables: pd.DataFrame) -> str:
    """`7 steps`, `1 capture`: one counted both ways is one step."""
    firsts = [points[points["is_first"]] for points in tables]
    captures = sum(int(points["mode"].eq(CAPTURE).sum()) for points in firsts)
    steps = sum(len(points) for points in firsts) - captures
    told = [counted(steps, "step")] if steps or not captures else []
    return listed([*told, *([counted(captures, "capture")] if captures else [])])


def fastest(points: pd.DataFrame, name: Callable[[Any], str]) -> str:
    """Which point has the highest rate, and how near to its roof it is."""
    row = points.nlargest(1, "attained_flops_per_s").iloc[0]
    told = f"The highest rate is {si(row['attained_flops_per_s'], 'FLOP/s')} ({name(row)}"
    if row["efficiency"] == row["efficiency"]:
        told += f"; {format_percent(row['efficiency'])} of the possible, bound by"
        told += f" {bound_word(str(row['bound']))}"
    return f"{told})."


def bounds(points: pd.DataFrame) -> str:
    """`5 are bound by compute, 2 by DRAM.`"""
    counts = points["bound"].dropna().value_counts()
    if counts.empty:
        return ""
    told = [f"{number} by {bound_word(str(name))}" for name, number in counts.items()]
    verb = "is" if counts.iloc[0] == 1 else "are"
    return (
        told[0].replace(" by", f" {verb} bound by", 1) + "".join(f", {t}" for t in told[1:]) + "."
    )


def bound_word(bound: str) -> str:
    return {"compute": "compute", "launch": "launches"}.get(bound, bound.upper())


def flagged(points: pd.DataFrame) -> str:
    """How many break the physics gate, and what is wrong with the first."""
    texts = [str(text) for text in points["flag"] if text]
    if not texts:
        return ""
    verb = "is" if len(texts) == 1 else "are"
    return f"{len(texts)} {verb} flagged by the physics gate ({texts[0].split('; likely')[0]})."


def joined(*sentences: str) -> str:
    return " ".join(sentence for sentence in sentences if sentence)
