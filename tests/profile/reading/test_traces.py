"""Traces: time only."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import pytest
from tests.profile.captures import NO_FLOPS, TRACES, read, told, written

from ridgeline.errors import RidgelineError

TIME_ONLY = "a trace tells time only: no FLOPs and no bytes"


def in_short(name: str) -> dict[str, list[object]]:
    kernels = read(TRACES / name).kernels
    chosen = ["kernel", "launches", "time_s", "grid", "block", "stream", "id"]
    return {name: kernels[name].tolist() for name in chosen}


def test_a_trace_of_pytorch() -> None:
    assert in_short("kineto.json") == {
        "kernel": [
            "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x32",
            "void at::native::vectorized_elementwise_kernel<4, at::native::AddOp>(int)",
        ],
        "launches": [1, 1],
        "time_s": [120.5e-6, 4.25e-6],
        "grid": ["(16, 8, 1)", "(10, 1, 1)"],
        "block": ["(128, 1, 1)", "(128, 1, 1)"],
        "stream": ["7", "7"],
        "id": ["405", "412"],
    }
    assert told(TRACES / "kineto.json") == {
        "kernels": 2,
        "flops": NO_FLOPS,
        "dram_bytes": None,
        "l2_bytes": None,
        "l1_bytes": None,
        "kernel_time_s": pytest.approx(124.75e-6),
        "device": "NVIDIA H100",
        "warnings": [TIME_ONLY],
    }


def test_time_is_the_profilers_and_not_the_counters() -> None:
    kernels = read(TRACES / "kineto.json").kernels
    assert kernels["time_source"].tolist() == ["profiler", "profiler"]
    assert kernels["counter_time_s"].isna().all()


def test_a_packed_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress((TRACES / "kineto.json").read_bytes()))
    assert read(path).launches == 2


def test_a_trace_that_is_a_list(tmp_path: Path) -> None:
    events = json.loads((TRACES / "kineto.json").read_text())["traceEvents"]
    assert read(written(tmp_path, "a.json", json.dumps(events))).launches == 2


def test_a_trace_that_is_cut_off_says_so(tmp_path: Path) -> None:
    text = (TRACES / "kineto.json").read_text()
    capture = read(written(tmp_path, "a.json", text[: text.index("gpu_memcpy")]))
    assert capture.launches == 2
    assert capture.warnings == (TIME_ONLY, "the trace is cut off or damaged: its end is missing")


def test_a_trace_without_kernels_is_refused(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 2}
    path = written(tmp_path, "a.json", json.dumps({"traceEvents": [event]}))
    with pytest.raises(RidgelineError, match=r"1 events with no kernel.*\n  hint: profile with"):
        read(path)


def test_json_that_is_no_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RidgelineError, match="it has no traceEvents"):
        read(written(tmp_path, "a.json", '{"a": 1}'))


def test_a_summary_of_nsys() -> None:
    found = in_short("nsys_cuda_gpu_kern_sum.csv")
    assert (found["kernel"], found["launches"], found["time_s"]) == (
        ["void gemm<float, (int)128>(const float *, float *)", "reduce(float *)"],
        [4, 8],
        [182_400e-9, 17_600e-9],
    )
    assert told(TRACES / "nsys_cuda_gpu_kern_sum.csv")["kernels"] == 12


def test_a_trace_of_nsys_without_its_copies() -> None:
    name = "saxpy(float, const float *, float *, unsigned long)"
    assert in_short("nsys_cuda_gpu_trace.csv") == {
        "kernel": [name, name],
        "launches": [1, 1],
        "time_s": [7072e-9, 7136e-9],
        "grid": ["(4096, 1, 1)"] * 2,
        "block": ["(256, 1, 1)"] * 2,
        "stream": ["13", "13"],
        "id": ["128", "130"],
    }
    device = read(TRACES / "nsys_cuda_gpu_trace.csv").device
    assert device == "NVIDIA RTX 5000 Ada Generation Laptop GPU"


def test_an_old_summary_of_nsys_in_milliseconds() -> None:
    found = in_short("nsys_gpukernsum_2020.csv")
    assert (found["launches"], found["time_s"]) == ([3, 1], [3e-3, 1e-3])


def test_calls_are_no_kernels(tmp_path: Path) -> None:
    text = "Time (%),Total Time (ns),Num Calls,Avg (ns),Name\n81.2,131012864,1,1.0,cudaMalloc\n"
    with pytest.raises(RidgelineError, match=r"about calls or copies.*\n  hint: nsys stats"):
        read(written(tmp_path, "a.csv", text))


def test_a_report_of_nsys_says_how_to_export_it(tmp_path: Path) -> None:
    with pytest.raises(RidgelineError, match="only nsys can read\n  hint: nsys stats"):
        read(written(tmp_path, "a.nsys-rep", "anything"))


def traced(name: str = "a", dur: object = 2, device: int = 0) -> dict[str, object]:
    args = {"device": device, "stream": 7}
    return {"ph": "X", "cat": "kernel", "name": name, "ts": 1, "dur": dur, "args": args}


def test_half_of_a_surrogate_pair_is_replaced(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": [traced("a\ud800b")]})
    assert read(written(tmp_path, "a.json", text)).kernels["kernel"].tolist() == ["a\ufffdb"]


def test_kernels_without_a_duration_are_counted(tmp_path: Path) -> None:
    unusable = [None, -1, math.nan, math.inf, "soon"]
    events = [traced(), *(traced(dur=dur) for dur in unusable)]
    capture = read(written(tmp_path, "a.json", json.dumps({"traceEvents": events})))
    assert capture.launches == 1
    assert capture.warnings == (
        TIME_ONLY,
        "kernels without a duration that can be used are left out: 5",
    )


def test_a_trace_with_no_duration_at_all_is_refused(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": [traced(dur=None)]})
    with pytest.raises(RidgelineError, match="no kernel of a GPU that has a duration"):
        read(written(tmp_path, "a.json", text))


@pytest.mark.parametrize(
    ("used", "device", "said"),
    [
        ([0, 0], "A100", []),
        ([2, 2], "H100", []),
        ([0, 1], "A100", ["kernels of several devices are added up: A100 (0), A100 (1)"]),
        ([2, 0], "H100", ["kernels of several devices are added up: H100 (2), A100 (0)"]),
    ],
)
def test_devices_are_those_that_kernels_ran_on(
    tmp_path: Path, used: list[int], device: str, said: list[str]
) -> None:
    names = ["A100", "A100", "H100"]
    content = {
        "deviceProperties": [{"id": n, "name": name} for n, name in enumerate(names)],
        "traceEvents": [traced(device=number) for number in used],
    }
    capture = read(written(tmp_path, "a.json", json.dumps(content)))
    assert (capture.device, list(capture.warnings[1:])) == (device, said)


def test_a_table_that_nsys_skipped(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "SKIPPED: a.sqlite does not contain CUDA kernel data.\n")
    with pytest.raises(RidgelineError, match=r"holds no kernels: nsys said 'SKIPPED.*\n.*ran on"):
        read(path)


def test_rows_of_nsys_without_a_time_are_counted(tmp_path: Path) -> None:
    text = "Time (%),Total Time (ns),Instances,Name\n60.0,6000,3,a\n40.0,-4000,2,b\n"
    capture = read(written(tmp_path, "a.csv", text))
    assert capture.launches == 3
    assert capture.warnings[1:] == ("rows without a time that can be used are left out: 1",)
