"""Throughput against batch size, bars of step times, curves of trainings."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ridgeline.report.figures.style import (
    DPI,
    INK,
    MARK_PT,
    SMALL_PT,
    TITLE_PT,
    WIDTH_IN,
    Drawing,
    colours,
    dense_ticks,
    draw_legend,
    legend_lines,
    legend_precisions,
    new_axes,
    number_ticks,
    precision_mark,
    sample,
)
from ridgeline.report.figures.views import MachineView, name_modes, short_name
from ridgeline.report.study import Study
from ridgeline.report.tables import trainings_table
from ridgeline.report.text import counted
from ridgeline.units import format_percent, format_time, si

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

LINES = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
WIDE = 20.0  # highest over lowest: from here on a logarithmic axis shows more
MOST_BARS = 30
ROW_IN = 0.17
GAP = 0.4  # between configurations, in bars
TRAINING_IN = 2.9
TRAINING_HEADING = "Training: loss and accuracy by epoch"
NAME_CHARACTERS = 40  # a line of a configuration's name
RUNTIME_HEADING = "Step time by configuration and machine"


# ---------------------------------------------------------------- throughput


def draw_throughput(view: MachineView) -> Drawing | None:
    """A line for each model, precision and setting; a mark for each batch."""
    rates = rates_by_batch(view.runs) if len(view.runs) else view.runs
    if rates.empty:
        return None
    heading = f"{view.device}: throughput against batch size"
    axes = new_axes(heading, "error bars: 95 % interval of the median step, over all repeats")
    colour = view.colours_of(rates["model"])
    variants = dict.fromkeys(rates["variant"])
    line = {variant: LINES[number % len(LINES)] for number, variant in enumerate(variants)}
    for _, same in rates.groupby(["model", "precision", "variant"], sort=False):
        steps, first = same.sort_values("batch_size"), same.iloc[0]
        errors = [steps["rate"] - steps["low"], steps["high"] - steps["rate"]]
        axes.errorbar(
            steps["batch_size"], steps["rate"], yerr=[error.clip(lower=0) for error in errors],
            color=colour[first["model"]], marker=precision_mark(first["precision"]),
            linestyle=line[first["variant"]],
            linewidth=1.3, markersize=MARK_PT, markerfacecolor="white", markeredgewidth=1.2,
            capsize=3, elinewidth=1.0,
        )  # fmt: skip
    _scale_rates(axes, rates)
    draw_legend(axes, [
        ("model", legend_lines(colour)),
        ("precision", legend_precisions(rates["precision"])),
        ("setting", [(sample(line=line[name]), name or "default")
                     for name in line if len(line) > 1]),
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

    The middle is the repeat with the median time. The bar spans the 95 % intervals of all; a run
    without one, as an imported one, is its rate alone.
    """
    table = runs[runs["samples_per_s"].gt(0)]
    rate = table["samples_per_s"]
    table = table.assign(
        slowest=table["samples_per_s_low"].fillna(rate),
        fastest=table["samples_per_s_high"].fillna(rate),
    )
    same = table.groupby("configuration", sort=False)
    ends = same.agg(low=("slowest", "min"), high=("fastest", "max"))
    chosen = table[table["is_chosen"]].rename(columns={"samples_per_s": "rate"})
    columns = ["configuration", "model", "precision", "batch_size", "variant", "mode", "rate"]
    rates = chosen[columns].merge(ends, on="configuration")
    return rates.assign(**{end: rates[end].fillna(rates["rate"]) for end in ("low", "high")})


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
    shown["name"] = [textwrap.fill(name, NAME_CHARACTERS) for name in shown["name"]]
    colour = colours(times["machine"])
    lines = max(name.count("\n") + 1 for name in shown["name"])
    height = 1.1 + ROW_IN * lines * (len(shown) + GAP * shown["group"].nunique())
    subtitle = f"{name_modes(times)}; median; error bars: 95 % interval, over all repeats"
    axes = new_axes(RUNTIME_HEADING, subtitle, height_in=max(2.2, height))
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

    tables = []
    for view in views:
        if not len(view.runs):
            continue
        step_s = view.runs["step_median_s"]
        runs = view.runs.assign(
            shortest=view.runs["step_interval_low_s"].fillna(step_s),
            longest=view.runs["step_interval_high_s"].fillna(step_s),
        )
        same = runs.groupby("configuration", sort=False)
        ends = same.agg(low=("shortest", "min"), high=("longest", "max"))
        chosen = view.runs[view.runs["is_chosen"]].merge(ends, on="configuration")
        tables.append(chosen.assign(
            machine=view.name, device=view.device, time_s=chosen["step_median_s"],
            name=[short_name(row, with_precision=True) for _, row in chosen.iterrows()],
        ))  # fmt: skip
    if not tables:
        return pd.DataFrame()
    times = pd.concat(tables, ignore_index=True)
    same = times.groupby("configuration")
    times["shared"] = same["machine"].transform("nunique")
    times["slowest"] = same["time_s"].transform("max")
    by = ["shared", "slowest", "configuration", "time_s"]
    times = times.sort_values(by, ascending=[False, False, True, True])
    return times.assign(group=times.groupby("configuration", sort=False).ngroup())


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


# ---------------------------------------------------------------- trainings


def draw_trainings(study: Study) -> Drawing | None:
    """Loss and accuracy against epochs, a colour for each training."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    epochs = trainings_table(study.trainings)
    if epochs.empty:
        return None
    canvas = Figure(figsize=(WIDTH_IN, TRAINING_IN), dpi=DPI, layout="constrained")
    losses, accuracies = canvas.subplots(1, 2)
    colour = colours(epochs["training"])
    for name, same in epochs.groupby("training", sort=False):
        look = {"color": colour[str(name)], "marker": "o", "markersize": 2.5, "linewidth": 1.3}
        losses.plot(same["epoch"], same["train_loss"], **look)
        accuracies.plot(same["epoch"], 100 * same["test_accuracy"], **look)
        accuracies.plot(same["epoch"], 100 * same["train_accuracy"], **look, linestyle=":")
    losses.set_ylabel("training loss")
    accuracies.set_ylabel("accuracy (%)")
    accuracies.set_ylim(0, 102)
    for axes in (losses, accuracies):
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
        axes.grid(visible=True, which="major")
    losses.set_ylim(bottom=0)
    canvas.suptitle(TRAINING_HEADING, x=0.01, ha="left", fontsize=TITLE_PT, weight="bold")
    draw_legend(accuracies, [
        ("training", legend_lines(colour)),
        ("accuracy", [(sample(line="-"), "of test images"), (sample(line=":"), "while training")]),
    ])  # fmt: skip
    best = epochs.iloc[int(epochs["test_accuracy"].to_numpy().argmax())]
    caption = (
        f"{counted(len(colour), 'training')}; the best is {best['training']} with"
        f" {format_percent(best['test_accuracy'])} of the test images after epoch"
        f" {best['epoch']:.0f}."
    )
    return Drawing(axes=losses, title=TRAINING_HEADING, caption=caption)
