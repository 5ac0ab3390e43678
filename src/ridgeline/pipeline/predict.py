"""Calibrations of this machine, and predictions of steps that were not run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.errors import RidgelineError
from ridgeline.machine.describe import Description, describe, machine_name
from ridgeline.machine.measure import choose_devices
from ridgeline.measure.worker import torch_needed
from ridgeline.pipeline.count_models import CountOptions, count_one
from ridgeline.pipeline.machine import check_passport_name, passport_name
from ridgeline.predict.calibration import Calibration, Calibrations, PastPrediction
from ridgeline.predict.predict import (
    Prediction,
    is_inside,
    points_to_refine,
    predict_step,
)
from ridgeline.settings import Settings
from ridgeline.store import MeasuredRun, ResultsFolder

if TYPE_CHECKING:
    pass

OnProgress = Callable[[str, float], None]


def ignore_progress(what: str, share: float) -> None:
    """Nobody watches."""


# ---------------------------------------------------------------- calibrating


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRequest:
    """What `ridgeline machine calibrate` measures."""

    backend: str = "auto"
    precisions: tuple[str, ...] = ()  # none: those that the device has
    budget_s: float = 90.0
    groups: tuple[str, ...] = ()
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCalibration:
    """A calibration and what to know about it."""

    calibration: Calibration
    path: Path
    added: int
    refused: tuple[str, ...] = ()
    disturbed: int = 0  # samples that were discarded
    was_interrupted: bool = False


def calibrate_machine(
    request: CalibrationRequest, results: Path, on_progress: OnProgress = ignore_progress
) -> StoredCalibration:
    """Measure points within the budget and store them with those of before.

    Ctrl-C keeps what was measured until then.
    """
    with torch_needed():
        from ridgeline.predict.calibrate import Measured, Plan, calibrate, empty_calibration

    device = find_device(request.backend)
    description = describe()
    name = check_passport_name(
        request.name or passport_name(machine_name(description), description, device)
    )
    calibrations = Calibrations(results)
    fresh = empty_calibration(name, device, description)
    before = calibrations.read(name) if name in calibrations.names() else fresh
    check_same_device(before, fresh)
    precisions = request.precisions or (("fp32",) if device == "cpu" else DEFAULT_PRECISIONS)
    plan = Plan(
        device=device, precisions=precisions, budget_s=request.budget_s, groups=request.groups
    )
    measured = Measured()
    known = replace(fresh, points=before.points, host=before.host, past=before.past,
                    step_errors=before.step_errors, warm_share=before.warm_share)  # fmt: skip
    was_interrupted = False
    try:
        known = calibrate(plan, known, measured, on_progress)
    except KeyboardInterrupt:
        was_interrupted = True
        known = known.with_points(measured.points)
    if not known.points:
        raise KeyboardInterrupt if was_interrupted else _nothing_measured(measured)
    path = calibrations.write(_finish(known))
    return StoredCalibration(
        calibration=known, path=path, added=len(measured.points),
        refused=tuple(measured.refused.values()), disturbed=measured.disturbed,
        was_interrupted=was_interrupted,
    )  # fmt: skip


DEFAULT_PRECISIONS = ("fp32", "tf32", "bf16", "amp")


def _finish(calibration: Calibration) -> Calibration:
    from ridgeline.predict.calibrate import add_peaks

    now = datetime.now().astimezone().isoformat(timespec="seconds")
    return replace(add_peaks(calibration), measured_at=now).fit_curves()


def _nothing_measured(measured: Any) -> RidgelineError:
    reason = next(iter(measured.refused.values()), "the budget was spent before the first one")
    return RidgelineError(
        f"no operator could be measured: {reason}", hint="give it more time: --budget 90s"
    )


def find_device(backend: str) -> str:
    """The device to calibrate: `cpu`, `cuda:0`."""
    names = {"auto": [], "cuda": ["cuda:0"], "cpu": ["cpu"]}.get(backend)
    if names is None:
        raise RidgelineError(
            f"{backend} cannot be calibrated", hint="choose cuda or cpu with --backend"
        )
    return choose_devices(names)[0]


def check_same_device(before: Calibration, now: Calibration) -> None:
    """Refuse to mix the points of two devices of the same name."""
    same = before.uuid == now.uuid or None in (before.uuid, now.uuid)
    if not same or before.device_name != now.device_name or before.threads != now.threads:
        threads = f", {now.threads} threads" if now.threads else ""
        raise RidgelineError(
            f"the calibration {before.machine} is of another device ({before.device_name}"
            f"{f', {before.threads} threads' if before.threads else ''}); this is "
            f"{now.device_name}{threads}",
            hint="keep both: ridgeline machine calibrate --name NAME",
        )


# ---------------------------------------------------------------- predicting


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictRequest:
    """What `ridgeline predict` predicts, on which machines."""

    count: CountOptions
    machines: tuple[str, ...] = ()  # none: this one
    compile_mode: str | None = None
    refine_s: float = 0.0
    layers: bool = False


@dataclass(slots=True)
class PredictOutcome:
    """Everything that was predicted, also if a model failed."""

    predictions: list[Prediction] = field(default_factory=list)
    errors: list[tuple[str, RidgelineError]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def predict_models(
    request: PredictRequest,
    results: Path,
    outcome: PredictOutcome,
    on_progress: Callable[[str], None] = lambda what: None,
) -> None:
    """Count each model at each batch size, and predict its step on each machine."""
    calibrations = [read_machine(name, results) for name in request.machines or (None,)]
    for calibration in calibrations:
        outcome.notes += describe_changes(calibration)
    for model in request.count.models:
        for batch_size in request.count.batch_sizes or (1,):
            on_progress(f"{model}, batch {batch_size}")
            try:
                count = count_one(request.count, model, batch_size)
                for number, calibration in enumerate(calibrations):
                    if request.refine_s:
                        calibrations[number] = calibration = refine(
                            count, calibration, request.refine_s, results
                        )
                    outcome.predictions.append(
                        predict_step(
                            count,
                            calibration,
                            compile_mode=request.compile_mode,
                            with_layers=request.layers,
                        )
                    )
            except RidgelineError as error:
                outcome.errors.append((model, error))
                break


def read_machine(name: str | None, results: Path) -> Calibration:
    """A calibration by its name, or that of this machine."""
    calibrations = Calibrations(results)
    if name is not None:
        return calibrations.read(name)
    description = describe()
    names = own_names(description)
    for one in names:
        if one in calibrations.names():
            return calibrations.read(one)
    raise RidgelineError(
        f"this machine is not calibrated: there is no {calibrations.path(names[0])}",
        hint="ridgeline machine calibrate takes 90 seconds; --on NAME predicts for another machine",
    )


def own_names(description: Description) -> list[str]:
    """Names that a calibration of this machine may have, accelerators first."""
    name = machine_name(description)
    devices = [f"cuda:{gpu.index}" for gpu in description.gpus if gpu.kind == "cuda"]
    return list(dict.fromkeys(passport_name(name, description, d) for d in (*devices, "cpu")))


def describe_changes(calibration: Calibration) -> Iterator[str]:
    """What has changed since this machine was calibrated."""
    if calibration.source != "measured" or not is_here(calibration):
        return
    with suppress(ImportError, RidgelineError):
        from ridgeline.predict.calibrate import find_versions

        now = find_versions(calibration.device)
        for what, version in calibration.versions.items():
            if what in now and now[what] != version:
                yield (
                    f"{calibration.machine} was calibrated with {what} {version}, this is "
                    f"{now[what]}: calibrate again (ridgeline machine calibrate)"
                )


def is_here(calibration: Calibration) -> bool:
    """Whether it is of a device of this machine."""
    return calibration.machine in own_names(describe())


def refine(count: Any, calibration: Calibration, budget_s: float, results: Path) -> Calibration:
    """Measure the points of a step that were not, the least certain first; they are kept."""
    from ridgeline.predict.calibrate import measure_more

    if not is_here(calibration):
        raise RidgelineError(
            f"--refine measures here, and {calibration.machine} is another machine",
            hint="leave out --refine, or run it there",
        )
    prediction = predict_step(count, calibration)
    order = points_to_refine(count, prediction)
    refined = measure_more(calibration, order, budget_s)
    Calibrations(results).write(refined)
    return refined


# ---------------------------------------------------------------- what was measured later


def remember_runs(results: ResultsFolder, calibration: Calibration) -> Calibration:
    """With the errors of predictions of stored runs that this device made since its calibration."""
    known = {one.run_id for one in calibration.past}
    found = list(calibration.past)
    for run in results.index().measured_runs():
        if run.run_id not in known and is_comparable(run, calibration):
            with suppress(RidgelineError):
                found.append(_judge(run, calibration))
    return replace(calibration, past=tuple(found))


def is_comparable(run: MeasuredRun, calibration: Calibration) -> bool:
    """Whether a run was a plain step on the calibrated device."""
    result, request = run.result, run.request
    plain = Settings()
    same = all(
        getattr(request, name) == getattr(plain, name)
        for name in ("compile", "channels_last", "grad_accum_steps", "algorithm")
    )
    return same and result.device_name == calibration.device_name


def _judge(run: MeasuredRun, calibration: Calibration) -> PastPrediction:
    request = run.request
    options = CountOptions(
        models=(request.model,), mode=request.mode, precision=run.result.precision,
        optimizer=request.optimizer, input_sizes=(request.input_size,), seq_len=request.seq_len,
        config=dict(request.config), batch_sizes=(request.batch_size,),
    )  # fmt: skip
    prediction = predict_step(count_one(options, request.model, request.batch_size), calibration)
    measured_s = run.result.step_time_s.median
    return PastPrediction(
        run_id=run.run_id, model=request.model, predicted_s=prediction.time_s,
        measured_s=measured_s, is_inside=is_inside(prediction, measured_s),
    )  # fmt: skip
