"""Files with nothing in them are refused, each with its reason."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import pytest
from tests.profile.captures import STEP, read, told, written

from ridgeline.errors import RidgelineError

HEADER = '"ID","Process ID","Kernel Name","gpu__time_duration.sum"\n"","","","us"\n'
CONNECTED = "==PROF== Connected to process 1 (/opt/bin/app)\n"


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("", "is empty", "capture or export"),
        ("hello\n", "is no capture that ridgeline knows", "ridgeline reads"),
        (HEADER, "holds no kernels", "cut off"),
        (
            CONNECTED + "==WARNING== No kernels were profiled.\n",
            "holds no kernels: no kernels were profiled",
            "--target-processes all",
        ),
        (
            CONNECTED + "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n"
            "==WARNING== No kernels were profiled.\n",
            "holds no kernels: the profiler may not read the GPU's counters (ERR_NVGPUCTRPERM)",
            "https://developer.nvidia.com/ERR_NVGPUCTRPERM",
        ),
        (
            "==ERROR== Profiling failed because a driver resource was unavailable.\n",
            "holds no kernels: another profiler held the GPU's counters (DCGM, Nsight Systems,"
            " another ncu)",
            "dcgmi",
        ),
        (
            CONNECTED + "==ERROR== The application returned an error code (1).\n",
            "holds no kernels: the program that was profiled ended with an error",
            "without the profiler",
        ),
        (
            "==ERROR== Something new\n" + HEADER,
            "holds no kernels: the profiler said 'Something new'",
            "capture again",
        ),
        (
            HEADER + '"0","1","a","nan"\n',
            "has 1 kernel and no values: none is a number",
            "capture and export",
        ),
        (
            '"ID","Process ID","Kernel Name","launch__grid_size"\n"0","1","a","4"\n',
            "has 1 kernel and no metric that tells FLOPs, bytes or time",
            "gpu__time_duration.sum",
        ),
    ],
    ids=lambda value: value[:30].strip() if isinstance(value, str) else None,
)
def test_reasons(tmp_path: Path, text: str, problem: str, hint: str) -> None:
    path = written(tmp_path, "a.csv", text)
    with pytest.raises(RidgelineError) as refused:
        read(path)
    assert refused.value.problem == f"{path} {problem}"
    assert hint in refused.value.hint


@pytest.mark.parametrize(
    ("metric", "unit", "reason", "hint"),
    [
        (
            "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum",
            "inst",
            "fp32 FLOPs are not told: fmul, ffma not collected",
            "collect gpu__time_duration.sum",
        ),
        (
            "dram__bytes_read.sum",
            "byte",
            "DRAM bytes are not told: only reads were collected",
            "collect gpu__time_duration.sum",
        ),
        (
            "dram__bytes_write.sum",
            "byte",
            "DRAM bytes are not told: only writes were collected",
            "collect gpu__time_duration.sum",
        ),
        (
            "dram__bytes.sum.per_second",
            "Gbyte/second",
            "dram__bytes.sum.per_second without time or cycles",
            "collect gpu__time_duration.sum",
        ),
        (
            "sm__cycles_elapsed.avg",
            "cycle",
            "sm__cycles_elapsed.avg alone tells nothing",
            "collect gpu__time_duration.sum",
        ),
        (
            "dram__bytes.sum",
            "sector",
            "not used, for their units: dram__bytes.sum in sector",
            "--print-units base",
        ),
        (
            "gpu__time_duration.sum",
            "day",
            "not used, for their units: gpu__time_duration.sum in day",
            "--print-units base",
        ),
    ],
)
def test_values_that_cannot_be_used_are_not_said_to_be_missing(
    tmp_path: Path, metric: str, unit: str, reason: str, hint: str
) -> None:
    titles = f'"ID","Process ID","Kernel Name","{metric}"\n"","","","{unit}"\n'
    path = written(tmp_path, "a.csv", titles + '"0","1","a","5"\n"1","1","a","6"\n')
    with pytest.raises(RidgelineError) as refused:
        read(path)
    problem = f"{path} has 2 kernels and nothing that can be used: {reason}"
    assert refused.value.problem == problem
    assert hint in refused.value.hint


def test_each_of_many_metrics_in_other_units_was_collected(tmp_path: Path) -> None:
    # given six metrics in per cent, more than a note names, and one that can be used
    ops = ("fadd", "fmul", "ffma", "dadd", "dmul")
    names = [
        *(f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum" for op in ops),
        "gpu__time_duration.sum",
    ]
    titles = ",".join(
        f'"{name}"' for name in ("ID", "Process ID", "Kernel Name", *names, "dram__bytes.sum")
    )
    units = ",".join(["", "", "", *["%"] * 6, "byte"])
    cells = ",".join(["0", "1", "a", *["5"] * 7])
    capture = read(written(tmp_path, "a.csv", f"{titles}\n{units}\n{cells}\n"))
    # then no time was lost for want of collecting it
    assert "no time: there is no counter that can be used" in capture.warnings
    assert "no FLOPs: there is no counter that can be used" in capture.warnings


def test_an_error_beside_kernels_is_a_remark(tmp_path: Path) -> None:
    text = "==ERROR== LaunchFailed\n" + HEADER + '"0","1","a","2"\n'
    capture = read(written(tmp_path, "a.csv", text))
    assert "the profiler reported an error: LaunchFailed" in capture.warnings


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(RidgelineError, match="there is no file"):
        read(tmp_path / "a.csv")


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(RidgelineError, match="is a folder"):
        read(tmp_path)


def test_a_packed_file_that_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(STEP.read_bytes()[:2000])
    with pytest.raises(RidgelineError, match="cannot be unpacked"):
        read(path)


def test_a_packed_file_with_nothing_in_it(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b""))
    with pytest.raises(RidgelineError, match="is empty"):
        read(path)


def test_a_packed_report_must_be_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "a.ncu-rep.gz"
    path.write_bytes(gzip.compress(b"NVR\0 and more"))
    with pytest.raises(RidgelineError, match="is a packed report\n  hint: unpack it: gunzip"):
        read(path)


def test_an_archive_must_be_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.csv", HEADER)
    with pytest.raises(RidgelineError, match="is a zip archive\n  hint: unpack it"):
        read(path)


def test_numbers_that_cannot_be_are_the_reason(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", HEADER + '"0","1","a","-2"\n')
    with pytest.raises(RidgelineError, match="nothing that can be used: values that are negative"):
        read(path)


@pytest.mark.parametrize("way", ["read", "write"])
def test_one_way_beside_other_quantities_is_said_not_to_tell_dram(tmp_path: Path, way: str) -> None:
    text = HEADER.replace('sum"', f'sum","dram__bytes_{way}.sum"').replace('"us"', '"us","byte"')
    found = told(written(tmp_path, "a.csv", text + '"0","1","a","2","5"\n'))
    assert (found["kernel_time_s"], found["dram_bytes"]) == (2e-6, None)
    assert f"DRAM bytes are not told: only {way}s were collected" in found["warnings"]


def test_reads_of_one_kernel_and_writes_of_another_tell_nothing(tmp_path: Path) -> None:
    titles = "ID,Process ID,Kernel Name,dram__bytes_read.sum [byte],dram__bytes_write.sum [byte]\n"
    path = written(tmp_path, "a.csv", titles + "0,1,a,5,\n1,1,b,,6\n")
    with pytest.raises(RidgelineError, match="no kernel has both reads and writes"):
        read(path)


SUMMARY = (
    "[100] python@127.0.0.1\n"
    "  k(int) (1, 1, 1)x(1, 1, 1), {}Device 0, CC 8.0, Invocations 1,500\n"
    "    Metric Name                Metric Unit      Minimum      Maximum      Average\n"
    "    gpu__time_duration.sum              us         1.00         3.00         2.50\n"
)


@pytest.mark.parametrize("place", ["", "Context 1, Stream 7, "])
def test_the_text_of_a_summary(tmp_path: Path, place: str) -> None:
    path = written(tmp_path, "a.txt", SUMMARY.format(place))
    with pytest.raises(RidgelineError) as refused:
        read(path)
    assert refused.value.problem == (
        f"{path} is the text of a summary (ncu --print-summary), of which only the CSV is read"
    )
    assert "--csv --print-summary per-kernel" in refused.value.hint


def test_a_summary_without_kernels(tmp_path: Path) -> None:
    titles = '"Device","CC","Invocations","Metric Name","Metric Unit","Minimum","Maximum","Average"'
    row = '"0","8.0","5","gpu__time_duration.sum","us","0","9","2"'
    path = written(tmp_path, "a.csv", f"{titles}\n{row}\n")
    with pytest.raises(RidgelineError) as refused:
        read(path)
    assert refused.value.problem == (
        f"{path} is a summary of ncu over all kernels together (--print-summary per-gpu)"
    )
    assert "--print-summary per-kernel" in refused.value.hint
