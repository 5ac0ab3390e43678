"""`ridgeline profile`: what the hardware really did in a step."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from ridgeline.cli.options import MODELS, SOURCES, complete, parse_folder
from ridgeline.cli.step_options import (
    MODEL_NAMES,
    STEP,
    Config,
    Debug,
    InputSize,
    Json,
    Mode,
    Quiet,
    Results,
    SeqLen,
    Step,
    check_label,
    in_output,
    in_work,
    option_names,
    precision_option,
    select,
    takes_step,
)
from ridgeline.errors import RidgelineError
from ridgeline.profile.request import AUTO, CUPTI, LEVELS, TIERS, TOOLS
from ridgeline.settings import DEFAULT_BATCH, check_mode

if TYPE_CHECKING:
    from ridgeline.cli.progress import Progress
    from ridgeline.pipeline.cases import Selection
    from ridgeline.pipeline.profile import Profiler

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
UNWATCHED_STEPS = 50  # that the time of a step is taken from
TIME = "time"  # the tier without counters
OF_COUNTERS = ("tool", "level", "dry_run")
OF_MODELS = (
    "batch_size", "mode", "input_size", "seq_len", "config", *option_names("profile"),
)  # fmt: skip

in_profile = partial(typer.Option, rich_help_panel="What is counted")


class WithProgram(TyperCommand):
    """A command that takes a program of the user's after `--`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            place = args.index("--")
            ctx.meta["program"] = tuple(args[place + 1 :])
            args = args[:place]
        return super().parse_args(ctx, args)


@takes_step()
def profile(
    ctx: typer.Context,
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL… | -- PROGRAM",
            help=f"{MODEL_NAMES}; or after -- a program of your own.",
            autocompletion=complete(MODELS + SOURCES),
            show_default=False,
        ),
    ] = None,
    batch_size: Annotated[
        str, in_work("-b", "--batch-size", "--batch-sizes", help="One or several: 1,8,32.")
    ] = str(DEFAULT_BATCH),
    mode: Mode = "train",
    precision: Annotated[
        str | None,
        precision_option(
            rich_help_panel=STEP,
            help="One or several of fp32, tf32, amp, bf16, fp16, or fp32 if none is named; of a "
            "program, what its tensor cores compute in.",
        ),
    ] = None,
    input_size: InputSize = None,
    seq_len: SeqLen = None,
    config: Config = None,
    *,
    step: Step,
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
    keep: Annotated[
        Path | None,
        in_output(
            metavar="DIR", parser=parse_folder, help="Keep the trace and what was counted there."
        ),
    ] = None,
    label: Annotated[str | None, in_output(help="A name for it.")] = None,
    results: Results = Path("results"),
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
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
    text = check_label(label, "give it a name, or leave it out")
    if program:
        _check_of_program(ctx, precision, tool)
    _check_of_counters(ctx, tier)
    each = ",".join(dict.fromkeys(name.strip() for name in (precision or "fp32").split(",")))
    selection = select(
        list(dict.fromkeys(models or ())), batch_size, mode, input_size, seq_len, config,
        settings=step.settings(
            each, backend="cuda", iters=UNWATCHED_STEPS, layers=True, energy=False
        ),
        label=text,
    )  # fmt: skip
    check_mode(mode)
    from ridgeline.cli.show_runs import show_log
    from ridgeline.pipeline.profile import Profiler, check_options
    from ridgeline.store import ResultsFolder

    options = {"tier": tier, "level": level, "tool": tool, "steps": iters, "warmup": warmup_iters,
               "is_dry": dry_run, "keep": keep}  # fmt: skip
    check_options(options)  # what cannot be requested is said before anything runs
    store = ResultsFolder(results)
    store.check_writable()
    profiler = Profiler(results=store, options=options, label=text, on_failure_log=show_log(debug))
    is_interrupted = False
    try:
        _profile(profiler, selection, program, precision or "", quiet=quiet)
    except KeyboardInterrupt:
        is_interrupted = True
    _finish(profiler, as_json=as_json, quiet=quiet, is_interrupted=is_interrupted)


def _profile(
    profiler: Profiler,
    selection: Selection,
    program: tuple[str, ...],
    precision: str,
    *,
    quiet: bool,
) -> None:
    """The models, or the program, with a bar and with lines beside it unless quiet."""
    from ridgeline.cli.progress import progress_bar
    from ridgeline.pipeline.profile import COUNTED_S, PROGRAM_S, RUN_S, TRACE_S

    one_s = RUN_S + TRACE_S + COUNTED_S
    total_s = PROGRAM_S if program else one_s * selection.case_count
    with progress_bar(total_s, quiet=quiet, in_seconds=True) as progress:
        profiler.progress = progress
        if not quiet:
            profiler.on_plan = lambda name, plan: _print_aside(progress, f"{name}: {plan}")
            profiler.on_message = lambda text: _print_aside(progress, f"note: {text}")
        if program:
            profiler.profile_program(program, precision)
        else:
            profiler.profile_models(selection)


def _print_aside(progress: Progress, text: str) -> None:
    with progress.aside():
        print(text, file=sys.stderr, flush=True)


def _finish(profiler: Profiler, *, as_json: bool, quiet: bool, is_interrupted: bool) -> None:
    """Show what there is, and end with the code for it."""
    from ridgeline.cli import show_profiles, show_runs
    from ridgeline.report.views import write_views

    profiles, runner = profiler.profiles, profiler.runner
    if runner is not None and runner.runs:
        write_views(profiler.results)
    if as_json:
        content = {
            "profiles": [show_profiles.as_dict(run) for run in profiles],
            "plans": [{"name": name, **plan.to_dict()} for name, plan in profiler.plans.items()],
        }
        print(json.dumps(content, indent=2, allow_nan=False))
    elif any(run.result.status == "ok" for run in profiles):
        show_profiles.show(profiles, profiler.results, quiet=quiet)
        for run in () if quiet else profiles:
            print(f"wrote {run.path}", file=sys.stderr)
    if is_interrupted:
        show_runs.end_interrupted(f"; profiles kept: {len(profiles)}")
    for failure in dict.fromkeys(map(str, profiler.failures)):
        print(f"ridgeline: {failure}", file=sys.stderr)
    if runner is not None and runner.errors:
        show_runs.raise_last(runner.errors)
    failed = runner.failed if runner is not None else []
    show_runs.show_failed(failed)
    if failed or profiler.failures:
        sys.exit(show_runs.SOME_FAILED)


def _is_set(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _check_of_counters(ctx: typer.Context, tier: str) -> None:
    """Refuse options about counters where none are read."""
    options = {str(p.name): p.opts[-1] for p in ctx.command.params if _is_set(ctx, str(p.name))}
    if tier == TIME and (useless := [options[name] for name in OF_COUNTERS if name in options]):
        raise RidgelineError(
            f"{useless[0]} is about counters, and --tier time reads none",
            hint=f"leave out {useless[0]}, or --tier time",
        )


def _check_of_program(ctx: typer.Context, precision: str | None, tool: str) -> None:
    """Refuse options of a step: a program makes its step itself."""
    for option in ctx.command.params:
        if option.name in OF_MODELS and _is_set(ctx, str(option.name)):
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
