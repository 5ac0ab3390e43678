"""Joules: work per joule beside work per second, power, and joules against time of a sample.

Filled marks were measured by a meter, hollow ones are modelled from the coefficients of the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeline.machine.passport import EnergyModel
from ridgeline.report.figures.labels import Mark, draw_marks, label_marks
from ridgeline.report.figures.style import (
    GREY,
    INK,
    MARK_PT,
    Drawing,
    Entry,
    canvas_of,
    dense_ticks,
    draw_legend,
    legend_lines,
    legend_precisions,
    new_axes,
    number_ticks,
    precision_mark,
    sample,
    scale_axes,
    scale_intensity,
)
from ridgeline.report.figures.views import MachineView, short_name
from ridgeline.report.text import counted, records
from ridgeline.roofline.floors import (
    SAME_SAMPLE,
    EnergyRoofline,
    describe_balances,
    find_energy_rooflines,
)
from ridgeline.roofline.points import ALL
from ridgeline.units import format_percent, si

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

LINES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
DASHES = (0, (4, 2.2))
CAP = "#b00020"
FINE = 240  # points of a curve
LEAST_SPAN = 100.0  # highest over lowest work per joule or second
SPAN = 30.0  # times the balances, to both sides
MOST_LAYERS = 40
LAYER_PT = 3.5
MOST_ROOFS = len(LINES)
WIDE_IN = 9.6

Limits = tuple[float, float]
ValueAt = Callable[[EnergyRoofline, float], float]


# ---------------------------------------------------------------- the arch


def draw_arch(view: MachineView) -> Drawing | None:
    """Work per joule against intensity, and work per second with the ceiling of the power cap."""
    model, roofs = view.machine.energy_model, _list_roofs(view)
    if model is None or not roofs:
        return None
    steps, layers = _select_points(view)
    heading = f"{view.device}: work per joule, and work per second"
    left, right = _new_pair(heading, _describe_source(model))
    x = _find_limits(roofs, steps)
    draw_legend(left, [*_list_groups(view, steps, layers), ("roof", _list_lines(roofs))])
    panels: tuple[tuple[Axes, str, ValueAt, str], ...] = (
        (left, "flops_per_j", EnergyRoofline.attainable_flops_per_j, "work per joule (FLOP/J)"),
        (right, "attained_flops_per_s", EnergyRoofline.attainable_flops_per_s,
         "work per second (FLOP/s)"),
    )  # fmt: skip
    marks = [_make_marks(view, steps, layers, column) for _, column, _, _ in panels]
    for (axes, _, value_at, title), mine in zip(panels, marks, strict=True):
        highest = _draw_roofs(axes, roofs, x, value_at)
        lowest = min([highest / LEAST_SPAN, *(mark.y / 2 for mark in mine)])
        scale_intensity(axes, x=x, y=(lowest, highest * 2.2), title=title)
    _draw_uncapped(right, roofs, x)
    for (axes, *_), mine in zip(panels, marks, strict=True):  # labels want axes that are ready
        label_marks(draw_marks(axes, mine), mine, most=6)
    for roof in roofs:
        half = roof.half_intensity
        left.plot(half, roof.attainable_flops_per_j(half), marker="|", color=GREY, markersize=9)
    balances = describe_balances(view.machine.passport, view.roofs)
    caption = f"Work per joule and per second on {view.device}. {'. '.join(balances)}."
    return Drawing(axes=left, title=heading, caption=caption)


def _list_roofs(view: MachineView) -> list[EnergyRoofline]:
    """The precisions that ran, if any did; the fastest first."""
    model = view.machine.energy_model
    if model is None or view.energies.empty:
        return []
    every = find_energy_rooflines(model, view.roofs)
    names = {"fp16" if name == "amp" else name for name in _steps_of(view)["precision"]}
    return ([one for one in every if one.precision in names] or every)[:MOST_ROOFS]


def _steps_of(view: MachineView) -> pd.DataFrame:
    """Steps with joules, one of each configuration; of one counted both ways, by counters."""
    energies = view.energies
    steps = energies[energies["is_chosen"] & energies["grain"].eq("step")]
    ordered = steps.sort_values("provenance", kind="stable")  # counter before static
    return ordered.drop_duplicates("configuration")


def _select_points(view: MachineView) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Steps, and the layers that take most joules, with an intensity and a rate."""
    steps, energies = _steps_of(view), view.energies
    layers = energies[energies["is_chosen"] & energies["grain"].eq("layer")]
    layers = layers[layers["phase"].eq(ALL)].nlargest(MOST_LAYERS, "energy_j")
    rated = [table.assign(attained_flops_per_s=table["flops"] / table["time_s"])
             for table in (steps, layers)]  # fmt: skip
    first, second = (table[table["ai"].gt(0) & table["flops"].gt(0)] for table in rated)
    return first, second


