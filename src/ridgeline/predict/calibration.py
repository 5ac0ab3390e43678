"""What a machine was measured at: operator points with their samples, host costs and peaks.

A calibration is a file beside the passport, `machines/NAME.calibration.json.gz`. It is written whole
or not at all. Later measurements add to it; a point that was measured again replaces the old one.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.predict.operators import OperatorPoint
from ridgeline.serialize import INLINE, Name, NotNegative, Positive, from_dict, to_dict
from ridgeline.store import whole_file, writing

# History of the format, newest first.
# 1  2026-11-19  points, host costs, peaks, versions, errors of past predictions
CALIBRATION_VERSION = 1
SUFFIX = ".calibration.json.gz"
LARGEST_FILE = 200 << 20  # uncompressed: more is no calibration


@dataclass(frozen=True, kw_only=True)
class CalibrationPoint:
    """An operator point as it was measured."""

    point: OperatorPoint = field(metadata=INLINE)
    samples_s: tuple[Positive, ...]
    clock_hz: float | None = None
    measured_at: str = ""

    @property
    def time_s(self) -> float:
        """Median time of one call."""
        return median(self.samples_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCosts:
    """What the host spends beside the kernels; on a CPU, beside the operators."""

    per_operator_s: NotNegative = 0.0  # Python and dispatch, of an operator without its own figure
    per_step_s: NotNegative = 0.0
    by_operator_s: Mapping[str, NotNegative] = field(default_factory=dict)
    backward_per_operator_s: NotNegative | None = None  # in autograd's thread; None: as forward
    launch_s: NotNegative = 0.0  # of one kernel within its operator
    gap_s: NotNegative = 0.0  # between two kernels of a device that does not wait
    graph_kernel_s: NotNegative = 0.0  # of one kernel in a CUDA graph
    kernels: Mapping[str, NotNegative] = field(default_factory=dict)  # of an operator, if not 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The limits of a device at one precision."""

    precision: str
    burst_flops_per_s: Positive
    sustained_flops_per_s: Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class PastPrediction:
    """A prediction and what was measured later, on this machine."""

    run_id: str
    model: str
    predicted_s: Positive
    measured_s: Positive
    is_inside: bool = False


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """All that predictions of one device need."""

    machine: Name
    device: str  # "cpu", "cuda:0"
    device_name: str = ""
    uuid: str | None = None
    threads: int | None = None
    instruction_set: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)  # of torch, driver, cuDNN
    measured_at: str = ""
    units: int = 1  # multiprocessors, or cores
    memory_bytes: int | None = None
    cache_bytes: int | None = None
    dram_bytes_per_s: float | None = None
    cache_bytes_per_s: float | None = None
    peaks: tuple[Peak, ...] = ()
    host: HostCosts = field(default_factory=HostCosts)
    points: tuple[CalibrationPoint, ...] = ()
    step_errors: tuple[float, ...] = ()  # log(measured/predicted) of whole steps, at calibration
    corrections: Mapping[str, float] = field(default_factory=dict)  # of a kind of operators
    past: tuple[PastPrediction, ...] = ()
    source: str = "measured"  # "imported", or "profile"

    @cached_property
    def times_s(self) -> Mapping[str, float]:
        """Measured time by the key of a point."""
        return {one.point.key: one.time_s for one in self.points}

    def with_points(self, points: Iterable[CalibrationPoint]) -> Calibration:
        """With more points; a newer one replaces that of the same key."""
        merged = {one.point.key: one for one in (*self.points, *points)}
        return replace(self, points=tuple(merged.values()))


def write_calibration(calibration: Calibration, path: Path) -> Path:
    """Write it whole or not at all."""
    content = {"schema_version": CALIBRATION_VERSION, **to_dict(calibration)}
    text = json.dumps(content, separators=(",", ":"))
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            file.write(gzip.compress(text.encode(), mtime=0))
    return path


def read_calibration(path: Path) -> Calibration:
    """The calibration in a file."""
    hint = "calibrate again (`ridgeline machine calibrate`), or restore the file"
    try:
        with gzip.open(path) as file:
            content: Any = json.loads(file.read(LARGEST_FILE))
        version = content.get("schema_version", 0) if isinstance(content, dict) else 0
        if version > CALIBRATION_VERSION:
            raise RidgelineError(
                f"{path} is a calibration of version {version}; this ridgeline reads "
                f"{CALIBRATION_VERSION}",
                hint="update ridgeline",
            )
        return from_dict(Calibration, content)
    except FileNotFoundError:
        raise RidgelineError(
            f"there is no calibration {path}", hint="make one: ridgeline machine calibrate"
        ) from None
    except (OSError, EOFError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise RidgelineError(
            f"{path} cannot be read as a calibration: {error}", hint=hint
        ) from error


@dataclass(frozen=True, slots=True)
class Calibrations:
    """The calibrations of a results folder, beside its passports."""

    results: Path

    @property
    def folder(self) -> Path:
        return self.results / "machines"

    def path(self, name: str) -> Path:
        return self.folder / f"{name}{SUFFIX}"

    def names(self) -> list[str]:
        return sorted(path.name.removesuffix(SUFFIX) for path in self.folder.glob(f"*{SUFFIX}"))

    def write(self, calibration: Calibration) -> Path:
        return write_calibration(calibration, self.path(calibration.machine))

    def read(self, name: str) -> Calibration:
        """By name, or by the path of a file from anywhere."""
        if name.endswith(".gz"):
            return read_calibration(Path(name))
        return read_calibration(self.path(name))
