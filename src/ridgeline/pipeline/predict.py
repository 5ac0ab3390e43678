"""Calibrations of this machine, and predictions of steps that were not run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from difflib import get_close_matches
from html import escape
from itertools import product
from pathlib import Path
from statistics import median
from time import monotonic
from typing import TYPE_CHECKING

from ridgeline.errors import RidgelineError
from ridgeline.machine.datasheets import Datasheet, datasheet_for, list_datasheets
from ridgeline.machine.describe import Description, describe, slug
from ridgeline.machine.measure import choose_devices
from ridgeline.machine.passport import EnergyModel, Passport, Passports
from ridgeline.measure.worker import torch_needed
from ridgeline.pipeline.cases import Selection
from ridgeline.pipeline.count_models import (
    CountOptions,
    ModuleWork,
    check_countable,
    count_one,
    count_settings,
)
from ridgeline.pipeline.machine import check_passport_name, find_passport, passport_name
from ridgeline.predict.calibration import (
    SUFFIX,
    Calibration,
    Calibrations,
    PastPrediction,
    calibration_of_roofs,
    scale_calibration,
)
from ridgeline.predict.intervals import Widening, find_widening
from ridgeline.predict.operators import points_of
from ridgeline.predict.predict import (
    Prediction,
    is_inside,
    points_to_refine,
    predict_step,
)
from ridgeline.predict.stored import store_prediction
from ridgeline.records import CountRequest
from ridgeline.report.text import counted
from ridgeline.report.views import disturbance
from ridgeline.roofline.roofs import datasheet_roofs, measured_roofs
from ridgeline.settings import COMPILE_MODES, is_counted, one_of
from ridgeline.store import MeasuredRun, ResultsFolder
from ridgeline.workloads.sources import file_digest, is_onnx

if TYPE_CHECKING:
    import pandas as pd

    from ridgeline.count.result import CountResult

OnProgress = Callable[[str, float], None]

# ---------------------------------------------------------------- calibrating


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCalibration:
    """A calibration and what to know about it."""

    calibration: Calibration
    path: Path
    added: int
    refused: tuple[str, ...] = ()
    was_interrupted: bool = False


def calibrate_machine(
    results: Path,
    *,
    backend: str = "auto",
    precisions: Sequence[str] = (),
    budget_s: float = 90.0,
    groups: Sequence[str] = (),
    name: str | None = None,
    on_progress: OnProgress = lambda what, share: None,
) -> StoredCalibration:
    """Measure points within the budget and store them with those of before.

    Without `precisions`, in those that the device has. Ctrl-C keeps what was measured until then.
    """
    with torch_needed():
        from ridgeline.predict import calibrate as module

    device = find_device(backend)
    if budget_s <= 0:
        raise RidgelineError("nothing is measured in no time", hint="give it time: --budget 90s")
    precisions = precisions or find_precisions(device)
    for one in precisions:
        if one not in find_precisions(device, precisions):
            usual = ", ".join(find_precisions(device))
            raise RidgelineError(f"{device} does not compute in {one}", hint=f"it has {usual}")
    description = describe()
    name = check_passport_name(name or passport_name(description, device))
    calibrations = Calibrations(results)
    fresh = module.empty_calibration(name, device, description)
    before = calibrations.read(name) if name in calibrations.names() else fresh
    check_same_device(before, fresh)
    plan = module.Plan(
        device=device, precisions=tuple(precisions), budget_s=budget_s, groups=tuple(groups)
    )
    if not module.corpus_points(plan):
        raise RidgelineError(
            f"no operator is called {', '.join(groups)}",
            hint="try conv, matmul, pointwise, norm, or a name of machine show --calibration",
        )
    measured = module.Measured()
    known = replace(fresh, points=before.points, host=before.host, past=before.past,
                    steps=before.steps, warm_share=before.warm_share)  # fmt: skip
    was_interrupted = False
    try:
        known = module.calibrate(plan, known, measured, on_progress)
    except KeyboardInterrupt:
        was_interrupted = True
        known = known.with_points(measured.points)
    refused = tuple(measured.refused.values())
    if not known.points:
        if was_interrupted:
            raise KeyboardInterrupt
        reason = next(iter(refused), "the budget was spent before the first one")
        raise RidgelineError(
            f"no operator could be measured: {reason}", hint="give it more time: --budget 90s"
        )
    ceilings = _read_ceilings(_read_passport(known, Passports(results)), device)
    known = replace(module.add_peaks(known), measured_at=_now(), ceilings=ceilings).fit_curves()
    return StoredCalibration(
        calibration=known, path=calibrations.write(known), refused=refused,
        added=len(known.points) - len(before.points), was_interrupted=was_interrupted,
    )  # fmt: skip


GRAPHS = "reduce-overhead"  # of the compiler: CUDA graphs


def find_precisions(device: str, names: Sequence[str] = ()) -> tuple[str, ...]:
    """Of these precisions, or of those that networks usually run in, the ones that a device has."""
    from ridgeline.measure.backends import choose_backend, choose_precision

    kind, _, number = device.partition(":")
    backend = choose_backend(kind, int(number or 0))
    names = names or (("fp32", "tf32", "bf16", "amp") if kind == "cuda" else ("fp32",))
    return tuple(name for name in names if choose_precision(name, backend).used == name)


def find_device(backend: str) -> str:
    """The device to calibrate: `cpu`, `cuda:0`."""
    names = {"auto": [], "cuda": ["cuda:0"], "cpu": ["cpu"]}.get(backend)
    if names is None:
        raise RidgelineError(
            f"{backend} cannot be calibrated", hint="choose cuda or cpu with --backend"
        )
    return choose_devices(names)[0]


def check_same_device(before: Calibration, now: Calibration) -> None:
    """Refuse to take one device for another of the same name."""
    is_same = before.uuid == now.uuid or None in (before.uuid, now.uuid)
    if not is_same or _describe_device(before) != _describe_device(now):
        which = " with another serial number" if not is_same else ""
        raise RidgelineError(
            f"the calibration {before.machine} is of another device{which}"
            f" ({_describe_device(before)}); this is {_describe_device(now)}",
            hint="keep both by names of their own: --name NAME of `ridgeline machine calibrate` and"
            " `ridgeline machine import`, --on NAME of `ridgeline predict`",
        )


def _describe_device(calibration: Calibration) -> str:
    threads = [counted(calibration.threads, "thread")] if calibration.threads else []
    parts = [calibration.device_name, calibration.instruction_set, *threads]
    return ", ".join(filter(None, parts))


def import_calibration(file: Path, results: Path, name: str | None = None) -> Path:
    """Take a calibration from elsewhere; one of another device of that name is not replaced."""
    calibrations = Calibrations(results)
    fresh = calibrations.read(str(file))
    fresh = replace(fresh, machine=check_passport_name(name or fresh.machine))
    if fresh.machine in calibrations.names():
        check_same_device(calibrations.read(fresh.machine), fresh)
    return calibrations.write(fresh)


# ---------------------------------------------------------------- machines


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What predictions of one machine need."""

    calibration: Calibration
    is_here: bool = False  # a device of this machine, as it was calibrated
    widening: Widening = field(default_factory=Widening)
    energy: EnergyModel | None = None


