"""Steps under roofs: on one machine, as the batch grows, and on several machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ridgeline.report.figures.rooflines import (
    MANY,
    Curve,
    Mark,
    RoofSet,
    draw_roofline,
    legend_of_marks,
    list_ceilings,
    make_mark,
    roof_names,
)
from ridgeline.report.figures.style import (
    Drawing,
    Entry,
    colours,
    legend_lines,
    legend_marks,
    legend_precisions,
    marks_by_name,
    precision_mark,
    sample,
)
from ridgeline.report.figures.views import (
    MachineView,
    add_lines,
    append_captures,
    count_bounds,
    count_steps,
    describe_fastest,
    describe_flags,
    find_repeat_ranges,
    join_sentences,
    name_colours,
    select_steps,
    short_name,
)
from ridgeline.report.text import counted, listed
from ridgeline.roofline.points import CAPTURE
from ridgeline.units import format_ratio, si

if TYPE_CHECKING:
    import pandas as pd

SUM_OF_KERNELS = "The time of a capture is the sum of its kernels' times."
MOST_TRAJECTORIES = 10
MODE_LINES = {"train": "-", "infer": (0, (4, 1.5))}
MOST_MACHINES = 7
MACHINES_HEADING = "Steps under the roofs of several machines"


def filter_drawable(points: pd.DataFrame) -> pd.DataFrame:
    """Those with an intensity and a rate."""
    return points[points["ai"].gt(0) & points["attained_flops_per_s"].gt(0)]


def draw_view(
    view: MachineView,
    heading: str,
    points: pd.DataFrame,
    marks: Sequence[Mark],
    groups: Sequence[tuple[str, Sequence[Entry]]],
    sentences: Sequence[str],
    *,
    entries: Sequence[Entry] = (),
    levels: Sequence[str] = ("dram",),
    **more: Any,
) -> Drawing:
    """Marks of these points under the roofs of one machine; `entries` go before those of marks."""
    names = roof_names(points, view.roofs)
    roofs = RoofSet(roofs=view.roofs, names=names, levels=levels, datasheet=view.datasheet)
    ceilings = list_ceilings(points, view.roofs, levels)
    legend = [*groups, ("mark", [*entries, *legend_of_marks(marks)])]
    axes = draw_roofline(heading, view.roofs_label(ceilings), [roofs], marks, legend, **more)
    title = view.title(heading, ceilings)
    return Drawing(axes=axes, title=title, caption=join_sentences(*sentences))


# ---------------------------------------------------------------- one machine


def draw_steps(view: MachineView) -> Drawing | None:
    """A mark for every configuration that ran, and for every imported capture."""
    steps = append_captures(select_steps(view.points, view.runs), view.captures)
    points = filter_drawable(steps)
    if points.empty or not view.has_roofs:
        return None
    is_capture = points["mode"].eq(CAPTURE)
    colour = view.colours_of(points["model"])
    ranges = find_repeat_ranges(view)
    marks = [
        make_mark(
            point,
            colour=colour[point["model"]],
            marker=precision_mark(point["precision"]),
            text=short_name(point) if point["is_first"] else "",
            y_range=ranges.get((point["configuration"], point["provenance"])),
        )
        for point in points.to_dict("records")
    ]
    groups = [
        (name_colours(points), legend_lines(colour)),
        ("precision", legend_precisions(points["precision"])),
    ]
    modes = [word for mode, word in (("train", "training"), ("infer", "inference"))
             if points["mode"].eq(mode).any()]  # fmt: skip
    kinds = [f"{listed(modes)} steps"] if modes else []
    numbers = (
        (points.loc[~is_capture, "configuration"].nunique(), "configuration"),
        (int(is_capture.sum()), "capture"),
    )
    counts = listed(counted(number, what) for number, what in numbers if number)
    sentences = [
        f"{counts} under the roofs of {view.device}.",
        describe_fastest(points),
        count_bounds(points[points["is_first"]]),
        describe_flags(points),
        SUM_OF_KERNELS if is_capture.any() else "",
    ]
    heading = f"{view.device}: {listed([*kinds, *(['captures'] if is_capture.any() else [])])}"
    return draw_view(view, heading, points, marks, groups, sentences)


# ---------------------------------------------------------------- growing batches


def draw_trajectories(view: MachineView) -> Drawing | None:
    """A line through the batches of each setting that ran with at least two."""
    points = find_trajectories(view)
    if points.empty or not view.has_roofs:
        return None
    every = [one.sort_values("batch_size") for _, one in points.groupby("trajectory", sort=False)]
    shown = sorted(every, key=lambda one: -len(one))[:MOST_TRAJECTORIES]
    points = points[points["trajectory"].isin([one["trajectory"].iloc[0] for one in shown])]
    colour = view.colours_of(points["model"])
    marks, curves = [], []
    for one in shown:
        first = one.iloc[0]
        marks += _mark_batches(one, colour[first["model"]], is_crowded=len(points) >= MANY)
        looks = {"color": colour[first["model"]], "linewidth": 1.4, "zorder": 3.5,
                 "linestyle": MODE_LINES.get(first["mode"], "-"), "label": "_way"}  # fmt: skip
        curves.append(Curve(xs=list(one["ai"]), ys=list(one["attained_flops_per_s"]), looks=looks))
    groups = [
        ("model", legend_lines(colour)),
        ("precision", legend_precisions(points["precision"])),
        ("line", [(sample(line=MODE_LINES.get(mode, "-")), f"{mode}; number: batch")
                  for mode in dict.fromkeys(points["mode"])]),
    ]  # fmt: skip
    heading = f"{view.device}: steps as the batch grows"
    return draw_view(view, heading, points, marks, groups,
                     _describe_trajectories(shown, len(every), view), curves=curves,
                     most_labels=len(marks))  # fmt: skip


def _mark_batches(steps: pd.DataFrame, colour: str, *, is_crowded: bool) -> list[Mark]:
    """A mark for each batch; among many, only the ends are named and only the last has a range."""
    marks = [
        make_mark(point, colour=colour, marker=precision_mark(point["precision"]),
                  text=f"{point['batch_size']:.0f}")
        for _, point in steps.iterrows()
    ]  # fmt: skip
    if not is_crowded:
        return marks
    between = [replace(mark, x_range=None, text="") for mark in marks[1:-1]]
    return [replace(marks[0], x_range=None), *between, marks[-1]]


def find_trajectories(view: MachineView) -> pd.DataFrame:
    """Steps that differ from at least one other in nothing but the batch."""
    points = filter_drawable(select_steps(view.points, view.runs))
    if points.empty:
        return points.assign(trajectory=0)
    lines = add_lines(view.runs).set_index("run_id")["line"]
    points = points.assign(line=points["run_id"].map(lines))
    points["trajectory"] = points.groupby(["line", "provenance"], sort=False).ngroup()
    batches = points.groupby("trajectory")["batch_size"].transform("nunique")
    return points[batches.gt(1)]


def _describe_trajectories(shown: list[pd.DataFrame], count: int, view: MachineView) -> list[str]:
    rates = [one["attained_flops_per_s"] for one in shown]
    gains = [float(rate.iloc[-1] / rate.iloc[0]) for rate in rates]
    best = shown[gains.index(max(gains))]
    first, last = best.iloc[0], best.iloc[-1]
    of_all = f"{len(shown)} of " if len(shown) < count else ""
    return [
        f"{of_all}{counted(count, 'setting')} on {view.device} with growing batch."
        f" {last['model']} ({last['precision']}, {last['mode']}) goes from"
        f" {si(first['attained_flops_per_s'], 'FLOP/s')} at batch {first['batch_size']:.0f} to"
        f" {si(last['attained_flops_per_s'], 'FLOP/s')} at batch {last['batch_size']:.0f}, its"
        f" intensity from {format_ratio(first['ai'])} to {format_ratio(last['ai'], 'FLOP/B')}.",
        describe_flags(*shown),
    ]


# ---------------------------------------------------------------- several machines


def draw_machines(views: Sequence[MachineView]) -> Drawing | None:
    """The highest roof that was used on each machine, its fp32, its DRAM, and its steps."""
    pairs = [(view, filter_drawable(select_steps(view.points, view.runs)))
             for view in views if view.has_roofs]  # fmt: skip
    pairs = [(view, points) for view, points in pairs if len(points)][:MOST_MACHINES]
    if len(pairs) < 2:
        return None
    colour = colours(view.name for view, _ in pairs)
    shape = marks_by_name(model for _, points in pairs for model in points["model"])
    marks = [
        make_mark(point, colour=colour[view.name], marker=shape[point["model"]],
                  text=short_name(point, with_precision=True) if point["is_first"] else "")
        for view, points in pairs
        for _, point in points.iterrows()
    ]  # fmt: skip
    sets = [RoofSet(roofs=view.roofs, names=_end_roofs(view, points), colour=colour[view.name])
            for view, points in pairs]  # fmt: skip
    drawn = [[*one.names, "dram"] for one in sets]
    sources = dict.fromkeys(view.roofs_label(ceilings).split(";")[0]
                            for (view, _), ceilings in zip(pairs, drawn, strict=True))  # fmt: skip
    subtitle = "roofs: " + "; ".join(
        f"{view.device}: {view.roofs.source}{view.clock_label(ceilings)}"
        for (view, _), ceilings in zip(pairs, drawn, strict=True)
    )
    groups = [
        ("machine", legend_lines({view.device: colour[view.name] for view, _ in pairs})),
        ("model", legend_marks(shape)),
        ("mark", legend_of_marks(marks)),
    ]
    axes = draw_roofline(MACHINES_HEADING, subtitle, sets, marks, groups, height_in=4.8)
    best = [
        f"{view.device} reaches {si(row['attained_flops_per_s'], 'FLOP/s')}"
        f" ({short_name(row, with_precision=True)})"
        for view, points in pairs
        for _, row in points.nlargest(1, "attained_flops_per_s").iterrows()
    ]
    every = [points for _, points in pairs]
    caption = join_sentences(
        f"{count_steps(*every)} on {counted(len(pairs), 'machine')}: {'; '.join(best)}.",
        *map(describe_flags, every),
    )
    title = f"{MACHINES_HEADING} ({'; '.join(sources)})"
    return Drawing(axes=axes, title=title, caption=caption)


def _end_roofs(view: MachineView, points: pd.DataFrame) -> list[str]:
    """The highest roof that was used, and the lowest, which is that of fp32."""
    names = roof_names(points, view.roofs)
    return list(dict.fromkeys([*names[:1], *names[-1:]]))
