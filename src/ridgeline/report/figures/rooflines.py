"""The one drawer of rooflines: roofs, ridges and marks on a pair of axes, with their labels.

The datasheet's roofs are dashed lines, and numbers in brackets on the labels of measured roofs,
so that two lines close together need one text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ridgeline.report.figures.labels import Labels, Mark, draw_marks, label_marks
from ridgeline.report.figures.style import (
    GREY,
    HEIGHT_IN,
    INK,
    Groups,
    new_axes,
    scale_intensity,
)
from ridgeline.roofline.floors import flops_columns, roof_of
from ridgeline.roofline.roofs import LEVELS, Roofs, flat_unit
from ridgeline.units import format_ratio, si

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

LEAST_SHARE = 0.02  # of the FLOPs of a run, for a roof to be drawn
MOST_ROOFS = 5  # of different height
DASHES = (0, (4, 2.2))
RIDGE_PT = 3.2
AT_RIDGE = ((-1, 1), (-1, 0), (0, 1))  # above and left, where no work can be
LEAST_DECADES = 40.0  # highest over lowest rate: a slope needs some height to be seen

Limits = tuple[float, float]


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
    height_in: float = HEIGHT_IN,
    **most: int,
) -> Axes:
    """Roofs, marks, the groups of a legend, and labels where there is a free spot."""
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
    labels = draw_marks(axes, marks, groups)
    for line in lines:
        _label_line(labels, line)
    for ridge in one.ridges:
        spots = labels.around(RIDGE_PT / 2, directions=AT_RIDGE)
        labels.write(f"ridge {format_ratio(ridge[0])}", ridge, spots, color=GREY)
    label_marks(labels, marks, **most)
    return axes


def _draw_lines(axes: Axes, lines: Sequence[Line], kind: str, **looks: Any) -> None:
    for number, line in enumerate(lines):
        axes.plot(line.xs, line.ys, gid=f"{kind}-{number}", **looks)


def draw_machine(roofs: Roofs, datasheet: Roofs | None, *, title: str) -> Axes:
    """All roofs of floating-point work and all memory levels of a machine, without marks."""
    one = RoofSet(roofs=roofs, names=list(roofs.compute), levels=LEVELS, datasheet=datasheet)
    subtitle = "" if datasheet is None else "datasheet dashed and in brackets"
    return draw_roofline(title, subtitle, one, [], height_in=5.2)


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
