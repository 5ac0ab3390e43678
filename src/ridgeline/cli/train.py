"""`ridgeline train`: a real training on CIFAR-10, with checkpoints that can be gone on with."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ridgeline.cli import options as opt
from ridgeline.cli.interrupts import stopped_at_once
from ridgeline.cli.messages import OnMessage, end_interrupted, messages_unless, print_json
from ridgeline.cli.progress import progress_bar
from ridgeline.errors import RidgelineError
from ridgeline.settings import PRECISIONS
from ridgeline.signals import interrupts_later, interrupts_noted
from ridgeline.units import format_percent, format_time

if TYPE_CHECKING:
    from ridgeline.pipeline.train_model import (
        PreparedTraining,
        TrainOptions,
        TrainOutcome,
    )
    from ridgeline.train.records import TrainResult

EXAMPLES = """
[bold]Examples[/]

  ridgeline train resnet18_cifar --data synthetic --epochs 3
  ridgeline train resnet34_cifar --epochs 20 --batch-size 256 --amp --workers 4
  ridgeline train --resume artifacts/resnet18_cifar_last.pt
  ridgeline train resnet18_cifar --data synthetic --profile-one-step --warmup-iters 20
"""

SCHEMA = 1  # of the JSON form
OTHER_TASKS = (
    "bert", "deeplab", "fasterrcnn", "fcn", "lstm", "maskrcnn", "retinanet", "ssd", "yolo",
)  # fmt: skip
CLASSIFIERS = tuple(name for name in opt.MODELS if not name.startswith(OTHER_TASKS))
Listeners = tuple[OnMessage, Callable[[str, int, int], None]]
SYNTHETIC = "synthetic"
CLASSIFIER_FORMS = "resnet18_cifar, a torchvision classifier, file.py:factory"


number = partial(opt.option, metavar="N")


@dataclass(frozen=True, kw_only=True)
class Chosen(opt.Group):
    """The settings of a training, by the fields of TrainSettings; None: its default."""

    epochs: int | None = number(None, "Passes over the images.", show_default="20")
    batch_size: int | None = number(
        None, "Images per step.", "-b", "--batch-size", show_default="128"
    )
    lr: float | None = number(None, "Highest learning rate.", show_default="0.1")
    momentum: float | None = number(None, "Momentum of SGD.", show_default="0.9")
    weight_decay: float | None = number(None, "Weight decay of SGD.", show_default="0.0005")
    label_smoothing: float | None = number(None, "Label smoothing, such as 0.1.", show_default="0")
    warmup: int | None = number(
        None,
        "Steps in which the rate rises, before its cosine.",
        show_default="a tenth of all, up to 500",
    )
    augment: bool | None = opt.option(None, "Random crops and mirroring.", "--augment/--no-augment")
    image_size: int | None = number(None, "Scale images to this side.", show_default="32")
    channels_last: bool | None = opt.option(None, "Images in NHWC order.", "--channels-last")
    seed: int | None = number(
        None, "Random seed of weights, order and augmentation.", show_default="0"
    )
    deterministic: bool | None = opt.option(
        None,
        "The same bits each time, the default on a CPU, or the fastest algorithms.",
        "--deterministic/--no-deterministic",
    )


@dataclass(frozen=True, kw_only=True)
class Surroundings(opt.Group):
    """What a training reads and writes, and where it runs, by the fields of TrainOptions."""

    data: str | None = opt.option(
        None,
        "Where CIFAR-10 is, or is downloaded to; or small images made here.",
        metavar="DIR|synthetic",
        show_default="data",
    )
    limit_train: int | None = number(None, "Train on the first N images.", min=1)
    limit_test: int | None = number(None, "Test on the first N images.", min=1)
    backend: opt.Backend = "auto"
    device: opt.Device = 0
    workers: int = number(0, "Processes that make batches; 0: the device makes them.", min=0)
    out_dir: Path | None = opt.folder(None, "Where checkpoints go.", show_default="artifacts")
    resume: Path | None = opt.option(
        None, "Go on from this checkpoint, with its settings.", metavar="FILE"
    )
    save_every: int = number(0, "Also keep a checkpoint every N epochs; 0: none.", min=0)
    overwrite: bool = opt.option(False, "Begin anew where a training was saved.", "--overwrite")


@opt.takes_groups
def train(
    model: str | None = opt.argument(None, "[MODEL]", CLASSIFIER_FORMS, CLASSIFIERS),
    model_option: str | None = opt.option(None, "Same as MODEL.", "--model", choices=CLASSIFIERS),
    *,
    chosen: Chosen,
    precision: str | None = opt.option(
        None, "fp32, tf32, amp, bf16 or fp16.", show_default="fp32", choices=PRECISIONS
    ),
    amp: bool = opt.option(False, "Same as --precision amp.", "--amp"),
    surroundings: Surroundings,
    profile_one_step: bool = opt.option(
        False, "Warm up, mark one whole step for a profiler, and exit.", "--profile-one-step"
    ),
    warmup_iters: int = number(20, "Steps before the marked one.", min=0),
    profile_iter: int = number(1, "Which step after these is marked.", min=1),
    output: opt.Output,
) -> None:
    """Train a classifier on CIFAR-10: SGD, warm-up and cosine decay; test and save each epoch.

    A training that was killed goes on with --resume as if it had not been: on a CPU, bit for bit.
    With --resume, options that are left out are as in the checkpoint.
    """
    with stopped_at_once("interrupted; nothing was trained"):
        from ridgeline.pipeline.train_model import TrainOptions, TrainOutcome, train_model

    if (model is not None and model_option is not None) or (amp and precision is not None):
        both = "--amp and --precision" if amp else "MODEL and --model"
        raise RidgelineError(f"{both} exclude each other", hint="leave one of them out")
    settings = {"model": model or model_option, **vars(chosen)}
    options = TrainOptions(
        settings={name: value for name, value in settings.items() if value is not None},
        precision="amp" if amp else precision,
        results=output.results,
        **vars(surroundings),
    )
    outcome, interrupts = TrainOutcome(), list[int]()
    marked: tuple[dict[str, Any], str] | None = None
    with interrupts_noted(interrupts), progress_bar(1, quiet=output.quiet) as progress:
        progress.start("")
        listeners = messages_unless(output.quiet), progress.update
        if profile_one_step:
            marked = _mark_step(options, listeners, warmup_iters, profile_iter)
        else:
            train_model(options, outcome, *listeners)
    if interrupts:
        _end_interrupted(options, outcome, as_json=output.as_json)
    if marked is not None:
        content, text = marked
        if output.as_json:
            print_json(content)
        else:
            print(text)
    if outcome.training is not None and outcome.result is not None:
        _finish(options, outcome, outcome.training, outcome.result, as_json=output.as_json)


def _finish(
    options: TrainOptions, outcome: TrainOutcome, training: PreparedTraining, result: TrainResult,
    *, as_json: bool,
) -> None:  # fmt: skip
    """Store a training that came to its end, and tell what came of it."""
    from ridgeline.pipeline.train_model import save_training

    with interrupts_later():  # all is done: it is stored and shown
        path = None if outcome.is_complete else save_training(options, training, result)
        if as_json:
            print_json(_to_json(training, result, path))
        elif path is None:
            print(
                f"{options.resume} has all of its {result.settings.epochs} epochs: nothing is left"
                " to train, and no run is stored\n  hint: to train longer, begin anew without"
                " --resume, with more --epochs and another --out-dir"
            )
        else:
            print(_describe_result(training, result, path))


def _describe_result(training: PreparedTraining, result: TrainResult, run: Path) -> str:
    """What came of a training, and where it is."""
    settings, best, files = result.settings, result.best, training.files
    before = result.epochs_before  # whose speeds may be of another machine
    since = f" since epoch {before}" if before else ""
    return (
        f"{settings.model} on {settings.data}: {format_percent(best.test_accuracy)} of the test"
        f" images recognised after epoch {best.epoch},"
        f" {format_percent(result.history[-1].test_accuracy)} at the end\n"
        f"{result.images_per_s:.1f} images/s in the median epoch{since},"
        f" {format_time(result.time_s)} in all\n"
        f"the best epoch: {files.best}\nthe last epoch: {files.last}\n"
        f"its weights alone: {files.final_weights}\nthis run: {run}"
    )


def _to_json(training: PreparedTraining, result: TrainResult, run: Path | None) -> dict[str, Any]:
    """The form that scripts read. Without a run, nothing was left to train."""
    from ridgeline.pipeline.train_model import summarize_training

    files = {name: str(getattr(training.files, name)) for name in ("best", "last", "final_weights")}
    return {
        "schema": SCHEMA,
        "settings": asdict(training.settings),
        **summarize_training(training, result),
        "status": "ok" if run else "nothing left",
        "files": {**files, "run": str(run) if run else None},
    }


def _mark_step(
    options: TrainOptions, listeners: Listeners, warmup_iters: int, profile_iter: int
) -> tuple[dict[str, Any], str]:
    """Mark one step; what came of it, for programs and for people."""
    from ridgeline.pipeline.train_model import mark_training_step
    from ridgeline.train.trainer import made_on

    step, training = mark_training_step(
        options, *listeners, warmup_iters=warmup_iters, profile_iter=profile_iter
    )
    settings = training.settings
    outcome = f"marked for the profiler (loss {step.loss:.3f})"
    if not step.is_marked:
        outcome = f"done; on {training.backend.kind} there is no profiler to mark it for"
    content = {
        "schema": SCHEMA,
        "status": "ok",
        "settings": asdict(settings),
        **made_on(training.backend),
        "profiled_step": asdict(step),
        "warnings": list(training.precision.warnings),
    }
    return content, f"step {step.step} of {settings.model}, {settings.batch_size} images: {outcome}"


def _end_interrupted(options: TrainOptions, outcome: TrainOutcome, *, as_json: bool) -> NoReturn:
    """After Ctrl-C: print what is saved and how to go on, and exit."""
    if as_json:
        history = [epoch.to_dict() for epoch in outcome.history]
        print_json({"schema": SCHEMA, "status": "interrupted", "history": history})
    text = "no epoch was done, so nothing was saved"
    if outcome.history and outcome.training is not None:
        data = ["--data", options.data] if options.data not in (None, SYNTHETIC) else []
        last = str(outcome.training.files.last)
        command = shlex.join(["ridgeline", "train", "--resume", last, *data])
        text = f"epochs 1 to {len(outcome.history)} are saved\n  hint: go on with {command}"
    end_interrupted(f"; {text}")
