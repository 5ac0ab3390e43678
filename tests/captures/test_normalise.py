"""Units, numbers and names of all versions and countries."""

from __future__ import annotations

import math

import pytest

from ridgeline.captures.normalise import (
    Normaliser,
    find_mark,
    metric_name,
    read_number,
    read_ranges,
    strip_groups,
    strip_label,
    to_base_units,
    unit_factor,
)

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
    assert unit_factor(metric, unit) == pytest.approx(expected, rel=1e-12)


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
    assert unit_factor(metric, unit) is None


def test_decimal_texts_keep_their_digits() -> None:
    assert to_base_units(65.77, 1e-6) == 6.577e-05


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("65,77", ","),
        ("65.77", "."),
        ("1,234.5", "."),
        ("1.234,5", ","),
        ("134,957,158,144", "."),
        ("1.048.576", ","),
        ("344.256000", "."),
        ("0,123", ","),
        ("1234,567", ","),
        ("117.344", ""),
        ("1,024", ""),
        ("17", None),
        ("127.0.0.1", None),
        ("12.4.1", None),
        ("1.234,567,8", None),
        ("nan", None),
        ("1 234 567,5", ","),
        ("1,71799E+10", ","),
        ("1,718E+10", ","),  # nobody groups digits before an exponent
        ("1.718e-3", "."),
        ("1,234.5e3", "."),
        ("3E8", None),
    ],
)
def test_what_a_number_says_about_its_mark(text: str, mark: str | None) -> None:
    assert find_mark(text) == mark


@pytest.mark.parametrize(
    ("text", "mark", "value"),
    [
        ("117.344", ",", 117344),
        ("117.344", ".", 117.344),
        ("1,024", ".", 1024),
        ("1,024", ",", 1.024),
        ("65,77", ".", 65.77),  # its own evidence goes first
        ("1\u202f234,5", ",", 1234.5),
        ("1'234.5", ".", 1234.5),
        ("3.2e+03", ".", 3200),
        ("1,71799E+10", ".", 17_179_900_000),
        ("1,718E+10", ".", 17_180_000_000),
        ("1.718E+10", ",", 17_180_000_000),
        ("12.16 {6.08; 6.08}", ".", 12.16),
        ("-4", ".", -4),
    ],
)
def test_values(text: str, mark: str, value: float) -> None:
    assert read_number(text, mark) == value


@pytest.mark.parametrize(
    "text", ["", "n/a", "(!) n/a", "nan", "(!) nan", "inf", "PolicySpread", "1.2.3,4,5", "9" * 500]
)
def test_what_is_no_number(text: str) -> None:
    assert math.isnan(read_number(text, "."))


@pytest.mark.parametrize(
    ("texts", "mark", "notes"),
    [
        (["117.344", "65,77"], ",", []),
        (["117.344", "12"], ".", ["the decimal mark of this file is not clear: 117.344 is read as"
         " 117.344; export it with --print-units base in an English locale if that is wrong"]),
        (["65,77", "65.77", "1.5"], ".", []),
    ],
    ids=["evidence", "ambiguous", "contradictory"],
)  # fmt: skip
def test_the_mark_of_a_file(texts: list[str], mark: str, notes: list[str]) -> None:
    normaliser = Normaliser.decide((TIME, "us", text) for text in texts)
    assert (normaliser.mark, normaliser.notes()) == (mark, notes)


@pytest.mark.parametrize(
    ("metric", "unit"),
    [("launch__grid_size", ""), (COUNT, "inst"), (BYTES, "byte"), (TIME, "ns")],
)
def test_a_mark_in_a_whole_number_groups_digits(metric: str, unit: str) -> None:
    assert Normaliser.decide([(metric, unit, "16.384")]).mark == ","


@pytest.mark.parametrize(
    ("text", "number"),
    [("17313", "17313"), ("17,313", "17313"), ("1.234.567", "1234567"), ("1'500", "1500"),
     ("12,34,567", "1234567"), ("17313.0", "17313"), ("1.5", "1.5"), ("", ""), ("a,b", "a,b")],
)  # fmt: skip
def test_whole_numbers_without_groups(text: str, number: str) -> None:
    assert strip_groups(text) == number


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("Duration (gpu__time_duration.sum)", TIME),
        ("gpu__time_duration.sum (Duration)", TIME),
        ("pmsampling:dram__bytes_read.sum", "pmsampling:dram__bytes_read.sum"),
        ("TriageCompute.dram__bytes_read.sum", "TriageCompute.dram__bytes_read.sum"),
        ("Registers Per Thread", "Registers Per Thread"),
    ],
)
def test_a_metric_beside_its_label(name: str, metric: str) -> None:
    assert strip_label(name) == metric


@pytest.mark.parametrize(
    ("name", "unit", "metric"),
    [
        ("Duration", "msecond", TIME),
        ("Memory Throughput", "Gbyte/second", BYTE_RATE),
        ("Memory Throughput", "%", None),
        ("SM Frequency", "cycle/usecond", "gpc__cycles_elapsed.avg.per_second"),
        ("Elapsed Cycles", "cycle", "gpc__cycles_elapsed.max"),
    ],
)
def test_display_names(name: str, unit: str, metric: str | None) -> None:
    assert metric_name(name, unit) == metric


def test_ranges_may_have_colons_in_their_names() -> None:
    cell = '422  "<default domain>:ridgeline:op:12:none:none:none:none:none:none" '
    assert read_ranges(cell) == "ridgeline:op:12"
    assert read_ranges("") == ""
