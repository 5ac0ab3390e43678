"""Marks on a pair of axes, and texts that keep clear of each other, of marks and of lines.

Texts are laid over finished axes, in pixels. A text is tried at one spot after the other; where
none is free, it is left out, so that texts never overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import atan2, ceil, cos, degrees, hypot, radians, sin
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeline.report.figures.style import (
    INK,
    MARK_PT,
    OTHER_MARK,
    SMALL_PT,
    Entry,
    Groups,
    canvas_of,
    draw_legend,
    sample,
)
from ridgeline.roofline.points import CAPTURE
from ridgeline.roofline.sanity_checks import ABOVE_ITS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

Point = tuple[float, float]
Spots = Callable[[float, float], Iterable[Point]]  # middles of a text of this width and height
# Pixels that are taken or tried, as squares: x and y of the middle, and half a side.
Squares = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

GAP_PT = 0.5
OFF_LINE_PT = 2.8
SLIDE_PT = 7.0
STEP_PX = 4.0  # between points on a line: less than a text is high
DISTANCES_PT = (2.5, 7.0, 14.0)
AROUND = ((0, 1), (0, -1), (-1, 0), (1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1))
MOST_LABELS = 12
MANY = 16  # from here on, marks are crowded: paler bars
RING_PT = 5.0  # by so much the ring of a flag is wider than its mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A point as it is drawn."""

    x: float
    y: float
    colour: str
    marker: Any = "o"
    is_filled: bool = False  # its work is from counters; hollow: counted from the graph
    x_range: Point | None = None  # of its intensity
    flag: str = ""  # why it cannot be right
    is_capture: bool = False  # all kernels of a capture as one
    text: str = ""
    weight: float = 0.0  # the heaviest are labelled first
    size_pt: float = MARK_PT

    @property
    def outer_pt(self) -> float:
        """With the ring of its flag."""
        return self.size_pt + (RING_PT if self.flag else 0.0)


def make_mark(point: Any, *, colour: str, marker: Any, **more: Any) -> Mark:
    """A row of a table of points as a mark at its intensity and rate."""
    ai, ai_high = float(point["ai"]), float(point["ai_high"])
    is_static = point["provenance"] == "static"
    known: dict[str, Any] = {
        "x": ai,
        "y": float(point["attained_flops_per_s"]),
        "is_filled": not is_static,
        "x_range": (ai, ai_high) if is_static and ai_high > ai * 1.001 else None,
        "flag": str(point["flag"] or ""),
        "is_capture": point["grain"] == CAPTURE,
        "weight": float(point["time_s"]),
    }
    return Mark(colour=colour, marker=marker, **{**known, **more})


def draw_marks(axes: Axes, marks: Sequence[Mark], groups: Groups = ()) -> Labels:
    """Draw marks with their ranges and rings, and the legend: all but texts."""
    looks: dict[str, Any] = {"zorder": 3, "alpha": 0.8 if len(marks) < MANY else 0.35,
                             "linewidth": 1.0, "markersize": 4}  # fmt: skip
    for number, mark in enumerate(marks):
        if mark.x_range:
            axes.plot(mark.x_range, (mark.y, mark.y), marker="|", color=mark.colour,
                      gid=f"range-{number}", **looks)  # fmt: skip
        axes.plot([mark.x], [mark.y], marker=mark.marker, linestyle="none", zorder=4,
                  markersize=mark.size_pt, markeredgecolor=mark.colour, markeredgewidth=1.2,
                  markerfacecolor=mark.colour if mark.is_filled else "white",
                  gid=f"mark-{number}")  # fmt: skip
        if mark.flag:
            axes.plot([mark.x], [mark.y], marker="o", zorder=3.8, markersize=mark.outer_pt,
                      markeredgecolor=INK, markeredgewidth=0.9, gid=f"flag-{number}",
                      linestyle="none", markerfacecolor="none")  # fmt: skip
    draw_legend(axes, groups)
    return Labels(axes)


def label_marks(labels: Labels, marks: Sequence[Mark], *, most: int = MOST_LABELS) -> None:
    """An exclamation mark at each flag, and the names of the heaviest marks."""
    for mark in marks:
        if mark.flag:
            near = labels.around(mark.outer_pt / 2 - 1, DISTANCES_PT[:1])
            labels.write("!", (mark.x, mark.y), near, fontsize=SMALL_PT + 1, weight="bold")
    named = sorted((mark for mark in marks if mark.text), key=lambda mark: -mark.weight)
    for mark in named[:most]:
        near = labels.around(mark.outer_pt / 2)
        labels.write(mark.text, (mark.x, mark.y), near, color=mark.colour)


def legend_of_marks(marks: Sequence[Mark]) -> list[Entry]:
    """What hollow, filled, bars and rings mean in a legend, as far as they occur."""
    flags = [mark.flag for mark in marks if mark.flag]
    is_above = all(flag.startswith(ABOVE_ITS) for flag in flags)
    entries = (
        (any(not mark.is_filled for mark in marks), sample(marker="o", is_filled=False),
         "counted from the graph (static)"),
        (any(mark.is_filled and not mark.is_capture for mark in marks), sample(marker="o"),
         "hardware counters"),
        (any(mark.is_capture for mark in marks), sample(marker=OTHER_MARK),
         "a capture: hardware counters of all its kernels"),
        (any(mark.x_range for mark in marks), sample(marker="|", line="-", width=1.0),
         "bytes: moved … fused"),
        (flags, sample(marker="o", is_filled=False, size=MARK_PT + 4, width=0.9),
         "! faster than its roof allows" if is_above else "! see text"),
    )  # fmt: skip
    return [(handle, text) for is_there, handle, text in entries if is_there]