def find_machine(name: str | None, results: Path) -> Machine:
    """This machine, or one by its name: calibrated, else from a passport or a datasheet."""
    calibrations, passports = Calibrations(results), Passports(results)
    if name is None:
        return _find_own(calibrations, passports)
    if name.endswith(SUFFIX) or name in calibrations.names():
        calibration = calibrations.read(name)
        if name in own_names(describe()):
            return _open_named(calibration, passports)
        passport = _read_passport(calibration, passports)
        energy = passport.energy_model(calibration.device) if passport else None
        return Machine(calibration=calibration, energy=energy)
    if name.endswith(".json") or name in passports.names():
        return _scale_passport(passports.read(name))
    sheet = datasheet_for(name)
    if sheet is None:
        raise _unknown_machine(name, calibrations, passports)
    return Machine(calibration=_scale_datasheet(sheet, calibrations))


def _open_named(calibration: Calibration, passports: Passports) -> Machine:
    """One that has the name of this machine: this machine, or labelled as another one."""
    try:
        check_same_device(calibration, _read_device(calibration))
    except RidgelineError as error:
        return Machine(calibration=calibration, widening=Widening(reasons=(error.problem,)))
    return _open_own(calibration, passports)


def _find_own(calibrations: Calibrations, passports: Passports) -> Machine:
    """This machine: its calibration, its passport, or the datasheet of its GPU."""
    description = describe()
    names = own_names(description)
    for name in names:
        if name in calibrations.names():
            calibration = calibrations.read(name)
            check_same_device(calibration, _read_device(calibration))
            return _open_own(calibration, passports)
    for device in _own_devices(description):
        passport = find_passport(passports, description, device, is_quick=True)
        if passport is not None:
            return _scale_passport(passport, device)
    for gpu in description.gpus:
        sheet = datasheet_for(gpu.name, units=gpu.compute_units, memory_bytes=gpu.memory_bytes)
        if sheet is not None and gpu.index is not None:
            return Machine(calibration=_scale_datasheet(sheet, calibrations))
    raise RidgelineError(
        f"this machine is not calibrated: there is no {calibrations.path(names[0])}",
        hint="ridgeline machine calibrate takes 90 seconds; --on NAME predicts for another machine,"
        ' also from a datasheet: --on "H100 SXM5"',
    )


