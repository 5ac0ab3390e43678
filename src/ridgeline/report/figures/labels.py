"""Texts on a pair of axes that keep clear of each other, of marks and of lines.

Labels are laid over finished axes, in pixels. A text is tried at one spot after the other; where
none is free, it is left out, so that texts never overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from math import atan2, cos, degrees, hypot, radians, sin
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeline.report.figures.style import GREY, INK, SMALL_PT, canvas_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Box = tuple[float, float, float, float]  # left, bottom, right, top
Point = tuple[float, float]
Spots = Callable[[float, float], Iterable[Point]]  # middles of a text of this width and height

GAP_PT = 1.0
OFF_LINE_PT = 2.8
LEADER_PT = 9.0  # a text further from its mark needs a line to it
DIRECTIONS = ((0, 1), (0, -1), (-1, 0), (1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1))
DISTANCES_PT = (2.5, 7.0, 14.0, 24.0, 36.0)
SLIDE_PT = 7.0
OVER_NOTHING, OVER_BARS, OVER_LINES = 0, 1, 2  # what a text may cover where nothing else is free


class Labels:
    """The obstacles on one pair of axes. From here on, the layout stays as it is."""

    def __init__(self, axes: Axes) -> None:
        canvas = canvas_of(axes)
        canvas.draw_without_rendering()
        canvas.set_layout_engine("none")
        self.axes = axes
        self.point = canvas.dpi / 72
        self.frame: Box = axes.get_window_extent().extents
        self.boxes: list[Box] = []  # of marks and texts
        self.texts: list[Box] = []
        # points on roofs and on bars of marks, a pixel apart
        self.points: dict[int, Any] = dict.fromkeys((OVER_LINES, OVER_BARS), np.empty((0, 2)))

    def to_pixels(self, x: float, y: float) -> Point:
        across, up = self.axes.transData.transform((x, y))
        return float(across), float(up)

    def add_mark(self, x: float, y: float, *, size_pt: float) -> None:
        """Keep texts clear of a mark."""
        self.boxes.append(_box_around(self.to_pixels(x, y), (0.0, 0.0), size_pt / 2 * self.point))

    def add_line(self, xs: Sequence[float], ys: Sequence[float], kind: int = OVER_LINES) -> None:
        """Keep texts clear of that part of a line, or of a bar, which is inside the axes."""
        ends = self.axes.transData.transform(np.column_stack([xs, ys]))
        points = np.concatenate([_sample(*pair) for pair in pairwise(ends)])
        inside = points[_find_inside(points, self.frame)]
        self.points[kind] = np.concatenate([self.points[kind], inside])

    def write(
        self,
        text: str,
        at: Point,
        spots: Spots,
        *,
        angle: float = 0.0,
        has_leader: bool = False,
        over: int = OVER_BARS,
        **looks: Any,
    ) -> Any | None:
        """Write at the first free spot around `at`; None where there is none.

        Spots that touch nothing come first, then those that touch what it may be written `over`.
        """
        from matplotlib.patheffects import withStroke

        label = self.axes.annotate(
            text, at, (0, 0), textcoords="offset points", ha="center", va="center", zorder=6,
            path_effects=[withStroke(linewidth=1.6, foreground="white")],
            **{"color": INK, "fontsize": SMALL_PT, **looks},
        )  # fmt: skip
        label.set_in_layout(False)
        extent = label.get_window_extent()
        label.set_rotation(angle)
        size = (extent.width, extent.height)
        least, best = over + 1, None
        for spot in spots(*size):
            covered = self._find_covered(at, spot, size, angle, has_leader=has_leader)
            if covered < least:
                least, best = covered, spot
            if covered == OVER_NOTHING:
                break
        if best is None:
            label.remove()
            return None
        label.set_position((best[0] / self.point, best[1] / self.point))
        box = self._text_box(at, best, size, angle)
        if has_leader and (leader := self._find_leader(at, box)) is not None:
            self._draw_leader(at, leader)
        self.boxes.append(box)
        self.texts.append(box)
        return label

    def _find_covered(
        self, at: Point, spot: Point, size: Point, angle: float, *, has_leader: bool
    ) -> int:
        """The most that a text at this spot would cover: nothing, bars, lines, or other texts."""
        box = self._text_box(at, spot, size, angle)
        if not self._is_free(box):
            return OVER_LINES + 1
        leader = self._find_leader(at, box) if has_leader else None
        if leader is not None and any(_find_inside(leader, text).any() for text in self.texts):
            return OVER_LINES + 1
        x, y = self.to_pixels(*at)
        c, s = cos(radians(angle)), sin(radians(angle))
        own = _box_around((0.0, 0.0), size, GAP_PT / 2 * self.point)
        for kind, points in self.points.items():
            turned = (points - (x + spot[0], y + spot[1])) @ np.array([[c, -s], [s, c]])
            if _find_inside(turned, own).any():
                return kind
        return OVER_NOTHING

    def _text_box(self, at: Point, spot: Point, size: Point, angle: float) -> Box:
        """The upright box around a text, which may be rotated."""
        x, y = self.to_pixels(*at)
        c, s = abs(cos(radians(angle))), abs(sin(radians(angle)))
        wide = (size[0] * c + size[1] * s, size[0] * s + size[1] * c)
        return _box_around((x + spot[0], y + spot[1]), wide, GAP_PT * self.point)

    def _is_free(self, box: Box) -> bool:
        left, bottom, right, top = self.frame
        is_inside = box[0] >= left and box[1] >= bottom and box[2] <= right and box[3] <= top
        return is_inside and not any(
            box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3]
            for other in self.boxes
        )

    def _find_leader(self, at: Point, box: Box) -> Any | None:
        """Points from a mark to the nearest edge of its text; None if that is near."""
        x, y = self.to_pixels(*at)
        end = (min(max(x, box[0]), box[2]), min(max(y, box[1]), box[3]))
        is_near = hypot(end[0] - x, end[1] - y) <= LEADER_PT * self.point
        return None if is_near else _sample(np.array((x, y)), np.array(end))

    def _draw_leader(self, at: Point, leader: Any) -> None:
        line = self.axes.annotate("", at, (leader[-1] - leader[0]) / self.point, zorder=2,
                                  textcoords="offset points",
                                  arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.5,
                                              "shrinkA": 0, "shrinkB": 3})  # fmt: skip
        line.set_in_layout(False)
        self.points[OVER_BARS] = np.concatenate([self.points[OVER_BARS], leader])

    def around(self, radius_pt: float, *, furthest_pt: float = DISTANCES_PT[-1]) -> Spots:
        """Around a mark, the nearest first."""

        def spots(width: float, height: float) -> Iterator[Point]:
            for distance in (d for d in DISTANCES_PT if d <= furthest_pt):
                away = (radius_pt + distance) * self.point
                for right, up in DIRECTIONS:
                    slant = 0.7 if right and up else 1.0
                    yield right * (slant * away + width / 2), up * (slant * away + height / 2)

        return spots

    def along(self, start: Point, end: Point, *, other: float = 0.0) -> tuple[Spots, float]:
        """Over and under the line from `start`, where the text is anchored, to `end`; its angle.

        `other` is how far above (or below) it another line of the same text runs, in pixels.
        """
        (x0, y0), (x1, y1) = self.to_pixels(*start), self.to_pixels(*end)
        length, away = hypot(x1 - x0, y1 - y0), 1 if x1 > x0 else -1
        angle = degrees(atan2(away * (y1 - y0), away * (x1 - x0)))
        c, s = cos(radians(angle)), sin(radians(angle))

        def spots(width: float, height: float) -> Iterator[Point]:
            slide = SLIDE_PT * self.point
            for off_pt in (OFF_LINE_PT, 3 * OFF_LINE_PT):
                off = height / 2 + off_pt * self.point
                for step in range(max(1, int((length - width) / slide))):
                    far = away * (width / 2 + 2 * self.point + step * slide)
                    for up in (max(other * c, 0.0) + off, min(other * c, 0.0) - off):
                        yield far * c - up * s, far * s + up * c

        return spots, angle


def _sample(start: Any, end: Any) -> Any:
    """Points on a segment, about a pixel apart."""
    return np.linspace(start, end, max(2, int(np.hypot(*(end - start))) + 1))


def _box_around(middle: Point, size: Point, gap: float) -> Box:
    (x, y), wide, high = middle, size[0] / 2 + gap, size[1] / 2 + gap
    return x - wide, y - high, x + wide, y + high


def _find_inside(points: Any, box: Box) -> Any:
    return ((points >= box[:2]) & (points <= box[2:])).all(axis=1)
