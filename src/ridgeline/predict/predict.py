"""The time of a step that was not run: operators, host and device, with an honest interval."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ridgeline.count.result import ancestors
from ridgeline.predict.allocator import count_faults
from ridgeline.predict.calibration import Calibration, curve_name
from ridgeline.predict.curves import Curve
from ridgeline.predict.intervals import CONFIDENCE, MOST_PAST, expected_error, step_interval
from ridgeline.predict.operators import (
    OPTIMIZER,
    OperatorPoint,
    Use,
    features_of,
    plain_features,
    points_of,
)
from ridgeline.predict.timeline import (
    Operation,
    Schedule,
    schedule_cpu,
    schedule_gpu,
    schedule_graph,
)
from ridgeline.tracing import MODEL

if TYPE_CHECKING:
    from ridgeline.count.result import CountResult

MEASURED, INTERPOLATED, EXTRAPOLATED = "measured", "interpolated", "extrapolated"
BORROWED, SCALED = "borrowed", "scaled"
PROVENANCES = (MEASURED, INTERPOLATED, EXTRAPOLATED, BORROWED, SCALED)
MEASURED_SPREAD, BORROWED_SPREAD, UNKNOWN_SPREAD = 0.03, 0.3, 0.5  # expected |log error|
HOST_SPREAD, FAULT_SPREAD = 0.2, 0.5
HOST_BOUND = 0.6  # a step whose kernels take a smaller share waits for the host
GRAPH_MODES = ("reduce-overhead", "max-autotune")
ALLOCATION_BYTES = 512  # PyTorch's allocator on a GPU rounds up to it


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
    expected_error: float = 0.0  # expected |log error|
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


# ---------------------------------------------------------------- operators


@dataclass(frozen=True, slots=True)
class _Estimated:
    """The time of one point and where it comes from."""

    time_s: float
    provenance: str
    spread: float


def estimate_points(
    points: Iterable[OperatorPoint], calibration: Calibration
) -> dict[str, _Estimated]:
    """Each point by its key: measured, by the curve of its group, or by what is nearest to it."""
    found: dict[str, _Estimated] = {}
    open_groups: dict[str, list[OperatorPoint]] = {}
    for point in points:
        time_s = calibration.times_s.get(point.key)
        if time_s is not None:
            found[point.key] = _Estimated(time_s, MEASURED, MEASURED_SPREAD)
        else:
            open_groups.setdefault(curve_name(point), []).append(point)
    for name, group in open_groups.items():
        found |= _estimate_group(name, group, calibration)
    return found


def _estimate_group(
    name: str, points: Sequence[OperatorPoint], calibration: Calibration
) -> dict[str, _Estimated]:
    curve, ratio, provenance = _find_curve(name, points[0], calibration)
    if curve is None:
        return _estimate_unknown(points, calibration)
    try:
        estimates = curve.estimate_many([features_of(point) for point in points])
    except ValueError:  # sizes of another number than those of the group
        return _estimate_unknown(points, calibration)
    return {
        point.key: _Estimated(
            one.time_s * ratio, provenance or one.provenance,
            max(one.spread, BORROWED_SPREAD) if provenance else one.spread,
        )
        for point, one in zip(points, estimates, strict=True)
    }  # fmt: skip


def _find_curve(
    name: str, point: OperatorPoint, calibration: Calibration
) -> tuple[Curve | None, float, str]:
    """The curve of a group, or that of another precision with the ratio of their peaks."""
    curve = calibration.curve(name)
    if curve is not None:
        return curve, 1.0, ""
    for other in calibration.groups:
        group, _, precision = other.rpartition("|")
        if group == point.group:
            mine, its = calibration.peak(point.precision), calibration.peak(precision)
            ratio = 1.0
            if mine and its and point.kind in ("conv", "matmul", "attention"):
                ratio = its.sustained_flops_per_s / mine.sustained_flops_per_s
            return calibration.curve(other), ratio, BORROWED
    return None, 1.0, ""


def _estimate_unknown(
    points: Sequence[OperatorPoint], calibration: Calibration
) -> dict[str, _Estimated]:
    """By all operators of the same kind, by their bytes and FLOPs; else by the limits alone."""
    curve = calibration.curve_of_kind(points[0].kind, points[0].precision)
    estimates = curve.estimate_many([plain_features(point) for point in points])
    return {
        point.key: _Estimated(one.time_s, EXTRAPOLATED, max(one.spread, UNKNOWN_SPREAD))
        for point, one in zip(points, estimates, strict=True)
    }


# ---------------------------------------------------------------- the step


def predict_step(
    count: CountResult,
    calibration: Calibration,
    *,
    uses: Sequence[Use] | None = None,
    compile_mode: str | None = None,
    with_layers: bool = False,
    widening: float = 1.0,
) -> Prediction:
    """The step of a count on a calibrated machine."""
    uses = points_of(count) if uses is None else uses
    estimates = estimate_uses(uses, calibration)
    schedule = schedule_uses(uses, calibration, estimates, compile_mode)
    fault_s = count_faults(count) * calibration.host.page_fault_s
    schedule = schedule.delayed(fault_s)
    operators = tuple(operator_times(uses, estimates))
    past = summarise_past(calibration)
    error = expect_error(operators, schedule, fault_s)
    seen = [one.seen for one in (*calibration.steps, *calibration.past)]
    interval_s = step_interval(schedule.time_s, error, seen, widening=widening)
    memory_bytes = find_memory_bytes(count, calibration.device)
    return Prediction(
        model=count.model,
        batch_size=count.batch_size,
        mode=count.mode,
        precision=count.precision,
        optimizer=count.optimizer,
        machine=calibration.machine,
        time_s=schedule.time_s,
        interval_s=interval_s,
        expected_error=error,
        kernel_time_s=schedule.kernel_s,
        host_time_s=schedule.host_s,
        bound=_bound(uses, estimates, schedule, calibration),
        memory_bytes=memory_bytes,
        fits=fits(memory_bytes, calibration.memory_bytes),
        provenance=_shares(operators),
        past=past,
        layers=tuple(_layers(count, operators)) if with_layers else (),
        source=calibration.source,
        notes=count.notes,
        operators=operators,
    )


def estimate_uses(uses: Sequence[Use], calibration: Calibration) -> dict[str, _Estimated]:
    return estimate_points({u.point.key: u.point for u in uses}.values(), calibration)


def schedule_uses(
    uses: Sequence[Use],
    calibration: Calibration,
    estimates: Mapping[str, _Estimated] | None = None,
    compile_mode: str | None = None,
) -> Schedule:
    """When the calls of a step run on a device."""
    estimates = estimates or estimate_uses(uses, calibration)
    has_scaler = {"fp16", "fp32"} <= {u.point.precision for u in uses}  # it reads a flag back
    operations = [
        Operation(
            op=u.point.op, device_s=estimates[u.point.key].time_s, repeats=u.repeats,
            waits=has_scaler and u.point.kind == OPTIMIZER,
        )
        for u in uses
    ]  # fmt: skip
    is_training = any(phase != "forward" for use in uses for phase in use.shares)
    beside_s = calibration.host.beside_s("train" if is_training else "infer")
    if not calibration.device.startswith("cuda"):
        return schedule_cpu(operations, beside_s)
    if compile_mode in GRAPH_MODES:
        return schedule_graph(operations, calibration.host)
    return schedule_gpu(operations, calibration.host, beside_s)


def operator_times(
    uses: Sequence[Use], estimates: Mapping[str, _Estimated]
) -> Iterator[OperatorTime]:
    """One row for each call of a phase and module; equal calls are one row."""
    rows: dict[tuple[str, str, str], list[float]] = {}
    for use in uses:
        for phase, share in use.shares.items():
            row = rows.setdefault((use.path, phase, use.point.key), [0.0, 0.0])
            row[0] += use.repeats
            row[1] += use.repeats * share * estimates[use.point.key].time_s
    ops = {use.point.key: use.point.op for use in uses}
    for (path, phase, key), (calls, time_s) in rows.items():
        one = estimates[key]
        yield OperatorTime(
            path=path, op=ops[key], phase=phase, calls=int(calls), time_s=time_s,
            provenance=one.provenance, spread=one.spread, key=key,
        )  # fmt: skip


def _shares(operators: Iterable[OperatorTime]) -> dict[str, float]:
    """The share of the operators' time by provenance."""
    sums: dict[str, float] = {}
    for one in operators:
        sums[one.provenance] = sums.get(one.provenance, 0.0) + one.time_s
    total = sum(sums.values()) or 1.0
    return {name: sums[name] / total for name in PROVENANCES if name in sums}


