"""Bars of step times across machines and configurations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ridgeline.report.figures.configurations import short_name
from ridgeline.report.figures.figure import Drawing
from ridgeline.report.figures.style import (
    INK,
    SMALL_PT,
    canvas_of,
    colours,
    dense_ticks,
    legend,
    legend_lines,
    new_axes,
    number_ticks,
)
from ridgeline.report.figures.subjects import Subject
from ridgeline.report.figures.words import joined
from ridgeline.report.words import counted
from ridgeline.units import format_time

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

MOST_BARS = 30
WIDE = 20.0  # longest over shortest: from here on a logarithmic axis shows more
ROW_IN = 0.17
GAP = 0.4  # between configurations, in bars
HEADING = "Step time by configuration and machine"


def draw_runtimes(subjects: Sequence[Subject]) -> Drawing | None:
    """A bar for each configuration on each machine, the same configuration side by side."""
    times = step_times(subjects)
    if times.empty:
        return None
    shown = times.nlargest(MOST_BARS, "time_s").sort_values(["place", "time_s"])
    colour = colours(times["machine"])
    height = 1.1 + ROW_IN * (len(shown) + GAP * shown["place"].nunique())
    axes = new_axes(HEADING, "median; error bars: 95 % interval, over all repeats",
                    height_in=max(2.2, height))  # fmt: skip
    _draw_bars(axes, shown, colour)
    devices = dict(zip(times["machine"], times["device"], strict=True))
    legend(axes, [("machine", legend_lines({devices[name]: c for name, c in colour.items()}))])
    return Drawing(canvas=canvas_of(axes), title=HEADING, caption=_caption(times, shown))


def step_times(subjects: Sequence[Subject]) -> pd.DataFrame:
    """A row per machine and configuration; those that ran on several machines come first."""
    import pandas as pd

    tables = []
    for subject in subjects:
        if not len(subject.runs):
            continue
        same = subject.runs.groupby("configuration", sort=False)
        chosen = subject.runs[subject.runs["is_chosen"]].set_index("configuration")
        tables.append(pd.DataFrame({
            "machine": subject.name, "device": subject.device, "anywhere": chosen["anywhere"],
            "name": [_name(row) for _, row in chosen.iterrows()], "time_s": chosen["step_median_s"],
            "low": same["step_interval_low_s"].min(), "high": same["step_interval_high_s"].max(),
        }))  # fmt: skip
    if not tables:
        return pd.DataFrame(columns=["machine", "name", "time_s"])
    times = pd.concat(tables, ignore_index=True)
    shared = times.groupby("anywhere")["machine"].transform("nunique")
    slowest = times.groupby("anywhere")["time_s"].transform("max")
    ordered = times.assign(shared=shared, slowest=slowest)
    by = ["shared", "slowest", "anywhere", "time_s"]
    ordered = ordered.sort_values(by, ascending=[False, False, True, True])
    place = ordered.groupby("anywhere", sort=False).ngroup()
    return ordered.assign(place=place).drop(columns=["shared", "slowest"])


def _name(row: Any) -> str:
    """With the mode, if it is not among what tells it apart."""
    name = short_name(row, with_precision=True)
    mode = str(row["mode"])
    return name if mode in name.split(", ") else f"{name}, {mode}"


def _draw_bars(axes: Axes, times: pd.DataFrame, colour: dict[str, str]) -> None:
    position, places, ticks, names = 0.0, [], [], []
    gap = GAP if times["place"].duplicated().any() else 0.0
    for _, same in times.groupby("place", sort=False):
        rows = [position + offset for offset in range(len(same))]
        places += rows
        ticks.append(sum(rows) / len(rows))
        names.append(str(same["name"].iloc[0]))
        position = rows[-1] + 1 + gap
    wide = times["time_s"].max() > WIDE * times["time_s"].min()
    errors = [(times["time_s"] - times["low"]).clip(lower=0).fillna(0),
              (times["high"] - times["time_s"]).clip(lower=0).fillna(0)]  # fmt: skip
    axes.barh(places, times["time_s"], height=0.8, color=[colour[m] for m in times["machine"]],
              xerr=errors, log=wide,
              error_kw={"elinewidth": 0.9, "capsize": 2, "ecolor": INK})  # fmt: skip
    axes.set_yticks(ticks, names)
    axes.set_ylim(position, -0.9)
    low = times["time_s"].min() / 3 if wide else 0.0
    top = times[["time_s", "high"]].max().max()
    axes.set_xlim(low, top * (2.6 if wide else 1.16))
    if wide:
        dense_ticks(axes.xaxis)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("step time, logarithmic" if wide else "step time")
    number_ticks(axes.xaxis, "s", with_prefix=True)
    ends = times[["time_s", "high"]].max(axis=1)
    for place, time_s, end in zip(places, times["time_s"], ends, strict=True):
        axes.annotate(format_time(time_s), (end, place), (4, 0), textcoords="offset points",
                      va="center", fontsize=SMALL_PT)  # fmt: skip


def _caption(times: pd.DataFrame, shown: pd.DataFrame) -> str:
    slow, fast = times.nlargest(1, "time_s").iloc[0], times.nsmallest(1, "time_s").iloc[0]
    shared = times.groupby("place")["machine"].nunique().gt(1).sum()
    left_out = len(times) - len(shown)
    if len(times) == 1:
        return f"A step takes {format_time(fast['time_s'])} ({fast['name']}, {fast['device']})."
    return joined(
        f"Step times from {format_time(fast['time_s'])} ({fast['name']}, {fast['device']}) to"
        f" {format_time(slow['time_s'])} ({slow['name']}, {slow['device']});"
        f" {counted(int(shared), 'configuration') if shared else 'none'} ran on more than one"
        " machine.",
        f"The {left_out} shortest are left out." if left_out else "",
    )