def _unknown_machine(name: str, calibrations: Calibrations, passports: Passports) -> RidgelineError:
    sheets = [sheet.name for sheet in list_datasheets()]
    words = name.casefold().split()
    alike = [one for one in sheets if all(word in one.casefold() for word in words)]
    alike = alike or get_close_matches(name, sheets, cutoff=0.4)
    known = sorted({*calibrations.names(), *passports.names()})
    here = f"in {calibrations.folder}: {', '.join(known)}; " if known else ""
    sheet = f"datasheets: {', '.join(alike[:5])}" if alike else f"{len(sheets)} datasheets"
    return RidgelineError(f"no machine {name!r} is known", hint=f"{here}{sheet}")


def _scale_passport(passport: Passport, device: str | None = None) -> Machine:
    """By the ceilings of a passport: of its accelerator, else of its processor."""
    devices = sorted({c.device for c in passport.ceilings}, key=lambda d: (d == "cpu", d))
    if not devices:
        raise RidgelineError(
            f"the passport {passport.name} has no ceilings", hint="ridgeline machine measure"
        )
    device = device or devices[0]
    gpu = passport.description.find_gpu(device)
    units = gpu.compute_units if gpu else passport.description.cpu.usable_threads
    memory = gpu.memory_bytes if gpu else passport.description.memory.total_bytes
    calibration = calibration_of_roofs(
        measured_roofs(passport, device), units=units or 1, memory_bytes=memory,
        source=f"scaled from its passport of {passport.measured_at[:10]}",
    )  # fmt: skip
    return Machine(calibration=calibration, energy=passport.energy_model(device))


def _read_datasheet(sheet: Datasheet) -> Calibration:
    device = "cpu" if sheet.kind == "cpu" else "cuda:0"
    roofs = datasheet_roofs(
        sheet.ceilings(device), env=slug(sheet.name), device=device, device_name=sheet.name
    )
    return calibration_of_roofs(
        roofs, units=sheet.units, memory_bytes=sheet.memory_bytes,
        source=f"scaled from the datasheet of {sheet.name}",
    )  # fmt: skip


def _scale_datasheet(sheet: Datasheet, calibrations: Calibrations) -> Calibration:
    """By what is published; from the times of a calibrated GPU where the folder has one."""
    for name in calibrations.names() if sheet.kind != "cpu" else ():
        with suppress(RidgelineError):
            known = calibrations.read(name)
            own = datasheet_for(known.device_name)
            if known.device.startswith("cuda") and own is not None:
                return _scale_to(sheet, own, known)
    return _read_datasheet(sheet)


