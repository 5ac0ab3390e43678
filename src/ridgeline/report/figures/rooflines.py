"""Rooflines: steps, layers, kernels, memory levels under the roofs of a machine; the roofs alone.

The datasheet's roofs are dashed lines, and numbers in brackets on the labels of measured roofs,
so that two lines close together need one text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ridgeline.captures.quantities import BULK_COPIES
from ridgeline.report.figures.labels import (
    Labels,
    Mark,
    draw_marks,
    label_marks,
    legend_of_marks,
    make_mark,
)
from ridgeline.report.figures.style import (
    GREY,
    HEIGHT_IN,
    INK,
    PALE,
    Drawing,
    Entry,
    Groups,
    colours,
    legend_lines,
    legend_precisions,
    new_axes,
    precision_mark,
    sample,
    scale_intensity,
)
from ridgeline.report.figures.views import MachineView, name_modes, short_name
from ridgeline.report.text import counted, listed, number, records
from ridgeline.roofline.floors import flops_columns, roof_of
from ridgeline.roofline.points import CAPTURE
from ridgeline.roofline.roofs import LEVELS, Roofs, flat_unit
from ridgeline.units import format_percent, format_ratio, format_time, si

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

SUM_OF_KERNELS = "The time of a capture is the sum of its kernels' times."
BOUNDS = {"compute": "compute", "launch": "launches"}
LONGEST_PART = 24  # of a name
MOST_NAMED = 8  # layers or kernels
MOST_DRAWN = 1_000  # layers or kernels in one picture
SMALLEST_PT, LARGEST_PT = 3.0, 11.0
LEVEL_MARKS = {"dram": "o", "l3": "s", "l2": "D", "l1": "^"}
MOST_STEPS = 6  # with their memory levels
LEAST_SHARE = 0.02  # of the FLOPs of a run, for a roof to be drawn
MOST_ROOFS = 5  # of different height
DASHES = (0, (4, 2.2))
RIDGE_PT = 3.2
AT_RIDGE = ((-1, 1), (-1, 0), (0, 1))  # above and left, where no work can be
LEAST_DECADES = 40.0  # highest over lowest rate: a slope needs some height to be seen

Limits = tuple[float, float]


# ---------------------------------------------------------------- steps


def draw_steps(view: MachineView) -> Drawing | None:
    """A mark for every configuration that ran, and for every imported capture."""
    points = filter_drawable(_choose_steps(view))
    if points.empty or not view.roofs.is_known:
        return None
    colour = view.colours_of(points["model"])
    is_named = ~points.duplicated("configuration")  # one counted both ways needs its name once
    marks = [
        make_mark(point, colour=colour[point["model"]], marker=precision_mark(point["precision"]),
                  text=short_name(point) if has_name else "")
        for point, has_name in zip(records(points), is_named, strict=True)
    ]  # fmt: skip
    what, has_captures = _count_steps(points, "configuration"), points["mode"].eq(CAPTURE).any()
    modes = name_modes(points)
    kinds = [f"{modes} steps"] if modes else []
    kinds += ["captures"] if has_captures else []
    groups = [
        (_name_colours(points), legend_lines(colour)),
        ("precision", legend_precisions(points["precision"])),
    ]
    note = SUM_OF_KERNELS if has_captures else ""
    return _draw_view(view, f"{view.device}: {listed(kinds)}", points, marks, groups,
                      _describe_points(points, f"{what} on {view.device}.", note))  # fmt: skip


def _choose_steps(view: MachineView) -> pd.DataFrame:
    """The steps of one run of each configuration, and captures."""
    return view.points[view.points["is_chosen"] & view.points["grain"].isin(["step", CAPTURE])]


def _count_steps(points: pd.DataFrame, step: str) -> str:
    """`7 steps and 1 capture`: one counted both ways is one step."""
    is_capture = points.drop_duplicates("configuration")["mode"].eq(CAPTURE)
    numbers = {step: int((~is_capture).sum()), "capture": int(is_capture.sum())}
    return listed(counted(number, name) for name, number in numbers.items() if number)


def _name_colours(points: pd.DataFrame) -> str:
    return "model or capture" if points["mode"].eq(CAPTURE).any() else "model"


def _draw_view(
    view: MachineView,
    heading: str,
    points: pd.DataFrame,
    marks: Sequence[Mark],
    groups: Groups,
    caption: str,
    entries: Sequence[Entry] = (),
    levels: Sequence[str] = ("dram",),
    **more: Any,
) -> Drawing:
    """Marks of these points under the roofs of one machine; `entries` go before those of marks."""
    names = roof_names(points, view.roofs)
    roofs = RoofSet(roofs=view.roofs, names=names, levels=levels, datasheet=view.machine.published)
    label = view.roofs_label([*names, *levels])
    legend = [*groups, ("mark", [*entries, *legend_of_marks(marks)])]
    axes = draw_roofline(heading, label, roofs, marks, legend, **more)
    title = f"{heading} ({label})" if label else heading
    return Drawing(axes=axes, title=title, caption=caption)


def filter_drawable(points: pd.DataFrame) -> pd.DataFrame:
    """Those with an intensity and a rate."""
    return points[points["ai"].gt(0) & points["attained_flops_per_s"].gt(0)]


def shorten_name(name: str) -> str:
    """A layer's or a kernel's name, short enough to stand at its mark."""
    name = re.sub(r"<.*", "", name).split("::")[-1].removeprefix("void ").strip()
    return name if len(name) <= LONGEST_PART else "…" + name[1 - LONGEST_PART :]


def _describe_points(points: pd.DataFrame, text: str, *notes: str) -> str:
    """A caption: what is shown, what takes longest, and what bounds how many.

    What was counted both ways, from the graph and by counters, is one thing.
    """
    has_twin = points.duplicated(["run_id", "name", "phase"], keep=False)
    once = points[points["provenance"].ne("static") | ~has_twin]
    longest = once.nlargest(1, "time_s").iloc[0]
    part = "" if longest["grain"] in ("step", CAPTURE) else f"{shorten_name(longest['name'])} of "
    reached = number(longest["efficiency"])
    share = "" if reached is None else f", {format_percent(reached)} of the possible"
    sentences = [
        text,
        f"Longest: {part}{short_name(longest, with_precision=True)}"
        f" ({format_time(longest['time_s'])}{share}).",
    ]
    counts = once["bound"].dropna().astype(str).value_counts()
    bounds = [f"{BOUNDS.get(str(name), str(name).upper())}: {n}" for name, n in counts.items()]
    if bounds:
        sentences.append(f"Bound by {', '.join(bounds)}.")
    return " ".join(filter(None, [*sentences, *notes]))


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
    shown = len(points) if scope == "kernel" else points["name"].nunique()
    text = f"{counted(shown, scope)} of {name}{how} on {view.device}."
    return _draw_view(view, f"{view.device}: {scope}s of {name}", points, marks,
                      [("kind", legend_lines(colour))], _describe_points(points, text),
                      entries=[size], most=MOST_NAMED)  # fmt: skip


def _find_slowest(view: MachineView, parts: pd.DataFrame) -> Any | None:
    """The longest step that has these parts; without one, the longest capture."""
    whole = view.points[view.points["run_id"].isin(parts["run_id"])]
    for scope in ("step", CAPTURE):
        steps = whole[whole["grain"].eq(scope)].sort_values(["time_s", "run_id"])
        if len(steps):
            return steps.iloc[-1]
    return None


# ---------------------------------------------------------------- memory levels


def draw_levels(view: MachineView) -> Drawing | None:
    """A mark for every memory level of each of the slowest steps and captures."""
    points = _choose_steps(view).sort_values("time_s", ascending=False, kind="stable")
    points = points[list_intensities(points).count(axis=1).gt(1)]
    slowest = points["configuration"].drop_duplicates().head(MOST_STEPS)
    points = points[points["configuration"].isin(slowest)]
    if points.empty or not view.roofs.is_known:
        return None
    intensities = list_intensities(points).dropna(axis=1, how="all")
    colour, has_several = view.colours_of(points["model"]), points["precision"].nunique() > 1
    is_named, marks, links = ~points.duplicated("configuration"), [], []
    rows = zip(records(points), records(intensities), is_named, strict=True)
    for point, by_level, has_name in rows:
        known = {level: x for level, x in by_level.items() if x > 0}
        last = max(known, key=known.__getitem__)  # it has the name and the flag of its step
        name = short_name(point, with_precision=has_several) if has_name else ""
        marks += [
            make_mark(point, colour=colour[point["model"]], marker=LEVEL_MARKS[level], x=x,
                      x_range=None, is_capture=False, text=name if level == last else "",
                      flag=str(point["flag"] or "") if level == last else "")
            for level, x in known.items()
        ]  # fmt: skip
        y = float(point["attained_flops_per_s"])
        links.append(Line(xs=(min(known.values()), known[last]), ys=(y, y), text=""))
    shapes = [(sample(marker=LEVEL_MARKS[level], is_filled=False), level.upper())
              for level in LEVELS if level in intensities]  # fmt: skip
    notes = [note for run_id in points["run_id"] for note in view.notes.get(run_id, ())]
    text = f"{_count_steps(points, 'step')} with their memory levels on {view.device}."
    caption = _describe_points(points, text, f"{BULK_COPIES}." if BULK_COPIES in notes else "")
    return _draw_view(view, f"{view.device}: bytes at each memory level", points, marks,
                      [(_name_colours(points), legend_lines(colour)), ("memory level", shapes)],
                      caption, levels=LEVELS, links=links)  # fmt: skip


def list_intensities(points: pd.DataFrame) -> pd.DataFrame:
    """FLOPs per byte by level; DRAM's of a static point without what the last cache can hold."""
    is_least = points["provenance"].eq("static") & points["least_bytes"].notna()
    moved = points.assign(dram_bytes=points["dram_bytes"].mask(is_least, points["least_bytes"]))
    moved = moved[[f"{level}_bytes" for level in LEVELS]].set_axis(LEVELS, axis=1)
    is_drawable = moved.gt(0).mul(points["attained_flops_per_s"].gt(0), axis=0)
    return moved.rdiv(points["flops"], axis=0).where(is_drawable)


