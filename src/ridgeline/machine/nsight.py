"""Where Nsight Compute's command is, for all who need it."""

from __future__ import annotations

import re

from ridgeline.machine.probe import Probe

NCU_VARIABLE = "RIDGELINE_NCU"  # names the program where it is not on the path
NCU_PLACES = (
    "/usr/local/cuda*/bin/ncu",
    "/opt/nvidia/nsight-compute/*/ncu",
    "/opt/cuda*/bin/ncu",
    "/usr/local/NVIDIA-Nsight-Compute*/ncu",
    "/usr/lib/nsight-compute/ncu",
    "/opt/nvidia/hpc_sdk/*/*/profilers/Nsight_Compute/ncu",
    "/Applications/NVIDIA Nsight Compute.app/Contents/MacOS/ncu",
)


def ncu_path(probe: Probe) -> str | None:
    """The one that the user names, that of PATH, or the newest of the first usual folder."""
    at_hand = probe.environ.get(NCU_VARIABLE) or probe.which("ncu")
    if at_hand:
        return at_hand
    found = (probe.find(place) for place in NCU_PLACES)
    return next((max(paths, key=_version) for paths in found if paths), None)


def _version(path: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", path))
