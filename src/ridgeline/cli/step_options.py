"""The options that `run`, `analyze` and `profile` share: models, how a step is made, what is kept.

The settings of a step are in one table, by the fields of `Settings`. A command has a parameter
`step: Step`, which `takes_step` replaces by the options that the table has for it. A new setting is
a field of `Settings`, a row here, and its use.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ridgeline.cli.options import (
    MODELS,
    OPTIMIZERS,
    SOURCES,
    complete,
    parse_config,
    parse_folder,
    parse_input_size,
    parse_numbers,
)
from ridgeline.errors import RidgelineError
from ridgeline.settings import (
    BACKENDS,
    COMPILE_MODES,
    MODES,
    PRECISIONS,
    SYNTHETIC,
    SYNTHETIC_HOST,
    Settings,
)

if TYPE_CHECKING:
    from ridgeline.pipeline.cases import Selection

WORK, STEP, MEASURED = "What is run", "How a step is made", "What is measured"
in_work = partial(typer.Option, rich_help_panel=WORK)
in_step = partial(typer.Option, rich_help_panel=STEP)
in_output = partial(typer.Option, rich_help_panel="What is kept and shown")

MODEL_NAMES = "resnet50, torchvision:NAME, timm:NAME, transformers:TYPE, file.py:factory"
precision_option = partial(
    typer.Option,
    help="One or several of fp32, tf32, amp, bf16, fp16.",
    autocompletion=complete(PRECISIONS),
)

Models = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="MODEL…",
        help=MODEL_NAMES,
        autocompletion=complete(MODELS + SOURCES),
        show_default=False,
    ),
]
Mode = Annotated[str, in_work(help="train or infer.", autocompletion=complete(MODES))]
InputSize = Annotated[
    str | None, in_work(help="224, or 224,320, or 3,64,64 for a model of your own.")
]
SeqLen = Annotated[int | None, in_work(help="Tokens per sample.")]
Config = Annotated[str | None, in_work(help="hidden_size=1024,num_layers=4 or a config.json.")]
Label = Annotated[str | None, in_output(help="A name for these runs.")]
Results = Annotated[
    Path, in_output(metavar="DIR", parser=parse_folder, help="Where everything is kept.")
]
Json = Annotated[bool, in_output("--json", help="For programs, on stdout.")]
Quiet = Annotated[bool, in_output("-q", "--quiet", help="No progress, no advice.")]
Debug = Annotated[bool, in_output("--debug", help="Show tracebacks.")]


@dataclass(frozen=True, slots=True)
class StepOption:
    """An option that sets a field of `Settings`, or says how often and where a case is run."""

    name: str
    panel: str
    help: str
    commands: str = "run"  # that have it
    help_elsewhere: str = ""  # in other commands than `run`
    default: Any = None  # where it is no field of Settings
    more: Mapping[str, Any] | None = None  # arguments of typer.Option


EVERYWHERE = "run analyze profile"
STEP_OPTIONS = (
    StepOption("backend", STEP, "auto, cuda, mps or cpu.", "run analyze",
               more={"autocompletion": complete(BACKENDS)}),
    StepOption("device", STEP, "Which CUDA device.", EVERYWHERE, more={"min": 0}),
    StepOption("optimizer", STEP, "sgd, momentum, adam, adamw, rmsprop, …", EVERYWHERE,
               more={"autocompletion": complete(OPTIMIZERS)}),
    StepOption("lr", STEP, "Learning rate; 0.001 if not given."),
    StepOption("momentum", STEP, "For optimizers that have one."),
    StepOption("weight_decay", STEP, "As the optimizer means it."),
    StepOption("grad_accum_steps", STEP, "Batches per optimizer step; a step is all of them.",
               "run profile", "Batches per optimizer step."),
    StepOption("channels_last", STEP, "Images in NHWC order.", EVERYWHERE),
    StepOption("deterministic", STEP, "Deterministic algorithms where there are any.",
               "run profile"),
    StepOption("cudnn_benchmark", STEP, "Let cuDNN try its algorithms first.", "run analyze"),
    StepOption("compile", STEP, "Use torch.compile.", default=False),
    StepOption("compile_mode", STEP,
               "default, reduce-overhead or max-autotune; implies --compile.", EVERYWHERE,
               "Use torch.compile: default, reduce-overhead or max-autotune.",
               more={"autocompletion": complete(COMPILE_MODES)}),
    StepOption("warmup_iters", MEASURED,
               "Warm up at least so many steps; more until times are steady."),
    StepOption("iters", MEASURED, "Timed steps; if not given, about ten seconds of them.",
               "run analyze"),
    StepOption("repeats", MEASURED, "Run each configuration so often, each in a new process.",
               "run analyze", default=1, more={"min": 1}),
    StepOption("nvtx", MEASURED, "Name steps and phases for Nsight."),
    StepOption("data", WORK, "A folder of images, CIFAR-10 or tokens; synthetic: a batch that stays"
               " on the device; synthetic-host: one that is copied in every step.",
               more={"metavar": "DIR|synthetic"}),
    StepOption("workers", WORK, "Processes that load data."),
    StepOption("pin_memory", WORK, "Copy from page-locked memory."),
    StepOption("prefetch_factor", WORK, "Batches that each worker keeps ready."),
    StepOption("augment", WORK, "Random crops and flips."),
    StepOption("layers", MEASURED, "Time every module, in a pass of its own."),
    StepOption("energy", MEASURED, "Measure joules; by default where there is a meter.",
               "run analyze"),
    StepOption("energy_time_s", MEASURED, "Seconds under load for energy."),
    StepOption("layer_energy", MEASURED, "Joules per layer, by repeating each; takes minutes."),
    StepOption("find_max_batch", MEASURED, "Find the largest batch that fits and run it.",
               default=False),
    StepOption("profile", MEASURED, "Read hardware counters where there is an NVIDIA GPU.",
               "analyze", default=True),
    StepOption("seed", STEP, "Of weights, data and shuffling.", EVERYWHERE, "Of weights and data."),
    StepOption("in_process", MEASURED, "No process per run: for debuggers and profilers.",
               "run analyze", default=False),
)  # fmt: skip
FLAGS = {
    "energy_time_s": "--energy-time", "energy": "--energy/--no-energy",
    "augment": "--augment/--no-augment", "profile": "--profile/--no-profile",
}  # fmt: skip
TYPES: dict[str, Any] = {
    **typing.get_type_hints(Settings), "compile": bool, "compile_mode": str | None,
    "find_max_batch": bool, "in_process": bool, "profile": bool, "repeats": int,
}  # fmt: skip
DEFAULTS = {field.name: field.default for field in fields(Settings)} | {"compile": False}


@dataclass(frozen=True, slots=True)
class Step:
    """The values of the options in the table."""

    values: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def settings(self, precisions: str, **fixed: Any) -> tuple[Settings, ...]:
        """One for each precision; `fixed` are fields that the command itself decides on."""
        names = {field.name for field in fields(Settings)}
        values = {name: value for name, value in self.values.items() if name in names}
        default = "default" if self.values.get("compile") else None
        values["compile"] = self.values.get("compile_mode") or default
        if "data" in values:
            check_data(values["data"])
        each = (part.strip() for part in precisions.split(","))
        return tuple(Settings(**{**values, "precision": one, **fixed}) for one in each)


def option_names(command: str) -> list[str]:
    """The options in the table that a command has."""
    return [row.name for row in STEP_OPTIONS if command in row.commands.split()]


def takes_step(panel: str | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a command: its options of a step stand where it has the parameter `step`.

    `panel` is where the help shows them, if not in the panels of `run`.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        named = inspect.signature(command, eval_str=True).parameters
        rows = [row for row in STEP_OPTIONS if command.__name__ in row.commands.split()]
        parameters: list[inspect.Parameter] = []
        for name, parameter in named.items():
            made = [_parameter(row, command.__name__, panel) for row in rows]
            parameters += made if name == "step" else [parameter]

        @wraps(command)
        def call(**options: Any) -> None:
            values = {row.name: options.pop(row.name) for row in rows}
            command(**options, step=Step(values))

        call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
        )
        call.__annotations__ = {one.name: one.annotation for one in parameters}
        return call

    return decorate


def _parameter(row: StepOption, command: str, panel: str | None) -> inspect.Parameter:
    """The option as a parameter that typer understands."""
    kind, default = TYPES[row.name], DEFAULTS.get(row.name, row.default)
    flag = FLAGS.get(row.name, f"--{row.name.replace('_', '-')}")
    text = row.help if command == "run" else row.help_elsewhere or row.help
    option = typer.Option(flag, help=text, rich_help_panel=panel or row.panel, **(row.more or {}))
    annotation = Annotated[kind, option]  # type: ignore[valid-type]
    return inspect.Parameter(
        row.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def check_data(text: str) -> None:
    """`synthetic`, `synthetic-host`, or a path that must be there."""
    if text not in (SYNTHETIC, SYNTHETIC_HOST) and not Path(text).exists():
        raise RidgelineError(
            f"there is no data at {text!r}",
            hint=f"name a folder, {SYNTHETIC} or {SYNTHETIC_HOST}",
        )


def check_named(models: list[str] | None, example: str) -> list[str]:
    if not models:
        raise RidgelineError("no model was named", hint=f"for example: {example}")
    return models


def check_label(label: str | None, hint: str = "give these runs a name, or leave it out") -> str:
    """The label, or an empty text for none."""
    if label is not None and not label.strip():
        raise RidgelineError("--label is empty", hint=hint)
    return label or ""


def select(
    models: list[str],
    batch_size: str | None,
    mode: str,
    input_size: str | None,
    seq_len: int | None,
    config: str | None,
    **rest: Any,
) -> Selection:
    """The selection that the options stand for; without a batch size it has none."""
    from ridgeline.pipeline.cases import Selection

    batches: tuple[int, ...] = ()
    if batch_size is not None:
        batches = parse_numbers("--batch-size", batch_size, like="1,8,32")
    return Selection(
        models=tuple(models),
        batch_sizes=batches,
        mode=mode,
        input_size=parse_input_size(input_size),
        seq_len=seq_len,
        config=parse_config(config),
        **rest,
    )
