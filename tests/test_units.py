"""Numbers as people read them, and sizes as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.errors import RidgelineError
from ridgeline.units import (
    BINARY_PREFIXES,
    PREFIXES,
    format_bytes,
    format_cache,
    format_change,
    format_count,
    format_flops,
    format_percent,
    format_ratio,
    format_time,
    parse_bytes,
    si,
)


def test_the_prefixes() -> None:
    assert list(PREFIXES) == ["E", "P", "T", "G", "M", "k", "", "m", "µ", "n", "p"]
    assert list(PREFIXES.values()) == pytest.approx([1000.0**n for n in range(6, -5, -1)])
    assert {f"{p}i": 1024**n for n, p in enumerate("KMGTP", start=1)} == BINARY_PREFIXES


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (4.09e9, "FLOP", "4.09 GFLOP"),
        (147.84e12, "MAC", "148 TMAC"),
        (999, "B", "999 B"),
        (999.4e6, "B", "999 MB"),
        (999.9e6, "B", "1.00 GB"),  # not 1000 MB
        (1000, "B", "1.00 kB"),
        (7, "op", "7 op"),
        (7.5, "op", "7.50 op"),
        (0, "B", "0 B"),
        (0.0042, "s", "4.20 ms"),
        (3.1e-6, "s", "3.10 µs"),
        (5e-10, "s", "500 ps"),
        (-2.5e9, "B", "-2.50 GB"),
        (1e22, "FLOP", "1e+04 EFLOP"),
        (2e-14, "s", "0.02 ps"),
        (float("inf"), "B", "inf B"),
        (float("nan"), "", "nan"),
    ],
)
def test_si(value: float, unit: str, text: str) -> None:
    assert si(value, unit) == text


def test_the_named_forms() -> None:
    assert format_count(25_557_032) == "25.6 M"
    assert format_bytes(97_800_000) == "97.8 MB"
    assert format_flops(8_178_000_000) == "8.18 GFLOP"
    assert format_ratio(0.25, "FLOP/B") == "0.25 FLOP/B"
    assert format_ratio(1350.4, "FLOP/B") == "1350 FLOP/B"
    assert format_ratio(float("inf")) == "inf"


@pytest.mark.parametrize(
    ("time_s", "text"),
    [
        (0.0123, "12.3 ms"),
        (119, "119 s"),
        (120, "2 min 00 s"),
        (125.4, "2 min 05 s"),
        (3599.9, "1 h 00 min"),
        (3720, "1 h 02 min"),
        (-125, "-2 min 05 s"),
        (float("inf"), "inf s"),
    ],
)
def test_format_time(time_s: float, text: str) -> None:
    assert format_time(time_s) == text


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (0.123, "12.3 %"),
        (0, "0.0 %"),
        (1, "100.0 %"),
        (0.99999, ">99.9 %"),
        (0.00001, "<0.1 %"),
        (1.5, "150.0 %"),
    ],
)
def test_format_percent(fraction: float, text: str) -> None:
    assert format_percent(fraction) == text


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("24GB", 24_000_000_000),
        ("80GiB", 85_899_345_920),
        ("80 gib", 85_899_345_920),
        ("1e9", 1_000_000_000),
        ("1.1 TB", 1_100_000_000_000),  # exact: no binary fraction on the way
        ("16G", 16_000_000_000),
        ("512 B", 512),
        (1234, 1234),
        (1e9, 1_000_000_000),
    ],
)
def test_parse_bytes(text: str | float, size_bytes: int) -> None:
    assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "GB", "24 XB", "-1GB", -1, "1.2.3", "nan", "inf", "24GB!"])
def test_what_is_not_a_size_is_refused_with_the_forms(text: str | float) -> None:
    with pytest.raises(RidgelineError, match=r"is not an amount of memory\n  hint: .*or 80GiB"):
        parse_bytes(text)


@given(st.integers(min_value=0, max_value=10**20))
def test_a_written_size_reads_back_within_its_rounding(size_bytes: int) -> None:
    assert parse_bytes(format_bytes(size_bytes)) == pytest.approx(size_bytes, rel=0.00501)


@given(st.integers(min_value=0, max_value=10**18))
def test_a_plain_number_of_bytes_reads_back_exactly(size_bytes: int) -> None:
    assert parse_bytes(str(size_bytes)) == size_bytes


@given(st.floats(min_value=1e-12, max_value=9.9e20))
def test_no_number_needs_more_than_three_digits(value: float) -> None:
    number = si(value, "FLOP").split()[0]
    assert len(number.replace(".", "")) == 3 or (value < 1000 and value.is_integer())


@pytest.mark.parametrize(
    ("size", "text"),
    [(48 * 1024, "48 KiB"), (1_310_720, "1.25 MiB"), (512, "0.5 KiB"), (32 << 20, "32 MiB")],
)
def test_caches_by_powers_of_1024(size: int, text: str) -> None:
    assert format_cache(size) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0.032, "+3.2 %"), (-0.5, "−50.0 %"), (-1e-5, "0.0 %"), (0.0, "0.0 %")]
)
def test_a_change_has_its_sign(share: float, text: str) -> None:
    assert format_change(share) == text
