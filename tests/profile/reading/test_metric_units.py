"""Units of all versions."""

from __future__ import annotations

import pytest

from ridgeline.profile.reading.metric_units import factor, scaled

TIME, BYTES = "gpu__time_duration.sum", "dram__bytes_read.sum"
RATE, BYTE_RATE = "sm__cycles_elapsed.avg.per_second", "dram__bytes.sum.per_second"
COUNT = "sm__sass_thread_inst_executed_op_ffma_pred_on.sum"


@pytest.mark.parametrize(
    ("metric", "unit", "expected"),
    [
        (BYTES, "byte", 1),
        (BYTES, "Kbyte", 1e3),
        (BYTES, "Mbyte", 1e6),
        (BYTES, "Gbyte", 1e9),
        (BYTES, "KiB", 1024),
        (BYTES, "MiB", 1048576),
        (BYTE_RATE, "GiB/s", 1073741824),
        (BYTES, "", 1),
        (TIME, "ns", 1e-9),
        (TIME, "nsecond", 1e-9),
        (TIME, "us", 1e-6),
        (TIME, "µs", 1e-6),
        (TIME, "usecond", 1e-6),
        (TIME, "ms", 1e-3),
        (TIME, "msecond", 1e-3),
        (TIME, "s", 1),
        (TIME, "second", 1),
        (TIME, "", 1e-9),
        (RATE, "hz", 1),
        (RATE, "Mhz", 1e6),
        (RATE, "Ghz", 1e9),
        (RATE, "cycle/second", 1),
        (RATE, "cycle/usecond", 1e6),
        (RATE, "cycle/nsecond", 1e9),
        (BYTE_RATE, "byte/s", 1),
        (BYTE_RATE, "Gbyte/second", 1e9),
        ("lts__t_sectors.sum", "sector", 1),
        ("sm__ops_path_tensor_src_fp16.sum", "", 1),
        ("sm__ops_path_tensor_src_fp16.sum.per_second", "1/s", 1),
        ("sm__sass_thread_inst_executed_op_ffma_pred_on.sum", "inst", 1),
        ("sm__sass_thread_inst_executed_op_ffma_pred_on.sum", "Minst", 1e6),
        ("sm__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed", "inst/cycle", 1),
        ("sm__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed", "Kinst/cycle", 1e3),
        (COUNT, "K", 1e3),
        (COUNT, "M", 1e6),
        (COUNT, "G", 1e9),
        (COUNT, "Minsts", 1e6),
        (COUNT, "n/a", 1),
        (COUNT, "block", 1),
        (BYTE_RATE, "Mbyte/min", 1e6 / 60),
    ],
)
def test_factors(metric: str, unit: str, expected: float) -> None:
    assert factor(metric, unit) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("metric", "unit"),
    [
        (BYTES, "%"),
        (TIME, "byte"),
        (BYTES, "Gbyte/second"),
        (RATE, "us"),
        (TIME, "parsec"),
        (BYTES, "K"),
        (TIME, "M"),
        (COUNT, "%"),
        (COUNT, "inst/second"),
        (COUNT, "inst/cycle"),
        (COUNT, "Ghz"),
        (COUNT, "Mbyte"),
        (COUNT, "us"),
    ],
)
def test_a_unit_of_another_kind_is_refused(metric: str, unit: str) -> None:
    assert factor(metric, unit) is None


def test_decimal_texts_keep_their_digits() -> None:
    assert scaled(65.77, 1e-6) == 6.577e-05
