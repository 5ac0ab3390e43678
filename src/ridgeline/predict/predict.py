"""The time of a step that was not run: operators, host and device, with an honest interval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ridgeline.predict.calibration import Calibration

MEASURED, INTERPOLATED, EXTRAPOLATED = "measured", "interpolated", "extrapolated"
BORROWED, SCALED = "borrowed", "scaled"
PROVENANCES = (MEASURED, INTERPOLATED, EXTRAPOLATED, BORROWED, SCALED)
CONFIDENCE = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTime:
    """The predicted time of all calls of one point within a module."""

    path: str
    op: str
    phase: str
    calls: int
    time_s: float
    provenance: str  # one of PROVENANCES
    spread: float  # expected |log error|
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTime:
    """The predicted time of a module with all that is in it."""

    path: str
    type: str
    time_s: float
    share: float
    provenance: str  # of most of the time


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """How well earlier predictions on this machine did."""

    n: int = 0
    mean_error: float | None = None
    inside: int = 0  # measured within the interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A step as it is expected to run. The fields are those of the JSON form."""

    model: str
    batch_size: int
    mode: str
    precision: str
    machine: str
    time_s: float
    interval_s: tuple[float, float]
    confidence: float = CONFIDENCE
    kernel_time_s: float  # of all operators on the device
    host_time_s: float  # what the host needs to give them out
    bound: str  # "compute", "memory", "host"
    memory_bytes: int
    fits: bool | None  # None: the memory of the device is not known
    power_w: float | None = None
    energy_j: float | None = None
    provenance: Mapping[str, float] = field(default_factory=dict)  # shares of the kernel time
    past: Past = field(default_factory=Past)
    layers: tuple[LayerTime, ...] = ()
    optimizer: str | None = None
    source: str = "measured"  # of the machine's figures: "scaled from …"
    notes: tuple[str, ...] = ()
    operators: tuple[OperatorTime, ...] = ()

    @property
    def throughput(self) -> float:
        """Samples per second."""
        return self.batch_size / self.time_s


__all__ = ["Calibration", "LayerTime", "OperatorTime", "Past", "Prediction"]
