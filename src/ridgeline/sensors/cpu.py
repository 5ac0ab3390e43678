"""Clock, temperature and energy of a CPU, as the kernel tells them. None where nothing does."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from ridgeline.records import Conditions
from ridgeline.sensors.meter import COUNTER, Meter, Meters

SYS = Path("/sys")
PROC = Path("/proc")


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


SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
THERMAL_ZONES = ("x86_pkg_temp", "cpu-thermal", "cpu_thermal")
MOST_CPUS = 16
"""So many clocks are read at a time: each is a file, and hundreds would take milliseconds."""


def cpu_reader(
    cpus: Sequence[int], root: Path = SYS, proc: Path = PROC
) -> Callable[[], Conditions]:
    """A function that reads clock and temperature."""
    return partial(_conditions, tuple(cpus[:MOST_CPUS]), root, proc)


def _conditions(cpus: Sequence[int], root: Path, proc: Path) -> Conditions:
    return Conditions(clock_hz=read_clock_hz(cpus, root, proc), temperature_c=temperature_c(root))


def read_clock_hz(cpus: Sequence[int], root: Path = SYS, proc: Path = PROC) -> float | None:
    """The clock by cpufreq, or as /proc/cpuinfo has it."""
    clock_hz = cpufreq_hz(cpus, root)
    cpuinfo = "" if clock_hz else text_of(proc / "cpuinfo")
    if clock_hz or "hypervisor" in cpuinfo:  # there /proc/cpuinfo has the nominal clock only
        return clock_hz
    return cpuinfo_hz(cpuinfo)


def cpufreq_hz(cpus: Sequence[int], root: Path = SYS) -> float | None:
    """The clock of the CPUs in use, by the kernel."""
    folder = root / "devices" / "system" / "cpu"
    texts = [text_of(folder / f"cpu{cpu}" / "cpufreq" / "scaling_cur_freq") for cpu in cpus]
    clocks = [1e3 * float(text) for text in texts if text.strip().isdigit()]
    return median(clocks) if clocks else None


def cpuinfo_hz(text: str) -> float | None:
    """The highest `cpu MHz` of /proc/cpuinfo."""
    clocks = [float(mhz) for mhz in re.findall(r"^cpu MHz\s*:\s*([\d.]+)", text, re.MULTILINE)]
    return 1e6 * max(clocks) if clocks else None


def temperature_c(root: Path = SYS) -> float | None:
    """Of the package, from the first sensor that is the processor's."""
    for folder in sorted((root / "class" / "hwmon").glob("hwmon*")):
        if text_of(folder / "name").strip() in SENSORS:
            return thousandths(folder / "temp1_input")
    for folder in sorted((root / "class" / "thermal").glob("thermal_zone*")):
        if text_of(folder / "type").strip() in THERMAL_ZONES:
            return thousandths(folder / "temp")
    return None


PACKAGE_ZONES = re.compile(r"(intel|amd)-rapl:\d+")  # intel-rapl:0:1 is a part of intel-rapl:0


def _is_package(zone: Path) -> bool:
    """Whether a zone is a processor; `psys`, the whole platform, has the processors in it."""
    is_whole = PACKAGE_ZONES.fullmatch(zone.name) is not None
    return is_whole and text_of(zone / "name").strip() != "psys"


class RaplMeter:
    """Joules of all packages since it was made. `reason` says why there is none to read."""

    def __init__(self, root: Path = SYS) -> None:
        folder = root / "class" / "powercap"
        zones = sorted(folder.glob("*-rapl:*")) if folder.is_dir() else []
        self._zones = [zone for zone in zones if _is_package(zone)]
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


def rapl_meters(root: Path = SYS) -> Meters:
    """The counters of all packages as one meter."""
    meter = RaplMeter(root)
    if meter.reason is not None:
        return Meters(reasons=(meter.reason,))
    scope = "CPU packages, without the memory"
    counter = Meter(name="RAPL energy counters", scope=scope, kind=COUNTER, read=meter.energy_j)
    return Meters(available=(counter,))