def _scale_to(sheet: Datasheet, own: Datasheet, known: Calibration) -> Calibration:
    source = f"scaled from {known.machine} by the datasheets of {own.name} and {sheet.name}"
    return scale_calibration(known, _read_datasheet(own), _read_datasheet(sheet), source)


def find_larger_gpu(own: Datasheet) -> Datasheet | None:
    """The next GPU of its family with more memory bandwidth and more FLOP/s."""
    best = _best_rate(own)
    larger = [
        one for one in list_datasheets()
        if one.family == own.family and one.kind == own.kind and _best_rate(one) > best
        and one.dram_bytes_per_s > own.dram_bytes_per_s
    ]  # fmt: skip
    return min(larger, key=lambda one: (one.dram_bytes_per_s, _best_rate(one)), default=None)


def _best_rate(sheet: Datasheet) -> float:
    peak = sheet.peak("matrix", "fp16") or sheet.peak("vector", "fp32")
    return peak.flops_per_s if peak else 0.0


def own_names(description: Description) -> list[str]:
    """Names that a calibration of this machine may have, accelerators first."""
    names = [passport_name(description, device) for device in _own_devices(description)]
    return list(dict.fromkeys(names))


def _own_devices(description: Description) -> list[str]:
    return [*(f"cuda:{gpu.index}" for gpu in description.gpus if gpu.kind == "cuda"), "cpu"]


def _read_device(calibration: Calibration) -> Calibration:
    """The device of this name as it is today, with nothing measured."""
    with torch_needed():
        from ridgeline.predict.calibrate import empty_calibration

    return empty_calibration(calibration.machine, calibration.device, describe())


def _open_own(calibration: Calibration, passports: Passports) -> Machine:
    """With what has changed since this machine was calibrated, and by how much intervals grow."""
    from ridgeline.predict.calibrate import find_versions

    device, passport = calibration.device, _read_passport(calibration, passports)
    now = _read_ceilings(passport, device)
    moves = [now[name] / rate - 1 for name, rate in calibration.ceilings.items() if name in now]
    drift = median(moves) if moves else None
    widening = find_widening(calibration.versions, find_versions(device), drift)
    energy = passport.energy_model(device) if passport else None
    return Machine(calibration=calibration, is_here=True, widening=widening, energy=energy)


def _read_ceilings(passport: Passport | None, device: str) -> Mapping[str, float]:
    """FLOP/s by precision and path, bytes per second by level, of a passport."""
    if passport is None:
        return {}
    roofs = measured_roofs(passport, device)
    return {**roofs.flats, **roofs.bandwidth}


def _read_passport(calibration: Calibration, passports: Passports) -> Passport | None:
    """The passport of the calibrated machine, if it has one that can be read."""
    if calibration.machine in passports.names():
        with suppress(RidgelineError):
            return passports.read(calibration.machine)
    return None


# ---------------------------------------------------------------- predicting


@dataclass(slots=True, kw_only=True)
class Predictor:
    """Machines to predict for. What `refine_s` measures stays with them."""

    results: Path
    machines: list[Machine]
    compile_mode: str | None = None
    refine_s: float = 0.0
    with_layers: bool = False

    @property
    def notes(self) -> list[str]:
        return [reason for one in self.machines for reason in one.widening.reasons]

    def predict(self, count: CountResult) -> Iterator[tuple[Prediction, Calibration]]:
        """The step of a count on each machine."""
        for number, machine in enumerate(self.machines):
            if self.refine_s:
                machine = self.machines[number] = self._refine(count, machine)
            prediction = predict_step(
                count,
                machine.calibration,
                compile_mode=self.compile_mode,
                with_layers=self.with_layers,
                widening=machine.widening.factor,
                energy=machine.energy,
            )
            yield prediction, machine.calibration

    def _refine(self, count: CountResult, machine: Machine) -> Machine:
        """Measure the points of a step that were not, the least certain first; they are kept."""
        if not machine.is_here:
            raise RidgelineError(
                f"--refine measures here, and {machine.calibration.machine}"
                " is another one, or was not calibrated",
                hint="leave out --refine, or calibrate: ridgeline machine calibrate",
            )
        from ridgeline.predict.calibrate import measure_more

        known, uses = machine.calibration, points_of(count)
        order = points_to_refine(uses, predict_step(count, known, uses=uses))
        refined = measure_more(known, order, self.refine_s) if order else known
        if refined is not known:
            Calibrations(self.results).write(refined)
        return replace(machine, calibration=refined)


