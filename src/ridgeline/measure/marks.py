"""Marks at the ends of phases, and what the time between them comes to.

A mark costs about a microsecond and waits for nothing. Where a device runs behind the host, each
moment is marked twice: on the host's clock and in the device's queue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter
from typing import Any, Protocol

from ridgeline.measure.backends import EventTimeline, Timeline

SPLIT = ("data", "copy", "forward", "backward", "optimizer")
"""The phases of a step, in their order: waiting for data and host-to-device copy come first."""


class Marks(Protocol):
    """What a step tells about its progress."""

    def end(self, phase: str) -> None: ...


class NoMarks:
    """For steps that nobody times."""

    def end(self, phase: str) -> None:
        """Nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Seconds of every step, in order, and of its phases."""

    steps_s: tuple[float, ...]
    phases_s: dict[str, tuple[float, ...]]


class StepRecorder:
    """Marks every phase of every step; steps follow one another without a gap."""

    def __init__(
        self, timeline: Timeline | None, clock: Callable[[], float] = perf_counter
    ) -> None:
        self._timeline, self._clock = timeline, clock
        self._phases: list[str] = []
        self._host: list[float] = []
        self._device: list[Any] = []
        self._last_of_step: list[int] = []

    def prepare(self, marks: int) -> None:
        """Get ready for so many marks."""
        if isinstance(self._timeline, EventTimeline):
            self._timeline.prepare(marks + 1)

    def start(self) -> None:
        """The moment before the first step; call it when the device is idle."""
        self.end("")

    def end(self, phase: str) -> None:
        if self._timeline is not None:
            self._device.append(self._timeline.mark())
        self._host.append(self._clock())
        self._phases.append(phase)

    def end_step(self) -> None:
        self._last_of_step.append(len(self._phases) - 1)

    def host_times(self) -> StepTimes:
        """By the host: on a device with a queue, the time that giving out the work took."""
        return self._times([later - earlier for earlier, later in _pairs(self._host)])

    def device_times(self) -> StepTimes:
        """By the device's own time line, once it is idle; by the host where it has none."""
        if self._timeline is None:
            return self.host_times()
        seconds = self._timeline.seconds
        return self._times([seconds(earlier, later) for earlier, later in _pairs(self._device)])

    def _times(self, durations_s: list[float]) -> StepTimes:
        steps: list[float] = []
        split: dict[str, list[float]] = {}
        first = 1  # mark 0 is the start
        for last in self._last_of_step:
            sums: dict[str, float] = {}
            for number in range(first, last + 1):
                phase = self._phases[number]
                sums[phase] = sums.get(phase, 0.0) + durations_s[number - 1]
            for phase, time_s in sums.items():
                split.setdefault(phase, []).append(time_s)
            steps.append(sum(sums.values()))
            first = last + 1
        return StepTimes(
            steps_s=tuple(steps), phases_s={name: tuple(taken) for name, taken in split.items()}
        )


def _pairs(marks: Sequence[Any]) -> Sequence[tuple[Any, Any]]:
    return list(pairwise(marks))
