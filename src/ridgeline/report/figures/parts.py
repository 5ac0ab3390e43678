"""Parts of a step under roofs: its layers or kernels, its bytes by memory level, its phases.

Bytes: counters know those of every level. A static point knows them at the last cache, which all
operators pass, and those that DRAM must deliver although the cache helps.

Phases: forward, backward and optimizer have a time each. The two halves of backward have none: the
gradient of the input and that of the weights are ticks on the roof, at the rate that they could
reach.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ridgeline.captures.quantities import BULK_COPIES
from ridgeline.report.figures.rooflines import (
    VERTICAL,
    Curve,
    Mark,
    make_mark,
)
from ridgeline.report.figures.steps import draw_view, filter_drawable
from ridgeline.report.figures.style import (
    PALE,
    Drawing,
    colours,
    legend_lines,
    legend_marks,
    sample,
)
from ridgeline.report.figures.views import (
    MachineView,
    append_captures,
    count_bounds,
    count_steps,
    describe_flags,
    describe_undrawn,
    name_colours,
    select_points,
    select_steps,
    short_name,
    short_names,
)
from ridgeline.report.text import counted, listed
from ridgeline.roofline.points import CAPTURE
from ridgeline.roofline.roofs import LEVELS, Roofs
from ridgeline.units import format_percent, format_ratio, format_time

if TYPE_CHECKING:
    import pandas as pd

MOST_NAMED = 8  # layers or kernels
MOST_KINDS = 7
LONGEST_NAME = 24
MOST_DRAWN = 1_000  # layers or kernels in one picture
SMALLEST_PT, LARGEST_PT = 3.0, 11.0
LEVEL_MARKS = {"dram": "o", "l3": "s", "l2": "D", "l1": "^"}
MOST_STEPS = 6  # with their levels
PHASE_MARKS = {"forward": ">", "backward": "<", "optimizer": "s"}
HALVES = {"input-grad": VERTICAL, "weight-grad": "x"}
HALF_PT: dict[Any, float] = {VERTICAL: 10.0, "x": 5.5}
MOST_TRAINED = 5  # steps with their phases


# ---------------------------------------------------------------- layers and kernels


def draw_layers(view: MachineView) -> Drawing | None:
    """The layers of the slowest run that timed them."""
    return _draw_scope(view, "layer")


def draw_kernels(view: MachineView) -> Drawing | None:
    """The kernels of the slowest run that has their counters; without one, of a capture."""
    return _draw_scope(view, "kernel")


def _draw_scope(view: MachineView, scope: str) -> Drawing | None:
    run = _find_slowest_run(view, scope)
    is_capture = run is None and scope == "kernel"
    if is_capture:
        run = _find_longest_capture(view)
    if run is None or not view.has_roofs:
        return None
    every = view.captures if is_capture else view.points
    every = every[every["run_id"].eq(run["run_id"]) & every["grain"].eq(scope)]
    every = every[every["phase"].eq("all")] if scope == "layer" else every
    drawable = filter_drawable(every)
    points = drawable.nlargest(MOST_DRAWN, "time_s") if len(drawable) > MOST_DRAWN else drawable
    kind = _find_kinds(points)
    colour = colours(kind.value_counts().index)
    longest_s = points["time_s"].max()
    sizes_pt = SMALLEST_PT + (LARGEST_PT - SMALLEST_PT) * (points["time_s"] / longest_s) ** 0.5
    marks = [
        make_mark(point, colour=colour[kind.loc[index]], marker="o",
                  text=shorten_name(str(point["name"])), size_pt=sizes_pt.loc[index])
        for index, point in points.iterrows()
    ]  # fmt: skip
    size = (sample(marker="o", is_filled=False, size=LARGEST_PT),
            f"size: time, at most {format_time(longest_s)}")  # fmt: skip
    name = short_name(run, with_precision=True)
    sentences = [
        _describe_scope(view, points, run, scope, is_capture=is_capture),
        describe_undrawn(every) if scope == "kernel" else "",
        f"Of the others, those that take longest are drawn, and {len(drawable) - len(points)} are"
        " not."
        if len(points) < len(drawable)
        else "",
        count_bounds(_drop_static_twins(points, scope)),
        describe_flags(points),
    ]
    return draw_view(view, f"{view.device}: {scope}s of {name}", points, marks,
                     [("kind", legend_lines(colour))], sentences, entries=[size],
                     most_labels=MOST_NAMED)  # fmt: skip


def _drop_static_twins(points: pd.DataFrame, scope: str) -> pd.DataFrame:
    """Layers that are there by counters and by the graph, once."""
    has_twins = scope == "layer" and points["provenance"].nunique() > 1
    return points[points["provenance"].eq("counter")] if has_twins else points


def _describe_scope(
    view: MachineView, points: pd.DataFrame, run: Any, scope: str, *, is_capture: bool
) -> str:
    slowest = points.nlargest(1, "time_s").iloc[0]
    once = _drop_static_twins(points, scope)
    how = ", by their counters and by the graph" if len(once) < len(points) else ""
    if scope == "kernel":  # tables have one for each name
        launches = int(points["launches"].fillna(1).sum())
        same = "; those of the same name, grid and block are one kernel" if is_capture else ""
        how = f" ({counted(launches, 'launch', 'launches')}{same})"
    return (
        f"{counted(len(once), scope)} of {short_name(run, with_precision=True)} on"
        f" {view.device}{how}; the slowest, {shorten_name(str(slowest['name']))}, takes"
        f" {format_time(slowest['time_s'])}"
        f" ({format_percent(slowest['time_s'] / run['step_median_s'])} of the"
        f" {'capture' if is_capture else 'step'})."
    )


def _find_slowest_run(view: MachineView, scope: str) -> Any | None:
    """The run with the longest step that has points of this scope; of equals the last."""
    points = filter_drawable(view.points)
    if not len(view.runs) or not len(points):
        return None
    runs = view.runs[view.runs["run_id"].isin(points.loc[points["grain"].eq(scope), "run_id"])]
    return None if runs.empty else runs.sort_values(["step_median_s", "run_id"]).iloc[-1]


def _find_longest_capture(view: MachineView) -> dict[str, Any] | None:
    """The capture whose kernels take longest, as if it were a run."""
    points = filter_drawable(view.captures) if len(view.captures) else view.captures
    if not len(points) or not points["grain"].eq("kernel").any():
        return None
    whole = points[points["grain"].eq(CAPTURE)].sort_values(["time_s", "run_id"])
    row = {str(name): value for name, value in whole.iloc[-1].items()} if len(whole) else None
    return row and {**row, "step_median_s": row["time_s"]}


def _find_kinds(points: pd.DataFrame) -> Any:
    """The kind of each layer or kernel, the rare kinds as one."""
    kind = points["kind"].where(points["kind"].ne(""), "other")
    time_s = points["time_s"].groupby(kind).sum().sort_values(ascending=False)
    common = time_s.index[: MOST_KINDS - 1] if len(time_s) > MOST_KINDS else time_s.index
    return kind.where(kind.isin(common), "other")


def shorten_name(name: str) -> str:
    """A layer's or a kernel's name, short enough to stand at its mark."""
    name = re.sub(r"<.*", "", name).split("::")[-1].removeprefix("void ").strip()
    if len(name) <= LONGEST_NAME:
        return name
    parts = name.split(".")
    while len(parts) > 1 and len(".".join(parts)) >= LONGEST_NAME:
        parts = parts[1:]
    return "…" + ".".join(parts)[-LONGEST_NAME + 1 :]


# ---------------------------------------------------------------- memory levels


def draw_levels(view: MachineView) -> Drawing | None:
    """Steps and captures at the intensity of every level whose bytes are known."""
    points = append_captures(select_steps(view.points, view.runs), view.captures)
    known = {index: level_intensities(point) for index, point in points.iterrows()}
    points = points[[len(known[index]) > 1 for index in points.index]]
    if points.empty or not view.has_roofs:
        return None
    slowest = points.groupby("configuration")["time_s"].max().nlargest(MOST_STEPS)
    points = points[points["configuration"].isin(slowest.index)]
    points = points.assign(is_first=~points.duplicated("configuration"))
    points = points.sort_values("time_s", ascending=False, kind="stable")
    colour, names = view.colours_of(points["model"]), short_names(points)
    marks, curves = [], []
    for index, point in points.iterrows():
        marks += _mark_levels(point, known[index], colour[point["model"]], names[index])
        ends = [min(known[index].values()), max(known[index].values())]
        curves.append(Curve(xs=ends, ys=[point["attained_flops_per_s"]] * 2,
                            looks={"color": PALE, "zorder": 1.8, "linewidth": 1.0}))  # fmt: skip
    levels = [level for level in LEVELS if any(level in known[index] for index in points.index)]
    sees_all = not any(BULK_COPIES in view.notes.get(run_id, ()) for run_id in points["run_id"])
    partly = {"l1": "" if sees_all else " (without bulk tensor copies)"}
    shapes = {level.upper() + partly.get(level, ""): LEVEL_MARKS[level] for level in levels}
    groups = [
        (name_colours(points), legend_lines(colour)),
        ("memory level", legend_marks(shapes)),
    ]
    example = ", ".join(f"{format_ratio(intensity, 'FLOP/B')} at {level.upper()}"
                        for level, intensity in known[points.index[0]].items())  # fmt: skip
    roofless = [level.upper() for level in levels if level not in view.roofs.bandwidth]
    sentences = [
        f"{count_steps(points)} on {view.device}, each with a mark for every memory level whose"
        f" bytes are known: {short_name(points.iloc[0], with_precision=True)} has {example}.",
        count_bounds(points[points["is_first"]]),
        f"The roof of {listed(roofless)} is not known: its marks are below none."
        if roofless
        else "",
        "" if sees_all else f"{BULK_COPIES}.",
    ]
    shown = [level for level in LEVELS if level in levels or level in view.roofs.bandwidth]
    return draw_view(view, f"{view.device}: bytes at each memory level", points, marks, groups,
                     sentences, levels=shown, curves=curves)  # fmt: skip


def level_intensities(point: Any) -> dict[str, float]:
    """FLOPs per byte by level; DRAM's of a static point without what the last cache can hold."""
    intensities: dict[str, float] = {}
    for level in LEVELS:
        moved = point.get(f"{level}_bytes")
        if level == "dram" and point["provenance"] == "static":
            least = point.get("least_bytes")
            moved = least if least is not None and least == least else moved
        if moved is not None and moved > 0 and point["flops"] > 0:
            intensities[level] = float(point["flops"]) / float(moved)
    return intensities


