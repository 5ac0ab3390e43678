"""The work behind `ridgeline train`: find what was asked, train, show and keep what came of it."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ridgeline.cli import INTERRUPTED
from ridgeline.cli.interrupts import interrupts_too_late
from ridgeline.cli.train_text import (
    download_progress,
    epoch_progress,
    headline,
    nothing_left,
    profiled_text,
    step_progress,
    summary,
)
from ridgeline.errors import RidgelineError
from ridgeline.measure.backends import Backend, choose_backend
from ridgeline.measure.precision import Precision, choose_precision
from ridgeline.measure.profiler_mark import mark_calls
from ridgeline.measure.randomness import repeatable
from ridgeline.provenance import collect
from ridgeline.store import ResultsFolder, Run
from ridgeline.train import checkpoints
from ridgeline.train.checkpoints import CheckpointFolder
from ridgeline.train.loop import ProfiledStep, profile_one_step, train
from ridgeline.train.records import EpochResult, TrainResult, TrainSettings
from ridgeline.train.trainer import Trainer, explained, made_on
from ridgeline.workloads.cifar10 import Images, file_stem, load_cifar10, synthetic_images

SCHEMA = 1  # of the JSON form
SYNTHETIC = "synthetic"
DATA = "data"
OUT_DIR = Path("artifacts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The command line, parsed."""

    given: dict[str, Any]  # those of TrainSettings that were written
    data: str | None
    limit_train: int | None
    limit_test: int | None
    precision: str | None
    backend: str
    device: int
    workers: int
    out_dir: Path | None
    resume: Path | None
    save_every: int
    overwrite: bool
    profile_one_step: bool
    warmup_iters: int
    profile_iter: int
    results: Path
    as_json: bool
    quiet: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """All that a training needs, found and checked."""

    settings: TrainSettings
    images: Images
    backend: Backend
    precision: Precision
    files: CheckpointFolder
    saved: dict[str, Any] | None  # the checkpoint to go on from
    warnings: tuple[str, ...]


@dataclass(slots=True)
class Trained:
    """The epochs that are done and saved, and where."""

    history: list[EpochResult] = field(default_factory=list)
    last: Path | None = None


def run(asked: Asked) -> None:
    """Train or profile, show, keep."""
    trained = Trained()
    try:
        prepared = prepare(asked)
        with repeatable(prepared.settings.deterministic), explained(prepared.settings):
            trainer = _trainer(asked, prepared)
            (_profile if asked.profile_one_step else _train)(asked, prepared, trainer, trained)
    except KeyboardInterrupt:
        _stopped(asked, trained)


def prepare(asked: Asked) -> Prepared:
    """Find the checkpoint, the device and the data, and settle the settings."""
    saved = checkpoints.load(asked.resume) if asked.resume else None
    before = dict(saved["settings"]) if saved else {}
    backend = choose_backend(asked.backend, asked.device)
    precision = _precision(asked, before, backend)
    images = _images(asked, before)
    found = {
        **asked.given,
        "data": images.name,
        "train_images": len(images.train_labels),
        "test_images": len(images.test_labels),
        "precision": precision.used,
    }
    if asked.resume:
        checkpoints.refuse_differences(asked.resume, before, found)
    settings = _settings({"deterministic": backend.kind == "cpu"} | before | found)
    return Prepared(
        settings=settings,
        images=images,
        backend=backend,
        precision=precision,
        files=_files(asked, settings),
        saved=saved,
        warnings=(*precision.warnings, *_warnings(settings, saved, backend)),
    )


def _precision(asked: Asked, before: dict[str, Any], backend: Backend) -> Precision:
    """As asked; else as before, and then it must be possible here."""
    precision = choose_precision(asked.precision or before.get("precision", "fp32"), backend)
    if before and precision.warnings and asked.precision is None:
        raise RidgelineError(
            f"{asked.resume} was trained in {precision.asked}: {precision.warnings[0]}",
            hint="go on with it where that is possible",
        )
    return precision


