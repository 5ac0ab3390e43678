"""`ridgeline train`: a real training on CIFAR-10, with checkpoints that can be gone on with."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from ridgeline.cli.interrupts import interrupts_too_late, stopped_at_once
from ridgeline.cli.options import (
    MODELS,
    Backend,
    Debug,
    Device,
    Json,
    Quiet,
    Results,
    complete,
    flag,
    folder,
    number,
    real,
)
from ridgeline.cli.progress import progress_bar
from ridgeline.errors import RidgelineError
from ridgeline.records import PRECISIONS
from ridgeline.signals import INTERRUPTED
from ridgeline.store import DEFAULT_RESULTS
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

  ridgeline train resnet18 --data synthetic --epochs 3
  ridgeline train resnet18 --epochs 5 --batch-size 128
  ridgeline train resnet34 --epochs 20 --batch-size 256 --amp --workers 4 --label-smoothing 0.1
  ridgeline train --resume artifacts/resnet18_last.pt
  ridgeline train mobilenet_v2 --image-size 64 --limit-train 5000 --limit-test 1000
  ridgeline train resnet18 --data synthetic --profile-one-step --warmup-iters 20 --profile-iter 1
"""

SCHEMA = 1  # of the JSON form
OTHER_TASKS = (
    "bert", "deeplab", "fasterrcnn", "fcn", "lstm", "maskrcnn", "retinanet", "ssd", "yolo",
)  # fmt: skip
CLASSIFIERS = tuple(name for name in MODELS if not name.startswith(OTHER_TASKS))


