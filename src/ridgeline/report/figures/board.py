"""Texts on a pair of axes that keep clear of each other, of marks and of lines.

A board is laid over finished axes. It works in pixels and knows what stands in the way. A text is
tried at one spot after the other; where none is free, it is left out, so that texts never overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from math import atan2, cos, degrees, hypot, radians, sin
from typing import TYPE_CHECKING, Any, Literal

from ridgeline.report.figures.style import GREY, INK, SMALL_PT, canvas_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Box = tuple[float, float, float, float]  # left, bottom, right, top
Segment = tuple[float, float, float, float]  # from x, y to x, y
Point = tuple[float, float]
Over = Literal["nothing", "bars", "lines"]
Spots = Callable[[float, float], Iterable[Point]]

GAP_PT = 1.0
OFF_LINE_PT = 2.8
LEADER_PT = 9.0  # a text further from its mark needs a line to it
DIRECTIONS = ((0, 1), (0, -1), (-1, 0), (1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1))
DISTANCES_PT = (2.5, 7.0, 14.0, 24.0, 36.0)
SLIDE_PT = 7.0


class Board:
    """What stands in the way on one pair of axes. From here on, the layout stays as it is."""

    def __init__(self, axes: Axes) -> None:
        canvas = canvas_of(axes)
        canvas.draw_without_rendering()
        canvas.set_layout_engine("none")
        self.axes = axes
        self.point = canvas.dpi / 72
        inside = axes.get_window_extent()
        self.frame: Box = (inside.x0, inside.y0, inside.x1, inside.y1)
        self.boxes: list[Box] = []
        self.texts: list[Box] = []
        self.bars: list[Segment] = []  # may be written over where there is no other room
        self.lines: list[Segment] = []  # only over these if a text asks for it

    def pixels(self, x: float, y: float) -> Point:
        across, up = self.axes.transData.transform((x, y))
        return float(across), float(up)

    def block_mark(self, x: float, y: float, *, size_pt: float) -> None:
        across, up = self.pixels(x, y)
        half = size_pt / 2 * self.point
        self.boxes.append((across - half, up - half, across + half, up + half))

    def block_bar(self, xs: Sequence[float], ys: Sequence[float]) -> None:
        self.bars += self._segments(xs, ys)

    def block_line(self, xs: Sequence[float], ys: Sequence[float]) -> None:
        self.lines += self._segments(xs, ys)

    def _segments(self, xs: Sequence[float], ys: Sequence[float]) -> list[Segment]:
        ends = [self.pixels(x, y) for x, y in zip(xs, ys, strict=True)]
        return [(x0, y0, x1, y1) for (x0, y0), (x1, y1) in pairwise(ends)]

    def slope_angle(self) -> float:
        """Degrees of a line that doubles with its x, on logarithmic axes."""
        (low, _), (bottom, _) = self.axes.get_xlim(), self.axes.get_ylim()
        x0, y0 = self.pixels(low, bottom)
        x1, y1 = self.pixels(10 * low, 10 * bottom)
        return degrees(atan2(y1 - y0, x1 - x0))

    def write(
        self,
        text: str,
        at: Point,
        spots: Spots,
        *,
        colour: str = INK,
        size_pt: float = SMALL_PT,
        angle: float = 0.0,
        weight: str = "normal",
        has_leader: bool = False,
        over: Over = "bars",
    ) -> Any | None:
        """Write at the first free spot; None where there is none.

        A spot is the middle of the text, in pixels from `at`, given its width and height. Spots
        that touch nothing come first, then those that touch what the text may be written `over`.
        """
        label = self._label(text, at, color=colour, fontsize=size_pt, weight=weight)
        extent = label.get_window_extent()
        size = (extent.width, extent.height)
        label.set_rotation(angle)
        spots_here = self._led(at, spots, size) if has_leader else spots
        spot = self._free_spot(at, spots_here, size, angle, over=over)
        if spot is None:
            label.remove()
            return None
        (dx, dy), box = spot
        label.set_position((dx / self.point, dy / self.point))
        self.boxes.append(box)
        self.texts.append(box)
        if has_leader and self._needs_leader(at, box):
            self._lead(at, box)
        return label

    def _label(self, text: str, at: Point, **looks: Any) -> Any:
        from matplotlib.patheffects import withStroke

        label = self.axes.annotate(
            text, at, (0, 0), textcoords="offset points", ha="center", va="center", zorder=6,
            path_effects=[withStroke(linewidth=1.6, foreground="white")], **looks,
        )  # fmt: skip
        label.set_in_layout(False)
        return label

    def _free_spot(
        self, at: Point, spots: Spots, size: Point, angle: float, *, over: Over
    ) -> tuple[Point, Box] | None:
        across, up = self.pixels(*at)
        second_best = None
        for dx, dy in spots(*size):
            middle = (across + dx, up + dy)
            box = _around(middle, _turned(size, angle), GAP_PT * self.point)
            if not self._is_free(box):
                continue
            over_line = self._touches(self.lines, middle, size, angle)
            if not over_line and not self._touches(self.bars, middle, size, angle):
                return (dx, dy), box
            if over == "lines" or (over == "bars" and not over_line):
                second_best = second_best or ((dx, dy), box)
        return second_best

    def _touches(self, segments: list[Segment], middle: Point, size: Point, angle: float) -> bool:
        upright = _around((0.0, 0.0), size, GAP_PT / 2 * self.point)
        return any(_crosses(_seen(segment, middle, angle), upright) for segment in segments)

    def _is_free(self, box: Box) -> bool:
        left, bottom, right, top = self.frame
        inside = box[0] >= left and box[1] >= bottom and box[2] <= right and box[3] <= top
        return inside and not any(_overlap(box, other) for other in self.boxes)

    def _needs_leader(self, at: Point, box: Box) -> bool:
        return _distance(box, self.pixels(*at)) > LEADER_PT * self.point

    def _led(self, at: Point, spots: Spots, size: Point) -> Spots:
        """Only those spots whose leader crosses no other text and no line."""
        across, up = self.pixels(*at)

        def clear(width: float, height: float) -> Iterator[Point]:
            for dx, dy in spots(width, height):
                box = _around((across + dx, up + dy), size, GAP_PT * self.point)
                leader = (across, up, *_nearest(box, (across, up)))
                if not self._needs_leader(at, box) or self._is_clear(leader):
                    yield dx, dy

        return clear

    def _is_clear(self, leader: Segment) -> bool:
        if any(_crosses(leader, text) for text in self.texts):
            return False
        return not any(_meet(leader, line) for line in self.lines)

    def _lead(self, at: Point, box: Box) -> None:
        """A thin line from a mark to the nearest edge of its text."""
        across, up = self.pixels(*at)
        end = _nearest(box, (across, up))
        offset = ((end[0] - across) / self.point, (end[1] - up) / self.point)
        line = self.axes.annotate("", at, offset, textcoords="offset points", zorder=2,
                                  arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.5,
                                              "shrinkA": 0, "shrinkB": 3})  # fmt: skip
        line.set_in_layout(False)
        self.bars.append((across, up, *end))

    def beside(self, radius_pt: float, *, furthest_pt: float = DISTANCES_PT[-1]) -> Spots:
        """Around a mark, the nearest first."""

        def spots(width: float, height: float) -> Iterator[Point]:
            for distance in (d for d in DISTANCES_PT if d <= furthest_pt):
                away = (radius_pt + distance) * self.point
                for right, up in DIRECTIONS:
                    slant = 0.7 if right and up else 1.0
                    yield right * (slant * away + width / 2), up * (slant * away + height / 2)

        return spots

    def along_flat(self, length: float, *, above: float = 0.0, below: float = 0.0) -> Spots:
        """On a level line that ends at the anchor: over it, under it, then further left.

        `above` and `below` are where another line of the same subject runs, in pixels.
        """

        def spots(width: float, height: float) -> Iterator[Point]:
            slide = SLIDE_PT * self.point
            for off_pt in (OFF_LINE_PT, 3 * OFF_LINE_PT):
                off = height / 2 + off_pt * self.point
                for step in range(max(1, int((length - width) / slide))):
                    left = -width / 2 - 2 * self.point - step * slide
                    yield left, above + off
                    yield left, -below - off

        return spots

    def along_slope(
        self, length: float, angle: float, *, above: float = 0.0, below: float = 0.0
    ) -> Spots:
        """On a slope that begins at the anchor: over it all the way up, then under it."""
        across, up = cos(radians(angle)), sin(radians(angle))

        def spots(width: float, height: float) -> Iterator[Point]:
            tall = height / 2 + OFF_LINE_PT * self.point
            steps = max(1, int(length / (SLIDE_PT * self.point)))
            for off in (above + tall, -below - tall):
                for step in range(1, steps):
                    far = length * step / steps
                    yield far * across - off * up, far * up + off * across

        return spots


def _around(middle: Point, size: Point, gap: float) -> Box:
    half_width, half_height = size[0] / 2 + gap, size[1] / 2 + gap
    x, y = middle
    return x - half_width, y - half_height, x + half_width, y + half_height


def _turned(size: Point, angle: float) -> Point:
    """Width and height that a text takes when it is rotated."""
    across, up = abs(cos(radians(angle))), abs(sin(radians(angle)))
    return size[0] * across + size[1] * up, size[0] * up + size[1] * across


def _seen(segment: Segment, middle: Point, angle: float) -> Segment:
    """A segment from a text's middle, turned so that the text is upright."""
    across, up = cos(radians(-angle)), sin(radians(-angle))
    x0, y0, x1, y1 = segment
    ends = ((x0 - middle[0], y0 - middle[1]), (x1 - middle[0], y1 - middle[1]))
    (a, b), (c, d) = ((x * across - y * up, x * up + y * across) for x, y in ends)
    return a, b, c, d


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _nearest(box: Box, at: Point) -> Point:
    return min(max(at[0], box[0]), box[2]), min(max(at[1], box[1]), box[3])