def open_predictor(
    results: Path,
    names: Sequence[str] = (),
    *,
    compile_mode: str | None = None,
    refine_s: float = 0.0,
    with_layers: bool = False,
    on_progress: Callable[[str], None] = lambda what: None,
) -> Predictor:
    """For machines by their names, or for this one, with what its stored runs say."""
    if compile_mode is not None:
        one_of("--compile-mode", compile_mode, COMPILE_MODES)
    machines = [find_machine(name, results) for name in names or (None,)]
    if machines[0].is_here:
        known = remember_runs(results, machines[0].calibration, on_progress)
        machines[0] = replace(machines[0], calibration=known)
    return Predictor(
        results=results, machines=machines, compile_mode=compile_mode, refine_s=refine_s,
        with_layers=with_layers,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """What `ridgeline.predict` returns: a sequence of steps. It shows itself in a notebook."""

    steps: tuple[Prediction, ...]
    notes: tuple[str, ...] = ()  # on the machines

    def __iter__(self) -> Iterator[Prediction]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, number: int) -> Prediction:
        return self.steps[number]

    @property
    def table(self) -> pd.DataFrame:
        """A row for each step, with the columns of the JSON form."""
        import pandas as pd

        return pd.DataFrame([step.to_dict() for step in self.steps]).drop(columns="layers")

    def _repr_html_(self) -> str:
        notes = dict.fromkeys([*self.notes, *(note for step in self.steps for note in step.notes)])
        columns = ["model", "batch_size", "machine", "time_s", "interval_s", "bound", "fits",
                   "source"]  # fmt: skip
        table = str(self.table[columns].to_html(index=False))
        return table + "".join(f"<p>{escape(note)}</p>" for note in notes)


def predict_models(
    options: CountOptions,
    predictor: Predictor,
    on_progress: Callable[[str], None] = lambda what: None,
) -> tuple[list[Prediction], list[RidgelineError]]:
    """Count each model at each batch size, and predict its step on each machine.

    Where there are results already, predictions are kept for the report.
    """
    predictions, errors = [], []
    for model in options.models:
        for batch_size in options.batch_sizes or (1,):
            on_progress(f"{model}, batch {batch_size}")
            try:
                count = count_one(options, model, batch_size)
                for prediction, calibration in predictor.predict(count):
                    predictions.append(prediction)
                    if not is_onnx(model) and predictor.results.is_dir():
                        request = CountRequest(
                            **vars(options.spec(model, batch_size)), digest=file_digest(model),
                            precision=prediction.precision, optimizer=prediction.optimizer,
                        )  # fmt: skip
                        store_prediction(
                            predictor.results, request, prediction, calibration, made_at=_now(),
                            compile_mode=predictor.compile_mode,
                        )  # fmt: skip
            except RidgelineError as error:
                errors.append(error)
                break
    return predictions, errors


# ---------------------------------------------------------------- for an analysis


def is_calibrated(results: Path, device: str) -> bool:
    """Whether the results folder has a calibration of a device of this machine."""
    return Calibrations(results).path(passport_name(describe(), device)).exists()