def _settings(values: dict[str, Any]) -> TrainSettings:
    try:
        return TrainSettings(**values)
    except TypeError as error:  # from a checkpoint: nothing else brings a name of its own
        raise RidgelineError(
            f"the checkpoint has settings that are not known here: {error}",
            hint="use the ridgeline that wrote it",
        ) from error


def _images(asked: Asked, before: dict[str, Any]) -> Images:
    """The images that were asked for, or those that the checkpoint was made with."""
    kind_before = SYNTHETIC if before.get("data") == SYNTHETIC else DATA
    data = asked.data if asked.data is not None else kind_before
    if data == SYNTHETIC:
        images = synthetic_images()
    else:
        with download_progress(asked.quiet) as progress:
            images = load_cifar10(Path(data), download=True, progress=progress)
    return images.limited(
        asked.limit_train or before.get("train_images"),
        asked.limit_test or before.get("test_images"),
    )


def _files(asked: Asked, settings: TrainSettings) -> CheckpointFolder:
    """Where checkpoints go: beside the one that was resumed, unless told."""
    beside = asked.resume.parent if asked.resume else None
    folder = asked.out_dir or beside or OUT_DIR
    files = CheckpointFolder(folder=folder, name=file_stem(settings.model))
    if not asked.profile_one_step:
        goes_on = beside is not None and folder.resolve() == beside.resolve()
        files.prepare(overwrite=asked.overwrite or goes_on)
        checkpoints.check_writable(asked.results)
    return files


def _warnings(settings: TrainSettings, saved: dict[str, Any] | None, backend: Backend) -> list[str]:
    warnings = []
    if settings.warmup_steps >= settings.total_steps:
        warnings.append(
            f"the warm-up of {settings.warmup_steps} steps is longer than the training, "
            f"{settings.total_steps} steps: the learning rate never reaches {settings.lr:g}"
        )
    here = made_on(backend)
    if saved and saved["made_on"] != here:
        there = ", ".join(
            f"{name.replace('_', ' ')} {value}"
            for name, value in saved["made_on"].items()
            if here.get(name) != value
        )
        warnings.append(
            f"the checkpoint was made with {there}: what follows will be close to what it would "
            "have been there, not the same bit for bit"
        )
    return warnings


# ---------------------------------------------------------------- training


def _trainer(asked: Asked, prepared: Prepared) -> Trainer:
    """The training, built or brought back, and announced."""
    settings, backend = prepared.settings, prepared.backend
    trainer = Trainer(settings, prepared.images, backend, prepared.precision, workers=asked.workers)
    _say(asked, headline(settings, backend))
    for warning in prepared.warnings:
        _say(asked, f"note: {warning}")
    if prepared.saved:
        trainer.load_state(prepared.saved)
        _say(asked, f"{asked.resume} has {trainer.epoch} of {settings.epochs} epochs")
    return trainer


def _train(asked: Asked, prepared: Prepared, trainer: Trainer, trained: Trained) -> None:
    if trainer.epoch >= prepared.settings.epochs:
        _tell_nothing_left(asked, prepared, train(trainer, prepared.files))
        return
    trained.last, trained.history = prepared.files.last, list(trainer.history)
    with epoch_progress(prepared.settings, quiet=asked.quiet) as (tell, tell_row):

        def tell_epoch(result: EpochResult) -> None:
            trained.history.append(result)
            tell_row(result)

        result = train(
            trainer, prepared.files, save_every=asked.save_every, tell=tell, tell_epoch=tell_epoch
        )
    with interrupts_too_late():
        run = _keep(asked, prepared, result)
        if asked.as_json:
            _print_json(_as_json("ok", result, prepared, run))
        else:
            print(summary(result, prepared.files, run.path))


