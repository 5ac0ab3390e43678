"""`ridgeline profile`: what the hardware really did in a step."""

from __future__ import annotations

import sys
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

from ridgeline.cli import messages
from ridgeline.cli.options import Label, Output, folder, option, takes_groups
from ridgeline.cli.step_options import Step, Work, make_runner
from ridgeline.errors import RidgelineError
from ridgeline.settings import DEFAULT_BATCH
from ridgeline.signals import interrupts_noted
from ridgeline.units import format_time

if TYPE_CHECKING:
    from ridgeline.pipeline.cases import Selection
    from ridgeline.pipeline.profile import Profiler

EXAMPLES = """
[bold]Examples[/]

  ridgeline profile resnet50 --precision amp --dry-run
  ridgeline profile resnet50 --precision amp
  ridgeline profile resnet50 --tier time         (no counters, no permission needed)
  ridgeline profile -- python train.py           (steps marked by ridgeline.profile_step())
  ridgeline profile resnet50 --print-ncu         (for a machine without ridgeline)
  ridgeline profile resnet50 --json | jq '.profiles[0].flops'

[bold]Exit code[/]: 0 all went well; 2 something asked for is not possible, or a program of yours
failed; 3 a run or a profile failed (its reason is stored with it, unless that was a --dry-run);
130 interrupted. What was completed is kept in every case.
"""
UNWATCHED_STEPS = 50  # that the time of a step is taken from
TIME = "time"  # the tier without counters
TIERS = ("counters", TIME)
LEVELS = ("dram", "hierarchical")
AUTO, CUPTI = "auto", "cupti"
TOOLS = (AUTO, CUPTI, "ncu")
OF_COUNTERS = ("tool", "level", "dry_run", "metrics")
OF_SIZES = ("batch_sizes", "mode", "input_sizes", "seq_len", "config")

in_profile = partial(option, rich_help_panel="What is counted")


