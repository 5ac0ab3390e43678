"""The one drawer of rooflines: roofs, ridges and marks on a pair of axes, with their labels.

The datasheet's roofs are dashed lines, and numbers in brackets on the labels of measured roofs,
so that two lines close together need one text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ridgeline.report.figures.labels import OVER_BARS, OVER_LINES, OVER_NOTHING, Labels, Spots
from ridgeline.report.figures.style import (
    GREY,
    HEIGHT_IN,
    INK,
    MARK_PT,
    OTHER_MARK,
    SMALL_PT,
    Entry,
    dense_ticks,
    draw_legend,
    new_axes,
    number_ticks,
    sample,
    scale_axes,
)
from ridgeline.roofline.floors import flops_columns, roof_of
from ridgeline.roofline.points import CAPTURE
from ridgeline.roofline.roofs import LEVELS, Roofs, flat_unit
from ridgeline.roofline.sanity_checks import ABOVE_ITS
from ridgeline.units import format_ratio, si

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

LEAST_SHARE = 0.02  # of the FLOPs of a run, for a roof to be drawn
MOST_ROOFS = 5  # of different height
DASHES = (0, (4, 2.2))
RIDGE_PT = 3.2
LEAST_DECADES = 40.0  # highest over lowest rate: a slope needs some height to be seen
MOST_LABELS = 12
MANY = 16  # from here on, marks are crowded: fewer names, paler bars
MOST_LABELS_OF_MANY = 6
VERTICAL: Any = (2, 2, 0)  # one upright stroke; "|" is an end of a level bar
FLAG_PT = 3.0  # from its ring, at most
RING_PT = 5.0  # by so much the ring of a flag is wider than its mark

Limits = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoofSet:
    """The roofs of one machine as they are drawn."""

    roofs: Roofs
    names: Sequence[str]  # compute roofs
    levels: Sequence[str] = ("dram",)
    datasheet: Roofs | None = None
    colour: str = INK


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A further line, or a further mark if it has a size."""

    xs: Sequence[float]
    ys: Sequence[float]
    looks: dict[str, Any]
    size_pt: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A slope, a flat roof, or a slope with the roof that it leads to."""

    xs: tuple[float, ...]
    ys: tuple[float, ...]
    slope_text: str = ""  # on its first part
    flat_text: str = ""  # on its last
    published_slope: float | None = None  # B/s of the datasheet
    published_flat: float | None = None  # FLOP/s


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """All lines of one set of roofs between two intensities."""

    lines: tuple[Line, ...]
    ridges: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A point as it is drawn."""

    x: float
    y: float
    colour: str
    marker: Any = "o"
    is_filled: bool = False  # its work is from counters; hollow: counted from the graph
    x_range: Limits | None = None  # of its intensity
    y_range: Limits | None = None  # of its repeats
    flag: str = ""  # why it cannot be right
    is_capture: bool = False  # all kernels of a capture as one
    text: str = ""
    weight: float = 0.0  # the heaviest are labelled first
    size_pt: float = MARK_PT

    @property
    def outer_pt(self) -> float:
        """With the ring of its flag."""
        return self.size_pt + (RING_PT if self.flag else 0.0)


def draw_roofline(
    heading: str,
    subtitle: str,
    sets: Sequence[RoofSet],
    marks: Sequence[Mark],
    groups: Sequence[tuple[str, Sequence[Entry]]] = (),
    *,
    curves: Sequence[Curve] = (),
    most_labels: int | None = None,
    height_in: float = HEIGHT_IN,
) -> Axes:
    """Roofs, marks, curves, the groups of a legend, and labels where there is a free spot."""
    x, y = _find_limits(sets, marks)
    axes = new_axes(heading, subtitle, height_in=height_in)
    _scale_roofline(axes, x, y)
    outlines = [outline(one.roofs, one.names, x, one.levels, one.datasheet) for one in sets]
    sheets = [outline(one.datasheet, [] if is_single_peak(one.roofs) else one.names, x)
              for one in sets if one.datasheet is not None]  # fmt: skip
    for one, shape in zip(sets, outlines, strict=True):
        is_dashed = one.roofs.source == "datasheet"
        _draw_lines(axes, shape, "roof", color=one.colour, zorder=2, linewidth=1.3,
                    linestyle=DASHES if is_dashed else "-")  # fmt: skip
        for ridge_x, ridge_y in shape.ridges:
            axes.plot([ridge_x], [ridge_y], marker="o", markersize=RIDGE_PT, color=one.colour,
                      zorder=3, label="_ridge")  # fmt: skip
    for shape in sheets:
        _draw_lines(axes, shape, "datasheet", color=GREY, zorder=1.5, linewidth=0.9,
                    linestyle=DASHES)  # fmt: skip
    draw_marks(axes, marks)
    for curve in curves:
        axes.plot(curve.xs, curve.ys, **curve.looks)
    draw_legend(axes, groups)
    labels = Labels(axes)
    for line in (line for shape in (*outlines, *sheets) for line in shape.lines):
        labels.add_line(line.xs, line.ys)
    for ridge in (ridge for shape in outlines for ridge in shape.ridges):
        labels.add_mark(*ridge, size_pt=RIDGE_PT)
    for curve in curves:
        if curve.size_pt:
            labels.add_mark(curve.xs[0], curve.ys[0], size_pt=curve.size_pt)
        else:
            labels.add_line(curve.xs, curve.ys, OVER_BARS)
    add_marks(labels, marks)
    for one, shape in zip(sets, outlines, strict=True):
        _label_roofs(labels, shape, one.colour)
    label_marks(labels, marks, most=most_labels)
    return axes


