"""The way of a step under the roofs as its batch grows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ridgeline.report.figures import marks as points_on
from ridgeline.report.figures.board import Board
from ridgeline.report.figures.classic import draw_under_roofs, drawn_points, precision_entries
from ridgeline.report.figures.configurations import chosen_steps, lines_of
from ridgeline.report.figures.figure import Drawing
from ridgeline.report.figures.marks import MANY, Mark, mark_of
from ridgeline.report.figures.roofs import drawn_ceilings
from ridgeline.report.figures.style import (
    canvas_of,
    legend_lines,
    precision_mark,
    sample,
)
from ridgeline.report.figures.subjects import Subject
from ridgeline.report.figures.words import flagged, joined
from ridgeline.report.words import counted
from ridgeline.units import format_ratio, si

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

MOST_WAYS = 10
LINES = {"train": "-", "infer": (0, (4, 1.5))}


def draw_trajectories(subject: Subject) -> Drawing | None:
    """A line through the batches of each setting that ran with at least two."""
    points = trajectories(subject)
    if points.empty or not subject.has_roofs:
        return None
    ways = [way.sort_values("batch_size") for _, way in points.groupby("trajectory", sort=False)]
    found = len(ways)
    ways = sorted(ways, key=lambda way: -len(way))[:MOST_WAYS]
    points = points[points["trajectory"].isin([way["trajectory"].iloc[0] for way in ways])]
    colour = subject.colours_of(points["model"])
    marks = [mark for way in ways for mark in _marks(way, colour, is_crowded=len(points) >= MANY)]

    def lines(axes: Axes, board: Board | None) -> None:
        for way in ways:
            xs, ys = list(way["ai"]), list(way["attained_flops_per_s"])
            if board is not None:
                board.block_bar(xs, ys)
                continue
            first = way.iloc[0]
            axes.plot(xs, ys, color=colour[first["model"]], linewidth=1.4, zorder=3.5,
                      linestyle=LINES.get(first["mode"], "-"), label="_trajectory")  # fmt: skip

    modes = list(dict.fromkeys(points["mode"]))
    heading = f"{subject.device}: steps as the batch grows"
    groups = [
        ("model", legend_lines(colour)),
        ("precision", precision_entries(points["precision"])),
        ("line", [(sample(line=LINES.get(mode, "-")), f"{mode}; number: batch") for mode in modes]),
        ("mark", points_on.legend_of(marks)),
    ]
    axes = draw_under_roofs(subject, points, marks, groups, heading=heading, also=lines,
                            most_labels=len(marks))  # fmt: skip
    title = subject.title(heading, drawn_ceilings(points, subject.roofs))
    return Drawing(canvas=canvas_of(axes), title=title,
                   caption=_caption(ways, found, subject))  # fmt: skip


def _marks(way: pd.DataFrame, colour: dict[str, str], *, is_crowded: bool) -> list[Mark]:
    """A mark for each batch; among many, only the ends are named and only the last has a range."""
    found = [
        mark_of(
            point,
            colour=colour[point["model"]],
            marker=precision_mark(point["precision"]),
            text=f"{point['batch_size']:.0f}",
        )
        for _, point in way.iterrows()
    ]
    if not is_crowded:
        return found
    first, *between, last = found
    return [
        replace(first, x_range=None),
        *(replace(mark, x_range=None, text="") for mark in between),
        last,
    ]


def trajectories(subject: Subject) -> pd.DataFrame:
    """Steps that differ from at least one other in nothing but the batch."""
    points = drawn_points(chosen_steps(subject.points, subject.runs))
    if points.empty:
        return points.assign(trajectory=0)
    lines = lines_of(subject.runs).set_index("run_id")["line"]
    points = points.assign(line=points["run_id"].map(lines))
    points["trajectory"] = points.groupby(["line", "provenance"], sort=False).ngroup()
    batches = points.groupby("trajectory")["batch_size"].transform("nunique")
    return points[batches.gt(1)]


def _caption(ways: list[pd.DataFrame], found: int, subject: Subject) -> str:
    import pandas as pd

    gains = {
        place: way["attained_flops_per_s"].iloc[-1] / way["attained_flops_per_s"].iloc[0]
        for place, way in enumerate(ways)
    }
    way = ways[max(gains, key=lambda place: gains[place])]
    first, last = way.iloc[0], way.iloc[-1]
    of_all = f"{len(ways)} of " if len(ways) < found else ""
    return joined(
        f"{of_all}{counted(found, 'setting')} on {subject.device} with growing batch."
        f" {last['model']} ({last['precision']}, {last['mode']}) goes from"
        f" {si(first['attained_flops_per_s'], 'FLOP/s')} at batch {first['batch_size']:.0f} to"
        f" {si(last['attained_flops_per_s'], 'FLOP/s')} at batch {last['batch_size']:.0f}, its"
        f" intensity from {format_ratio(first['ai'])} to {format_ratio(last['ai'], 'FLOP/B')}.",
        flagged(pd.concat(ways)),
    )
