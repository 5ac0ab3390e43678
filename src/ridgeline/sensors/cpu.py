"""Clock, temperature and energy of a CPU, as the kernel tells them. None where nothing does."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from ridgeline.records import Conditions
from ridgeline.sensors.sampler import COUNTER, Meter, Meters

SYS = Path("/sys")


def text_of(path: Path) -> str:
    """The content, or nothing."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def thousandths(path: Path) -> float | None:
    """A whole number of thousandths of a unit, as the unit: 45500 is 45.5."""
    text = text_of(path).strip()
    return int(text) / 1000 if text.lstrip("-").isdigit() else None


SENSORS = (  # folders, the file that names the sensor, names of a processor's, the file to read
    ("class/hwmon/hwmon*", "name", ("coretemp", "k10temp", "zenpower", "cpu_thermal"),
     "temp1_input"),
    ("class/thermal/thermal_zone*", "type", ("x86_pkg_temp", "cpu-thermal", "cpu_thermal"), "temp"),
)  # fmt: skip
MOST_CPUS = 16
"""So many clocks are read at a time: each is a file, and hundreds would take milliseconds."""


def cpu_reader(cpus: Sequence[int], root: Path = SYS) -> Callable[[], Conditions]:
    """A function that reads clock and temperature."""
    some = tuple(cpus[:MOST_CPUS])
    return lambda: Conditions(clock_hz=cpufreq_hz(some, root), temperature_c=temperature_c(root))


def cpufreq_hz(cpus: Sequence[int], root: Path = SYS) -> float | None:
    """The clock of the CPUs in use, by the kernel."""
    folder = root / "devices" / "system" / "cpu"
    texts = [text_of(folder / f"cpu{cpu}" / "cpufreq" / "scaling_cur_freq") for cpu in cpus]
    clocks = [1e3 * float(text) for text in texts if text.strip().isdigit()]
    return median(clocks) if clocks else None


def temperature_c(root: Path = SYS) -> float | None:
    """Of the package, from the first sensor that is the processor's."""
    for folders, name, known, file in SENSORS:
        for folder in sorted(root.glob(folders)):
            if text_of(folder / name).strip() in known:
                return thousandths(folder / file)
    return None


PACKAGE_ZONES = re.compile(r"(intel|amd)-rapl:\d+")  # intel-rapl:0:1 is a part of intel-rapl:0


def _is_package(zone: Path) -> bool:
    """Whether a zone is a processor; `psys`, the whole platform, has the processors in it."""
    is_whole = PACKAGE_ZONES.fullmatch(zone.name) is not None
    return is_whole and text_of(zone / "name").strip() != "psys"


NO_RAPL = (
    "no RAPL energy counters under /sys/class/powercap: virtual machines and "
    "processors other than Intel's and AMD's have none"
)
ROOT_ONLY = (
    "the RAPL energy counters may only be read by root: "
    "`sudo chmod a+r /sys/class/powercap/*-rapl:*/energy_uj` allows it until reboot"
)


class RaplMeter:
    """Joules of all packages since it was made. `reason` says why there is none to read."""

    def __init__(self, root: Path = SYS) -> None:
        zones = sorted((root / "class" / "powercap").glob("*-rapl:*"))
        self._zones = [zone for zone in zones if _is_package(zone)]
        self._last: dict[Path, float] = {}
        self._total_j = 0.0
        self.reason = None if self._zones else NO_RAPL
        try:
            self._last = {zone: _read_uj(zone / "energy_uj") for zone in self._zones}
        except (OSError, ValueError):
            self.reason = ROOT_ONLY

    def energy_j(self) -> float | None:
        """Joules so far; the counters wrap around, which is undone here."""
        if self.reason is not None:
            return None
        try:
            for zone in self._zones:
                now_uj = _read_uj(zone / "energy_uj")
                used_uj = now_uj - self._last[zone]
                if used_uj < 0:
                    used_uj += _read_uj(zone / "max_energy_range_uj")
                self._last[zone] = now_uj
                self._total_j += 1e-6 * used_uj
        except (OSError, ValueError):
            return None
        return self._total_j


def _read_uj(path: Path) -> float:
    return float(path.read_text())


def rapl_meters(root: Path = SYS) -> Meters:
    """The counters of all packages as one meter."""
    meter = RaplMeter(root)
    if meter.reason is not None:
        return Meters(reasons=(meter.reason,))
    scope = "CPU packages, without the memory"
    counter = Meter(name="RAPL energy counters", scope=scope, kind=COUNTER, read=meter.energy_j)
    return Meters(available=(counter,))