def draw_machine(roofs: Roofs, datasheet: Roofs | None, *, title: str) -> Axes:
    """All roofs of floating-point work and all memory levels of a machine, without marks."""
    names = sorted(roofs.compute, key=lambda name: -roofs.compute[name])
    one = RoofSet(roofs=roofs, names=names, levels=LEVELS, datasheet=datasheet)
    subtitle = "" if datasheet is None else "datasheet dashed and in brackets"
    return draw_roofline(title, subtitle, [one], [], height_in=5.2)


def _find_limits(sets: Sequence[RoofSet], marks: Sequence[Mark]) -> tuple[Limits, Limits]:
    """Limits of x and y that show every ridge, roof and mark, and leave space for texts."""
    outlines = [outline(one.roofs, one.names, (1e-9, 1e9), one.levels) for one in sets]
    ridges = [x for shape in outlines for x, _ in shape.ridges]
    xs = [*ridges, *(end for mark in marks for end in (mark.x, *(mark.x_range or ())))]
    ys = [one.roofs.flats[name] for one in sets for name in one.names]
    ys += [end for mark in marks for end in (mark.y, *(mark.y_range or ()))]
    xs, ys = [x for x in xs if x > 0], [y for y in ys if y > 0]
    top = max(ys) * 2.2
    right = max(max(ridges, default=1.0) * 12, max(xs) * 2.5)
    return (min(xs) / 4, right), (min(min(ys) / 2.5, top / LEAST_DECADES), top)


def _scale_roofline(axes: Axes, x: Limits, y: Limits) -> None:
    scale_axes(axes, x=x, y=y)
    axes.set_xlabel("arithmetic intensity (FLOP/B)")
    axes.set_ylabel("performance (FLOP/s)")
    number_ticks(axes.xaxis, "")
    number_ticks(axes.yaxis, "", with_prefix=True)
    for axis in (axes.xaxis, axes.yaxis):
        dense_ticks(axis)


# ---------------------------------------------------------------- roofs


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


def list_ceilings(
    points: pd.DataFrame, roofs: Roofs, levels: Sequence[str] = ("dram",)
) -> list[str]:
    """The ceilings in a figure of these points: compute roofs, then memory levels."""
    return [*roof_names(points, roofs), *(level for level in levels if level in roofs.bandwidth)]


def is_single_peak(roofs: Roofs) -> bool:
    """Whether the user supplied one peak: then it stands for fp32 and for fp16 products alike."""
    return roofs.source == "given" and roofs.peak("fp32", "vector") == roofs.peak("fp16", "matrix")


def _find_roof(roofs: Roofs, precision: str, path: str) -> str:
    """The name of the roof of a precision on a path; it may be a stand-in."""
    rate = roofs.peak(precision, path)
    names = [name for name, each in roofs.flats.items() if each == rate]
    return next((name for name in names if name.startswith(precision)), names[0] if names else "")


