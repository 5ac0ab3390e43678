"""The options that `run`, `analyze` and `profile` share: models, and how a step is made.

The settings of a step are in one table, by the fields of `Settings`, which has their types and
defaults. A new setting is a field of `Settings`, a row here, and its use.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import partial
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from ridgeline.cli import options as opt
from ridgeline.errors import RidgelineError
from ridgeline.settings import (
    ALGORITHMS,
    BACKENDS,
    COMPILE_MODES,
    OPTIMIZERS,
    PRECISIONS,
    SYNTHETIC,
    SYNTHETIC_HOST,
    Settings,
    check_mode,
)

if TYPE_CHECKING:
    from ridgeline.pipeline.cases import CaseRunner, Selection

STEP, MEASURED, DATA = "How a step is made", "What is measured", "Data"
measured = partial(opt.option, ..., rich_help_panel=MEASURED)

Repeats = Annotated[int, measured("Run each configuration so often, each in a new process.", min=1)]
InProcess = Annotated[
    bool, measured("No process per run: for debuggers and profilers.", "--in-process")
]


@dataclass(frozen=True, kw_only=True)
class Work(opt.Group):
    """The models, and all that decides the size of their work."""

    models: opt.Models = None
    batch_sizes: Any = opt.batch_sizes(show_default="32; chosen by analyze")
    mode: opt.Mode = "train"
    precision: str | None = opt.option(
        None,
        "One or several of fp32, tf32, amp, bf16, fp16.",
        choices=PRECISIONS,
        show_default="fp32",
    )
    input_sizes: opt.InputSizes = None
    seq_len: opt.SeqLen = None
    config: opt.Config = None

    def select(
        self,
        step: Step,
        *,
        default_batch_sizes: tuple[int, ...] = (),
        label: str | None = None,
        repeats: int = 1,
        several_sizes: bool = False,
        **fixed: Any,
    ) -> Selection:
        """Every combination of models, sizes and settings; `fixed` are settings of the command."""
        from ridgeline.pipeline.cases import Selection

        check_mode(self.mode)
        if not several_sizes:
            opt.check_one_size(self.input_sizes or ())
        return Selection(
            models=tuple(self.models or ()),
            settings=step.settings(self.precision or "fp32", **fixed),
            batch_sizes=self.batch_sizes or default_batch_sizes,
            mode=self.mode,
            input_sizes=self.input_sizes or (None,),
            seq_len=self.seq_len,
            config=self.config or {},
            repeats=repeats,
            label=label or "",
        )

    def check_named(self, command: str) -> None:
        if not self.models:
            raise RidgelineError(
                "no model was named",
                hint=f"for example: ridgeline {command} resnet50;"
                " `ridgeline count --list` shows all names",
            )


def make_runner(output: opt.Output, *, in_process: bool = False) -> CaseRunner:
    """The runner of cases for a command; a folder that takes nothing is refused now."""
    from ridgeline.pipeline.cases import CaseRunner, Executor
    from ridgeline.store import ResultsFolder

    runner = CaseRunner(
        results=ResultsFolder(output.results),
        executor=Executor(in_process=in_process),
        reraises=output.debug,
    )
    runner.results.check_writable()
    if output.debug:
        runner.on_failure = lambda failure: print(failure.log, end="", file=sys.stderr)
    return runner


@dataclass(frozen=True, slots=True)
class StepOption:
    """An option that sets a field of `Settings`."""

    name: str
    panel: str
    commands: str  # that have it
    help: str
    flag: str = ""  # if it is not named as the field
    choices: Iterable[str] = ()

    def annotate(self, kind: Any) -> Any:
        """The type of a setting, as an option that typer understands."""
        flag = self.flag or f"--{self.name.replace('_', '-')}"
        return Annotated[
            kind,
            opt.option(..., self.help, flag, choices=self.choices, rich_help_panel=self.panel),
        ]


EVERYWHERE = "run analyze profile"
STEP_OPTIONS = (
    StepOption("backend", STEP, "run analyze conv", "auto, cuda, mps or cpu.",
               choices=BACKENDS),
    StepOption("device", STEP, f"{EVERYWHERE} conv", "Which CUDA device."),
    StepOption("optimizer", STEP, EVERYWHERE, "sgd, momentum, adam, adamw, rmsprop, …",
               choices=OPTIMIZERS),
    StepOption("lr", STEP, "run", "Learning rate; 0.001 if not given."),
    StepOption("momentum", STEP, "run", "For optimizers that have one."),
    StepOption("weight_decay", STEP, "run", "As the optimizer means it."),
    StepOption("grad_accum_steps", STEP, "run profile",
               "Batches per optimizer step; a step is all of them."),
    StepOption("channels_last", STEP, f"{EVERYWHERE} conv", "Images in NHWC order."),
    StepOption("deterministic", STEP, "run profile",
               "Deterministic algorithms where there are any."),
    StepOption("cudnn_benchmark", STEP, "run analyze", "Let cuDNN try its algorithms first."),
    StepOption("compile", STEP, EVERYWHERE,
               "Use torch.compile: default, reduce-overhead or max-autotune.", "--compile-mode",
               COMPILE_MODES),
    StepOption("algorithm", STEP, "run", "Of convolutions: `ridgeline conv --list-algorithms`.",
               choices=ALGORITHMS),
    StepOption("seed", STEP, EVERYWHERE, "Of weights, data and shuffling."),
    StepOption("weights", STEP, "run", "Weights of `ridgeline train`, or a state_dict in a file."),
    StepOption("warmup_iters", MEASURED, "run",
               "Warm-up steps; if not given, until times are steady."),
    StepOption("iters", MEASURED, "run analyze conv",
               "Timed steps; if not given, about ten seconds of them."),
    StepOption("nvtx", MEASURED, "run", "Name steps and phases for Nsight."),
    StepOption("layers", MEASURED, "run", "Time every module, in a pass of its own."),
    StepOption("energy", MEASURED, "run analyze conv",
               "Measure joules; by default where there is a meter.", "--energy/--no-energy"),
    StepOption("energy_time_s", MEASURED, "run", "Seconds under load for energy.",
               "--energy-time"),
    StepOption("layer_energy", MEASURED, "run",
               "Joules per layer, by repeating each; takes minutes."),
    StepOption("data", DATA, "run", "A folder of images or CIFAR-10; synthetic: a batch"
               " that stays on the device; synthetic-host: one that is copied in every step."),
    StepOption("workers", DATA, "run", "Processes that load data."),
    StepOption("pin_memory", DATA, "run", "Copy from page-locked memory."),
    StepOption("prefetch_factor", DATA, "run", "Batches that each worker keeps ready."),
    StepOption("augment", DATA, "run", "Random crops and flips.", "--augment/--no-augment"),
)  # fmt: skip


class Step(opt.Group):
    """The values of the options in the table that a command has, by their fields."""

    def __init__(self, **values: Any) -> None:
        self.values = values

    @classmethod
    def parameters(cls, command: str) -> list[Parameter]:
        types = get_type_hints(Settings)
        defaults = {field.name: field.default for field in fields(Settings)}
        return [
            opt.make_parameter(row.name, row.annotate(types[row.name]), defaults[row.name])
            for row in STEP_OPTIONS
            if command in row.commands.split()
        ]

    def settings(self, precisions: str, **fixed: Any) -> tuple[Settings, ...]:
        """One for each precision; `fixed` are fields that the command itself decides on."""
        data = self.values.get("data", SYNTHETIC)
        if data not in (SYNTHETIC, SYNTHETIC_HOST) and not Path(data).exists():
            raise RidgelineError(
                f"there is no data at {data!r}",
                hint=f"name a folder, {SYNTHETIC} or {SYNTHETIC_HOST}",
            )
        values = {**self.values, **fixed}
        names = dict.fromkeys(name.strip() for name in precisions.split(","))
        return tuple(Settings(**values, precision=name) for name in names)