class WithProgram(TyperCommand):
    """A command that takes a program of the user's after `--`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            place = args.index("--")
            ctx.meta["program"] = tuple(args[place + 1 :])
            args = args[:place]
        return super().parse_args(ctx, args)


@takes_groups
def profile(
    ctx: typer.Context,
    work: Work,
    step: Step,
    tier: str = in_profile(
        "counters", "counters, or time: kernel times alone, by torch's profiler.", choices=TIERS
    ),
    level: str = in_profile("dram", "dram, or hierarchical: L2 and L1 bytes, too.", choices=LEVELS),
    tool: str = in_profile(
        AUTO,
        "cupti: in the process itself; ncu: by Nsight Compute around it; auto: ncu if need be.",
        choices=TOOLS,
    ),
    dry_run: bool = in_profile(
        False, "Show what would be counted and how long it takes.", "--dry-run"
    ),
    iters: int = in_profile(1, "Steps to capture.", min=1),
    warmup_iters: int = in_profile(3, "Steps before them.", min=1),
    metrics: Path | None = in_profile(
        None, "Also count the metrics that this file names, a column each.", metavar="FILE"
    ),
    print_ncu: bool = in_profile(
        False,
        "Print the command of Nsight Compute for a machine without ridgeline; run nothing.",
        "--print-ncu",
    ),
    keep: Path | None = folder(None, "Keep the trace and what was counted there."),
    label: Label = None,
    *,
    output: Output,
) -> None:
    """Count what the GPU executes in one step: FLOPs, bytes and time of every kernel and layer.

    The step is run unwatched first: times of step and layers are from there, those of kernels from
    a trace. Then the chip's counters are read over a whole step, through CUPTI or Nsight Compute:
    forward, backward on autograd's threads, and the optimizer. Each kernel is told by layer, phase
    and operator. A program of your own goes after --; its --precision is what its tensor cores
    compute in.
    """
    program: tuple[str, ...] = ctx.meta.get("program", ())
    if bool(work.models) == bool(program):
        raise RidgelineError(
            "name models or a program after --, not both" if program else "no model was named",
            hint="for example: ridgeline profile resnet50, or ridgeline profile -- python train.py",
        )
    if program:
        _check_of_program(ctx, (*OF_SIZES, *step.values), work.precision, tool)
    if tier == TIME:
        hint = "leave it out, or --tier time"
        _refuse(ctx, OF_COUNTERS, "is about counters, and --tier time reads none", hint)
    selection = work.select(
        step, default_batch_sizes=(DEFAULT_BATCH,), label=label,
        backend="cuda", iters=UNWATCHED_STEPS, layers=True, energy=False,
    )  # fmt: skip
    from ridgeline.pipeline.profile import Profiler
    from ridgeline.profile.request import read_metric_names

    if print_ncu:
        from ridgeline.pipeline.profile import write_ncu_command

        if metrics:
            raise RidgelineError(
                "--print-ncu asks for the metrics that `ridgeline import` uses, and no others",
                hint="leave --metrics out, and add names to $METRICS in what it prints",
            )
        return print(write_ncu_command(selection, program, warmup_iters))
    options = {"tier": tier, "level": level, "tool": tool, "steps": iters, "warmup": warmup_iters,
               "is_dry": dry_run, "keep": keep,
               "metrics": read_metric_names(metrics) if metrics else ()}  # fmt: skip
    profiler = Profiler(runner=make_runner(output), options=options, label=label or "")
    interrupts: list[int] = []
    with interrupts_noted(interrupts):
        _profile(profiler, selection, program, work.precision or "", quiet=output.quiet)
    _show(profiler, output)
    if interrupts:
        messages.end_interrupted(f"; profiles kept: {len(profiler.profiles)}")
    for failure in dict.fromkeys(map(str, profiler.failures)):
        messages.show_problem(failure)
    messages.end_runs(profiler.runner)
    if profiler.failures:
        sys.exit(messages.SOME_FAILED)


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
    if not quiet:
        messages.show_message(_describe_plan(profiler, selection, program, total_s))
    with progress_bar(total_s, quiet=quiet) as progress:
        profiler.runner.progress = progress

        def on_message(text: str) -> None:
            with progress.aside():
                messages.show_message(text)

        if not quiet:
            profiler.on_plan = lambda name, plan: on_message(f"{name}: {plan}")
            profiler.on_message = lambda text: on_message(f"note: {text}")
        if program:
            profiler.profile_program(program, precision)
        else:
            profiler.profile_models(selection)


def _describe_plan(
    profiler: Profiler, selection: Selection, program: tuple[str, ...], total_s: float
) -> str:
    """What will be done, and about how long it takes."""
    if program:
        return (
            f"profiling {program[0]}: it starts anew for every group of counters;"
            f" about {format_time(total_s)}, or as long as it runs, times the groups"
        )
    models, number = ", ".join(selection.models), selection.case_count
    has_counters = profiler.options["tier"] != TIME
    each = "a run, a trace and the counters of one step" if has_counters else "a run and a trace"
    of_each = each if number == 1 else f"for each of {number} configurations {each}"
    return f"profiling {models}: {of_each}; about {format_time(total_s)}"


def _show(profiler: Profiler, output: Output) -> None:
    """What there is, also after an interrupt."""
    from ridgeline.cli import show_profiles
    from ridgeline.report.views import write_views

    profiles, results = profiler.profiles, profiler.runner.results
    if profiler.runner.runs:
        write_views(results)
    if output.as_json:
        content = {
            "profiles": [show_profiles.profile_to_json(run) for run in profiles],
            "plans": [{"name": name, **plan.to_dict()} for name, plan in profiler.plans.items()],
        }
        messages.print_json(content)
    elif any(run.result.status == "ok" for run in profiles):
        show_profiles.show_profiles(profiles, results, quiet=output.quiet)
        for run in () if output.quiet else profiles:
            messages.show_message(f"wrote {run.path}")


def _refuse(ctx: typer.Context, names: Collection[str], why: str, hint: str) -> None:
    """Refuse options that are named on the command line and mean nothing here."""
    for parameter in ctx.command.params:
        source = ctx.get_parameter_source(str(parameter.name))
        if parameter.name in names and source is not None and source.name == "COMMANDLINE":
            name = next(one for one in parameter.opts if one.startswith("--"))
            raise RidgelineError(f"{name} {why}", hint=hint)


def _check_of_program(
    ctx: typer.Context, of_models: Collection[str], precision: str | None, tool: str
) -> None:
    """Refuse options of a step: a program makes its step itself."""
    _refuse(ctx, of_models, "is for models, and says nothing to a program",
            "leave it out, or put what the program understands after its name; "
            "CUDA_VISIBLE_DEVICES=N in the environment chooses the device")  # fmt: skip
    if tool == CUPTI:
        raise RidgelineError(
            "CUPTI counts models; a program is counted by Nsight Compute",
            hint="leave --tool out, or profile the model by its name or as file.py:factory",
        )
    if precision and "," in precision:
        raise RidgelineError(
            "a program has one --precision", hint="name one, or none to count all kinds"
        )