def outline(
    roofs: Roofs,
    names: Sequence[str],
    x: Limits,
    levels: Sequence[str] = ("dram",),
    published: Roofs | None = None,
) -> Outline:
    """Lines and ridges. A ridge is a vertex: the slope ends, and the roof begins, exactly there."""
    rates, slopes = roofs.flats, roofs.bandwidth
    is_single = is_single_peak(roofs)
    sheet_rates = published.flats if published and not is_single else {}
    sheet_slopes = published.bandwidth if published else {}

    def make(flat: str = "", level: str = "", *, start: float = x[0], end: float = x[1]) -> Line:
        rate, slope = rates.get(flat, 0.0), slopes.get(level, 0.0)
        inner = (rate / slope,) if flat and level else ()
        title = "peak" if is_single else flat
        return Line(
            xs=(start, *inner, end),
            ys=(slope * start if level else rate, *(rate for _ in inner),
                rate if flat else slope * end),
            slope_text=f"{level.upper()} {both_rates(slope, sheet_slopes.get(level), 'B/s')}"
            if level else "",
            flat_text=f"{title} {both_rates(rate, sheet_rates.get(flat), flat_unit(title))}"
            if flat else "",
            published_slope=sheet_slopes.get(level),
            published_flat=sheet_rates.get(flat),
        )  # fmt: skip

    flats = sorted((n for n in names if n in rates), key=lambda name: -rates[name])
    shown = [level for level in LEVELS if level in levels and slopes.get(level)]
    if not shown or not flats:
        return Outline(lines=(*map(make, flats), *(make(level=level) for level in shown)))
    fastest = max(shown, key=lambda level: slopes[level])
    return Outline(
        lines=(
            *(make(level=level, end=rates[flats[0]] / slopes[level])
              for level in shown if level != fastest),
            make(flats[0], fastest),
            *(make(name, start=rates[name] / slopes[fastest]) for name in flats[1:]),
        ),
        ridges=tuple((rates[name] / slopes[level], rates[name])
                     for name in flats for level in shown),
    )  # fmt: skip


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


def _draw_lines(axes: Axes, shape: Outline, kind: str, **looks: Any) -> None:
    for number, line in enumerate(shape.lines):
        axes.plot(line.xs, line.ys, gid=f"{kind}-{looks['color'].strip('#')}-{number}", **looks)


def _label_roofs(labels: Labels, shape: Outline, colour: str) -> None:
    """Write on each line what it is, and at each ridge where it is."""
    for line in shape.lines:
        if line.slope_text:
            _label_slope(labels, line, colour)
    for line in shape.lines:
        if line.flat_text:
            _label_flat(labels, line, colour)
    heights = [y for _, y in shape.ridges]
    for x, y in shape.ridges:
        spots = _spots_at_ridge(labels, is_alone=heights.count(y) == 1)
        labels.write(f"ridge {format_ratio(x)}", (x, y), spots, color=GREY, over=OVER_NOTHING)


def _label_flat(labels: Labels, line: Line, colour: str) -> None:
    rate, (low, high) = line.ys[-1], labels.axes.get_xlim()
    other = labels.to_pixels(high, line.published_flat or rate)[1] - labels.to_pixels(high, rate)[1]
    for end in (max(line.xs[-2], low), low):  # the second goes past its ridge
        spots, _ = labels.along((high, rate), (end, rate), other=other)
        if labels.write(line.flat_text, (high, rate), spots, color=colour, over=OVER_LINES):
            return


def _label_slope(labels: Labels, line: Line, colour: str) -> None:
    """Along the part of the slope that is inside the axes."""
    (low, high), (bottom, top) = labels.axes.get_xlim(), labels.axes.get_ylim()
    rate = line.ys[0] / line.xs[0]
    first, last = max(low, bottom / rate), min(high, line.xs[1], top / rate)
    if last <= first:
        return
    at, sheet = (first, rate * first), (line.published_slope or rate) * first
    other = labels.to_pixels(first, sheet)[1] - labels.to_pixels(*at)[1]
    spots, angle = labels.along(at, (last, rate * last), other=other)
    labels.write(line.slope_text, at, spots, color=colour, angle=angle, over=OVER_LINES)


def _spots_at_ridge(labels: Labels, *, is_alone: bool) -> Spots:
    """Above and left of a ridge, where no work can be; close to it if its roof has others."""

    def spots(width: float, height: float) -> Iterator[tuple[float, float]]:
        for away in (2.5, 5.0, 9.0) if is_alone else (2.5, 5.0):
            gap = away * labels.point
            yield -width / 2 - gap, height / 2 + gap * 0.6
            yield -width / 2 - gap * 1.6, 0.0
            yield 0.0, height / 2 + gap * 1.6

    return spots


# ---------------------------------------------------------------- marks


