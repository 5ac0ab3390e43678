"""Sampling, with a clock that the test moves."""

from __future__ import annotations

from ridgeline.machine.sampling import best_of_rounds, calls_per_sample, in_rounds, rate_probe


class Clock:
    """Stands still unless it is told to go on."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def wait(self, time_s: float) -> None:
        self.now_s += time_s


def test_probes_take_turns_and_every_sample_is_kept() -> None:
    order: list[str] = []
    rounds: list[int] = []

    def probe(name: str) -> float:
        order.append(name)
        return float(len(order))

    samples = in_rounds(
        {"a": lambda: probe("a"), "b": lambda: probe("b")},
        rounds=3,
        after_probe=lambda key: order.append(f"after {key}"),
        after_round=lambda: rounds.append(len(order)),
    )

    assert order == ["a", "after a", "b", "after b"] * 3
    assert rounds == [4, 8, 12]
    assert samples == {"a": (1.0, 5.0, 9.0), "b": (3.0, 7.0, 11.0)}


def test_best_of_rounds_is_the_highest_rate() -> None:
    rates = iter([1.0, 7.0, 3.0])

    assert best_of_rounds({"a": lambda: next(rates)}, rounds=3) == {"a": 7.0}


def test_a_sample_has_as_many_calls_as_last_long_enough() -> None:
    clock = Clock()

    assert calls_per_sample(lambda: clock.wait(0.25), sample_s=2.0, clock=clock) == 8


def test_rates_are_work_over_time() -> None:
    clock = Clock()
    syncs: list[float] = []

    probe = rate_probe(
        lambda: clock.wait(0.5),
        100.0,
        sync=lambda: syncs.append(clock.now_s),
        sample_s=1.0,
        clock=clock,
    )

    assert (probe(), probe()) == (200.0, 200.0)
    assert len(syncs) == 2 * 4  # before and after: two trials and two samples
