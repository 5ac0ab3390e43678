"""Marks of a step's phases, on a host's clock and on a device's time line."""

from __future__ import annotations

from tests.measure.fakes import Clock, Gpu, GpuEvent

from ridgeline.measure.backends import EventTimeline, HostTimeline
from ridgeline.measure.marks import StepRecorder, StepTimes


def test_two_steps_by_the_host() -> None:
    clock = Clock()
    recorder = StepRecorder(None, clock)

    recorder.start()
    for scale in (1, 2):
        for phase, time_s in {"data": 0.25, "copy": 0.5, "forward": 1.0}.items():
            clock.spend(scale * time_s)
            recorder.end(phase)
        recorder.end_step()

    assert recorder.host_times() == StepTimes(
        steps_s=(1.75, 3.5),
        phases_s={"data": (0.25, 0.5), "copy": (0.5, 1.0), "forward": (1.0, 2.0)},
    )
    assert recorder.device_times() == recorder.host_times()


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


def test_what_the_host_gives_out_and_what_the_device_takes() -> None:
    clock = Clock()
    gpu = Gpu(clock)
    recorder = StepRecorder(gpu.timeline(), clock)
    recorder.prepare(4)

    recorder.start()
    for _ in range(2):
        for phase, time_s in {"forward": 1.0, "backward": 2.0}.items():
            gpu.launch(time_s)
            clock.spend(0.125)
            recorder.end(phase)
        recorder.end_step()
    gpu.synchronize()

    assert recorder.host_times() == StepTimes(
        steps_s=(0.25, 0.25), phases_s={"forward": (0.125, 0.125), "backward": (0.125, 0.125)}
    )
    assert recorder.device_times() == StepTimes(
        steps_s=(3.0, 3.0), phases_s={"forward": (1.0, 1.0), "backward": (2.0, 2.0)}
    )


def test_a_device_that_waits_for_its_host_shows_it() -> None:
    clock = Clock()
    gpu = Gpu(clock)
    recorder = StepRecorder(gpu.timeline(), clock)

    recorder.start()
    clock.spend(4.0)  # no work is given out
    gpu.launch(1.0)
    recorder.end("forward")
    recorder.end_step()

    assert recorder.device_times().steps_s == (5.0,)
    assert recorder.host_times().steps_s == (4.0,)


def test_events_are_made_before_they_are_needed() -> None:
    gpu, made = Gpu(Clock()), []

    def make() -> GpuEvent:
        made.append(gpu.event())
        return made[-1]

    recorder = StepRecorder(EventTimeline(make))

    recorder.prepare(3)
    recorder.prepare(3)  # those that are left over are used

    assert len(made) == 4  # with the start
    recorder.start()
    for _ in range(3):
        recorder.end("forward")
    assert len(made) == 4
    recorder.end("one too many")
    assert len(made) == 5


def test_the_time_line_of_a_host_is_its_clock() -> None:
    clock = Clock()
    timeline = HostTimeline(clock)

    start = timeline.mark()
    clock.spend(0.5)

    assert timeline.seconds(start, timeline.mark()) == 0.5
