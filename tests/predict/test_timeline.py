"""When operators run, computed by hand."""

from __future__ import annotations

import pytest

from ridgeline.predict.calibration import HostCosts
from ridgeline.predict.timeline import (
    Operation,
    Schedule,
    schedule_cpu,
    schedule_gpu,
    schedule_graph,
)

MS = 1e-3


def of(*device_ms: float, op: str = "a") -> list[Operation]:
    return [Operation(op=op, device_s=one * MS) for one in device_ms]


def in_ms(schedule: Schedule) -> tuple[float, float, float]:
    return schedule.time_s / MS, schedule.kernel_s / MS, schedule.host_s / MS


def test_a_cpu_runs_one_operator_after_the_other() -> None:
    twice = Operation(op="a", device_s=2 * MS, repeats=2)

    found = schedule_cpu([twice, *of(3)], extra_s=0.5 * MS)

    assert in_ms(found) == pytest.approx((8.5, 7, 1.5))


@pytest.mark.parametrize(
    ("device_ms", "time_ms", "host_ms"),
    [
        # launches at 1, 2, 3 ms; each kernel ends 0.1 ms after its launch: the host is the bound
        ((0.1, 0.1, 0.1), 3.1, 3),
        # ends at 6, then 0.5 ms between two: 11.5 and 17
        ((5, 5, 5), 17, 3),
        # ends at 6; the second at 6.6, the third at 7.2: the host is long done
        ((5, 0.1, 0.1), 7.2, 3),
        # ends at 1.1; the second starts at its launch, 2, and ends at 7
        ((0.1, 5), 7, 2),
        ((), 0, 0),
    ],
)
def test_a_gpu_waits_for_the_host_or_the_host_runs_ahead(
    device_ms: tuple[float, ...], time_ms: float, host_ms: float
) -> None:
    host = HostCosts(by_operator_s={"a": 0.6 * MS}, gap_s=0.5 * MS)

    found = schedule_gpu(of(*device_ms), host, extra_s=0.4 * MS)

    assert in_ms(found) == pytest.approx((time_ms, sum(device_ms), host_ms))


def test_an_operator_that_was_not_measured_costs_the_host_what_others_do() -> None:
    host = HostCosts(by_operator_s={"a": 1 * MS, "b": 2 * MS, "c": 9 * MS})

    assert schedule_gpu(of(0.1, op="new"), host, 0.0).time_s == pytest.approx(2.1 * MS)


def test_a_graph_needs_no_host() -> None:
    host = HostCosts(by_operator_s={"a": 1 * MS}, graph_kernel_s=0.01 * MS)

    assert in_ms(schedule_graph(of(0.1, 0.2), host)) == pytest.approx((0.32, 0.3, 0.01))


def test_time_of_no_operator_delays_all() -> None:
    assert in_ms(schedule_cpu(of(1), 0.0).delayed(2 * MS)) == pytest.approx((3, 1, 2))


def test_what_is_joined_is_not_started() -> None:
    joined = [*of(1), Operation(op="a", device_s=2 * MS, is_joined=True), *of(1)]
    host = HostCosts(by_operator_s={"a": 1 * MS}, gap_s=0.5 * MS, graph_kernel_s=0.1 * MS)

    # launches at 1 and 2 ms; the kernel of 1 + 2 ms ends at 4, the next one at 4 + 0.5 + 1
    assert in_ms(schedule_gpu(joined, host, 0.0)) == pytest.approx((5.5, 4, 2))
    assert in_ms(schedule_graph(joined, host)) == pytest.approx((4.2, 4, 0.1))
    assert in_ms(schedule_cpu(joined, 0.5 * MS)) == pytest.approx((5, 4, 1))
