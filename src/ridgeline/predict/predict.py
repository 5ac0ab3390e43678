"""The time of a step that was not run: operators, host and device, with an honest interval.

Where the time of an operator is from, its provenance:

    measured      this very call was measured at the calibration, or by --refine
    interpolated  calls of nearly these sizes were
    extrapolated  only calls of other sizes were, or none of this operator
    borrowed      the operator was measured in another precision, or in place
    scaled        nothing was measured here: from published or measured limits of the machine
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any

from ridgeline.count.result import ancestors
from ridgeline.predict.allocator import count_faults
from ridgeline.predict.calibration import Calibration, HostCosts, curve_name
from ridgeline.predict.curves import Curve
from ridgeline.predict.intervals import CONFIDENCE, MOST_PAST, expected_error, step_interval
from ridgeline.predict.operators import (
    OPTIMIZER,
    OperatorPoint,
    Use,
    features_of,
    fuse,
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
from ridgeline.roofline.floors import price_of_flop
from ridgeline.serialize import to_dict
from ridgeline.tracing import MODEL
from ridgeline.units import format_percent

if TYPE_CHECKING:
    from ridgeline.count.result import CountResult
    from ridgeline.machine.passport import EnergyModel

MEASURED, INTERPOLATED, EXTRAPOLATED = "measured", "interpolated", "extrapolated"
BORROWED, SCALED = "borrowed", "scaled"
PROVENANCES = (MEASURED, INTERPOLATED, EXTRAPOLATED, BORROWED, SCALED)
MEASURED_SPREAD, BORROWED_SPREAD, UNKNOWN_SPREAD = 0.03, 0.3, 0.5  # expected |log error|
SCALED_SPREAD = 0.6  # published limits missed 41 steps by a factor of 1.3 in the mean, 1.9 at most
HOST_SPREAD, FAULT_SPREAD = 0.2, 0.5
HALVES = ("bf16", "fp16")
HOST_BOUND = 0.6  # a step whose kernels take a smaller share waits for the host
GRAPH_MODES = ("reduce-overhead", "max-autotune")
NAMED_UNKNOWN = 5  # operators that a note names


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
    is_known: bool = True


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

    @property
    def text(self) -> str:
        """Empty without any."""
        if self.mean_error is None:
            return ""
        predictions = "prediction" if self.n == 1 else f"{self.n} predictions"
        return (
            f"last {predictions} on this machine: {format_percent(self.mean_error)} mean error,"
            f" {self.inside} of {self.n} inside the interval"
        )


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
    expected_error: float = 0.0  # expected |log error|
    operators: tuple[OperatorTime, ...] = ()

    @property
    def throughput(self) -> float:
        """Samples per second."""
        return self.batch_size / self.time_s

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; single operators are left out."""
        row = to_dict(self)
        return {name: row[name] for name in row if name not in ("operators", "expected_error")}


# ---------------------------------------------------------------- operators


@dataclass(frozen=True, slots=True)
class PointTime:
    """The time of one point and where it comes from."""

    time_s: float
    provenance: str
    spread: float
    is_known: bool = True  # something of its operator was measured


def estimate_uses(uses: Sequence[Use], calibration: Calibration) -> dict[str, PointTime]:
    return estimate_points({u.point.key: u.point for u in uses}.values(), calibration)


def estimate_points(
    points: Iterable[OperatorPoint], calibration: Calibration
) -> dict[str, PointTime]:
    """Each point by its key: measured, by the curve of its group, or by what is nearest to it."""
    times: dict[str, PointTime] = {}
    groups: dict[str, list[OperatorPoint]] = {}
    for point in points:
        time_s = calibration.times_s.get(point.key)
        if time_s is not None:
            times[point.key] = PointTime(time_s, MEASURED, MEASURED_SPREAD)
        else:
            groups.setdefault(curve_name(point), []).append(point)
    for name, group in groups.items():
        times |= _estimate_group(name, group, calibration)
    if calibration.scaling is None:
        return times
    return {p.key: _scale(times[p.key], calibration.scaling.ratio(p)) for p in points}