def _bound(
    uses: Sequence[Use],
    estimates: Mapping[str, _Estimated],
    schedule: Schedule,
    calibration: Calibration,
) -> str:
    """What most of the time waits for."""
    if schedule.kernel_s < HOST_BOUND * schedule.time_s:
        return "host"
    compute_s = memory_s = 0.0
    for use in uses:
        limits = calibration.limits(use.point.precision)
        time_s = estimates[use.point.key].time_s * use.repeats
        flops_s = use.point.flops / limits.flops_per_s
        if flops_s > use.point.moved_bytes / limits.dram_bytes_per_s:
            compute_s += time_s
        else:
            memory_s += time_s
    return "compute" if compute_s >= memory_s else "memory"


def _layers(count: CountResult, operators: Sequence[OperatorTime]) -> Iterator[LayerTime]:
    """Every module with all that is in it, in the order of the count."""
    times: dict[str, float] = {}
    sources: dict[str, dict[str, float]] = {}
    for one in operators:
        for path in ancestors(one.path):
            times[path] = times.get(path, 0.0) + one.time_s
            by = sources.setdefault(path, {})
            by[one.provenance] = by.get(one.provenance, 0.0) + one.time_s
    total = times.get("") or 1.0
    for path in sorted(times, key=lambda p: list(count.modules).index(p) if p in count.modules
                       else -1):  # fmt: skip
        by = sources[path]
        call = count.modules.get(path)
        yield LayerTime(
            path=path or MODEL, type=call.type_name if call else "", time_s=times[path],
            share=times[path] / total, provenance=max(by, key=lambda name: by[name]),
        )  # fmt: skip


