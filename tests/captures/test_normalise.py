"""Units, numbers and names of all versions and countries."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from ridgeline.captures.normalise import (
    decide_mark,
    find_mark,
    read_numbers,
    read_ranges,
    unit_factor,
)

TIME, BYTES = "gpu__time_duration.sum", "dram__bytes_read.sum"
RATE, BYTE_RATE = "sm__cycles_elapsed.avg.per_second", "dram__bytes.sum.per_second"
COUNT = "sm__sass_thread_inst_executed_op_ffma_pred_on.sum"


PER_CYCLE = f"{COUNT}.per_cycle_elapsed"
FACTORS: dict[str, dict[str, float | None]] = {
    BYTES: {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "KiB": 1024, "MiB": 1048576, "": 1,
            "%": None, "Gbyte/second": None, "K": None},
    BYTE_RATE: {"GiB/s": 1073741824, "byte/s": 1, "Gbyte/second": 1e9},
    TIME: {"ns": 1e-9, "nsecond": 1e-9, "us": 1e-6, "µs": 1e-6, "usecond": 1e-6, "ms": 1e-3,
           "msecond": 1e-3, "s": 1, "second": 1, "": 1e-9, "byte": None, "parsec": None, "M": None},
    RATE: {"hz": 1, "Mhz": 1e6, "Ghz": 1e9, "cycle/second": 1, "cycle/usecond": 1e6,
           "cycle/nsecond": 1e9, "us": None},
    COUNT: {"inst": 1, "Minst": 1e6, "Minsts": 1e6, "K": 1e3, "M": 1e6, "G": 1e9, "n/a": 1,
            "block": 1, "Ksector": 1e3, "%": None, "inst/second": None, "inst/cycle": None,
            "Ghz": None, "Mbyte": None, "us": None},
    PER_CYCLE: {"inst/cycle": 1, "Kinst/cycle": 1e3},
    "sm__ops_path_tensor_src_fp16.sum.per_second": {"1/s": 1},
}  # fmt: skip


@pytest.mark.parametrize("metric", FACTORS)
def test_factors(metric: str) -> None:
    for unit, expected in FACTORS[metric].items():  # None: of another kind, and refused
        factor = unit_factor(metric, unit)
        assert factor == (None if expected is None else pytest.approx(expected, rel=1e-12)), unit


MARKS = {
    ",": ["65,77", "1.234,5", "1.048.576", "0,123", "1234,567", "1,71799E+10",
          "1,718E+10"],  # nobody groups digits before an exponent
    ".": ["65.77", "1,234.5", "134,957,158,144", "344.256000", "1.718e-3", "1,234.5e3"],
    "": ["117.344", "1,024"],  # either
    None: ["17", "127.0.0.1", "12.4.1", "1.234,567,8", "nan", "3E8"],
}  # fmt: skip


@pytest.mark.parametrize("mark", MARKS)
def test_the_decimal_mark_of_a_number(mark: str | None) -> None:
    assert {find_mark(text) for text in MARKS[mark]} == {mark}


@pytest.mark.parametrize(
    ("texts", "mark", "ambiguous"),
    [
        (["117.344", "65,77"], ",", ""), (["1,024", "65.77"], ".", ""), (["1,024"], ".", "1,024"),
        (["1 234 567,5"], ",", ""), (["12.16 {6.08; 6.08}"], ".", ""), (["17", "nan"], ".", ""),
    ],
)  # fmt: skip
def test_the_decimal_mark_of_a_file(texts: list[str], mark: str, ambiguous: str) -> None:
    assert decide_mark([pa.array(texts)]) == (mark, ambiguous)


@pytest.mark.parametrize(
    ("text", "mark", "value"),
    [
        ("117.344", ",", 117344), ("117.344", ".", 117.344), ("1,024", ".", 1024),
        ("1,024", ",", 1.024), ("1\u202f234,5", ",", 1234.5), ("1'234.5", ".", 1234.5),
        ("3.2e+03", ".", 3200), ("1,718E+10", ",", 17_180_000_000), ("-4", ".", -4),
        ("12.16 {6.08; 6.08}", ".", 12.16),
        ("65,77", ".", math.nan), ("1.718E+10", ",", math.nan),  # of another mark
        *((text, ".", math.nan) for text in
          ("", "n/a", "(!) n/a", "nan", "(!) nan", "PolicySpread", "1.2.3,4,5")),
    ],
)  # fmt: skip
def test_values(text: str, mark: str, value: float) -> None:
    (number,) = read_numbers(pa.array([text]), mark)
    assert number == pytest.approx(value, rel=0, nan_ok=True)


def test_ranges_may_have_colons_in_their_names() -> None:
    cell = '422  "<default domain>:ridgeline:op:12:none:none:none:none:none:none" '
    assert read_ranges(cell) == "ridgeline:op:12"
    assert read_ranges("") == ""
