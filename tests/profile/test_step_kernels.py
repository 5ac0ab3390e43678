"""Kernels and copies of a trace, joined with counters by hand; names that profilers agree on."""

from __future__ import annotations

import json
from math import isnan, nan
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.profile.recorded import text

from ridgeline.errors import RidgelineError
from ridgeline.profile.profile_step import TRACE, Job
from ridgeline.profile.step_kernels import (
    NOWHERE,
    PRODUCT_FLOPS,
    Events,
    TracedSteps,
    check_counters,
    check_phases,
    compute_ratios,
    doubt_ratios,
    join_counters,
    read_traced_steps,
    short_name,
)

# ---------------------------------------------------------------- the trace


def operator(number: int, start: float, length: float, thread: int = 1) -> dict[str, Any]:
    return {"ph": "X", "cat": "user_annotation", "name": f"ridgeline:op:{number}", "pid": 7,
            "tid": thread, "ts": start, "dur": length}  # fmt: skip


def launch(correlation: int, start: float, thread: int = 1, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 7, "tid": thread,
            "ts": start, "dur": 1.0, "args": {"correlation": correlation}, **more}  # fmt: skip


def kernel(name: str, correlation: int, start: float, length: float = 2.0) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": start,
            "dur": length, "args": {"correlation": correlation, "grid": [4, 1, 1],
                                    "block": [128, 1, 1], "stream": 7}}  # fmt: skip


def operators_of(events: list[dict[str, Any]]) -> list[tuple[str, int]]:
    table = Events(events).kernels()
    return list(zip(table["kernel"], table["index"], strict=True))


def read_steps(folder: Path, *steps: list[dict[str, Any]]) -> TracedSteps:
    job = Job(name="trace", role=TRACE, folder=str(folder), steps=len(steps))
    for number, events in enumerate(steps, 1):
        job.path(f"trace{number}.json").write_text(json.dumps({"traceEvents": events}))
    return read_traced_steps(job)


def test_a_kernel_belongs_to_the_operator_that_launched_it() -> None:
    # given an operator from 10 to 20 µs that launches a kernel, which runs at 100 µs
    events = [operator(5, 10, 10), launch(1, 12), kernel("gemm", 1, 100)]
    assert Events(events).kernels().to_dict("records") == [
        {"kernel": "gemm", "time_s": pytest.approx(2e-6), "start_s": pytest.approx(100e-6),
         "grid": "(4, 1, 1)", "block": "(128, 1, 1)", "stream": "7", "index": 5}
    ]  # fmt: skip
    # and one of which little is known has what there is
    assert Events([{"ph": "X", "cat": "kernel", "name": "k", "ts": 5.0}]).kernels().to_dict(
        "records"
    ) == [{"kernel": "k", "time_s": 0.0, "start_s": 5.0 * 1e-6, "grid": "", "block": "",
           "stream": "", "index": NOWHERE}]  # fmt: skip


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        # operators at the same time on two threads, forward's and autograd's
        ([operator(0, 10, 10, 1), operator(1, 10, 10, 2), launch(1, 12, 2), kernel("b", 1, 50),
          launch(2, 13, 1), kernel("f", 2, 60)], [("b", 1), ("f", 0)]),
        # streams: what was launched first runs last; a graph of two kernels, launched once
        ([launch(1, 10), kernel("first", 1, 300), launch(2, 20), kernel("b", 2, 210),
          kernel("a", 2, 200), launch(3, 30, cat="cuda_driver"), kernel("last", 3, 100)],
         [(name, NOWHERE) for name in ("first", "a", "b", "last")]),
        # without a launch, a kernel has its own time and no operator
        ([operator(0, 0, 99), launch(1, 10), kernel("known", 1, 50), kernel("lost", 2, 40)],
         [("known", 0), ("lost", NOWHERE)]),
        # other events are no kernels
        ([{"ph": "M", "name": "process_name", "args": {"name": "python"}},
          {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "ts": 1, "dur": 1, "args": {}},
          {"ph": "X", "cat": "gpu_user_annotation", "name": "ridgeline:op:3", "ts": 1, "dur": 1},
          {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "ts": 1, "dur": 1},
          {"ph": "X", "cat": "cuda_runtime", "name": "cudaMalloc", "ts": 1, "args": None}], []),
    ],
    ids=["threads", "order", "no launch", "others"],
)  # fmt: skip
def test_operators_of_kernels(
    events: list[dict[str, Any]], expected: list[tuple[str, int]]
) -> None:  # fmt: skip
    assert operators_of(events) == expected


