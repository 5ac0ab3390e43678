"""Traces, which have time only: PyTorch and Kineto, kernel tables of nsys."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from tests.captures.files import TRACES, read, read_totals, write_file

from ridgeline.errors import RidgelineError

TIME_ONLY = "a trace tells time only: no FLOPs and no bytes"
COLUMNS = ["kernel", "launches", "time_s", "grid", "block", "stream", "id"]
RECORDED = {
    "kineto.json": (
        "NVIDIA H100",
        ["copies and fills of memory, which are no kernels, are left out: 1"],
        [("sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x32", 1, 120.5e-6, "(16, 8, 1)",
          "(128, 1, 1)", "7", "405"),
         ("void at::native::vectorized_elementwise_kernel<4, at::native::AddOp>(int)", 1, 4.25e-6,
          "(10, 1, 1)", "(128, 1, 1)", "7", "412")],
    ),
    "nsys_cuda_gpu_kern_sum.csv": (
        None,
        [],
        [("void gemm<float, (int)128>(const float *, float *)", 4, 182_400e-9, "", "", "", ""),
         ("reduce(float *)", 8, 17_600e-9, "", "", "", "")],
    ),
    "nsys_cuda_gpu_trace.csv": (
        "NVIDIA RTX 5000 Ada Generation Laptop GPU",
        [],
        [("saxpy(float, const float *, float *, unsigned long)", 1, time_s, "(4096, 1, 1)",
          "(256, 1, 1)", "13", number) for time_s, number in ((7072e-9, "128"), (7136e-9, "130"))],
    ),
    "nsys_gpukernsum_2020.csv": (
        None,
        [],
        [("conv(float *)", 3, 3e-3, "", "", "", ""), ("pool(float *)", 1, 1e-3, "", "", "", "")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_traces(name: str) -> None:
    device, notes, rows = RECORDED[name]
    capture = read(TRACES / name)
    assert list(capture.kernels[COLUMNS].itertuples(index=False, name=None)) == rows
    assert (capture.device, capture.warnings) == (device, (TIME_ONLY, *notes))
    assert capture.kernels["time_source"].eq("profiler").all()
    assert capture.kernels["counter_time_s"].isna().all()


# ---------------------------------------------------------------- Kineto


def event(name: str = "a", dur: object = 2, device: int = 0) -> dict[str, object]:
    args = {"device": device, "stream": 7}
    return {"ph": "X", "cat": "kernel", "name": name, "ts": 1, "dur": dur, "args": args}


def trace(*events: object, **others: object) -> str:
    return json.dumps({**others, "traceEvents": events})


@pytest.mark.parametrize(
    ("text", "kernels", "warnings"),
    [
        (trace(event("a"), event("b")), ["a", "b"], []),
        (json.dumps([event("a"), event("b")]), ["a", "b"], []),
        (trace(event("a\ud800b")), ["a?b"], []),
        (trace(event("a")).replace('"a"', '"a\tb"'), ["a\tb"], []),
        (trace(event(), *(event(dur=dur) for dur in (None, -1, math.nan, math.inf, "soon"))),
         ["a"] * 6, ["time is not known of 5 of 6 kernels"]),
        (trace(event("a" * 2**21), event("b")), ["a" * 2**21, "b"], []),
        (trace(event("a"), user="x" * 2**21), ["a"], []),
    ],
    ids=["object", "list", "surrogate", "tab", "durations", "long event",
         "long head"],
)  # fmt: skip
def test_traces_of_pytorch(
    tmp_path: Path, text: str, kernels: list[str], warnings: list[str]
) -> None:
    capture = read(write_file(tmp_path, "a.json", text))
    assert capture.kernels["kernel"].tolist() == kernels
    assert capture.warnings == (TIME_ONLY, *warnings)


# ---------------------------------------------------------------- nsys

STATISTICS = "Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns)"
KERNELS = (
    f"Time (%),Total Time (ns),Instances,{STATISTICS},Name\n"
    "100.0,200000,4,50000.0,50000.0,50000,50000,0.0,gemm\n"
)
NVTX = (
    f"Time (%),Total Time (ns),Instances,{STATISTICS},Style,Range\n"
    "100.0,9000000,10,900000.0,900000.0,900000,900000,0.0,PushPop,:step\n"
)
COPIES = (
    f"Time (%),Total Time (ns),Count,{STATISTICS},Operation\n"
    "100.0,3000,3,1000.0,1000.0,1000,1000,0.0,[CUDA memcpy Host-to-Device]\n"
)
CALLS = "Time (%),Total Time (ns),Num Calls,Avg (ns),Name\n81.2,131012864,1,1.0,cudaMalloc\n"
BESIDE_LAUNCHES = (
    "API Start (ns),API Dur (ns),Kernel Start (ns),Kernel Dur (ns),PID,API Function,Kernel Name\n"
    "10,5,17,7000,4711,cudaLaunchKernel,gemm(int)\n"
)
OTHERS = {"nvtx": NVTX, "copies": COPIES, "calls": CALLS}


@pytest.mark.parametrize("between", ["\n", "", "\nProcessing [a.sqlite] with [b.py]... \n"])
@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_other_tables_around_that_of_the_kernels(
    tmp_path: Path, other: str, between: str
) -> None:  # fmt: skip
    for text in (KERNELS + between + other, other + "\n" + KERNELS):
        found = read_totals(write_file(tmp_path, "a.csv", text))
        assert (found["kernels"], found["kernel_time_s"]) == (4, pytest.approx(200e-6))
        assert found["warnings"] == [TIME_ONLY]


@pytest.mark.parametrize("other", [*OTHERS.values(), BESIDE_LAUNCHES, KERNELS.replace(",", "   ")])
def test_other_tables_alone_are_refused(tmp_path: Path, other: str) -> None:
    path = write_file(tmp_path, "a.csv", other)
    with pytest.raises(RidgelineError) as refused:
        read(path)
    problem = f"{path} is a table of nsys that is not the CSV of a kernel table"
    assert (refused.value.problem, "--format csv" in refused.value.hint) == (problem, True)


@pytest.mark.parametrize("unit", ["us", "\u00b5s", "\u03bcs", "usec"])
def test_microseconds_of_nsys(tmp_path: Path, unit: str) -> None:
    text = f"Time (%),Total Time ({unit}),Instances,Avg ({unit}),Name\n100.0,600.5,3,200.17,gemm\n"
    assert read(write_file(tmp_path, "a.csv", text)).kernels["time_s"].tolist() == [600.5e-6]


@pytest.mark.parametrize(
    "row",
    ["5.0,10,0,,,,,,relu\n", "5.0,10,1,,,,,,a(int, int)\n", "5.0,1\n"],
    ids=["no launches", "lost quotes", "no name"],
)
def test_rows_of_nsys_that_are_skipped(tmp_path: Path, row: str) -> None:
    found = read_totals(write_file(tmp_path, "a.csv", KERNELS + row))
    assert found["kernels"] == 4
    note = "lines inside the table that are not rows are skipped: 1"
    assert found["warnings"] == [TIME_ONLY, note]
