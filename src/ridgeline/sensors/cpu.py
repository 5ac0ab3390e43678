"""Clock and temperature of a CPU, as the kernel tells them. None where nothing does."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from ridgeline.sensors.conditions import Conditions
from ridgeline.sensors.sysfs import PROC, SYS, text_of, thousandths

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
    return Conditions(clock_hz=told_hz(cpus, root, proc), temperature_c=temperature_c(root))


def told_hz(cpus: Sequence[int], root: Path = SYS, proc: Path = PROC) -> float | None:
    """The clock by cpufreq, or as /proc/cpuinfo has it."""
    told = cpufreq_hz(cpus, root)
    cpuinfo = "" if told else text_of(proc / "cpuinfo")
    if told or "hypervisor" in cpuinfo:  # there /proc/cpuinfo has the nominal clock only
        return told
    return cpuinfo_hz(cpuinfo)


def cpufreq_hz(cpus: Sequence[int], root: Path = SYS) -> float | None:
    """The clock of the CPUs in use, by the kernel."""
    folder = root / "devices" / "system" / "cpu"
    texts = [text_of(folder / f"cpu{cpu}" / "cpufreq" / "scaling_cur_freq") for cpu in cpus]
    clocks = [1e3 * float(text) for text in texts if text.strip().isdigit()]
    return median(clocks) if clocks else None


def cpuinfo_hz(text: str) -> float | None:
    """The highest `cpu MHz` of /proc/cpuinfo."""
    clocks = [float(found) for found in re.findall(r"^cpu MHz\s*:\s*([\d.]+)", text, re.MULTILINE)]
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
