"""The roofs of a machine as lines: pure geometry, whoever draws them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ridgeline.machine.ceiling import Ceiling
from ridgeline.roofline.roofs import is_integer

LEVELS = ("dram", "l3", "l2", "l1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """A flat roof of FLOPs per second, or a slope of bytes per second."""

    label: str
    flops_per_s: float | None = None
    bytes_per_s: float | None = None


def compute_roofs(ceilings: Iterable[Ceiling]) -> list[Roof]:
    """The best roof of each precision and path, highest first."""
    best: dict[str, float] = {}
    for c in ceilings:
        if c.kind == "compute" and not is_integer(str(c.precision)):
            name = f"{c.precision} {c.path}"
            best[name] = max(best.get(name, 0.0), c.best)
    roofs = [Roof(label=name, flops_per_s=rate) for name, rate in best.items()]
    return sorted(roofs, key=lambda roof: -(roof.flops_per_s or 0))


def memory_roofs(ceilings: Iterable[Ceiling]) -> list[Roof]:
    """One slope for each memory level, slowest first: the best of its patterns is the roof."""
    best: dict[str, float] = {}
    for c in ceilings:
        if c.kind == "bandwidth" and c.level in LEVELS:
            best[c.level] = max(best.get(c.level, 0.0), c.best)
    return [Roof(label=level.upper(), bytes_per_s=best[level]) for level in LEVELS if level in best]


def ridge(compute: Roof, memory: Roof) -> float:
    """The intensity in FLOPs per byte where the slope meets the flat roof."""
    assert compute.flops_per_s is not None and memory.bytes_per_s is not None
    return compute.flops_per_s / memory.bytes_per_s


def span(compute: list[Roof], memory: list[Roof]) -> tuple[float, float]:
    """Intensities that show every ridge, with room on both sides."""
    ridges = [ridge(c, m) for c in compute for m in memory]
    return min(ridges, default=1.0) / 8, max(ridges, default=1.0) * 8
