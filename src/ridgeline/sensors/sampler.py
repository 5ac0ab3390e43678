"""Meters and their readings, taken in a thread of its own, with a time for each of them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from statistics import median
from time import perf_counter
from typing import Self, TypeVar

from ridgeline.records import Conditions

SLOW_S = 0.1
DURING_TIMING_S = 0.25  # a reading takes the interpreter from a step that waits for the host
FAST_S = 0.005  # in energy windows: sees when a sensor refreshes, every 20 to 100 ms

NO_CONDITIONS = Conditions()
Value = TypeVar("Value")
COUNTER, POWER = "counter", "power"


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """One meter. A counter reads joules since some moment, a power meter reads watts."""

    name: str  # "NVML energy counter"
    scope: str  # what the joules are of: "GPU 0: the whole board"
    kind: str  # COUNTER or POWER
    read: Callable[[], float | None] = field(repr=False)  # None: no answer this time


@dataclass(frozen=True, slots=True, kw_only=True)
class Meters:
    """The meters of a device, the best first, and why others are not there."""

    available: tuple[Meter, ...] = ()
    reasons: tuple[str, ...] = ()
    conditions: Callable[[], Conditions] = field(default=Conditions, repr=False)

    def first(self, kind: str) -> Meter | None:
        """The first that counts joules, or that tells watts."""
        return next((meter for meter in self.available if meter.kind == kind), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the meters said at one moment; None where one had nothing to say."""

    time_s: float  # by the sampler's clock, which has no date
    conditions: Conditions = NO_CONDITIONS
    power_w: float | None = None
    energy_j: float | None = None  # since the counter's own beginning


class Sampler:
    """Reads until its block ends; the first reading comes at once. A block begins anew.

    `interval_s` may be changed at any time. Conditions take several questions, so they are asked
    no more often than every `conditions_s`.
    """

    def __init__(
        self,
        meters: Meters,
        *,
        interval_s: float = SLOW_S,
        conditions_s: float = SLOW_S,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.interval_s = interval_s
        self._counter, self._power = meters.first(COUNTER), meters.first(POWER)
        self._read = meters.conditions
        self._conditions_s, self._clock = conditions_s, clock
        self._seen: list[Reading] = []
        self._conditions_read_s = -inf
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def readings(self) -> tuple[Reading, ...]:
        """All readings so far, in order."""
        return tuple(self._seen)

    def take(self) -> None:
        """One reading now. A meter that fails costs its value, not the measurement."""
        energy_j = _try_reading(self._counter.read) if self._counter else None
        now_s = self._clock()
        power_w = _try_reading(self._power.read) if self._power else None
        conditions = None
        if now_s - self._conditions_read_s >= self._conditions_s:
            self._conditions_read_s = now_s
            conditions = _try_reading(self._read)
        if (energy_j, power_w, conditions) != (None, None, None):
            seen = conditions or NO_CONDITIONS
            self._seen.append(
                Reading(time_s=now_s, conditions=seen, power_w=power_w, energy_j=energy_j)
            )

    def __enter__(self) -> Self:
        self._seen, self._conditions_read_s, self._stop = [], -inf, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        while True:
            self.take()
            if self._stop.wait(self.interval_s):
                return


def _try_reading(read: Callable[[], Value]) -> Value | None:
    try:
        return read()
    except Exception:  # drivers fail in their own ways
        return None


def summarise_conditions(seen: Sequence[Conditions]) -> Conditions:
    """The median of each number, every throttle reason, the most frequent power state."""
    medians = {}
    for name in ("clock_hz", "memory_clock_hz", "temperature_c", "power_w"):
        known = [value for one in seen if (value := getattr(one, name)) is not None]
        medians[name] = median(known) if known else None
    states = Counter(one.power_state for one in seen if one.power_state is not None)
    return Conditions(
        **medians,
        throttle_reasons=tuple(sorted({why for one in seen for why in one.throttle_reasons})),
        power_state=states.most_common(1)[0][0] if states else None,
    )


def within(readings: Sequence[Reading], start_s: float = -inf, end_s: float = inf) -> list[Reading]:
    """The readings of a window, its ends included."""
    return [reading for reading in readings if start_s <= reading.time_s <= end_s]


def summarise(readings: Sequence[Reading], start_s: float = -inf, end_s: float = inf) -> Conditions:
    """The middle of what was seen in a window; every throttle reason that occurred."""
    return summarise_conditions([r.conditions for r in within(readings, start_s, end_s)])


def summarise_late(readings: Sequence[Reading]) -> Conditions:
    """The middle of the second half of what was seen; every throttle reason that occurred.

    Power sensors average over a tenth of a second or more, so early readings lag behind.
    """
    late = summarise(readings[len(readings) // 2 :])
    return replace(late, throttle_reasons=summarise(readings).throttle_reasons)
