"""`ridgeline train`: a real training on CIFAR-10, with checkpoints that can be gone on with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ridgeline.cli.arguments import folder
from ridgeline.cli.choices import MODELS, complete
from ridgeline.cli.interrupts import stopped_at_once
from ridgeline.errors import RidgelineError
from ridgeline.records import PRECISIONS
from ridgeline.settings import BACKENDS

EXAMPLES = """
[bold]Examples[/]

  ridgeline train resnet18 --data synthetic --epochs 3
  ridgeline train resnet18 --epochs 5 --batch-size 128
  ridgeline train resnet34 --epochs 20 --batch-size 256 --amp --workers 4 --label-smoothing 0.1
  ridgeline train --resume artifacts/resnet18_last.pt
  ridgeline train mobilenet_v2 --image-size 64 --limit-train 5000 --limit-test 1000
  ridgeline train resnet18 --data synthetic --profile-one-step --warmup-iters 20 --profile-iter 1
"""

OTHER_TASKS = (
    "bert",
    "deeplab",
    "fasterrcnn",
    "fcn",
    "lstm",
    "maskrcnn",
    "retinanet",
    "ssd",
    "yolo",
)
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
            "--model", metavar="NAME", help="The same.", autocompletion=complete(CLASSIFIERS)
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(metavar="N", help="Passes over the images.", show_default="20", min=1),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            "-b", "--batch-size", metavar="N", help="Images per step.", show_default="128", min=1
        ),
    ] = None,
    lr: Annotated[
        float | None, typer.Option(metavar="X", help="Highest learning rate.", show_default="0.1")
    ] = None,
    momentum: Annotated[
        float | None, typer.Option(metavar="X", help="Of SGD.", show_default="0.9")
    ] = None,
    weight_decay: Annotated[
        float | None, typer.Option(metavar="X", help="Of SGD.", show_default="0.0005")
    ] = None,
    label_smoothing: Annotated[
        float | None, typer.Option(metavar="X", help="0.1, for example.", show_default="0")
    ] = None,
    warmup: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Steps in which the rate rises, before its cosine.",
            show_default="a tenth of all, up to 500",
            min=0,
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|synthetic",
            help="Where CIFAR-10 is, or is downloaded to; or small images made here.",
            show_default="data",
        ),
    ] = None,
    limit_train: Annotated[
        int | None, typer.Option(metavar="N", help="Train on the first so many images.", min=1)
    ] = None,
    limit_test: Annotated[
        int | None, typer.Option(metavar="N", help="Test on the first so many images.", min=1)
    ] = None,
    no_augment: Annotated[
        bool, typer.Option("--no-augment", help="No random crops and mirroring.")
    ] = False,
    image_size: Annotated[
        int | None,
        typer.Option(metavar="N", help="Scale images to this side.", show_default="32", min=1),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="fp32, tf32, amp, bf16 or fp16.",
            show_default="fp32",
            autocompletion=complete(PRECISIONS),
        ),
    ] = None,
    amp: Annotated[bool, typer.Option("--amp", help="Same as --precision amp.")] = False,
    backend: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="auto, cuda, mps or cpu.", autocompletion=complete(BACKENDS)
        ),
    ] = "auto",
    device: Annotated[int, typer.Option(metavar="N", help="Which CUDA device.", min=0)] = 0,
    channels_last: Annotated[
        bool | None, typer.Option("--channels-last", help="Images in NHWC order.")
    ] = None,
    workers: Annotated[
        int,
        typer.Option(
            metavar="N", help="Processes that make batches; 0: the device makes them.", min=0
        ),
    ] = 0,
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", help="Of weights, order and augmentation.", show_default="0"),
    ] = None,
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic",
            help="The same bits each time, where there are such algorithms; so it is on a CPU.",
        ),
    ] = False,
    not_deterministic: Annotated[
        bool, typer.Option("--no-deterministic", help="The fastest; so it is on a GPU.")
    ] = False,
    out_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", parser=folder, help="Where checkpoints go.", show_default="artifacts"
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Go on from this checkpoint, with its settings.",
            show_default=False,
        ),
    ] = None,
    save_every: Annotated[
        int,
        typer.Option(
            metavar="N", help="Also keep a checkpoint every so many epochs; 0: none.", min=0
        ),
    ] = 0,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Begin anew where a training was saved.")
    ] = False,
    profile_one_step: Annotated[
        bool,
        typer.Option(
            "--profile-one-step", help="Warm up, mark one whole step for a profiler, and exit."
        ),
    ] = False,
    warmup_iters: Annotated[int, typer.Option(metavar="N", help="Steps before that.", min=0)] = 20,
    profile_iter: Annotated[
        int, typer.Option(metavar="N", help="Which step after those is marked.", min=1)
    ] = 1,
    results: Annotated[
        Path,
        typer.Option(metavar="DIR", parser=folder, help="Where the run is kept."),
    ] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="For programs, on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress, no advice.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Train a classifier on CIFAR-10: SGD, warm-up and cosine decay; test and save each epoch.

    A training that was killed goes on with --resume as if it had not been: on a CPU, bit for bit.
    With --resume, options that are left out are as in the checkpoint.
    """
    with stopped_at_once("interrupted; nothing was trained"):
        from ridgeline.cli.trained import Asked, run

    given = {
        "model": _one("--model", model, model_option),
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
        "deterministic": _flag(deterministic, not_deterministic),
    }
    run(
        Asked(
            given={name: value for name, value in given.items() if value is not None},
            data=data,
            limit_train=limit_train,
            limit_test=limit_test,
            precision=_one("--precision", precision, "amp" if amp else None),
            backend=backend,
            device=device,
            workers=workers,
            out_dir=out_dir,
            resume=resume,
            save_every=save_every,
            overwrite=overwrite,
            profile_one_step=profile_one_step,
            warmup_iters=warmup_iters,
            profile_iter=profile_iter,
            results=results,
            as_json=as_json,
            quiet=quiet,
        )
    )


def _flag(yes: bool, no: bool) -> bool | None:
    """One of two opposite flags; None if neither was set."""
    if yes and no:
        raise RidgelineError(
            "--deterministic and --no-deterministic exclude each other", hint="leave one out"
        )
    return yes if yes or no else None


def _one(option: str, first: str | None, second: str | None) -> str | None:
    """What was said in one of two ways; both are fine if they agree."""
    if first is not None and second is not None and first != second:
        raise RidgelineError(
            f"{option} is given twice: {first} and {second}", hint="leave one of them out"
        )
    return first if first is not None else second
