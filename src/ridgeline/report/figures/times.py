"""Time on the axes: compute time against memory time, throughput, and bars of step times.

In the first, a mark is the floor of a step, (memory time, compute time). Along a line parallel to
the diagonal, both grow by the same factor; there the launch floor is a tick and the measured time
the line's end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Any

from ridgeline.report.figures.labels import OVER_BARS, Labels
from ridgeline.report.figures.rooflines import (
    Mark,
    add_marks,
    draw_marks,
    label_marks,
    legend_of_marks,
    list_ceilings,
    make_mark,
)
from ridgeline.report.figures.style import (
    GREY,
    INK,
    MARK_PT,
    PALE,
    SMALL_PT,
    Drawing,
    Entry,
    colours,
    dense_ticks,
    draw_legend,
    legend_lines,
    legend_precisions,
    new_axes,
    number_ticks,
    precision_mark,
    prefixed,
    sample,
    scale_axes,
)
from ridgeline.report.figures.views import (
    MachineView,
    add_lines,
    count_bounds,
    count_steps,
    describe_flags,
    join_sentences,
    select_steps,
    short_name,
)
from ridgeline.report.text import counted
from ridgeline.roofline.roofs import LEVELS
from ridgeline.units import format_time, si

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

DIAGONAL = (0, (1, 1.6))
LINES = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
WIDE = 20.0  # highest over lowest: from here on a logarithmic axis shows more
MOST_BARS = 30
ROW_IN = 0.17
GAP = 0.4  # between configurations, in bars
RUNTIME_HEADING = "Step time by configuration and machine"


# ---------------------------------------------------------------- compute against memory time


def draw_times(view: MachineView) -> Drawing | None:
    """Steps by the time that their arithmetic and their bytes need at least."""
    points = select_steps(view.points, view.runs)
    points = points.assign(memory_s=points[[f"{level}_s" for level in LEVELS]].max(axis=1))
    points = points[points["memory_s"].gt(0) & points["compute_s"].gt(0) & points["time_s"].gt(0)]
    if points.empty:
        return None
    heading = f"{view.device}: compute time against memory time"
    ceilings = list_ceilings(points, view.roofs, LEVELS)
    axes = new_axes(heading, _describe_roofs(view, ceilings), height_in=4.8)
    _scale_times(axes, points)
    colour = view.colours_of(points["model"])
    paths = [find_path(point) for _, point in points.iterrows()]
    marks = [_mark_floor(point, colour[point["model"]]) for _, point in points.iterrows()]
    for mark, path, launch_s in zip(marks, paths, points["launch_s"], strict=True):
        _draw_path(axes, mark, path, launch_s)
    draw_marks(axes, marks)
    draw_legend(axes, [
        ("model", legend_lines(colour)),
        ("precision", legend_precisions(points["precision"])),
        ("mark", _list_entries(marks, points)),
    ])  # fmt: skip
    _add_labels(Labels(axes), marks, paths)
    title = view.title(heading, ceilings)
    return Drawing(axes=axes, title=title, caption=_describe_floors(points, view))


def _describe_roofs(view: MachineView, ceilings: Sequence[str]) -> str:
    source = view.roofs_label(ceilings).split(";")[0]
    return f"{source + '; ' if source else ''}mark: least times"


def find_path(point: Any) -> tuple[tuple[float, float], tuple[float, float]]:
    """From the floor to the measured time, whose larger side is that time."""
    x, y = float(point["memory_s"]), float(point["compute_s"])
    factor = float(point["time_s"]) / max(x, y)
    return (x, y), (x * factor, y * factor)


def _mark_floor(point: Any, colour: str) -> Mark:
    text = short_name(point) if point["is_first"] else ""
    mark = make_mark(point, colour=colour, marker=precision_mark(point["precision"]), text=text)
    return replace(mark, x=float(point["memory_s"]), y=float(point["compute_s"]), x_range=None)


def _scale_times(axes: Axes, points: pd.DataFrame) -> None:
    """The same span of time on both axes, with lines of equal time."""
    ends = [end for _, point in points.iterrows() for at in find_path(point) for end in at]
    low, high = min(ends) / 2.5, max(ends) * 2.5
    scale_axes(axes, x=(low, high), y=(low, high))
    axes.set_xlabel("memory time: the slowest level at its bandwidth")
    axes.set_ylabel("compute time: FLOPs at their roofs")
    for axis in (axes.xaxis, axes.yaxis):
        number_ticks(axis, "s", with_prefix=True)
    axes.grid(visible=False)
    axes.plot([low, high], [low, high], color=GREY, linestyle=DIAGONAL, linewidth=1.0, zorder=1)
    for exponent in range(ceil(log10(low)), floor(log10(high)) + 1):
        time_s = 10.0**exponent
        line = axes.plot([low, time_s, time_s], [time_s, time_s, low], color=PALE,
                         linewidth=0.7, zorder=1)  # fmt: skip
        line[0].set_gid(f"equal-time-{exponent}")


def _draw_path(axes: Axes, mark: Mark, path: Any, launch_s: float) -> None:
    (x, y), (end_x, end_y) = path
    axes.plot([x, end_x], [y, end_y], color=mark.colour, linewidth=1.0, zorder=3)
    axes.plot([end_x], [end_y], marker="*", markersize=7, color=mark.colour, zorder=4)
    larger = max(x, y)
    if launch_s > larger:
        factor = launch_s / larger
        axes.plot([x * factor], [y * factor], marker="_" if y >= x else "|", markersize=10,
                  markeredgewidth=1.6, color=INK, zorder=3.5, label="_launch")  # fmt: skip


def _list_entries(marks: list[Mark], points: pd.DataFrame) -> list[Entry]:
    is_launch = points["launch_s"] > points[["memory_s", "compute_s"]].max(axis=1)
    launch = (sample(marker="_", size=9), "launch floor, where it is the highest")
    return [
        *legend_of_marks(marks),
        (sample(marker="*", line="-", size=7, width=1.0), "measured time, in the same proportion"),
        *([launch] if is_launch.any() else []),
        (sample(colour=PALE, line="-", width=0.9), "equal time"),
        (sample(colour=GREY, line=DIAGONAL), "as much compute as memory"),
    ]


def _add_labels(labels: Labels, marks: list[Mark], paths: list[Any]) -> None:
    low, high = labels.axes.get_xlim()
    labels.add_line((low, high), (low, high))
    add_marks(labels, marks)
    for start, end in paths:
        labels.add_line((start[0], end[0]), (start[1], end[1]), OVER_BARS)
        labels.add_mark(*end, size_pt=7)
    corners = {"bound by compute": (low * 1.15, high / 1.3, 1),
               "bound by memory": (high / 1.15, low * 1.3, -1)}  # fmt: skip
    for text, (x, y, away) in corners.items():
        labels.write(text, (x, y), partial(_find_corner, away), color=GREY, weight="bold")
    label_marks(labels, marks)
    for exponent in range(ceil(log10(low)), floor(log10(high)) + 1):
        time_s = 10.0**exponent
        labels.write(prefixed(time_s, "s"), (time_s, time_s), labels.around(1.0), color=GREY)


def _find_corner(away: int, width: float, height: float) -> list[tuple[float, float]]:
    return [(away * width / 2, 0.0)]


def _describe_floors(points: pd.DataFrame, view: MachineView) -> str:
    row = points.nsmallest(1, "efficiency").iloc[0]
    return join_sentences(
        f"{count_steps(points)} on {view.device} by the least time of their arithmetic"
        f" and of their bytes. {short_name(row, with_precision=True)} is furthest from its floor:"
        f" {format_time(row['time_s'])} measured, {format_time(row['floor_s'])} needed.",
        count_bounds(points[points["is_first"]]),
        describe_flags(points),
    )


# ---------------------------------------------------------------- throughput


def draw_throughput(view: MachineView) -> Drawing | None:
    """A line for each model, precision and setting; a mark for each batch."""
    if not len(view.runs):
        return None
    rates = rates_by_batch(view.runs)
    if rates.empty:
        return None
    heading = f"{view.device}: throughput against batch size"
    axes = new_axes(heading, "error bars: 95 % interval of the median step, over all repeats")
    colour = view.colours_of(rates["model"])
    others = dict.fromkeys(rates["setting"])
    line = {setting: LINES[number % len(LINES)] for number, setting in enumerate(others)}
    for _, same in rates.groupby(["model", "precision", "setting"], sort=False):
        _draw_rates(axes, same.sort_values("batch_size"), colour, line)
    _scale_rates(axes, rates)
    settings = [(sample(line=line[name]), name) for name in line if len(line) > 1]
    draw_legend(axes, [
        ("model", legend_lines(colour)),
        ("precision", legend_precisions(rates["precision"])),
        ("setting", settings),
    ])  # fmt: skip
    title = f"{heading} (error bars: 95 % interval)"
    return Drawing(axes=axes, title=title, caption=_describe_rates(rates, view))


def rates_by_batch(runs: pd.DataFrame) -> pd.DataFrame:
    """A row per configuration: samples per second with the ends of its error bar.

    The middle is the repeat with the median time. The bar spans the 95 % intervals of all.
    """
    samples = runs["images_processed"] / runs["measured_iters"]
    table = runs.assign(
        rate=samples / runs["step_median_s"],
        low=samples / runs["step_interval_high_s"].fillna(runs["step_median_s"]),
        high=samples / runs["step_interval_low_s"].fillna(runs["step_median_s"]),
        setting=add_lines(runs)["setting"],
    )
    table = table[table["rate"].gt(0)]
    same = table.groupby("configuration", sort=False)
    chosen = table[table["is_chosen"]].set_index("configuration")
    settings = same[["model", "precision", "batch_size", "setting", "mode"]].first()
    table = settings.assign(
        rate=chosen["rate"], low=same["low"].min(), high=same["high"].max(),
        repeats=same.size(),
    )  # fmt: skip
    return table.reset_index(drop=True)


def _draw_rates(
    axes: Axes, steps: pd.DataFrame, colour: dict[str, str], line: dict[str, Any]
) -> None:
    first = steps.iloc[0]
    below, above = steps["rate"] - steps["low"], steps["high"] - steps["rate"]
    axes.errorbar(
        steps["batch_size"], steps["rate"], yerr=[below.clip(lower=0), above.clip(lower=0)],
        color=colour[first["model"]], marker=precision_mark(first["precision"]),
        linestyle=line[first["setting"]], linewidth=1.3, markersize=MARK_PT,
        markerfacecolor="white", markeredgewidth=1.2, capsize=3, elinewidth=1.0,
    )  # fmt: skip


def _scale_rates(axes: Axes, rates: pd.DataFrame) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    batches = sorted(set(rates["batch_size"]))
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(batches))
    axes.xaxis.set_minor_locator(NullLocator())
    number_ticks(axes.xaxis, "")
    axes.set_xlim(batches[0] / 1.4, batches[-1] * 1.4)
    axes.set_xlabel("batch size")
    axes.set_ylabel("throughput (samples/s)")
    if rates["high"].max() > WIDE * rates["low"].min():
        axes.set_yscale("log")
        axes.set_ylim(rates["low"].min() / 1.6, rates["high"].max() * 1.6)
        dense_ticks(axes.yaxis)
    else:
        axes.set_ylim(0, rates["high"].max() * 1.08)
    number_ticks(axes.yaxis, "", with_prefix=True)


def _describe_rates(rates: pd.DataFrame, view: MachineView) -> str:
    best = rates.nlargest(1, "rate").iloc[0]
    widest = ((rates["high"] - rates["low"]) / rates["rate"]).max()
    bars = f"; the widest error bar spans {100 * widest:.0f} % of its rate" if widest > 0 else ""
    return (
        f"{counted(len(rates), 'configuration')} on {view.device}. {best['model']}"
        f" ({best['precision']}, {best['mode']}) is the fastest with"
        f" {si(best['rate'], 'samples/s')} at batch {best['batch_size']:.0f}{bars}."
    )


# ---------------------------------------------------------------- bars of step times


def draw_runtimes(views: Sequence[MachineView]) -> Drawing | None:
    """A bar for each configuration on each machine, the same configuration side by side."""
    times = collect_times(views)
    if times.empty:
        return None
    shown = times.nlargest(MOST_BARS, "time_s").sort_values(["group", "time_s"])
    colour = colours(times["machine"])
    height = 1.1 + ROW_IN * (len(shown) + GAP * shown["group"].nunique())
    axes = new_axes(RUNTIME_HEADING, "median; error bars: 95 % interval, over all repeats",
                    height_in=max(2.2, height))  # fmt: skip
    _draw_bars(axes, shown, colour)
    devices = dict(zip(times["machine"], times["device"], strict=True))
    draw_legend(axes, [("machine", legend_lines({devices[name]: c for name, c in colour.items()}))])
    return Drawing(axes=axes, title=RUNTIME_HEADING, caption=_describe_times(times, shown))


def collect_times(views: Sequence[MachineView]) -> pd.DataFrame:
    """A row per machine and configuration; those that ran on several machines come first."""
    import pandas as pd

    tables = []
    for view in views:
        if not len(view.runs):
            continue
        same = view.runs.groupby("configuration", sort=False)
        chosen = view.runs[view.runs["is_chosen"]].set_index("configuration")
        tables.append(pd.DataFrame({
            "machine": view.name, "device": view.device, "anywhere": chosen["anywhere"],
            "name": [_name_run(row) for _, row in chosen.iterrows()],
            "time_s": chosen["step_median_s"],
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
    group = ordered.groupby("anywhere", sort=False).ngroup()
    return ordered.assign(group=group).drop(columns=["shared", "slowest"])


def _name_run(row: Any) -> str:
    """With the mode, if it is not among what tells it apart."""
    name = short_name(row, with_precision=True)
    mode = str(row["mode"])
    return name if mode in name.split(", ") else f"{name}, {mode}"


def _draw_bars(axes: Axes, times: pd.DataFrame, colour: dict[str, str]) -> None:
    position, rows_at, ticks, names = 0.0, [], [], []
    gap = GAP if times["group"].duplicated().any() else 0.0
    for _, same in times.groupby("group", sort=False):
        rows = [position + offset for offset in range(len(same))]
        rows_at += rows
        ticks.append(sum(rows) / len(rows))
        names.append(str(same["name"].iloc[0]))
        position = rows[-1] + 1 + gap
    wide = times["time_s"].max() > WIDE * times["time_s"].min()
    errors = [(times["time_s"] - times["low"]).clip(lower=0).fillna(0),
              (times["high"] - times["time_s"]).clip(lower=0).fillna(0)]  # fmt: skip
    axes.barh(rows_at, times["time_s"], height=0.8, color=[colour[m] for m in times["machine"]],
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
    for row_at, time_s, end in zip(rows_at, times["time_s"], ends, strict=True):
        axes.annotate(format_time(time_s), (end, row_at), (4, 0), textcoords="offset points",
                      va="center", fontsize=SMALL_PT)  # fmt: skip


def _describe_times(times: pd.DataFrame, shown: pd.DataFrame) -> str:
    slow, fast = times.nlargest(1, "time_s").iloc[0], times.nsmallest(1, "time_s").iloc[0]
    shared = times.groupby("group")["machine"].nunique().gt(1).sum()
    left_out = len(times) - len(shown)
    if len(times) == 1:
        return f"A step takes {format_time(fast['time_s'])} ({fast['name']}, {fast['device']})."
    return join_sentences(
        f"Step times from {format_time(fast['time_s'])} ({fast['name']}, {fast['device']}) to"
        f" {format_time(slow['time_s'])} ({slow['name']}, {slow['device']});"
        f" {counted(int(shared), 'configuration') if shared else 'none'} ran on more than one"
        " machine.",
        f"The {left_out} shortest are left out." if left_out else "",
    )
