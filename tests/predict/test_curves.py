"""Curves over the sizes of operators: fitted, estimated, stored."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ridgeline.predict.curves import Curve, Features, Limits, fit_curve

LIMITS = Limits(
    flops_per_s=100e12, dram_bytes_per_s=1e12, cache_bytes_per_s=4e12, cache_bytes=32 << 20,
    units=100, floor_s=2e-6,
)  # fmt: skip


def copy_of(n: float) -> Features:
    """n floats read and written."""
    return Features(flops=n, moved_bytes=8 * n, dims=(n,))


def product(m: int, n: int, k: int) -> Features:
    moved = 2.0 * (m * k + k * n + m * n)
    return Features(flops=2.0 * m * n * k, moved_bytes=moved, dims=(m, n, k), product=(1, m, n, k))


def test_a_curve_finds_the_bandwidth_that_the_times_show() -> None:
    sizes = [2.0**e for e in range(22, 31)]
    times = [3e-6 + 8 * n / 0.7e12 for n in sizes]

    curve = fit_curve([copy_of(n) for n in sizes], times, LIMITS)

    between = 1.5 * 2**26
    assert curve.estimate(copy_of(between)).time_s == pytest.approx(
        3e-6 + 8 * between / 0.7e12, rel=0.03
    )
    assert np.abs(curve.leave_one_out()).mean() < 0.05


def test_a_stored_curve_gives_the_same_estimates() -> None:
    points = [product(64, 256, k) for k in (64, 256, 1024)]
    curve = fit_curve(points, [4e-6, 5e-6, 9e-6], LIMITS)

    again = Curve.from_plain(json.loads(json.dumps(curve.to_plain())))

    assert again == curve
    assert again.estimate(product(64, 256, 512)) == curve.estimate(product(64, 256, 512))
