"""Several machines in one picture: their roofs and the steps that ran there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ridgeline.report.figures import marks as points_on
from ridgeline.report.figures import roofs as roofs_on
from ridgeline.report.figures.board import Board
from ridgeline.report.figures.classic import drawn_points
from ridgeline.report.figures.configurations import chosen_steps, short_name
from ridgeline.report.figures.figure import Drawing
from ridgeline.report.figures.marks import Mark, mark_of
from ridgeline.report.figures.style import (
    canvas_of,
    colours,
    legend,
    legend_lines,
    legend_marks,
    new_axes,
    roofline_axes,
)
from ridgeline.report.figures.style import marks as mark_shapes
from ridgeline.report.figures.subjects import Subject
from ridgeline.report.figures.words import flagged, joined, steps_told
from ridgeline.report.words import counted
from ridgeline.units import si

if TYPE_CHECKING:
    import pandas as pd

MOST_MACHINES = 7
ROOFS_EACH = 2
HEADING = "Steps under the roofs of several machines"


def draw_machines(subjects: Sequence[Subject]) -> Drawing | None:
    """The highest roof that was used on each machine, its fp32, its DRAM, and its steps."""
    found = [(subject, _steps(subject)) for subject in subjects if subject.has_roofs]
    found = [(subject, points) for subject, points in found if len(points)][:MOST_MACHINES]
    if len(found) < 2:
        return None
    colour = colours(subject.name for subject, _ in found)
    shape = mark_shapes(model for _, points in found for model in points["model"])
    marks = [
        mark_of(point, colour=colour[subject.name], marker=shape[point["model"]],
                text=short_name(point, with_precision=True) if point["is_first"] else "")
        for subject, points in found
        for _, point in points.iterrows()
    ]  # fmt: skip
    names = {subject.name: _roofs(subject, points) for subject, points in found}
    x, y = _limits(found, names, marks)
    drawn = {name: [*flats, "dram"] for name, flats in names.items()}
    told = dict.fromkeys(s.roofs_told(drawn[s.name]).split(";")[0] for s, _ in found)
    axes = new_axes(HEADING, _subtitle(found, drawn), height_in=4.8)
    roofline_axes(axes, x=x, y=y)
    outlines = {
        subject.name: roofs_on.outline(subject.roofs, names[subject.name], low=x[0], high=x[1])
        for subject, _ in found
    }
    for name, lines in outlines.items():
        roofs_on.draw(axes, lines, colour=colour[name])
    points_on.draw(axes, marks)
    machine_colours = {subject.device: colour[subject.name] for subject, _ in found}
    legend(axes, [
        ("machine", legend_lines(machine_colours)),
        ("model", legend_marks(shape)),
        ("mark", points_on.legend_of(marks)),
    ])  # fmt: skip
    board = Board(axes)
    for lines in outlines.values():
        roofs_on.block(board, lines)
    points_on.block(board, marks)
    for name, lines in outlines.items():
        roofs_on.label(board, lines, colour=colour[name])
    points_on.label(board, marks)
    return Drawing(canvas=canvas_of(axes), title=f"{HEADING} ({'; '.join(told)})",
                   caption=_caption(found))  # fmt: skip


def _steps(subject: Subject) -> pd.DataFrame:
    return drawn_points(chosen_steps(subject.points, subject.runs))


def _roofs(subject: Subject, points: pd.DataFrame) -> list[str]:
    """The highest roof that was used, and the lowest, which is that of fp32."""
    names = roofs_on.roof_names(points, subject.roofs)
    return [*names[:1], *names[-1:]][:ROOFS_EACH] if len(names) > 1 else names


def _subtitle(
    found: Sequence[tuple[Subject, pd.DataFrame]], drawn: Mapping[str, Sequence[str]]
) -> str:
    told = [
        f"{subject.device}: {subject.roofs.source}{subject.clock_told(drawn[subject.name])}"
        for subject, _ in found
    ]
    return "roofs: " + "; ".join(told)


def _limits(
    found: Sequence[tuple[Subject, pd.DataFrame]], names: dict[str, list[str]], marks: list[Mark]
) -> tuple[tuple[float, float], tuple[float, float]]:
    ridges: list[float] = []
    rates: list[float] = []
    for subject, _ in found:
        lines = roofs_on.outline(subject.roofs, names[subject.name], low=1e-9, high=1e9)
        ridges += [x for x, _ in lines.ridges]
        rates += [subject.roofs.flats[name] for name in names[subject.name]]
    xs = [end for mark in marks for end in (mark.x, *(mark.x_range or ()))]
    return roofs_on.limits(ridges, rates, marks_x=xs, marks_y=[mark.y for mark in marks])


def _caption(found: Sequence[tuple[Subject, pd.DataFrame]]) -> str:
    told = []
    for subject, points in found:
        best = points.nlargest(1, "attained_flops_per_s").iloc[0]
        rate = si(best["attained_flops_per_s"], "FLOP/s")
        told.append(f"{subject.device} reaches {rate} ({short_name(best, with_precision=True)})")
    every = [points for _, points in found]
    return joined(
        f"{steps_told(*every)} on {counted(len(found), 'machine')}: {'; '.join(told)}.",
        *(flagged(points) for points in every),
    )