def _new_pair(heading: str, subtitle: str) -> tuple[Axes, Axes]:
    """Two empty axes beside each other, the title over the left one."""
    from matplotlib.gridspec import GridSpec

    left = new_axes(heading, subtitle)
    canvas = canvas_of(left)
    canvas.set_figwidth(WIDE_IN)
    grid = GridSpec(1, 2, figure=canvas)
    left.set_subplotspec(grid[0])
    right = canvas.add_subplot(grid[1])
    right.grid(visible=True, which="major")
    return left, right


def _describe_source(model: EnergyModel) -> str:
    origin = "imported" if model.provenance == "imported" else "measured"
    return f"coefficients {origin}, off by {format_percent(model.mean_residual)} on average"


def _find_limits(roofs: Sequence[EnergyRoofline], points: pd.DataFrame) -> Limits:
    xs = [x for roof in roofs for x in (roof.time_balance, roof.half_intensity)]
    known = [float(x) for x in points["ai"]]
    low, high = min(xs) / SPAN, max(xs) * SPAN
    return min([low, *(x / 3 for x in known)]), max([high, *(3 * x for x in known)])


def _draw_roofs(axes: Axes, roofs: Sequence[EnergyRoofline], x: Limits, value_at: ValueAt) -> float:
    """A curve for each precision; returns the highest value."""
    highest = 0.0
    for roof, line in zip(roofs, LINES, strict=False):
        xs = _list_intensities(roof, x)
        ys = [value_at(roof, one) for one in xs]
        axes.plot(xs, ys, color=INK, linewidth=1.3, linestyle=line, zorder=2)
        highest = max(highest, *ys)
    return highest


def _list_intensities(roof: EnergyRoofline, x: Limits) -> list[float]:
    """Points of a curve, with its vertex."""
    return sorted([*np.geomspace(*x, FINE + 1).tolist(), roof.time_balance])


def _draw_uncapped(axes: Axes, roofs: Sequence[EnergyRoofline], x: Limits) -> None:
    """The time roofline without the power cap, where the cap lowers it."""
    for roof in filter(is_capped, roofs):
        xs = _list_intensities(roof, x)
        ys = [min(roof.flops_per_s, roof.bytes_per_s * one) for one in xs]
        axes.plot(xs, ys, color=CAP, linewidth=0.9, linestyle=DASHES, zorder=1.8)


def is_capped(roof: EnergyRoofline) -> bool:
    """Whether the power cap lowers the roofline anywhere: most likely at its ridge."""
    return roof.cap_flops_per_s(roof.time_balance) < roof.flops_per_s


def _make_marks(
    view: MachineView, steps: pd.DataFrame, layers: pd.DataFrame, column: str, x: str = "ai"
) -> list[Mark]:
    """Steps by model and precision; layers small."""
    marks = []
    for table, is_small in ((layers, True), (steps, False)):
        colour = view.colours_of(table["model"])
        marks += [
            Mark(
                x=float(point[x]),
                y=float(point[column]),
                colour=colour[point["model"]],
                marker="o" if is_small else precision_mark(point["precision"]),
                is_filled=point["energy_provenance"] == "measured",
                text="" if is_small else short_name(point),
                weight=float(point["energy_j"]),
                size_pt=LAYER_PT if is_small else MARK_PT,
            )
            for point in records(table)
        ]
    return marks


def _list_groups(
    view: MachineView, steps: pd.DataFrame, layers: pd.DataFrame
) -> list[tuple[str, list[Entry]]]:
    """What tells points apart: colour, mark, and whether it is filled."""
    is_measured = steps["energy_provenance"].eq("measured")
    small = sample(marker="o", is_filled=False, size=LAYER_PT)
    entries = (
        (is_measured.any(), sample(marker="o"), "measured"),
        ((~is_measured).any(), sample(marker="o", is_filled=False), "modelled"),
        (len(layers), small, "a layer, modelled"),
    )
    return [
        ("model", legend_lines(view.colours_of(steps["model"]))),
        ("precision", legend_precisions(steps["precision"])),
        ("joules", [(handle, text) for is_there, handle, text in entries if is_there]),
    ]


