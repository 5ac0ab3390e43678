"""The roofs of a machine as a figure that can go into a paper."""

from __future__ import annotations

from math import atan2, degrees
from pathlib import Path
from typing import Any

from ridgeline.report.roofs import Roof, ridge, span
from ridgeline.units import si

LABEL_FACTOR = 1.22  # labels closer than this on the logarithmic axis would overlap
# Okabe and Ito's colours, which colour-blind readers can tell apart.
CLOSE_SLOPES = 1.6  # between slopes closer than this there is no room for a label
STYLES = ("-", (0, (6, 1.5)))  # a second round of colours is told apart by its line
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def save(
    path: Path, title: str, measured: tuple[list[Roof], list[Roof]], *, datasheet: list[Roof]
) -> None:
    """Write a PNG or SVG, by the path's ending; published peaks are dashed."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    compute, memory = measured
    figure, axes = pyplot.subplots(figsize=(9, 5.2), layout="constrained")
    low, high = span(compute, memory)
    labels = _slopes(axes, compute, memory, low)
    _flats(axes, compute, memory, high)
    for roof in datasheet:
        rate = roof.flops_per_s or 0
        axes.axhline(rate, color="#999999", linestyle="--", linewidth=0.8)
        axes.text(low * 1.1, rate, f"{roof.label}, datasheet", fontsize=7, va="bottom",
                  color="#666666")  # fmt: skip
    axes.set(xscale="log", yscale="log", xlim=(low, high), title=title)
    axes.set_xlabel("arithmetic intensity (FLOP per byte)")
    axes.set_ylabel("performance (FLOP per second)")
    axes.grid(visible=True, which="major", linewidth=0.4, alpha=0.5)
    _rotate(axes, labels)
    figure.savefig(path, dpi=200)
    pyplot.close(figure)


def _slopes(axes: Any, compute: list[Roof], memory: list[Roof], low: float) -> list[Any]:
    """Each memory roof rises to its ridge with the highest flat roof; the ridge is a vertex."""
    top = max(compute, key=lambda roof: roof.flops_per_s or 0)
    labels = []
    for roof, above in zip(memory, [*memory[1:], None], strict=True):
        rate, corner = roof.bytes_per_s or 0, ridge(top, roof)
        axes.plot([low, corner], [rate * low, rate * corner], color="#333333", linewidth=1.4)
        is_close = above is not None and (above.bytes_per_s or 0) / rate < CLOSE_SLOPES
        at = (low * 1.2, rate * low * (1.1 if is_close else 1.26))  # below or above the line
        text = f"{roof.label} {si(rate, 'B/s')}"
        side = "top" if is_close else "bottom"
        labels.append(axes.text(*at, text, fontsize=8, rotation_mode="anchor", va=side))
    return labels


def _rotate(axes: Any, labels: list[Any]) -> None:
    """Lay labels along the slopes; the angle is known once the axes have their final size."""
    axes.figure.draw_without_rendering()
    x = axes.get_xlim()[0]
    (x0, y0), (x1, y1) = axes.transData.transform([(x, x), (10 * x, 10 * x)])
    for label in labels:
        label.set_rotation(degrees(atan2(y1 - y0, x1 - x0)))


def _flats(axes: Any, compute: list[Roof], memory: list[Roof], high: float) -> None:
    """Flat roofs with their ridges, and labels beside the picture that do not overlap."""
    from matplotlib.transforms import blended_transform_factory

    fastest = max(memory, key=lambda roof: roof.bytes_per_s or 0)
    beside = blended_transform_factory(axes.transAxes, axes.transData)
    heights = spread_out([roof.flops_per_s or 0 for roof in compute], factor=LABEL_FACTOR)
    for number, (roof, height) in enumerate(zip(compute, heights, strict=True)):
        rate = roof.flops_per_s or 0
        colour = COLOURS[number % len(COLOURS)]
        style = STYLES[number // len(COLOURS) % len(STYLES)]
        flat = [ridge(roof, fastest), high]
        axes.plot(flat, [rate, rate], color=colour, linewidth=1.6, linestyle=style)
        for level in memory:
            axes.plot([ridge(roof, level)], [rate], marker="o", markersize=3, color=colour)
        axes.annotate(
            f"{roof.label} {si(rate, 'FLOP/s')}",
            (1.0, rate),
            (1.03, height),
            xycoords=beside,
            textcoords=beside,
            fontsize=8,
            va="center",
            color=colour,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.6},
        )


def spread_out(rates: list[float], *, factor: float) -> list[float]:
    """Heights for labels, highest first, each at least `factor` below the one before."""
    heights: list[float] = []
    for rate in rates:
        below = heights[-1] / factor if heights else rate
        heights.append(min(rate, below))
    return heights