def predict_task(
    results: Path,
    send: Callable[[str], None],
    *,
    selection: Selection,
    batch_sizes: Mapping[str, tuple[int, ...]],
    device: str,
    module: ModuleWork | None = None,
) -> int:
    """Predict and store every step of an analysis, and what would change it; how many there are."""
    from ridgeline.count.counting import count_workload
    from ridgeline.measure.backends import choose_backend, choose_precision

    machine = find_machine(passport_name(describe(), device), results)
    if not machine.is_here:  # another device of the same name
        raise RidgelineError(machine.widening.reasons[0], hint="")
    counter = module.counter if module else count_workload
    predicted = 0
    for spec, settings in product(selection.specs(), selection.settings):
        if not is_counted(settings):
            continue
        backend = choose_backend(settings.backend, settings.device)
        used = choose_precision(settings.precision, backend).used
        batches = batch_sizes.get(spec.model, (1,))
        steps = [PlannedStep(batch, used, settings.compile) for batch in batches]
        for step in [*steps, *_list_what_ifs(steps[-1], machine, is_module=module is not None)]:
            send(f"{spec.model}, batch {step.batch_size}")
            request = CountRequest(
                **vars(replace(spec, batch_size=step.batch_size)),
                digest=module.digest if module else file_digest(spec.model),
                precision=step.precision,
                optimizer=settings.optimizer if spec.mode == "train" else None,
            )
            calibration = step.calibration or machine.calibration
            prediction = predict_step(
                counter(request.workload, count_settings(request)), calibration,
                compile_mode=step.compile_mode, widening=machine.widening.factor,
                energy=machine.energy if step.calibration is None else None,
            )  # fmt: skip
            store_prediction(
                results, request, prediction, calibration, made_at=_now(),
                compile_mode=step.compile_mode, what_if=step.what_if,
            )  # fmt: skip
            predicted += 1
    return predicted


def predict_sweep(
    results: Path, device: str, requests: Mapping[str, CountRequest], budget_s: float
) -> dict[str, float]:
    """Seconds of steps by their keys, as many as the time allows; none without a calibration."""
    times: dict[str, float] = {}
    device = _own_devices(describe())[0] if device == "auto" else device
    if not is_calibrated(results, device):
        return times
    from ridgeline.count.counting import count_workload  # imports torch

    calibration = find_machine(passport_name(describe(), device), results).calibration
    start_s = monotonic()
    for key, request in requests.items():
        if monotonic() - start_s > budget_s:
            break
        with suppress(RidgelineError):
            count = count_workload(request.workload, count_settings(request))
            times[key] = predict_step(count, calibration).time_s
    return times


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """What distinguishes the predicted steps of a model."""

    batch_size: int
    precision: str
    compile_mode: str | None
    what_if: str = ""
    calibration: Calibration | None = None  # of another machine


def _list_what_ifs(step: PlannedStep, machine: Machine, *, is_module: bool) -> list[PlannedStep]:
    """Changes of a step that nobody asked to run."""
    changes = []
    if not is_module:  # which has inputs of one batch
        changes.append(replace(step, batch_size=2 * step.batch_size, what_if="batch x2"))
    if machine.calibration.device.startswith("cuda"):
        if step.precision == "fp32":
            changes.append(replace(step, precision="amp", what_if="amp"))
        if step.compile_mode is None:
            changes.append(replace(step, compile_mode=GRAPHS, what_if="CUDA graphs"))
        own = datasheet_for(machine.calibration.device_name)
        larger = find_larger_gpu(own) if own else None
        if own and larger:
            scaled = _scale_to(larger, own, machine.calibration)
            changes.append(replace(step, calibration=scaled, what_if=f"on {larger.name}"))
    return changes


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
    """Whether a run was a plain step on the calibrated device, while nothing disturbed it."""
    same = run.request.compile is None and is_counted(run.request) and not disturbance(run)
    is_ours = run.result.device_name == calibration.device_name
    return same and is_ours and calibration.threads in (None, run.result.threads)


def _judge(run: MeasuredRun, calibration: Calibration) -> PastPrediction:
    from ridgeline.count.counting import count_workload

    request = run.request
    check_countable(run, with_files=False)  # a folder of somebody else does not run its files
    settings = count_settings(request, run.result.precision)
    prediction = predict_step(count_workload(request.workload, settings), calibration)
    measured_s = run.result.step_time_s.median
    return PastPrediction(
        run_id=run.run_id, model=request.model, predicted_s=prediction.time_s,
        measured_s=measured_s, expected_error=prediction.expected_error,
        is_inside=is_inside(prediction, measured_s),
    )  # fmt: skip