def _scale(one: PointTime, ratio: float) -> PointTime:
    return replace(one, time_s=one.time_s * ratio, provenance=SCALED, spread=SCALED_SPREAD)


def _estimate_group(
    name: str, points: Sequence[OperatorPoint], calibration: Calibration
) -> dict[str, PointTime]:
    curve, ratio, borrowed = _find_curve(name, points[0], calibration)
    try:
        features = [features_of(point) for point in points]
        estimates = curve.estimate_many(features) if curve else None
    except ValueError:  # sizes of another number than those of the group
        estimates = None
    if estimates is None:
        return _estimate_unknown(points, calibration)
    return {
        point.key: PointTime(
            one.time_s * ratio, borrowed or one.provenance,
            max(one.spread, BORROWED_SPREAD) if borrowed else one.spread,
        )
        for point, one in zip(points, estimates, strict=True)
    }  # fmt: skip


def _find_curve(
    name: str, point: OperatorPoint, calibration: Calibration
) -> tuple[Curve | None, float, str]:
    """The curve of a group; else of its twin in place, or of another precision by their peaks."""
    if name in calibration.groups:
        return calibration.curve(name), 1.0, ""
    group = point.group
    twin = group.removesuffix(" in place") if group.endswith(" in place") else f"{group} in place"
    if f"{twin}|{point.precision}" in calibration.groups:
        return calibration.curve(f"{twin}|{point.precision}"), 1.0, BORROWED
    is_half = point.precision in HALVES  # as many bytes, and nearly the same kernels
    for other in sorted(calibration.groups, key=lambda one: one.endswith(HALVES) != is_half):
        known, _, precision = other.rpartition("|")
        if known == group:
            mine, its = calibration.peak(point.precision), calibration.peak(precision)
            ratio = 1.0
            if mine and its and point.is_product:
                ratio = its.sustained_flops_per_s / mine.sustained_flops_per_s
            return calibration.curve(other), ratio, BORROWED
    return None, 1.0, ""


def _estimate_unknown(
    points: Sequence[OperatorPoint], calibration: Calibration
) -> dict[str, PointTime]:
    """By all operators of the same kind, by their bytes and FLOPs; else by the limits alone."""
    is_measured = bool(calibration.points)
    curve = calibration.curve_of_kind(points[0].kind, points[0].precision)
    features = [plain_features(p) if is_measured else features_of(p) for p in points]
    source, least = (EXTRAPOLATED, UNKNOWN_SPREAD) if is_measured else (SCALED, SCALED_SPREAD)
    return {
        point.key: PointTime(one.time_s, source, max(one.spread, least), is_known=False)
        for point, one in zip(points, curve.estimate_many(features), strict=True)
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
    energy: EnergyModel | None = None,
) -> Prediction:
    """The step of a count on a calibrated machine."""
    uses = points_of(count) if uses is None else uses
    if compile_mode is not None:
        uses = fuse(count, uses)
    estimates = estimate_uses(uses, calibration)
    schedule = schedule_uses(uses, calibration, estimates, compile_mode)
    fault_s = 0.0
    if calibration.host.page_fault_s and count.storage_changes:  # none of an ONNX file
        fault_s = count_faults(count) * calibration.host.page_fault_s
    schedule = schedule.delayed(fault_s)
    operators = tuple(operator_times(uses, estimates))
    is_scaled = not calibration.points or calibration.scaling is not None
    host_spread = SCALED_SPREAD if is_scaled else HOST_SPREAD
    error = expect_error(operators, schedule, fault_s, host_spread)
    if compile_mode is not None:  # fusion is by a rule
        error = max(error, BORROWED_SPREAD)
    seen = [one.seen for one in (*calibration.steps, *calibration.past)]
    memory_bytes = count.memory.peak_bytes
    power_w, energy_j = find_energy(uses, energy, schedule.time_s, schedule.kernel_s)
    limit_bytes = calibration.memory_bytes
    return Prediction(
        model=count.model,
        batch_size=count.batch_size,
        mode=count.mode,
        precision=count.precision,
        optimizer=count.optimizer if count.mode == "train" else None,
        machine=calibration.machine,
        time_s=schedule.time_s,
        interval_s=step_interval(schedule.time_s, error, seen, widening=widening),
        expected_error=error,
        kernel_time_s=schedule.kernel_s,
        host_time_s=schedule.host_s,
        bound=_find_bound(uses, estimates, schedule, calibration),
        memory_bytes=memory_bytes,
        fits=None if limit_bytes is None else memory_bytes <= limit_bytes,
        power_w=power_w,
        energy_j=energy_j,
        provenance=_sum_shares(operators),
        past=summarise_past(calibration),
        layers=tuple(_list_layers(count, operators)) if with_layers else (),
        source=calibration.source,
        notes=(*count.notes, *_write_notes(operators, calibration, count.precision, compile_mode)),
        operators=operators,
    )


