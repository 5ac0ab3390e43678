"""How much of a step a GPU works, from what a profiler saw."""

from __future__ import annotations

from types import SimpleNamespace, TracebackType
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.measure.kernels import measure_kernel_time, union_length
from ridgeline.measure.marks import Marks
from ridgeline.records import KernelTime

SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=12)


@given(SPANS)
def test_the_union_of_intervals(given_spans: list[tuple[int, int]]) -> None:
    spans = [(start, start + length) for start, length in given_spans]

    seconds = {second for start, end in spans for second in range(start, end)}

    assert union_length(spans) == len(seconds)


@pytest.mark.parametrize(
    ("spans", "length"),
    [
        ([], 0.0),
        ([(1.0, 2.0), (3.0, 5.0)], 3.0),
        ([(3.0, 5.0), (1.0, 4.0)], 4.0),  # in any order
        ([(0.0, 10.0), (2.0, 3.0), (4.0, 5.0)], 10.0),  # one inside another
        ([(1.0, 2.0)] * 3, 1.0),
    ],
)
def test_kernels_that_overlap_count_once(spans: list[tuple[float, float]], length: float) -> None:
    assert union_length(spans) == length


class Profiler:
    """Sees two kernels a step, one of them beside a copy, and what is no kernel."""

    def __init__(self, calls: list[str], events: list[Any]) -> None:
        self.calls, self.seen = calls, events

    def __enter__(self) -> Profiler:
        self.calls.append("profile")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.calls.append("end")

    def events(self) -> list[Any]:
        return self.seen


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
    monkeypatch.setattr(torch.profiler, "profile", lambda activities: Profiler(calls, events))

    def step(_marks: Marks) -> None:
        calls.append("step")

    return measure_kernel_time(step, lambda: calls.append("synchronize"), steps=2), calls


def test_kernel_time_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [[event(at, at + 30), event(at + 20, at + 60)] for at in (0.0, 100.0)]
    others = [event(0, 1000, named=True), event(0, 1000, device="CPU")]

    found, calls = profiled(monkeypatch, [*steps[0], *steps[1], *others])

    assert found == KernelTime(time_s=found.time_s, kernels=2.0, steps=2)
    assert found.time_s == pytest.approx(60e-6)
    assert calls == ["synchronize", "profile", "step", "step", "synchronize", "end"]


def test_copies_take_time_and_are_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    # given two kernels in two steps, a copy and a fill: 30 + 6 + 20 + 4 µs
    copies = [
        event(30, 50, name="Memcpy DtoD (Device -> Device)"),
        event(50, 54, name="Memset (Device)"),
    ]
    kernels = [event(0, 30), event(100, 106, name="Memcpy_of_mine")]
    # when they are profiled
    found, _ = profiled(monkeypatch, [*kernels, *copies])
    # then a step has one kernel, and 30 µs
    assert found == KernelTime(time_s=found.time_s, kernels=1.0, steps=2)
    assert found.time_s == pytest.approx(30e-6)


def test_a_profiler_that_sees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert profiled(monkeypatch, [event(0, 1000, device="CPU")])[0] is None
