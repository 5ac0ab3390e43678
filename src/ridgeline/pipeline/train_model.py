"""`ridgeline train`: find checkpoint, device and data, train or mark one step, store the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ridgeline.measure.backends import Backend, Precision, choose_backend, choose_precision
from ridgeline.measure.step import repeatable
from ridgeline.provenance import collect
from ridgeline.records import TrainRequest
from ridgeline.store import DEFAULT_RESULTS, ResultsFolder
from ridgeline.train import checkpoints
from ridgeline.train.checkpoints import CheckpointFolder
from ridgeline.train.records import EpochResult, StepProgress, TrainResult, TrainSettings
from ridgeline.train.trainer import (
    ProfiledStep,
    Trainer,
    explained,
    made_on,
    profile_one_step,
    train,
)
from ridgeline.units import format_percent, format_time
from ridgeline.workloads.cifar10 import (
    SIDE,
    Images,
    build_classifier,
    file_stem,
    load_cifar10,
    synthetic_images,
)
from ridgeline.workloads.workload import load_weights

OnMessage = Callable[[str], None]
OnProgress = Callable[[str, int, int], None]

SYNTHETIC = "synthetic"
DATA = Path("data")
OUT_DIR = Path("artifacts")
WEIGHTS_ENDING = "_final_weights.pt"
EPOCH_HEADER = "epoch   loss  train acc   test acc         lr   images/s       time"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """A training as the user asks for it; with `resume`, the checkpoint has the rest."""

    settings: dict[str, Any]  # those of TrainSettings that are not left to their defaults
    data: str | None = None  # a folder, or SYNTHETIC
    limit_train: int | None = None
    limit_test: int | None = None
    precision: str | None = None
    backend: str = "auto"
    device: int = 0
    workers: int = 0
    out_dir: Path | None = None
    resume: Path | None = None
    save_every: int = 0
    overwrite: bool = False
    results: Path = DEFAULT_RESULTS


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTraining:
    """All that a training needs, found and checked."""

    settings: TrainSettings
    images: Images
    backend: Backend
    precision: Precision
    files: CheckpointFolder
    checkpoint: dict[str, Any] | None  # to go on from


@dataclass(slots=True)
class TrainOutcome:
    """What came of a training. After Ctrl-C, the epochs in `history` are saved."""

    training: PreparedTraining | None = None
    result: TrainResult | None = None
    history: list[EpochResult] = field(default_factory=list)
    is_complete: bool = False  # the checkpoint had all epochs: nothing was trained


def train_model(
    options: TrainOptions, outcome: TrainOutcome, on_message: OnMessage, on_progress: OnProgress
) -> None:
    """Train the epochs that are left; each is saved before the next one begins."""
    training = outcome.training = _prepare(options, on_progress, is_saved=True)
    with repeatable(training.settings.deterministic), explained(training.settings):
        trainer = _build_trainer(options, training, on_message)
        outcome.is_complete = trainer.epoch >= training.settings.epochs
        if not outcome.is_complete:
            outcome.history = list(trainer.history)
            on_message(EPOCH_HEADER)

        def on_epoch(result: EpochResult) -> None:
            outcome.history.append(result)
            on_message(
                f"{result.epoch:>5}  {result.train_loss:>5.3f}"
                f"  {format_percent(result.train_accuracy):>9}"
                f"  {format_percent(result.test_accuracy):>9}  {result.lr:>9.3g}"
                f"  {result.images_per_s:>9.1f}"
                f"  {format_time(result.time_s + result.test_time_s):>9}"
            )

        def on_step(step: StepProgress) -> None:
            settings = training.settings
            done = (step.epoch - 1) * step.steps + step.step
            text = (
                f"epoch {step.epoch}/{settings.epochs}, step {step.step}/{step.steps}: loss"
                f" {step.loss:.3f}, {format_percent(step.accuracy)},"
                f" {step.images_per_s:.0f} images/s"
            )
            on_progress(text, done, settings.total_steps)

        outcome.result = train(
            trainer, training.files, save_every=options.save_every, on_step=on_step,
            on_epoch=on_epoch,
        )  # fmt: skip


def mark_training_step(
    options: TrainOptions,
    on_message: OnMessage,
    on_progress: OnProgress,
    *,
    warmup_iters: int,
    profile_iter: int,
) -> tuple[ProfiledStep, PreparedTraining]:
    """Warm up and mark one whole step for a profiler; nothing is saved."""
    training = _prepare(options, on_progress, is_saved=False)
    with repeatable(training.settings.deterministic), explained(training.settings):
        step = profile_one_step(
            _build_trainer(options, training, on_message),
            warmup_iters=warmup_iters,
            profile_iter=profile_iter,
            on_step=lambda done, total: on_progress(f"step {done} of {total}", done, total),
        )
    return step, training


def _prepare(options: TrainOptions, on_progress: OnProgress, *, is_saved: bool) -> PreparedTraining:
    """Find the checkpoint, the device and the data, and complete the settings."""
    checkpoint = checkpoints.load(options.resume) if options.resume else None
    before = checkpoint["settings"] if checkpoint else {}
    backend = choose_backend(options.backend, options.device)
    precision = choose_precision(options.precision or before.get("precision", "fp32"), backend)
    images = _load_images(options, before, on_progress)
    chosen = {
        **options.settings,
        "data": images.name,
        "train_images": len(images.train_labels),
        "test_images": len(images.test_labels),
        "precision": precision.used,
    }
    if options.resume:
        checkpoints.refuse_differences(options.resume, before, chosen)
    settings = TrainSettings(**{"deterministic": backend.kind == "cpu"} | before | chosen)
    # checkpoints go where the resumed one is, unless there is --out-dir
    earlier = options.resume.parent if options.resume else None
    folder = options.out_dir or earlier or OUT_DIR
    files = CheckpointFolder(folder=folder, name=file_stem(settings.model))
    if is_saved:
        goes_on = earlier is not None and folder.resolve() == earlier.resolve()
        files.prepare(overwrite=options.overwrite or goes_on)
        ResultsFolder(options.results).check_writable()
    return PreparedTraining(
        settings=settings,
        images=images,
        backend=backend,
        precision=precision,
        files=files,
        checkpoint=checkpoint,
    )


def _load_images(options: TrainOptions, before: dict[str, Any], on_progress: OnProgress) -> Images:
    """The images of the options, or those that the checkpoint was made with."""
    data = options.data if options.data is not None else before.get("data")
    if data == SYNTHETIC:
        images = synthetic_images()
    else:
        folder = DATA if options.data is None else Path(options.data)
        on_progress("reading CIFAR-10", 0, 0)
        images = load_cifar10(folder, download=True)
    return images.limited(
        options.limit_train or before.get("train_images"),
        options.limit_test or before.get("test_images"),
    )


def _build_trainer(
    options: TrainOptions, training: PreparedTraining, on_message: OnMessage
) -> Trainer:
    """The training, built or brought back, and announced."""
    settings, backend = training.settings, training.backend
    trainer = Trainer(
        settings, training.images, backend, training.precision, workers=options.workers
    )
    on_message(
        f"{settings.model} in {settings.precision} on {backend.name} ({backend.kind}): "
        f"{settings.train_images} + {settings.test_images} images of {settings.data}, "
        f"{settings.epochs} epochs of {settings.steps} steps"
    )
    for warning in training.precision.warnings:
        on_message(f"note: {warning}")
    if training.checkpoint:
        trainer.load_state(training.checkpoint)
        on_message(f"{options.resume} has {trainer.epoch} of {settings.epochs} epochs")
    return trainer


def load_trained(path: Path, model: str | None = None, image_size: int | None = None) -> Any:
    """The network of a checkpoint or a file of weights, in eval mode on the CPU.

    A file of weights alone does not know its network: that is `model`, or the name of the file.
    """
    settings: dict[str, Any] = {}
    if not path.name.endswith(WEIGHTS_ENDING):
        settings = checkpoints.load(path)["settings"]
    name = model or settings.get("model") or path.name.removesuffix(WEIGHTS_ENDING)
    network = build_classifier(name, image_size or settings.get("image_size", SIDE))
    return load_weights(network, path, name).eval()


def summarize_training(training: PreparedTraining, result: TrainResult) -> dict[str, Any]:
    """What came of a training, as it is stored and printed for programs."""
    is_new = len(result.history) > result.epochs_before
    return {
        "status": "ok",
        "provenance": "measured",
        **made_on(training.backend),
        "precision": training.settings.precision,
        "best_accuracy": result.best.test_accuracy,
        "best_epoch": result.best.epoch,
        "final_accuracy": result.history[-1].test_accuracy,
        "images_per_s": result.images_per_s if is_new else None,
        "epochs_before": result.epochs_before,
        "time_s": result.time_s,
        "history": [epoch.to_dict() for epoch in result.history],
        "warnings": list(training.precision.warnings),
    }


def save_training(options: TrainOptions, training: PreparedTraining, result: TrainResult) -> Path:
    """Store a training as a run; its folder."""
    folder = ResultsFolder(options.results)
    request = TrainRequest(
        settings=asdict(training.settings),
        backend=options.backend,
        device=options.device,
        workers=options.workers,
        resumed=str(options.resume) if options.resume else None,
    )
    summary = summarize_training(training, result)
    name = f"train-{file_stem(training.settings.model)}"
    return folder.runs_path / folder.save_run(name, request, summary, collect())
