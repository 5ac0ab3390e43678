"""What the CPU did during a measurement: clock, temperature, power. None where nothing tells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

from ridgeline.sensors.conditions import Conditions
from ridgeline.sensors.cpu import cpufreq_hz, temperature_c, told_hz
from ridgeline.sensors.rapl import RaplMeter
from ridgeline.sensors.sysfs import PROC, SYS, text_of


class Watch:
    """Notes the conditions of each thing that is measured, sample by sample."""

    def __init__(
        self,
        cpus: Sequence[int],
        *,
        cycles_per_s: Callable[[], float] | None = None,
        root: Path = SYS,
        proc: Path = PROC,
    ) -> None:
        self.meter = RaplMeter(root)
        self._cpus, self._cycles_per_s, self._root, self._proc = cpus, cycles_per_s, root, proc
        self._clocks_hz: dict[Hashable, list[float]] = defaultdict(list)
        self._temperatures_c: dict[Hashable, list[float]] = defaultdict(list)
        self._joules: dict[Hashable, float] = defaultdict(float)
        self._seconds: dict[Hashable, float] = defaultdict(float)
        self._throttled: set[Hashable] = set()
        self._start()

    def note(self, key: Hashable) -> None:
        """What happened since the last note, and how things are now, belongs to `key`."""
        energy_j, now_s = self.meter.energy_j(), perf_counter()
        if energy_j is not None and self._energy_j is not None:
            self._joules[key] += energy_j - self._energy_j
            self._seconds[key] += now_s - self._now_s
        if self._throttles() > self._throttle_count:
            self._throttled.add(key)
        for values, value in (
            (self._clocks_hz[key], self.clock_hz()),
            (self._temperatures_c[key], temperature_c(self._root)),
        ):
            if value is not None:
                values.append(value)
        self._start()

    def conditions(self, key: Hashable) -> Conditions:
        """The middle of what was noted for `key`."""
        clocks, temperatures = self._clocks_hz[key], self._temperatures_c[key]
        seconds = self._seconds[key]
        return Conditions(
            clock_hz=median(clocks) if clocks else None,
            temperature_c=median(temperatures) if temperatures else None,
            power_w=self._joules[key] / seconds if seconds else None,
            throttle_reasons=("thermal",) if key in self._throttled else (),
        )

    def clock_hz(self) -> float | None:
        """By cpufreq, or measured, or as /proc/cpuinfo has it; None where nothing tells."""
        told = cpufreq_hz(self._cpus, self._root)
        if told is None and self._cycles_per_s is not None:
            return self._cycles_per_s()
        return told or told_hz(self._cpus, self._root, self._proc)

    def _start(self) -> None:
        self._energy_j = self.meter.energy_j()
        self._now_s = perf_counter()
        self._throttle_count = self._throttles()

    def _throttles(self) -> int:
        """How often the package was too hot, since the machine was started."""
        folder = self._root / "devices" / "system" / "cpu" / f"cpu{self._cpus[0]}"
        text = text_of(folder / "thermal_throttle" / "package_throttle_count").strip()
        return int(text) if text.isdigit() else 0