def test_the_recorded_step(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text("trace.json"))
    table = Events.read(path).kernels()
    assert len(table) == 631
    assert table["time_s"].sum() == pytest.approx(6.9416e-3, rel=1e-4)
    assert not table["index"].eq(NOWHERE).any()
    # operators follow one another in the order of their numbers
    assert table["index"].is_monotonic_increasing


def test_copies_are_apart_from_kernels(tmp_path: Path) -> None:
    # given an operator that has 8 bytes copied within the device, and 3 from the host
    copy = {"ph": "X", "cat": "gpu_memcpy", "dur": 2.0}
    events = [
        operator(7, 10, 30), launch(1, 12), kernel("a", 1, 100), launch(2, 13),
        {**copy, "name": "Memcpy DtoD (Device -> Device)", "ts": 101.0,
         "args": {"correlation": 2, "bytes": 8}},
        {**copy, "name": "Memcpy HtoD (Pinned -> Device)", "ts": 110.0, "args": {"bytes": 3}},
        {**copy, "cat": "gpu_memset", "name": "Memset (Device)", "ts": 120.0,
         "args": {"bytes": 5}},
    ]  # fmt: skip
    traced = read_steps(tmp_path, events)
    # then a copy within the device reads and writes, and the time of all is busy
    rows = traced.copies[["kind", "moved_bytes", "index"]].to_records(index=False).tolist()
    assert rows == [
        ("Memcpy DtoD (Device -> Device)", 16, 7),
        ("Memcpy HtoD (Pinned -> Device)", 3, NOWHERE),
        ("Memset (Device)", 5, NOWHERE),
    ]
    assert list(traced.kernels["kernel"]) == ["a"]
    assert traced.busy_s == pytest.approx(7e-6)  # the first copy begins in the kernel's 2 µs


def test_no_kernel_is_no_step(tmp_path: Path) -> None:
    with pytest.raises(RidgelineError, match="the profiler saw no kernel in the step"):
        read_steps(tmp_path, [launch(1, 12)])


# ---------------------------------------------------------------- joined with counters


def trace_of(*kernels: tuple[str, int]) -> pd.DataFrame:
    """Kernels and the numbers of their operators, each a second long."""
    names, numbers = zip(*kernels, strict=True)
    return pd.DataFrame({"kernel": list(names), "time_s": 1.0, "start_s": 0.0,
                         "index": list(numbers)})  # fmt: skip


def capture_of(*kernels: tuple[str, int], **counters: list[float]) -> pd.DataFrame:
    ranges = ["" if n == NOWHERE else f"step/ridgeline:op:{n}" for _, n in kernels]
    return pd.DataFrame({"kernel": [name for name, _ in kernels], "nvtx": ranges, "launches": 1,
                         **counters})  # fmt: skip


def calls_of(*operators: str) -> list[dict[str, Any]]:
    """Operators by name."""
    return [
        {"index": index, "op": f"aten::{op}", "layer": f"layer{index}", "phase": "forward"}
        for index, op in enumerate(operators)
    ]


def values(joined: pd.DataFrame, name: str) -> list[float | None]:
    """A column, with None for what is not known."""
    return [None if isnan(value) else value for value in joined[name]]


def test_counters_beside_times_and_layers() -> None:
    # given two operators, the second with two kernels
    trace = trace_of(("a", 0), ("b", 1), ("c", 1))
    capture = capture_of(("a", 0), ("b", 1), ("c", 1), dram_bytes=[10.0, 20.0, 30.0])
    joined = join_counters(trace, [capture], calls_of("relu", "mm"))
    assert joined.to_dict("list") == {
        "kernel": ["a", "b", "c"],
        "time_s": [1.0, 1.0, 1.0],
        "dram_bytes": [10.0, 20.0, 30.0],
        "layer": ["layer0", "layer1", "layer1"],
        "phase": ["forward"] * 3,
        "op": ["aten::relu", "aten::mm", "aten::mm"],
        "launches": [1, 1, 1],
        "time_source": ["profiler"] * 3,
    }
    # and without captures, times and layers alone
    alone = join_counters(trace, [], calls_of("relu", "mm"))
    assert {*joined} - {*alone} == {"dram_bytes"}


