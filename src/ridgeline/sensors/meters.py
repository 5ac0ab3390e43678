"""Which meters there are for a device, and why others are not there.

A meter counts what a device draws: no figure comes from load, a table or a power limit.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from ridgeline.records import Conditions
from ridgeline.sensors.nvidia import load_nvml, nvidia_meters
from ridgeline.sensors.sampler import COUNTER, POWER, Meter, Meters

# ---------------------------------------------------------------- CPU
# Clock, temperature and energy, as the kernel tells them. None where nothing does.

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
PLATFORM = "psys"  # the name of a zone that has the processors in it
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
        self._zones = [
            zone for zone in sorted((root / "class" / "powercap").glob("*-rapl:*"))
            if PACKAGE_ZONES.fullmatch(zone.name) and text_of(zone / "name").strip() != PLATFORM
        ]  # fmt: skip
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


# ---------------------------------------------------------------- the meters of a device

PARTS = {"cuda": "GPU", "cpu": "CPU"}  # what rails call a device


def find_meters(
    kind: str,
    *,
    uuid: str | None = None,
    root: Path = SYS,
    nvml: Callable[[], Any] = load_nvml,
) -> Meters:
    """The meters of a device of this kind: "cuda" (with its UUID) or "cpu"."""
    if kind not in PARTS:
        return Meters(reasons=(f"ridgeline knows no meter of {kind} devices",))
    if kind == "cuda":
        meters = nvidia_meters(uuid, nvml)
    else:
        cpus = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []
        meters = replace(rapl_meters(root), conditions=cpu_reader(cpus, root))
    return meters if meters.available else add_rail(meters, PARTS[kind], rails(root))


# The power rails of Jetson modules: INA3221 sensors on the board; not verified on hardware. Each
# has up to three channels with millivolts and milliamperes. Rails differ from module to module
# (VDD_GPU_SOC, VDD_CPU_GPU_CV, VDD_IN) and often feed more than their device: the scope names them.
WHOLE_MODULE = "VDD_IN"


def rails(root: Path = SYS) -> dict[str, tuple[Path, Path]]:
    """Rail to its files of voltage and current."""
    files = {}
    # one star per folder: the devices of a driver are links, which ** does not follow
    for path in sorted(root.glob("bus/i2c/drivers/ina3221*/*/hwmon/hwmon*/in*_label")):
        channel = path.name.removeprefix("in").removesuffix("_label")
        current = path.with_name(f"curr{channel}_input")
        if current.exists():  # a channel without one is the sum of the others
            files[text_of(path).strip()] = (path.with_name(f"in{channel}_input"), current)
    return files


def add_rail(meters: Meters, part: str, powered: dict[str, tuple[Path, Path]]) -> Meters:
    """The rail that feeds this part of a Jetson, or else the whole module's, if there is one."""
    if not powered:
        return meters
    rail = next((name for name in powered if part in name), WHOLE_MODULE)
    if rail not in powered:
        reason = f"no rail of the {part} among {', '.join(powered)}"
        return replace(meters, reasons=(*meters.reasons, reason))
    scope = "the whole module" if rail == WHOLE_MODULE else f"all that the rail {rail} feeds"

    def power_w() -> float | None:
        volts, amperes = map(thousandths, powered[rail])
        return None if volts is None or amperes is None else volts * amperes

    meter = Meter(name=f"INA3221 rail {rail}", scope=scope, kind=POWER, read=power_w)
    return replace(meters, available=(meter,))
