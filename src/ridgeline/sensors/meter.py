"""The records of meters: what they count, of what, and why one is not there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ridgeline.records import Conditions

COUNTER, POWER = "counter", "power"


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """One meter. A counter reads joules since some moment, a power meter reads watts."""

    name: str  # "NVML energy counter"
    scope: str  # what the joules are of: "GPU 0: the whole board"
    kind: str  # COUNTER or POWER
    read: Callable[[], float | None] = field(repr=False)  # None: no answer this time


@dataclass(frozen=True, slots=True, kw_only=True)
class Meters:
    """The meters of a device, the best first, and why others are not there."""

    available: tuple[Meter, ...] = ()
    reasons: tuple[str, ...] = ()
    conditions: Callable[[], Conditions] = field(default=Conditions, repr=False)

    @property
    def counter(self) -> Meter | None:
        """The first that counts joules."""
        return self._first(COUNTER)

    @property
    def power(self) -> Meter | None:
        """The first that tells watts."""
        return self._first(POWER)

    def _first(self, kind: str) -> Meter | None:
        return next((meter for meter in self.available if meter.kind == kind), None)
