"""The warm-up and the timed loop on a clock that steps move; marks, processor and kernel time."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, count, repeat
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.measure.fakes import Clock, Gpu

from ridgeline.measure import timing
from ridgeline.measure.timing import (
    Marks,
    StepRecorder,
    StepTimes,
    WarmUp,
    choose_iters,
    is_steady,
    measure_kernel_time,
    process_stats,
    time_steps,
    union_length,
    usage_since,
    warm_up,
)
from ridgeline.records import KernelTime, ProcessStats, Usage


def steps_of(clock: Clock, times_s: Iterator[float]) -> Callable[[Marks], None]:
    def step(_marks: Marks) -> None:
        clock.spend(next(times_s))

    return step


def warmed(times_s: Iterator[float], **named: object) -> WarmUp:
    clock = Clock()
    return warm_up(steps_of(clock, times_s), lambda: None, clock=clock, **named)  # type: ignore[arg-type]


def test_it_stops_when_two_windows_of_five_are_alike() -> None:
    assert warmed(repeat(0.25)) == WarmUp(times_s=(0.25,) * 10, is_steady=True)


def test_slow_steps_at_the_beginning_are_waited_out() -> None:
    warmup = warmed(chain([4.0, 1.0, 1.0], repeat(0.125)))

    # of the first eleven, the medians of 1.0, 1.0, ⅛, ⅛, ⅛ and of ⅛, ⅛, ⅛, ⅛, ⅛ are alike
    assert warmup == WarmUp(times_s=(4.0, 1.0, 1.0, *[0.125] * 8), is_steady=True)


@pytest.mark.parametrize("steps", [0, 1, 25])
def test_exactly_as_many_as_were_requested(steps: int) -> None:
    assert warmed(repeat(0.25), steps=steps).times_s == (0.25,) * steps


def test_steadiness_is_not_waited_for_without_end() -> None:
    growing = map(float, count(1))

    warmup = warmed(growing, limit_s=100.0)  # after the first three, 4 + 5 + … + 15 = 114

    assert warmup == WarmUp(times_s=tuple(map(float, range(1, 16))), is_steady=False)


def test_the_steps_in_which_things_are_set_up_are_not_held_against_the_limit() -> None:
    # given a compiler that takes a minute in the first step and half a minute in the third
    warmup = warmed(chain([60.0, 0.25, 30.0], repeat(0.25)))

    # then the steps that follow are warmed up with as if there had been none
    assert warmup == WarmUp(times_s=(60.0, 0.25, 30.0, *[0.25] * 7), is_steady=True)


def test_a_clock_that_still_rises_is_waited_for() -> None:
    rising_hz = (1e9 * min(number, 12) for number in count(1))

    warmup = warmed(repeat(0.5), clock_hz=lambda: next(rising_hz), limit_s=100.0)

    assert len(warmup.times_s) == 19  # five readings of 12 GHz after a median of 12 GHz
    assert warmup.clocks_hz == (*(1e9 * number for number in range(1, 12)), *[12e9] * 8)
    assert warmup.is_steady


@pytest.mark.parametrize(
    ("times_s", "clocks_hz", "steady"),
    [
        ([1.0] * 9, [], None),
        ([1.0] * 10, [], True),
        ([1.0] * 5 + [1.019] * 5, [], True),
        ([1.0] * 5 + [1.021] * 5, [], False),
        ([1.0] * 5 + [0.97] * 5, [], False),
        ([1.0, 1.0, 1.0, 9.0, 9.0, 1.0, 1.0, 1.0, 9.0, 9.0], [], True),  # outliers are none
        ([1.0] * 10, [1e9] * 5 + [1.1e9] * 5, False),
        ([1.0] * 10, [1e9] * 4 + [1.1e9] * 5, True),  # too few readings to tell
    ],
)
def test_steady(times_s: list[float], clocks_hz: list[float], steady: bool | None) -> None:
    assert is_steady(times_s, clocks_hz) is steady


@pytest.mark.parametrize(
    ("asked", "times_s", "iters"),
    [
        (7, [1.0], 7),
        (1000, [9.0], 1000),
        (None, [0.001], 100),
        (None, [0.1], 100),
        (None, [0.35], 29),
        (None, [1.0], 10),
        (None, [60.0], 6),
        (None, [], 6),  # without a warm-up
        (None, [9.0, 9.0, 9.0, 0.5, 0.5, 0.5, 0.5, 0.5], 20),  # the last five count
    ],
)
def test_how_many_steps_are_timed(asked: int | None, times_s: list[float], iters: int) -> None:
    assert choose_iters(asked, WarmUp(times_s=tuple(times_s))) == iters


def test_the_device_is_waited_for_before_and_after_and_never_between() -> None:
    clock = Clock()
    gpu = Gpu(clock)

    def step(marks: Marks) -> None:
        gpu.calls.append("work")
        marks.end("forward")

    time_steps(
        step, StepRecorder(gpu.timeline(), clock), gpu.synchronize,
        iters=2, clock=clock,
    )  # fmt: skip

    prepared = ["record"] * (2 * 5 + 1)  # all events that two steps can need, and the start
    steps = ["record", *["work", "record"] * 2]
    assert gpu.calls == [*prepared, "synchronize", *steps, "synchronize"]


def test_elapsed_time_ends_with_the_device() -> None:
    clock = Clock()
    gpu = Gpu(clock)

    def step(marks: Marks) -> None:
        gpu.launch(1.0)
        clock.spend(0.25)
        marks.end("forward")

    clock.spend(10.0)
    timed = time_steps(
        step, StepRecorder(gpu.timeline(), clock), gpu.synchronize,
        iters=3, clock=clock,
    )  # fmt: skip

    assert (timed.elapsed_s, timed.start_s, timed.end_s) == (3.0, 10.0, 13.0)
    assert timed.device.steps_s == (1.0, 1.0, 1.0)
    assert timed.host.steps_s == (0.25, 0.25, 0.25)


# ---------------------------------------------------------------- marks of phases


def test_parts_of_a_step_add_up() -> None:
    clock = Clock()
    recorder = StepRecorder(None, clock)

    recorder.start()
    for time_s in (1.0, 4.0):  # two batches, then the optimizer acts once
        for phase in ("data", "copy", "forward", "backward"):
            clock.spend(time_s)
            recorder.end(phase)
    clock.spend(0.5)
    recorder.end("optimizer")
    recorder.end_step()

    assert recorder.host_times() == StepTimes(
        steps_s=(20.5,),
        phases_s={
            "data": (5.0,), "copy": (5.0,), "forward": (5.0,), "backward": (5.0,),
            "optimizer": (0.5,),
        },
    )  # fmt: skip


# ---------------------------------------------------------------- the process


def counts(scale: int) -> SimpleNamespace:
    return SimpleNamespace(
        ru_utime=1.0 * scale, ru_stime=0.5 * scale, ru_maxrss=1000 * scale, ru_minflt=20 * scale,
        ru_majflt=2 * scale, ru_nvcsw=7 * scale, ru_nivcsw=3 * scale,
    )  # fmt: skip


def test_a_process_and_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    of = {resource.RUSAGE_SELF: counts(1), resource.RUSAGE_CHILDREN: counts(10)}
    monkeypatch.setattr(resource, "getrusage", lambda who: of[who])
    monkeypatch.setattr(timing, "RSS_UNIT_BYTES", 1024)

    assert process_stats() == ProcessStats(
        user_time_s=11.0,
        system_time_s=5.5,
        peak_rss_bytes=1_024_000,
        peak_child_rss_bytes=10_240_000,
        minor_faults=220,
        major_faults=22,
        voluntary_switches=77,
        involuntary_switches=33,
    )


def test_usage_of_a_stretch(monkeypatch: pytest.MonkeyPatch) -> None:
    before: Any = counts(1)
    monkeypatch.setattr(resource, "getrusage", lambda _who: counts(4))

    assert usage_since(before, 2.25) == Usage(
        user_time_s=3.0, system_time_s=1.5, elapsed_s=2.25, involuntary_switches=9, cores=2.0
    )


# ---------------------------------------------------------------- how much a GPU works

SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=12)


@given(SPANS)
def test_the_union_of_intervals(given_spans: list[tuple[int, int]]) -> None:
    spans = [(start, start + length) for start, length in given_spans]

    seconds = {second for start, end in spans for second in range(start, end)}

    assert union_length(spans) == len(seconds)


def event(
    start_us: float, end_us: float, device: str = "CUDA", named: bool = False, name: str = "gemm"
) -> Any:
    return SimpleNamespace(
        name=name,
        time_range=SimpleNamespace(start=start_us, end=end_us),
        device_type=SimpleNamespace(name=device),
        is_user_annotation=named,
    )


def profiled(monkeypatch: pytest.MonkeyPatch, events: list[Any]) -> tuple[Any, list[str]]:
    calls: list[str] = []

    @contextmanager
    def profile(activities: object) -> Iterator[Any]:
        calls.append("profile")
        yield SimpleNamespace(events=lambda: events)
        calls.append("end")

    monkeypatch.setattr(torch.profiler, "profile", profile)

    def step(_marks: Marks) -> None:
        calls.append("step")

    return measure_kernel_time(step, lambda: calls.append("synchronize"), steps=2), calls


def test_kernel_time_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    # given two steps with two kernels each that overlap, and a copy and a fill in the second
    kernels = [event(at + start, at + end) for at in (0, 100) for start, end in ((0, 30), (20, 60))]
    copies = [
        event(160, 180, name="Memcpy DtoD (Device -> Device)"),
        event(180, 184, name="Memset (Device)"),
    ]
    others = [event(0, 1000, named=True), event(0, 1000, device="CPU")]

    found, calls = profiled(monkeypatch, [*kernels, *copies, *others])

    # then copies take time and are no kernels: 60 + 60 + 20 + 4 µs of two steps
    assert found == KernelTime(time_s=found.time_s, kernels=2.0, steps=2)
    assert found.time_s == pytest.approx(72e-6)
    assert calls == ["synchronize", "profile", "step", "step", "synchronize", "end"]
