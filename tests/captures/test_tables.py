"""Small written tables of Nsight Compute: file in, kernels and warnings out."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from tests.captures.files import read, read_totals, write_file

HEADER = '"ID","Process ID","Kernel Name","Grid Size","gpu__time_duration.sum","dram__bytes.sum"\n'
UNITS = '"","","","","us","Kbyte"\n'
FIRST = '"0","7","a(int, int)","(1, 1, 1)","1.50","2"\n'
SECOND = '"1","7","b","(2, 1, 1)","2.50","4"\n'
TABLE = HEADER + UNITS + FIRST + SECOND
LONG = '"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'
NO_FLOPS = "no FLOPs: no counter of them was collected"
CUT = "the file is cut off: its last line is not used"
OTHER = "another table follows and is not read: put it into a file of its own"
EXPECTED = {"kernel": ["a(int, int)", "b"], "time_s": [1.5e-6, 2.5e-6], "dram_bytes": [2e3, 4e3]}


def skipped(count: int) -> str:
    return f"lines inside the table that are not rows are skipped: {count}"


def columns(path: Path, *names: str) -> dict[str, list[object]]:
    kernels = read(path).kernels
    return {name: kernels[name].tolist() for name in names}


def time_rows(*rows: str) -> str:
    """A long table of times: `process,id,kernel,unit,value` a row."""
    cells = (row.split(",") for row in rows)
    return LONG + "".join(
        f'"{n}","{process}","{kernel}","gpu__time_duration.sum","{unit}","{value}"\n'
        for process, n, kernel, unit, value in cells
    )


# ---------------------------------------------------------------- the same in other forms


@pytest.mark.parametrize(
    ("text", "warnings"),
    [
        (TABLE, ()),
        ("x,y\n" * 50_000 + TABLE, ()),
        ("step 5/5 [00:01]" + TABLE, ()),
        ('{"loss": 0.5}\n' + TABLE, ()),
        (HEADER + UNITS + "==WARNING== slow, by far\n" + FIRST + SECOND + "==PROF== Bye\n", ()),
        (HEADER + UNITS + FIRST + "step 3, loss 0.1\n7,8\n" + SECOND + "done\n", (skipped(3),)),
        (TABLE.replace('","', '";"'), ()),
        (TABLE.replace('","', '"\t"'), ()),
        (TABLE[:-1], ()),
        (TABLE + HEADER + UNITS + FIRST, (OTHER,)),
        (TABLE + "2,7,d(int, int),,1,1\n", (skipped(1),)),
        ("==ERROR== LaunchFailed\n" + TABLE, ("the profiler reported an error: LaunchFailed",)),
        (TABLE + LONG, (OTHER,)),
    ],
    ids=["plain", "much before", "header behind output", "json before", "messages between",
         "output between", "semicolons", "tabs", "no last line end", "two tables",
         "lost quotes", "error", "other table"],
)  # fmt: skip
def test_forms_of_a_wide_table(tmp_path: Path, text: str, warnings: tuple[str, ...]) -> None:
    capture = read(write_file(tmp_path, "a.csv", text))
    assert {name: capture.kernels[name].tolist() for name in EXPECTED} == EXPECTED
    assert sorted(capture.warnings) == sorted([NO_FLOPS, *warnings])


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("is_packed", [False, True])
def test_encodings_line_ends_and_gzip(
    tmp_path: Path, encoding: str, end: str, is_packed: bool
) -> None:
    path = tmp_path / "a.csv"
    content = ("noise\n" + TABLE).replace("\n", end).encode(encoding)
    path.write_bytes(gzip.compress(content) if is_packed else content)
    assert columns(path, *EXPECTED) == EXPECTED


# ---------------------------------------------------------------- values that are missing or odd


@pytest.mark.parametrize("gap", ["", "nan", "n/a", "(!) n/a", "-4", "1e400"])
def test_a_gap_is_not_a_zero(tmp_path: Path, gap: str) -> None:
    path = write_file(tmp_path, "a.csv", TABLE.replace('"4"', f'"{gap}"'))
    assert read(path).kernels["dram_bytes"].isna().tolist() == [False, True]
    assert "DRAM bytes are not known of 1 of 2 kernels" in read(path).warnings


@pytest.mark.parametrize(
    ("last", "times", "warning"),
    [
        ('"2","7","c"\n', [1.5e-6, 2.5e-6], skipped(1)),
        ('"2","7","c","(1, 1, 1)","3', [1.5e-6, 2.5e-6], CUT),
        ("2,7,c,,3", [1.5e-6, 2.5e-6], CUT),
        ('"2","7","c","(1, 1, 1)","3","5"', [1.5e-6, 2.5e-6, 3e-6], NO_FLOPS),
    ],
    ids=["ragged", "cut in a value", "cut without quotes", "whole"],
)
def test_last_rows(tmp_path: Path, last: str, times: list[float | None], warning: str) -> None:
    capture = read(write_file(tmp_path, "a.csv", TABLE + last))
    time_s = capture.kernels["time_s"]
    assert time_s.astype(object).where(time_s.notna(), None).tolist() == times
    assert warning in capture.warnings


def test_a_table_without_units_is_in_base_units(tmp_path: Path) -> None:
    capture = read(write_file(tmp_path, "a.csv", HEADER + FIRST.replace("1.50", "150")))
    assert capture.kernels["time_s"].tolist() == [150e-9]
    note = "the table has no units: bytes, nanoseconds and hertz are taken for granted"
    assert note in capture.warnings


def test_a_unit_that_does_not_fit_is_not_used(tmp_path: Path) -> None:
    capture = read(write_file(tmp_path, "a.csv", TABLE.replace('"Kbyte"', '"sector"')))
    assert capture.warnings == (
        "not used, for their units: dram__bytes.sum in sector; export with --print-units base",
        NO_FLOPS,
        "no bytes: no counter of them was collected",
    )


@pytest.mark.parametrize(("mark", "value"), [(",", "344,26"), (".", "344.26")])
def test_exponents_and_decimal_commas(tmp_path: Path, mark: str, value: str) -> None:
    text = TABLE.replace("1.50", value).replace("2.50", f"1{mark}718E+03")
    assert columns(write_file(tmp_path, "a.csv", text), "time_s") == {
        "time_s": [344.26e-6, 1718e-6]
    }


@pytest.mark.parametrize(
    ("kernel", "capability", "note"),
    [
        ("nvjet_hsh_128", "9.0", "and 1 of 1 kernels use them by their names (nvjet_hsh_128)"),
        ("relu", "9.0", "FLOPs are a lower bound if kernels use them"),
        ("relu", "6.1", None),
    ],
)
def test_tensor_cores_that_were_not_counted(
    tmp_path: Path, kernel: str, capability: str, note: str | None
) -> None:
    ops = ",".join(
        f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum" for op in ("fadd", "fmul", "ffma")
    )
    path = write_file(
        tmp_path, "a.csv", f"ID,Kernel Name,CC,{ops}\n0,{kernel},{capability},1,2,3\n"
    )
    notes = [text for text in read(path).warnings if text.startswith("tensor cores were not")]
    assert [note in text for text in notes if note] == [True] * (note is not None)


# ---------------------------------------------------------------- launches and devices


def test_a_launch_is_identified_by_process_number_and_name(tmp_path: Path) -> None:
    # given rows of two processes, one number with two names, and a row that is there again
    text = time_rows("1,0,a,us,2", "3,0,a,us,4", "3,0,b,us,5", "1,0,a,us,9")
    path = write_file(tmp_path, "a.csv", text)
    assert columns(path, "process_id", "id", "kernel", "time_s") == {
        "process_id": ["1", "3", "3"],
        "id": ["0", "0", "0"],
        "kernel": ["a", "a", "b"],
        "time_s": [2e-6, 4e-6, 5e-6],
    }


@pytest.mark.parametrize(
    ("titles", "cells", "device", "note"),
    [
        ("Device Name", ("A", "A"), "A", None),
        ("Device Name", ("A", "B"), None, "A, B"),
        ("CC", ("9.0", "9,0"), "CC 9.0", None),
        ("CC", ("7.0", "9.0"), None, "CC 7.0, CC 9.0"),
        ("Device", ("0", "1"), None, "0, 1"),
    ],
)
def test_devices(
    tmp_path: Path, titles: str, cells: tuple[str, str], device: str | None, note: str | None
) -> None:
    rows = (f'{n},"{cell}",k{n},5' for n, cell in enumerate(cells))
    text = f"ID,{titles},Kernel Name,dram__bytes.sum [byte]\n" + "\n".join([*rows, ""])
    found = read_totals(write_file(tmp_path, "a.csv", text))
    notes = [text for text in found["warnings"] if "several devices" in text]
    assert found["device"] == device
    assert notes == [f"kernels of several devices are added up: {note}"] * (note is not None)


# ---------------------------------------------------------------- text

KERNEL = "  k(int, float *) (32, 1, 1)x(64, 1, 1), Context 1, Stream 7, Device 0, CC 8.0\n"


@pytest.mark.parametrize(
    ("line", "time_s"),
    [
        ("    Duration                      msecond         96.32\n", 96.32e-3),
        ("    gpu__time_duration.sum usecond 65.77\n", 65.77e-6),
        ("    Duration (gpu__time_duration.sum)         us         1.50\n", 1.5e-6),
        ("    gpu__time_duration.sum (Duration)         us  1,234.50\n", 1234.5e-6),
        ("    gpu__time_duration.sum                    us  12.16 {6.08; 6.08}\n", 12.16e-6),
        ("    gpu__time_duration.sum                               1500\n", 1500e-9),
    ],
)
def test_lines_of_a_text(tmp_path: Path, line: str, time_s: float) -> None:
    text = f"noise\n[828] app@127.0.0.1\n{KERNEL}{line}    INF   Nothing to say\n"
    path = write_file(tmp_path, "a.txt", text)
    assert columns(path, "kernel", "grid", "block", "process_id", "id", "time_s") == {
        "kernel": ["k(int, float *)"], "grid": ["(32, 1, 1)"], "block": ["(64, 1, 1)"],
        "process_id": ["828"], "id": ["0"], "time_s": [pytest.approx(time_s)],
    }  # fmt: skip


def test_a_text_that_is_cut_in_a_number(tmp_path: Path) -> None:
    lines = "    dram__bytes.sum   byte   12\n    gpu__time_duration.sum   us   1"
    found = read_totals(write_file(tmp_path, "a.txt", KERNEL + lines))
    assert (found["dram_bytes"], found["kernel_time_s"]) == (12, None)
    assert CUT in found["warnings"]
