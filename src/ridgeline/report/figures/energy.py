"""Joules: work per joule beside work per second, power, and joules against time of a sample.

Filled marks were measured by a meter, hollow ones are modelled from the coefficients of the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ridgeline.report.figures.labels import Labels, Mark, draw_marks, label_marks
from ridgeline.report.figures.style import (
    GREY,
    INK,
    MARK_PT,
    Drawing,
    Entry,
    Groups,
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
from ridgeline.report.text import counted
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
MOST_ROOFS = 4
WIDE_IN = 9.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A line beside the marks."""

    xs: Sequence[float]
    ys: Sequence[float]
    looks: dict[str, Any]


# ---------------------------------------------------------------- the arch


def draw_arch(view: MachineView) -> Drawing | None:
    """Work per joule against intensity, and work per second with the ceiling of the power cap."""
    roofs = _list_roofs(view)
    if not roofs:
        return None
    steps, layers = _select_points(view)
    heading = f"{view.device}: work per joule, and work per second"
    left, right = _new_pair(heading, _describe_source(view))
    x = _find_limits(roofs, steps)
    draw_legend(left, _list_groups(view, roofs, steps, has_layers=bool(len(layers))))
    drawn = []
    for axes, column, value_at, title in (
        (left, "flops_per_j", EnergyRoofline.attainable_flops_per_j, "work per joule (FLOP/J)"),
        (right, "attained_flops_per_s", EnergyRoofline.attainable_flops_per_s,
         "work per second (FLOP/s)"),
    ):  # fmt: skip
        marks = _make_marks(view, steps, layers, column)
        curves = [_make_curve(roof, x, value_at, LINES[n]) for n, roof in enumerate(roofs)]
        curves += _make_uncapped(roofs, x) if axes is right else []
        highest = max(max(curve.ys) for curve in curves)
        lowest = min([highest / LEAST_SPAN, *(mark.y / 2 for mark in marks)])
        scale_intensity(axes, x=x, y=(lowest, highest * 2.2), title=title)
        drawn.append((axes, marks, curves))
    for roof in roofs:
        half = roof.half_intensity
        left.plot(half, roof.attainable_flops_per_j(half), marker="|", color=GREY, markersize=9)
    for axes, marks, curves in drawn:  # labels want axes that are ready
        label_marks(_draw_lines(axes, marks, curves), marks, most=6)
    balances = describe_balances(view.machine.passport, view.roofs)
    caption = f"Work per joule and per second on {view.device}. {'. '.join(balances)}."
    return Drawing(axes=left, title=heading, caption=caption)


def _list_roofs(view: MachineView) -> list[EnergyRoofline]:
    """The precisions that ran, if any did; the fastest first."""
    passport = view.machine.passport
    model = passport.energy_model(view.roofs.device) if passport is not None else None
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


def _describe_source(view: MachineView) -> str:
    passport = view.machine.passport
    model = passport.energy_model(view.roofs.device) if passport is not None else None
    assert model is not None
    origin = "imported" if model.provenance == "imported" else "measured"
    return f"coefficients {origin}, off by {format_percent(model.mean_residual)} on average"


def _find_limits(roofs: Sequence[EnergyRoofline], points: pd.DataFrame) -> tuple[float, float]:
    xs = [x for roof in roofs for x in (roof.time_balance, roof.half_intensity)]
    known = [float(x) for x in points["ai"]]
    low, high = min(xs) / SPAN, max(xs) * SPAN
    return min([low, *(x / 3 for x in known)]), max([high, *(3 * x for x in known)])


def _draw_lines(
    axes: Axes, marks: Sequence[Mark], curves: Sequence[Curve], groups: Groups = ()
) -> Labels:
    """Curves, marks and the legend; texts keep clear of them."""
    for curve in curves:
        axes.plot(curve.xs, curve.ys, **curve.looks)
    labels = draw_marks(axes, marks, (), groups)
    for curve in curves:
        labels.avoid(curve.xs, curve.ys)
    return labels


def _make_curve(
    roof: EnergyRoofline,
    x: tuple[float, float],
    value_at: Callable[[EnergyRoofline, float], float],
    line: Any,
    colour: str = INK,
) -> Curve:
    low, high = x
    xs = [low * (high / low) ** (n / FINE) for n in range(FINE + 1)]
    xs = sorted([*xs, *(one for one in (roof.time_balance,) if low < one < high)])
    looks = {"color": colour, "linewidth": 1.3, "linestyle": line, "zorder": 2}
    return Curve(xs=xs, ys=[value_at(roof, one) for one in xs], looks=looks)


def _make_uncapped(roofs: Sequence[EnergyRoofline], x: tuple[float, float]) -> list[Curve]:
    """The time roofline without the power cap, where the cap lowers it."""

    def rate_at(roof: EnergyRoofline, intensity: float) -> float:
        return min(roof.flops_per_s, roof.bytes_per_s * intensity)

    lowered = [one for one in roofs if is_capped(one)]
    curves = [_make_curve(one, x, rate_at, DASHES, CAP) for one in lowered]
    return [Curve(xs=c.xs, ys=c.ys, looks={**c.looks, "linewidth": 0.9, "zorder": 1.8})
            for c in curves]  # fmt: skip


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
        for point in table.to_dict("records"):
            marks.append(
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
            )
    return marks


