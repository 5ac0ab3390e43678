"""Other forms of the same: text, the UI's export, other locales, encodings and noise."""

from __future__ import annotations

import gzip
from pathlib import Path

import pandas as pd
import pytest
from tests.profile.captures import NCU, NO_FLOPS, PRODUCTS, STEP, read, told, written

HEADER = '"ID","Process ID","Kernel Name","Grid Size","gpu__time_duration.sum","dram__bytes.sum"\n'
UNITS = '"","","","","us","Kbyte"\n'
ROWS = '"0","7","a(int, int)","(1, 1, 1)","1.50","2"\n"1","7","b","(2, 1, 1)","2.50","4"\n'
NO_FLOPS_SAID = "no FLOPs: no counter of them was collected"


def small(path: Path) -> dict[str, list[object]]:
    kernels = read(path).kernels
    return {name: kernels[name].tolist() for name in ("kernel", "time_s", "dram_bytes")}


EXPECTED = {"kernel": ["a(int, int)", "b"], "time_s": [1.5e-6, 2.5e-6], "dram_bytes": [2e3, 4e3]}


def test_plain_text() -> None:
    capture = read(NCU / "sections.txt")
    assert (capture.kind, capture.device) == ("ncu-text", "CC 7.5")
    kernels = capture.kernels
    assert kernels["kernel"].tolist() == [
        "sgemm(int, int, int, float, float, const float *, const float *, float *)",
        "void hgemm<(int)128>(const __half *, const __half *, __half *)",
    ]
    assert kernels["grid"].tolist() == ["(32, 32, 1)", "(8, 8, 1)"]
    assert kernels["block"].tolist() == ["(32, 32, 1)", "(256, 1, 1)"]
    assert kernels["stream"].tolist() == ["7", "13"]
    assert kernels["process_id"].tolist() == ["828", "828"]
    assert told(NCU / "sections.txt") == {
        "kernels": 2,
        "flops": NO_FLOPS | {"fp32": 2 * 2**30 + 2**21, "tensor_fp16": 2**31},
        "dram_bytes": 25_030_000,
        "l2_bytes": None,
        "l1_bytes": None,
        "kernel_time_s": pytest.approx(96.32e-3 + 72.16e-6),
        "device": "CC 7.5",
        "warnings": [
            "fp32 FLOPs are not known of 1 of 2 kernels",
            "tensor fp16 FLOPs are not known of 1 of 2 kernels",
            "DRAM bytes are not known of 1 of 2 kernels",
        ],
    }


def test_old_text_with_decimal_commas() -> None:
    assert told(NCU / "sections_2021_comma.txt") == {
        "kernels": 1,
        "flops": NO_FLOPS,
        "dram_bytes": 117_344_000,
        "l2_bytes": None,
        "l1_bytes": None,
        "kernel_time_s": 65.77e-6,
        "device": None,
        "warnings": [NO_FLOPS_SAID],
    }


def test_the_export_of_the_ui() -> None:
    capture = read(NCU / "ui_export.csv")
    assert capture.kind == "ncu-ui"
    chosen = ["kernel", "grid", "block", "process_id", "time_s"]
    assert capture.kernels[chosen].to_dict("list") == {
        "kernel": ["void gemm_kernel<float, (int)128>(const float *, float *)", "relu(float *)"],
        "grid": ["(128, 1, 1)", "(1024, 16, 1)"],
        "block": ["(256, 1, 1)", "(512, 1, 1)"],
        "process_id": ["4711", "4711"],
        "time_s": [344.26e-6, 12.16e-6],
    }
    assert told(NCU / "ui_export.csv") == {
        "kernels": 2,
        "flops": NO_FLOPS | {"tensor_bf16": 2**34},
        "dram_bytes": 33_630_000 + 512_000 + 16_780_000 + 603_140,
        "l2_bytes": None,
        "l1_bytes": None,
        "kernel_time_s": pytest.approx(356.42e-6),
        "device": "NVIDIA A100-SXM4-40GB",
        "warnings": [],
    }


