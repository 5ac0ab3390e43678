"""The time of an operator of one class as a curve over its sizes: physics and a residual.

    t = floor + ((F / P)^p + (B / W + C / V)^p)^(1/p) · exp(residual)

F: FLOPs, in products those of whole tiles in whole waves over the units of the device; P: FLOP/s.
B: bytes from memory, W: bytes per second. C: bytes through the cache, V: its bytes per second.
The few parameters are fitted to the logarithm of measured times and are held near the limits of
the device where points are few. The residual is that of the nearest measured points and fades
to nothing two octaves away from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

NEIGHBOURS = 4
REACH_OCTAVES = 2.0  # beyond, a neighbour says nothing
UNKNOWN_SPREAD = 0.7  # expected |log error| of a class without a measured point
PRIOR_NOISE = 0.1  # of a point, beside which the priors below are weighed
STEPS = 25  # of the fit, at most

# Parameters of the physics, in this order: what they are, the usual |deviation| of their logarithm.
PRIORS = {
    "floor_s": 0.7,
    "flops_per_s": 0.5,
    "dram_bytes_per_s": 0.4,
    "cache_bytes_per_s": 0.5,
    "cache_share": 0.7,  # of the cache's size that keeps operands
    "softness": 0.5,  # p: how little the two times overlap
    "start_depth": 1.0,  # products: the multiply-adds in depth that starting a tile costs
    "tile_loss": 1.0,  # products: elements of a tile at which it works at half the rate
}
TILES = np.array(  # rows, columns: what libraries choose from
    [(256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (32, 64), (64, 32),
     (16, 64), (64, 16)], dtype=float,
)  # fmt: skip
SPLITS = np.array([1.0, 2.0, 4.0, 8.0, 16.0])  # of the depth, where tiles are few


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """Of one operator call: all that a curve may look at."""

    flops: float
    moved_bytes: float
    dims: tuple[float, ...]  # sizes in which neighbours are near; as many within a class
    product: tuple[int, int, int, int] | None = None  # batch, m, n, k


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of a device at one precision."""

    flops_per_s: float
    dram_bytes_per_s: float
    cache_bytes_per_s: float | None
    cache_bytes: int | None
    units: int
    floor_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    time_s: float
    provenance: str  # "interpolated", or "extrapolated" beyond two octaves of every point
    spread: float  # expected |log error|


@dataclass(frozen=True, slots=True)
class _Table:
    """Features of many calls, as arrays."""

    flops: Array
    moved_bytes: Array
    octaves: Array  # log2 of the dims, a row a call
    product: Array | None  # batch, m, n, k: a row a call

    def __len__(self) -> int:
        return len(self.flops)


def _tabulate(features: Sequence[Features]) -> _Table:
    dims = np.array([f.dims for f in features], dtype=float).reshape(len(features), -1)
    products = [f.product for f in features if f.product is not None]
    if products and len(products) != len(features):
        raise ValueError("a class has products or has none, not both")
    return _Table(
        flops=np.array([f.flops for f in features], dtype=float),
        moved_bytes=np.array([f.moved_bytes for f in features], dtype=float),
        octaves=np.log2(np.maximum(dims, 1e-9)),
        product=np.array(products, dtype=float) if products else None,
    )


# ---------------------------------------------------------------- physics


def _first_guess(limits: Limits) -> Array:
    """The logarithms of the parameters before anything was measured."""
    cache_rate = limits.cache_bytes_per_s or 4 * limits.dram_bytes_per_s
    values = [
        max(limits.floor_s, 1e-8), 0.8 * limits.flops_per_s, 0.85 * limits.dram_bytes_per_s,
        cache_rate, 0.5, 3.0, 64.0, 2048.0,
    ]  # fmt: skip
    return np.log(values)


def _physics(logs: Array, table: _Table, limits: Limits) -> Array:
    """Time of each call by the parameters alone."""
    floor, flop_rate, dram, cache, share, softness, depth, loss = np.exp(logs)
    in_cache = np.zeros(len(table))
    if limits.cache_bytes:
        in_cache = 1 / (1 + (table.moved_bytes / (share * limits.cache_bytes)) ** 2)
    memory = table.moved_bytes * ((1 - in_cache) / dram + in_cache / cache)
    compute = table.flops / flop_rate
    if table.product is not None:
        rate = (flop_rate, cache if limits.cache_bytes_per_s else None)
        return cast(Array, floor + _tiled(table, memory, rate, softness, depth, loss, limits.units))
    return cast(Array, floor + _soft_max(compute, memory, softness))


