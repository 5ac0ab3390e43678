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
        "warnings": [
            TIME_ONLY,
            "copies and fills of memory, which are no kernels, are left out: 1",
        ],
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
    with pytest.raises(RidgelineError, match=r"1 event with no kernel.*\n  hint: profile with"):
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


EXEC_TRACE = (
    "API Start (ns),API Dur (ns),Queue Start (ns),Queue Dur (ns),Kernel Start (ns),Kernel Dur (ns),"
    "Total Dur (ns),PID,TID,DevId,API Function,GridXYZ,BlockXYZ,Kernel Name\n"
    "10,5,15,2,17,7000,7007,4711,4711,0,cudaLaunchKernel,   1    2    3, 128    1    1,gemm(int)\n"
    "20,5,,,27,300,307,4711,4711,1,cudaLaunchKernel,   4    1    1,  32    1    1,relu\n"
)
COLUMNS = [f"{part}{what} (ns)" for part in "TAQK" for what in ("Avg", "Med", "Min", "Max")]
EXEC_SUM = (
    f"PID,TID,DevId,Count,QCount,{','.join(COLUMNS)},API Name,Kernel Name\n"
    f"4711,4711,0,3,3,{'900.0,900.0,900,900,' * 3}200.0,190.0,10,400,cudaLaunchKernel,gemm(int)\n"
    f"4711,4711,0,2,0,{'900.0,900.0,900,900,' * 3}50.5,50.5,50,51,cudaLaunchKernel,relu\n"
)


def test_kernels_beside_their_launches(tmp_path: Path) -> None:
    capture = read(written(tmp_path, "a.csv", EXEC_TRACE))
    chosen = ["kernel", "launches", "time_s", "grid", "block", "process_id"]
    assert {name: capture.kernels[name].tolist() for name in chosen} == {
        "kernel": ["gemm(int)", "relu"],
        "launches": [1, 1],
        "time_s": [7000e-9, 300e-9],
        "grid": ["(1, 2, 3)", "(4, 1, 1)"],
        "block": ["(128, 1, 1)", "(32, 1, 1)"],
        "process_id": ["4711", "4711"],
    }
    assert capture.warnings == (TIME_ONLY, "kernels of several devices are added up: 0, 1")


@pytest.mark.parametrize("before", ["", "5/5 [00:01]"])
def test_a_summary_of_kernels_beside_their_launches(tmp_path: Path, before: str) -> None:
    # given averages of three and of two launches
    capture = read(written(tmp_path, "a.csv", before + EXEC_SUM))
    # then times are those of all
    assert capture.kernels["kernel"].tolist() == ["gemm(int)", "relu"]
    assert capture.kernels["launches"].tolist() == [3, 2]
    assert capture.kernels["time_s"].tolist() == [600e-9, 101e-9]
    assert capture.warnings == (TIME_ONLY,)


@pytest.mark.parametrize("unit", ["us", "\u00b5s", "\u03bcs"])
def test_microseconds_of_nsys(tmp_path: Path, unit: str) -> None:
    text = f"Time (%),Total Time ({unit}),Instances,Avg ({unit}),Name\n100.0,600.5,3,200.17,gemm\n"
    capture = read(written(tmp_path, "a.csv", text))
    assert capture.kernels["time_s"].tolist() == [600.5e-6]


def test_an_old_summary_of_nsys_in_milliseconds() -> None:
    found = in_short("nsys_gpukernsum_2020.csv")
    assert (found["launches"], found["time_s"]) == ([3, 1], [3e-3, 1e-3])


def test_calls_are_no_kernels(tmp_path: Path) -> None:
    text = "Time (%),Total Time (ns),Num Calls,Avg (ns),Name\n81.2,131012864,1,1.0,cudaMalloc\n"
    with pytest.raises(RidgelineError, match=r"about calls or copies.*\n  hint: nsys stats"):
        read(written(tmp_path, "a.csv", text))


# ---------------------------------------------------------------- tables of nsys

