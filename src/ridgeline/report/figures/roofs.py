"""Roofs on a pair of axes: slopes, flat roofs and ridges, each labelled on its line.

What the datasheet says is a dashed line, and a number in brackets on the label of what was
measured, so that two lines close together need one text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import hypot
from typing import TYPE_CHECKING

from ridgeline.report.figures.board import Board, Spots
from ridgeline.report.figures.style import GREY, INK
from ridgeline.roofline.place import flops_columns, roof_of
from ridgeline.roofline.roofs import LEVELS, Roofs, flat_unit
from ridgeline.units import format_ratio, si

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

LEAST_SHARE = 0.02  # of the FLOPs of a run, for a roof to be drawn
MOST_ROOFS = 5  # of different height
DASHES = (0, (4, 2.2))
RIDGE_PT = 3.2
LEAST_DECADES = 40.0  # highest over lowest rate: a slope needs some height to be seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A slope, a flat roof, or a slope with the roof that it leads to."""

    name: str
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


def roof_names(points: pd.DataFrame, roofs: Roofs, *, most: int = MOST_ROOFS) -> list[str]:
    """The compute roofs that matter for these points, and the best of fp32; highest first."""
    wanted = {_name_of(roofs, "fp32", "vector")}
    columns = flops_columns(points)
    of_runs = points.groupby("run_id")[["flops", *columns]].sum()  # not of one odd kernel in them
    for column in columns:
        if (of_runs[column] / of_runs["flops"]).max() >= LEAST_SHARE:
            wanted.add(_name_of(roofs, *roof_of(column)))
    known = sorted((name for name in wanted if name), key=lambda name: (-roofs.flats[name], name))
    if is_one_for_all(roofs):
        return known[:1]
    heights = sorted({roofs.flats[name] for name in known}, reverse=True)
    shown = {*heights[: most - 1], *heights[-1:]}  # the lowest sets the floor of most work
    return [name for name in known if roofs.flats[name] in shown]


def drawn_ceilings(
    points: pd.DataFrame, roofs: Roofs, levels: Sequence[str] = ("dram",)
) -> list[str]:
    """The ceilings in a figure of these points: compute roofs, then memory levels."""
    return [*roof_names(points, roofs), *(level for level in levels if level in roofs.bandwidth)]


def is_one_for_all(roofs: Roofs) -> bool:
    """Whether the user gave a single peak: then it stands for fp32 and for fp16 products alike."""
    return roofs.source == "given" and roofs.peak("fp32", "vector") == roofs.peak("fp16", "matrix")


def _name_of(roofs: Roofs, precision: str, path: str) -> str:
    """The roof that holds for work of a precision on a path; it may be a stand-in."""
    rate = roofs.peak(precision, path)
    names = [name for name, each in roofs.flats.items() if each == rate]
    return next((name for name in names if name.startswith(precision)), names[0] if names else "")


def outline(
    roofs: Roofs,
    names: Sequence[str],
    *,
    low: float,
    high: float,
    levels: Sequence[str] = ("dram",),
    published: Roofs | None = None,
) -> Outline:
    """Lines and ridges. A ridge is a vertex: the slope ends, and the roof begins, exactly there."""
    slopes = [level for level in LEVELS if level in levels and roofs.bandwidth.get(level)]
    flats = [name for name in names if name in roofs.flats]
    flats.sort(key=lambda name: -roofs.flats[name])
    make = _Maker(roofs, published)
    if not slopes:
        return Outline(lines=tuple(make.flat(name, low, high) for name in flats))
    if not flats:
        return Outline(lines=tuple(make.slope(level, low, high) for level in slopes))
    fastest = max(slopes, key=lambda level: roofs.bandwidth[level])
    lines = [
        make.slope(level, low, make.meet(flats[0], level)) for level in slopes if level != fastest
    ]
    lines.append(make.whole(flats[0], fastest, low, high))
    lines += [make.flat(name, make.meet(name, fastest), high) for name in flats[1:]]
    ridges = [(make.meet(name, level), roofs.flats[name]) for name in flats for level in slopes]
    return Outline(lines=tuple(lines), ridges=tuple(ridges))


class _Maker:
    """Makes the lines of one set of roofs."""

    def __init__(self, roofs: Roofs, published: Roofs | None) -> None:
        self.roofs = roofs
        self.has_one_peak = is_one_for_all(roofs)
        has_flats = published is not None and not self.has_one_peak
        self.published_flats = published.flats if published and has_flats else {}
        self.published_slopes = published.bandwidth if published else {}

    def meet(self, name: str, level: str) -> float:
        return self.roofs.flats[name] / self.roofs.bandwidth[level]

    def flat(self, name: str, low: float, high: float) -> Line:
        rate = self.roofs.flats[name]
        return Line(name=name, xs=(low, high), ys=(rate, rate), flat_text=self._flat_text(name),
                    published_flat=self.published_flats.get(name))  # fmt: skip

    def slope(self, level: str, low: float, high: float) -> Line:
        rate = self.roofs.bandwidth[level]
        return Line(name=level, xs=(low, high), ys=(rate * low, rate * high),
                    slope_text=self._slope_text(level),
                    published_slope=self.published_slopes.get(level))  # fmt: skip

    def whole(self, name: str, level: str, low: float, high: float) -> Line:
        rate, slope = self.roofs.flats[name], self.roofs.bandwidth[level]
        return Line(
            name=f"{level} {name}",
            xs=(low, self.meet(name, level), high),
            ys=(slope * low, rate, rate),
            slope_text=self._slope_text(level),
            flat_text=self._flat_text(name),
            published_slope=self.published_slopes.get(level),
            published_flat=self.published_flats.get(name),
        )

    def _flat_text(self, name: str) -> str:
        rates = (self.roofs.flats[name], self.published_flats.get(name))
        name = "peak" if self.has_one_peak else name
        return f"{name} {both_rates(*rates, flat_unit(name))}"

    def _slope_text(self, level: str) -> str:
        rates = (self.roofs.bandwidth[level], self.published_slopes.get(level))
        return f"{level.upper()} {both_rates(*rates, 'B/s')}"