def _distance(box: Box, at: Point) -> float:
    x, y = _nearest(box, at)
    return hypot(x - at[0], y - at[1])


def _crosses(segment: Segment, box: Box) -> bool:
    """Whether a part of the segment is in the box (Liang and Barsky's clipping)."""
    x0, y0, x1, y1 = segment
    enter, leave = 0.0, 1.0
    for start, step, low, high in ((x0, x1 - x0, box[0], box[2]), (y0, y1 - y0, box[1], box[3])):
        if step == 0:
            if not low <= start <= high:
                return False
            continue
        near, far = sorted(((low - start) / step, (high - start) / step))
        enter, leave = max(enter, near), min(leave, far)
    return enter <= leave


def _meet(one: Segment, other: Segment) -> bool:
    """Whether two segments have a point in common; parallel ones have none."""
    (ax, ay, bx, by), (cx, cy, dx, dy) = one, other
    turn = (bx - ax) * (dy - cy) - (by - ay) * (dx - cx)
    if turn == 0:
        return False
    along_one = ((cx - ax) * (dy - cy) - (cy - ay) * (dx - cx)) / turn
    along_other = ((cx - ax) * (by - ay) - (cy - ay) * (bx - ax)) / turn
    return 0 < along_one <= 1 and 0 <= along_other <= 1