def schedule_uses(
    uses: Sequence[Use],
    calibration: Calibration,
    estimates: Mapping[str, PointTime] | None = None,
    compile_mode: str | None = None,
) -> Schedule:
    """When the calls of a step run on a device."""
    estimates = estimates or estimate_uses(uses, calibration)
    has_scaler = {"fp16", "fp32"} <= {u.point.precision for u in uses}  # it reads a flag back
    operations = [
        Operation(
            op=u.point.op, device_s=estimates[u.point.key].time_s * u.share, repeats=u.repeats,
            is_joined=u.is_joined,
            waits=has_scaler and u.point.kind == OPTIMIZER,
        )
        for u in uses
    ]  # fmt: skip
    is_training = any(phase != "forward" for use in uses for phase in use.shares)
    extra_s = calibration.host.extra_s("train" if is_training else "infer")
    if not calibration.device.startswith("cuda"):
        return schedule_cpu(operations, extra_s)
    if compile_mode in GRAPH_MODES:
        return schedule_graph(operations, calibration.host)
    return schedule_gpu(operations, calibration.host, extra_s)


def operator_times(
    uses: Sequence[Use], estimates: Mapping[str, PointTime]
) -> Iterator[OperatorTime]:
    """One row for each call of a phase and module; equal calls are one row."""
    rows: dict[tuple[str, str, str], list[float]] = {}
    for use in uses:
        for phase, share in use.shares.items():
            row = rows.setdefault((use.path, phase, use.point.key), [0.0, 0.0])
            row[0] += use.repeats
            row[1] += use.repeats * share * estimates[use.point.key].time_s * use.share
    ops = {use.point.key: use.point.op for use in uses}
    for (path, phase, key), (calls, time_s) in rows.items():
        one = estimates[key]
        yield OperatorTime(
            path=path, op=ops[key], phase=phase, calls=int(calls), time_s=time_s,
            provenance=one.provenance, spread=one.spread, key=key, is_known=one.is_known,
        )  # fmt: skip


def _sum_shares(operators: Iterable[OperatorTime]) -> dict[str, float]:
    """The share of the operators' time by provenance."""
    sums: dict[str, float] = {}
    for one in operators:
        sums[one.provenance] = sums.get(one.provenance, 0.0) + one.time_s
    total = sum(sums.values()) or 1.0
    return {name: sums[name] / total for name in PROVENANCES if name in sums}


def _write_notes(
    operators: Sequence[OperatorTime],
    calibration: Calibration,
    precision: str,
    compile_mode: str | None,
) -> Iterator[str]:
    """What a reader of the time has to know about it."""
    if compile_mode is not None:
        yield "the compiler's fusion is predicted by a rule: what a run of small operators moves"
    if not calibration.points or calibration.scaling is not None:
        yield f"{calibration.machine} is {calibration.source}: nothing was measured with operators"
        return
    if calibration.host == HostCosts():
        yield "the host was not measured: give `ridgeline machine calibrate` more time"
    total = sum(one.time_s for one in operators) or 1.0
    unknown: dict[str, float] = {}
    for one in operators:
        if not one.is_known:
            unknown[one.op] = unknown.get(one.op, 0.0) + one.time_s / total
    if unknown:
        names = sorted(unknown, key=lambda op: -unknown[op])
        more = f" and {len(names) - NAMED_UNKNOWN} more" if len(names) > NAMED_UNKNOWN else ""
        yield (
            f"{format_percent(sum(unknown.values()))} of the time is of operators of which nothing"
            f" was measured ({', '.join(names[:NAMED_UNKNOWN])}{more}): by their bytes and FLOPs"
        )
    if any(one.provenance == BORROWED for one in operators) and precision != "fp32":
        yield (
            f"operators that were not measured in {precision} are borrowed from another precision:"
            f" `ridgeline machine calibrate --precision {precision}`"
        )