STATISTICS = "Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns)"
KERNELS = (
    f"Time (%),Total Time (ns),Instances,{STATISTICS},Name\n"
    "100.0,200000,4,50000.0,50000.0,50000,50000,0.0,gemm\n"
)
NVTX = (
    f"Time (%),Total Time (ns),Instances,{STATISTICS},Style,Range\n"
    "100.0,9000000,10,900000.0,900000.0,900000,900000,0.0,PushPop,:step\n"
)
GPU = (
    f"Time (%),Total Time (ns),Instances,{STATISTICS},Category,Operation\n"
    "90.0,200000,4,50000.0,50000.0,50000,50000,0.0,CUDA_KERNEL,gemm\n"
    "10.0,20000,2,10000.0,10000.0,10000,10000,0.0,MEMORY_OPER,[CUDA memcpy Host-to-Device]\n"
)
REGIONS = (
    f"Time (%),Total Time (ns),Instances,{STATISTICS},Name\n"
    "100.0,7000,7,1000.0,1000.0,1000,1000,0.0,parallel region\n"
)
COPY_TIMES = (
    f"Time (%),Total Time (ns),Count,{STATISTICS},Operation\n"
    "100.0,3000,3,1000.0,1000.0,1000,1000,0.0,[CUDA memcpy Host-to-Device]\n"
)
COPY_SIZES = (
    "Total (MB),Count,Avg (MB),Med (MB),Min (MB),Max (MB),StdDev (MB),Operation\n"
    "8.000,2,4.000,4.000,4.000,4.000,0.000,[CUDA memcpy Host-to-Device]\n"
)
BY_RANGE = (
    f"NVTX Range,Style,PID,TID,NVTX Inst,Kern Inst,Total Time (ns),{STATISTICS},Kernel Name\n"
    ":step,PushPop,1,1,1,4,200000,50000.0,50000.0,50000,50000,0.0,gemm\n"
    ":step/forward,PushPop,1,1,1,4,200000,50000.0,50000.0,50000,50000,0.0,gemm\n"
)


@pytest.mark.parametrize("between", ["\n", "", "\nProcessing [a.sqlite] with [b.py]... \n"])
@pytest.mark.parametrize(
    "below",
    [NVTX, GPU, REGIONS, COPY_TIMES, COPY_TIMES + "\n" + COPY_SIZES, BY_RANGE, KERNELS],
    ids=["nvtx", "gpu", "regions", "copies", "sizes", "by range", "again"],
)
def test_tables_below_that_of_the_kernels(tmp_path: Path, below: str, between: str) -> None:
    found = told(written(tmp_path, "a.csv", KERNELS + between + below))
    assert (found["kernels"], found["kernel_time_s"]) == (4, pytest.approx(200e-6))
    assert found["warnings"] == [TIME_ONLY]


@pytest.mark.parametrize("above", [NVTX, GPU, COPY_TIMES + "\n" + COPY_SIZES, BY_RANGE])
def test_tables_above_that_of_the_kernels(tmp_path: Path, above: str) -> None:
    found = told(written(tmp_path, "a.csv", f"{above}\n{KERNELS}"))
    assert (found["kernels"], found["warnings"]) == (4, [TIME_ONLY])


def test_rows_below_the_words_of_nsys_are_of_another_table(tmp_path: Path) -> None:
    # given a table of which the titles are not there
    rows = "Processing [a.sqlite] with [openmp_sum.py]...\n" + REGIONS.split("\n", 1)[1]
    assert read(written(tmp_path, "a.csv", KERNELS + rows)).launches == 4


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (BY_RANGE, "in which a kernel counts once for every NVTX range around it"),
        (GPU, "about kernels, copies and calls together"),
        (NVTX, "about NVTX ranges, not about kernels"),
        (COPY_TIMES, "about calls or copies, not about kernels"),
        (COPY_SIZES, "about calls or copies, not about kernels"),
        (KERNELS.replace(",", "   "), "for people"),
    ],
    ids=["by range", "gpu", "nvtx", "copies", "sizes", "people"],
)
def test_tables_of_nsys_that_are_refused(tmp_path: Path, text: str, what: str) -> None:
    path = written(tmp_path, "a.csv", text)
    with pytest.raises(RidgelineError) as refused:
        read(path)
    assert refused.value.problem == f"{path} is a table of nsys {what}"
    assert "--format csv" in refused.value.hint


