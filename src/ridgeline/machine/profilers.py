"""Which tools that count are here: Nsight Compute, and the CUPTI that PyTorch has loaded."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

from ridgeline.machine.system import SystemIO

NCU_VARIABLE = "RIDGELINE_NCU"  # names the program where it is not on the path
NCU_PATTERNS = (
    "/usr/local/cuda*/bin/ncu",
    "/opt/nvidia/nsight-compute/*/ncu",
    "/opt/cuda*/bin/ncu",
    "/usr/local/NVIDIA-Nsight-Compute*/ncu",
    "/usr/lib/nsight-compute/ncu",
    "/opt/nvidia/hpc_sdk/*/*/profilers/Nsight_Compute/ncu",
    "/Applications/NVIDIA Nsight Compute.app/Contents/MacOS/ncu",
)


def ncu_path(io: SystemIO) -> str | None:
    """The one that the user names, that of PATH, or the newest of the first usual folder."""
    at_hand = io.environ.get(NCU_VARIABLE) or io.which("ncu")
    if at_hand:
        return at_hand
    groups = (io.find(pattern) for pattern in NCU_PATTERNS)
    return next((max(paths, key=_version) for paths in groups if paths), None)


def _version(path: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", path))


MAPS = Path("/proc/self/maps")  # what this process has loaded
NAME = "libcupti.so"
NEEDED = ("cuptiRangeProfilerEnable", "cuptiProfilerHostInitialize")


class NoCuptiError(Exception):
    """There is none that can count, for this reason."""


def loaded_library() -> ctypes.CDLL:
    """The one that PyTorch uses: a second one in the same process would not hear it."""
    path = loaded_path(MAPS.read_text(encoding="utf-8") if MAPS.exists() else "")
    if path is None:
        raise NoCuptiError("this PyTorch comes without CUPTI")
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise NoCuptiError(f"the CUPTI of this PyTorch cannot be loaded: {error}") from error
    if not all(hasattr(library, name) for name in NEEDED):
        raise NoCuptiError("this CUPTI is older than its range profiler (CUDA 12.8)")
    return library


def loaded_path(maps: str) -> str | None:
    """The file of the library, in what /proc says of a process."""
    paths = [line.split(maxsplit=5)[-1] for line in maps.splitlines() if NAME in line]
    return next(iter(paths), None)


def has_cupti() -> bool:
    """Whether there is one, for who need not know why not."""
    try:
        loaded_library()
    except NoCuptiError:
        return False
    return True