def _soft_max(a: Array, b: Array, p: float) -> Array:
    """Between the larger of two times and their sum."""
    larger, smaller = np.maximum(a, b), np.minimum(a, b)
    ratio = smaller / np.maximum(larger, 1e-300)
    return cast(Array, larger * (1 + ratio**p) ** (1 / p))


def _tiled(
    table: _Table,
    memory_s: Array,
    rates: tuple[float, float | None],
    softness: float,
    start_depth: float,
    loss: float,
    units: int,
) -> Array:
    """The best tile and split: whole tiles, in whole waves over the units."""
    assert table.product is not None
    batch, m, n, k = (column[:, None, None] for column in table.product.T)
    element_bytes = table.moved_bytes[:, None, None] / (batch * (m * k + k * n + m * n))
    rows, columns = TILES[:, 0, None], TILES[:, 1, None]
    tiles = batch * np.ceil(m / rows) * np.ceil(n / columns) * SPLITS
    waves = np.ceil(tiles / units)
    area = rows * columns
    work = 2 * area * (1 + loss / area) * (k / SPLITS + start_depth)
    compute = waves * units * work / rates[0]
    through = tiles * (rows + columns) * k / SPLITS + (SPLITS > 1) * 2 * batch * m * n * SPLITS
    cache = element_bytes * through / rates[1] if rates[1] else 0.0
    memory = memory_s[:, None, None] + cache
    return cast(Array, _soft_max(compute, memory, softness).min(axis=(1, 2)))


def _fit_physics(table: _Table, log_times: Array, limits: Limits) -> Array:
    """Levenberg and Marquardt's least squares, on the logarithm of the times."""
    guess = _first_guess(limits)
    sigma = np.array(list(PRIORS.values())) / PRIOR_NOISE

    def errors(logs: Array) -> Array:
        misses = np.log(_physics(logs, table, limits)) - log_times
        return np.concatenate([_less_of_outliers(misses), (logs - guess) / sigma])

    logs, damping = guess, 1e-2
    error = errors(logs)
    for _ in range(STEPS):
        slopes = _slopes(errors, logs, error)
        square, gradient = slopes.T @ slopes, slopes.T @ error
        scale = damping * np.diag(np.diag(square))
        step = np.clip(-np.linalg.solve(square + scale, gradient), -1, 1)
        trial = errors(logs + step)
        if trial @ trial < error @ error:
            gain = 1 - trial @ trial / (error @ error)
            logs, error, damping = logs + step, trial, damping / 5
            if gain < 1e-4:
                break
        else:
            damping *= 5
            if damping > 1e6:
                break
    return cast(Array, logs)


def _less_of_outliers(misses: Array, most: float = 0.5) -> Array:
    """Beyond `most` a miss counts by its root: a few strange points do not bend the curve."""
    size = np.abs(misses)
    return cast(Array, np.sign(misses) * np.where(size < most, size, np.sqrt(most * size)))


def _slopes(errors: Any, logs: Array, error: Array, step: float = 1e-3) -> Array:
    return np.stack([(errors(logs + step * e) - error) / step for e in np.eye(len(logs))], axis=1)


# ---------------------------------------------------------------- the curve