def train(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL]",
            help="resnet18, resnet34, a torchvision classifier, file.py:factory",
            autocompletion=complete(CLASSIFIERS),
            show_default=False,
        ),
    ] = None,
    model_option: Annotated[
        str | None,
        typer.Option(
            "--model", metavar="NAME", help="Same as MODEL.", autocompletion=complete(CLASSIFIERS)
        ),
    ] = None,
    epochs: Annotated[int | None, number("Passes over the images.", "20", 1)] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            "-b", "--batch-size", metavar="N", help="Images per step.", show_default="128", min=1
        ),
    ] = None,
    lr: Annotated[float | None, real("Highest learning rate.", "0.1")] = None,
    momentum: Annotated[float | None, real("Momentum of SGD.", "0.9")] = None,
    weight_decay: Annotated[float | None, real("Weight decay of SGD.", "0.0005")] = None,
    label_smoothing: Annotated[float | None, real("Label smoothing, such as 0.1.", "0")] = None,
    warmup: Annotated[
        int | None,
        number("Steps in which the rate rises, before its cosine.", "a tenth of all, up to 500", 0),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|synthetic",
            help="Where CIFAR-10 is, or is downloaded to; or small images made here.",
            show_default="data",
        ),
    ] = None,
    limit_train: Annotated[int | None, number("Train on the first N images.", least=1)] = None,
    limit_test: Annotated[int | None, number("Test on the first N images.", least=1)] = None,
    no_augment: Annotated[bool, flag("--no-augment", "No random crops and mirroring.")] = False,
    image_size: Annotated[int | None, number("Scale images to this side.", "32", 1)] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="fp32, tf32, amp, bf16 or fp16.",
            show_default="fp32",
            autocompletion=complete(PRECISIONS),
        ),
    ] = None,
    amp: Annotated[bool, flag("--amp", "Same as --precision amp.")] = False,
    backend: Backend = "auto",
    device: Device = 0,
    channels_last: Annotated[bool | None, flag("--channels-last", "Images in NHWC order.")] = None,
    workers: Annotated[
        int, number("Processes that make batches; 0: the device makes them.", least=0)
    ] = 0,
    seed: Annotated[
        int | None, number("Random seed of weights, order and augmentation.", "0")
    ] = None,
    deterministic: Annotated[
        bool, flag("--deterministic", "The same bits each time, where possible; default on a CPU.")
    ] = False,
    not_deterministic: Annotated[
        bool, flag("--no-deterministic", "The fastest algorithms; default on a GPU.")
    ] = False,
    out_dir: Annotated[Path | None, folder("Where checkpoints go.", "artifacts")] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Go on from this checkpoint, with its settings.",
            show_default=False,
        ),
    ] = None,
    save_every: Annotated[
        int, number("Also keep a checkpoint every N epochs; 0: none.", least=0)
    ] = 0,
    overwrite: Annotated[
        bool, flag("--overwrite", "Begin anew where a training was saved.")
    ] = False,
    profile_one_step: Annotated[
        bool, flag("--profile-one-step", "Warm up, mark one whole step for a profiler, and exit.")
    ] = False,
    warmup_iters: Annotated[int, number("Steps before the marked one.", least=0)] = 20,
    profile_iter: Annotated[int, number("Which step after these is marked.", least=1)] = 1,
    results: Results = DEFAULT_RESULTS,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Train a classifier on CIFAR-10: SGD, warm-up and cosine decay; test and save each epoch.

    A training that was killed goes on with --resume as if it had not been: on a CPU, bit for bit.
    With --resume, options that are left out are as in the checkpoint.
    """
    with stopped_at_once("interrupted; nothing was trained"):
        from ridgeline.pipeline.train_model import TrainOptions

    settings = {
        "model": _choose_one("--model", model, model_option),
        "epochs": epochs,
        "batch_size": batch_size,
        "lr": lr,
        "momentum": momentum,
        "weight_decay": weight_decay,
        "label_smoothing": label_smoothing,
        "warmup": warmup,
        "seed": seed,
        "augment": False if no_augment else None,
        "image_size": image_size,
        "channels_last": channels_last,
        "deterministic": _choose_flag(deterministic, not_deterministic),
    }
    options = TrainOptions(
        settings={name: value for name, value in settings.items() if value is not None},
        data=data,
        limit_train=limit_train,
        limit_test=limit_test,
        precision=_choose_one("--precision", precision, "amp" if amp else None),
        backend=backend,
        device=device,
        workers=workers,
        out_dir=out_dir,
        resume=resume,
        save_every=save_every,
        overwrite=overwrite,
        results=results,
    )
    if profile_one_step:
        _mark_step(options, warmup_iters, profile_iter, as_json=as_json, quiet=quiet)
    else:
        _train(options, as_json=as_json, quiet=quiet)


def _choose_flag(yes: bool, no: bool) -> bool | None:
    """One of two opposite flags; None if neither was set."""
    if yes and no:
        raise RidgelineError(
            "--deterministic and --no-deterministic exclude each other", hint="leave one out"
        )
    return yes if yes or no else None


def _choose_one(option: str, first: str | None, second: str | None) -> str | None:
    """The value of one of two options; both are fine if they agree."""
    if first is not None and second is not None and first != second:
        raise RidgelineError(
            f"{option} is given twice: {first} and {second}", hint="leave one of them out"
        )
    return first if first is not None else second


def _train(options: TrainOptions, *, as_json: bool, quiet: bool) -> None:
    from ridgeline.pipeline.train_model import save_training, train_model

    on_message = (lambda text: None) if quiet else _print_message
    with progress_bar(None, quiet=quiet) as progress:
        outcome = train_model(options, on_message, progress.update)
    if outcome.is_interrupted:
        _end_interrupted(options, outcome, as_json=as_json)
    training, result = outcome.training, outcome.result
    assert training is not None and result is not None
    with interrupts_too_late():
        path = None if outcome.is_complete else save_training(options, training, result)
        if as_json:
            print(json.dumps(_to_json(training, result, path), indent=2))
        elif path is None:
            print(_describe_complete(result, options))
        else:
            print(_describe_result(result, training, path))


def _mark_step(
    options: TrainOptions, warmup_iters: int, profile_iter: int, *, as_json: bool, quiet: bool
) -> None:
    from ridgeline.measure.backends import MARKED_RANGE
    from ridgeline.pipeline.train_model import TrainOutcome, mark_training_step
    from ridgeline.train.trainer import made_on

    on_message = (lambda text: None) if quiet else _print_message
    try:
        with progress_bar(None, quiet=quiet) as progress:
            step, training = mark_training_step(
                options,
                on_message,
                progress.update,
                warmup_iters=warmup_iters,
                profile_iter=profile_iter,
            )
    except KeyboardInterrupt:
        _end_interrupted(options, TrainOutcome(), as_json=as_json)
    settings = training.settings
    if as_json:
        content = {
            "schema": SCHEMA,
            "status": "ok",
            "settings": asdict(settings),
            **made_on(training.backend),
            "profiled_step": asdict(step),
            "warnings": list(training.warnings),
        }
        print(json.dumps(content, indent=2))
        return
    text = f"step {step.step} of {settings.model}, {settings.batch_size} images: "
    if step.is_marked:
        text += f"marked for the profiler, as the range {MARKED_RANGE} (loss {step.loss:.3f})"
    else:
        text += f"done; on {training.backend.kind} there is no profiler to mark it for"
    print(text)


def _print_message(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# ---------------------------------------------------------------- text and JSON


def _describe_result(result: TrainResult, training: PreparedTraining, run: Path) -> str:
    """What came of a training, and where it is."""
    settings, best, files = result.settings, result.best, training.files
    titles = {
        files.best: f"epoch {best.epoch}, the best",
        files.last: "the last epoch",
        files.final_weights: "its weights alone",
        run: "this run",
    }
    rows = {str(path): title for path, title in titles.items() if path.exists()}
    width = max(len(path) for path in rows)
    before = result.epochs_before  # whose speeds may be of another machine
    since = f" since epoch {before}" if before else ""
    return "\n".join(
        [
            f"{settings.model} on {settings.data}: {format_percent(best.test_accuracy)} of the test"
            f" images recognised after epoch {best.epoch},"
            f" {format_percent(result.history[-1].test_accuracy)} at the end",
            f"{result.images_per_s:.1f} images/s in the median epoch{since}, "
            f"{format_time(result.time_s)} in all",
            *(f"{path:<{width}}  {title}" for path, title in rows.items()),
        ]
    )


def _describe_complete(result: TrainResult, options: TrainOptions) -> str:
    epochs = result.settings.epochs
    return (
        f"{options.resume} has all of its {epochs} epochs: nothing is left to train, and no run "
        "is stored\n"
        "  hint: to train longer, begin anew: the same command with --epochs "
        f"{2 * epochs} --out-dir DIR and without --resume"
    )


def _to_json(training: PreparedTraining, result: TrainResult, run: Path | None) -> dict[str, Any]:
    """The form that scripts read. Without a run, nothing was left to train."""
    from ridgeline.pipeline.train_model import summarize_training

    files = training.files
    return {
        "schema": SCHEMA,
        "settings": asdict(training.settings),
        **summarize_training(training, result),
        "status": "ok" if run else "nothing left",
        "files": {
            "best": str(files.best),
            "last": str(files.last),
            "final_weights": str(files.final_weights),
            "run": str(run) if run else None,
        },
    }


def _end_interrupted(options: TrainOptions, outcome: TrainOutcome, *, as_json: bool) -> NoReturn:
    """After Ctrl-C: print what is saved and how to go on, and exit."""
    epochs = [result.to_dict() for result in outcome.history]
    if as_json:
        content = {"schema": SCHEMA, "status": "interrupted", "history": epochs}
        print(json.dumps(content, indent=2))
    text = "no epoch was done, so nothing was saved"
    if epochs and outcome.training is not None:
        data = ["--data", options.data] if options.data not in (None, "synthetic") else []
        last = str(outcome.training.files.last)
        command = shlex.join(["ridgeline", "train", "--resume", last, *data])
        text = f"epochs 1 to {len(epochs)} are saved\n  hint: go on with {command}"
    print(f"ridgeline: interrupted; {text}", file=sys.stderr)
    sys.exit(INTERRUPTED)