@pytest.mark.parametrize(
    ("traced", "counted", "read", "expected"),
    [
        ([("a", 0), ("b", 1)], [("b", 1), ("a", 0)], [20, 10], [10, 20]),
        ([("a", 0), ("a", 1)] * 2, [("a", 0), ("a", 1)] * 2, [10, 11, 12, 13], [10, 11, 12, 13]),
        ([("a", 0), ("b", 0), ("c", 0)], [("a", 0), ("x", 0), ("c", 0)], [1, 2, 3], [1, None, 3]),
        ([("a", 0), ("b", NOWHERE)], [("a", 0), ("b", NOWHERE)], [1, 2], [1, 2]),
    ],
    ids=["other order", "two steps", "one more and one less", "outside of operators"],
)  # fmt: skip
def test_kernels_are_joined_by_operator_and_name(
    traced: list[tuple[str, int]],
    counted: list[tuple[str, int]],
    read: list[float],
    expected: list[float | None],
) -> None:
    capture = capture_of(*counted, dram_bytes=read)
    joined = join_counters(trace_of(*traced), [capture], calls_of("mm", "mm"))
    assert values(joined, "dram_bytes") == expected


def test_parts_of_a_sum_in_two_groups() -> None:
    # given FLOPs by two kinds of instruction, and time counted with both
    trace = trace_of(("a", 0), ("b", 1))
    one = capture_of(("a", 0), ("b", 1), flops_fp16_matrix=[1.0, 2.0], counter_time_s=[5.0, nan])
    two = capture_of(("a", 0), ("b", 1), flops_fp16_matrix=[10.0, 0.0], counter_time_s=[7.0, 8.0])
    joined = join_counters(trace, [one, two], calls_of("mm", "mm"))
    # then FLOPs are added up, and of two times the first is taken
    assert values(joined, "flops_fp16_matrix") == [11, 2]
    assert values(joined, "counter_time_s") == [5, 8]
    # and half a sum is not known
    joined = join_counters(trace, [one, two[:1]], calls_of("mm", "mm"))
    assert values(joined, "flops_fp16_matrix") == [11, None]


def test_sequences_without_numbers_are_laid_side_by_side() -> None:
    # given compiled code, whose kernels have no numbers, and one kernel more when counted
    trace = trace_of(("a", NOWHERE), ("b", NOWHERE), ("a", NOWHERE))
    capture = capture_of(("a", 3), ("b", 4), ("z", 5), ("a", 6), dram_bytes=[1.0, 2.0, 9.0, 3.0])
    joined = join_counters(trace, [capture], [])
    assert values(joined, "dram_bytes") == [1, 2, 3]
    assert joined["layer"].tolist() == ["", "", ""]


# ---------------------------------------------------------------- checks


@pytest.mark.parametrize(
    ("phases", "mode", "is_marked", "absent"),
    [
        (("forward", "backward"), "train", True, "optimizer"),
        (("forward", ""), "train", True, "backward and optimizer"),
        (("forward", "backward", "optimizer", ""), "train", True, ""),
        (("forward",), "infer", True, ""),
        (("",), "train", False, ""),  # compiled: not known
        (("forward",), "", True, ""),  # a program of the user's
    ],
)
def test_a_training_step_has_three_phases(
    phases: tuple[str, ...], mode: str, is_marked: bool, absent: str
) -> None:
    kernels = pd.DataFrame({"phase": list(phases)})
    if not absent:
        check_phases(kernels, mode, is_marked=is_marked)
        return
    with pytest.raises(RidgelineError, match=f"the captured step has no kernel in {absent}\n"):
        check_phases(kernels, mode, is_marked=is_marked)


