"""Sentences that several captions share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ridgeline.report.text import counted, listed
from ridgeline.roofline.points import CAPTURE
from ridgeline.units import format_percent, si

if TYPE_CHECKING:
    import pandas as pd


def count_steps(*tables: pd.DataFrame) -> str:
    """`7 steps`, `1 capture`: one counted both ways is one step."""
    firsts = [points[points["is_first"]] for points in tables]
    captures = sum(int(points["mode"].eq(CAPTURE).sum()) for points in firsts)
    steps = sum(len(points) for points in firsts) - captures
    texts = [counted(steps, "step")] if steps or not captures else []
    return listed([*texts, *([counted(captures, "capture")] if captures else [])])


def describe_fastest(points: pd.DataFrame, name: Callable[[Any], str]) -> str:
    """Which point has the highest rate, and how near to its roof it is."""
    row = points.nlargest(1, "attained_flops_per_s").iloc[0]
    text = f"The highest rate is {si(row['attained_flops_per_s'], 'FLOP/s')} ({name(row)}"
    if row["efficiency"] == row["efficiency"]:
        text += f"; {format_percent(row['efficiency'])} of the possible, bound by"
        text += f" {bound_word(str(row['bound']))}"
    return f"{text})."


def count_bounds(points: pd.DataFrame) -> str:
    """`5 are bound by compute, 2 by DRAM.`"""
    counts = points["bound"].dropna().value_counts()
    if counts.empty:
        return ""
    texts = [f"{number} by {bound_word(str(name))}" for name, number in counts.items()]
    verb = "is" if counts.iloc[0] == 1 else "are"
    return (
        texts[0].replace(" by", f" {verb} bound by", 1) + "".join(f", {t}" for t in texts[1:]) + "."
    )


def bound_word(bound: str) -> str:
    return {"compute": "compute", "launch": "launches"}.get(bound, bound.upper())


def describe_flags(points: pd.DataFrame) -> str:
    """How many have a ring with an exclamation mark, and what is wrong with the first."""
    flags = [str(text) for text in points["flag"] if text]
    if not flags:
        return ""
    first = flags[0].split("; likely")[0]
    if len(flags) == 1:
        return f"1 is marked with !: {first}."
    return f"{len(flags)} are marked with ! (the first: {first})."


def describe_unplaced(points: pd.DataFrame) -> str:
    """How many kernels have no place in a roofline, and why; each is counted once."""
    reasons = {
        "whose time is not known": points["time_s"].isna(),
        "whose FLOPs are not known": points["flops"].isna(),
        "without FLOPs": points["flops"].le(0),
        "whose DRAM traffic is not known": points["dram_bytes"].isna(),
        "without DRAM traffic": points["dram_bytes"].le(0),
    }
    texts, left = [], len(points)
    is_placed = points["run_id"].notna()
    for reason, is_so in reasons.items():
        number = int((is_placed & is_so).sum())
        is_placed &= ~is_so
        left -= number
        texts += [f"{number} {reason}"] if number else []
    have = "has" if len(points) - left == 1 else "have"
    of_all = f"{len(points) - left} of all {len(points)}"
    return f"{of_all} {have} no place in it: {listed(texts)}." if texts else ""


def models_heading(points: pd.DataFrame) -> str:
    """Over the colours of a legend: what they stand for."""
    is_capture = points["mode"].eq(CAPTURE)
    if not is_capture.any():
        return "model"
    return "capture" if is_capture.all() else "model or capture"


def join(*sentences: str) -> str:
    return " ".join(sentence for sentence in sentences if sentence)
