"""Which meters there are for a device, and why others are not there.

A meter counts what a device draws: no figure comes from load, a table or a power limit.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ridgeline.sensors.apple import Run, apple_meters, run_text
from ridgeline.sensors.cpu import cpu_reader
from ridgeline.sensors.jetson import jetson_meters, rails
from ridgeline.sensors.meter import Meters
from ridgeline.sensors.nvidia import load_nvml, nvidia_meters
from ridgeline.sensors.rapl import rapl_meters
from ridgeline.sensors.sysfs import SYS


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
    if meters.found or not rails(root):
        return meters
    jetson = jetson_meters(kind, root)
    return replace(meters, found=jetson.found, reasons=meters.reasons + jetson.reasons)


def _cpus() -> list[int]:
    """The CPUs that this process may use."""
    if sys.platform == "linux":
        return sorted(os.sched_getaffinity(0))
    return []