@pytest.mark.parametrize(
    ("times_s", "counters", "note"),
    [
        ([1, 1], {"dram_bytes": [5, 5]}, ""),
        ([99, 1], {"dram_bytes": [5, nan]}, ""),  # 1 % of the time is not worth a word
        ([9, 1], {"dram_bytes": [5, nan]},
         "kernels with 10.0% of the kernel time have no counters: the step launched other "
         "kernels when it was counted; sums are too low by about that share"),
        ([1, 1], {"dram_bytes": [5, 5], "flops_fp32_vector": [1, nan]},
         "kernels with 50.0% of the kernel time have no counters: the step launched other "
         "kernels when it was counted; sums are too low by about that share"),
        ([1, 1], {"dram_bytes": [nan, nan]}, None),
        ([0], {"dram_bytes": [5]}, None),
    ],
    ids=["all", "nearly all", "gap", "one counter", "none", "no time"],
)  # fmt: skip
def test_the_share_with_counters(
    times_s: list[float], counters: dict[str, list[float]], note: str | None
) -> None:
    kernels = pd.DataFrame({"time_s": times_s, **counters})
    if note is None:
        with pytest.raises(RidgelineError, match="none of the counted kernels is one of the step"):
            check_counters(kernels)
    else:
        assert check_counters(kernels) == ([note] if note else [])


# ---------------------------------------------------------------- names

NESTED = "_ZN2at6native12_GLOBAL__N_110softmax_fwIfEEvPT_"


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("gemm", "gemm"),
        ("void at::native::elementwise_kernel<128, 4, (int)2>(int, float *)", "elementwise_kernel"),
        ("void at::native::(anonymous namespace)::max_pool<float>(float const*)", "max_pool"),
        ("void at::native::<unnamed>::max_pool<float>(const T1 *)", "max_pool"),
        # names of cuDNN that a trace keeps as the compiler wrote them, being too long
        ("_ZN17cutlass__5x_cudnn6KernelINS_4conv6kernel23ImplicitGemmConvolutionE", "Kernel"),
        (NESTED, "softmax_fw"),
        ("_Z6squarePfi", "square"),
        # what follows a name that is not nested are its arguments
        ("_Z8fmha_fwd6Params", "fmha_fwd"),
        ("fmha_fwd(Params)", "fmha_fwd"),
        # what it returns may be a template, too
        ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, f<3>>(P)", "kernel"),
        ("void outer<int>::inner<decltype(a->b)>(float)", "inner"),
        ("void cut_off_by_a_trace<int, std::array<float", "cut_off_by_a_trace"),
        ("_Zfoo", "_Zfoo"),
        ("<unnamed>::", "<unnamed>::"),
        ("", ""),
    ],
)
def test_the_name_that_both_profilers_agree_on(kernel: str, name: str) -> None:
    assert short_name(kernel) == name


# ---------------------------------------------------------------- work of known size

COPY = "ridgeline:test:copy:1000"  # read once, written once: 2000 bytes
FP32, FP16 = "ridgeline:test:product:fp32", "ridgeline:test:product:fp16"


def capture(*ranges: str, **counters: list[float]) -> pd.DataFrame:
    return pd.DataFrame({"nvtx": list(ranges), **counters})


def test_counted_over_true() -> None:
    # given a group with FLOPs outside of tensor cores, and one with bytes and tensor cores
    whole = float(PRODUCT_FLOPS)
    vector = capture(COPY, FP32, FP16, "step", flops_fp32_vector=[0.0, whole, 0.0, 5.0])
    others = capture(
        COPY, FP32, FP16, "step",
        dram_bytes=[2100.0, 1.0, 1.0, 5.0], flops_fp16_matrix=[0.0, 0.0, whole / 2, 5.0],
    )  # fmt: skip
    assert compute_ratios([vector, others]) == {
        "copy": 1.05,
        "product fp32": 1.0,
        "product fp16": 0.5,
    }


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"copy": 1.04, "product fp32": 1.0}, []),
        ({}, ["the counters were not tested: no work of known size was seen"]),
        (
            {"copy": 1.2, "product fp32": 1.0, "product fp16": 0.5},
            [
                "these counters are off by more than 5% on work of known size: "
                "copy: 1.200 of the truth, product fp16: 0.500 of the truth"
            ],
        ),
    ],
    ids=["good", "none", "off"],
)
def test_doubts(found: dict[str, float], said: list[str]) -> None:
    assert doubt_ratios(found) == said