def test_a_word_of_a_program_makes_no_table_of_nsys(tmp_path: Path) -> None:
    path = written(tmp_path, "a.txt", "Operations begin\nRange 3\n")
    with pytest.raises(RidgelineError, match="is no capture that ridgeline knows"):
        read(path)


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


@pytest.mark.parametrize(
    "damage",
    [
        ('"dur": 2', '"dur": inf'),
        ('"name": "b"', '"name": "C:\\d"'),
        ('"name": "b"', '"name": "b"c"'),
    ],
    ids=["inf", "escape", "quote"],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_an_event_that_is_damaged_ends_no_trace(
    tmp_path: Path, damage: tuple[str, str], indent: int | None
) -> None:
    # given the second of three events with one character too many
    one, two, three = (json.dumps(traced(name), indent=indent) for name in "abc")
    events = ", ".join([one, two.replace(*damage), three])
    capture = read(written(tmp_path, "a.json", f'{{"traceEvents": [{events}]}}'))
    # then the others are there
    assert capture.kernels["kernel"].tolist() == ["a", "c"]
    assert capture.warnings == (TIME_ONLY, "events that cannot be read are left out: 1")


@pytest.mark.parametrize("end", ["]", "]}", '], "traceName": "a.json", "displayTimeUnit": "ms"}\n'])
def test_a_last_event_that_is_damaged(tmp_path: Path, end: str) -> None:
    events = ", ".join([json.dumps(traced()), json.dumps(traced()).replace("2", "inf")])
    capture = read(written(tmp_path, "a.json", f'{{"traceEvents": [{events}{end}'))
    assert capture.launches == 1
    assert capture.warnings == (TIME_ONLY, "events that cannot be read are left out: 1")


def test_damaged_events_of_a_long_trace(tmp_path: Path) -> None:
    # given a trace of several pieces, in which every tenth event is damaged
    whole, damaged = json.dumps(traced("a" * 1000)), json.dumps(traced()).replace("2", "inf")
    events = ",\n".join(damaged if n % 10 == 5 else whole for n in range(4000))
    capture = read(written(tmp_path, "a.json", f'{{"traceEvents": [{events}]}}'))
    assert capture.launches == 3600
    assert capture.warnings == (TIME_ONLY, "events that cannot be read are left out: 400")


def test_a_tab_in_a_name(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": [traced("a\tb")]}).replace("\\t", "\t")
    capture = read(written(tmp_path, "a.json", text))
    assert (capture.kernels["kernel"].tolist(), capture.warnings) == (["a\tb"], (TIME_ONLY,))


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
        ([2, 0], None, ["kernels of several devices are added up: H100 (2), A100 (0)"]),
    ],
)
def test_devices_are_those_that_kernels_ran_on(
    tmp_path: Path, used: list[int], device: str | None, said: list[str]
) -> None:
    names = ["A100", "A100", "H100"]
    content = {
        "deviceProperties": [{"id": n, "name": name} for n, name in enumerate(names)],
        "traceEvents": [traced(device=number) for number in used],
    }
    capture = read(written(tmp_path, "a.json", json.dumps(content)))
    assert (capture.device, list(capture.warnings[1:])) == (device, said)


def test_the_device_of_every_kernel(tmp_path: Path) -> None:
    content = {
        "deviceProperties": [{"id": n, "name": name} for n, name in enumerate(["A100", "H100"])],
        "traceEvents": [traced(device=number) for number in (1, 0, 2)],
    }
    capture = read(written(tmp_path, "a.json", json.dumps(content)))
    assert capture.kernels["device"].tolist() == ["H100", "A100", ""]
    assert capture.device is None


@pytest.mark.parametrize("indent", [None, 2])
def test_devices_behind_the_events(tmp_path: Path, indent: int | None) -> None:
    about = {"id": 0, "name": "A100", "computeMajor": 8, "computeMinor": 0}
    content = {"traceEvents": [traced()], "traceName": "]}", "deviceProperties": [about]}
    capture = read(written(tmp_path, "a.json", json.dumps(content, indent=indent)))
    assert (capture.device, capture.compute_capability) == ("A100", "8.0")
    assert capture.warnings == (TIME_ONLY,)


TRACE = json.dumps({"traceEvents": [traced()], "traceName": "a"})


