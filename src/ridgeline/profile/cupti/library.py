"""The library's functions, and what they refuse."""

from __future__ import annotations

import ctypes
from ctypes import addressof, byref, memmove, sizeof
from dataclasses import dataclass
from typing import Any, TypeVar

from ridgeline.machine.profilers import NoCuptiError, loaded_library
from ridgeline.profile.cupti.structures import Parameters

NOT_PERMITTED = "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"
ROOM_BYTES = 512  # for a structure, whatever a later version writes behind what it is told of
P = TypeVar("P", bound=Parameters)


class RefusedError(Exception):
    """Counting inside of the process is not possible, for this reason."""


@dataclass(frozen=True, slots=True)
class Cupti:
    """Each function answers with a code, and what it finds is in its parameters."""

    library: Any

    def call(self, function: str, parameters: P) -> P:
        """Call a function that takes a structure, and have that back with what it found.

        Versions whose structures are longer than ours clear the rest of theirs, whatever size they
        are told: so the call gets a copy with room behind it.
        """
        parameters.say_size()
        roomy = type(parameters).from_buffer(bytearray(ROOM_BYTES))
        memmove(addressof(roomy), addressof(parameters), sizeof(parameters))
        self.ask(function, byref(roomy))
        return roomy

    def ask(self, function: str, *arguments: Any) -> None:
        """Call any other."""
        try:
            code = getattr(self.library, function)(*arguments)
        except AttributeError as error:
            raise RefusedError(f"this CUPTI has no {function}") from error
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
    """The one that PyTorch has loaded."""
    try:
        return Cupti(loaded_library())
    except NoCuptiError as error:
        raise RefusedError(str(error)) from error
