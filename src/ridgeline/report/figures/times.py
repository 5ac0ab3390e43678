"""Lines and bars: throughput, step times, trainings, sweeps, algorithms of convolutions."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

from ridgeline.records import RANKED
from ridgeline.report.convolutions import LAYER, Convolutions, at_size
from ridgeline.report.figures.rooflines import draw_machine
from ridgeline.report.figures.style import (
    COLOURS,
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
from ridgeline.report.predictions import describe_predictions, list_curves, name_curve
from ridgeline.report.stored import Machine
from ridgeline.report.study import Study
from ridgeline.report.sweeps import QUANTITIES, Chart, Curve, SweepResults, name_quantity
from ridgeline.report.tables import trainings_table
from ridgeline.report.text import counted, group_by, records, safe_name
from ridgeline.units import format_percent, format_time, si

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

BEST_COLOUR, LOST_COLOUR = "#3b6fb6", "#d9822b"
LINES = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
WIDE = 20.0  # highest over lowest: from here on a logarithmic axis shows more
MOST_BARS = 30
ROW_IN = 0.17
GAP = 0.4  # between configurations, in bars
TRAINING_IN = 2.9
TRAINING_HEADING = "Training: loss and accuracy by epoch"
NAME_CHARACTERS = 40  # a line of a configuration's name
RUNTIME_HEADING = "Step time by configuration and machine"
MOST_CHARTS = 6
CHART_IN = 2.1
LOST = "no result"
DASHES = ("-", "--", ":")
Look = tuple[str, str]


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


# ---------------------------------------------------------------- predictions


def draw_predictions(study: Study) -> Drawing | None:
    """Predicted throughput against batch, with its band, and measured points on it."""
    curves = list_curves(study.predictions)[: len(COLOURS)]
    if not curves:
        return None
    heading = "Predicted throughput against batch size"
    axes = new_axes(heading, "bands: the interval of each prediction; marks: measured")
    colour = dict(zip(map(name_curve, curves), COLOURS, strict=False))
    for curve in curves:
        batches, look = curve["batch_size"], colour[name_curve(curve)]
        axes.plot(batches, batches / curve["time_s"], color=look, linewidth=1.3)
        axes.fill_between(batches, batches / curve["high_s"], batches / curve["low_s"],
                          color=look, alpha=0.15, linewidth=0)  # fmt: skip
        known = curve[curve["measured_s"].notna()]
        axes.plot(known["batch_size"], known["batch_size"] / known["measured_s"].astype(float),
                  linestyle="", marker="o", color=look, markersize=MARK_PT)  # fmt: skip
    _scale_rates(axes, _rate_ends(curves))
    draw_legend(axes, [("step", legend_lines(colour))])
    caption = f"{'. '.join(describe_predictions(study.predictions))}."
    return Drawing(axes=axes, title=heading, caption=caption)


def _rate_ends(curves: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The batches of all curves with the lowest and highest rate, as `_scale_rates` needs them."""
    import pandas as pd

    every = pd.concat(curves)
    slowest = every[["high_s", "measured_s"]].astype(float).max(axis=1)
    fastest = every[["low_s", "measured_s"]].astype(float).min(axis=1)
    batches = every["batch_size"]
    return pd.DataFrame(
        {"batch_size": batches, "low": batches / slowest, "high": batches / fastest}
    )


# ---------------------------------------------------------------- sweeps


def draw_sweep(sweep: SweepResults) -> Drawing | None:
    """A row for each chart, a column for each quantity that was measured."""
    from matplotlib.figure import Figure

    charts = sweep.charts()
    shown = charts[:MOST_CHARTS]
    measured = [name for name in QUANTITIES
                if any(case.values.get(name) for case in sweep.cases)]  # fmt: skip
    if not shown or not measured:
        return None
    canvas = Figure(figsize=(WIDTH_IN, CHART_IN * len(shown) + 0.5), dpi=DPI, layout="constrained")
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
    return Drawing(axes=grid[0][0], title=heading, caption=_describe_sweep(sweep, len(charts)))