def test_a_long_table_with_decimal_commas() -> None:
    found = told(NCU / "details_comma.csv")
    assert found["flops"]["fp32"] == 2 * 1_048_576
    assert found["dram_bytes"] == 117_344_000 + 58_670
    assert found["kernel_time_s"] == 65.77e-6


def test_a_summary_over_launches(tmp_path: Path) -> None:
    # given averages over three launches of one kernel and shape
    head = (
        '"Process ID","Process Name","Host Name","Kernel Name","Block Size","Grid Size","Device",'
        '"CC","Invocations","Section Name","Metric Name","Metric Unit","Minimum","Maximum",'
        '"Average"\n'
    )
    row = '"1","app","127.0.0.1","gemm","(128, 1, 1)","(96, 1, 1)","0","9.0","3","Any",'
    rows = [
        row + '"lts__t_bytes.sum","byte","1,000.00","2,000.00","1,500.00"',
        row + '"Duration","us","1.00","3.00","2.00"',
    ]
    capture = read(written(tmp_path, "a.csv", head + "\n".join(rows)))
    # then the row stands for all of them
    chosen = ["kernel", "launches", "time_s", "l2_bytes", "grid"]
    assert capture.kernels[chosen].to_dict("list") == {
        "kernel": ["gemm"],
        "launches": [3],
        "time_s": [6e-6],
        "l2_bytes": [4500],
        "grid": ["(96, 1, 1)"],
    }
    assert any("averages over the launches" in remark for remark in capture.warnings)


def test_an_unclear_decimal_mark_is_said(tmp_path: Path) -> None:
    rows = '"0","7","a","(1, 1, 1)","117.344","2"\n'
    capture = read(written(tmp_path, "a.csv", HEADER + UNITS + rows))
    assert capture.kernels["time_s"].tolist() == [117.344e-6]
    assert any("117.344 is read as 117.344" in remark for remark in capture.warnings)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "latin-1"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_encodings_and_line_ends(tmp_path: Path, encoding: str, end: str) -> None:
    text = ("noise\n" + HEADER + UNITS + ROWS).replace("\n", end)
    assert small(written(tmp_path, "a.csv", text, encoding)) == EXPECTED


