"""`ridgeline analyze`: from a model's name to a report."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ridgeline.cli.arguments import config_values, folder, sizes, whole_numbers
from ridgeline.cli.choices import MODELS, OPTIMIZERS, SOURCES, complete
from ridgeline.errors import RidgelineError
from ridgeline.records import MODES, PRECISIONS
from ridgeline.settings import BACKENDS, COMPILE_MODES

EXAMPLES = """
[bold]Examples[/]

  ridgeline analyze resnet50
  ridgeline analyze resnet18 mobilenet_v2 --quick
  ridgeline analyze resnet50 vgg16 mobilenet_v2 --precision fp32,amp -b 32,128
  ridgeline analyze examples/your_network.py:make --mode infer -b 1,8
  ridgeline analyze transformers:gpt2 --seq-len 512 --optimizer adamw
  ridgeline analyze resnet50 --json | jq '.findings[0]'

[bold]Exit code[/]: 0 all went well; 2 something asked for is not possible; 3 a run failed (its
reason is told and stored); 130 interrupted. What was completed is kept in every case.
"""

in_work = partial(typer.Option, rich_help_panel="What is run")
in_step = partial(typer.Option, rich_help_panel="How")
in_output = partial(typer.Option, rich_help_panel="What is kept and shown")


def analyze(
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
        in_work("-b", "--batch-size", "--batch-sizes", help="1,8,32; chosen if not given."),
    ] = None,
    mode: Annotated[str, in_work(help="train or infer.", autocompletion=complete(MODES))] = "train",
    precision: Annotated[
        str,
        in_work(
            help="One or several of fp32, tf32, amp, bf16, fp16.",
            autocompletion=complete(PRECISIONS),
        ),
    ] = "fp32",
    input_size: Annotated[
        str | None, in_work(help="224, or 224,320, or 3,64,64 for a model of your own.")
    ] = None,
    seq_len: Annotated[int | None, in_work(help="Tokens per sample.")] = None,
    config: Annotated[
        str | None, in_work(help="hidden_size=1024,num_layers=4 or a config.json.")
    ] = None,
    quick: Annotated[
        bool,
        in_step("--quick", help="Quick ceilings, one batch size, fewer steps: a first look."),
    ] = False,
    remeasure: Annotated[
        bool, in_step("--remeasure", help="Measure the machine, even if it was before.")
    ] = False,
    backend: Annotated[
        str, in_step(help="auto, cuda, mps or cpu.", autocompletion=complete(BACKENDS))
    ] = "auto",
    device: Annotated[int, in_step(help="Which CUDA device.", min=0)] = 0,
    optimizer: Annotated[
        str,
        in_step(help="sgd, momentum, adam, adamw, rmsprop, …", autocompletion=complete(OPTIMIZERS)),
    ] = "sgd",
    channels_last: Annotated[
        bool, in_step("--channels-last", help="Images in NHWC order.")
    ] = False,
    cudnn_benchmark: Annotated[
        bool, in_step("--cudnn-benchmark", help="Let cuDNN try its algorithms first.")
    ] = False,
    compile_mode: Annotated[
        str | None,
        in_step(
            help="Use torch.compile: default, reduce-overhead or max-autotune.",
            autocompletion=complete(COMPILE_MODES),
        ),
    ] = None,
    iters: Annotated[
        int | None, in_step(help="Timed steps; if not given, about ten seconds of them.")
    ] = None,
    repeats: Annotated[
        int, in_step(help="Run each configuration so often, each in a new process.", min=1)
    ] = 1,
    energy: Annotated[
        bool | None,
        in_step("--energy/--no-energy", help="Measure joules; by default where there is a meter."),
    ] = None,
    profile: Annotated[
        bool,
        in_step(
            "--profile/--no-profile",
            help="Read hardware counters where there is an NVIDIA GPU.",
        ),
    ] = True,
    seed: Annotated[int, in_step(help="Of weights and data.")] = 0,
    in_process: Annotated[
        bool, in_step("--in-process", help="No process per run: for debuggers and profilers.")
    ] = False,
    label: Annotated[str | None, in_output(help="A name for these runs.")] = None,
    title: Annotated[str | None, in_output(help="Of the report.")] = None,
    notebook: Annotated[
        bool, in_output("--notebook", help="Also a notebook that reloads the data.")
    ] = False,
    results: Annotated[
        Path, in_output(metavar="DIR", parser=folder, help="Where everything is kept.")
    ] = Path("results"),
    as_json: Annotated[bool, in_output("--json", help="For programs, on stdout.")] = False,
    quiet: Annotated[bool, in_output("-q", "--quiet", help="No progress, no advice.")] = False,
    debug: Annotated[bool, in_output("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Tell how fast models could be here, how fast they are, what holds them back: one report.

    The machine is measured (once, then kept), the models are counted and run, layer by layer, and
    all of it is joined into a page, report.md and figures. The last line is the report's path.
    """
    if not models:
        raise RidgelineError(
            "no model was named",
            hint="for example: ridgeline analyze resnet50; `ridgeline count --list` has all names",
        )
    if label is not None and not label.strip():
        raise RidgelineError("--label is empty", hint="give these runs a name, or leave it out")
    from ridgeline.cli.analyzed import Analysis, Wanted
    from ridgeline.settings import Settings

    settings = tuple(
        Settings(
            backend=backend,
            device=device,
            precision=one.strip(),
            iters=iters,
            optimizer=optimizer,
            channels_last=channels_last,
            cudnn_benchmark=cudnn_benchmark,
            compile=compile_mode,
            seed=seed,
            layers=True,
            energy=energy,
        )
        for one in precision.split(",")
    )
    chosen: tuple[int, ...] = ()
    if batch_size is not None:
        chosen = whole_numbers("--batch-size", batch_size, like="1,8,32")
    Analysis(
        Wanted(
            models=tuple(dict.fromkeys(models)),
            batch_sizes=chosen,
            mode=mode,
            settings=settings,
            input_size=sizes(input_size),
            seq_len=seq_len,
            config=config_values(config),
            is_quick=quick,
            with_counters=profile,
            remeasure=remeasure,
            repeats=repeats,
            label=label,
            title=title,
            notebook=notebook,
            results=results,
            in_process=in_process,
            as_json=as_json,
            quiet=quiet,
            debug=debug,
        )
    ).run()