def _find_bound(
    uses: Sequence[Use],
    estimates: Mapping[str, PointTime],
    schedule: Schedule,
    calibration: Calibration,
) -> str:
    """What most of the time waits for."""
    if schedule.kernel_s < HOST_BOUND * schedule.time_s:
        return "host"
    limits = {name: calibration.limits(name) for name in {u.point.precision for u in uses}}
    compute_s = memory_s = 0.0
    for use in uses:
        limit = limits[use.point.precision]
        time_s = estimates[use.point.key].time_s * use.repeats
        flops_s = use.point.flops / limit.flops_per_s
        if flops_s > use.point.moved_bytes / limit.dram_bytes_per_s:
            compute_s += time_s
        else:
            memory_s += time_s
    return "compute" if compute_s >= memory_s else "memory"


def _list_layers(count: CountResult, operators: Sequence[OperatorTime]) -> Iterator[LayerTime]:
    """Every module with all that is in it, in the order of the count."""
    times: dict[str, dict[str, float]] = {}
    for one in operators:
        for path in ancestors(one.path):
            by = times.setdefault(path, {})
            by[one.provenance] = by.get(one.provenance, 0.0) + one.time_s
    total = sum(times.get("", {}).values()) or 1.0
    places = {path: place for place, path in enumerate(count.modules)}
    for path in sorted(times, key=lambda path: places.get(path, -1)):
        by, call = times[path], count.modules.get(path)
        time_s = sum(by.values())
        yield LayerTime(
            path=path or MODEL, type=call.type_name if call else "", time_s=time_s,
            share=time_s / total, provenance=max(by, key=lambda name: by[name]),
        )  # fmt: skip


def find_energy(
    uses: Iterable[Use], model: EnergyModel | None, time_s: float, kernel_s: float = 0.0
) -> tuple[float | None, float | None]:
    """Watts and joules of a step; None where the machine has no prices of its work."""
    if model is None:
        return None, None
    byte = model.j_per_byte.get("dram")
    busy_w = model.working_power_w - model.constant_power_w.value
    energy_j = model.constant_power_w.value * time_s + busy_w * min(time_s, kernel_s)
    for use in uses:
        price = price_of_flop(model, use.point.precision) if use.point.flops else 0.0
        if price is None and use.point.is_product:
            return None, None
        energy_j += use.repeats * use.point.flops * (price or 0.0)
        energy_j += use.repeats * use.point.moved_bytes * (byte.value if byte else 0.0)
    power_w = min(energy_j / time_s, model.power_cap_w or inf)
    return power_w, power_w * time_s


# ---------------------------------------------------------------- interval


def expect_error(
    operators: Sequence[OperatorTime],
    schedule: Schedule,
    fault_s: float = 0.0,
    host_spread: float = HOST_SPREAD,
) -> float:
    """Expected |log error| of a step, from those of its operators, its host and its pages."""
    parts = [(one.time_s, one.spread) for one in operators]
    parts += [(max(0.0, schedule.time_s - schedule.kernel_s - fault_s), host_spread)]
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


# ---------------------------------------------------------------- refine


def points_to_refine(uses: Iterable[Use], prediction: Prediction) -> list[OperatorPoint]:
    """The points that were not measured, those first whose time is least certain."""
    unsure: dict[str, float] = {}
    for one in prediction.operators:
        if one.provenance != MEASURED:
            unsure[one.key] = unsure.get(one.key, 0.0) + one.time_s * one.spread
    points = {use.point.key: use.point for use in uses}
    return [points[key] for key in sorted(unsure, key=lambda k: -unsure[k])]


def is_inside(prediction: Prediction, measured_s: float) -> bool:
    low, high = prediction.interval_s
    return low <= measured_s <= high
