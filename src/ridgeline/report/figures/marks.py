"""Points on a pair of axes: hollow or filled, with their range, their flag and their name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ridgeline.report.figures.board import Board
from ridgeline.report.figures.style import (
    INK,
    MARK_PT,
    OTHER_MARK,
    SMALL_PT,
    Entry,
    sample,
)
from ridgeline.roofline.captured import CAPTURE
from ridgeline.roofline.gate import ABOVE_ITS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_LABELS = 12
MANY = 16  # from here on, marks are crowded: fewer names, paler bars
MOST_LABELS_OF_MANY = 6
VERTICAL: Any = (2, 2, 0)  # one upright stroke; "|" is an end of a level bar
FLAG_PT = 3.0  # from its ring, at most
RING_PT = 5.0  # by so much the ring of a flag is wider than its mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A point as it is drawn."""

    x: float
    y: float
    colour: str
    marker: Any = "o"
    is_filled: bool = False  # its work is from counters; hollow: counted from the graph
    x_range: tuple[float, float] | None = None  # of its intensity
    y_range: tuple[float, float] | None = None  # of its repeats
    flag: str = ""  # what is wrong with it
    is_capture: bool = False  # all kernels of a capture as one
    text: str = ""
    weight: float = 0.0  # the heaviest are labelled first
    size_pt: float = MARK_PT

    @property
    def is_flagged(self) -> bool:
        return bool(self.flag)


def mark_of(point: Any, *, colour: str, marker: Any, **more: Any) -> Mark:
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


def draw(axes: Axes, marks: Sequence[Mark]) -> None:
    for number, mark in enumerate(marks):
        _draw_bars(axes, mark, number, alpha=0.8 if len(marks) < MANY else 0.35)
        point = axes.plot([mark.x], [mark.y], marker=mark.marker, linestyle="none", zorder=4,
                          markersize=mark.size_pt, markeredgecolor=mark.colour,
                          markeredgewidth=1.2,
                          markerfacecolor=mark.colour if mark.is_filled else "white")  # fmt: skip
        point[0].set_gid(f"mark-{number}")
        if mark.is_flagged:
            ring = axes.plot([mark.x], [mark.y], marker="o", linestyle="none", zorder=3.8,
                             markersize=mark.size_pt + RING_PT, markeredgecolor=INK,
                             markeredgewidth=0.9, markerfacecolor="none")  # fmt: skip
            ring[0].set_gid(f"flag-{number}")


def _draw_bars(axes: Axes, mark: Mark, number: int, *, alpha: float) -> None:
    looks: dict[str, Any] = {"color": mark.colour, "zorder": 3, "alpha": alpha,
                             "linewidth": 1.0, "markersize": 4}  # fmt: skip
    if mark.x_range is not None:
        bar = axes.plot(mark.x_range, [mark.y, mark.y], marker="|", **looks)
        bar[0].set_gid(f"range-{number}")
    if mark.y_range is not None and mark.y_range[0] < mark.y_range[1]:
        bar = axes.plot([mark.x, mark.x], mark.y_range, marker="_", **looks)
        bar[0].set_gid(f"repeats-{number}")


def block(board: Board, marks: Sequence[Mark]) -> None:
    for mark in marks:
        ring = RING_PT if mark.is_flagged else 0.0
        board.block_mark(mark.x, mark.y, size_pt=mark.size_pt + ring)
        if mark.x_range is not None:
            board.block_bar(mark.x_range, (mark.y, mark.y))
        if mark.y_range is not None:
            board.block_bar((mark.x, mark.x), mark.y_range)


def label(board: Board, marks: Sequence[Mark], *, most: int | None = None) -> None:
    """An exclamation mark at each flag, and the names of the heaviest marks."""
    for mark in marks:
        if mark.is_flagged:
            near = board.beside((mark.size_pt + RING_PT) / 2 - 1, furthest_pt=FLAG_PT)
            board.write("!", (mark.x, mark.y), near, size_pt=SMALL_PT + 1, weight="bold")
    named = sorted((mark for mark in marks if mark.text), key=lambda mark: -mark.weight)
    if most is None:
        most = MOST_LABELS if len(marks) < MANY else MOST_LABELS_OF_MANY
    for mark in named[:most]:
        ring = RING_PT if mark.is_flagged else 0.0
        board.write(mark.text, (mark.x, mark.y), board.beside((mark.size_pt + ring) / 2),
                    colour=mark.colour, has_leader=True)  # fmt: skip


def legend_of(marks: Sequence[Mark], *, repeats: bool = False) -> list[Entry]:
    """What hollow, filled, bars and rings mean, as far as they occur."""
    entries: list[Entry] = []
    if any(not mark.is_filled for mark in marks):
        entries.append((sample(marker="o", is_filled=False), "counted from the graph (static)"))
    if any(mark.is_filled and not mark.is_capture for mark in marks):
        entries.append((sample(marker="o"), "hardware counters"))
    if any(mark.is_capture for mark in marks):
        entries.append((sample(marker=OTHER_MARK), "a capture: hardware counters of all its"
                        " kernels"))  # fmt: skip
    if any(mark.x_range for mark in marks):
        entries.append((sample(marker="|", line="-", width=1.0),
                        "bytes: moved … fused"))  # fmt: skip
    if repeats and any(mark.y_range and mark.y_range[0] < mark.y_range[1] for mark in marks):
        entries.append((sample(marker=VERTICAL, size=9), "range of repeats"))
    flags = [mark.flag for mark in marks if mark.is_flagged]
    if flags:
        is_above = all(flag.startswith(ABOVE_ITS) for flag in flags)
        entries.append((sample(marker="o", is_filled=False, size=MARK_PT + 4, width=0.9),
                        "! faster than its roof allows" if is_above else "! see text"))  # fmt: skip
    return entries
