"""What a kernel is known by: what is told of it again, and what only looks like it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.profile.captures import read, told, written

TIME, READ, WRITE = "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"
AGAIN = "kernels that are told again under the same process and number count once: {}"
NO_FLOPS = "no FLOPs: no counter of them was collected"
NO_BYTES = "no bytes: no counter of them was collected"
AVERAGES = "a summary of ncu: averages over the launches of a kernel, times their number"


def line(cells: Sequence[object]) -> str:
    return ",".join(f'"{cell}"' for cell in cells) + "\n"


LONG = line(["ID", "Process ID", "Host Name", "Kernel Name", "Section Name", "Metric Name",
             "Metric Unit", "Metric Value"])  # fmt: skip
WIDE = line(["ID", "Process ID", "Host Name", "Kernel Name", TIME]) + line(["", "", "", "", "us"])


def long(number: int, metric: str, unit: str, value: object, **about: str) -> str:
    """A row of process 7 on one host, in a section of the user's metrics."""
    host, section = about.get("host", "a"), about.get("section", "Any")
    return line([number, "7", host, f"k{number}", section, metric, unit, value])


def wide(number: int, value: object, host: str = "a") -> str:
    return line([number, "7", host, f"k{number}", value])


@pytest.mark.parametrize("between", [LONG, ""])
def test_a_long_table_keeps_what_it_told_first(tmp_path: Path, between: str) -> None:
    # given two kernels, the first of which comes again with another time
    first = [long(0, TIME, "us", 1), long(0, READ, "byte", 3), long(1, TIME, "us", 2)]
    again = [long(0, TIME, "us", 100)]
    # when they stand below each other, with and without another header
    capture = read(written(tmp_path, "a.csv", LONG + "".join([*first, between, *again])))
    # then it counts once, and that is said
    assert capture.kernels["time_s"].tolist() == [1e-6, 2e-6]
    assert AGAIN.format(1) in capture.warnings


def test_a_kernel_by_itself_that_is_told_again(tmp_path: Path) -> None:
    rows = [long(0, TIME, "us", 1), long(0, READ, "byte", 3)]
    rows += [long(0, TIME, "us", 100), long(0, READ, "byte", 300)]
    found = told(written(tmp_path, "a.csv", LONG + "".join(rows)))
    assert (found["kernels"], found["kernel_time_s"]) == (1, 1e-6)
    assert AGAIN.format(1) in found["warnings"]


def test_a_long_table_adds_other_metrics_below(tmp_path: Path) -> None:
    # given reads, and writes of the same kernels below another header
    reads = [long(n, READ, "byte", 10 + n) for n in range(2)]
    writes = [long(n, WRITE, "byte", 5) for n in range(2)]
    found = told(written(tmp_path, "a.csv", "".join([LONG, *reads, LONG, *writes])))
    # then nothing is told again
    assert (found["kernels"], found["dram_bytes"]) == (2, 10 + 11 + 5 + 5)
    assert found["warnings"] == ["no time: collect gpu__time_duration.sum", NO_FLOPS]


def test_a_gap_is_filled_by_what_comes_later(tmp_path: Path) -> None:
    rows = [
        long(0, TIME, "us", "n/a"),
        LONG,
        long(0, TIME, "us", 5),
        LONG,
        long(0, TIME, "", "nan"),
    ]
    found = told(written(tmp_path, "a.csv", LONG + "".join(rows)))
    assert found["kernel_time_s"] == 5e-6
    assert found["warnings"] == [NO_FLOPS, NO_BYTES]


def test_a_metric_in_two_sections_is_not_told_again(tmp_path: Path) -> None:
    rows = [
        long(0, "Duration", "us", "1.23", section="GPU Speed Of Light Throughput"),
        long(0, TIME, "ns", "1,234", section="Command line profiler metrics"),
    ]
    found = told(written(tmp_path, "a.csv", LONG + "".join(rows)))
    assert found["kernel_time_s"] == 1.234e-6
    assert found["warnings"] == [NO_FLOPS, NO_BYTES]


