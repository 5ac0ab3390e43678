"""The phases of a training step under the roofs, apart.

Forward, backward and optimizer have a time each. The two halves of backward have none: the gradient
of the input and that of the weights are ticks on the roof, at the rate that they could reach.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ridgeline.report.figures import marks as points_on
from ridgeline.report.figures.board import Board
from ridgeline.report.figures.classic import draw_under_roofs, drawn_points
from ridgeline.report.figures.configurations import chosen_points, names_of, short_name
from ridgeline.report.figures.figure import Drawing
from ridgeline.report.figures.marks import VERTICAL, Mark, mark_of
from ridgeline.report.figures.roofs import drawn_ceilings
from ridgeline.report.figures.style import (
    Entry,
    canvas_of,
    colours,
    legend_lines,
    legend_marks,
    sample,
)
from ridgeline.report.figures.subjects import Subject
from ridgeline.report.figures.words import flagged, joined
from ridgeline.report.words import counted
from ridgeline.roofline.roofs import Roofs
from ridgeline.units import format_percent, format_time

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

PHASE_MARKS = {"forward": ">", "backward": "<", "optimizer": "s"}
HALVES = {"input-grad": VERTICAL, "weight-grad": "x"}
HALF_PT: dict[Any, float] = {VERTICAL: 10.0, "x": 5.5}
MOST_STEPS = 5


def draw_phases(subject: Subject) -> Drawing | None:
    """Of each network and precision, the phases of its largest batch."""
    points = chosen_points(subject.points, subject.runs)
    points = points[points["mode"].eq("train") & points["grain"].eq("phase")]
    chosen = _largest_batches(points)
    points = points[points["configuration"].isin(chosen)]
    timed = drawn_points(points[points["phase"].isin(PHASE_MARKS)])
    if timed.empty or not subject.has_roofs:
        return None
    names = names_of(points)
    colour = colours(names[index] for index in timed.index)
    marks = [
        mark_of(
            point,
            colour=colour[names[index]],
            marker=PHASE_MARKS[point["phase"]],
            text=names[index] if point["phase"] == "backward" else "",
        )
        for index, point in timed.iterrows()
    ]
    halves = [
        half_mark(point, subject.roofs, colour.get(names[index], ""))
        for index, point in points[points["phase"].isin(HALVES) & points["ai"].gt(0)].iterrows()
    ]
    halves = [half for half in halves if half.colour and half.y > 0]

    def ticks(axes: Axes, board: Board | None) -> None:
        if board is None:
            _draw_halves(axes, halves)
            return
        for half in halves:
            board.block_mark(half.x, half.y, size_pt=HALF_PT[half.marker])

    heading = f"{subject.device}: the phases of training"
    groups = [
        ("step", legend_lines(colour)),
        ("phase", _phase_entries(timed)),
        ("time not measured apart", _half_entries(halves)),
        ("mark", points_on.legend_of(marks)),
    ]
    axes = draw_under_roofs(subject, timed, marks, groups, heading=heading, also=ticks)
    title = subject.title(heading, drawn_ceilings(timed, subject.roofs))
    return Drawing(canvas=canvas_of(axes), title=title,
                   caption=_caption(timed, subject))  # fmt: skip


def _largest_batches(points: pd.DataFrame) -> list[Any]:
    """Configurations, the largest batch of each network and precision; the slowest of them."""
    timed = points[points["phase"].isin(PHASE_MARKS) & points["time_s"].notna()]
    if timed.empty:
        return []
    by = ["network", "precision", "batch_size", "configuration"]
    steps = timed.groupby(by)["time_s"].sum().reset_index()
    steps = steps.sort_values(["batch_size", "time_s"], ascending=False)
    largest = steps.drop_duplicates(["network", "precision"])
    return list(largest.nlargest(MOST_STEPS, "time_s")["configuration"])


def half_mark(point: Any, roofs: Roofs, colour: str) -> Mark:
    """A piece without a time: on its roof, at its intensity."""
    peaks = [float(point["peak_flops_per_s"]), roofs.bandwidth.get("dram", 0) * point["ai"]]
    known = [peak for peak in peaks if peak > 0]
    return Mark(x=float(point["ai"]), y=min(known, default=0.0), colour=colour,
                marker=HALVES[point["phase"]])  # fmt: skip


def _draw_halves(axes: Axes, halves: list[Mark]) -> None:
    for number, half in enumerate(halves):
        tick = axes.plot([half.x], [half.y], marker=half.marker, linestyle="none", zorder=3.5,
                         markersize=HALF_PT[half.marker], markeredgewidth=1.6,
                         color=half.colour)  # fmt: skip
        tick[0].set_gid(f"half-{number}")


def _phase_entries(timed: pd.DataFrame) -> list[Entry]:
    present = set(timed["phase"])
    return legend_marks({name: m for name, m in PHASE_MARKS.items() if name in present})


def _half_entries(halves: list[Mark]) -> list[Entry]:
    used = {half.marker for half in halves}
    return [
        (sample(marker=marker, size=HALF_PT[marker]), f"{name}, on its roof")
        for name, marker in HALVES.items()
        if marker in used
    ]


def _caption(timed: pd.DataFrame, subject: Subject) -> str:
    slowest = timed.nlargest(1, "time_s").iloc[0]
    same = timed[timed["run_id"].eq(slowest["run_id"])]
    is_both = same["provenance"].nunique() > 1
    same = same[same["provenance"].eq("counter")] if is_both else same
    told = ", ".join(
        f"{row['phase']} {format_time(row['time_s'])} ({format_percent(row['efficiency'])} of its"
        f" roof)"
        for _, row in same.iterrows()
    )
    return joined(
        f"The phases of {counted(timed['run_id'].nunique(), 'training step')} on {subject.device}."
        f" {short_name(slowest, with_precision=True)}{', by counters' if is_both else ''}: {told}.",
        flagged(timed),
    )
