"""Time on the axes: compute time against memory time, throughput, and bars of step times.

In the first, a mark is the floor of a step, (memory time, compute time). Along a line parallel to
the diagonal, both grow by the same factor; there the launch floor is a tick and the measured time
the line's end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Any

from ridgeline.report.figures.labels import (
    Curve,
    Labels,
    Mark,
    draw_marks,
    label_marks,
    legend_of_marks,
    make_mark,
)
from ridgeline.report.figures.rooflines import roof_names
from ridgeline.report.figures.style import (
    GREY,
    INK,
    MARK_PT,
    PALE,
    SMALL_PT,
    Drawing,
    Entry,
    colours,
    dense_ticks,
    draw_legend,
    legend_lines,
    legend_precisions,
    new_axes,
    number_ticks,
    precision_mark,
    prefixed,
    sample,
    scale_axes,
)
from ridgeline.report.figures.views import (
    MachineView,
    count_steps,
    describe_points,
    select_steps,
    short_name,
)
from ridgeline.report.text import counted
from ridgeline.roofline.roofs import LEVELS
from ridgeline.units import format_time, si

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

DIAGONAL = (0, (1, 1.6))
LINES = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
WIDE = 20.0  # highest over lowest: from here on a logarithmic axis shows more
MOST_BARS = 30
ROW_IN = 0.17
GAP = 0.4  # between configurations, in bars
RUNTIME_HEADING = "Step time by configuration and machine"


# ---------------------------------------------------------------- compute against memory time


def draw_times(view: MachineView) -> Drawing | None:
    """Steps by the time that their arithmetic and their bytes need at least."""
    points = select_steps(view)
    points = points.assign(memory_s=points[[f"{level}_s" for level in LEVELS]].max(axis=1))
    points = points[points["memory_s"].gt(0) & points["compute_s"].gt(0) & points["time_s"].gt(0)]
    if points.empty:
        return None
    heading = f"{view.device}: compute time against memory time"
    ceilings = [*roof_names(points, view.roofs), *LEVELS]
    source = view.roofs_label(ceilings).partition(";")[0]
    axes = new_axes(heading, f"{source}; mark: least times".removeprefix("; "), height_in=4.8)
    decades = _scale_times(axes, points)
    colour = view.colours_of(points["model"])
    marks, others, curves = [], [], []
    for _, point in points.iterrows():
        mark, end, tick = _mark_times(point, colour[point["model"]])
        marks.append(mark)
        others += [end, *([tick] if point["launch_s"] > max(mark.x, mark.y) else [])]
        looks = {"color": mark.colour, "linewidth": 1.0, "zorder": 3}
        curves.append(Curve(xs=(mark.x, end.x), ys=(mark.y, end.y), looks=looks))
    groups = [
        ("model", legend_lines(colour)),
        ("precision", legend_precisions(points["precision"])),
        ("mark", _list_entries(marks, has_launch=len(others) > len(marks))),
    ]
    labels = draw_marks(axes, [*marks, *others], curves, groups)
    _add_labels(labels, marks, decades)
    caption = describe_points(count_steps(points), view, points)
    return Drawing(axes=axes, title=view.title(heading, ceilings), caption=caption)


def _mark_times(point: Any, colour: str) -> tuple[Mark, Mark, Mark]:
    """Its floor; the measured time, which is the larger side there; and the launch floor."""
    x, y = float(point["memory_s"]), float(point["compute_s"])
    mark = make_mark(point, colour=colour, marker=precision_mark(point["precision"]), x=x, y=y,
                     x_range=None, text=short_name(point) if point["is_first"] else "")  # fmt: skip
    bare = replace(mark, flag="", text="", is_filled=True)
    longer, launch = (float(point[name]) / max(x, y) for name in ("time_s", "launch_s"))
    end = replace(bare, x=x * longer, y=y * longer, marker="*", size_pt=7.0, group="end")
    return mark, end, replace(bare, x=x * launch, y=y * launch, marker="_" if y >= x else "|",
                              size_pt=10.0, colour=INK, group="launch")  # fmt: skip


def _scale_times(axes: Axes, points: pd.DataFrame) -> list[float]:
    """The same span of time on both axes, with lines of equal time at the powers of ten."""
    shortest = points[["memory_s", "compute_s"]].min(axis=1)
    low, high = shortest.min() / 2.5, points["time_s"].max() * 2.5
    scale_axes(axes, x=(low, high), y=(low, high))
    axes.set_xlabel("memory time: the slowest level at its bandwidth")
    axes.set_ylabel("compute time: FLOPs at their roofs")
    for axis in (axes.xaxis, axes.yaxis):
        number_ticks(axis, "s")
    axes.grid(visible=False)
    axes.plot([low, high], [low, high], color=GREY, linestyle=DIAGONAL, linewidth=1.0, zorder=1)
    decades = [10.0**exponent for exponent in range(ceil(log10(low)), floor(log10(high)) + 1)]
    for time_s in decades:
        axes.plot([low, time_s, time_s], [time_s, time_s, low], color=PALE, linewidth=0.7, zorder=1)
    return decades


def _list_entries(marks: list[Mark], *, has_launch: bool) -> list[Entry]:
    launch = (sample(marker="_", size=9), "launch floor, where it is the highest")
    return [
        *legend_of_marks(marks),
        (sample(marker="*", line="-", size=7, width=1.0), "measured time, in the same proportion"),
        *([launch] if has_launch else []),
        (sample(colour=PALE, line="-", width=0.9), "equal time"),
        (sample(colour=GREY, line=DIAGONAL), "as much compute as memory"),
    ]


def _add_labels(labels: Labels, marks: list[Mark], decades: list[float]) -> None:
    low, high = labels.axes.get_xlim()
    labels.avoid((low, high), (low, high))
    corners = {"bound by compute": (low * 1.15, high / 1.3, 1),
               "bound by memory": (high / 1.15, low * 1.3, -1)}  # fmt: skip
    for text, (x, y, away) in corners.items():
        spots = partial(_shift_text, away)
        labels.write(text, (x, y), spots, color=GREY, weight="bold")
    label_marks(labels, marks)
    for time_s in decades:
        labels.write(prefixed(time_s, "s"), (time_s, time_s), labels.around(1.0), color=GREY)


def _shift_text(away: int, width: float, _height: float) -> list[tuple[float, float]]:
    return [(away * width / 2, 0.0)]


# ---------------------------------------------------------------- throughput


def draw_throughput(view: MachineView) -> Drawing | None:
    """A line for each model, precision and setting; a mark for each batch."""
    rates = rates_by_batch(view.runs) if len(view.runs) else view.runs
    if rates.empty:
        return None
    heading = f"{view.device}: throughput against batch size"
    axes = new_axes(heading, "error bars: 95 % interval of the median step, over all repeats")
    colour = view.colours_of(rates["model"])
    others = dict.fromkeys(rates["setting"])
    line = {setting: LINES[number % len(LINES)] for number, setting in enumerate(others)}
    for _, same in rates.groupby(["model", "precision", "setting"], sort=False):
        steps, first = same.sort_values("batch_size"), same.iloc[0]
        errors = [steps["rate"] - steps["low"], steps["high"] - steps["rate"]]
        axes.errorbar(
            steps["batch_size"], steps["rate"], yerr=[error.clip(lower=0) for error in errors],
            color=colour[first["model"]], marker=precision_mark(first["precision"]),
            linestyle=line[first["setting"]],
            linewidth=1.3, markersize=MARK_PT, markerfacecolor="white", markeredgewidth=1.2,
            capsize=3, elinewidth=1.0,
        )  # fmt: skip
    _scale_rates(axes, rates)
    draw_legend(axes, [
        ("model", legend_lines(colour)),
        ("precision", legend_precisions(rates["precision"])),
        ("setting", [(sample(line=line[name]), name) for name in line if len(line) > 1]),
    ])  # fmt: skip
    best = rates.nlargest(1, "rate").iloc[0]
    caption = (
        f"{counted(len(rates), 'configuration')} on {view.device}. {best['model']}"
        f" ({best['precision']}, {best['mode']}) is the fastest with"
        f" {si(best['rate'], 'samples/s')} at batch {best['batch_size']:.0f}."
    )
    return Drawing(axes=axes, title=f"{heading} (error bars: 95 % interval)", caption=caption)


def rates_by_batch(runs: pd.DataFrame) -> pd.DataFrame:
    """A row per configuration: samples per second with the ends of its error bar.

    The middle is the repeat with the median time. The bar spans the 95 % intervals of all.
    """
    samples = runs["images_processed"] / runs["measured_iters"]
    table = runs.assign(
        rate=samples / runs["step_median_s"],
        low=samples / runs["step_interval_high_s"].fillna(runs["step_median_s"]),
        high=samples / runs["step_interval_low_s"].fillna(runs["step_median_s"]),
    )
    table = table[table["rate"].gt(0)]
    same = table.groupby("configuration", sort=False)
    chosen = table[table["is_chosen"]].set_index("configuration")
    settings = same[["model", "precision", "batch_size", "setting", "mode"]].first()
    table = settings.assign(rate=chosen["rate"], low=same["low"].min(), high=same["high"].max())
    return table.reset_index(drop=True)


def _scale_rates(axes: Axes, rates: pd.DataFrame) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    batches = sorted(set(rates["batch_size"]))
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(batches))
    axes.xaxis.set_minor_locator(NullLocator())
    number_ticks(axes.xaxis, with_prefix=False)
    axes.set_xlim(batches[0] / 1.4, batches[-1] * 1.4)
    axes.set_xlabel("batch size")
    axes.set_ylabel("throughput (samples/s)")
    if rates["high"].max() > WIDE * rates["low"].min():
        axes.set_yscale("log")
        axes.set_ylim(rates["low"].min() / 1.6, rates["high"].max() * 1.6)
        dense_ticks(axes.yaxis)
    else:
        axes.set_ylim(0, rates["high"].max() * 1.08)
    number_ticks(axes.yaxis)


# ---------------------------------------------------------------- bars of step times


def draw_runtimes(views: Sequence[MachineView]) -> Drawing | None:
    """A bar for each configuration on each machine, the same configuration side by side."""
    times = collect_times(views)
    if times.empty:
        return None
    shown = times.nlargest(MOST_BARS, "time_s").sort_values(["group", "time_s"])
    colour = colours(times["machine"])
    height = 1.1 + ROW_IN * (len(shown) + GAP * shown["group"].nunique())
    axes = new_axes(RUNTIME_HEADING, "median; error bars: 95 % interval, over all repeats",
                    height_in=max(2.2, height))  # fmt: skip
    _draw_bars(axes, shown, colour)
    devices = dict(zip(times["machine"], times["device"], strict=True))
    draw_legend(axes, [("machine", legend_lines({devices[name]: c for name, c in colour.items()}))])
    ends = times.sort_values("time_s").iloc[[0, -1]]
    texts = [f"{format_time(end['time_s'])} ({end['name']}, {end['device']})"
             for _, end in ends.iterrows()]  # fmt: skip
    left_out = len(times) - len(shown)
    caption = f"Step times: {' to '.join(dict.fromkeys(texts))}."
    caption += f" The {left_out} shortest are left out." * bool(left_out)
    return Drawing(axes=axes, title=RUNTIME_HEADING, caption=caption)


def collect_times(views: Sequence[MachineView]) -> pd.DataFrame:
    """A row per machine and configuration; those that ran on several machines come first."""
    import pandas as pd

    tables = [pd.DataFrame(columns=["machine", "name", "time_s"])]
    for view in views:
        if not len(view.runs):
            continue
        same = view.runs.groupby("configuration", sort=False)
        chosen = view.runs[view.runs["is_chosen"]].set_index("configuration")
        tables.append(pd.DataFrame({
            "machine": view.name, "device": view.device, "anywhere": chosen["anywhere"],
            "name": [_name_run(row) for _, row in chosen.iterrows()],
            "time_s": chosen["step_median_s"],
            "low": same["step_interval_low_s"].min(), "high": same["step_interval_high_s"].max(),
        }))  # fmt: skip
    if len(tables) == 1:
        return tables[0]
    times = pd.concat(tables[1:], ignore_index=True)
    same = times.groupby("anywhere")
    ordered = times.assign(shared=same["machine"].transform("nunique"),
                           slowest=same["time_s"].transform("max"))  # fmt: skip
    by = ["shared", "slowest", "anywhere", "time_s"]
    ordered = ordered.sort_values(by, ascending=[False, False, True, True])
    return ordered.assign(group=ordered.groupby("anywhere", sort=False).ngroup())


def _name_run(row: Any) -> str:
    """With the mode, if it is not among what tells it apart."""
    name = short_name(row, with_precision=True)
    mode = str(row["mode"])
    return name if mode in name.split(", ") else f"{name}, {mode}"


def _draw_bars(axes: Axes, times: pd.DataFrame, colour: dict[str, str]) -> None:
    gap = GAP if times["group"].duplicated().any() else 0.0
    order = times.groupby("group", sort=False).ngroup().to_numpy()
    rows_at = times.assign(row_at=range(len(times)) + gap * order)["row_at"]
    ticks = rows_at.groupby(order).mean()
    wide = times["time_s"].max() > WIDE * times["time_s"].min()
    errors = [times["time_s"] - times["low"], times["high"] - times["time_s"]]
    axes.barh(rows_at, times["time_s"], height=0.8, color=[colour[m] for m in times["machine"]],
              xerr=[error.clip(lower=0).fillna(0) for error in errors], log=wide,
              error_kw={"elinewidth": 0.9, "capsize": 2, "ecolor": INK})  # fmt: skip
    axes.set_yticks(ticks, times.groupby(order)["name"].first())
    axes.set_ylim(rows_at.iloc[-1] + 1 + gap, -0.9)
    ends = times[["time_s", "high"]].max(axis=1)
    low = times["time_s"].min() / 3 if wide else 0.0
    axes.set_xlim(low, ends.max() * (2.6 if wide else 1.16))
    if wide:
        dense_ticks(axes.xaxis)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("step time, logarithmic" if wide else "step time")
    number_ticks(axes.xaxis, "s")
    for row_at, time_s, end in zip(rows_at, times["time_s"], ends, strict=True):
        axes.annotate(format_time(time_s), (end, row_at), (4, 0), textcoords="offset points",
                      va="center", fontsize=SMALL_PT)  # fmt: skip
