"""What a machine was measured at: operator points with their samples, host costs and peaks.

A calibration is a file beside the passport, `machines/NAME.calibration.json.gz`. It is written
whole or not at all. Later measurements add to it; a newer point replaces an older one.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import log
from pathlib import Path
from statistics import median
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.predict.curves import Curve, Fit, Limits, fit_curve
from ridgeline.predict.intervals import LEAST_ERROR
from ridgeline.predict.operators import OperatorPoint, features_of, plain_features
from ridgeline.roofline.roofs import Roofs
from ridgeline.serialize import (
    INLINE,
    Name,
    NotNegative,
    Positive,
    from_dict,
    to_dict,
)
from ridgeline.store import whole_file, writing

# History of the format, newest first.
# 1  2026-11-19  points, host costs, peaks, versions, errors of past predictions
CALIBRATION_VERSION = 1
SUFFIX = ".calibration.json.gz"
LARGEST_FILE = 200 << 20  # uncompressed: more is no calibration
MOST_ALIKE = 60
FEW = 4  # points of a group, below which leaving one out says nothing
FLOPS_PER_S, BYTES_PER_S = 1e12, 1e11  # of a device of which nothing is known


def curve_name(point: OperatorPoint) -> str:
    return f"{point.group}|{point.precision}"


@dataclass(frozen=True, kw_only=True)
class CalibrationPoint:
    """An operator point as it was measured."""

    point: OperatorPoint = field(metadata=INLINE)
    samples_s: tuple[Positive, ...]
    warm_s: float | None = None  # GPU: on the operands of the call before
    clock_hz: float | None = None
    measured_at: str = ""

    @property
    def time_s(self) -> float:
        """Median time of one call."""
        return median(self.samples_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCosts:
    """What the host spends: on a CPU beside the operators, on a GPU to give them out."""

    by_operator_s: Mapping[str, NotNegative] = field(default_factory=dict)  # GPU: until its launch
    per_operator_s: NotNegative = 0.0  # modules and views, for each operator of an inference
    train_per_operator_s: NotNegative = 0.0  # and autograd, for each operator of training
    gap_s: NotNegative = 0.0  # between two kernels, where the host is ahead
    graph_kernel_s: NotNegative = 0.0  # of one kernel in a CUDA graph
    page_fault_s: NotNegative = 0.0  # CPU with glibc: of a page that the system hands out anew

    def extra_s(self, mode: str) -> float:
        """What an operator costs beside its own call."""
        return self.per_operator_s if mode == "infer" else self.train_per_operator_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The limits of a device at one precision."""

    precision: str
    burst_flops_per_s: Positive
    sustained_flops_per_s: Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class PastPrediction:
    """A prediction and what was measured, on this machine."""

    run_id: str = ""  # of a stored run; empty: a step of the calibration
    model: str
    predicted_s: Positive
    measured_s: Positive
    expected_error: float  # expected |log error| of the prediction
    is_inside: bool = False

    @property
    def score(self) -> float:
        """The error in units of the expected one."""
        return abs(log(self.measured_s / self.predicted_s)) / max(self.expected_error, LEAST_ERROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """What another device is to the one that was calibrated: its limits over those here."""

    here: Mapping[str, Limits]  # by precision
    there: Mapping[str, Limits]

    def ratio(self, point: OperatorPoint) -> float:
        """The time there for each second here, by the limit that holds it up."""
        times = []
        for by_precision in (self.there, self.here):
            limits = by_precision.get(point.precision) or by_precision["fp32"]
            work_s = (point.flops / limits.flops_per_s, point.moved_bytes / limits.dram_bytes_per_s)
            times.append(max(*work_s, limits.floor_s))
        return times[0] / times[1]


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
    floor_s: float = 1e-6  # of an operator that has next to nothing to do
    dram_bytes_per_s: float | None = None
    cache_bytes_per_s: float | None = None
    peaks: tuple[Peak, ...] = ()
    host: HostCosts = field(default_factory=HostCosts)
    points: tuple[CalibrationPoint, ...] = ()
    curves: Mapping[str, Fit] = field(default_factory=dict)  # by "group|precision"
    operator_errors: tuple[float, ...] = ()  # log(measured/estimated), each without its own point
    steps: tuple[PastPrediction, ...] = ()  # of a few networks, at the calibration
    warm_share: float = 0.5  # of a call's gain from warm caches that a step sees
    past: tuple[PastPrediction, ...] = ()
    source: str = "measured"  # or "scaled from …"
    ceilings: Mapping[str, float] = field(default_factory=dict)  # of the passport at that time
    scaling: Scaling | None = None

    @cached_property
    def times_s(self) -> Mapping[str, float]:
        """Measured time by the key of a point."""
        return {one.point.key: self.time_s(one) for one in self.points}

    def time_s(self, one: CalibrationPoint) -> float:
        """What a call takes within a step, where some of its operands are in a cache."""
        if one.warm_s is None or one.warm_s >= one.time_s:
            return one.time_s
        return one.time_s + self.warm_share * (one.warm_s - one.time_s)

    def peak(self, precision: str) -> Peak | None:
        return next((one for one in self.peaks if one.precision == precision), None)

    def limits(self, precision: str) -> Limits:
        """What a curve of a precision starts from; of an unknown one, from the nearest known."""
        known = self.peak(precision) or max(
            self.peaks, key=lambda p: p.sustained_flops_per_s, default=None
        )
        return Limits(
            flops_per_s=known.sustained_flops_per_s if known else FLOPS_PER_S,
            dram_bytes_per_s=self.dram_bytes_per_s or BYTES_PER_S,
            cache_bytes_per_s=self.cache_bytes_per_s,
            cache_bytes=self.cache_bytes,
            units=self.units,
            floor_s=self.floor_s,
        )

    @cached_property
    def groups(self) -> Mapping[str, tuple[CalibrationPoint, ...]]:
        """The points of each curve, by the name that `curve_name` gives it."""
        found: dict[str, list[CalibrationPoint]] = {}
        for one in self.points:
            found.setdefault(curve_name(one.point), []).append(one)
        return {name: tuple(points) for name, points in found.items()}

    def fit_curves(self) -> Calibration:
        """With a fit for each group; the errors that show without a point are kept."""
        curves: dict[str, Fit] = {}
        errors: list[float] = []
        for name, points in self.groups.items():
            curve = self._make_curve(points)
            curves[name] = curve.fit
            errors += (-curve.leave_one_out()).tolist() if len(points) >= FEW else []
        return replace(self, curves=curves, operator_errors=tuple(errors))

    def curve_of_kind(self, kind: str, precision: str) -> Curve:
        """By bytes and FLOPs alone, from all operators of a kind; of an unknown kind, pointwise."""
        name = f"{kind}||{precision}"
        if name not in self._curve_cache:
            alike = [one for one in self.points if one.point.kind == kind]
            alike = alike or [one for one in self.points if one.point.kind == "pointwise"]
            chosen = alike[:: max(1, len(alike) // MOST_ALIKE)]
            features = [plain_features(one.point) for one in chosen]
            times_s = [self.time_s(one) for one in chosen]
            self._curve_cache[name] = fit_curve(features, times_s, self.limits(precision))
        return self._curve_cache[name]

    @cached_property
    def _curve_cache(self) -> dict[str, Curve]:
        return {}

    def curve(self, name: str) -> Curve:
        """The curve of a group of which something was measured."""
        if name not in self._curve_cache:
            self._curve_cache[name] = self._make_curve(self.groups[name], self.curves.get(name))
        return self._curve_cache[name]

    def _make_curve(self, points: Sequence[CalibrationPoint], fit: Fit | None = None) -> Curve:
        features = tuple(features_of(one.point) for one in points)
        times_s = tuple(self.time_s(one) for one in points)
        if fit is not None:
            return Curve(features, times_s, fit)
        return fit_curve(features, times_s, self.limits(points[0].point.precision))

    def with_points(self, points: Iterable[CalibrationPoint]) -> Calibration:
        """With more points; a newer one replaces that of the same key."""
        merged = {one.point.key: one for one in (*self.points, *points)}
        return replace(self, points=tuple(merged.values()))


# ---------------------------------------------------------------- without measured operators


def calibration_of_roofs(
    roofs: Roofs, *, source: str, units: int, memory_bytes: int | None
) -> Calibration:
    """What a device may do of which only the limits are known."""
    peaks = {
        name: roofs.peak(name, "matrix") or roofs.peak(name, "vector")
        for name in ("fp64", "fp32", "tf32", "bf16", "fp16")
    }
    host_s = roofs.launch_s.get("eager dispatch", USUAL_HOST_S)
    is_cpu = roofs.device == "cpu"
    host = HostCosts(
        per_operator_s=host_s, train_per_operator_s=3 * host_s,
        gap_s=0.0 if is_cpu else USUAL_GAP_S, graph_kernel_s=0.0 if is_cpu else USUAL_GAP_S,
    )  # fmt: skip
    return Calibration(
        machine=roofs.env,
        device=roofs.device,
        device_name=roofs.device_name,
        units=units,
        memory_bytes=memory_bytes,
        cache_bytes=roofs.cache_bytes,
        floor_s=roofs.launch() or USUAL_FLOOR_S,
        dram_bytes_per_s=roofs.bandwidth.get("dram"),
        cache_bytes_per_s=roofs.bandwidth.get(roofs.cache_level or ""),
        peaks=tuple(
            Peak(precision=name, burst_flops_per_s=rate, sustained_flops_per_s=rate)
            for name, rate in peaks.items()
            if rate
        ),
        host=host,
        source=source,
    )


# What a device takes of which nothing else is known: the host for an operator, the device between
# two kernels and for the smallest one.
USUAL_HOST_S, USUAL_GAP_S, USUAL_FLOOR_S = 1e-5, 1e-6, 3e-6


def scale_calibration(
    calibration: Calibration, here: Calibration, there: Calibration, source: str
) -> Calibration:
    """A calibrated device's times on another one, by the known limits of both."""
    names = [one.precision for one in there.peaks]
    limits = {name: there.limits(name) for name in names}
    scaling = Scaling(here={name: here.limits(name) for name in names}, there=limits)
    return replace(
        calibration, machine=there.machine, device_name=there.device_name, uuid=None,
        memory_bytes=there.memory_bytes, steps=(), past=(), source=source, scaling=scaling,
    )  # fmt: skip


# ---------------------------------------------------------------- files


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
    hint = "restore the file; or delete it and calibrate again: ridgeline machine calibrate"
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
