"""Kernels and copies of a trace: order, time and operator, of events by hand and recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.profile.recorded import text

from ridgeline.errors import RidgelineError
from ridgeline.profile.join_counters import with_places
from ridgeline.profile.operators import NOWHERE
from ridgeline.profile.step_mark import TRACE, Job
from ridgeline.profile.trace import Events, by_operator, traced_steps


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


def places(events: list[dict[str, Any]]) -> list[tuple[str, int]]:
    table = Events(events).kernels()
    return list(zip(table["kernel"], table["index"], strict=True))


def test_a_kernel_belongs_to_the_operator_that_launched_it() -> None:
    # given an operator from 10 to 20 µs that launches a kernel, which runs at 100 µs
    events = [operator(5, 10, 10), launch(1, 12), kernel("gemm", 1, 100)]
    # then it is told with all that is known
    assert Events(events).kernels().to_dict("records") == [
        {
            "kernel": "gemm",
            "time_s": pytest.approx(2e-6),
            "start_s": pytest.approx(100e-6),
            "grid": "(4, 1, 1)",
            "block": "(128, 1, 1)",
            "stream": "7",
            "index": 5,
        }
    ]


def test_threads_have_operators_of_their_own() -> None:
    # given operators at the same time on two threads, forward's and autograd's
    events = [
        operator(0, 10, 10, thread=1), operator(1, 10, 10, thread=2),
        launch(1, 12, thread=2), kernel("backward", 1, 50),
        launch(2, 13, thread=1), kernel("forward", 2, 60),
    ]  # fmt: skip
    assert places(events) == [("backward", 1), ("forward", 0)]


@pytest.mark.parametrize(
    ("moment", "index"),
    [(9.9, NOWHERE), (10, 0), (15, 0), (20, 0), (20.1, NOWHERE), (30, 1), (41, NOWHERE)],
)
def test_a_launch_outside_of_every_operator(moment: float, index: int) -> None:
    events = [operator(0, 10, 10), operator(1, 30, 10), launch(1, moment), kernel("k", 1, 90)]
    assert places(events) == [("k", index)]


def test_kernels_are_in_the_order_of_their_launches() -> None:
    # given streams: what was launched first runs last; and a graph of two kernels, launched once
    events = [
        launch(1, 10), kernel("first", 1, 300),
        launch(2, 20), kernel("graph b", 2, 210), kernel("graph a", 2, 200),
        launch(3, 30, cat="cuda_driver"), kernel("last", 3, 100),
    ]  # fmt: skip
    assert [name for name, _ in places(events)] == ["first", "graph a", "graph b", "last"]


def test_a_kernel_without_a_launch_has_its_own_time_and_no_place() -> None:
    events = [operator(0, 0, 99), launch(1, 10), kernel("known", 1, 50), kernel("lost", 2, 40)]
    assert places(events) == [("known", 0), ("lost", NOWHERE)]


def test_other_events_are_no_kernels() -> None:
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "args": {"name": "python"}},
        {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "ts": 1, "dur": 1, "args": {}},
        {"ph": "X", "cat": "gpu_user_annotation", "name": "ridgeline:op:3", "ts": 1, "dur": 1},
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "ts": 1, "dur": 1},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaMalloc", "ts": 1, "dur": 1, "args": None},
    ]
    table = Events(events).kernels()
    assert table.empty
    assert list(table) == ["kernel", "time_s", "start_s", "grid", "block", "stream", "index"]


def test_a_kernel_of_which_little_is_told() -> None:
    events = [{"ph": "X", "cat": "kernel", "name": "k", "ts": 5.0}]
    assert Events(events).kernels().to_dict("records") == [
        {"kernel": "k", "time_s": 0.0, "start_s": 5.0 * 1e-6, "grid": "", "block": "", "stream": "",
         "index": NOWHERE}
    ]  # fmt: skip


def test_the_recorded_step(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text("trace.json"))
    table = Events.read(path).kernels()
    assert len(table) == 631
    assert table["time_s"].sum() == pytest.approx(6.9416e-3, rel=1e-4)
    assert not table["index"].eq(NOWHERE).any()
    # operators follow one another in the order of their numbers
    assert table["index"].is_monotonic_increasing


def test_recorded_copies(tmp_path: Path) -> None:
    # given a step of two linear layers, a SiLU in place between them, and a cat of one tensor
    job = Job(name="trace", role=TRACE, folder=str(tmp_path))
    job.path("trace1.json").write_text(text("copies-trace.json"))
    job.path("ops1.json").write_text(text("copies-ops.json"))
    found = traced_steps(job)
    assert len(found.kernels) == 19
    # then what the SiLU keeps and what is put together are copied, 128 · 256 numbers each
    copied = by_operator(with_places(found.copies, found.calls), steps=1)
    moved = 2 * 128 * 256 * 4
    names = ["kind", "layer", "op", "launches", "moved_bytes"]
    assert copied[names].to_records(index=False).tolist() == [
        ("Memset (Device)", "first", "aten::addmm", 1, 256),
        ("Memcpy DtoD (Device -> Device)", "act", "aten::clone", 1, moved),
        ("Memcpy DtoD (Device -> Device)", "(model)", "aten::cat", 1, moved),
        ("Memset (Device)", "last", "aten::addmm", 1, 32),
    ]
    # and the device was busy with 59.01 µs of kernels and 3.65 µs of these, one after the other
    assert found.busy_s == pytest.approx(59.01e-6 + 3.647e-6, rel=1e-3)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"traceEvents": [', "3"])
def test_a_file_that_is_no_trace(tmp_path: Path, content: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(content)
    with pytest.raises(RidgelineError, match="the trace of the step cannot be read"):
        Events.read(path).kernels()


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(RidgelineError, match=r"cannot be read: .*No such file"):
        Events.read(tmp_path / "trace.json")


def test_a_name_with_odd_characters(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    events = [kernel('void f<char, "\\x00µ">()', 1, 1.0)]
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    assert list(Events.read(path).kernels()["kernel"]) == ['void f<char, "\\x00µ">()']


def test_copies_are_told_apart_from_kernels(tmp_path: Path) -> None:
    # given an operator that has 8 bytes copied within the device, and 3 from the host
    job = Job(name="trace", role=TRACE, folder=str(tmp_path))
    copy = {"ph": "X", "cat": "gpu_memcpy", "dur": 2.0}
    events = [
        operator(7, 10, 30), launch(1, 12), kernel("a", 1, 100), launch(2, 13),
        {**copy, "name": "Memcpy DtoD (Device -> Device)", "ts": 101.0,
         "args": {"correlation": 2, "bytes": 8}},
        {**copy, "name": "Memcpy HtoD (Pinned -> Device)", "ts": 110.0, "args": {"bytes": 3}},
        {**copy, "cat": "gpu_memset", "name": "Memset (Device)", "ts": 120.0,
         "args": {"bytes": 5}},
    ]  # fmt: skip
    job.path("trace1.json").write_text(json.dumps({"traceEvents": events}))
    # when the trace is read
    found = traced_steps(job)
    # then a copy within the device reads and writes, and the time of all is busy
    rows = found.copies[["kind", "moved_bytes", "index"]].to_records(index=False).tolist()
    assert rows == [
        ("Memcpy DtoD (Device -> Device)", 16, 7),
        ("Memcpy HtoD (Pinned -> Device)", 3, NOWHERE),
        ("Memset (Device)", 5, NOWHERE),
    ]
    assert list(found.kernels["kernel"]) == ["a"]
    assert found.busy_s == pytest.approx(7e-6)  # the first copy begins in the kernel's 2 µs


def test_time_in_which_kernels_run_at_once_is_taken_once(tmp_path: Path) -> None:
    # given two steps: kernels of 2 µs from 100 and from 101 µs, then one alone
    job = Job(name="trace", role=TRACE, folder=str(tmp_path), steps=2)
    both = [launch(1, 12), kernel("a", 1, 100), launch(2, 13), kernel("b", 2, 101)]
    for number, events in ((1, both), (2, [launch(1, 12), kernel("a", 1, 200)])):
        job.path(f"trace{number}.json").write_text(json.dumps({"traceEvents": events}))
    # then they took 6 µs together, in 5 µs
    found = traced_steps(job)
    assert found.kernels["time_s"].sum() == pytest.approx(6e-6)
    assert found.busy_s == pytest.approx(5e-6)
