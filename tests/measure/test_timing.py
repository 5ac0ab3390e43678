"""The warm-up and the timed loop, on a clock that passes when a step says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, count, repeat

import pytest
from tests.measure.fakes import Clock, Gpu

from ridgeline.measure.marks import Marks, StepRecorder
from ridgeline.measure.timing import WarmUp, choose_iters, is_steady, time_steps, warm_up


def steps_of(clock: Clock, times_s: Iterator[float]) -> Callable[[Marks], None]:
    def step(_marks: Marks) -> None:
        clock.spend(next(times_s))

    return step


def warmed(times_s: Iterator[float], **named: object) -> WarmUp:
    clock = Clock()
    given = {"least": None, "clock": clock, **named}
    return warm_up(steps_of(clock, times_s), lambda: None, **given)  # type: ignore[arg-type]


def test_it_stops_when_two_windows_of_five_are_alike() -> None:
    assert warmed(repeat(0.25)) == WarmUp(times_s=(0.25,) * 10, is_steady=True)


def test_slow_steps_at_the_beginning_are_waited_out() -> None:
    warmup = warmed(chain([4.0, 1.0, 1.0], repeat(0.125)))

    # of the first eleven, the medians of 1.0, 1.0, ⅛, ⅛, ⅛ and of ⅛, ⅛, ⅛, ⅛, ⅛ are alike
    assert warmup == WarmUp(times_s=(4.0, 1.0, 1.0, *[0.125] * 8), is_steady=True)


def test_short_steps_go_on_for_half_a_second() -> None:
    assert len(warmed(repeat(1 / 64)).times_s) == 32


def test_at_least_what_was_asked() -> None:
    assert len(warmed(repeat(0.25), least=25).times_s) == 25
    assert len(warmed(repeat(0.25), least=0).times_s) == 10


def test_steadiness_is_not_waited_for_without_end() -> None:
    growing = map(float, count(1))

    warmup = warmed(growing, limit_s=100.0)  # after the first three, 4 + 5 + … + 15 = 114

    assert warmup == WarmUp(times_s=tuple(map(float, range(1, 16))), is_steady=False)


def test_the_steps_in_which_things_are_set_up_are_not_held_against_the_limit() -> None:
    # given a compiler that takes a minute in the first step and half a minute in the third
    warmup = warmed(chain([60.0, 0.25, 30.0], repeat(0.25)))

    # then the steps that follow are warmed up with as if there had been none
    assert warmup == WarmUp(times_s=(60.0, 0.25, 30.0, *[0.25] * 7), is_steady=True)


def test_what_was_asked_is_done_beyond_the_limit() -> None:
    assert len(warmed(map(float, count(1)), limit_s=100.0, least=20).times_s) == 20


def test_very_long_steps_are_few_and_nothing_is_said_about_them() -> None:
    assert warmed(repeat(60.0)) == WarmUp(times_s=(60.0,) * 4, is_steady=None)


def test_a_clock_that_still_rises_is_waited_for() -> None:
    rising_hz = (1e9 * min(number, 12) for number in count(1))

    warmup = warmed(repeat(0.5), clock_hz=lambda: next(rising_hz), limit_s=100.0)

    assert len(warmup.times_s) == 19  # five readings of 12 GHz after a median of 12 GHz
    assert warmup.clocks_hz == (*(1e9 * number for number in range(1, 12)), *[12e9] * 8)
    assert warmup.is_steady


def test_a_device_that_does_not_tell_its_clock() -> None:
    warmup = warmed(repeat(0.25), clock_hz=lambda: None)

    assert (len(warmup.times_s), warmup.clocks_hz) == (10, ())


def test_every_warm_up_step_is_waited_for_and_told_of() -> None:
    clock, calls = Clock(), []
    told: list[tuple[int, int]] = []

    def step(_marks: Marks) -> None:
        calls.append("step")
        clock.spend(60.0)

    warm_up(
        step, lambda: calls.append("synchronize"), least=2, clock=clock,
        on_progress=lambda done, total: told.append((done, total)),
    )  # fmt: skip

    assert calls == ["synchronize", *["step", "synchronize"] * 4]
    assert told == [(1, 2), (2, 2), (3, 3), (4, 4)]


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
        (None, [], 100),
        (None, [0.001], 100),
        (None, [0.1], 100),
        (None, [0.35], 29),
        (None, [1.0], 10),
        (None, [60.0], 6),
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
        iters=2, has_events=True, clock=clock,
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
    timing = time_steps(
        step, StepRecorder(gpu.timeline(), clock), gpu.synchronize,
        iters=3, has_events=True, clock=clock,
    )  # fmt: skip

    assert (timing.elapsed_s, timing.start_s, timing.end_s) == (3.0, 10.0, 13.0)
    assert timing.device.steps_s == (1.0, 1.0, 1.0)
    assert timing.host.steps_s == (0.25, 0.25, 0.25)
    assert timing.has_events


def test_progress_is_told_every_quarter_of_a_second() -> None:
    clock, told = Clock(), []

    time_steps(
        steps_of(clock, repeat(0.125)), StepRecorder(None, clock), lambda: None,
        iters=8, has_events=False, clock=clock,
        on_progress=lambda done, total: told.append((done, total)),
    )  # fmt: skip

    assert told == [(3, 8), (6, 8)]


def test_room_for_the_marks_of_every_batch_of_a_step() -> None:
    class Counted(StepRecorder):
        prepared = 0

        def prepare(self, marks: int) -> None:
            self.prepared = marks

    recorder = Counted(None)

    time_steps(lambda _: None, recorder, lambda: None, iters=3, has_events=False, parts=2)

    assert recorder.prepared == 3 * (2 * 4 + 1)
