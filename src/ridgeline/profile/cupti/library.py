"""The library that PyTorch has loaded, and what it refuses."""

from __future__ import annotations

import ctypes
from ctypes import byref
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ridgeline.profile.cupti.structures import Parameters

MAPS = Path("/proc/self/maps")  # what this process has loaded
NAME = "libcupti.so"
NEEDED = ("cuptiRangeProfilerEnable", "cuptiProfilerHostInitialize")
NOT_PERMITTED = "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"
P = TypeVar("P", bound=Parameters)


class RefusedError(Exception):
    """Counting inside of the process is not possible, for this reason."""


@dataclass(frozen=True, slots=True)
class Cupti:
    """Its functions; each answers with a code, and what it finds is in its parameters."""

    library: Any

    def call(self, function: str, parameters: P) -> P:
        """Call a function that takes a structure."""
        parameters.measured()
        self.ask(function, byref(parameters))
        return parameters

    def ask(self, function: str, *arguments: Any) -> None:
        """Call any other."""
        code = getattr(self.library, function)(*arguments)
        if code != 0:
            raise RefusedError(f"{function} answers {self._name_of(code)}")

    @property
    def version(self) -> int:
        found = ctypes.c_uint32()
        self.ask("cuptiGetVersion", byref(found))
        return found.value

    def _name_of(self, code: int) -> str:
        name = ctypes.c_char_p()
        self.library.cuptiGetResultString(code, byref(name))
        return name.value.decode() if name.value else f"error {code}"


def loaded_cupti() -> Cupti:
    """The one that PyTorch has loaded: a second one in the same process would not hear it."""
    path = loaded_path(MAPS.read_text(encoding="utf-8") if MAPS.exists() else "")
    if path is None:
        raise RefusedError("this PyTorch comes without CUPTI")
    library = ctypes.CDLL(path)
    if not all(hasattr(library, name) for name in NEEDED):
        raise RefusedError("this CUPTI is older than its range profiler (CUDA 12.6)")
    return Cupti(library)


def loaded_path(maps: str) -> str | None:
    """The file of the library, in what /proc says of a process."""
    paths = [line.split(maxsplit=5)[-1] for line in maps.splitlines() if NAME in line]
    return next(iter(paths), None)