def _tell_nothing_left(asked: Asked, prepared: Prepared, result: TrainResult) -> None:
    """Its files are there, those that were missing too; a run would hold another day's speeds."""
    if asked.as_json:
        _print_json(_as_json("nothing left", result, prepared, None))
    else:
        print(nothing_left(result, asked.resume))


def _keep(asked: Asked, prepared: Prepared, result: TrainResult) -> Run:
    """Store the training as a run in the results folder."""
    return ResultsFolder(asked.results).write_run(
        label=f"train-{file_stem(prepared.settings.model)}",
        asked={
            "command": "train",
            "settings": asdict(prepared.settings),
            "backend": asked.backend,
            "device": asked.device,
            "workers": asked.workers,
            "resumed": asked.resume,
        },
        found=_found("ok", result, prepared),
        provenance=collect(),
    )


def _found(status: str, result: TrainResult, prepared: Prepared) -> dict[str, Any]:
    history, before = result.history, result.epochs_before
    return {
        "status": status,
        "provenance": "measured",
        **made_on(prepared.backend),
        "precision": prepared.settings.precision,
        "best_accuracy": result.best.test_accuracy if history else None,
        "best_epoch": result.best.epoch if history else None,
        "final_accuracy": history[-1].test_accuracy if history else None,
        "images_per_s": result.images_per_s if len(history) > before else None,
        "epochs_before": before,
        "time_s": result.time_s,
        "history": [epoch.to_dict() for epoch in history],
        "warnings": list(prepared.warnings),
    }


def _as_json(
    status: str, result: TrainResult, prepared: Prepared, run: Run | None
) -> dict[str, Any]:
    files = prepared.files
    return {
        "schema": SCHEMA,
        "settings": asdict(prepared.settings),
        **_found(status, result, prepared),
        "files": {
            "best": str(files.best),
            "last": str(files.last),
            "final_weights": str(files.final_weights),
            "run": str(run.path) if run else None,
        },
    }


# ---------------------------------------------------------------- one step


def _profile(asked: Asked, prepared: Prepared, trainer: Trainer, _: Trained) -> None:
    total = asked.warmup_iters + asked.profile_iter
    with step_progress(total, quiet=asked.quiet) as tell:
        step = profile_one_step(
            trainer,
            mark_calls(prepared.backend),
            warmup_iters=asked.warmup_iters,
            profile_iter=asked.profile_iter,
            tell=tell,
        )
    if asked.as_json:
        _print_json(_step_as_json(step, prepared))
    else:
        print(profiled_text(step, prepared.settings, prepared.backend))


def _step_as_json(step: ProfiledStep, prepared: Prepared) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "status": "ok",
        "settings": asdict(prepared.settings),
        **made_on(prepared.backend),
        "profiled_step": asdict(step),
        "warnings": list(prepared.warnings),
    }


# ---------------------------------------------------------------- said


def _say(asked: Asked, text: str) -> None:
    if not asked.quiet:
        print(text, file=sys.stderr, flush=True)


def _print_json(content: dict[str, Any]) -> None:
    print(json.dumps(content, indent=2))


def _stopped(asked: Asked, trained: Trained) -> None:
    """After Ctrl-C: what is saved, how to go on, and exit."""
    if asked.as_json:
        done = [result.to_dict() for result in trained.history]
        _print_json({"schema": SCHEMA, "status": "interrupted", "history": done})
    print(f"ridgeline: interrupted; {_how_to_go_on(asked, trained)}", file=sys.stderr)
    sys.exit(INTERRUPTED)


def _how_to_go_on(asked: Asked, trained: Trained) -> str:
    if not trained.history:
        return "no epoch was done, so nothing was saved"
    data = ["--data", asked.data] if asked.data and asked.data != SYNTHETIC else []
    command = shlex.join(["ridgeline", "train", "--resume", str(trained.last), *data])
    return f"epochs 1 to {len(trained.history)} are saved\n  hint: go on with {command}"
