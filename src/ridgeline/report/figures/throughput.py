"""Samples per second against the batch, with error bars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ridgeline.report.figures.classic import precision_entries
from ridgeline.report.figures.configurations import lines_of
from ridgeline.report.figures.figure import Drawing
from ridgeline.report.figures.style import (
    MARK_PT,
    canvas_of,
    dense_ticks,
    legend,
    legend_lines,
    new_axes,
    number_ticks,
    precision_mark,
    sample,
)
from ridgeline.report.figures.subjects import Subject
from ridgeline.report.figures.words import joined
from ridgeline.report.words import counted
from ridgeline.units import si

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

LINES = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
WIDE = 20.0  # highest over lowest: from here on a logarithmic axis shows more


def draw_throughput(subject: Subject) -> Drawing | None:
    """A line for each model, precision and setting; a mark for each batch."""
    if not len(subject.runs):
        return None
    rates = rates_by_batch(subject.runs)
    if rates.empty:
        return None
    heading = f"{subject.device}: throughput against batch size"
    axes = new_axes(heading, "error bars: 95 % interval of the median step, over all repeats")
    colour = subject.colours_of(rates["model"])
    others = dict.fromkeys(rates["setting"])
    line = {setting: LINES[place % len(LINES)] for place, setting in enumerate(others)}
    for _, way in rates.groupby(["model", "precision", "setting"], sort=False):
        _draw_way(axes, way.sort_values("batch_size"), colour, line)
    _scale(axes, rates)
    settings = [(sample(line=line[name]), name) for name in line if len(line) > 1]
    legend(axes, [
        ("model", legend_lines(colour)),
        ("precision", precision_entries(rates["precision"])),
        ("setting", settings),
    ])  # fmt: skip
    title = f"{heading} (error bars: 95 % interval)"
    return Drawing(canvas=canvas_of(axes), title=title, caption=_caption(rates, subject))


def rates_by_batch(runs: pd.DataFrame) -> pd.DataFrame:
    """A row per configuration: samples per second with the ends of its error bar.

    The middle is the repeat with the median time. The bar spans the 95 % intervals of all.
    """
    samples = runs["images_processed"] / runs["measured_iters"]
    table = runs.assign(
        rate=samples / runs["step_median_s"],
        low=samples / runs["step_interval_high_s"].fillna(runs["step_median_s"]),
        high=samples / runs["step_interval_low_s"].fillna(runs["step_median_s"]),
        setting=lines_of(runs)["setting"],
    )
    table = table[table["rate"].gt(0)]
    same = table.groupby("configuration", sort=False)
    chosen = table[table["is_chosen"]].set_index("configuration")
    told = same[["model", "precision", "batch_size", "setting", "mode"]].first()
    found = told.assign(
        rate=chosen["rate"], low=same["low"].min(), high=same["high"].max(),
        repeats=same.size(),
    )  # fmt: skip
    return found.reset_index(drop=True)


def _draw_way(axes: Axes, way: pd.DataFrame, colour: dict[str, str], line: dict[str, Any]) -> None:
    first = way.iloc[0]
    below, above = way["rate"] - way["low"], way["high"] - way["rate"]
    axes.errorbar(
        way["batch_size"], way["rate"], yerr=[below.clip(lower=0), above.clip(lower=0)],
        color=colour[first["model"]], marker=precision_mark(first["precision"]),
        linestyle=line[first["setting"]], linewidth=1.3, markersize=MARK_PT,
        markerfacecolor="white", markeredgewidth=1.2, capsize=3, elinewidth=1.0,
    )  # fmt: skip


def _scale(axes: Axes, rates: pd.DataFrame) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    batches = sorted(set(rates["batch_size"]))
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(batches))
    axes.xaxis.set_minor_locator(NullLocator())
    number_ticks(axes.xaxis, "")
    axes.set_xlim(batches[0] / 1.4, batches[-1] * 1.4)
    axes.set_xlabel("batch size")
    axes.set_ylabel("throughput (samples/s)")
    if rates["high"].max() > WIDE * rates["low"].min():
        axes.set_yscale("log")
        axes.set_ylim(rates["low"].min() / 1.6, rates["high"].max() * 1.6)
        dense_ticks(axes.yaxis)
    else:
        axes.set_ylim(0, rates["high"].max() * 1.08)
    number_ticks(axes.yaxis, "", with_prefix=True)


def _caption(rates: pd.DataFrame, subject: Subject) -> str:
    best = rates.nlargest(1, "rate").iloc[0]
    widest = ((rates["high"] - rates["low"]) / rates["rate"]).max()
    bars = f"; the widest error bar spans {100 * widest:.0f} % of its rate" if widest > 0 else ""
    return joined(
        f"{counted(len(rates), 'configuration')} on {subject.device}. {best['model']}"
        f" ({best['precision']}, {best['mode']}) is the fastest with"
        f" {si(best['rate'], 'samples/s')} at batch {best['batch_size']:.0f}{bars}.",
    )
