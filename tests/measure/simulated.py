"""A device on a clock of its own, with the sensors that NVIDIA's boards have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from ridgeline.records import Conditions
from ridgeline.sensors.sampler import Meter, Meters, Reading, Sampler

IDLE_W = 100.0


class Device:
    """Its counter and its power sensor have a new value every `refresh_s`, `offset_s` late.

    A step takes 40 ms: 30 ms at 700 W and 10 ms at 300 W, which is 24 J and 600 W in the mean.
    """

    STEP = ((0.030, 700.0), (0.010, 300.0))
    STEP_J = 24.0

    def __init__(self, *, refresh_s: float = 0.1, offset_s: float = 0.037) -> None:
        self.now_s = 0.0
        self.true_j = 0.0
        self.shown_j = self.shown_w = 0.0
        self.break_counter: Callable[[float], float] = lambda energy_j: energy_j
        self._refresh_s, self._next_s = refresh_s, offset_s
        self._earlier_j = 0.0
        self.sampler: Sampler | None = None
        self._poll_s = 0.0

    def clock(self) -> float:
        return self.now_s

    def spend(self, duration_s: float, power_w: float = IDLE_W) -> None:
        """Let time pass, a millisecond at a time, at a power; sensors and sampler take notice."""
        for _ in range(round(duration_s / 0.001)):
            self.now_s = round(self.now_s + 0.001, 6)
            self.true_j += 0.001 * power_w
            if self.now_s >= self._next_s:
                self._refresh()
            if self.sampler is not None and self.now_s >= self._poll_s:
                self._poll_s = round(self.now_s + self.sampler.interval_s, 6)
                self.sampler.take()

    def _refresh(self) -> None:
        self._next_s = round(self._next_s + self._refresh_s, 6)
        self.shown_w = (self.true_j - self._earlier_j) / self._refresh_s
        self.shown_j = self.break_counter(self.true_j)
        self._earlier_j = self.true_j

    def step(self) -> None:
        for duration_s, power_w in self.STEP:
            self.spend(duration_s, power_w)

    def run_for(self, duration_s: float) -> int:
        steps, end_s = 0, self.now_s + duration_s
        while self.now_s < end_s:
            self.step()
            steps += 1
        return steps

    def meters(self, *kinds: str) -> Meters:
        """A counter and a power meter, or those of the given kinds only."""
        every = (
            Meter(name="counter", scope="a board", kind="counter", read=lambda: self.shown_j),
            Meter(name="sensor", scope="a board", kind="power", read=lambda: self.shown_w),
        )
        found = tuple(meter for meter in every if not kinds or meter.kind in kinds)
        return Meters(available=found, conditions=lambda: Conditions(temperature_c=50.0))


class SteppedSampler(Sampler):
    """Reads when the device's time passes instead of in a thread."""

    def __init__(self, device: Device, meters: Meters, interval_s: float = 0.005) -> None:
        super().__init__(meters, interval_s=interval_s, clock=device.clock)
        self._device = device

    def __enter__(self) -> Self:
        self._device.sampler = self
        return self

    def __exit__(self, *_error: object) -> None:
        self._device.sampler = None


def readings_while(work: Callable[[Device], object], device: Device | None = None) -> list[Reading]:
    """What a sampler sees of a device while it does this work."""
    device = device or Device()
    with SteppedSampler(device, device.meters()) as sampler:
        work(device)
    return list(sampler.readings)