def _list_lines(roofs: Sequence[EnergyRoofline]) -> list[Entry]:
    lines = [(sample(line=LINES[n]), f"{one.precision} roof") for n, one in enumerate(roofs)]
    if any(map(is_capped, roofs)):
        lines.append((sample(line=DASHES, colour=CAP, width=0.9), "without the power cap"))
    return [*lines, (sample(marker="|", colour=GREY, size=9), "half of the best work per joule")]


# ---------------------------------------------------------------- power


def draw_power(view: MachineView) -> Drawing | None:
    """Watts at the time roofline against intensity, with the cap; and what steps drew."""
    model, roofs = view.machine.energy_model, _list_roofs(view)
    if model is None or not roofs:
        return None
    steps, layers = _select_points(view)
    none = layers.head(0)
    heading = f"{view.device}: power against intensity"
    axes = new_axes(heading, _describe_source(model))
    x = _find_limits(roofs, steps)
    marks = _make_marks(view, steps, none, "power_w")
    cap_w, drawn = roofs[0].power_cap_w, [float(step) for step in steps["power_w"]]
    top_w = max([_draw_roofs(axes, roofs, x, EnergyRoofline.power_w), *drawn, cap_w or 0.0])
    scale_intensity(axes, x=x, y=(1.0, top_w), title="power (W)")
    axes.set_yscale("linear")
    axes.set_ylim(0, top_w * 1.12)
    base = "constant and busy power" if roofs[0].busy_power_w else "constant power"
    levels = [(roofs[0].constant_power_w, base, GREY)]
    levels += [(cap_w, "power cap", CAP)] if cap_w else []
    for level_w, _, colour in levels:
        axes.plot(x, (level_w, level_w), color=colour, linewidth=1.0, linestyle=DASHES, zorder=1.5)
    lines = [(sample(line=LINES[n]), one.precision) for n, one in enumerate(roofs)]
    groups = [*_list_groups(view, steps, none), ("at the roofline", lines)]
    labels = draw_marks(axes, marks, groups)
    for level_w, text, colour in levels:
        spots, angle = labels.along((x[1], level_w), (x[0], level_w))
        labels.write(f"{text} {si(level_w, 'W')}", (x[1], level_w), spots, angle=angle,
                     color=colour, is_needed=True)  # fmt: skip
    label_marks(labels, marks)
    seen = f" Steps drew {si(min(drawn), 'W')} to {si(max(drawn), 'W')}." if drawn else ""
    caption = f"Power of work at the time roofline on {view.device}.{seen}"
    return Drawing(axes=axes, title=heading, caption=caption)


# ---------------------------------------------------------------- joules against time


def draw_front(view: MachineView) -> Drawing | None:
    """Joules of a sample against its time; what nothing else of the network beats is joined."""
    if view.energies.empty:
        return None
    steps = _steps_of(view)
    steps = steps[steps["energy_j_per_sample"].gt(0) & steps["time_s_per_sample"].gt(0)]
    if not steps.duplicated(list(SAME_SAMPLE)).any():  # nothing to choose between
        return None
    heading = f"{view.device}: joules and seconds of a sample"
    axes = new_axes(heading, "joined: no other step of the network takes less of both")
    none = steps.head(0)
    marks = _make_marks(view, steps, none, "energy_j_per_sample", "time_s_per_sample")
    colour = view.colours_of(steps["model"])
    fronts = steps[steps["is_on_front"]].sort_values("time_s_per_sample")
    for (_, model, *_), front in fronts.groupby(list(SAME_SAMPLE), sort=False):
        axes.plot(front["time_s_per_sample"], front["energy_j_per_sample"],
                  color=colour[str(model)], linewidth=1.0, zorder=2)  # fmt: skip
    xs, ys = [mark.x for mark in marks], [mark.y for mark in marks]
    scale_axes(axes, x=(min(xs) / 1.6, max(xs) * 1.9), y=(min(ys) / 1.6, max(ys) * 1.6))
    axes.set_xlabel("time of a sample")
    axes.set_ylabel("energy of a sample")
    for axis, unit in ((axes.xaxis, "s"), (axes.yaxis, "J")):
        dense_ticks(axis)
        number_ticks(axis, unit)
    label_marks(draw_marks(axes, marks, _list_groups(view, steps, none)), marks)
    least = steps.nsmallest(1, "energy_j_per_sample").iloc[0]
    caption = (
        f"{counted(len(steps), 'step')} on {view.device}. Fewest joules:"
        f" {short_name(least, with_precision=True)} with {si(least['energy_j_per_sample'], 'J')}"
        f" a sample, {least['energy_provenance']}."
    )
    return Drawing(axes=axes, title=heading, caption=caption)
