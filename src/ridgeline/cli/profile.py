"""`ridgeline profile`: what the hardware really did in a step."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from ridgeline.cli.arguments import config_values, folder, sizes, whole_numbers
from ridgeline.cli.choices import MODELS, OPTIMIZERS, SOURCES, complete
from ridgeline.errors import RidgelineError
from ridgeline.profile.metrics import AUTO, CUPTI, LEVELS, TIERS, TOOLS
from ridgeline.records import MODES, PRECISIONS
from ridgeline.settings import COMPILE_MODES, Settings

EXAMPLES = """
[bold]Examples[/]

  ridgeline profile resnet50 --precision amp --dry-run
  ridgeline profile resnet50 --precision amp
  ridgeline profile resnet50 mobilenet_v2 --precision fp32,amp
  ridgeline profile resnet50 --tool ncu
  ridgeline profile vgg16 --mode infer --level hierarchical
  ridgeline profile resnet50 --tier time         (no counters, no permission needed)
  ridgeline profile -- python train.py           (steps marked by ridgeline.profile_step())
  ridgeline profile resnet50 --json | jq '.profiles[0].flops'

[bold]Exit code[/]: 0 all went well; 2 something asked for is not possible, or a program of yours
failed; 3 a run or a profile failed (its reason is stored with it, unless that was a --dry-run);
130 interrupted. What was completed is kept in every case.
"""
BATCH_SIZE = "32"
UNWATCHED_STEPS = 50  # that the time of a step is taken from
OF_MODELS = (
    "batch_size", "mode", "device", "input_size", "seq_len", "config", "optimizer",
    "grad_accum_steps", "channels_last", "deterministic", "compile_mode", "seed",
)  # fmt: skip

TIME = "time"  # the tier without counters
OF_COUNTERS = ("tool", "level", "dry_run")

in_work = partial(typer.Option, rich_help_panel="What is run")
in_step = partial(typer.Option, rich_help_panel="How a step is made")
in_profile = partial(typer.Option, rich_help_panel="What is counted")
in_output = partial(typer.Option, rich_help_panel="What is kept and shown")


class WithProgram(TyperCommand):
    """A command that takes a program of the user's after `--`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            place = args.index("--")
            ctx.meta["program"] = tuple(args[place + 1 :])
            args = args[:place]
        return super().parse_args(ctx, args)


