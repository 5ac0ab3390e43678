"""`ridgeline run`: how fast a model runs here, and what it costs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ridgeline.cli.arguments import config_values, folder, sizes, whole_numbers
from ridgeline.cli.choices import MODELS, OPTIMIZERS, SOURCES, complete
from ridgeline.errors import RidgelineError
from ridgeline.records import MODES, PRECISIONS
from ridgeline.settings import BACKENDS, COMPILE_MODES, SYNTHETIC, SYNTHETIC_HOST, Settings

EXAMPLES = """
[bold]Examples[/]

  ridgeline run resnet50
  ridgeline run resnet50 vgg16 mobilenet_v2 -b 16,32,64,128 --mode train --precision amp
  ridgeline run resnet50 --layers --no-energy
  ridgeline run resnet50 --mode train --data data/imagenet-mini --workers 4 --pin-memory
  ridgeline run transformers:gpt2 --mode train --seq-len 512 --data tokens/ --optimizer adamw
  ridgeline run resnet50 -b 32 --repeats 3 --label first-try
  ridgeline run vit_b_16 --mode train --precision amp --find-max-batch
  ridgeline run resnet18_cifar --json | jq '.runs[0].step_time_s.median'

[bold]Exit code[/]: 0 all went well; 2 something asked for is not possible; 3 a run failed (its
reason is stored with it); 130 interrupted. What was completed is kept in every case.
"""

BATCH_SIZE = "32"

in_work = partial(typer.Option, rich_help_panel="What is run")
in_step = partial(typer.Option, rich_help_panel="How a step is made")
in_measuring = partial(typer.Option, rich_help_panel="What is measured")
in_output = partial(typer.Option, rich_help_panel="What is kept and shown")


def run(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL…",
            help="resnet50, torchvision:NAME, timm:NAME, transformers:TYPE, file.py:factory",
            autocompletion=complete(MODELS + SOURCES),
            show_default=False,
        ),
    ] = None,
    batch_size: Annotated[
        str | None,
        in_work(
            "-b",
            "--batch-size",
            "--batch-sizes",
            help="One or several: 1,8,32.",
            show_default=BATCH_SIZE,
        ),
    ] = None,
    mode: Annotated[str, in_work(help="train or infer.", autocompletion=complete(MODES))] = "train",
    precision: Annotated[
        str,
        in_step(
            help="One or several of fp32, tf32, amp, bf16, fp16.",
            autocompletion=complete(PRECISIONS),
        ),
    ] = "fp32",
    backend: Annotated[
        str, in_step(help="auto, cuda, mps or cpu.", autocompletion=complete(BACKENDS))
    ] = "auto",
    device: Annotated[int, in_step(help="Which CUDA device.", min=0)] = 0,
    input_size: Annotated[
        str | None, in_work(help="224, or 224,320, or 3,64,64 for a model of your own.")
    ] = None,
    seq_len: Annotated[int | None, in_work(help="Tokens per sample.")] = None,
    config: Annotated[
        str | None, in_work(help="hidden_size=1024,num_layers=4 or a config.json.")
    ] = None,
    warmup_iters: Annotated[
        int | None,
        in_measuring(help="Warm up at least so many steps; more until times are steady."),
    ] = None,
    iters: Annotated[
        int | None, in_measuring(help="Timed steps; if not given, about ten seconds of them.")
    ] = None,
    repeats: Annotated[
        int, in_measuring(help="Run each configuration so often, each in a new process.", min=1)
    ] = 1,
    optimizer: Annotated[
        str,
        in_step(help="sgd, momentum, adam, adamw, rmsprop, …", autocompletion=complete(OPTIMIZERS)),
    ] = "sgd",
    lr: Annotated[float | None, in_step(help="Learning rate; 0.001 if not given.")] = None,
    momentum: Annotated[float | None, in_step(help="For optimizers that have one.")] = None,
    weight_decay: Annotated[float | None, in_step(help="As the optimizer means it.")] = None,
    grad_accum_steps: Annotated[
        int, in_step(help="Batches per optimizer step; a step is all of them.")
    ] = 1,
    channels_last: Annotated[
        bool, in_step("--channels-last", help="Images in NHWC order.")
    ] = False,
    deterministic: Annotated[
        bool, in_step("--deterministic", help="Deterministic algorithms where there are any.")
    ] = False,
    cudnn_benchmark: Annotated[
        bool, in_step("--cudnn-benchmark", help="Let cuDNN try its algorithms first.")
    ] = False,
    compiled: Annotated[bool, in_step("--compile", help="Use torch.compile.")] = False,
    compile_mode: Annotated[
        str | None,
        in_step(
            help="default, reduce-overhead or max-autotune; implies --compile.",
            autocompletion=complete(COMPILE_MODES),
        ),
    ] = None,
    nvtx: Annotated[bool, in_measuring("--nvtx", help="Name steps and phases for Nsight.")] = False,
    data: Annotated[
        str,
        in_work(
            metavar="DIR|synthetic",
            help="A folder of images, CIFAR-10 or tokens; synthetic: a batch that stays on the "
            "device; synthetic-host: one that is copied in every step.",
        ),
    ] = SYNTHETIC,
    workers: Annotated[int, in_work(help="Processes that load data.")] = 0,
    pin_memory: Annotated[
        bool, in_work("--pin-memory", help="Copy from page-locked memory.")
    ] = False,
    prefetch_factor: Annotated[
        int | None, in_work(help="Batches that each worker keeps ready.")
    ] = None,
    augment: Annotated[
        bool, in_work("--augment/--no-augment", help="Random crops and flips.")
    ] = True,
    layers: Annotated[
        bool, in_measuring("--layers", help="Time every module, in a pass of its own.")
    ] = False,
    energy: Annotated[
        bool | None,
        in_measuring(
            "--energy/--no-energy", help="Measure joules; by default where there is a meter."
        ),
    ] = None,
    energy_time: Annotated[float, in_measuring(help="Seconds under load for energy.")] = 5.0,
    layer_energy: Annotated[
        bool,
        in_measuring("--layer-energy", help="Joules per layer, by repeating each; takes minutes."),
    ] = False,
    find_max_batch: Annotated[
        bool,
        in_measuring("--find-max-batch", help="Find the largest batch that fits and run it."),
    ] = False,
    seed: Annotated[int, in_step(help="Of weights, data and shuffling.")] = 0,
    label: Annotated[str | None, in_output(help="A name for these runs.")] = None,
    results: Annotated[
        Path,
        in_output(metavar="DIR", parser=folder, help="Where runs are kept."),
    ] = Path("results"),
    in_process: Annotated[
        bool,
        in_measuring("--in-process", help="No process per run: for debuggers and profilers."),
    ] = False,
    as_json: Annotated[bool, in_output("--json", help="For programs, on stdout.")] = False,
    quiet: Annotated[
        bool, in_output("-q", "--quiet", help="No progress, no places; notes on the numbers stay.")
    ] = False,
    debug: Annotated[bool, in_output("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Time training or inference steps of models, with energy and layers; every sample is kept.

    Each configuration runs in a process of its own and is stored as a run in the results folder,
    which also gets a row in metrics.csv.
    """
    if not models:
        raise RidgelineError(
            "no model was named",
            hint="for example: ridgeline run resnet50; `ridgeline count --list` shows all names",
        )
    if label is not None and not label.strip():
        raise RidgelineError("--label is empty", hint="give these runs a name, or leave it out")
    if find_max_batch and batch_size is not None:
        raise RidgelineError(
            "--batch-size and --find-max-batch exclude each other",
            hint="leave --batch-size out to run the largest batch that fits",
        )
    from ridgeline.cli.measured import Asked, run_all

    precisions = tuple(part.strip() for part in precision.split(","))
    settings = [
        Settings(
            backend=backend,
            device=device,
            precision=one,
            warmup_iters=warmup_iters,
            iters=iters,
            optimizer=optimizer,
            lr=lr,
            momentum=momentum,
            weight_decay=weight_decay,
            grad_accum_steps=grad_accum_steps,
            channels_last=channels_last,
            deterministic=deterministic,
            cudnn_benchmark=cudnn_benchmark,
            compile=compile_mode or ("default" if compiled else None),
            nvtx=nvtx,
            seed=seed,
            data=_data(data),
            workers=workers,
            pin_memory=pin_memory,
            prefetch_factor=prefetch_factor,
            augment=augment,
            layers=layers,
            energy=energy,
            energy_time_s=energy_time,
            layer_energy=layer_energy,
        )
        for one in precisions
    ]
    run_all(
        Asked(
            models=tuple(models),
            batch_sizes=whole_numbers("--batch-size", batch_size or BATCH_SIZE, like="1,8,32"),
            mode=mode,
            settings=tuple(settings),
            input_size=sizes(input_size),
            seq_len=seq_len,
            config=config_values(config),
            repeats=repeats,
            find_max_batch=find_max_batch,
            label=label,
            results=results,
            in_process=in_process,
            as_json=as_json,
            quiet=quiet,
            debug=debug,
        )
    )


def _data(text: str) -> str:
    """`synthetic`, `synthetic-host`, or a path that must be there."""
    if text in (SYNTHETIC, SYNTHETIC_HOST) or Path(text).exists():
        return text
    raise RidgelineError(
        f"there is no data at {text!r}",
        hint=f"name a folder, {SYNTHETIC} or {SYNTHETIC_HOST}",
    )
