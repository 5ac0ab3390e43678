"""How all figures look: size, fonts, colours, marks, ticks and legend."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

WIDTH_IN, HEIGHT_IN = 7.0, 4.4  # the width of a page of two columns
DPI = 200
TEXT_PT, SMALL_PT, TITLE_PT = 8.0, 7.0, 9.0
INK, GREY, PALE = "#222222", "#6e6e6e", "#c8c8c8"
# Okabe and Ito's colours without black, which is for roofs, and yellow, which is too light;
# then wine of Paul Tol's. Colour-blind readers can tell them apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255")
OTHER = "#8c8c8c"  # the colour of all that come after the last colour
MARK_PT = 6.0
LEGEND_CHARACTERS = 22
LINE_IN = 0.158  # the height of a line of the legend
DENSE = 100.0

STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans", "font.size": TEXT_PT,
    "axes.labelsize": TEXT_PT, "axes.edgecolor": INK, "axes.linewidth": 0.7,
    "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
    "grid.color": "#e4e4e4", "grid.linewidth": 0.5, "xtick.labelsize": 7.5, "ytick.labelsize": 7.5,
    "legend.fontsize": 7.5, "legend.frameon": False,
    "text.parse_math": False,  # a name may hold a dollar sign
    "svg.hashsalt": "ridgeline",  # the same study gives the same file
    "svg.fonttype": "path",
}  # fmt: skip

PRECISION_MARKS = {"fp32": "o", "tf32": "s", "amp": "D", "bf16": "^", "fp16": "v", "fp64": "p",
                   "fp8": "P"}  # fmt: skip
OTHER_MARK = "X"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A picture that is not saved yet."""

    axes: Axes
    title: str
    caption: str = ""  # one or two sentences with numbers

    @property
    def canvas(self) -> Canvas:
        return canvas_of(self.axes)


def in_style() -> AbstractContextManager[Any]:
    """Nothing of a user's own matplotlib settings is in the figures."""
    from matplotlib import style

    return style.context(["default", STYLE])


def new_axes(heading: str, subtitle: str = "", *, height_in: float = HEIGHT_IN) -> Axes:
    """Empty axes with a title, alone in their figure."""
    from matplotlib.figure import Figure

    canvas = Figure(figsize=(WIDTH_IN, height_in), dpi=DPI, layout="constrained")
    axes = canvas.add_subplot()
    axes.grid(visible=True, which="major")
    axes.set_title(heading, loc="left", fontsize=TITLE_PT, weight="bold", pad=15 if subtitle else 6)
    below = axes.annotate(subtitle, (0, 1), (0, 4), xycoords="axes fraction",
                          textcoords="offset points", fontsize=7.5, color=GREY)  # fmt: skip
    below.set_in_layout(False)
    return axes


def new_panels(heading: str, rows: int, columns: int, *, height_in: float) -> list[list[Axes]]:
    """Rows of empty axes under one title."""
    from matplotlib.figure import Figure

    canvas = Figure(figsize=(WIDTH_IN, height_in), dpi=DPI, layout="constrained")
    grid: list[list[Axes]] = canvas.subplots(rows, columns, squeeze=False).tolist()
    for axes in chain.from_iterable(grid):
        axes.grid(visible=True, which="major")
    canvas.suptitle(heading, x=0.01, ha="left", fontsize=TITLE_PT, weight="bold")
    return grid


def canvas_of(axes: Axes) -> Canvas:
    """The figure that axes stand in."""
    from matplotlib.figure import Figure

    assert isinstance(axes.figure, Figure)
    return axes.figure


def colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name in its order; those after the last colour share a grey."""
    unique = list(dict.fromkeys(names))
    return dict(zip(unique, [*COLOURS, *(OTHER for _ in unique)], strict=False))


def precision_mark(precision: str) -> str:
    return PRECISION_MARKS.get(precision, OTHER_MARK)


def scale_axes(axes: Axes, *, x: tuple[float, float], y: tuple[float, float]) -> None:
    """Logarithmic axes with these limits."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(*x)
    axes.set_ylim(*y)


