"""A roofline in characters: slopes for memory levels, flat roofs for precisions."""

from __future__ import annotations

from math import log10

from ridgeline.roofline.roofs import LEVELS, Roofs
from ridgeline.units import si

SLOPE = "\u2571"  # a box-drawing diagonal


def draw_roofs(roofs: Roofs, *, width: int = 78, height: int = 20) -> str:
    """The roofs of a device; each slope ends where it meets the highest roof."""
    flats, slopes = roofs.compute, {n: roofs.bandwidth[n] for n in LEVELS if n in roofs.bandwidth}
    if not flats or not slopes:
        return ""
    ridges = [rate / slope for rate in flats.values() for slope in slopes.values()]
    low, high = min(ridges) / 8, max(ridges) * 8
    top = max(flats.values())
    grid = _Grid(width, height, (low, high), (min(slopes.values()) * low, top * 1.6))
    for name in sorted(flats, key=lambda name: -flats[name]):
        grid.flat(flats[name], start=flats[name] / max(slopes.values()))
        grid.write(f"{name} {si(flats[name], 'FLOP/s')}", flats[name])
    for level, slope in slopes.items():
        grid.slope(slope, top)
        grid.write_slope(level.upper(), slope)
    axis = f"{low:.3g}".ljust(width - 12) + f"{high:.3g}".rjust(12)
    legend = ", ".join(f"{level.upper()} {si(slope, 'B/s')}" for level, slope in slopes.items())
    return f"{grid}\n{axis}\nFLOP per byte →   {legend}"


class _Grid:
    """Characters addressed by intensity and rate on logarithmic axes."""

    def __init__(
        self, width: int, height: int, x: tuple[float, float], y: tuple[float, float]
    ) -> None:
        self.width, self.height, self._x, self._y = width, height, x, y
        self._cells = [[" "] * width for _ in range(height)]

    def _column(self, x: float) -> int:
        share = log10(x / self._x[0]) / log10(self._x[1] / self._x[0])
        return round(share * (self.width - 1))

    def _row(self, y: float) -> int:
        share = log10(y / self._y[0]) / log10(self._y[1] / self._y[0])
        return self.height - 1 - round(share * (self.height - 1))

    def _intensity(self, column: int) -> float:
        share = column / (self.width - 1)
        return float(self._x[0] * (self._x[1] / self._x[0]) ** share)

    def _put(self, row: int, column: int, mark: str) -> None:
        if 0 <= row < self.height and 0 <= column < self.width and self._cells[row][column] == " ":
            self._cells[row][column] = mark

    def flat(self, rate: float, *, start: float) -> None:
        for column in range(max(self._column(start), 0), self.width):
            self._put(self._row(rate), column, "─")

    def slope(self, bytes_per_s: float, top: float) -> None:
        for column in range(self.width):
            rate = bytes_per_s * self._intensity(column)
            if rate <= top:
                self._put(self._row(rate), column, SLOPE)

    def write(self, text: str, rate: float) -> None:
        """At the right end of a flat roof, one row above it, unless that is taken."""
        row = self._row(rate) - 1
        start = self.width - len(text)
        if row >= 0 and all(cell == " " for cell in self._cells[row][start:]):
            self._cells[row][start:] = list(text)

    def write_slope(self, text: str, bytes_per_s: float) -> None:
        """Left of the slope, as low as there is room for it."""
        for column in range(len(text) + 1, self.width):
            row = self._row(bytes_per_s * self._intensity(column))
            if not 0 <= row < self.height or self._cells[row][column] != SLOPE:
                continue
            start = column - len(text) - 1
            if all(cell == " " for cell in self._cells[row][start:column]):
                self._cells[row][start : column - 1] = list(text)
                return

    def __str__(self) -> str:
        return "\n".join("".join(line).rstrip() for line in self._cells)
