"""The CUPTI that PyTorch has loaded into this process, if it can count."""

from __future__ import annotations

import ctypes
from pathlib import Path

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
