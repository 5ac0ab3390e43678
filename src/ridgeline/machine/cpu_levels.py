"""The levels of memory: as the system describes them, and as a measured curve shows them.

A curve is bandwidth over the working set of one thread. While the set fits a level the rate stays
level too; each plateau is one. Their names come from the described caches they fit into, or from
their order where nothing is described.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ridgeline.machine.cpu import CacheOfCpu

SMALLEST_BYTES = 4096
DRAM_FACTOR = 4  # a set of this many last-level caches is in DRAM
FLAT = 1.1  # the fastest and the slowest point of one plateau
APART = 1.1  # plateaus closer than this are one
NAMES = ("l1", "l2", "l3", "l4")

Curve = Sequence[tuple[int, float]]  # working set in bytes, rate; by size


@dataclass(frozen=True, slots=True, kw_only=True)
class Plateau:
    """A stretch of a curve that is level."""

    first_bytes: int
    last_bytes: int
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Where one level is to be measured, in bytes per thread, and how that is known."""

    name: str
    first_bytes: int
    last_bytes: int
    plateau: Plateau | None  # None: only described
    described_bytes: int | None  # this thread's share of the cache; None for DRAM or not described


def share_caches(caches: Sequence[CacheOfCpu], used: Sequence[int]) -> dict[str, int]:
    """Bytes of each data cache that one thread has to itself while all `used` CPUs work."""
    return {
        f"l{cache.level}": cache.size_bytes // max(1, len(cache.cpus & set(used)))
        for cache in caches
        if cache.kind != "instruction" and cache.size_bytes > 0
    }


def grid(last_bytes: int, *, per_octave: int, first_bytes: int = SMALLEST_BYTES) -> list[int]:
    """Working sets from small to large, `per_octave` to each doubling, in whole KiB."""
    steps = math.ceil(per_octave * math.log2(max(2, last_bytes / first_bytes)))
    sizes = (first_bytes * 2 ** (step / per_octave) for step in range(steps + 1))
    return sorted({round(size / 1024) * 1024 for size in sizes})


def plateaus(curve: Curve, *, least_octaves: float = 1.0) -> list[Plateau]:
    """The level stretches of a curve, nearest memory first."""
    sizes = [size for size, _ in curve]
    rates = _envelope([rate for _, rate in curve])
    found: list[tuple[int, int]] = []
    free = [True] * len(sizes)
    while (widest := _widest_flat(sizes, rates, free, least_octaves)) is not None:
        found.append(widest)
        first, last = widest
        free[first : last + 1] = [False] * (last - first + 1)
    return _merge_plateaus(
        [
            Plateau(first_bytes=sizes[first], last_bytes=sizes[last], rate=rates[first])
            for first, last in sorted(found)
        ]
    )


def name_levels(found: Sequence[Plateau], described: Mapping[str, int]) -> list[Level]:
    """The levels to measure: the described ones, each with its plateau if the curve shows one.

    Where nothing is described, the plateaus are named by their order and the last one is DRAM.
    """
    if not described:
        return _name_by_order(found)
    levels = []
    below_bytes = 0
    for name, size_bytes in described.items():
        levels.append(_cache_level(name, below_bytes, size_bytes, found))
        below_bytes = size_bytes
    beyond = [p for p in found if p.last_bytes >= DRAM_FACTOR * below_bytes]
    plateau = beyond[-1] if beyond else None
    levels.append(
        Level(name="dram", first_bytes=DRAM_FACTOR * below_bytes, last_bytes=2**62,
              plateau=plateau, described_bytes=None)
    )  # fmt: skip
    return levels


def best_size(curve: Curve, level: Level) -> int:
    """The working set of this level that was fastest; of DRAM the largest, which no cache helps."""
    if level.name == "dram":
        return max(size for size, _ in curve)
    inside = [point for point in curve if level.first_bytes <= point[0] <= level.last_bytes]
    if not inside:  # a level narrower than the grid
        middle = math.sqrt(level.first_bytes * level.last_bytes)
        return min((size for size, _ in curve), key=lambda size: abs(math.log(size / middle)))
    return max(inside, key=lambda point: point[1])[0]


def _cache_level(name: str, below_bytes: int, size_bytes: int, found: Sequence[Plateau]) -> Level:
    """Sets that fit this cache and that the nearer one cannot help with."""
    overlaps = {p: _overlap(p, max(below_bytes, 1), size_bytes) for p in found}
    plateau = max(overlaps, key=lambda p: overlaps[p], default=None)
    if plateau is not None and overlaps[plateau] < 0.5:
        plateau = None
    first, last = 3 * below_bytes or SMALLEST_BYTES, int(0.8 * size_bytes)
    if last < 1.2 * first:  # caches of nearly one size
        first, last = int(1.25 * below_bytes), int(0.95 * size_bytes)
    if plateau is not None and plateau.last_bytes > 1.2 * first:
        last = min(last, plateau.last_bytes)
    return Level(name=name, first_bytes=first, last_bytes=last, plateau=plateau,
                 described_bytes=size_bytes)  # fmt: skip


def _name_by_order(found: Sequence[Plateau]) -> list[Level]:
    if not found:
        return []
    *nearer, last = found
    named = [*zip(NAMES, nearer, strict=False), ("dram", last)]
    return [
        Level(name=name, first_bytes=plateau.first_bytes, last_bytes=plateau.last_bytes,
              plateau=plateau, described_bytes=None)
        for name, plateau in named
    ]  # fmt: skip


def _envelope(rates: Sequence[float]) -> list[float]:
    """A set can be read at least as fast as any larger one: dips of a busy machine are filled."""
    filled = list(rates)
    for i in range(len(filled) - 2, -1, -1):
        filled[i] = max(filled[i], filled[i + 1])
    return filled


def _widest_flat(
    sizes: Sequence[int], rates: Sequence[float], free: Sequence[bool], least_octaves: float
) -> tuple[int, int] | None:
    """The widest level stretch of what is still free, if it is wide enough."""
    best: tuple[float, int, int] | None = None
    for first in range(len(sizes)):
        last = first
        while last < len(sizes) and free[last] and rates[first] <= FLAT * rates[last]:
            last += 1
        last -= 1
        if last <= first:
            continue
        octaves = math.log2(sizes[last] / sizes[first])
        if octaves >= least_octaves and (best is None or octaves > best[0]):
            best = (octaves, first, last)
    return best[1:] if best else None


def _merge_plateaus(found: Sequence[Plateau]) -> list[Plateau]:
    merged: list[Plateau] = []
    for plateau in found:
        if merged and merged[-1].rate < APART * plateau.rate:
            nearer = merged.pop()
            plateau = Plateau(first_bytes=nearer.first_bytes, last_bytes=plateau.last_bytes,
                              rate=nearer.rate)  # fmt: skip
        merged.append(plateau)
    return merged


def _overlap(plateau: Plateau, first_bytes: int, last_bytes: int) -> float:
    """Octaves that a plateau and a range of sizes have in common."""
    first = max(plateau.first_bytes, first_bytes)
    last = min(plateau.last_bytes, last_bytes)
    return math.log2(last / first) if last > first else 0.0
