"""Calibrations of this machine, and predictions of steps that were not run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.count.records import Settings as CountSettings
from ridgeline.errors import RidgelineError
from ridgeline.machine.describe import Description, describe, machine_name
from ridgeline.machine.measure import choose_devices
from ridgeline.measure.worker import torch_needed
from ridgeline.pipeline.cases import Selection
from ridgeline.pipeline.count_models import CountOptions, ModuleWork, count_one
from ridgeline.pipeline.machine import check_passport_name, passport_name
from ridgeline.predict.calibration import Calibration, Calibrations, PastPrediction
from ridgeline.predict.intervals import Widening, find_widening
from ridgeline.predict.predict import (
    Prediction,
    is_inside,
    points_to_refine,
    predict_step,
)
from ridgeline.predict.stored import PLAIN, store_prediction
from ridgeline.records import CountRequest, WorkloadSpec
from ridgeline.settings import Settings
from ridgeline.store import MeasuredRun, ResultsFolder
from ridgeline.workloads.sources import file_digest, is_onnx

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
                    steps=before.steps, warm_share=before.warm_share)  # fmt: skip
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


GRAPHS = "reduce-overhead"  # of the compiler: CUDA graphs
DEFAULT_PRECISIONS = ("fp32", "tf32", "bf16", "amp")


def _finish(calibration: Calibration) -> Calibration:
    from ridgeline.predict.calibrate import add_peaks

    return replace(add_peaks(calibration), measured_at=_now()).fit_curves()


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
    changes = [find_changes(calibration) for calibration in calibrations]
    outcome.notes += [reason for one in changes for reason in one.reasons]
    if not request.machines:
        calibrations = [remember_runs(results, one, on_progress) for one in calibrations]
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
                    found = predict_step(
                        count,
                        calibration,
                        compile_mode=request.compile_mode,
                        with_layers=request.layers,
                        widening=changes[number].factor,
                    )
                    outcome.predictions.append(found)
                    if not is_onnx(model):
                        spec = request.count.spec(model, batch_size)
                        _keep(request, spec, found, calibration, results)
            except RidgelineError as error:
                outcome.errors.append((model, error))
                break


def _keep(
    request: PredictRequest,
    spec: WorkloadSpec,
    found: Prediction,
    calibration: Calibration,
    results: Path,
) -> None:
    """Store a prediction for the report, where there are results already."""
    options = request.count
    if results.is_dir():
        of = CountRequest(
            **vars(spec), digest=file_digest(spec.model),
            precision=options.precision, optimizer=options.optimizer,
        )  # fmt: skip
        store_prediction(
            results, of, found, calibration, made_at=_now(), compile_mode=request.compile_mode
        )


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


def find_changes(calibration: Calibration) -> Widening:
    """What has changed since this machine was calibrated, and by how much intervals grow."""
    if calibration.source == "measured" and is_here(calibration):
        with suppress(ImportError, RidgelineError):
            from ridgeline.predict.calibrate import find_versions

            return find_widening(calibration.versions, find_versions(calibration.device))
    return Widening()


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


# ---------------------------------------------------------------- for an analysis


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictTask:
    """The steps that will run, to be predicted before they do."""

    results: Path
    selection: Selection
    batch_sizes: Mapping[str, tuple[int, ...]]  # by model
    device: str
    module: ModuleWork | None = None


def find_calibration(results: Path, device: str) -> Calibration | None:
    """That of a device of this machine; None where it was not calibrated."""
    description, calibrations = describe(), Calibrations(results)
    name = passport_name(machine_name(description), description, device)
    return calibrations.read(name) if name in calibrations.names() else None


def predict_task(task: PredictTask, send: Callable[[str], None]) -> int:
    """Predict and store every step of an analysis, and what would change it; how many there are."""
    from ridgeline.count.counting import count_workload
    from ridgeline.measure.backends import choose_backend, choose_precision

    calibration = find_calibration(task.results, task.device)
    if calibration is None:
        return 0
    counter = task.module.counter if task.module else count_workload
    digest = task.module.digest if task.module else None
    predicted = 0
    for spec, settings in product(task.selection.specs(), task.selection.settings):
        if any(getattr(settings, name) != getattr(Settings(), name) for name in PLAIN):
            continue
        backend = choose_backend(settings.backend, settings.device)
        used = choose_precision(settings.precision, backend).used
        batches = task.batch_sizes.get(spec.model, (1,))
        steps = [_Step(batch, used, settings.compile) for batch in batches]
        for step in [*steps, *_what_ifs(steps[-1], task)]:
            send(f"{spec.model}, batch {step.batch_size}")
            request = CountRequest(
                **vars(replace(spec, batch_size=step.batch_size)),
                digest=digest or file_digest(spec.model),
                precision=step.precision, optimizer=settings.optimizer,
            )  # fmt: skip
            count = counter(request.workload, _counting(request))
            found = predict_step(count, calibration, compile_mode=step.compile_mode)
            store_prediction(
                task.results, request, found, calibration, made_at=_now(),
                compile_mode=step.compile_mode, what_if=step.what_if,
            )  # fmt: skip
            predicted += 1
    return predicted


@dataclass(frozen=True, slots=True)
class _Step:
    """What distinguishes the predicted steps of a model."""

    batch_size: int
    precision: str
    compile_mode: str | None
    what_if: str = ""


def _what_ifs(step: _Step, task: PredictTask) -> list[_Step]:
    """Changes of a step that nobody asked to run."""
    changes = []
    if task.module is None:  # a module has inputs of one batch
        changes.append(replace(step, batch_size=2 * step.batch_size, what_if="batch x2"))
    if task.device.startswith("cuda"):
        if step.precision == "fp32":
            changes.append(replace(step, precision="amp", what_if="amp"))
        if step.compile_mode is None:
            changes.append(replace(step, compile_mode=GRAPHS, what_if="CUDA graphs"))
    return changes


def _counting(request: CountRequest) -> CountSettings:
    return CountSettings(
        mode=request.mode, precision=request.precision, optimizer=request.optimizer or "sgd"
    )


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")


# ---------------------------------------------------------------- what was measured later


def remember_runs(
    results: Path, calibration: Calibration, on_progress: Callable[[str], None]
) -> Calibration:
    """With the errors of predictions of the newest runs that this device made; they are stored."""
    known = {one.run_id for one in calibration.past}
    runs = [
        run
        for run in ResultsFolder(results).index().runs
        if run.run_id not in known and _is_plain(run, calibration)
    ]
    found = []
    for run in runs[-MOST_JUDGED:]:
        on_progress(f"earlier run of {run.request.model}")
        with suppress(RidgelineError):
            found.append(_judge(run, calibration))
    if not found:
        return calibration
    remembered = replace(calibration, past=(*calibration.past, *found))
    Calibrations(results).write(remembered)
    return remembered


MOST_JUDGED = 10  # runs at a time: each is counted


def _is_plain(run: MeasuredRun, calibration: Calibration) -> bool:
    """Whether a run was a plain step on the calibrated device."""
    plain = Settings()
    same = all(getattr(run.request, name) == getattr(plain, name) for name in ("compile", *PLAIN))
    return same and run.result.device_name == calibration.device_name


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
        measured_s=measured_s, expected_error=prediction.expected_error,
        is_inside=is_inside(prediction, measured_s),
    )  # fmt: skip
