"""Lines of Nsight Compute's plain text, and the columns that they keep to."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.profile.captures import read, written

from ridgeline.profile.reading.sections import columns_of, parse_metric

NARROW = "    -------------------------- ------------ ------------"


def test_dashes_tell_where_columns_begin() -> None:
    assert columns_of(NARROW + "\n") == (4, 31, 44)
    assert columns_of("    Duration   us   1.00") == ()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (  # name and unit fill their columns
            "    dram__bytes.sum.per_second Gbyte/second         2.00",
            ("dram__bytes.sum.per_second", "Gbyte/second", "2.00"),
        ),
        (  # unit and value do
            "    Duration                   Gbyte/second 2,000,000.00",
            ("Duration", "Gbyte/second", "2,000,000.00"),
        ),
        (  # all three do
            "    dram__bytes.sum.per_second Gbyte/second 2,000,000.00",
            ("dram__bytes.sum.per_second", "Gbyte/second", "2,000,000.00"),
        ),
        (
            "    dram__bytes.sum.per_second                   (!) n/a",
            ("dram__bytes.sum.per_second", "", "(!) n/a"),
        ),
        (  # a line that does not keep to them
            "    Duration           us           2.00",
            ("Duration", "us", "2.00"),
        ),
        (
            "    a__name.which_is_longer_than_the_dashes.sum   byte   2.00",
            ("a__name.which_is_longer_than_the_dashes.sum", "byte", "2.00"),
        ),
        ("    Metric Name                 Metric Unit Metric Value", None),
        ("    of this device.", None),
    ],
)
def test_a_line_is_read_by_its_columns(line: str, found: tuple[str, str, str] | None) -> None:
    assert parse_metric(line + "\n", columns_of(NARROW)) == found


def test_a_line_without_columns_is_read_by_its_blanks() -> None:
    line = "    SM Active Cycles                cycle 55,313,213.62"
    assert parse_metric(line) == ("SM Active Cycles", "cycle", "55,313,213.62")


def test_a_metric_whose_name_and_unit_fill_their_columns_counts(tmp_path: Path) -> None:
    # given 3 s at 2 GB/s, on a chip whose version has a comma
    lines = [
        "[7] app@127.0.0.1",
        "  k (1, 1, 1)x(2, 1, 1), Context 1, Stream 7, Device 0, CC 9,0",
        NARROW,
        "    Metric Name                 Metric Unit Metric Value",
        NARROW,
        "    dram__bytes.sum.per_second Gbyte/second         2.00",
        "    gpu__time_duration.sum           second         3.00",
        NARROW,
        "",
    ]
    capture = read(written(tmp_path, "a.txt", "\n".join(lines)))
    assert capture.kernels[["time_s", "dram_bytes"]].to_dict("list") == {
        "time_s": [3.0],
        "dram_bytes": [6e9],
    }
    assert (capture.compute_capability, capture.device) == ("9.0", "CC 9.0")
    assert capture.warnings == (
        "from rates: dram__bytes.sum.per_second",
        "no FLOPs: no counter of them was collected",
    )


def test_a_text_that_is_cut_in_a_number(tmp_path: Path) -> None:
    # given a text that ends in the middle of 12.34
    text = (
        "==PROF== x\n[8] p@h\n  k(int) (1, 1, 1)x(1, 1, 1), Context 1, Stream 7, Device 0, CC 9.0\n"
        f"    Section: S\n{NARROW}\n"
        "    gpu__time_duration.sum               us        10.00\n"
        "    dram__bytes.sum                   Mbyte        12."
    )
    found = read(written(tmp_path, "log.txt", text))
    # then half of a number is not used, and that is said
    assert found.kernel_time_s == pytest.approx(1e-5)
    assert "dram_bytes" not in found.kernels or found.kernels["dram_bytes"].isna().all()
    assert any("cut off" in warning for warning in found.warnings)