def both_rates(rate: float, published: float | None, unit: str) -> str:
    """`781 (989) TFLOP/s`: measured, and of the datasheet."""
    told = si(rate, unit)
    if not published:
        return told
    number, _, prefixed = told.partition(" ")
    other, _, other_prefixed = si(published, unit).partition(" ")
    if prefixed == other_prefixed:
        return f"{number} ({other}) {prefixed}"
    return f"{told} ({other} {other_prefixed})"


def draw(axes: Axes, shape: Outline, *, colour: str = INK, is_dashed: bool = False) -> None:
    """The lines and the marks of their ridges; dashed where nobody measured them."""
    for number, line in enumerate(shape.lines):
        drawn = axes.plot(line.xs, line.ys, color=colour, zorder=2, linewidth=1.3,
                          linestyle=DASHES if is_dashed else "-")  # fmt: skip
        drawn[0].set_gid(f"roof-{colour.strip('#')}-{number}")
    for x, y in shape.ridges:
        axes.plot([x], [y], marker="o", markersize=RIDGE_PT, color=colour, zorder=3, label="_ridge")


def draw_beside(axes: Axes, shape: Outline) -> None:
    """What the datasheet says, beside what was measured."""
    for number, line in enumerate(shape.lines):
        drawn = axes.plot(line.xs, line.ys, color=GREY, zorder=1.5, linewidth=0.9,
                          linestyle=DASHES)  # fmt: skip
        drawn[0].set_gid(f"datasheet-{GREY.strip('#')}-{number}")


def block(board: Board, shape: Outline, *, is_dashed: bool = False) -> None:
    """Texts keep clear of the lines and their ridges."""
    for line in shape.lines:
        board.block_line(line.xs, line.ys)
    for x, y in shape.ridges if not is_dashed else ():
        board.block_mark(x, y, size_pt=RIDGE_PT)


def label(board: Board, shape: Outline, *, colour: str = INK) -> None:
    """Write on each line what it is, and at each ridge where it is."""
    for line in shape.lines:
        if line.slope_text:
            _label_slope(board, line, colour)
    for line in shape.lines:
        if line.flat_text:
            _label_flat(board, line, colour)
    heights = [y for _, y in shape.ridges]
    for x, y in shape.ridges:
        spots = _up_left(board, is_alone=heights.count(y) == 1)
        board.write(f"ridge {format_ratio(x)}", (x, y), spots, colour=GREY, over="nothing")


def _label_flat(board: Board, line: Line, colour: str) -> None:
    rate, (low, high) = line.ys[-1], board.axes.get_xlim()
    end, height = board.pixels(high, rate)
    start, _ = board.pixels(max(line.xs[-2], low), rate)
    other = board.pixels(high, line.published_flat or rate)[1] - height
    beside = {"above": max(other, 0.0), "below": max(-other, 0.0)}
    near = board.along_flat(end - start, **beside)
    far = board.along_flat(end - board.frame[0], **beside)  # past its ridge
    at = (high, rate)
    _ = (
        board.write(line.flat_text, at, near, colour=colour, over="nothing")
        or board.write(line.flat_text, at, near, colour=colour, over="lines")
        or board.write(line.flat_text, at, far, colour=colour, over="lines")
    )


def _label_slope(board: Board, line: Line, colour: str) -> None:
    """Along the part of the slope that is inside the axes."""
    (low, high), (bottom, top) = board.axes.get_xlim(), board.axes.get_ylim()
    rate = line.ys[0] / line.xs[0]
    first, last = max(low, bottom / rate), min(high, line.xs[1], top / rate)
    if last <= first:
        return
    at = (first, rate * first)
    x0, y0 = board.pixels(*at)
    x1, y1 = board.pixels(last, rate * last)
    other = board.pixels(first, (line.published_slope or rate) * first)[1] - y0
    across = other * (x1 - x0) / hypot(x1 - x0, y1 - y0)
    angle = board.slope_angle()
    spots = board.along_slope(hypot(x1 - x0, y1 - y0), angle, above=max(across, 0.0),
                              below=max(-across, 0.0))  # fmt: skip
    board.write(line.slope_text, at, spots, colour=colour, angle=angle, over="lines")


def _up_left(board: Board, *, is_alone: bool) -> Spots:
    """Above and left of a ridge, where no work can be; close to it if its roof has others."""

    def spots(width: float, height: float) -> Iterator[tuple[float, float]]:
        for away in (2.5, 5.0):
            gap = away * board.point
            yield -width / 2 - gap, height / 2 + gap * 0.6
            yield -width / 2 - gap * 1.6, 0.0
            yield 0.0, height / 2 + gap * 1.6
        for away in (9.0, 13.0) if is_alone else ():  # past the dashed line of the datasheet
            yield -width / 2 - away * board.point, height / 2 + away * 0.6 * board.point

    return spots


def limits(
    ridges: Sequence[float],
    rates: Sequence[float],
    *,
    marks_x: Sequence[float],
    marks_y: Sequence[float],
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Limits of x and y that show every ridge, roof and mark with room for texts."""
    xs = [x for x in (*ridges, *marks_x) if x > 0]
    ys = [y for y in (*rates, *marks_y) if y > 0]
    left, right = min(xs) / 4, max(max(ridges, default=1.0) * 12, max(xs) * 2.5)
    top = max(ys) * 2.2
    return (left, right), (min(min(ys) / 2.5, top / LEAST_DECADES), top)