def draw_machine(roofs: Roofs, datasheet: Roofs | None, *, title: str) -> Axes:
    """All roofs of floating-point work and all memory levels of a machine, without marks."""
    one = RoofSet(roofs=roofs, names=list(roofs.compute), levels=LEVELS, datasheet=datasheet)
    subtitle = "" if datasheet is None else "datasheet dashed and in brackets"
    return draw_roofline(title, subtitle, one, [], height_in=5.2)


# ---------------------------------------------------------------- roofs and marks


@dataclass(frozen=True, slots=True, kw_only=True)
class RoofSet:
    """The roofs of one machine as they are drawn."""

    roofs: Roofs
    names: Sequence[str]  # compute roofs
    levels: Sequence[str] = ("dram",)
    datasheet: Roofs | None = None

    @property
    def flats(self) -> dict[str, float]:
        """The compute roofs that are drawn, the highest first."""
        known = {name: self.roofs.flats[name] for name in self.names if name in self.roofs.flats}
        return dict(sorted(known.items(), key=lambda item: -item[1]))

    @property
    def slopes(self) -> dict[str, float]:
        known = self.roofs.bandwidth
        return {name: known[name] for name in LEVELS if name in self.levels and known.get(name)}

    @property
    def ridges(self) -> list[tuple[float, float]]:
        """A ridge is a vertex: the slope ends, and the roof begins, exactly there."""
        return [(rate / slope, rate) for rate in self.flats.values()
                for slope in self.slopes.values()]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A slope, or a flat roof."""

    xs: Limits
    ys: Limits
    text: str


def draw_roofline(
    heading: str,
    subtitle: str,
    one: RoofSet,
    marks: Sequence[Mark],
    groups: Groups = (),
    *,
    links: Sequence[Line] = (),
    height_in: float = HEIGHT_IN,
    **most: int,
) -> Axes:
    """Roofs, marks, links, the groups of a legend, and labels where there is a free spot."""
    x, y = _find_limits(one, marks)
    axes = new_axes(heading, subtitle, height_in=height_in)
    scale_intensity(axes, x=x, y=y, title="performance (FLOP/s)")
    lines, published = outline(one, x), []
    if one.datasheet is not None:
        names = [] if is_single_peak(one.roofs) else one.names
        published = outline(RoofSet(roofs=one.datasheet, names=names), x)
    _draw_lines(axes, lines, "roof", color=INK, zorder=2, linewidth=1.3,
                linestyle=DASHES if one.roofs.source == "datasheet" else "-")  # fmt: skip
    for ridge in one.ridges:
        axes.plot(*ridge, marker="o", markersize=RIDGE_PT, color=INK, zorder=3)
    _draw_lines(axes, published, "datasheet", color=GREY, zorder=1.5, linewidth=0.9,
                linestyle=DASHES)  # fmt: skip
    _draw_lines(axes, links, "link", color=PALE, zorder=1.8, linewidth=1.0)
    labels = draw_marks(axes, marks, groups)
    for line in lines:
        _label_line(labels, line)
    for ridge in one.ridges:
        spots = labels.around(RIDGE_PT / 2, directions=AT_RIDGE)
        labels.write(f"ridge {format_ratio(ridge[0])}", ridge, spots, color=GREY)
    label_marks(labels, marks, **most)
    return axes


def _draw_lines(axes: Axes, lines: Sequence[Line], kind: str, **looks: Any) -> None:
    for n, line in enumerate(lines):
        axes.plot(line.xs, line.ys, gid=f"{kind}-{n}", **looks)


def _find_limits(one: RoofSet, marks: Sequence[Mark]) -> tuple[Limits, Limits]:
    """Limits of x and y that show every ridge, roof and mark, and leave space for texts."""
    ridges = [x for x, _ in one.ridges]
    xs = [*ridges, *(x for mark in marks for x in (mark.x, *(mark.x_range or ())))]
    ys = [*one.flats.values(), *(mark.y for mark in marks)]
    xs, ys = [x for x in xs if x > 0], [y for y in ys if y > 0]
    top = max(ys) * 2.2
    right = max(max(ridges, default=1.0) * 12, max(xs) * 2.5)
    return (min(xs) / 4, right), (min(min(ys) / 2.5, top / LEAST_DECADES), top)


def roof_names(points: pd.DataFrame, roofs: Roofs, *, most: int = MOST_ROOFS) -> list[str]:
    """The compute roofs that matter for these points, and the best of fp32; highest first."""
    names = {_find_roof(roofs, "fp32", "vector")}
    columns = flops_columns(points)
    by_run = points.groupby("run_id")[["flops", *columns]].sum()  # not of one odd kernel in them
    for column in columns:
        if (by_run[column] / by_run["flops"]).max() >= LEAST_SHARE:
            names.add(_find_roof(roofs, *roof_of(column)))
    known = sorted((name for name in names if name), key=lambda name: (-roofs.flats[name], name))
    if is_single_peak(roofs):
        return known[:1]
    heights = sorted({roofs.flats[name] for name in known}, reverse=True)
    shown = {*heights[: most - 1], *heights[-1:]}  # the lowest sets the floor of most work
    return [name for name in known if roofs.flats[name] in shown]


def is_single_peak(roofs: Roofs) -> bool:
    """Whether the user supplied one peak: then it stands for fp32 and for fp16 products alike."""
    return roofs.source == "given" and roofs.peak("fp32", "vector") == roofs.peak("fp16", "matrix")


def _find_roof(roofs: Roofs, precision: str, path: str) -> str:
    """The name of the roof of a precision on a path; it may be a stand-in."""
    rate = roofs.peak(precision, path)
    names = [name for name, each in roofs.flats.items() if each == rate]
    return next((name for name in names if name.startswith(precision)), names[0] if names else "")


def outline(one: RoofSet, x: Limits) -> list[Line]:
    """The lines of a set of roofs: slopes up to the highest roof, roofs from the fastest slope."""
    flats, slopes, is_single = one.flats, one.slopes, is_single_peak(one.roofs)
    top, fastest = max(flats.values(), default=None), max(slopes.values(), default=None)
    sheet_flats = one.datasheet.flats if one.datasheet and not is_single else {}
    sheet_slopes = one.datasheet.bandwidth if one.datasheet else {}
    lines = []
    for level, slope in slopes.items():
        published, end = sheet_slopes.get(level), top / slope if top else x[1]
        text = f"{level.upper()} {both_rates(slope, published, 'B/s')}"
        lines.append(Line(xs=(x[0], end), ys=(slope * x[0], top or slope * end), text=text))
    for name, rate in flats.items():
        published, title = sheet_flats.get(name), "peak" if is_single else name
        text = f"{title} {both_rates(rate, published, flat_unit(title))}"
        start = rate / fastest if fastest else x[0]
        lines.append(Line(xs=(start, x[1]), ys=(rate, rate), text=text))
    return lines


def both_rates(rate: float, published: float | None, unit: str) -> str:
    """`781 (989) TFLOP/s`: measured, and of the datasheet."""
    measured = si(rate, unit)
    if not published:
        return measured
    number, _, prefixed = measured.partition(" ")
    other, _, other_prefixed = si(published, unit).partition(" ")
    if prefixed == other_prefixed:
        return f"{number} ({other}) {prefixed}"
    return f"{measured} ({other} {other_prefixed})"


def _label_line(labels: Labels, line: Line) -> None:
    """At the right end of a roof, or at the lower end of the slope that is inside the axes."""
    (low, high), (bottom, top) = labels.axes.get_xlim(), labels.axes.get_ylim()
    if line.ys[0] == line.ys[1]:
        at, end = (high, line.ys[0]), (low, line.ys[0])
    else:
        rate = line.ys[0] / line.xs[0]
        first, last = max(low, bottom / rate), min(high, line.xs[1], top / rate)
        at, end = (first, rate * first), (last, rate * last)
    spots, angle = labels.along(at, end)
    labels.write(line.text, at, spots, angle=angle, is_needed=True)