@pytest.mark.parametrize("between", ["", "\n", " " * 2**21])
@pytest.mark.parametrize("trace", [TRACE, json.dumps([traced()])], ids=["object", "list"])
def test_traces_that_were_put_together(tmp_path: Path, trace: str, between: str) -> None:
    capture = read(written(tmp_path, "a.json", trace + between + trace))
    assert capture.launches == 1
    said = "other traces follow in this file and are not read: import each as a file of its own"
    assert capture.warnings == (TIME_ONLY, said)


@pytest.mark.parametrize("rest", ["", "\n", "\n\n  "])
def test_nothing_follows_a_whole_trace(tmp_path: Path, rest: str) -> None:
    assert read(written(tmp_path, "a.json", TRACE + rest)).warnings == (TIME_ONLY,)


@pytest.mark.parametrize(
    "events",
    ["[" * 100_000, '{"name": "a", "dur": ' + "9" * 5000 + "}]}", ""],
    ids=["deep", "digits", "cut off"],
)
def test_a_damaged_trace_is_called_damaged(tmp_path: Path, events: str) -> None:
    path = written(tmp_path, "a.json", f'{{"traceEvents": [{events}')
    with pytest.raises(RidgelineError) as refused:
        read(path)
    said = "is a trace that is damaged or cut off: none of its events can be read"
    assert refused.value.problem == f"{path} {said}"
    assert refused.value.hint == "copy or export it again"


def test_a_damaged_trace_of_which_something_can_be_read(tmp_path: Path) -> None:
    path = written(tmp_path, "a.json", '{"traceEvents": [{"ph": "X", "cat": "cpu_op"}, {"ph": ')
    with pytest.raises(RidgelineError, match="of its 1 event that can be read, none is a kernel"):
        read(path)


def test_a_table_that_nsys_skipped(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "SKIPPED: a.sqlite does not contain CUDA kernel data.\n")
    with pytest.raises(RidgelineError, match=r"holds no kernels: nsys said 'SKIPPED.*\n.*ran on"):
        read(path)


def test_rows_of_nsys_without_a_time_are_counted(tmp_path: Path) -> None:
    text = "Time (%),Total Time (ns),Instances,Name\n60.0,6000,3,a\n40.0,-4000,2,b\n"
    capture = read(written(tmp_path, "a.csv", text))
    assert capture.launches == 3
    assert capture.warnings[1:] == ("rows without a time that can be used are left out: 1",)


def test_a_device_under_its_old_name(tmp_path: Path) -> None:
    # given a trace of 2021
    kernel = {"ph": "X", "cat": "Kernel", "name": "a", "ts": 1, "dur": 2, "args": {"device": 0}}
    devices = [{"id": 0, "name": "Tesla V100"}]
    trace = {"computeProperties": devices, "traceEvents": [kernel]}
    path = written(tmp_path, "old.json", json.dumps(trace))
    assert read(path).device == "Tesla V100"


@pytest.mark.parametrize("end", ["[", "[CUDA", "[CUDA memcpy Dev"])
def test_a_copy_whose_name_is_cut_off_is_no_kernel(tmp_path: Path, end: str) -> None:
    head = "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,Name\n1,500,1,1,1,1,kernel\n"
    capture = read(written(tmp_path, "cut.csv", f"{head}600,70000,2,,,,{end}"))
    assert capture.kernels["kernel"].tolist() == ["kernel"]


def test_a_row_that_is_cut_off_before_its_name_is_told(tmp_path: Path) -> None:
    head = "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,Name\n1,500,1,1,1,1,kernel\n"
    capture = read(written(tmp_path, "cut.csv", f"{head}600,70"))
    assert any(text.startswith("the file is cut off") for text in capture.warnings)


def test_names_without_their_quotes_are_no_kernels(tmp_path: Path) -> None:
    head = "Time (%),Total Time (ns),Instances,Name\n"
    rows = "60.0,600,2,void add(float *, int)\n40.0,400,1,[foo]\n"
    capture = read(written(tmp_path, "unquoted.csv", head + rows))
    assert capture.kernels["kernel"].tolist() == ["[foo]"]
    assert any("quotes around names and numbers were lost" in text for text in capture.warnings)