def profile(
    ctx: typer.Context,
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL… | -- PROGRAM",
            help="resnet50, torchvision:NAME, timm:NAME, transformers:TYPE, file.py:factory; or "
            "after -- a program of your own.",
            autocompletion=complete(MODELS + SOURCES),
            show_default=False,
        ),
    ] = None,
    batch_size: Annotated[
        str, in_work("-b", "--batch-size", "--batch-sizes", help="One or several: 1,8,32.")
    ] = BATCH_SIZE,
    mode: Annotated[str, in_work(help="train or infer.", autocompletion=complete(MODES))] = "train",
    precision: Annotated[
        str | None,
        in_step(
            help="One or several of fp32, tf32, amp, bf16, fp16, or fp32 if none is named; of a "
            "program, what its tensor cores compute in.",
            autocompletion=complete(PRECISIONS),
        ),
    ] = None,
    device: Annotated[int, in_step(help="Which CUDA device.", min=0)] = 0,
    input_size: Annotated[
        str | None, in_work(help="224, or 224,320, or 3,64,64 for a model of your own.")
    ] = None,
    seq_len: Annotated[int | None, in_work(help="Tokens per sample.")] = None,
    config: Annotated[
        str | None, in_work(help="hidden_size=1024,num_layers=4 or a config.json.")
    ] = None,
    tier: Annotated[
        str,
        in_profile(
            help="counters, or time: kernel times alone, by torch's profiler.",
            autocompletion=complete(TIERS),
        ),
    ] = "counters",
    level: Annotated[
        str,
        in_profile(
            help="dram, or hierarchical: L2 and L1 bytes, too.", autocompletion=complete(LEVELS)
        ),
    ] = "dram",
    tool: Annotated[
        str,
        in_profile(
            help="cupti: by the process itself, every kernel; ncu: by Nsight Compute around it; "
            "auto: ncu where cupti cannot.",
            autocompletion=complete(TOOLS),
        ),
    ] = AUTO,
    dry_run: Annotated[
        bool, in_profile("--dry-run", help="Show what would be counted and how long it takes.")
    ] = False,
    iters: Annotated[int, in_profile(help="Steps to capture.", min=1)] = 1,
    warmup_iters: Annotated[int, in_profile(help="Steps before them.", min=1)] = 3,
    optimizer: Annotated[
        str,
        in_step(help="sgd, momentum, adam, adamw, rmsprop, …", autocompletion=complete(OPTIMIZERS)),
    ] = "sgd",
    grad_accum_steps: Annotated[int, in_step(help="Batches per optimizer step.")] = 1,
    channels_last: Annotated[
        bool, in_step("--channels-last", help="Images in NHWC order.")
    ] = False,
    deterministic: Annotated[
        bool, in_step("--deterministic", help="Deterministic algorithms where there are any.")
    ] = False,
    compile_mode: Annotated[
        str | None,
        in_step(
            help="Use torch.compile: default, reduce-overhead or max-autotune.",
            autocompletion=complete(COMPILE_MODES),
        ),
    ] = None,
    seed: Annotated[int, in_step(help="Of weights and data.")] = 0,
    keep: Annotated[
        Path | None,
        in_output(metavar="DIR", parser=folder, help="Keep the trace and what was counted there."),
    ] = None,
    label: Annotated[str | None, in_output(help="A name for it.")] = None,
    results: Annotated[
        Path, in_output(metavar="DIR", parser=folder, help="Where everything is kept.")
    ] = Path("results"),
    as_json: Annotated[bool, in_output("--json", help="For programs, on stdout.")] = False,
    quiet: Annotated[bool, in_output("-q", "--quiet", help="No progress, no advice.")] = False,
    debug: Annotated[bool, in_output("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Count what the GPU executes in one step: FLOPs, bytes and time of every kernel and layer.

    The step is run unwatched first: times of step and layers are from there, those of kernels from
    a trace. Then the chip's counters are read over a whole step, through CUPTI or Nsight Compute:
    forward, backward on autograd's threads, and the optimizer. Each kernel is told by layer, phase
    and operator.
    """
    program: tuple[str, ...] = ctx.meta.get("program", ())
    if bool(models) == bool(program):
        raise RidgelineError(
            "name models or a program after --, not both" if models else "no model was named",
            hint="for example: ridgeline profile resnet50, or ridgeline profile -- python train.py",
        )
    if label is not None and not label.strip():
        raise RidgelineError("--label is empty", hint="give it a name, or leave it out")
    if program:
        _check_of_program(ctx, precision, tool)
    _check_of_counters(ctx, tier)
    from ridgeline.cli.profiled import Profiling, Wanted

    settings = tuple(
        Settings(
            backend="cuda",
            device=device,
            precision=one,
            optimizer=optimizer,
            grad_accum_steps=grad_accum_steps,
            channels_last=channels_last,
            deterministic=deterministic,
            compile=compile_mode,
            iters=UNWATCHED_STEPS,
            seed=seed,
            layers=True,
            energy=False,
        )
        for one in dict.fromkeys(name.strip() for name in (precision or "fp32").split(","))
    )
    Profiling(
        Wanted(
            models=tuple(dict.fromkeys(models or ())),
            program=program,
            precision_told=(precision or "") if program else "",
            batch_sizes=whole_numbers("--batch-size", batch_size, like="1,8,32"),
            mode=mode,
            settings=settings,
            input_size=sizes(input_size),
            seq_len=seq_len,
            config=config_values(config),
            tier=tier,
            level=level,
            tool=tool,
            is_dry=dry_run,
            iters=iters,
            warmup=warmup_iters,
            keep=keep,
            label=label,
            results=results,
            as_json=as_json,
            quiet=quiet,
            debug=debug,
        )
    ).run()


def _check_of_counters(ctx: typer.Context, tier: str) -> None:
    """What says how to count would be left unheard where nothing is counted."""
    given = {str(p.name): p.opts[-1] for p in ctx.command.params if _is_given(ctx, str(p.name))}
    if tier == TIME and (unheard := [given[name] for name in OF_COUNTERS if name in given]):
        raise RidgelineError(
            f"{unheard[0]} is about counters, and --tier time reads none",
            hint=f"leave out {unheard[0]}, or --tier time",
        )


def _is_given(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _check_of_program(ctx: typer.Context, precision: str | None, tool: str) -> None:
    """A program makes its step itself: what says how would be left unheard."""
    for option in ctx.command.params:
        if option.name in OF_MODELS and _is_given(ctx, str(option.name)):
            name = next(one for one in option.opts if one.startswith("--"))
            raise RidgelineError(
                f"{name} is for models, and says nothing to a program",
                hint="CUDA_VISIBLE_DEVICES=N in the environment chooses the device"
                if option.name == "device"
                else "leave it out, or put what the program understands after its name",
            )
    if tool == CUPTI:
        raise RidgelineError(
            "CUPTI counts models; a program is counted by Nsight Compute",
            hint="leave --tool out, or profile the model by its name or as file.py:factory",
        )
    if precision and "," in precision:
        raise RidgelineError(
            "a program has one --precision", hint="name one, or none to count all kinds"
        )
