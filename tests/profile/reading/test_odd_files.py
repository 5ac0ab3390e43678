"""Files with much noise, cut off, put together, or with numbers that cannot be."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.profile.captures import read, told, written

from ridgeline.captures.capture import totals

TIME, READ, WRITE = "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"
CUT_OFF = "the file is cut off: its last row is not whole, and what follows is missing"
NO_END = "the last line has no end: it may be cut off, so a number at its end is not used"
NO_FLOPS_SAID = "no FLOPs: no counter of them was collected"
PROGRESS = "  7%|#   | 7/100 [00:01<00:00, 12.3it/s]\r"
LONG = PROGRESS * (5 * 2**20 // len(PROGRESS))  # a line longer than the piece that is looked at
NSYS = (
    "Time (%),Total Time (ns),Instances,Avg (ns),Name\n"
    "60.0,6000,3,2000.0,gemm\n"
    "40.0,4000,2,2000.0,relu\n"
)


def line(cells: Sequence[str]) -> str:
    return ",".join(f'"{cell}"' for cell in cells) + "\n"


def kernel(number: int, values: Sequence[str], *, name: str = "", **about: str) -> str:
    """A row of process 7 on device 0, unless told otherwise."""
    texts = [str(number), about.get("process", "7"), name or f"k{number}", about.get("device", "0")]
    return line([*texts, *values])


def wide(metrics: Sequence[str], units: Sequence[str], *rows: str) -> str:
    header = line(["ID", "Process ID", "Kernel Name", "Device", *metrics])
    return header + line(["", "", "", "", *units]) + "".join(rows)


def long(*rows: tuple[str, str, str]) -> str:
    header = ["ID", "Process ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value"]
    return line(header) + "".join(line(["0", "7", "k0", *row]) for row in rows)


def amounts(path: Path) -> tuple[Any, Any, Any]:
    found = told(path)
    return found["kernels"], found["kernel_time_s"], found["dram_bytes"]


TABLE = wide(
    [TIME, READ, WRITE],
    ["us", "Mbyte", "Mbyte"],
    kernel(0, ["1", "2", "3"]),
    kernel(1, ["1", "2", "3"]),
)

# ---------------------------------------------------------------- noise


def test_units_stand_below_a_header_however_long_the_line_before_it(tmp_path: Path) -> None:
    assert amounts(written(tmp_path, "a.csv", f"{LONG}\n{TABLE}")) == (2, 2e-6, 10_000_000)


def test_a_long_table_below_a_long_line_keeps_its_first_row(tmp_path: Path) -> None:
    table = long((TIME, "us", "5"), (READ, "byte", "2"), (WRITE, "byte", "3"))
    assert amounts(written(tmp_path, "a.csv", f"{LONG}\n{table}")) == (1, 5e-6, 5)


def test_a_table_of_nsys_below_a_long_line(tmp_path: Path) -> None:
    assert amounts(written(tmp_path, "a.csv", f"{LONG}\n{NSYS}")) == (5, pytest.approx(1e-5), None)


@pytest.mark.parametrize("before", ["5/5 [00:01]", PROGRESS, PROGRESS + "5/5", LONG])
def test_a_header_on_the_line_of_unfinished_output(tmp_path: Path, before: str) -> None:
    assert amounts(written(tmp_path, "a.csv", before + TABLE)) == (2, 2e-6, 10_000_000)
    nsys = written(tmp_path, "b.csv", before + NSYS)
    assert amounts(nsys) == (5, pytest.approx(1e-5), None)


@pytest.mark.parametrize("before", ["5/5 [00:01]", PROGRESS + "5/5"])
def test_a_long_table_on_the_line_of_unfinished_output(tmp_path: Path, before: str) -> None:
    # given two kernels of one name, which only their numbers tell apart
    table = long((TIME, "us", "5")) + line(["1", "7", "k0", TIME, "us", "6"])
    kernels = read(written(tmp_path, "a.csv", before + table)).kernels
    assert kernels["time_s"].tolist() == [5e-6, 6e-6]


@pytest.mark.parametrize("before", ["5/5 [00:01]", PROGRESS, PROGRESS + "5/5"])
def test_a_second_header_on_such_a_line_has_its_own_units(tmp_path: Path, before: str) -> None:
    other = wide([TIME], ["ns"], kernel(0, ["4"], process="8"))
    capture = read(written(tmp_path, "a.csv", TABLE + before + other))
    assert capture.kernels["time_s"].tolist() == [1e-6, 1e-6, 4e-9]


def test_a_row_behind_progress_is_a_row(tmp_path: Path) -> None:
    text = TABLE + PROGRESS + kernel(2, ["1", "2", "3"])
    assert amounts(written(tmp_path, "a.csv", text)) == (3, pytest.approx(3e-6), 15_000_000)


def test_a_kernel_whose_name_is_too_long_is_said_to_be_left_out(tmp_path: Path) -> None:
    row = kernel(2, ["1", "2", "3"], name="n" * 2**21)
    capture = read(written(tmp_path, "a.csv", TABLE + row))
    assert capture.launches == 2
    said = "lines inside the table that are too long are left out: 1 (a cell may have 131,072"
    assert f"{said} characters)" in capture.warnings


# ---------------------------------------------------------------- cut off


def test_the_cell_that_a_file_ends_in_is_no_number(tmp_path: Path) -> None:
    # given a last cell of which one digit and no closing quote are left
    cut = TABLE + kernel(2, ["1", "2", "345"])[: -len('45"\n')]
    capture = read(written(tmp_path, "a.csv", cut))
    # then it is not known, and that is said once
    assert capture.kernels["dram_bytes"].isna().tolist() == [False, False, True]
    assert capture.kernels["time_s"].tolist() == [1e-6, 1e-6, 1e-6]
    assert capture.warnings == (NO_FLOPS_SAID, CUT_OFF)


def test_a_row_of_which_cells_are_missing_at_the_end_of_a_file(tmp_path: Path) -> None:
    capture = read(written(tmp_path, "a.csv", TABLE + '"2","7","k2","0","1"'))
    assert capture.warnings == (NO_FLOPS_SAID, CUT_OFF)


def test_a_last_line_without_its_end_may_be_whole(tmp_path: Path) -> None:
    capture = read(written(tmp_path, "a.csv", TABLE.removesuffix("\n")))
    assert capture.warnings == (NO_FLOPS_SAID,)


BARE = TABLE.replace('"', "")


@pytest.mark.parametrize(
    ("rest", "times", "read_bytes", "said"),
    [
        ("2,7,k2,0,1,2,345", [1e-6], [2e6], NO_END),  # whole, or 3456
        ("2,7,k2,0,1,2,", [1e-6], [2e6], NO_END),
        ("2,7,k2,0,1,2", [1e-6], [None], CUT_OFF),
        ("2,7,k2,0,1", [None], [None], CUT_OFF),
        ("2,7,k2,", [None], [None], CUT_OFF),
        ("2,7,k2", [], [], CUT_OFF),
        ("2,7", [], [], CUT_OFF),
        ("2", [], [], CUT_OFF),
        ('"2","7","k2","0","1","2",', [1e-6], [2e6], NO_END),
        ('"2","7","k2","0","1"', [1e-6], [None], CUT_OFF),
        ('"2","7","k2"', [None], [None], CUT_OFF),
        ('"2","7","k', [], [], CUT_OFF),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_the_last_number_of_a_file_without_quotes_is_not_used(
    tmp_path: Path,
    rest: str,
    times: list[float | None],
    read_bytes: list[float | None],
    said: str,
    encoding: str,
) -> None:
    capture = read(written(tmp_path, "a.csv", BARE + rest, encoding))
    found = capture.kernels.astype(object).where(capture.kernels.notna(), None)
    assert found["time_s"].tolist()[2:] == times
    assert found["dram_read_bytes"].tolist()[2:] == read_bytes
    assert found["dram_bytes"].tolist() == [5e6, 5e6, *[None] * len(times)]
    assert capture.warnings == (NO_FLOPS_SAID, said)


def test_a_file_without_quotes_that_is_whole(tmp_path: Path) -> None:
    for end in ("", "\r"):
        text = BARE.replace("\n", f"{end}\n")
        assert read(written(tmp_path, "a.csv", text)).warnings == (NO_FLOPS_SAID,)


def test_words_at_the_end_are_no_row_that_is_cut_off(tmp_path: Path) -> None:
    capture = read(written(tmp_path, "a.csv", BARE + "all done"))
    assert capture.launches == 2
    said = "lines inside the table that are no rows of it are left out: 1"
    assert capture.warnings == (NO_FLOPS_SAID, said)


@pytest.mark.parametrize("size", [2**17 - 5, 2**17 + 5])
def test_a_quote_that_is_open_far_before_the_end(tmp_path: Path, size: int) -> None:
    # given a cell at the end about as long as any that can be read
    capture = read(written(tmp_path, "a.csv", f'{TABLE}"{"x" * size}'))
    assert capture.launches == 2
    assert len(capture.warnings) > 1


def test_a_long_table_that_is_cut_off(tmp_path: Path) -> None:
    table = long((TIME, "us", "5"), ("lts__t_bytes.sum", "byte", "2"), (READ, "byte", "3,000"))
    capture = read(written(tmp_path, "a.csv", table[: -len(',000"\n')]))
    assert "dram_read_bytes" not in capture.kernels
    assert capture.warnings == (NO_FLOPS_SAID, CUT_OFF)


@pytest.mark.parametrize("rest", ["3000", "3", "", "n"])
def test_a_long_table_without_quotes_that_is_cut_off(tmp_path: Path, rest: str) -> None:
    table = long((TIME, "us", "5"), ("lts__t_bytes.sum", "byte", "2"), (READ, "byte", "?"))
    text = table.replace('"', "").removesuffix("?\n") + rest
    capture = read(written(tmp_path, "a.csv", text))
    assert "dram_read_bytes" not in capture.kernels
    assert capture.warnings == (NO_FLOPS_SAID, NO_END)


def test_a_long_table_that_is_cut_off_before_a_metric(tmp_path: Path) -> None:
    table = long((TIME, "us", "5"), ("lts__t_bytes.sum", "byte", "2")).replace('"', "")
    capture = read(written(tmp_path, "a.csv", table + "0,7,k"))
    assert capture.kernels[["time_s", "l2_bytes"]].values.tolist() == [[5e-6, 2]]
    assert capture.warnings == (NO_FLOPS_SAID, CUT_OFF)


def test_a_table_of_nsys_whose_last_name_may_be_cut_off(tmp_path: Path) -> None:
    capture = read(written(tmp_path, "a.csv", NSYS.removesuffix("u\n")))
    assert capture.kernels["kernel"].tolist() == ["gemm", "rel"]
    assert capture.warnings[1:] == (NO_END,)


@pytest.mark.parametrize("rest", ['20.0,1000,1,1000.0,"void k<in', "20.0,1000,1,10"])
def test_a_table_of_nsys_that_is_cut_off(tmp_path: Path, rest: str) -> None:
    capture = read(written(tmp_path, "a.csv", NSYS + rest))
    assert capture.launches == 5
    assert capture.warnings[1:] == (CUT_OFF,)


# ---------------------------------------------------------------- numbers that cannot be


def test_cycles_over_a_rate_of_zero_are_no_time(tmp_path: Path) -> None:
    metrics = ["sm__cycles_elapsed.avg", "sm__cycles_elapsed.avg.per_second", "dram__bytes.sum"]
    rows = [kernel(0, ["1500", "1.5", "1"]), kernel(1, ["1500", "0", "1"])]
    capture = read(written(tmp_path, "a.csv", wide(metrics, ["cycle", "Ghz", "byte"], *rows)))
    assert capture.kernels["time_s"].isna().tolist() == [False, True]
    assert totals(capture)["kernel_time_s"] == pytest.approx(1e-6)


def test_without_any_rate_there_is_no_time(tmp_path: Path) -> None:
    table = long(
        ("sm__cycles_elapsed.avg", "cycle", "1500"),
        ("sm__cycles_elapsed.avg.per_second", "Ghz", "0.00"),
        ("dram__bytes.sum", "byte", "2"),
    )
    found = told(written(tmp_path, "a.csv", table))
    assert (found["kernel_time_s"], found["dram_bytes"]) == (None, 2)
    assert "no time: collect gpu__time_duration.sum" in found["warnings"]


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        ("1e305", "Gbyte", f"values that are too large for a number are not used: {READ}, {WRITE}"),
        ("1e308", "byte", "values that are too large for a number are not used: DRAM bytes"),
        ("8e307", "byte", "the sum of DRAM bytes is too large for a number"),
    ],
)
def test_what_no_number_can_hold_is_not_known(
    tmp_path: Path, value: str, unit: str, said: str
) -> None:
    rows = [kernel(n, ["1", value, value]) for n in range(2)]
    path = written(tmp_path, "a.csv", wide([TIME, READ, WRITE], ["us", unit, unit], *rows))
    with warnings.catch_warnings(action="error"):
        found = told(path)
    assert (found["kernel_time_s"], found["dram_bytes"]) == (2e-6, None)
    assert said in found["warnings"]


def test_negative_values_are_not_known(tmp_path: Path) -> None:
    rows = [kernel(0, ["-1", "-5", "5"]), kernel(1, ["2", "6", "1"])]
    capture = read(
        written(tmp_path, "a.csv", wide([TIME, READ, WRITE], ["ns", "byte", "byte"], *rows))
    )
    assert capture.kernels["time_s"].isna().tolist() == [True, False]
    assert capture.kernels["dram_bytes"].isna().tolist() == [True, False]
    assert f"values that are negative are not used: {TIME}, {READ}" in capture.warnings


def test_empty_units_are_said_like_missing_ones(tmp_path: Path) -> None:
    text = wide([TIME, READ], ["", "byte"], kernel(0, ["5", "1"]))
    found = told(written(tmp_path, "a.csv", text))
    assert found["kernel_time_s"] == 5e-9
    assert (
        "the table has no units: bytes, nanoseconds and hertz are taken for granted"
        in found["warnings"]
    )


# ---------------------------------------------------------------- put together


def test_kernels_that_are_told_again_count_once(tmp_path: Path) -> None:
    capture = read(written(tmp_path, "a.csv", TABLE + TABLE))
    assert amounts(tmp_path / "a.csv") == (2, 2e-6, 10_000_000)
    said = "kernels that are told again under the same process and number count once: 2"
    assert said in capture.warnings


def test_other_metrics_of_the_same_kernels_are_joined(tmp_path: Path) -> None:
    rows = [kernel(0, ["5"]), kernel(1, ["6"])]
    capture = read(written(tmp_path, "a.csv", TABLE + wide(["lts__t_bytes.sum"], ["byte"], *rows)))
    assert capture.kernels[["id", "dram_bytes", "l2_bytes"]].to_dict("list") == {
        "id": ["0", "1"],
        "dram_bytes": [5e6, 5e6],
        "l2_bytes": [5, 6],
    }
    assert capture.warnings == (NO_FLOPS_SAID,)


def test_the_same_numbers_of_another_process_are_other_kernels(tmp_path: Path) -> None:
    again = TABLE.replace('"7"', '"8"')
    assert amounts(written(tmp_path, "a.csv", TABLE + again)) == (4, 4e-6, 20_000_000)


def test_one_number_with_two_names_is_kept_and_said(tmp_path: Path) -> None:
    rows = [kernel(0, ["1"], name="a"), kernel(0, ["2"], name="b")]
    capture = read(written(tmp_path, "a.csv", wide([TIME], ["us"], *rows)))
    assert capture.kernels["time_s"].tolist() == [1e-6, 2e-6]
    said = "kernels whose number another one has are counted, too: 1"
    assert said in capture.warnings


def test_without_a_process_nobody_knows_whether_it_is_the_same_kernel(tmp_path: Path) -> None:
    # given a table twice, in which the process of a kernel is not told
    table = TABLE.replace('"7"', '""')
    assert amounts(written(tmp_path, "a.csv", table + table)) == (4, 4e-6, 20_000_000)
    said = "kernels whose number another one has are counted, too: 2"
    assert said in read(tmp_path / "a.csv").warnings


def test_kernels_with_a_process_among_such_without(tmp_path: Path) -> None:
    rows = [kernel(0, ["1"]), *[kernel(5, ["2"], process="")] * 2, kernel(0, ["3"])]
    capture = read(written(tmp_path, "a.csv", wide([TIME], ["us"], *rows)))
    assert capture.kernels["time_s"].tolist() == [1e-6, 2e-6, 2e-6]


@pytest.mark.parametrize("noise", ["3\n", "100\n100\n", "7,8\n"])
def test_numbers_that_a_program_prints_are_no_kernels(tmp_path: Path, noise: str) -> None:
    capture = read(written(tmp_path, "a.csv", TABLE + noise))
    assert amounts(tmp_path / "a.csv") == (2, 2e-6, 10_000_000)
    count = noise.count("\n")
    said = f"lines inside the table that are no rows of it are left out: {count}"
    assert said in capture.warnings
    # neither are they where the same kernels follow
    assert amounts(written(tmp_path, "b.csv", TABLE + noise + TABLE))[0] == 2


def test_a_short_row_where_the_numbers_stand_last(tmp_path: Path) -> None:
    header = line(["Metric Name", "Metric Unit", "Metric Value", "Kernel Name", "Process ID", "ID"])
    whole, short = line([TIME, "us", "9", "k0", "7", "0"]), line([TIME, "us", "9", "k1"])
    found = told(written(tmp_path, "a.csv", header + whole + short))
    assert (found["kernels"], found["kernel_time_s"]) == (1, 9e-6)


OTHER_FORM = "another table of another form follows, and is left out: give it a file of its own"


def test_a_table_of_another_form_below_is_said_to_be_left_out(tmp_path: Path) -> None:
    other = long((TIME, "us", "9"), (READ, "byte", "7"))
    for name, text, expected in (
        ("wide first", TABLE + other, (2, 2e-6, 10_000_000)),
        ("long first", other + TABLE, (1, 9e-6, 7)),
    ):
        path = written(tmp_path, name, text)
        found = told(path)
        assert (found["kernels"], found["kernel_time_s"]) == expected[:2]
        assert OTHER_FORM in found["warnings"]


# ---------------------------------------------------------------- devices


def test_kernels_of_several_devices_are_said(tmp_path: Path) -> None:
    rows = [kernel(0, ["1"]), kernel(1, ["1"], device="1")]
    capture = read(written(tmp_path, "a.csv", wide([TIME], ["us"], *rows)))
    assert "kernels of several devices are added up: 0, 1" in capture.warnings


def test_a_capture_of_two_gpus_is_named_by_neither(tmp_path: Path) -> None:
    # given one kernel of an A100 and two of an H100
    rows = ["0,7,a,8.0,NVIDIA A100,1", "1,7,a,9.0,NVIDIA H100,1", "2,7,b,9.0,NVIDIA H100,1"]
    titles = f"ID,Process ID,Kernel Name,CC,device__attribute_display_name,{TIME}\n,,,,,us\n"
    capture = read(written(tmp_path, "a.csv", titles + "\n".join(rows) + "\n"))
    # then both are told, and each kernel has its own
    assert (capture.device, capture.compute_capability) == (None, None)
    assert capture.kernels["device"].tolist() == ["NVIDIA A100", "NVIDIA H100", "NVIDIA H100"]
    said = "kernels of several devices are added up: NVIDIA A100, NVIDIA H100"
    assert said in capture.warnings


def test_the_gpus_of_a_long_table(tmp_path: Path) -> None:
    name = "device__attribute_display_name"
    table = long((name, "", "A100"), (TIME, "us", "5"))
    table += line(["1", "7", "k1", name, "", "H100"]) + line(["1", "7", "k1", TIME, "us", "5"])
    capture = read(written(tmp_path, "a.csv", table))
    assert (capture.device, capture.kernels["device"].tolist()) == (None, ["A100", "H100"])


def test_chips_without_a_name_are_told_by_their_compute_capability(tmp_path: Path) -> None:
    text = f"ID,Process ID,Kernel Name,CC,{TIME}\n,,,,us\n0,7,a,7.0,1\n1,7,a,8.0,1\n"
    capture = read(written(tmp_path, "a.csv", text))
    assert (capture.device, capture.compute_capability) == (None, None)
    assert capture.kernels["device"].tolist() == ["CC 7.0", "CC 8.0"]
    said = "kernels of several devices are added up: compute capability 7.0, 8.0"
    assert said in capture.warnings


def test_several_gpus_in_a_table_of_nsys(tmp_path: Path) -> None:
    rows = [f"{n},1000,{n},1,1,1,1,1,1,{name} ({n}),7,gemm" for n, name in enumerate("AB")]
    header = "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Device,Strm,Name"
    capture = read(written(tmp_path, "a.csv", "\n".join([header, *rows, ""])))
    assert (capture.device, capture.kernels["device"].tolist()) == (None, ["A", "B"])


def test_devices_of_one_name_are_several_in_nsys_too(tmp_path: Path) -> None:
    rows = [f"{n},1000,{n},1,1,1,1,1,1,H100 ({n}),7,gemm" for n in range(2)]
    header = "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Device,Strm,Name"
    capture = read(written(tmp_path, "a.csv", "\n".join([header, *rows, ""])))
    assert capture.device == "H100"
    assert "kernels of several devices are added up: H100 (0), H100 (1)" in capture.warnings