def _mark_levels(point: Any, intensities: dict[str, float], colour: str, name: str) -> list[Mark]:
    """A mark for each level; the one nearest to the cores has the name and the flag."""
    mark = replace(make_mark(point, colour=colour, marker="o"), x_range=None, is_capture=False)
    nearest = max(intensities, key=lambda level: intensities[level])
    return [
        replace(mark, x=intensity, marker=LEVEL_MARKS[level],
                flag=mark.flag if level == nearest else "",
                text=name if level == nearest and point["is_first"] else "")
        for level, intensity in intensities.items()
    ]  # fmt: skip


# ---------------------------------------------------------------- phases of training


def draw_phases(view: MachineView) -> Drawing | None:
    """Of each network and precision, the phases of its largest batch."""
    points = select_points(view.points, view.runs)
    points = points[points["mode"].eq("train") & points["grain"].eq("phase")]
    points = points[points["configuration"].isin(_find_largest_batches(points))]
    timed = filter_drawable(points[points["phase"].isin(PHASE_MARKS)])
    if timed.empty or not view.has_roofs:
        return None
    names = short_names(points)
    colour = colours(names[index] for index in timed.index)
    marks = [
        make_mark(
            point,
            colour=colour[names[index]],
            marker=PHASE_MARKS[point["phase"]],
            text=names[index] if point["phase"] == "backward" else "",
        )
        for index, point in timed.iterrows()
    ]
    halves = [
        mark_half(point, view.roofs, colour[names[index]])
        for index, point in points[points["phase"].isin(HALVES) & points["ai"].gt(0)].iterrows()
        if names[index] in colour
    ]
    halves = [half for half in halves if half.y > 0]
    phases, used = set(timed["phase"]), {half.marker for half in halves}
    groups = [
        ("step", legend_lines(colour)),
        ("phase", legend_marks({name: m for name, m in PHASE_MARKS.items() if name in phases})),
        ("time not measured apart",
         [(sample(marker=marker, size=HALF_PT[marker]), f"{name}, on its roof")
          for name, marker in HALVES.items() if marker in used]),
    ]  # fmt: skip
    curves = [
        Curve(xs=[half.x], ys=[half.y], size_pt=HALF_PT[half.marker],
              looks={"marker": half.marker, "linestyle": "none", "zorder": 3.5,
                     "markersize": HALF_PT[half.marker], "markeredgewidth": 1.6,
                     "color": half.colour, "gid": f"half-{number}"})
        for number, half in enumerate(halves)
    ]  # fmt: skip
    return draw_view(view, f"{view.device}: the phases of training", timed, marks, groups,
                     _describe_phases(timed, view), curves=curves)  # fmt: skip


