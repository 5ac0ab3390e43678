"""The power rails of Jetson modules: INA3221 sensors on the board. Not verified on hardware.

A sensor has up to three channels; the kernel names the rail of each, its millivolts and its
milliamperes. Rails differ from module to module (VDD_GPU_SOC, VDD_CPU_GPU_CV, VDD_IN), and often
feed more than their device: the scope names the rail, so that nobody takes it for less.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ridgeline.sensors.meter import POWER, Meter, Meters
from ridgeline.sensors.sysfs import SYS, text_of, thousandths

PARTS = {"cuda": "GPU", "cpu": "CPU"}
WHOLE_MODULE = "VDD_IN"
NO_RAILS = "no INA3221 power sensors under /sys/bus/i2c: only Jetson modules have them"


def rails(root: Path = SYS) -> dict[str, tuple[Path, Path]]:
    """Rail to its files of voltage and current."""
    # one star per folder: the devices of a driver are links, which ** does not follow
    labels = (root / "bus" / "i2c" / "drivers").glob("ina3221*/*/hwmon/hwmon*/in*_label")
    found = {}
    for path in sorted(labels):
        channel = path.name.removeprefix("in").removesuffix("_label")
        voltage, current = (
            path.with_name(f"in{channel}_input"),
            path.parent / f"curr{channel}_input",
        )
        if current.exists():  # a channel without one is the sum of the others
            found[text_of(path).strip()] = (voltage, current)
    return found


def jetson_meters(kind: str, root: Path = SYS) -> Meters:
    """The rail that feeds a device of this kind, or else the whole module's."""
    found = rails(root)
    if not found:
        return Meters(reasons=(NO_RAILS,))
    mine = [rail for rail in found if PARTS[kind] in rail]
    rail = next(iter([*mine, *(rail for rail in found if rail == WHOLE_MODULE)]), None)
    if rail is None:
        return Meters(reasons=(f"no rail of the {PARTS[kind]} among {', '.join(found)}",))
    scope = "the whole module" if rail == WHOLE_MODULE else f"all that the rail {rail} feeds"
    read = partial(_power_w, *found[rail])
    return Meters(found=(Meter(name=f"INA3221 rail {rail}", scope=scope, kind=POWER, read=read),))


def _power_w(voltage: Path, current: Path) -> float | None:
    volts, amperes = thousandths(voltage), thousandths(current)
    return None if volts is None or amperes is None else volts * amperes
