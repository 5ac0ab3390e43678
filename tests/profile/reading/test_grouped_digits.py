"""Numbers of kernels, processes and launches with groups of digits, as spreadsheets write them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.profile.captures import read, written

from ridgeline.captures import read_captures
from ridgeline.profile.reading.decimals import ungrouped

TIME = "gpu__time_duration.sum"
IDS = ["999", "1000", "1001", "1234567"]


@pytest.mark.parametrize("mark", [",", ".", "'", "\u2019", "\u00a0", "\u202f", " "])
def test_digits_in_groups(mark: str) -> None:
    assert ungrouped(f" 1{mark}234{mark}567 ") == "1234567"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "1000",
        "0.123",
        "1.23",
        "1,234.567",
        "127.0.0.1",
        "1234,567",
        "-1,234",
        "a",
        "1.5e3",
    ],
)
def test_what_is_no_group_stays(text: str) -> None:
    assert ungrouped(text) == text


def test_lakhs() -> None:
    assert ungrouped("12,34,567") == "1234567"


def grouped(number: str) -> str:
    return f"{int(number):,}"


def wide(ids: list[str]) -> str:
    rows = [f'"{number}","17,313","k","1,024","2"\n' for number in ids]
    return f'"ID","Process ID","Kernel Name","Stream","{TIME}"\n"","","","","us"\n' + "".join(rows)


def long(ids: list[str]) -> str:
    rows = [f'"{number}","17,313","k","1,024","{TIME}","us","2"\n' for number in ids]
    titles = ["ID", "Process ID", "Kernel Name", "Stream", "Metric Name", "Metric Unit"]
    return ",".join([*titles, "Metric Value"]) + "\n" + "".join(rows)


def exported(ids: list[str]) -> str:
    rows = [f'"{number}","[17,313] python3","k","1,024","2"\n' for number in ids]
    return f'"ID","Process","Function Name","Stream","{TIME} [us]"\n' + "".join(rows)


@pytest.mark.parametrize("table", [wide, long, exported])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_no_kernel_is_lost(
    tmp_path: Path, table: Callable[[list[str]], str], encoding: str
) -> None:
    text = table([grouped(number) for number in IDS])
    capture = read(written(tmp_path, "a.csv", text, encoding))
    assert capture.kernels[["id", "process_id", "stream"]].to_dict("list") == {
        "id": IDS,
        "process_id": ["17313"] * 4,
        "stream": ["1024"] * 4,
    }
    assert capture.warnings == (
        "no FLOPs: no counter of them was collected",
        "no bytes: no counter of them was collected",
    )


@pytest.mark.parametrize("table", [wide, long])
def test_a_kernel_is_the_same_with_and_without_groups(
    tmp_path: Path, table: Callable[[list[str]], str]
) -> None:
    text = table(["1,000"]) + table(["1000"])
    assert read(written(tmp_path, "a.csv", text)).launches == 1


def test_files_with_and_without_groups_are_joined(tmp_path: Path) -> None:
    time = written(tmp_path, "a.csv", wide(["1,000"]))
    text = wide(["1000"]).replace(TIME, "dram__bytes.sum").replace('"us"', '"byte"')
    both = read_captures([time, written(tmp_path, "b.csv", text.replace("17,313", "17313"))])
    assert [capture.file for capture in both] == [f"{tmp_path}/a.csv + {tmp_path}/b.csv"]


def test_a_number_that_a_program_printed_is_no_kernel(tmp_path: Path) -> None:
    capture = read(written(tmp_path, "a.csv", wide(["0", "1"]) + "2.345\n" + '"2","17,313","k"\n'))
    assert capture.kernels["id"].tolist() == ["0", "1", "2"]


@pytest.mark.parametrize("number", ["1,500", "1.500", "1500"])
def test_launches_of_a_summary(tmp_path: Path, number: str) -> None:
    header = "Kernel Name,Invocations,Metric Name,Metric Unit,Minimum,Maximum,Average\n"
    ncu = written(tmp_path, "a.csv", header + f'k,"{number}",{TIME},us,1,3,"2,5"\n')
    nsys = f'Time (%),Total Time (ns),Instances,Name\n"60,5",6000,"{number}",k\n'
    assert read(ncu).launches == 1500
    assert read(written(tmp_path, "b.csv", nsys)).launches == 1500
