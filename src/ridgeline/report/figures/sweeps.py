"""A sweep: time, throughput and energy against what was swept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from ridgeline.report.figures.style import (
    COLOURS,
    DPI,
    MARK_PT,
    SMALL_PT,
    TITLE_PT,
    WIDTH_IN,
    Drawing,
    draw_legend,
    number_ticks,
    sample,
)
from ridgeline.report.sweeps import QUANTITIES, Chart, Curve, SweepResults, name_quantity
from ridgeline.report.text import counted, group_by

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_CHARTS = 6
ROW_IN = 2.1
LOST = "no result"
LINES = ("-", "--", ":")
Look = tuple[str, str]


def draw_sweep(sweep: SweepResults) -> Drawing | None:
    """A row for each chart, a column for each quantity that was measured."""
    from matplotlib.figure import Figure

    charts = sweep.charts()
    shown = charts[:MOST_CHARTS]
    measured = [name for name in QUANTITIES
                if any(case.values.get(name) for case in sweep.cases)]  # fmt: skip
    if not shown or not measured:
        return None
    canvas = Figure(figsize=(WIDTH_IN, ROW_IN * len(shown) + 0.5), dpi=DPI, layout="constrained")
    grid = canvas.subplots(len(shown), len(measured), squeeze=False)
    names = dict.fromkeys(curve.name for chart in shown for curve in chart.curves)
    looks = {name: _choose_look(number) for number, name in enumerate(names)}
    for chart, row in zip(shown, grid, strict=True):
        for name, axes in zip(measured, row, strict=True):
            _draw_chart(axes, chart, name, looks)
            axes.set_xlabel(name_quantity(sweep.swept))
        row[0].set_title(chart.title, loc="left", fontsize=SMALL_PT + 0.5)
    heading = f"The sweep {sweep.name}, against {name_quantity(sweep.swept)}"
    canvas.suptitle(heading, x=0.01, ha="left", fontsize=TITLE_PT, weight="bold")
    entries = [(sample(colour=colour, line=line, width=2), name or sweep.name)
               for name, (colour, line) in looks.items()]  # fmt: skip
    lost = [case for chart in shown for curve in chart.curves for _, case in curve.cases
            if not case.run_id]  # fmt: skip
    mark = [(sample(marker="x"), LOST)] if lost else []
    draw_legend(grid[0][-1], [("", [*entries, *mark])])
    return Drawing(axes=grid[0][0], title=heading, caption=_describe(sweep, len(charts)))


def _choose_look(number: int) -> Look:
    """A colour and a line; colours come again with dashes."""
    return COLOURS[number % len(COLOURS)], LINES[number // len(COLOURS) % len(LINES)]


def _describe(sweep: SweepResults, charts: int) -> str:
    done = sum(bool(case.run_id) for case in sweep.cases)
    caption = f"{done} of {counted(len(sweep.cases), 'case')} have a result."
    left_out = charts - MOST_CHARTS
    more = f" The page has {counted(left_out, 'chart')} more." if left_out > 0 else ""
    return caption + more


def _draw_chart(axes: Axes, chart: Chart, name: str, looks: dict[str, Look]) -> None:
    lost: Counter[float] = Counter()  # at each place
    for curve in chart.curves:
        _draw_curve(axes, curve, name, *looks[curve.name])
        _draw_lost(axes, curve, looks[curve.name][0], lost)
    places = sorted({x for curve in chart.curves for x, _ in curve.cases})
    _scale(axes, places)
    what, unit = QUANTITIES[name]
    axes.set_ylabel(what if unit == "s" else f"{what} ({unit})", fontsize=SMALL_PT + 0.5)
    number_ticks(axes.yaxis, "s" if unit == "s" else "")
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, which="major")


def _draw_curve(axes: Axes, curve: Curve, name: str, colour: str, line: str) -> None:
    """A line through the medians of repeats, a mark for each run."""
    known = [(x, value) for x, case in curve.cases if (value := case.values.get(name))]
    repeats = group_by((value for _, value in known), (x for x, _ in known))
    middle = [median(values) for values in repeats.values()]
    axes.plot(list(repeats), middle, color=colour, linestyle=line, linewidth=1.2)
    axes.plot([x for x, _ in known], [y for _, y in known], linestyle="", marker="o", color=colour,
              markersize=0.6 * MARK_PT)  # fmt: skip


def _draw_lost(axes: Axes, curve: Curve, colour: str, lost: Counter[float]) -> None:
    """A cross on the axis where a case has no result; above others at the same place."""
    for x, case in curve.cases:
        if not case.run_id:
            axes.plot([x], [0.03 + 0.05 * lost[x]], linestyle="", marker="x", color=colour,
                      clip_on=False, markersize=0.8 * MARK_PT,
                      transform=axes.get_xaxis_transform())  # fmt: skip
            lost[x] += 1


def _scale(axes: Axes, places: Sequence[float]) -> None:
    """Doubling numbers are as far apart as each other; others have their distances."""
    from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

    if places[0] > 0 and places[-1] >= 8 * places[0]:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator(_thin_out(places)))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    number_ticks(axes.xaxis, with_prefix=False)


def _thin_out(places: Sequence[float]) -> list[float]:
    """Those that are far enough apart for their labels."""
    chosen = [places[0]]
    for place in places[1:]:
        if place >= 1.6 * chosen[-1]:
            chosen.append(place)
    return chosen
