"""Power of Apple chips, through `powermetrics`. Not verified on hardware.

The tool belongs to macOS and needs root, so it is asked through `sudo -n`, which fails instead of
waiting for a password. Each question starts a process that watches the chip for a tenth of a
second: a reading is the mean of that time. The figures are macOS's own estimates.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence

from ridgeline.sensors.meter import POWER, Meter, Meters

COMMAND = ("sudo", "-n", "powermetrics", "--samplers", "cpu_power,gpu_power",
           "-i", "100", "-n", "1")  # fmt: skip
PARTS = {"mps": "GPU", "cpu": "CPU"}
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
    part = PARTS[kind]
    try:
        seen = powers_w(run(COMMAND))
    except (OSError, subprocess.SubprocessError):
        return Meters(reasons=(NEEDS_ROOT,))
    if part not in seen:
        return Meters(reasons=(f"powermetrics tells no {part} power on this Mac",))
    found = Meter(
        name=f"powermetrics {part} power",
        scope=f"the {part} of the chip as macOS estimates it, without the memory",
        kind=POWER,
        read=lambda: powers_w(run(COMMAND)).get(part),
    )
    return Meters(found=(found,))
