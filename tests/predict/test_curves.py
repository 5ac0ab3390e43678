"""Curves over the sizes of operators: fitted, estimated, stored."""

from __future__ import annotations

import numpy as np
import pytest

from ridgeline.predict.curves import Features, Limits, fit_curve

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


def test_without_points_a_curve_has_the_limits_of_the_device() -> None:
    small, large = copy_of(1 << 16), copy_of(1 << 30)

    curve = fit_curve([], [], LIMITS)

    # floor 2 us; 0.5 MB at the cache's 4 TB/s, 8 GB at 85 % of 1 TB/s
    assert curve.estimate(small).time_s == pytest.approx(2e-6 + 0.131e-6, rel=0.01)
    assert curve.estimate(large).time_s == pytest.approx(8 * 2**30 / 0.85e12, rel=0.01)
    assert curve.estimate(small).spread == 0.7


def test_a_product_takes_whole_waves_of_tiles() -> None:
    curve = fit_curve([], [], LIMITS)

    times = [curve.estimate(product(n, 12800, 8192)).time_s for n in (256, 512, 520)]

    # 128 x 128 tiles on 100 units: 2 waves, 4 waves, 5 waves
    assert times[1] / times[0] == pytest.approx(2, rel=0.1)
    assert times[2] / times[1] > 1.1


def test_far_from_every_point_a_time_is_extrapolated() -> None:
    sizes = [2.0**e for e in range(22, 28)]
    curve = fit_curve([copy_of(n) for n in sizes], [8 * n / 0.7e12 for n in sizes], LIMITS)

    found = [curve.estimate(copy_of(n)) for n in (2.0**25.5, 2.0**29, 2.0**30)]

    assert [one.provenance for one in found] == ["interpolated", "interpolated", "extrapolated"]
    assert found[0].spread < found[1].spread < found[2].spread


def test_a_measured_point_pulls_its_neighbours() -> None:
    points = [product(256, 256, k) for k in (256, 512, 1024, 2048, 4096)]
    plain = fit_curve([], [], LIMITS)
    times = [1.3 * plain.estimate(point).time_s for point in points]

    curve = fit_curve(points, times, LIMITS)

    near = product(256, 256, 1500)
    assert curve.estimate(near).time_s == pytest.approx(1.3 * plain.estimate(near).time_s, rel=0.05)