@dataclass(frozen=True)
class Curve:
    """A fitted class: its parameters and its measured points."""

    features: tuple[Features, ...]
    times_s: tuple[float, ...]
    limits: Limits
    parameters: tuple[float, ...]  # logarithms, in the order of PRIORS

    @cached_property
    def _table(self) -> _Table:
        return _tabulate(self.features)

    @cached_property
    def _residuals(self) -> Array:
        """What the physics misses at the measured points, as a logarithm."""
        physics = _physics(np.array(self.parameters), self._table, self.limits)
        return cast(Array, np.log(np.array(self.times_s)) - np.log(physics))

    @cached_property
    def _errors(self) -> Array:
        distances = _distances(self._table.octaves, self._table.octaves)
        np.fill_diagonal(distances, np.inf)
        residuals, _ = _residual(distances, self._residuals)
        return cast(Array, residuals - self._residuals)

    def estimate(self, features: Features) -> Estimate:
        return self.estimate_many([features])[0]

    def estimate_many(self, features: Sequence[Features]) -> list[Estimate]:
        """As many at once as there are: one by one is a hundred times slower."""
        if not features:
            return []
        table = _tabulate(features)
        times = _physics(np.array(self.parameters), table, self.limits)
        if not self.times_s:
            return [_estimate(t, False, UNKNOWN_SPREAD) for t in times.tolist()]
        distances = _distances(table.octaves, self._table.octaves)
        residual, nearness = _residual(distances, self._residuals)
        spreads = self._spread(nearness)
        rows = zip((times * np.exp(residual)).tolist(), nearness > 0, spreads.tolist(), strict=True)
        return [_estimate(time, bool(near), spread) for time, near, spread in rows]

    def _spread(self, nearness: Array) -> Array:
        """Between the error with neighbours and the error of the physics alone."""
        few = UNKNOWN_SPREAD / len(self.times_s)  # what so few points do not show
        near = float(np.mean(np.abs(self._errors))) + few
        far = max(float(np.mean(np.abs(self._residuals))) + few, near)
        return cast(Array, nearness * near + (1 - nearness) * 2 * far)

    def leave_one_out(self) -> Array:
        """log(estimate / measured) of each point, its residual from the other points."""
        return self._errors

    def to_plain(self) -> dict[str, Any]:
        """What JSON can hold; `from_plain` makes the same curve of it."""
        return {
            "limits": asdict(self.limits),
            "parameters": list(self.parameters),
            "points": [
                [f.flops, f.moved_bytes, list(f.dims), f.product and list(f.product), time_s]
                for f, time_s in zip(self.features, self.times_s, strict=True)
            ],
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Curve:
        features = tuple(
            Features(
                flops=flops, moved_bytes=moved, dims=tuple(dims),
                product=None if product is None else cast(Any, tuple(product)),
            )
            for flops, moved, dims, product, _ in plain["points"]
        )  # fmt: skip
        return cls(
            features=features,
            times_s=tuple(point[-1] for point in plain["points"]),
            limits=Limits(**plain["limits"]),
            parameters=tuple(plain["parameters"]),
        )


def fit_curve(features: Sequence[Features], times_s: Sequence[float], limits: Limits) -> Curve:
    """Fit one class; with no points, the limits alone."""
    logs = _first_guess(limits)
    if features:
        logs = _fit_physics(_tabulate(features), np.log(np.asarray(times_s, dtype=float)), limits)
    times = tuple(float(time_s) for time_s in times_s)
    return Curve(tuple(features), times, limits, tuple(logs.tolist()))


def _estimate(time_s: float, near: bool, spread: float) -> Estimate:
    provenance = "interpolated" if near else "extrapolated"
    return Estimate(time_s=time_s, provenance=provenance, spread=spread)


def _distances(octaves: Array, known: Array) -> Array:
    """Euclidean, in octaves."""
    square = (octaves**2).sum(1)[:, None] + (known**2).sum(1) - 2 * octaves @ known.T
    return cast(Array, np.sqrt(np.maximum(square, 0)))


def _residual(distances: Array, residuals: Array) -> tuple[Array, Array]:
    """By inverse distance of the nearest; and how near they are, from 1 to 0 beyond the reach."""
    count = min(NEIGHBOURS, distances.shape[1])
    nearest = np.argpartition(distances, count - 1, axis=1)[:, :count]
    distance = np.take_along_axis(distances, nearest, axis=1)
    weight = 1 / (distance + 1e-3) ** 1.5
    mean = (weight * residuals[nearest]).sum(1) / weight.sum(1)
    nearness = np.clip(1 - distance.min(1) / REACH_OCTAVES, 0, 1)
    fade = np.minimum(1, 2 * nearness)  # full up to one octave
    return fade * mean, fade
