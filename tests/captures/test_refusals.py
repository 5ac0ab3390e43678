"""Files with nothing in them are refused, each with its reason."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
from pathlib import Path

import pytest
from tests.captures.files import STEP, read, write_file
from tests.cli.analyzed_here import command

from ridgeline.errors import RidgelineError

HEADER = '"ID","Process ID","Kernel Name","gpu__time_duration.sum"\n"","","","us"\n'
CONNECTED = "==PROF== Connected to process 1 (/opt/bin/app)\n"
TRACE = '{"traceEvents": ['
DAMAGED = "is a trace that is damaged or cut off"
PACKED = "is packed, and only one layer of gzip is unpacked here"
SUMMARY = "is a summary of ncu (--print-summary), which is not read"
CSV_OF_SUMMARY = (
    '"Device","CC","Invocations","Metric Name","Metric Unit","Minimum","Maximum","Average"\n'
    '"0","8.0","5","gpu__time_duration.sum","us","0","9","2"\n'
)


@pytest.mark.parametrize(
    ("content", "problem", "hint"),
    [
        ("", "is empty", "capture or export"),
        ("hello\n", "is no capture that ridgeline knows", "ridgeline reads"),
        (bytes(range(256)) * 50, "is no capture that ridgeline knows", "ridgeline reads"),
        (HEADER, "holds no kernels", "cut off"),
        (CONNECTED + "==WARNING== No kernels were profiled.\n",
         "holds no kernels: no kernels were profiled", "--target-processes all"),
        (CONNECTED + "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n"
         "==WARNING== No kernels were profiled.\n",
         "holds no kernels: the profiler may not read the GPU's counters (ERR_NVGPUCTRPERM)",
         "https://developer.nvidia.com/ERR_NVGPUCTRPERM"),
        ("==ERROR== Something new\n" + HEADER,
         "holds no kernels: the profiler said 'Something new'", "capture again"),
        (HEADER + '"0","1","a","nan"\n', "has 1 kernel and no values: none is a number",
         "capture and export"),
        (HEADER + '"0","1","a","1e400"\n', "has 1 kernel and no values: none is a number",
         "capture and export"),
        (HEADER + '"0","1","a","-2"\n', "has 1 kernel and no values: none is a number",
         "capture and export"),
        ('"ID","Process ID","Kernel Name","launch__grid_size"\n"0","1","a","4"\n',
         "has 1 kernel and no metric that tells FLOPs, bytes or time", "gpu__time_duration.sum"),
        (CSV_OF_SUMMARY, SUMMARY, "--csv --page raw"),
        (b"PK\x03\x04 and more", PACKED, "unpack it"),
        (b"\x28\xb5\x2f\xfd and more", PACKED, "unpack it"),
        (bz2.compress(b"a"), PACKED, "unpack it"),
        (lzma.compress(b"a"), PACKED, "unpack it"),
        (gzip.compress(gzip.compress(b"a", mtime=0), mtime=0), PACKED, "unpack it"),
        (gzip.compress(b""), "is empty", "export it again"),
        (STEP.read_bytes()[:2000], "cannot be read: it is damaged or not whole", "copy the file"),
        (b"SQLite format 3\0", "is a report of Nsight Systems, which only nsys can read",
         "nsys stats"),
        ('{"a": 1}', "is JSON, but no trace: it has no traceEvents", "export_chrome_trace"),
        (TRACE + '{"ph": "X", "cat": "cpu_op", "dur": 2}]}',
         "is a trace of 1 event with no kernel of a GPU among them", "ProfilerActivity.CUDA"),
        (TRACE + '{"ph": "X", "cat": "ker', DAMAGED, "copy or export it again"),
        (TRACE + "[" * 100_000, DAMAGED, "copy or export it again"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)  # fmt: skip
def test_reasons(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    content: str | bytes,
    problem: str,
    hint: str,
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert command("import", str(path), "--no-store", "-q") == 2
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[0]) == ("", f"ridgeline: {path} {problem}")
    assert hint in err


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, problem in ((tmp_path / "a.csv", "No such file"), (tmp_path, "is not a regular file"),
                          (tmp_path / "pipe", "is not a regular file")):  # fmt: skip
        with pytest.raises(RidgelineError, match=problem):
            read(path)


@pytest.mark.parametrize(
    ("metric", "unit", "reason"),
    [
        ("smsp__sass_thread_inst_executed_op_fadd_pred_on.sum", "inst",
         "fp32 FLOPs are unavailable: fmul, ffma not collected"),
        ("dram__bytes_read.sum", "byte", "DRAM bytes are unavailable: only reads were collected"),
        ("dram__bytes.sum", "sector", "not used, for their units: dram__bytes.sum in sector; export"
         " with --print-units base"),
    ],
)  # fmt: skip
def test_values_that_cannot_be_used_are_not_called_missing(
    tmp_path: Path, metric: str, unit: str, reason: str
) -> None:
    titles = f'"ID","Process ID","Kernel Name","{metric}"\n"","","","{unit}"\n'
    path = write_file(tmp_path, "a.csv", titles + '"0","1","a","5"\n"1","1","a","6"\n')
    with pytest.raises(RidgelineError) as refused:
        read(path)
    problem = f"{path} has 2 kernels and nothing that can be used: {reason}"
    assert refused.value.problem == problem
    assert "collect gpu__time_duration.sum" in refused.value.hint
