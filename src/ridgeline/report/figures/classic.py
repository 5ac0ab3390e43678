"""Steps, layers and kernels of a machine under its roofs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ridgeline.report.figures import marks as points_on
from ridgeline.report.figures import roofs as roofs_on
from ridgeline.report.figures.board import Board
from ridgeline.report.figures.configurations import (
    chosen_steps,
    repeat_range,
    short_name,
    with_captures,
)
from ridgeline.report.figures.figure import Drawing
from ridgeline.report.figures.marks import Mark, mark_of
from ridgeline.report.figures.style import (
    Entry,
    canvas_of,
    colours,
    legend,
    legend_lines,
    legend_marks,
    new_axes,
    precision_mark,
    roofline_axes,
    sample,
)
from ridgeline.report.figures.subjects import Subject
from ridgeline.report.figures.words import (
    bounds,
    fastest,
    flagged,
    joined,
    models_heading,
    unplaced,
)
from ridgeline.report.words import counted, listed
from ridgeline.roofline.captured import CAPTURE
from ridgeline.units import format_percent, format_time

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

MOST_LAYER_LABELS = 8
MOST_KINDS = 7
LONGEST_LAYER = 24
MOST_PIECES = 1_000  # in one picture
SUM_OF_KERNELS = "The time of a capture is the sum of its kernels' times."
SMALLEST_PT, LARGEST_PT = 3.0, 11.0


def drawn_points(points: pd.DataFrame) -> pd.DataFrame:
    """Those that have a place: an intensity and a rate."""
    return points[points["ai"].gt(0) & points["attained_flops_per_s"].gt(0)]


def draw_steps(subject: Subject) -> Drawing | None:
    """A mark for every configuration that ran, and for every imported capture."""
    steps = with_captures(chosen_steps(subject.points, subject.runs), subject.captures)
    points = drawn_points(steps)
    if points.empty or not subject.has_roofs:
        return None
    heading = f"{subject.device}: {_what(points)}"
    colour = subject.colours_of(points["model"])
    ranges = _ranges(subject)
    marks = [
        mark_of(
            point,
            colour=colour[point["model"]],
            marker=precision_mark(point["precision"]),
            text=short_name(point) if point["is_first"] else "",
            y_range=ranges.get((point["configuration"], point["provenance"])),
        )
        for point in points.to_dict("records")
    ]
    groups = [
        (models_heading(points), legend_lines(colour)),
        ("precision", precision_entries(points["precision"])),
        ("mark", points_on.legend_of(marks, repeats=True)),
    ]
    axes = draw_under_roofs(subject, points, marks, groups, heading=heading)
    caption = joined(
        f"{_counted(points)} under the roofs of {subject.device}.",
        fastest(points, lambda row: short_name(row, with_precision=True)),
        bounds(points[points["is_first"]]),
        flagged(points),
        SUM_OF_KERNELS if points["mode"].eq(CAPTURE).any() else "",
    )
    title = subject.title(heading, roofs_on.drawn_ceilings(points, subject.roofs))
    return Drawing(canvas=canvas_of(axes), title=title, caption=caption)


def _what(points: pd.DataFrame) -> str:
    """`training and inference steps and captures`."""
    kinds = _kinds_of_step(points)
    told = [f"{listed(kinds)} steps"] if kinds else []
    return listed([*told, *(["captures"] if points["mode"].eq(CAPTURE).any() else [])])


def _counted(points: pd.DataFrame) -> str:
    is_capture = points["mode"].eq(CAPTURE)
    steps = points.loc[~is_capture, "configuration"].nunique()
    told = [counted(steps, "configuration")] if steps else []
    captures = int(is_capture.sum())
    return listed([*told, *([counted(captures, "capture")] if captures else [])])


def _ranges(subject: Subject) -> dict[tuple[int, str], tuple[float, float]]:
    """Lowest and highest rate of repeats; a capture has none."""
    if not len(subject.runs) or not len(subject.points):
        return {}
    table = repeat_range(subject.points, subject.runs)
    return {
        (key[0], key[1]): (low, high)
        for key, low, high in zip(table.index, table["min"], table["max"], strict=True)
    }


def _kinds_of_step(points: pd.DataFrame) -> list[str]:
    there = set(points["mode"])
    return [word for mode, word in (("train", "training"), ("infer", "inference")) if mode in there]


def precision_entries(precisions: Any) -> list[Entry]:
    return legend_marks({name: precision_mark(name) for name in precisions if name})


def draw_under_roofs(
    subject: Subject,
    points: pd.DataFrame,
    marks: Sequence[Mark],
    groups: Sequence[tuple[str, Sequence[Entry]]],
    *,
    heading: str,
    levels: Sequence[str] = ("dram",),
    most_labels: int | None = None,
    also: Callable[[Axes, Board | None], None] = lambda axes, board: None,
) -> Axes:
    """Roofs, marks, legend and labels. `also` draws more, and labels it once there is a board."""
    names = roofs_on.roof_names(points, subject.roofs)
    wide = roofs_on.outline(subject.roofs, names, low=1e-9, high=1e9, levels=levels)
    ridges = [x for x, _ in wide.ridges]
    x, y = roofs_on.limits(
        ridges,
        [subject.roofs.flats[name] for name in names],
        marks_x=[end for mark in marks for end in (mark.x, *(mark.x_range or ()))],
        marks_y=[end for mark in marks for end in (mark.y, *(mark.y_range or ()))],
    )
    drawn = roofs_on.drawn_ceilings(points, subject.roofs, levels)
    axes = new_axes(heading, subject.roofs_told(drawn))
    roofline_axes(axes, x=x, y=y)
    shape = roofs_on.outline(subject.roofs, names, low=x[0], high=x[1], levels=levels,
                             published=subject.datasheet)  # fmt: skip
    roofs_on.draw(axes, shape, is_dashed=subject.roofs.source == "datasheet")
    sheet = None
    if subject.datasheet is not None:
        beside = [] if roofs_on.is_one_for_all(subject.roofs) else names
        sheet = roofs_on.outline(subject.datasheet, beside, low=x[0], high=x[1])
        roofs_on.draw_beside(axes, sheet)
    points_on.draw(axes, marks)
    also(axes, None)
    legend(axes, groups)
    board = Board(axes)
    roofs_on.block(board, shape)
    if sheet is not None:
        roofs_on.block(board, sheet, is_dashed=True)
    points_on.block(board, marks)
    also(axes, board)
    roofs_on.label(board, shape)
    points_on.label(board, marks, most=most_labels)
    return axes


def draw_layers(subject: Subject) -> Drawing | None:
    """The layers of the slowest run that timed them."""
    return _draw_pieces(subject, "layer")


def draw_kernels(subject: Subject) -> Drawing | None:
    """The kernels of the slowest run that has their counters; without one, of a capture."""
    return _draw_pieces(subject, "kernel")


def _draw_pieces(subject: Subject, grain: str) -> Drawing | None:
    run = slowest_run(subject, grain)
    is_capture = run is None and grain == "kernel"
    if is_capture:
        run = longest_capture(subject)
    if run is None or not subject.has_roofs:
        return None
    every = pieces_of(subject, run, grain, is_capture=is_capture)
    placed = drawn_points(every)
    points = placed.nlargest(MOST_PIECES, "time_s") if len(placed) > MOST_PIECES else placed
    kind = _kinds(points)
    colour = colours(kind.value_counts().index)
    longest_s, step_s = points["time_s"].max(), run["step_median_s"]
    marks = [
        mark_of(
            point,
            colour=colour[kind.loc[index]],
            marker="o",
            text=short_piece(str(point["name"])),
            size_pt=SMALLEST_PT + (LARGEST_PT - SMALLEST_PT) * (point["time_s"] / longest_s) ** 0.5,
        )
        for index, point in points.iterrows()
    ]
    entries = legend_lines(colour)
    name = short_name(run, with_precision=True)
    heading = f"{subject.device}: {grain}s of {name}"
    size = (sample(marker="o", is_filled=False, size=LARGEST_PT),
            f"size: time, at most {format_time(longest_s)}")  # fmt: skip
    groups = [("kind", entries), ("mark", [size, *points_on.legend_of(marks)])]
    axes = draw_under_roofs(subject, points, marks, groups, heading=heading,
                            most_labels=MOST_LAYER_LABELS)  # fmt: skip
    slowest = points.nlargest(1, "time_s").iloc[0]
    is_both = grain == "layer" and points["provenance"].nunique() > 1
    told = points[points["provenance"].eq("counter")] if is_both else points
    caption = joined(
        f"{counted(len(told), grain)} of {name} on {subject.device}"
        f"{', by their counters and by the graph' if is_both else ''}"
        f"{_which(points, grain, is_capture=is_capture)}; the slowest,"
        f" {short_piece(str(slowest['name']))}, takes {format_time(slowest['time_s'])}"
        f" ({format_percent(slowest['time_s'] / step_s)} of the"
        f" {'capture' if is_capture else 'step'}).",
        unplaced(every) if grain == "kernel" else "",
        f"Of the others, those that take longest are drawn, and {len(placed) - len(points)} are"
        " not."
        if len(points) < len(placed)
        else "",
        bounds(told),
        flagged(points),
    )
    title = subject.title(heading, roofs_on.drawn_ceilings(points, subject.roofs))
    return Drawing(canvas=canvas_of(axes), title=title, caption=caption)


def _which(points: pd.DataFrame, grain: str, *, is_capture: bool) -> str:
    """What is one kernel: tables have one for each name."""
    if grain != "kernel":
        return ""
    launches = int(points["launches"].fillna(1).sum())
    alike = "; those of the same name, grid and block are one kernel" if is_capture else ""
    return f" ({counted(launches, 'launch', 'launches')}{alike})"


def slowest_run(subject: Subject, grain: str) -> Any | None:
    """The run with the longest step among those that have pieces of this grain; the last of them
    where several are as slow."""
    points = drawn_points(subject.points)
    with_pieces = points.loc[points["grain"].eq(grain), "run_id"].unique()
    if not len(subject.runs) or not len(points):
        return None
    runs = subject.runs[subject.runs["run_id"].isin(with_pieces)]
    if runs.empty:
        return None
    return runs.sort_values(["step_median_s", "run_id"]).iloc[-1]


def longest_capture(subject: Subject) -> dict[str, Any] | None:
    """The capture whose kernels take longest, as if it were a run."""
    points = drawn_points(subject.captures) if len(subject.captures) else subject.captures
    if not len(points) or not points["grain"].eq("kernel").any():
        return None
    whole = points[points["grain"].eq(CAPTURE)].sort_values(["time_s", "run_id"])
    row = {str(name): value for name, value in whole.iloc[-1].items()} if len(whole) else None
    return row and {**row, "step_median_s": row["time_s"]}


def pieces_of(subject: Subject, run: Any, grain: str, *, is_capture: bool = False) -> pd.DataFrame:
    """The pieces of a run, both directions of a layer as one."""
    points = subject.captures if is_capture else subject.points
    points = points[points["run_id"].eq(run["run_id"]) & points["grain"].eq(grain)]
    return points[points["phase"].eq("all")] if grain == "layer" else points


def _kinds(points: pd.DataFrame) -> Any:
    """What a piece is, the rare kinds as one."""
    kind = points["kind"].where(points["kind"].ne(""), "other")
    time_s = points["time_s"].groupby(kind).sum().sort_values(ascending=False)
    common = time_s.index[: MOST_KINDS - 1] if len(time_s) > MOST_KINDS else time_s.index
    return kind.where(kind.isin(common), "other")


def short_piece(name: str) -> str:
    """A layer's or a kernel's name, short enough to stand at its mark."""
    name = re.sub(r"<.*", "", name).split("::")[-1].removeprefix("void ").strip()
    if len(name) <= LONGEST_LAYER:
        return name
    parts = name.split(".")
    while len(parts) > 1 and len(".".join(parts)) >= LONGEST_LAYER:
        parts = parts[1:]
    return "…" + ".".join(parts)[-LONGEST_LAYER + 1 :]
