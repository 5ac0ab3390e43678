"""Time on both axes: what the arithmetic takes at its roof against what the memory takes at its.

A mark is the floor of a step, (memory time, compute time). Along a line parallel to the diagonal,
both grow by the same factor; there the launch floor is a tick and the measured time the line's end.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Any

from ridgeline.report.figures.captions import count_bounds, count_steps, describe_flags, join
from ridgeline.report.figures.labels import Labels
from ridgeline.report.figures.machine_views import MachineView, select_steps, short_name
from ridgeline.report.figures.rooflines import (
    Mark,
    add_marks,
    draw_marks,
    drawn_ceilings,
    label_marks,
    mark_entries,
)
from ridgeline.report.figures.steps import precision_entries
from ridgeline.report.figures.style import (
    GREY,
    INK,
    PALE,
    Drawing,
    Entry,
    legend,
    legend_lines,
    log_axes,
    make_drawing,
    new_axes,
    number_ticks,
    precision_mark,
    prefixed,
    sample,
)
from ridgeline.roofline.roofs import LEVELS
from ridgeline.units import format_time

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

DIAGONAL = (0, (1, 1.6))


def draw_times(view: MachineView) -> Drawing | None:
    """Steps by the time that their arithmetic and their bytes need at least."""
    points = select_steps(view.points, view.runs)
    points = points.assign(memory_s=points[[f"{level}_s" for level in LEVELS]].max(axis=1))
    points = points[points["memory_s"].gt(0) & points["compute_s"].gt(0) & points["time_s"].gt(0)]
    if points.empty:
        return None
    heading = f"{view.device}: compute time against memory time"
    ceilings = drawn_ceilings(points, view.roofs, LEVELS)
    axes = new_axes(heading, _subtitle(view, ceilings), height_in=4.8)
    _scale(axes, points)
    colour = view.colours_of(points["model"])
    paths = [path_of(point) for _, point in points.iterrows()]
    marks = [_mark(point, colour[point["model"]]) for _, point in points.iterrows()]
    for mark, path, launch_s in zip(marks, paths, points["launch_s"], strict=True):
        _draw_path(axes, mark, path, launch_s)
    draw_marks(axes, marks)
    legend(axes, [
        ("model", legend_lines(colour)),
        ("precision", precision_entries(points["precision"])),
        ("mark", _entries(marks, points)),
    ])  # fmt: skip
    _add_labels(Labels(axes), marks, paths)
    return make_drawing(axes, view.title(heading, ceilings), _describe_times(points, view))


def _subtitle(view: MachineView, ceilings: Sequence[str]) -> str:
    source = view.roofs_label(ceilings).split(";")[0]
    return f"{source + '; ' if source else ''}mark: least times"


def path_of(point: Any) -> tuple[tuple[float, float], tuple[float, float]]:
    """From the floor to the measured time, whose larger side is that time."""
    x, y = float(point["memory_s"]), float(point["compute_s"])
    factor = float(point["time_s"]) / max(x, y)
    return (x, y), (x * factor, y * factor)


def _mark(point: Any, colour: str) -> Mark:
    return Mark(
        x=float(point["memory_s"]),
        y=float(point["compute_s"]),
        colour=colour,
        marker=precision_mark(point["precision"]),
        is_filled=point["provenance"] != "static",
        flag=str(point["flag"] or ""),
        text=short_name(point) if point["is_first"] else "",
        weight=float(point["time_s"]),
    )


def _scale(axes: Axes, points: pd.DataFrame) -> None:
    """The same span of time on both axes, with lines of equal time."""
    ends = [end for _, point in points.iterrows() for at in path_of(point) for end in at]
    low, high = min(ends) / 2.5, max(ends) * 2.5
    log_axes(axes, x=(low, high), y=(low, high))
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


def _entries(marks: list[Mark], points: pd.DataFrame) -> list[Entry]:
    is_launch = points["launch_s"] > points[["memory_s", "compute_s"]].max(axis=1)
    launch = (sample(marker="_", size=9), "launch floor, where it is the highest")
    return [
        *mark_entries(marks),
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
        labels.add_bar((start[0], end[0]), (start[1], end[1]))
        labels.add_mark(*end, size_pt=7)
    corners = {"bound by compute": (low * 1.15, high / 1.3, 1),
               "bound by memory": (high / 1.15, low * 1.3, -1)}  # fmt: skip
    for text, (x, y, away) in corners.items():
        labels.write(text, (x, y), partial(_spot_beside, away), colour=GREY, weight="bold")
    label_marks(labels, marks)
    for exponent in range(ceil(log10(low)), floor(log10(high)) + 1):
        time_s = 10.0**exponent
        labels.write(prefixed(time_s, "s"), (time_s, time_s), labels.around(1.0), colour=GREY)


def _spot_beside(away: int, width: float, height: float) -> list[tuple[float, float]]:
    return [(away * width / 2, 0.0)]


def _describe_times(points: pd.DataFrame, view: MachineView) -> str:
    row = points.nsmallest(1, "efficiency").iloc[0]
    return join(
        f"{count_steps(points)} on {view.device} by the least time of their arithmetic"
        f" and of their bytes. {short_name(row, with_precision=True)} is furthest from its floor:"
        f" {format_time(row['time_s'])} measured, {format_time(row['floor_s'])} needed.",
        count_bounds(points[points["is_first"]]),
        describe_flags(points),
    )
