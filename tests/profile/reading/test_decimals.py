"""Numbers of all countries."""

from __future__ import annotations

import math

import pytest

from ridgeline.profile.reading.decimals import Evidence, decimal_mark, read_number


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
    assert decimal_mark(text) == mark


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


def test_a_file_is_read_by_its_evidence() -> None:
    evidence = Evidence()
    evidence.see(["117.344", "65,77"])
    assert (evidence.mark, evidence.remarks()) == (",", [])


def test_whole_numbers_are_evidence() -> None:
    evidence = Evidence()
    evidence.see(["16.384"], are_whole=True)
    assert evidence.mark == ","


def test_no_evidence_is_said() -> None:
    evidence = Evidence()
    evidence.see(["117.344", "12"])
    assert evidence.mark == "."
    assert evidence.remarks() == [
        "the decimal mark of this file is not clear: 117.344 is read as 117.344; export it with"
        " --print-units base in an English locale if that is wrong"
    ]


def test_contradictions_are_said() -> None:
    evidence = Evidence()
    evidence.see(["65,77", "65.77", "1.5"])
    assert evidence.mark == "."
    assert "in two ways" in evidence.remarks()[0]