def _find_largest_batches(points: pd.DataFrame) -> list[Any]:
    """Configurations, the largest batch of each network and precision; the slowest of them."""
    timed = points[points["phase"].isin(PHASE_MARKS) & points["time_s"].notna()]
    if timed.empty:
        return []
    by = ["network", "precision", "batch_size", "configuration"]
    steps = timed.groupby(by)["time_s"].sum().reset_index()
    steps = steps.sort_values(["batch_size", "time_s"], ascending=False)
    largest = steps.drop_duplicates(["network", "precision"])
    return list(largest.nlargest(MOST_TRAINED, "time_s")["configuration"])


def mark_half(point: Any, roofs: Roofs, colour: str) -> Mark:
    """A half of backward, which has no time: on its roof, at its intensity."""
    peaks = [float(point["peak_flops_per_s"]), roofs.bandwidth.get("dram", 0) * point["ai"]]
    return Mark(x=float(point["ai"]), y=min((peak for peak in peaks if peak > 0), default=0.0),
                colour=colour, marker=HALVES[point["phase"]])  # fmt: skip


def _describe_phases(timed: pd.DataFrame, view: MachineView) -> list[str]:
    slowest = timed.nlargest(1, "time_s").iloc[0]
    same = timed[timed["run_id"].eq(slowest["run_id"])]
    is_both = same["provenance"].nunique() > 1
    same = same[same["provenance"].eq("counter")] if is_both else same
    phases = ", ".join(
        f"{row['phase']} {format_time(row['time_s'])} ({format_percent(row['efficiency'])} of its"
        f" roof)"
        for _, row in same.iterrows()
    )
    return [
        f"The phases of {counted(timed['run_id'].nunique(), 'training step')} on {view.device}."
        f" {short_name(slowest, with_precision=True)}{', by counters' if is_both else ''}:"
        f" {phases}.",
        describe_flags(timed),
    ]
