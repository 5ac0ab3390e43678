"""Steps and their parts under roofs: what is chosen for each kind of figure, and its marks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ridgeline.report.figures.labels import Mark, legend_of_marks, make_mark
from ridgeline.report.figures.rooflines import RoofSet, draw_roofline, roof_names
from ridgeline.report.figures.style import (
    Drawing,
    Entry,
    Groups,
    colours,
    legend_lines,
    legend_precisions,
    precision_mark,
    sample,
)
from ridgeline.report.figures.views import (
    MachineView,
    count_steps,
    describe_points,
    filter_drawable,
    name_colours,
    name_modes,
    select_steps,
    short_name,
    shorten_name,
)
from ridgeline.report.text import counted, listed
from ridgeline.roofline.points import CAPTURE
from ridgeline.units import format_time

if TYPE_CHECKING:
    import pandas as pd

SUM_OF_KERNELS = "The time of a capture is the sum of its kernels' times."
MOST_NAMED = 8  # layers or kernels
MOST_DRAWN = 1_000  # layers or kernels in one picture
SMALLEST_PT, LARGEST_PT = 3.0, 11.0


def draw_view(
    view: MachineView,
    heading: str,
    points: pd.DataFrame,
    marks: Sequence[Mark],
    groups: Groups,
    text: str,
    *notes: str,
    entries: Sequence[Entry] = (),
    **more: Any,
) -> Drawing:
    """Marks of these points under the roofs of one machine; `entries` go before those of marks."""
    names = roof_names(points, view.roofs)
    roofs = RoofSet(roofs=view.roofs, names=names, datasheet=view.datasheet)
    ceilings = [*names, "dram"]
    legend = [*groups, ("mark", [*entries, *legend_of_marks(marks)])]
    axes = draw_roofline(heading, view.roofs_label(ceilings), roofs, marks, legend, **more)
    caption = describe_points(text, view, points, *notes)
    return Drawing(axes=axes, title=view.title(heading, ceilings), caption=caption)


# ---------------------------------------------------------------- one machine


def draw_steps(view: MachineView) -> Drawing | None:
    """A mark for every configuration that ran, and for every imported capture."""
    points = filter_drawable(select_steps(view, CAPTURE))
    if points.empty or not view.roofs.is_known:
        return None
    is_capture = points["mode"].eq(CAPTURE)
    colour = view.colours_of(points["model"])
    marks = [
        make_mark(point, colour=colour[point["model"]], marker=precision_mark(point["precision"]),
                  text=short_name(point) if point["is_first"] else "")
        for point in points.to_dict("records")
    ]  # fmt: skip
    groups = [
        (name_colours(points), legend_lines(colour)),
        ("precision", legend_precisions(points["precision"])),
    ]
    modes = name_modes(points)
    kinds = [f"{modes} steps"] if modes else []
    heading = f"{view.device}: {listed([*kinds, *(['captures'] if is_capture.any() else [])])}"
    return draw_view(view, heading, points, marks, groups, count_steps(points, "configuration"),
                     SUM_OF_KERNELS if is_capture.any() else "")  # fmt: skip


# ---------------------------------------------------------------- layers and kernels


def draw_layers(view: MachineView) -> Drawing | None:
    """The layers of the slowest run that timed them."""
    return _draw_scope(view, "layer")


def draw_kernels(view: MachineView) -> Drawing | None:
    """The kernels of the slowest run that has their counters; without one, of a capture."""
    return _draw_scope(view, "kernel")


def _draw_scope(view: MachineView, scope: str) -> Drawing | None:
    every = view.points[view.points["grain"].eq(scope)]
    every = every[every["phase"].eq("all")] if scope == "layer" else every
    whole = _find_slowest(view, filter_drawable(every))
    if whole is None or not view.roofs.is_known:
        return None
    every = every[every["run_id"].eq(whole["run_id"])]
    points = filter_drawable(every).nlargest(MOST_DRAWN, "time_s")
    kind = points["kind"].mask(points["kind"].eq(""), "other")
    colour, longest_s = colours(kind), float(points["time_s"].max())
    marks = [
        make_mark(point, colour=colour[str(point["kind"] or "other")], marker="o",
                  text=shorten_name(str(point["name"])),
                  size_pt=SMALLEST_PT
                  + (LARGEST_PT - SMALLEST_PT) * (point["time_s"] / longest_s) ** 0.5)
        for _, point in points.iterrows()
    ]  # fmt: skip
    size = (sample(marker="o", is_filled=False, size=LARGEST_PT),
            f"size: time, at most {format_time(longest_s)}")  # fmt: skip
    name, launches = short_name(whole, with_precision=True), int(points["launches"].fillna(1).sum())
    how = f" ({counted(launches, 'launch', 'launches')})" if scope == "kernel" else ""
    number = len(points) if scope == "kernel" else points["name"].nunique()
    return draw_view(view, f"{view.device}: {scope}s of {name}", points, marks,
                     [("kind", legend_lines(colour))], f"{counted(number, scope)} of {name}{how}",
                     entries=[size], most=MOST_NAMED)  # fmt: skip


def _find_slowest(view: MachineView, parts: pd.DataFrame) -> Any | None:
    """The longest step that has these parts; without one, the longest capture."""
    whole = view.points[view.points["run_id"].isin(parts["run_id"])]
    for scope in ("step", CAPTURE):
        steps = whole[whole["grain"].eq(scope)].sort_values(["time_s", "run_id"])
        if len(steps):
            return steps.iloc[-1]
    return None
