"""A mark for each memory level: the same work seen from DRAM and from the caches.

Counters know the bytes of every level. A static point knows them at the last cache, which all
operators pass, and those that DRAM must deliver although the cache helps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ridgeline.captures.quantities import BULK_COPIES
from ridgeline.report.figures import marks as points_on
from ridgeline.report.figures.board import Board
from ridgeline.report.figures.classic import draw_under_roofs
from ridgeline.report.figures.configurations import (
    chosen_steps,
    names_of,
    short_name,
    with_captures,
)
from ridgeline.report.figures.figure import Drawing
from ridgeline.report.figures.marks import Mark
from ridgeline.report.figures.roofs import drawn_ceilings
from ridgeline.report.figures.style import PALE, canvas_of, legend_lines, legend_marks
from ridgeline.report.figures.subjects import Subject
from ridgeline.report.figures.words import bounds, joined, models_heading, steps_told
from ridgeline.report.words import listed
from ridgeline.roofline.roofs import LEVELS
from ridgeline.units import format_ratio

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

LEVEL_MARKS = {"dram": "o", "l3": "s", "l2": "D", "l1": "^"}
MOST_STEPS = 6


def draw_levels(subject: Subject) -> Drawing | None:
    """Steps and captures at the intensity of every level whose bytes are known."""
    points = with_captures(chosen_steps(subject.points, subject.runs), subject.captures)
    known = {index: level_intensities(point) for index, point in points.iterrows()}
    points = points[[len(known[index]) > 1 for index in points.index]]
    if points.empty or not subject.has_roofs:
        return None
    slowest = points.groupby("configuration")["time_s"].max().nlargest(MOST_STEPS)
    points = points[points["configuration"].isin(slowest.index)]
    points = points.assign(is_first=~points.duplicated("configuration"))
    points = points.sort_values("time_s", ascending=False, kind="stable")
    colour, names = subject.colours_of(points["model"]), names_of(points)
    marks = [
        mark
        for index, point in points.iterrows()
        for mark in _marks(point, known[index], colour[point["model"]], names[index])
    ]
    levels = [level for level in LEVELS if any(level in known[index] for index in points.index)]
    shown = [level for level in LEVELS if level in levels or level in subject.roofs.bandwidth]
    heading = f"{subject.device}: bytes at each memory level"
    partly = "" if _sees_all(points, subject) else " (without bulk tensor copies)"
    named = {level: level.upper() + (partly if level == "l1" else "") for level in levels}
    level_entries = legend_marks({name: LEVEL_MARKS[level] for level, name in named.items()})
    groups = [
        (models_heading(points), legend_lines(colour)),
        ("memory level", level_entries),
        ("mark", points_on.legend_of(marks)),
    ]

    def links(axes: Axes, board: Board | None) -> None:
        for index, point in points.iterrows():
            xs = [min(known[index].values()), max(known[index].values())]
            ys = [point["attained_flops_per_s"]] * 2
            if board is None:
                axes.plot(xs, ys, color=PALE, zorder=1.8, linewidth=1.0)
            else:
                board.block_bar(xs, ys)

    axes = draw_under_roofs(subject, points, marks, groups, heading=heading, levels=shown,
                            also=links)  # fmt: skip
    title = subject.title(heading, drawn_ceilings(points, subject.roofs, shown))
    return Drawing(canvas=canvas_of(axes), title=title,
                   caption=_caption(points, known, subject, levels))  # fmt: skip


def _roofless(levels: Sequence[str], subject: Subject) -> str:
    """Marks whose own roof is not known must not be held against another one."""
    names = [level.upper() for level in levels if level not in subject.roofs.bandwidth]
    return f"The roof of {listed(names)} is not known: its marks are below none." if names else ""


def _sees_all(points: pd.DataFrame, subject: Subject) -> bool:
    """Whether the counters of L1 leave nothing out in these points."""
    return not any(BULK_COPIES in subject.notes.get(run_id, ()) for run_id in points["run_id"])


def level_intensities(point: Any) -> dict[str, float]:
    """FLOPs per byte by level; DRAM's of a static point without what the last cache can hold."""
    found: dict[str, float] = {}
    for level in LEVELS:
        moved = point.get(f"{level}_bytes")
        if level == "dram" and point["provenance"] == "static":
            least = point.get("least_bytes")
            moved = least if least is not None and least == least else moved
        if moved is not None and moved > 0 and point["flops"] > 0:
            found[level] = float(point["flops"]) / float(moved)
    return found


def _marks(point: Any, intensities: dict[str, float], colour: str, name: str) -> list[Mark]:
    nearest = max(intensities, key=lambda level: intensities[level])
    return [
        Mark(
            x=intensity,
            y=float(point["attained_flops_per_s"]),
            colour=colour,
            marker=LEVEL_MARKS[level],
            is_filled=point["provenance"] != "static",
            flag=str(point["flag"]) if point["flag"] and level == nearest else "",
            text=name if level == nearest and point["is_first"] else "",
            weight=float(point["time_s"]),
        )
        for level, intensity in intensities.items()
    ]


def _caption(
    points: pd.DataFrame,
    known: dict[Any, dict[str, float]],
    subject: Subject,
    levels: Sequence[str],
) -> str:
    row = points.iloc[0]
    told = ", ".join(
        f"{format_ratio(intensity, 'FLOP/B')} at {level.upper()}"
        for level, intensity in known[points.index[0]].items()
    )
    return joined(
        f"{steps_told(points)} on {subject.device}, each with a mark for every memory"
        f" level whose bytes are known: {short_name(row, with_precision=True)} has {told}.",
        bounds(points[points["is_first"]]),
        _roofless(levels, subject),
        "" if _sees_all(points, subject) else f"{BULK_COPIES}.",
    )
