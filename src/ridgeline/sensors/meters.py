"""Which meters there are for a device, and why others are not there.

A meter counts what a device draws: no figure comes from load, a table or a power limit.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ridgeline.sensors.cpu import SYS, cpu_reader, rapl_meters, text_of, thousandths
from ridgeline.sensors.meter import POWER, Meter, Meters
from ridgeline.sensors.nvidia import load_nvml, nvidia_meters

# Apple chips, through `powermetrics`; not verified on hardware. The tool needs root, so it is run
# through `sudo -n`, which fails instead of waiting for a password. Each reading starts a process
# that watches the chip for a tenth of a second: it is the mean of that time, by macOS's estimate.
COMMAND = ("sudo", "-n", "powermetrics", "--samplers", "cpu_power,gpu_power",
           "-i", "100", "-n", "1")  # fmt: skip
APPLE_PARTS = {"mps": "GPU", "cpu": "CPU"}
LINE = re.compile(r"^\s*(CPU|GPU|ANE) Power:\s*([\d.]+)\s*(m?W)\s*$", re.MULTILINE)
NEEDS_ROOT = (
    "macOS tells power to root only: `sudo -v` before the run lets powermetrics be asked "
    "for some minutes, a line for it in sudoers does so for good"
)

Run = Callable[[Sequence[str]], str]


def run_text(command: Sequence[str]) -> str:
    """What a command prints; OSError or SubprocessError where it fails."""
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout


def powers_w(text: str) -> dict[str, float]:
    """Watts of CPU, GPU and ANE, from the text that powermetrics prints."""
    scales = {"mW": 1e-3, "W": 1.0}
    return {part: scales[unit] * float(number) for part, number, unit in LINE.findall(text)}


def apple_meters(kind: str, run: Run = run_text) -> Meters:
    """The power of the part of the chip that a device of this kind is."""
    part = APPLE_PARTS[kind]
    try:
        seen = powers_w(run(COMMAND))
    except (OSError, subprocess.SubprocessError):
        return Meters(reasons=(NEEDS_ROOT,))
    if part not in seen:
        return Meters(reasons=(f"powermetrics tells no {part} power on this Mac",))
    meter = Meter(
        name=f"powermetrics {part} power",
        scope=f"the {part} of the chip as macOS estimates it, without the memory",
        kind=POWER,
        read=lambda: powers_w(run(COMMAND)).get(part),
    )
    return Meters(available=(meter,))


# The power rails of Jetson modules: INA3221 sensors on the board; not verified on hardware. Each
# has up to three channels with millivolts and milliamperes. Rails differ from module to module
# (VDD_GPU_SOC, VDD_CPU_GPU_CV, VDD_IN) and often feed more than their device: the scope names them.
JETSON_PARTS = {"cuda": "GPU", "cpu": "CPU"}
WHOLE_MODULE = "VDD_IN"
NO_RAILS = "no INA3221 power sensors under /sys/bus/i2c: only Jetson modules have them"


def rails(root: Path = SYS) -> dict[str, tuple[Path, Path]]:
    """Rail to its files of voltage and current."""
    # one star per folder: the devices of a driver are links, which ** does not follow
    labels = (root / "bus" / "i2c" / "drivers").glob("ina3221*/*/hwmon/hwmon*/in*_label")
    files = {}
    for path in sorted(labels):
        channel = path.name.removeprefix("in").removesuffix("_label")
        voltage, current = (
            path.with_name(f"in{channel}_input"),
            path.parent / f"curr{channel}_input",
        )
        if current.exists():  # a channel without one is the sum of the others
            files[text_of(path).strip()] = (voltage, current)
    return files


def jetson_meters(kind: str, root: Path = SYS) -> Meters:
    """The rail that feeds a device of this kind, or else the whole module's."""
    powered = rails(root)
    if not powered:
        return Meters(reasons=(NO_RAILS,))
    mine = [rail for rail in powered if JETSON_PARTS[kind] in rail]
    rail = next(iter([*mine, *(rail for rail in powered if rail == WHOLE_MODULE)]), None)
    if rail is None:
        return Meters(reasons=(f"no rail of the {JETSON_PARTS[kind]} among {', '.join(powered)}",))
    scope = "the whole module" if rail == WHOLE_MODULE else f"all that the rail {rail} feeds"
    read = partial(_power_w, *powered[rail])
    return Meters(
        available=(Meter(name=f"INA3221 rail {rail}", scope=scope, kind=POWER, read=read),)
    )


def _power_w(voltage: Path, current: Path) -> float | None:
    volts, amperes = thousandths(voltage), thousandths(current)
    return None if volts is None or amperes is None else volts * amperes


def find_meters(
    kind: str,
    *,
    uuid: str | None = None,
    system: str = sys.platform,
    root: Path = SYS,
    nvml: Callable[[], Any] = load_nvml,
    run: Run = run_text,
) -> Meters:
    """The meters of a device of this kind: "cuda" (with its UUID), "mps" or "cpu"."""
    if kind == "cuda":
        return _or_rails(nvidia_meters(uuid, nvml), kind, root)
    if kind == "cpu" and system != "darwin":
        meters = replace(rapl_meters(root), conditions=cpu_reader(_cpus(), root))
        return _or_rails(meters, kind, root)
    if kind in ("cpu", "mps"):
        return apple_meters(kind, run)
    return Meters(reasons=(f"ridgeline knows no meter of {kind} devices",))


def _or_rails(meters: Meters, kind: str, root: Path) -> Meters:
    """A Jetson's rails, where there are any and the device has no meter of its own."""
    if meters.available or not rails(root):
        return meters
    jetson = jetson_meters(kind, root)
    return replace(meters, available=jetson.available, reasons=meters.reasons + jetson.reasons)


def _cpus() -> list[int]:
    """The CPUs that this process may use."""
    if sys.platform == "linux":
        return sorted(os.sched_getaffinity(0))
    return []