def test_packed_files(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"  # its name does not tell
    path.write_bytes(gzip.compress((HEADER + UNITS + ROWS).encode()))
    assert small(path) == EXPECTED


def test_latin_1_units(tmp_path: Path) -> None:
    text = HEADER + UNITS.replace('"us"', '"µs"') + ROWS
    assert small(written(tmp_path, "a.csv", text, "latin-1")) == EXPECTED


@pytest.mark.parametrize(
    "text",
    [
        "x,y\n" * 50_000 + HEADER + UNITS + ROWS,
        HEADER + UNITS + "==WARNING== slow, by far\n" + ROWS + "==PROF== Disconnected\n",
        HEADER + UNITS + ROWS.replace("\n", "\nstep 3, loss 0.1\n", 1) + "done\n",
        (HEADER + UNITS + ROWS).replace('"', "").replace("a(int, int)", '"a(int, int)"').replace(
            "(1, 1, 1)", '"(1, 1, 1)"').replace("(2, 1, 1)", '"(2, 1, 1)"'),
        (HEADER + UNITS + ROWS).replace('","', '";"'),
        (HEADER + UNITS + ROWS).replace('","', '"\t"'),
        HEADER + UNITS + ROWS.splitlines()[0] + "\n" + HEADER + UNITS + ROWS.splitlines()[1],
    ],
    ids=["much before", "words between", "output between", "few quotes", "semicolons", "tabs",
         "two tables"],
)  # fmt: skip
def test_noise(tmp_path: Path, text: str) -> None:
    assert small(written(tmp_path, "a.csv", text)) == EXPECTED


def test_a_row_that_ends_early_has_no_more_values(tmp_path: Path) -> None:
    capture = read(written(tmp_path, "a.csv", HEADER + UNITS + ROWS + '"2","7","c"\n'))
    assert capture.kernels["time_s"].isna().tolist() == [False, False, True]
    assert "time is not known of 1 of 3 kernels" in capture.warnings


@pytest.mark.parametrize("gap", ["", "nan", "n/a", "(!) n/a"])
def test_a_gap_is_not_a_zero(tmp_path: Path, gap: str) -> None:
    path = written(tmp_path, "a.csv", HEADER + UNITS + ROWS.replace('"4"', f'"{gap}"'))
    assert read(path).kernels["dram_bytes"].isna().tolist() == [False, True]


def test_a_table_without_units_says_what_it_is_taken_for(tmp_path: Path) -> None:
    capture = read(written(tmp_path, "a.csv", HEADER + ROWS.replace(".5", "5")))
    assert capture.kernels["time_s"].tolist() == [150e-9, 250e-9]
    assert any("has no units" in remark for remark in capture.warnings)


def test_a_kernel_is_known_by_process_and_number(tmp_path: Path) -> None:
    head = '"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'
    rows = [
        f'"0","{pid}","a","gpu__time_duration.sum","us","{time}"' for pid, time in ((1, 2), (3, 4))
    ]
    kernels = read(written(tmp_path, "a.csv", head + "\n".join(rows))).kernels
    assert kernels[["process_id", "id", "time_s"]].to_dict("list") == {
        "process_id": ["1", "3"],
        "id": ["0", "0"],
        "time_s": [2e-6, 4e-6],
    }


def test_the_quick_and_the_careful_way_agree(tmp_path: Path) -> None:
    # given a recorded file, and the same with a line that ends before it has named a kernel
    text = gzip.decompress(STEP.read_bytes()).decode()
    quick = read(STEP).kernels
    careful = read(written(tmp_path, "a.csv", text + '"637","658"\n')).kernels
    # then all rows are the same
    pd.testing.assert_frame_equal(careful, quick, check_dtype=False)


def test_ranges_may_have_colons_in_their_names() -> None:
    from ridgeline.profile.reading.launches import range_names

    cell = '422  "<default domain>:ridgeline:op:12:none:none:none:none:none:none" '
    assert range_names(cell) == "ridgeline:op:12"
    assert range_names("") == ""


def test_the_number_of_a_metric_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    header = HEADER.replace("\n", ',"dram__bytes.sum"\n')
    units, rows = UNITS.replace("\n", ',"byte"\n'), ROWS.replace('"\n', '","9"\n')
    assert small(written(tmp_path, "a.csv", header + units + rows)) == EXPECTED


def test_tensor_work_without_a_place_in_the_short_table_is_told(tmp_path: Path) -> None:
    # given types of which the totals know none: fp32 has a place outside tensor cores only
    names = [f"sm__ops_path_tensor_src_{kind}.sum" for kind in ("fp16", "fp32", "int4")]
    lines = [["ID", "Kernel Name", *names], ["", "", *[""] * 3], ["0", "k", "2", "4", "8"]]
    text = "".join(",".join(f'"{cell}"' for cell in line) + "\n" for line in lines)
    capture = read(written(tmp_path, "a.csv", text))
    assert [said for said in capture.warnings if "table of kernels" in said] == [
        "tensor fp32 work is in the table of kernels only: 4",
        "tensor int4 work is in the table of kernels only: 8",
    ]


def test_what_was_read_is_told_on_the_way() -> None:
    from ridgeline.captures import read_capture

    heard: list[tuple[int, int]] = []
    read_capture(PRODUCTS, lambda done, of: heard.append((done, of)))
    size = PRODUCTS.stat().st_size
    assert heard[-1] == (size, size)
