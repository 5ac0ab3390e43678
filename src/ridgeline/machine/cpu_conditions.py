"""What the CPU did during a measurement: clock, temperature, power. None where nothing tells.

Power comes from RAPL, the energy counters of the processor, where they can be read. They count the
whole package, neighbours included, and not the memory. No figure is made up from load or a table.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

from ridgeline.machine.ceiling import Conditions

SYS = Path("/sys")
PACKAGE_ZONES = re.compile(r"(intel|amd)-rapl:\d+")  # intel-rapl:0:1 is a part of intel-rapl:0
SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
THERMAL_ZONES = ("x86_pkg_temp", "cpu-thermal", "cpu_thermal")


class RaplMeter:
    """Joules of all packages since it was made. `reason` says why there is none to read."""

    def __init__(self, root: Path = SYS) -> None:
        folder = root / "class" / "powercap"
        zones = sorted(folder.glob("*-rapl:*")) if folder.is_dir() else []
        self._zones = [zone for zone in zones if PACKAGE_ZONES.fullmatch(zone.name)]
        self._last: dict[Path, float] = {}
        self._total_j = 0.0
        self.reason: str | None = None
        if not self._zones:
            self.reason = (
                "no RAPL energy counters under /sys/class/powercap: virtual machines and "
                "processors other than Intel's and AMD's have none"
            )
            return
        try:
            self._last = {zone: self._read(zone) for zone in self._zones}
        except (OSError, ValueError):
            self.reason = (
                "the RAPL energy counters may only be read by root: "
                "`sudo chmod a+r /sys/class/powercap/*-rapl:*/energy_uj` allows it until reboot"
            )

    @property
    def is_readable(self) -> bool:
        return self.reason is None

    def energy_j(self) -> float | None:
        """Joules so far; the counters wrap around, which is undone here."""
        if not self.is_readable:
            return None
        try:
            for zone in self._zones:
                now_uj = self._read(zone)
                used_uj = now_uj - self._last[zone]
                if used_uj < 0:
                    used_uj += float((zone / "max_energy_range_uj").read_text())
                self._last[zone] = now_uj
                self._total_j += 1e-6 * used_uj
        except (OSError, ValueError):
            return None
        return self._total_j

    @staticmethod
    def _read(zone: Path) -> float:
        return float((zone / "energy_uj").read_text())


class Watch:
    """Notes the conditions of each thing that is measured, sample by sample."""

    def __init__(
        self,
        cpus: Sequence[int],
        *,
        cycles_per_s: Callable[[], float] | None = None,
        root: Path = SYS,
        proc: Path = Path("/proc"),
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
        cpuinfo = _text(self._proc / "cpuinfo")
        if told or "hypervisor" in cpuinfo:  # there /proc/cpuinfo has the nominal clock only
            return told
        return cpuinfo_hz(cpuinfo)

    def _start(self) -> None:
        self._energy_j = self.meter.energy_j()
        self._now_s = perf_counter()
        self._throttle_count = self._throttles()

    def _throttles(self) -> int:
        """How often the package was too hot, since the machine was started."""
        folder = self._root / "devices" / "system" / "cpu" / f"cpu{self._cpus[0]}"
        text = _text(folder / "thermal_throttle" / "package_throttle_count").strip()
        return int(text) if text.isdigit() else 0


def cpufreq_hz(cpus: Sequence[int], root: Path = SYS) -> float | None:
    """The clock of the CPUs in use, by the kernel."""
    folder = root / "devices" / "system" / "cpu"
    texts = [_text(folder / f"cpu{cpu}" / "cpufreq" / "scaling_cur_freq") for cpu in cpus]
    clocks = [1e3 * float(text) for text in texts if text.strip().isdigit()]
    return median(clocks) if clocks else None


def cpuinfo_hz(text: str) -> float | None:
    """The highest `cpu MHz` of /proc/cpuinfo."""
    clocks = [float(found) for found in re.findall(r"^cpu MHz\s*:\s*([\d.]+)", text, re.MULTILINE)]
    return 1e6 * max(clocks) if clocks else None


def temperature_c(root: Path = SYS) -> float | None:
    """Of the package, from the first sensor that is the processor's."""
    for folder in sorted((root / "class" / "hwmon").glob("hwmon*")):
        if _text(folder / "name").strip() in SENSORS:
            return _milli(folder / "temp1_input")
    for folder in sorted((root / "class" / "thermal").glob("thermal_zone*")):
        if _text(folder / "type").strip() in THERMAL_ZONES:
            return _milli(folder / "temp")
    return None


def _milli(path: Path) -> float | None:
    text = _text(path).strip()
    return int(text) / 1000 if text.lstrip("-").isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
