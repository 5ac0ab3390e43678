"""The time of the operators of one class as a curve over their sizes: physics and a residual.

    t = (floor + ((F / P)^p + (B / W)^p)^(1/p)) · exp(residual)

F: FLOPs; P: FLOP/s; B: bytes, W: bytes per second of memory, or of the cache where they fit in it.
In a product F is that of whole tiles in whole waves over the units of the device, B has what the
tiles read through the cache, and the depth takes its time where tiles are few; the best of several
tiles and splits of the depth counts. The parameters are fitted to the logarithm of measured times
and are held near the limits of the device where points are few. The residual is a Gaussian process
over the logarithms of the sizes (kriging): near measured points it is theirs, far away nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

REACH_OCTAVES = 2.0  # from the nearest point; beyond, an estimate is extrapolated
UNKNOWN_SPREAD = 0.7  # expected |log error| without a measured point
TYPICAL_MISS = 0.1  # of the physics, beside which the priors are weighed
LARGEST_MISS = 0.4  # beyond, a miss counts by its root: strange points do not bend the curve
MEAN_OF_NORMAL = 0.8  # mean |x| of a normal distribution, in standard deviations
STEPS_OF_FIT = 40  # at most
POINTS_OF_SCALES = 150  # that the scales of the residual are fitted to, at most

# Parameters of the physics in their order, and the usual deviation of their logarithm from the
# first guess.
PRIORS = {
    "floor_s": 0.7,
    "flops_per_s": 0.5,
    "dram_bytes_per_s": 0.4,
    "cache_bytes_per_s": 0.5,
    "cache_share": 0.7,  # of the cache's size that keeps operands
    "hardness": 0.7,  # p - 1: how well the two times overlap
    "start_depth": 1.0,  # products: the depth that starting a tile costs
    "depth_s": 0.7,  # products: the least time of one step in depth
    "split_s": 0.7,  # products: what summing the parts of a split costs
    "tile_loss": 1.0,  # products: elements of a tile at which it works at half the rate
}
DEVIATIONS = np.array(list(PRIORS.values()))
TILES = np.array(  # rows and columns that libraries choose from
    [(256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 256), (64, 64), (32, 64),
     (64, 32), (16, 64), (64, 16)], dtype=float,
)  # fmt: skip
SPLITS = np.array([1.0, 2.0, 4.0, 8.0, 16.0])  # of the depth
TILES_PER_UNIT = 2  # at the same time


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
    """The time of one call and where it comes from."""

    time_s: float
    provenance: str  # "interpolated", or "extrapolated": beyond two octaves of every point; others
    spread: float  # expected |log error|
    is_known: bool = True  # something of its operator was measured


@dataclass(frozen=True, slots=True)
class _Table:
    """Features of many calls, as arrays."""

    flops: Array
    moved_bytes: Array
    octaves: Array  # log2 of the dims, a row a call
    product: Array | None  # batch, m, n, k: a row a call


def _tabulate(features: Sequence[Features]) -> _Table:
    dims = np.array([f.dims for f in features], dtype=float).reshape(len(features), -1)
    products = [f.product for f in features if f.product is not None]
    if products and len(products) != len(features):
        raise ValueError("either all calls of a class are products, or none")
    return _Table(
        flops=np.array([f.flops for f in features], dtype=float),
        moved_bytes=np.array([f.moved_bytes for f in features], dtype=float),
        octaves=np.log2(np.maximum(dims, 1e-9)),
        product=np.array(products, dtype=float) if products else None,
    )


# ---------------------------------------------------------------- physics


def _first_guess(limits: Limits) -> Array:
    """The logarithms of the parameters before anything was measured."""
    floor_s = max(limits.floor_s, 1e-8)
    cache = limits.cache_bytes_per_s or 4 * limits.dram_bytes_per_s
    return np.log([floor_s, 0.8 * limits.flops_per_s, 0.85 * limits.dram_bytes_per_s, cache,
                   0.5, 1.0, 64, 1e-9, floor_s, 1000])  # fmt: skip


def _physics(logs: Array, table: _Table, limits: Limits) -> Array:
    """The time of each call by the parameters alone."""
    floor, flop_rate, dram, cache, share, hardness, *of_products = np.exp(logs)
    in_cache = np.zeros(len(table.flops))
    if limits.cache_bytes:
        in_cache = 1 / (1 + (table.moved_bytes / (share * limits.cache_bytes)) ** 2)
    memory = table.moved_bytes * ((1 - in_cache) / dram + in_cache / cache)
    if table.product is None:
        return cast(Array, floor + _overlap(table.flops / flop_rate, memory, 1 + hardness))
    cache_rate = cache if limits.cache_bytes_per_s else np.inf
    compute, through, split = _best_tiles(
        table, memory, (flop_rate, cache_rate, *of_products), limits.units
    )
    return cast(Array, floor + _overlap(compute, memory + through, 1 + hardness) + split)


def _overlap(a: Array, b: Array, p: float) -> Array:
    """Between the larger of two times and their sum."""
    larger, smaller = np.maximum(a, b), np.minimum(a, b)
    return cast(Array, larger * (1 + (smaller / np.maximum(larger, 1e-300)) ** p) ** (1 / p))


def _best_tiles(
    table: _Table, memory_s: Array, parameters: tuple[float, ...], units: int
) -> tuple[Array, Array, Array]:
    """Times of computing, of the cache and of splitting, with the best tile and split."""
    assert table.product is not None
    flop_rate, cache_rate, start_depth, depth_s, split_s, loss = parameters
    batch, m, n, k = (column[:, None, None] for column in table.product.T)
    rows, columns = TILES[:, 0, None], TILES[:, 1, None]
    element_bytes = table.moved_bytes[:, None, None] / (batch * (m * k + k * n + m * n))
    tiles = batch * np.ceil(m / rows) * np.ceil(n / columns) * SPLITS
    depth = k / SPLITS
    flops_per_step = table.flops[:, None, None] / (batch * m * n * k)  # attention has two products
    a_wave = units * flops_per_step * (rows * columns + loss) / flop_rate * (depth + start_depth)
    a_chain = depth_s * depth
    compute = np.maximum(
        np.ceil(tiles / units) * a_wave, np.ceil(tiles / (TILES_PER_UNIT * units)) * a_chain
    )
    parts = np.where(SPLITS > 1, 4 * SPLITS, 1) * batch * m * n  # written, and read again
    through = element_bytes * (tiles * (rows + columns) * depth + parts) / cache_rate
    split = np.where(SPLITS > 1, split_s, 0.0) + np.zeros_like(compute)
    cost = np.hypot(compute, memory_s[:, None, None] + through) + split
    best = cost.reshape(len(cost), -1).argmin(1)[:, None]

    def chosen(times: Array) -> Array:
        return np.take_along_axis(times.reshape(len(cost), -1), best, 1)[:, 0]

    return chosen(compute), chosen(through), chosen(split)


def _fit_physics(table: _Table, log_times: Array, limits: Limits) -> Array:
    """Least squares by Levenberg and Marquardt, on the logarithms of times and parameters."""
    guess = _first_guess(limits)

    def errors(logs: Array) -> Array:
        misses = np.log(_physics(logs, table, limits)) - log_times
        size = np.abs(misses)
        damped = np.where(size < LARGEST_MISS, size, np.sqrt(LARGEST_MISS * size))
        priors = TYPICAL_MISS * (logs - guess) / DEVIATIONS
        return np.concatenate([np.sign(misses) * damped, priors])

    logs, error, damping = guess, errors(guess), 1e-2
    for _ in range(STEPS_OF_FIT):
        slopes = _slopes(errors, logs)
        square = slopes.T @ slopes
        damped = square + damping * np.diag(np.diag(square))
        trial = logs - np.clip(np.linalg.solve(damped, slopes.T @ error), -1, 1)
        trial_error = errors(trial)
        gain = 1 - trial_error @ trial_error / (error @ error)
        if gain > 0:
            logs, error, damping = trial, trial_error, damping / 5
        else:
            damping *= 5
        if 0 < gain < 1e-4 or damping > 1e6:
            break
    return logs


def _slopes(function: Callable[[Array], Array], logs: Array, step: float = 1e-3) -> Array:
    """Derivatives by each parameter, a column a parameter."""
    middle = function(logs)
    return np.stack([(function(logs + step * e) - middle) / step for e in np.eye(len(logs))], 1)


# ---------------------------------------------------------------- the residual


@dataclass(frozen=True, slots=True, kw_only=True)
class Scales:
    """Of the residual: how far it reaches along each size, how large it and the noise are."""

    octaves: tuple[float, ...]
    size: float
    noise: float

    def covariance(self, a: Array, b: Array) -> Array:
        return self.size**2 * np.exp(-_distances(a / self.octaves, b / self.octaves))


def _distances(a: Array, b: Array) -> Array:
    square = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T
    return cast(Array, np.sqrt(np.maximum(square, 0)))


def _scales_of(logs: Array) -> Scales:
    *octaves, size, noise = np.exp(logs).tolist()
    return Scales(octaves=tuple(octaves), size=size, noise=noise)


def _fit_scales(octaves: Array, residuals: Array) -> Scales:
    """The likeliest scales, by turns one at a time; usual ones where points are few."""
    chosen = np.random.default_rng(0).permutation(len(residuals))[:POINTS_OF_SCALES]
    places, values = octaves[chosen], residuals[chosen]
    width = octaves.shape[1]
    usual = np.log([2.5] * width + [0.12, 0.04])
    deviations = np.array([0.7] * width + [1.0, 0.7])

    def unlikeliness(logs: Array) -> float:
        scales = _scales_of(logs)
        covariance = scales.covariance(places, places) + scales.noise**2 * np.eye(len(values))
        _, log_determinant = np.linalg.slogdet(covariance)
        fit = values @ np.linalg.solve(covariance, values) + log_determinant
        return float(fit + (((logs - usual) / deviations) ** 2).sum()) / 2

    return _scales_of(_descend(unlikeliness, usual))


def _descend(function: Callable[[Array], float], start: Array, rounds: int = 6) -> Array:
    """A minimum near `start`: steps along one axis after the other, halved where none helps."""
    best, least = start, function(start)
    steps = np.full(len(start), 0.7)
    for _ in range(rounds):
        for axis in range(len(start)):
            move = np.eye(len(start))[axis] * steps[axis]
            value, trial = min(
                ((function(trial), trial) for trial in (best + move, best - move)),
                key=lambda pair: pair[0],
            )
            if value < least:
                best, least = trial, value
            else:
                steps[axis] /= 2
    return best


# ---------------------------------------------------------------- the curve


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What was fitted to the points of a class."""

    limits: Limits
    parameters: tuple[float, ...]  # logarithms, in the order of PRIORS
    scales: Scales | None = None  # of the residual; None without a measured point