def test_the_first_of_several_values_is_used(tmp_path: Path) -> None:
    # given a kernel with two times in a long table, and one with two columns in a wide one
    rows = [long(0, TIME, "us", "1", section="a"), long(0, TIME, "us", "2", section="b")]
    twice = line(["ID", "Process ID", "Kernel Name", TIME, TIME]) + line(["", "", "", "us", "us"])
    tables = {
        "with other values": LONG + "".join(rows),
        "in several columns": twice + line([0, 1, "k", 1, 2]),
    }
    for how, text in tables.items():
        found = told(written(tmp_path, "a.csv", text))
        # then both take the first, and say so
        assert found["kernel_time_s"] == 1e-6
        said = f"told again {how}, the first is used: {TIME}"
        assert found["warnings"] == [said, NO_FLOPS, NO_BYTES]


@pytest.mark.parametrize("form", ["long", "wide"])
def test_processes_of_one_number_on_two_hosts_are_two(tmp_path: Path, form: str) -> None:
    # given two nodes with the same process number, kernel numbers and names
    rows = {
        "long": [LONG, *(long(0, TIME, "us", 1 + n, host=f"node{n}") for n in range(2))],
        "wide": [WIDE, *(wide(0, 1 + n, host=f"node{n}") for n in range(2))],
    }
    capture = read(written(tmp_path, "a.csv", "".join(rows[form])))
    # then each has its kernel
    assert capture.kernels["time_s"].tolist() == [1e-6, 2e-6]
    assert capture.warnings == (NO_FLOPS, NO_BYTES)


def test_a_table_without_hosts_is_of_the_only_host(tmp_path: Path) -> None:
    other = line(["ID", "Process ID", "Kernel Name", READ, WRITE]) + line(
        ["", "", "", "byte", "byte"]
    )
    text = WIDE + wide(0, 1) + other + line(["0", "7", "k0", "3", "4"])
    found = told(written(tmp_path, "a.csv", text))
    assert (found["kernels"], found["dram_bytes"]) == (1, 7)


# ---------------------------------------------------------------- summaries

RANGE = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"


def summary(by: str, *rows: tuple[str, int, float]) -> str:
    """Rows of one kernel and shape by some column: its content, launches and their time in us."""
    is_range = by == RANGE
    header = ["Process ID", "Process Name", "Host Name", "Kernel Name", "Block Size", "Grid Size",
              "Device", "CC", "Invocations", *[by] * is_range, "Section Name", "Metric Name",
              "Metric Unit", "Minimum", "Maximum", "Average"]  # fmt: skip
    lines = [line(header)]
    for value, launches, time_us in rows:
        device = "0" if is_range else value
        kernel = ["1", "app", "a", "gemm", "(1, 1, 1)", "(2, 1, 1)", device, "9.0", launches]
        kernel += [f'1 ""<default domain>:{value}:none:none:none:none:none:none"" '] * is_range
        for metric, unit, average in (("Duration", "us", time_us), ("lts__t_bytes.sum", "byte", 2)):
            lines.append(line([*kernel, "Any", metric, unit, average, average, average]))
    return "".join(lines)


def test_a_summary_by_device(tmp_path: Path) -> None:
    # given 10 launches of 100 us on one device and 5 of 900 us on another
    text = summary("Device", ("0", 10, 100), ("1", 5, 900))
    capture = read(written(tmp_path, "a.csv", text))
    # then they are 15 that took 5.5 ms
    assert capture.kernels[["launches", "time_s", "l2_bytes"]].to_dict("list") == {
        "launches": [10, 5],
        "time_s": [pytest.approx(1e-3), pytest.approx(4.5e-3)],
        "l2_bytes": [20, 10],
    }
    several = "kernels of several devices are added up: 0, 1"
    assert capture.warnings == (AVERAGES, NO_FLOPS, several)


def test_a_summary_by_range(tmp_path: Path) -> None:
    text = summary(RANGE, ("forward", 10, 100), ("backward", 5, 900))
    capture = read(written(tmp_path, "a.csv", text))
    assert capture.kernels[["launches", "nvtx", "time_s"]].to_dict("list") == {
        "launches": [10, 5],
        "nvtx": ["forward", "backward"],
        "time_s": [pytest.approx(1e-3), pytest.approx(4.5e-3)],
    }
    assert capture.warnings == (AVERAGES, NO_FLOPS)


def test_a_summary_that_is_told_again(tmp_path: Path) -> None:
    text = summary("Device", ("0", 10, 100))
    found = told(written(tmp_path, "a.csv", text + text.partition("\n")[2]))
    assert (found["kernels"], found["kernel_time_s"]) == (10, pytest.approx(1e-3))
    said = "kernels that are told again under the same process, device and shape count once: 1"
    assert said in found["warnings"]