def make_mark(point: Any, *, colour: str, marker: Any, **more: Any) -> Mark:
    """A row of a table of points as a mark at its intensity and rate."""
    ai, ai_high = float(point["ai"]), float(point["ai_high"])
    is_static = point["provenance"] == "static"
    return Mark(
        x=ai,
        y=float(point["attained_flops_per_s"]),
        colour=colour,
        marker=marker,
        is_filled=not is_static,
        x_range=(ai, ai_high) if is_static and ai_high > ai * 1.001 else None,
        flag=str(point["flag"] or ""),
        is_capture=point["grain"] == CAPTURE,
        weight=float(point["time_s"]),
        **more,
    )


def draw_marks(axes: Axes, marks: Sequence[Mark]) -> None:
    """Marks with their ranges; a ring around what is flagged."""
    bars: dict[str, Any] = {"zorder": 3, "alpha": 0.8 if len(marks) < MANY else 0.35,
                            "linewidth": 1.0, "markersize": 4}  # fmt: skip
    hollow: dict[str, Any] = {"linestyle": "none", "markerfacecolor": "none"}
    for number, mark in enumerate(marks):
        if mark.x_range is not None:
            axes.plot(mark.x_range, [mark.y, mark.y], marker="|", color=mark.colour,
                      gid=f"range-{number}", **bars)  # fmt: skip
        if mark.y_range is not None and mark.y_range[0] < mark.y_range[1]:
            axes.plot([mark.x, mark.x], mark.y_range, marker="_", color=mark.colour,
                      gid=f"repeats-{number}", **bars)  # fmt: skip
        axes.plot([mark.x], [mark.y], marker=mark.marker, linestyle="none", zorder=4,
                  markersize=mark.size_pt, markeredgecolor=mark.colour, markeredgewidth=1.2,
                  markerfacecolor=mark.colour if mark.is_filled else "white",
                  gid=f"mark-{number}")  # fmt: skip
        if mark.flag:
            axes.plot([mark.x], [mark.y], marker="o", zorder=3.8, markersize=mark.outer_pt,
                      markeredgecolor=INK, markeredgewidth=0.9, gid=f"flag-{number}",
                      **hollow)  # fmt: skip


def add_marks(labels: Labels, marks: Sequence[Mark]) -> None:
    """Texts keep clear of the marks and of their ranges."""
    for mark in marks:
        labels.add_mark(mark.x, mark.y, size_pt=mark.outer_pt)
        if mark.x_range is not None:
            labels.add_line(mark.x_range, (mark.y, mark.y), OVER_BARS)
        if mark.y_range is not None:
            labels.add_line((mark.x, mark.x), mark.y_range, OVER_BARS)


def label_marks(labels: Labels, marks: Sequence[Mark], *, most: int | None = None) -> None:
    """An exclamation mark at each flag, and the names of the heaviest marks."""
    for mark in marks:
        if mark.flag:
            near = labels.around(mark.outer_pt / 2 - 1, furthest_pt=FLAG_PT)
            labels.write("!", (mark.x, mark.y), near, fontsize=SMALL_PT + 1, weight="bold")
    named = sorted((mark for mark in marks if mark.text), key=lambda mark: -mark.weight)
    if most is None:
        most = MOST_LABELS if len(marks) < MANY else MOST_LABELS_OF_MANY
    for mark in named[:most]:
        labels.write(mark.text, (mark.x, mark.y), labels.around(mark.outer_pt / 2),
                     color=mark.colour, has_leader=True)  # fmt: skip


def legend_of_marks(marks: Sequence[Mark]) -> list[Entry]:
    """What hollow, filled, bars and rings mean in a legend, as far as they occur."""
    flags = [mark.flag for mark in marks if mark.flag]
    is_above = all(flag.startswith(ABOVE_ITS) for flag in flags)
    has_repeats = any(mark.y_range and mark.y_range[0] < mark.y_range[1] for mark in marks)
    ring = sample(marker="o", is_filled=False, size=MARK_PT + 4, width=0.9)
    entries = (
        (any(not mark.is_filled for mark in marks), sample(marker="o", is_filled=False),
         "counted from the graph (static)"),
        (any(mark.is_filled and not mark.is_capture for mark in marks), sample(marker="o"),
         "hardware counters"),
        (any(mark.is_capture for mark in marks), sample(marker=OTHER_MARK),
         "a capture: hardware counters of all its kernels"),
        (any(mark.x_range for mark in marks), sample(marker="|", line="-", width=1.0),
         "bytes: moved … fused"),
        (has_repeats, sample(marker=VERTICAL, size=9), "range of repeats"),
        (flags, ring, "! faster than its roof allows" if is_above else "! see text"),
    )  # fmt: skip
    return [(handle, text) for is_there, handle, text in entries if is_there]