class Labels:
    """The texts on one pair of axes, which keep clear of all marks and lines that are there.

    From here on, the layout stays as it is.
    """

    def __init__(self, axes: Axes) -> None:
        canvas = canvas_of(axes)
        canvas.draw_without_rendering()
        canvas.set_layout_engine("none")
        self.axes = axes
        self.point = canvas.dpi / 72
        self.frame = axes.get_window_extent().extents
        self.taken: Squares = np.empty((0, 3))  # by marks and texts
        self.lines: Squares = np.empty((0, 3))
        for line in axes.get_lines():
            self._avoid(line)

    def to_pixels(self, x: float, y: float) -> Squares:
        pixels: Squares = self.axes.transData.transform((x, y))
        return pixels

    def _avoid(self, line: Line2D) -> None:
        """Keep texts clear of a mark, or of the part of a line that is inside the axes."""
        ends = self.axes.transData.transform(line.get_xydata())
        if len(ends) == 1:
            half = line.get_markersize() / 2 * self.point
            self.taken = np.vstack([self.taken, (*ends[0], half)])
            return
        points = np.concatenate([
            np.linspace(*pair, int(np.hypot(*(pair[1] - pair[0])) / STEP_PX) + 2)
            for pair in pairwise(ends)
        ])  # fmt: skip
        inside = ((points >= self.frame[:2]) & (points <= self.frame[2:])).all(axis=1)
        self.lines = np.vstack([self.lines, np.insert(points[inside], 2, 0.0, axis=1)])

    def write(
        self, text: str, at: Point, spots: Spots, *, angle: float = 0.0, is_needed: bool = False,
        **looks: Any,
    ) -> None:  # fmt: skip
        """Write at the first free spot around `at`; over lines where that is needed."""
        from matplotlib.patheffects import withStroke

        label = self.axes.annotate(
            text, at, (0, 0), textcoords="offset points", ha="center", va="center", zorder=6,
            path_effects=[withStroke(linewidth=1.6, foreground="white")],
            **{"color": INK, "fontsize": SMALL_PT, **looks},
        )  # fmt: skip
        label.set_in_layout(False)
        extent = label.get_window_extent()
        label.set_rotation(angle)
        every = np.vstack([self.taken, self.lines])
        for obstacles in (every, self.taken) if is_needed else (every,):
            for right, up in spots(extent.width, extent.height):
                middle = self.to_pixels(*at) + np.array((right, up))
                squares = self._cover(middle, extent.width, extent.height, radians(angle))
                if self._is_free(squares, obstacles):
                    label.set_position((right / self.point, up / self.point))
                    self.taken = np.vstack([self.taken, squares])
                    return
        label.remove()

    def _cover(self, middle: Squares, width: float, height: float, angle: float) -> Squares:
        """A text as a row of squares of its height along its own direction."""
        reach = max(width - height, 0.0) / 2
        along = np.linspace(-reach, reach, ceil(width / height))[:, None]
        middles = middle + along * (cos(angle), sin(angle))
        return np.insert(middles, 2, height / 2 + GAP_PT * self.point, axis=1)

    def _is_free(self, squares: Squares, obstacles: Squares) -> bool:
        """Whether squares are inside the axes and touch none of the obstacles."""
        half = squares[:, 2:]
        is_inside = (squares[:, :2] - half >= self.frame[:2]) & (
            squares[:, :2] + half <= self.frame[2:]
        )
        apart = np.abs(squares[:, None, :2] - obstacles[None, :, :2]).max(axis=2)
        return bool(is_inside.all() and (apart >= half + obstacles[:, 2]).all())

    def around(
        self,
        radius_pt: float,
        distances_pt: Sequence[float] = DISTANCES_PT,
        directions: Sequence[tuple[int, int]] = AROUND,
    ) -> Spots:
        """Around a mark, the nearest first."""

        def spots(width: float, height: float) -> Iterator[Point]:
            for distance in distances_pt:
                away = (radius_pt + distance) * self.point
                for right, up in directions:
                    slant = 0.7 if right and up else 1.0
                    yield right * (slant * away + width / 2), up * (slant * away + height / 2)

        return spots

    def along(self, start: Point, end: Point) -> tuple[Spots, float]:
        """Over and under the line from `start`, where the text is anchored, to `end`; its angle."""
        (x0, y0), (x1, y1) = self.to_pixels(*start), self.to_pixels(*end)
        length, away = hypot(x1 - x0, y1 - y0), 1 if x1 > x0 else -1
        angle = atan2(away * (y1 - y0), away * (x1 - x0))
        c, s = cos(angle), sin(angle)

        def spots(width: float, height: float) -> Iterator[Point]:
            slide = SLIDE_PT * self.point
            steps = range(max(1, int((length - width) / slide)))
            for step, off_pt in product(steps, (OFF_LINE_PT, 3 * OFF_LINE_PT)):
                off = height / 2 + off_pt * self.point
                far = away * (width / 2 + 2 * self.point + step * slide)
                for up in (off, -off):
                    yield far * c - up * s, far * s + up * c

        return spots, degrees(angle)
