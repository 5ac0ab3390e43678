"""RAPL, the energy counters of x86 processors.

They count whole packages, neighbours included, and not the memory. Where they cannot be read there
are no joules: no figure is made up from load or a table.
"""

from __future__ import annotations

import re
from pathlib import Path

from ridgeline.sensors.meter import COUNTER, Meter, Meters
from ridgeline.sensors.sysfs import SYS, text_of

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
    found = Meter(name="RAPL energy counters", scope=scope, kind=COUNTER, read=meter.energy_j)
    return Meters(found=(found,))