@dataclass(frozen=True)
class Curve:
    """A fitted class with its measured points."""

    features: tuple[Features, ...]
    times_s: tuple[float, ...]
    fit: Fit

    def estimate(self, features: Features) -> Estimate:
        return self.estimate_many([features])[0]

    def estimate_many(self, features: Sequence[Features]) -> list[Estimate]:
        """All at once: one by one takes a hundred times longer."""
        if not features:
            return []
        table, scales = _tabulate(features), self.fit.scales
        times = self._physics_of(table)
        if scales is None:
            return [_estimate(time_s, False, UNKNOWN_SPREAD) for time_s in times.tolist()]
        across = scales.covariance(table.octaves, self._table.octaves)
        times = times * np.exp(across @ self._weights)
        explained = ((across @ self._inverse) * across).sum(1)
        variance = scales.noise**2 + np.maximum(scales.size**2 - explained, 0)
        spreads = self._spread_per_deviation * np.sqrt(variance)
        near = _distances(table.octaves, self._table.octaves).min(1) <= REACH_OCTAVES
        return list(map(_estimate, times.tolist(), near.tolist(), spreads.tolist()))

    def _physics_of(self, table: _Table) -> Array:
        return _physics(np.array(self.fit.parameters), table, self.fit.limits)

    def leave_one_out(self) -> Array:
        """log(estimate / measured) of each point by the others.

        The physics is fitted again without the point, its parameters taken as linear.
        """
        if self.fit.scales is None:
            return np.zeros(0)
        parameters, limits = np.array(self.fit.parameters), self.fit.limits

        def log_times(logs: Array) -> Array:
            return np.log(_physics(logs, self._table, limits))

        slopes = _slopes(log_times, parameters)
        values = self._residuals + slopes @ (parameters - _first_guess(limits))
        inverse = np.linalg.inv(self._covariance + (slopes * DEVIATIONS**2) @ slopes.T)
        return cast(Array, -(inverse @ values) / np.diag(inverse))

    @cached_property
    def _table(self) -> _Table:
        return _tabulate(self.features)

    @cached_property
    def _residuals(self) -> Array:
        return cast(Array, np.log(np.array(self.times_s) / self._physics_of(self._table)))

    @cached_property
    def _covariance(self) -> Array:
        assert self.fit.scales is not None
        places = self._table.octaves
        noise = self.fit.scales.noise**2 * np.eye(len(places))
        return self.fit.scales.covariance(places, places) + noise

    @cached_property
    def _inverse(self) -> Array:
        return cast(Array, np.linalg.inv(self._covariance))

    @cached_property
    def _weights(self) -> Array:
        return self._inverse @ self._residuals

    @cached_property
    def _spread_per_deviation(self) -> float:
        """What the misses of measured points say of the deviations that the residual expects."""
        deviations = np.sqrt(1 / np.diag(self._inverse))
        count = len(self.times_s)
        misses = np.abs(self.leave_one_out()).sum() + MEAN_OF_NORMAL * deviations.mean() * 3
        return float(misses / (deviations.mean() * (count + 3)))


def fit_curve(features: Sequence[Features], times_s: Sequence[float], limits: Limits) -> Curve:
    """Fit one class; without points, the limits alone. Takes about 0.2 s for 200 points."""
    times = tuple(float(time_s) for time_s in times_s)
    if not times:
        fit = Fit(limits=limits, parameters=tuple(_first_guess(limits).tolist()))
        return Curve((), (), fit)
    table, log_times = _tabulate(features), np.log(times)
    logs = _fit_physics(table, log_times, limits)
    residuals = log_times - np.log(_physics(logs, table, limits))
    scales = _fit_scales(table.octaves, residuals)
    fit = Fit(limits=limits, parameters=tuple(logs.tolist()), scales=scales)
    return Curve(tuple(features), times, fit)


def _estimate(time_s: float, near: bool, spread: float) -> Estimate:
    provenance = "interpolated" if near else "extrapolated"
    return Estimate(time_s=time_s, provenance=provenance, spread=spread)
