"""The thread that reads, and the middle of what it saw."""

from collections.abc import Callable
from threading import Event

import pytest

from ridgeline.records import Conditions
from ridgeline.sensors.sampler import Meter, Meters, Reading, Sampler, summarise, summarise_late


def watts(read: Callable[[], float]) -> Meter:
    return Meter(name="watts", scope="a test", kind="power", read=read)


def joules(read: Callable[[], float]) -> Meter:
    return Meter(name="joules", scope="a test", kind="counter", read=read)


def test_the_sampler_keeps_the_middle_and_every_reason() -> None:
    readings = [
        Conditions(clock_hz=1e9, power_w=100.0),
        Conditions(clock_hz=3e9, power_w=300.0, throttle_reasons=("power cap",)),
    ]
    all_read = Event()

    def read() -> Conditions:
        if readings:
            return readings.pop(0)
        all_read.set()
        return Conditions(clock_hz=2e9, power_w=200.0)

    sampler = Sampler(Meters(conditions=read), interval_s=0.001, conditions_s=0)
    with sampler:
        assert all_read.wait(timeout=10)
    # then the readings of the second half count, and every reason
    conditions = summarise_late(sampler.readings)
    assert conditions.throttle_reasons == ("power cap",)
    assert conditions.clock_hz in (2e9, 2.5e9)
    assert [r.conditions.power_w for r in sampler.readings[:2]] == [100.0, 300.0]


def test_a_failing_read_costs_its_reading_only(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a meter that fails at its second reading, and a note of errors that nobody catches
    uncaught: list[object] = []
    monkeypatch.setattr("threading.excepthook", uncaught.append)
    answers: list[float | None] = [100.0, None, 300.0]
    all_read = Event()

    def read() -> float:
        if not answers:
            all_read.set()
        answer = answers.pop(0)
        if answer is None:
            raise AttributeError("an old pynvml")
        return answer

    def no_conditions() -> Conditions:
        raise OSError("gone")

    meters = Meters(available=(watts(read),), conditions=no_conditions)
    with Sampler(meters, interval_s=0.001) as sampler:
        assert all_read.wait(timeout=10)
    assert [reading.power_w for reading in sampler.readings] == [100.0, 300.0]
    assert uncaught == []


def test_one_reading_has_time_power_energy_and_conditions_now_and_then() -> None:
    times_s = iter([10.0, 10.0625, 10.125])
    meters = Meters(
        available=(joules(lambda: 7.0), watts(lambda: 50.0)),
        conditions=lambda: Conditions(temperature_c=40.0),
    )
    sampler = Sampler(meters, interval_s=0.05, conditions_s=0.1, clock=lambda: next(times_s))

    for _ in range(3):
        sampler.take()

    seen = Conditions(temperature_c=40.0)
    assert sampler.readings == (
        Reading(time_s=10.0, conditions=seen, power_w=50.0, energy_j=7.0),
        Reading(time_s=10.0625, power_w=50.0, energy_j=7.0),
        Reading(time_s=10.125, conditions=seen, power_w=50.0, energy_j=7.0),
    )


def test_a_window_has_its_own_summary() -> None:
    def at(time_s: float, clock_hz: float, *reasons: str) -> Reading:
        conditions = Conditions(clock_hz=clock_hz, throttle_reasons=reasons, power_state="P0")
        return Reading(time_s=time_s, conditions=conditions)

    readings = [
        at(0, 9e9, "thermal"), at(1, 1e9), at(2, 2e9, "power cap"), at(3, 6e9), Reading(time_s=3),
        at(4, 9e9, "thermal"),
    ]  # fmt: skip

    assert summarise(readings, 1, 3) == Conditions(
        clock_hz=2e9, throttle_reasons=("power cap",), power_state="P0"
    )
    assert summarise(readings, 7, 8) == Conditions()
    late = summarise_late(readings)  # of 6 and 9 GHz; the reasons are of all
    assert (late.clock_hz, late.throttle_reasons) == (7.5e9, ("power cap", "thermal"))