def _list_groups(
    view: MachineView, roofs: Sequence[EnergyRoofline], steps: pd.DataFrame, *, has_layers: bool
) -> Groups:
    lines = [(sample(line=LINES[n]), f"{one.precision} roof") for n, one in enumerate(roofs)]
    if any(is_capped(one) for one in roofs):
        lines.append((sample(line=DASHES, colour=CAP, width=0.9), "without the power cap"))
    lines.append((sample(marker="|", colour=GREY, size=9), "half of the best work per joule"))
    model, precision, (_, sources) = _list_step_groups(view, steps)
    return [model, precision, ("joules", [*sources, *_list_layers(has_layers)]), ("roof", lines)]


def _list_step_groups(view: MachineView, steps: pd.DataFrame) -> list[tuple[str, list[Entry]]]:
    """What tells steps apart: colour, mark, and whether it is filled."""
    return [
        ("model", legend_lines(view.colours_of(steps["model"]))),
        ("precision", legend_precisions(steps["precision"])),
        ("joules", _list_sources(steps)),
    ]


def _list_sources(steps: pd.DataFrame) -> list[Entry]:
    is_measured = steps["energy_provenance"].eq("measured")
    entries = (
        (is_measured.any(), sample(marker="o"), "measured"),
        ((~is_measured).any(), sample(marker="o", is_filled=False), "modelled"),
    )
    return [(handle, text) for is_there, handle, text in entries if is_there]


def _list_layers(has_layers: bool) -> list[Entry]:
    handle = sample(marker="o", is_filled=False, size=LAYER_PT)
    return [(handle, "a layer, modelled")] if has_layers else []


# ---------------------------------------------------------------- power


def draw_power(view: MachineView) -> Drawing | None:
    """Watts at the time roofline against intensity, with the cap; and what steps drew."""
    roofs = _list_roofs(view)
    if not roofs:
        return None
    steps, layers = _select_points(view)
    heading = f"{view.device}: power against intensity"
    axes = new_axes(heading, _describe_source(view))
    x = _find_limits(roofs, steps)
    marks = _make_marks(view, steps, layers.head(0), "power_w")
    curves = [_make_curve(roof, x, EnergyRoofline.power_w, LINES[n])
              for n, roof in enumerate(roofs)]  # fmt: skip
    constant_w, cap_w = roofs[0].constant_power_w, roofs[0].power_cap_w
    drawn = [float(step) for step in steps["power_w"]]
    top_w = max([*(y for curve in curves for y in curve.ys), *drawn, cap_w or 0.0])
    scale_intensity(axes, x=x, y=(1.0, top_w), title="power (W)")
    axes.set_yscale("linear")
    axes.set_ylim(0, top_w * 1.12)
    curves += [_make_level(x, constant_w, GREY)]
    curves += [_make_level(x, cap_w, CAP)] if cap_w else []
    lines = [(sample(line=LINES[n]), one.precision) for n, one in enumerate(roofs)]
    groups = [*_list_step_groups(view, steps), ("at the roofline", lines)]
    labels = _draw_lines(axes, marks, curves, groups)
    for level_w, text in ((constant_w, "constant power"), (cap_w, "power cap")):
        if level_w:
            spots, angle = labels.along((x[1], level_w), (x[0], level_w))
            labels.write(f"{text} {si(level_w, 'W')}", (x[1], level_w), spots, angle=angle,
                         color=GREY if level_w == constant_w else CAP, is_needed=True)  # fmt: skip
    label_marks(labels, marks)
    seen = f" Steps drew {si(min(drawn), 'W')} to {si(max(drawn), 'W')}." if drawn else ""
    caption = f"Power of work at the time roofline on {view.device}.{seen}"
    return Drawing(axes=axes, title=heading, caption=caption)


def _make_level(x: tuple[float, float], level_w: float, colour: str) -> Curve:
    looks = {"color": colour, "linewidth": 1.0, "linestyle": DASHES, "zorder": 1.5}
    return Curve(xs=x, ys=(level_w, level_w), looks=looks)


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
    marks = _make_marks(view, steps, steps.head(0), "energy_j_per_sample", "time_s_per_sample")
    colour, curves = view.colours_of(steps["model"]), []
    fronts = steps[steps["is_on_front"]].sort_values("time_s_per_sample")
    for (_, model, *_), front in fronts.groupby(list(SAME_SAMPLE), sort=False):
        looks = {"color": colour[str(model)], "linewidth": 1.0, "zorder": 2}
        curves += [Curve(xs=(a[0], b[0]), ys=(a[1], b[1]), looks=looks)
                   for a, b in pairwise(_pairs(front))]  # fmt: skip
    xs, ys = [mark.x for mark in marks], [mark.y for mark in marks]
    scale_axes(axes, x=(min(xs) / 1.6, max(xs) * 1.9), y=(min(ys) / 1.6, max(ys) * 1.6))
    axes.set_xlabel("time of a sample")
    axes.set_ylabel("energy of a sample")
    for axis, unit in ((axes.xaxis, "s"), (axes.yaxis, "J")):
        dense_ticks(axis)
        number_ticks(axis, unit)
    labels = _draw_lines(axes, marks, curves, _list_step_groups(view, steps))
    label_marks(labels, marks)
    least = steps.nsmallest(1, "energy_j_per_sample").iloc[0]
    caption = (
        f"{counted(len(steps), 'step')} on {view.device}. Fewest joules:"
        f" {short_name(least, with_precision=True)} with {si(least['energy_j_per_sample'], 'J')}"
        f" a sample, {least['energy_provenance']}."
    )
    return Drawing(axes=axes, title=heading, caption=caption)


def _pairs(front: pd.DataFrame) -> list[tuple[float, float]]:
    columns = ("time_s_per_sample", "energy_j_per_sample")
    return [(float(x), float(y)) for x, y in zip(*(front[c] for c in columns), strict=True)]