def _choose_look(number: int) -> Look:
    """A colour and a line; colours come again with dashes."""
    return COLOURS[number % len(COLOURS)], DASHES[number // len(COLOURS) % len(DASHES)]


def _describe_sweep(sweep: SweepResults, charts: int) -> str:
    done = sum(bool(case.run_id) for case in sweep.cases)
    caption = f"{done} of {counted(len(sweep.shown), 'case')} have a result."
    left_out = charts - MOST_CHARTS
    more = f" The page has {counted(left_out, 'chart')} more." if left_out > 0 else ""
    return caption + more


def _draw_chart(axes: Axes, chart: Chart, name: str, looks: dict[str, Look]) -> None:
    lost: Counter[float] = Counter()  # at each place
    for curve in chart.curves:
        _draw_curve(axes, curve, name, *looks[curve.name])
        _draw_lost(axes, curve, looks[curve.name][0], lost)
    places = sorted({x for curve in chart.curves for x, _ in curve.cases})
    _scale_places(axes, places)
    what, unit = QUANTITIES[name]
    axes.set_ylabel(what if unit == "s" else f"{what} ({unit})", fontsize=SMALL_PT + 0.5)
    if _is_wide(chart, name):
        axes.set_yscale("log")
        dense_ticks(axes.yaxis)
    else:
        axes.set_ylim(bottom=0)
    number_ticks(axes.yaxis, "s" if unit == "s" else "")
    axes.grid(visible=True, which="major")


def _is_wide(chart: Chart, name: str) -> bool:
    """Whether a curve would lie on the axis, so low are its values beside those of another."""
    curves = ([case.values.get(name) or 0.0 for _, case in curve.cases] for curve in chart.curves)
    highest = [top for values in curves if (top := max(values))]
    return bool(highest) and max(highest) > WIDE * min(highest)


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


def _scale_places(axes: Axes, places: Sequence[float]) -> None:
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


# ---------------------------------------------------------------- algorithms of convolutions


def list_conv_drawings(
    found: Convolutions, machines: Sequence[Machine]
) -> Iterator[tuple[str, str, Callable[[], Drawing | None]]]:
    """Kind, file name and drawing of each figure that can be drawn."""
    losses = found.of_networks
    for model in found.networks["model"].unique() if len(found.networks) else ():
        rows = found.networks[found.networks["model"].eq(model)]
        name = safe_name(f"conv_{model}_times", otherwise="conv")
        yield "algorithms", name, partial(draw_times, rows, model)
    for model in losses["model"].unique() if len(losses) else ():
        rows = losses[losses["model"].eq(model) & losses["chosen"].eq("default")]
        name = safe_name(f"conv_{model}_losses", otherwise="conv")
        yield "losses", name, partial(draw_losses, rows, model)
    if len(losses):
        worst = max(records(losses), key=lambda row: float(row["lost_s"]))
        yield "executed-flops", "conv_roofline", partial(draw_executed, found, worst, machines)


def draw_times(rows: pd.DataFrame, model: str) -> Drawing | None:
    """The step of a network against its input size, a line for each algorithm."""
    heading = f"{model}: step time by convolution algorithm"
    axes = new_axes(heading, "median step of the whole network")
    colour = colours(rows["algorithm"])
    sized = rows.assign(side=rows["input_size"].map(_side))
    for name, same in sized.groupby("algorithm", sort=False):
        line = same.sort_values("side")
        axes.plot(line["side"], line["time_s"] * 1e3, color=colour[str(name)], marker="o")
    axes.set_yscale("log")
    axes.set_xlabel("input size (pixels a side; 0: the model's own)")
    axes.set_ylabel("step (ms)")
    draw_legend(axes, [("algorithm", legend_lines(colour))])
    best = min(records(rows), key=lambda row: float(row["time_s"]))
    caption = f"The shortest step is {format_time(best['time_s'])}, by {best['algorithm']}."
    return Drawing(axes=axes, title=heading, caption=caption)


def _side(size: str) -> int:
    """The last of `3x64x64`; 0 where the model's own is used."""
    return int(size.rpartition("x")[2] or 0)


def draw_losses(rows: pd.DataFrame, model: str) -> Drawing | None:
    """A bar for each layer: the best time, and beyond it what PyTorch's choice loses."""
    if rows.empty:
        return None
    heading = f"{model}: what PyTorch's choice costs"
    worst = rows.nlargest(MOST_BARS, "lost_s").iloc[::-1]
    names = [
        f"{row['layer']}{at_size(row)}, {row['phase']} ({row['best']})" for row in records(worst)
    ]
    best = worst["best_time_s"] * worst["uses"] * 1e3
    axes = new_axes(heading, "time of each layer in a step; in brackets the best algorithm",
                    height_in=max(2.2, 1.1 + 0.17 * len(worst)))  # fmt: skip
    axes.barh(names, best, color=BEST_COLOUR, height=0.7)
    axes.barh(names, worst["lost_s"] * 1e3, left=best, color=LOST_COLOUR, height=0.7)
    axes.set_xlabel("time (ms)")
    looks = {"best algorithm": BEST_COLOUR, "lost by default": LOST_COLOUR}
    draw_legend(axes, [("", legend_lines(looks))])
    lost_s = float(rows["lost_s"].sum())
    caption = f"All layers together lose {format_time(lost_s)} of the default's time."
    return Drawing(axes=axes, title=heading, caption=caption)


def draw_executed(
    found: Convolutions, worst: Mapping[str, Any], machines: Sequence[Machine]
) -> Drawing | None:
    """One layer on the roofline, a point for each algorithm, with the FLOPs that it executes."""
    rows = found.rows
    same = rows[rows["flops_executed"].notna() & rows["status"].eq(RANKED)]
    for name in LAYER:
        same = same[same[name].eq(worst[name])]
    roofs = next((one.roofs for one in machines
                  if one.roofs.device_name == worst["device_name"]), None)  # fmt: skip
    if same.empty or roofs is None or not roofs.compute or not roofs.bandwidth:
        return None
    heading = f"{worst['model']}, {worst['layer']}: executed FLOPs by algorithm"
    axes = draw_machine(roofs, None, title=heading)
    colour = colours(same["algorithm"])
    for row in records(same):
        x, y = row["flops_executed"] / row["dram_bytes"], row["flops_executed"] / row["time_s"]
        axes.plot([x], [y], color=colour[row["algorithm"]], marker="o")
        axes.set_ylim(bottom=min(axes.get_ylim()[0], y / 2))
    draw_legend(axes, [("algorithm", legend_lines(colour))])
    caption = (
        f"{worst['shape']}. Bytes are those of input, weight and output, once. Fewer FLOPs are"
        " further to the left; the fastest algorithm need not be the highest point."
    )
    return Drawing(axes=axes, title=heading, caption=caption)


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
