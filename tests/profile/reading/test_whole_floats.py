"""Whole numbers with a decimal, as pandas writes them where a column has an empty unit."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from tests.profile.captures import read, told, written

from ridgeline.profile.reading.decimals import ungrouped

TIME, PARTS = "gpu__time_duration.sum", "device__attribute_compute_capability_"
WIDE = (
    f"ID,Process ID,Kernel Name,Stream,Device,{PARTS}major,{PARTS}minor,{TIME}\n"
    ",,,,,,,us\n"
    "0,17313,a,7,0,9,0,2\n"
    "1,17313,b,13,1,9,0,3\n"
)
LONG = (
    "ID,Process ID,Kernel Name,Stream,Device,CC,Metric Name,Metric Unit,Metric Value\n"
    f"0,17313,a,7,0,9.0,{TIME},us,2\n"
    f"1,17313,b,13,1,9.0,{TIME},us,3\n"
)
NOTHING_ELSE = [
    "no FLOPs: no counter of them was collected",
    "no bytes: no counter of them was collected",
]


@pytest.mark.parametrize(
    ("text", "number"),
    [("0.0", "0"), (" 17313.0 ", "17313"), ("7,0", "7"), ("12.00", "12"), ("2.000", "2000")],
)
def test_a_whole_number(text: str, number: str) -> None:
    assert ungrouped(text) == number


@pytest.mark.parametrize("text", ["0.5", "10.10", "1.0.0", "-1.0", ".0", "1.", "0.0001"])
def test_what_is_none_stays(text: str) -> None:
    assert ungrouped(text) == text


def through_pandas(text: str) -> str:
    numbers = ["ID", "Process ID", "Stream", "Device"]
    table = pd.read_csv(io.StringIO(text)).astype(dict.fromkeys(numbers, float))
    return str(table.to_csv(index=False))


@pytest.mark.parametrize("text", [WIDE, LONG])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])  # the quick way and the careful one
def test_a_capture_through_pandas_is_the_same(tmp_path: Path, text: str, encoding: str) -> None:
    # given the table as it was, and after pandas
    changed = through_pandas(text)
    assert "\n0.0,17313.0,a,7.0,0.0,9.0," in changed
    before = read(written(tmp_path, "a.csv", text))
    after = read(written(tmp_path, "b.csv", changed, encoding))
    # then it says the same, also of the devices
    assert after.kernels.to_dict("list") == before.kernels.to_dict("list")
    assert after.kernels["id"].tolist() == ["0", "1"]
    assert set(after.kernels["process_id"]) == {"17313"}
    assert after.compute_capability == "9.0"
    assert after.warnings == before.warnings


@pytest.mark.parametrize("change", [str, lambda text: text + "abc,17313,c,7,0,9,0,2\n"])
def test_rows_of_both_kinds(tmp_path: Path, change: Callable[[str], str]) -> None:
    capture = read(written(tmp_path, "a.csv", change(WIDE.replace("\n1,", "\n1.0,"))))
    assert capture.kernels["id"].tolist() == ["0", "1"]


@pytest.mark.parametrize("printed", ["2.0", "2.345", "2.5,0.25,3.5,1,1,1,1,1"])
def test_a_decimal_that_a_program_printed_is_no_kernel(tmp_path: Path, printed: str) -> None:
    capture = read(written(tmp_path, "a.csv", f"{WIDE}{printed}\n2.0,17313.0,c,7.0,0,9,0,4\n"))
    assert capture.kernels["kernel"].tolist() == ["a", "b", "c"]


def test_a_trace_of_nsys(tmp_path: Path) -> None:
    # given copies, which have no grid, so that pandas writes those of kernels with a decimal
    text = (
        "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Device,Strm,Name\n"
        "1,50,3,128.0,1.0,1.0,256.0,1.0,1.0,NVIDIA A100 (0),7.0,k\n"
        "2,60,4,,,,,,,NVIDIA A100 (0),7.0,[CUDA memcpy DtoH]\n"
    )
    kernels = read(written(tmp_path, "a.csv", text)).kernels
    assert kernels[["id", "grid", "block", "stream"]].to_dict("records") == [
        {"id": "3", "grid": "(128, 1, 1)", "block": "(256, 1, 1)", "stream": "7"}
    ]


def test_launches_of_a_summary(tmp_path: Path) -> None:
    header = "Kernel Name,Invocations,Metric Name,Metric Unit,Minimum,Maximum,Average\n"
    found = told(written(tmp_path, "a.csv", f"{header}k,3.0,{TIME},us,1,3,2\n"))
    assert (found["kernels"], found["kernel_time_s"]) == (3, pytest.approx(6e-6))
    assert found["warnings"][1:] == NOTHING_ELSE
