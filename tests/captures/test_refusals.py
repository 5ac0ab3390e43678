"""Files with nothing in them are refused, each with its reason."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
from pathlib import Path

import pytest
from tests.captures.files import STEP, read, read_totals, write_file
from tests.cli.analyzed_here import command

from ridgeline.errors import RidgelineError

HEADER = '"ID","Process ID","Kernel Name","gpu__time_duration.sum"\n"","","","us"\n'
CONNECTED = "==PROF== Connected to process 1 (/opt/bin/app)\n"
TRACE = '{"traceEvents": ['
DAMAGED = (
    "is a trace that is damaged or cut off: 0 events can be read,"
    " with no kernel of a GPU among them"
)
TEXT_OF_SUMMARY = (
    "[100] python@127.0.0.1\n"
    "  k(int) (1, 1, 1)x(1, 1, 1), Context 1, Stream 7, Device 0, CC 8.0, Invocations 1,500\n"
    "    Metric Name                Metric Unit      Minimum      Maximum      Average\n"
    "    gpu__time_duration.sum              us         1.00         3.00         2.50\n"
)
SUMMARY = (
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
        (HEADER + '"0","1","a","-2"\n',
         "has 1 kernel and nothing that can be used: values that are negative are not used:"
         " gpu__time_duration.sum", "capture and export"),
        ('"ID","Process ID","Kernel Name","launch__grid_size"\n"0","1","a","4"\n',
         "has 1 kernel and no metric that tells FLOPs, bytes or time", "gpu__time_duration.sum"),
        (TEXT_OF_SUMMARY,
         "is the text of a summary (ncu --print-summary), of which only the CSV is read",
         "--csv --print-summary per-kernel"),
        (SUMMARY, "is a summary of ncu over all kernels together (--print-summary per-gpu)",
         "--print-summary per-kernel"),
        (b"PK\x03\x04 and more", "is a zip archive", "unpack it"),
        (b"7z\xbc\xaf\x27\x1c and more", "is a 7z archive", "unpack it"),
        (b"\0" * 257 + b"ustar", "is a tar archive", "unpack it"),
        (b"\x28\xb5\x2f\xfd and more", "is packed with zstd", "unpack it"),
        (bz2.compress(b"a"), "is packed with bzip2", "unpack it"),
        (lzma.compress(b"a"), "is packed with xz", "unpack it"),
        (gzip.compress(gzip.compress(b"a", mtime=0), mtime=0), "is packed twice", "unpack it"),
        (gzip.compress(b""), "is empty", "export it again"),
        (gzip.compress(b"NVR\0 and more"), "is a packed report", "gunzip --keep a.csv"),
        (STEP.read_bytes()[:2000], "cannot be unpacked: it is damaged or not whole", "copy it"),
        (b"SQLite format 3\0", "is a report of Nsight Systems, which only nsys can read",
         "nsys stats"),
        ('{"a": 1}', "is JSON, but no trace: it has no traceEvents", "export_chrome_trace"),
        ('[{"Time (%)": 100.0, "Total Time (ns)": 2000}]',
         "is JSON of nsys stats, of which only the CSV is read", "--format csv"),
        (TRACE + '{"ph": "X", "cat": "cpu_op", "dur": 2}]}',
         "is a trace of 1 event with no kernel of a GPU among them", "ProfilerActivity.CUDA"),
        (TRACE + '{"ph": "X", "cat": "ker', DAMAGED, "copy or export it again"),
        (TRACE + "[" * 100_000, DAMAGED, "copy or export it again"),
        ("==4711== NVPROF is profiling process 4711\n",
         "is of nvprof, which ridgeline does not read", "ncu --csv"),
        ("SKIPPED: report.sqlite does not contain CUDA kernel data.\n",
         "holds no kernels: nsys skipped the table", "--trace cuda"),
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
    for path, problem in ((tmp_path / "a.csv", "there is no file"), (tmp_path, "is a folder"),
                          (tmp_path / "pipe", "is a pipe or a device")):  # fmt: skip
        with pytest.raises(RidgelineError, match=problem):
            read(path)


COLLECT, BASE = "collect gpu__time_duration.sum", "--print-units base"


@pytest.mark.parametrize(
    ("metric", "unit", "reason", "hint"),
    [
        ("smsp__sass_thread_inst_executed_op_fadd_pred_on.sum", "inst",
         "fp32 FLOPs are not told: fmul, ffma not collected", COLLECT),
        ("dram__bytes_read.sum", "byte", "DRAM bytes are not told: only reads were collected",
         COLLECT),
        ("dram__bytes.sum.per_second", "Gbyte/second",
         "dram__bytes.sum.per_second without time or cycles", COLLECT),
        ("sm__cycles_elapsed.avg", "cycle", "sm__cycles_elapsed.avg alone tells nothing", COLLECT),
        ("dram__bytes.sum", "sector", "not used, for their units: dram__bytes.sum in sector", BASE),
        ("gpu__time_duration.sum", "day", "not used, for their units: gpu__time_duration.sum in"
         " day", BASE),
    ],
)  # fmt: skip
def test_values_that_cannot_be_used_are_not_called_missing(
    tmp_path: Path, metric: str, unit: str, reason: str, hint: str
) -> None:
    titles = f'"ID","Process ID","Kernel Name","{metric}"\n"","","","{unit}"\n'
    path = write_file(tmp_path, "a.csv", titles + '"0","1","a","5"\n"1","1","a","6"\n')
    with pytest.raises(RidgelineError) as refused:
        read(path)
    problem = f"{path} has 2 kernels and nothing that can be used: {reason}"
    assert refused.value.problem == problem
    assert hint in refused.value.hint


def test_each_of_many_metrics_in_other_units_was_collected(tmp_path: Path) -> None:
    # given six metrics in per cent, more than a note names, and one that can be used
    names = [f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum"
             for op in ("fadd", "fmul", "ffma", "dadd", "dmul")]  # fmt: skip
    titles = ["ID", "Process ID", "Kernel Name", *names, "gpu__time_duration.sum"]
    lines = ([*titles, "dram__bytes.sum"], ["", "", "", *["%"] * 6, "byte"],
             ["0", "1", "a", *["5"] * 7])  # fmt: skip
    text = "".join(",".join(line) + "\n" for line in lines)
    warnings = read(write_file(tmp_path, "a.csv", text)).warnings
    # then no time was lost for want of collecting it
    assert "no time: there is no counter that can be used" in warnings
    assert "no FLOPs: there is no counter that can be used" in warnings


def test_reads_without_writes_are_not_the_traffic(tmp_path: Path) -> None:
    text = HEADER.replace('sum"', 'sum","dram__bytes_read.sum"').replace('"us"', '"us","byte"')
    totals = read_totals(write_file(tmp_path, "a.csv", text + '"0","1","a","2","5"\n'))
    assert (totals["kernel_time_s"], totals["dram_bytes"]) == (2e-6, None)
    assert "DRAM bytes are not told: only reads were collected" in totals["warnings"]
    # nor are reads of one kernel and writes of another
    titles = "ID,Process ID,Kernel Name,dram__bytes_read.sum [byte],dram__bytes_write.sum [byte]\n"
    path = write_file(tmp_path, "b.csv", titles + "0,1,a,5,\n1,1,b,,6\n")
    with pytest.raises(RidgelineError, match="no kernel has both reads and writes"):
        read(path)