# ---------------------------------------------------------------- interval


def expect_error(
    operators: Sequence[OperatorTime], schedule: Schedule, fault_s: float = 0.0
) -> float:
    """Expected |log error| of a step, from those of its operators, its host and its pages."""
    parts = [(one.time_s, one.spread) for one in operators]
    parts += [(max(0.0, schedule.time_s - schedule.kernel_s - fault_s), HOST_SPREAD)]
    parts += [(fault_s, FAULT_SPREAD)]
    return expected_error([time_s for time_s, _ in parts], [spread for _, spread in parts])


def summarise_past(calibration: Calibration) -> Past:
    """How well earlier predictions did."""
    past = calibration.past[-MOST_PAST:]
    if not past:
        return Past()
    errors = [abs(p.predicted_s / p.measured_s - 1) for p in past]
    return Past(
        n=len(past), mean_error=sum(errors) / len(errors), inside=sum(p.is_inside for p in past)
    )


# ---------------------------------------------------------------- memory


def find_memory_bytes(count: CountResult, device: str) -> int:
    """The peak of the count with what an allocator adds."""
    peak = count.memory.peak_bytes
    if not device.startswith("cuda"):
        return peak
    tensors = len(count.storage_bytes)
    return peak + tensors * ALLOCATION_BYTES // 2


def fits(memory_bytes: int, limit_bytes: int | None) -> bool | None:
    return None if limit_bytes is None else memory_bytes <= limit_bytes


# ---------------------------------------------------------------- refine


def points_to_refine(count: CountResult, prediction: Prediction) -> list[OperatorPoint]:
    """The points that were not measured, those first whose time is least certain."""
    unsure: dict[str, float] = {}
    for one in prediction.operators:
        if one.provenance != MEASURED:
            unsure[one.key] = unsure.get(one.key, 0.0) + one.time_s * one.spread
    points = {use.point.key: use.point for use in points_of(count)}
    return [points[key] for key in sorted(unsure, key=lambda k: -unsure[k])]


def is_inside(prediction: Prediction, measured_s: float) -> bool:
    low, high = prediction.interval_s
    return low <= measured_s <= high