def scale_intensity(
    axes: Axes, *, x: tuple[float, float], y: tuple[float, float], title: str
) -> None:
    """Logarithmic axes of something against the arithmetic intensity."""
    scale_axes(axes, x=x, y=y)
    axes.set_xlabel("arithmetic intensity (FLOP/B)")
    axes.set_ylabel(title)
    number_ticks(axes.xaxis, with_prefix=False)
    number_ticks(axes.yaxis)
    for axis in (axes.xaxis, axes.yaxis):
        dense_ticks(axis)


def dense_ticks(axis: Any) -> None:
    """Where less than two decades are shown on a logarithmic axis, 2 and 5 get a number, too."""
    from matplotlib.ticker import LogLocator

    low, high = axis.get_view_interval()
    if high / low < DENSE:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))


def number_ticks(axis: Any, unit: str = "", *, with_prefix: bool = True) -> None:
    """Numbers as people write them: `100 G` or `0.1`, not powers of ten."""
    from matplotlib.ticker import EngFormatter, FuncFormatter, NullFormatter

    def write(value: float, _index: int) -> str:
        if with_prefix or value >= 1e6:
            return EngFormatter(unit)(value) if value else "0"
        return f"{value:.10g}"

    axis.set_major_formatter(FuncFormatter(write))
    axis.set_minor_formatter(NullFormatter())


# ---------------------------------------------------------------- legend

Entry = tuple[Any, str]  # what stands in the legend, and what it means
Groups = Sequence[tuple[str, Sequence[Entry]]]  # with a heading each


def sample(
    *, colour: str = INK, marker: Any = "", line: Any = "", is_filled: bool = True,
    size: float = MARK_PT, width: float = 1.2,
) -> Any:  # fmt: skip
    """What stands in a legend for marks and lines of this kind."""
    from matplotlib.lines import Line2D

    return Line2D([], [], color=colour, marker=marker, linestyle=line, markersize=size,
                  markerfacecolor=colour if is_filled else "white", linewidth=width)  # fmt: skip


def draw_legend(axes: Axes, groups: Groups) -> None:
    """Right of the axes, where it covers nothing; one heading for each group."""
    from matplotlib.legend_handler import HandlerLine2D

    rows: list[tuple[Any, str, bool]] = []  # handle, text, whether it is a heading
    for heading, entries in groups:
        rows += [(sample(), heading, True)] if entries else []
        rows += [(handle, textwrap.fill(text, LEGEND_CHARACTERS), False)
                 for handle, text in entries]  # fmt: skip
    if not rows:
        return
    handles, texts, are_headings = zip(*rows, strict=True)
    lines = sum(text.count("\n") + 1 for text in texts) + sum(are_headings) / 2
    canvas = canvas_of(axes)
    canvas.set_figheight(max(canvas.get_figheight(), 0.3 + LINE_IN * lines))
    bars = {h: HandlerLine2D(numpoints=2) for h in handles if h.get_marker() == "|"}  # at both ends
    box: Any = canvas.legend(
        handles, texts, loc="outside right upper", handlelength=1.6, labelspacing=0.45,
        borderaxespad=0.2, handler_map=bars,
    )  # fmt: skip
    (column,) = box.get_children()[0].get_children()[1].get_children()
    for row, is_heading in zip(column.get_children(), are_headings, strict=True):
        if is_heading:  # without a handle, it begins where the handles do
            handle, text = row.get_children()
            handle.width = row.sep = 0
            text.get_children()[0].set_weight("bold")


def legend_lines(colours_by_name: Mapping[str, str]) -> list[Entry]:
    """A thick line for each colour."""
    return [(sample(colour=colour, line="-", width=3), name)
            for name, colour in _join_shared(colours_by_name, OTHER).items()]  # fmt: skip


def legend_precisions(precisions: Iterable[str]) -> list[Entry]:
    """A hollow mark for each precision."""
    marks = {name: precision_mark(name) for name in precisions if name}
    return [(sample(marker=marker, is_filled=False), name)
            for name, marker in _join_shared(marks, OTHER_MARK).items()]  # fmt: skip


def _join_shared(looks: Mapping[str, str], shared: str) -> dict[str, str]:
    """Names that share the last look are counted."""
    others = [name for name, look in looks.items() if look == shared]
    entries = {name: look for name, look in looks.items() if look != shared}
    if others:
        entries[others[0] if len(others) == 1 else f"{len(others)} others"] = shared
    return entries
