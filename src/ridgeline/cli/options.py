"""Options that several commands have, groups of them, and how their texts are parsed.

A group is a dataclass whose fields are options; a command takes it as one parameter. Nothing here
imports torch, which takes seconds: completion and `--help` need these names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from ridgeline.errors import RidgelineError
from ridgeline.settings import BACKENDS, MODES, OPTIMIZERS, PRECISIONS, one_of
from ridgeline.store import DEFAULT_RESULTS

if TYPE_CHECKING:
    from ridgeline.pipeline.count_models import CountOptions
    from ridgeline.report.study import Study

MOST_CHANNELS = 8  # of an image; a side is longer
LARGEST = 2**31  # beyond it, torch's own sizes overflow
MODELS = (  # those that completion offers; `ridgeline count --list` has all
    "alexnet", "bert", "convnext_base", "convnext_small", "convnext_tiny", "deeplabv3_resnet50",
    "densenet121", "densenet201", "efficientnet_b0", "efficientnet_b4", "efficientnet_v2_l",
    "efficientnet_v2_m", "efficientnet_v2_s", "fasterrcnn_resnet50_fpn", "fcn_resnet50",
    "googlenet", "inception_v3", "lstm", "maskrcnn_resnet50_fpn", "maxvit_t", "mobilenet_v2",
    "mobilenet_v3_large", "mobilenet_v3_small", "regnet_y_16gf", "regnet_y_8gf", "resnet101",
    "resnet152", "resnet18", "resnet18_cifar", "resnet34", "resnet34_cifar", "resnet50",
    "resnext101_32x8d", "resnext50_32x4d", "retinanet_resnet50_fpn", "shufflenet_v2_x1_0",
    "squeezenet1_1", "ssd300_vgg16", "swin_b", "swin_t", "swin_v2_t", "vgg11_cifar", "vgg16",
    "vgg16_bn", "vgg19", "vit_b_16", "vit_b_32", "vit_l_16", "wide_resnet50_2", "yolo",
)  # fmt: skip
SOURCES = (
    "timm:", "torchvision:", "ultralytics:", "transformers:bert", "transformers:clip",
    "transformers:gpt2", "transformers:llama", "transformers:mixtral", "transformers:t5",
    "transformers:vit", "transformers:whisper",
)  # fmt: skip

# ---------------------------------------------------------------- parsing


def parse_folder(text: str) -> Path:
    """The path of a folder; an empty text, as from an unset variable, would be this folder."""
    if not text:
        raise RidgelineError("the name of a folder is empty", hint="write . for this folder")
    return Path(text)


def parse_label(text: str) -> str:
    """A label; one that is empty comes from an unset variable, too."""
    if not text.strip():
        raise RidgelineError("--label is empty", hint="give it a name, or leave it out")
    return text


def parse_numbers(option_name: str, text: str, *, like: str) -> tuple[int, ...]:
    """`16,32,64` or `3x64x64` as numbers."""
    try:
        numbers = tuple(int(part) for part in text.replace("x", ",").split(","))
    except ValueError:
        numbers = (0,)
    if not 1 <= min(numbers) <= max(numbers) <= LARGEST:
        raise RidgelineError(
            f"{option_name} {text!r} is not valid",
            hint=f"give whole numbers of 1 to {LARGEST}, separated by commas: {like}",
        )
    return numbers


def parse_batch_sizes(text: str) -> tuple[int, ...]:
    return parse_numbers("--batch-size", text, like="1,8,32")


def parse_sizes(text: str) -> tuple[tuple[int, ...], ...]:
    """`224,320` or `224:320:32`, sides of squares; `224x320` or `3x64x64`, one shape each.

    `3,64,64` is one shape, too: no image has a side of so few pixels.
    """
    like = "224, or 224,320, or 224:320:32 (from, to, step), or 224x320 (height, width), or 3x64x64"
    if found := re.fullmatch(r"(\d+):(\d+):(\d+)", text):
        first, last, step = parse_numbers("--input-size", ",".join(found.groups()), like=like)
        if first <= last:
            return tuple((side,) for side in range(first, last + 1, step))
    parts = text.split(",")
    if len(parts) == 3 and parts[0].isdecimal() and int(parts[0]) <= MOST_CHANNELS:
        parts = ["x".join(parts)]
    sizes = [parse_numbers("--input-size", part, like=like) for part in parts]
    return tuple(dict.fromkeys(sizes))


def parse_input_size(text: str) -> tuple[int, ...]:
    """The one size of a command that takes no several."""
    sizes = parse_sizes(text)
    check_one_size(sizes)
    return sizes[0]


def check_one_size(sizes: Sequence[tuple[int, ...]]) -> None:
    """Refuse several sizes in a command that takes one."""
    if len(sizes) > 1:
        texts = ",".join("x".join(map(str, size)) for size in sizes)
        raise RidgelineError(
            f"--input-size {texts!r} is several sizes; this command takes one",
            hint="224x320 is one height and width; `ridgeline run` and `count` take several",
        )


def parse_config(text: str) -> dict[str, Any]:
    """`a=1,b=2`, or the path of a config.json."""
    if text.endswith(".json"):
        return {"config_file": text}
    pairs = [part.partition("=") for part in text.split(",")]
    if any(not equals or not key.strip() for key, equals, _ in pairs):
        raise RidgelineError(
            f"--config {text!r} is not valid",
            hint="write key=value,key=value or name a config.json",
        )
    return {key.strip(): value.strip() for key, _, value in pairs}


def parse_dims(texts: Sequence[str]) -> dict[str, int]:
    """`seq=128` of every --dim: a name and one whole number of 0 or more."""
    sizes: dict[str, int] = {}
    for text in texts:
        name, _, number = (part.strip() for part in text.rpartition("="))
        if not name or not number.isdecimal() or int(number) > LARGEST:
            raise RidgelineError(
                f"--dim {text!r} is not valid",
                hint=f"write --dim NAME=N, as in seq=128, with one whole number of 0 to {LARGEST}",
            )
        sizes[name] = int(number)
    return sizes


# ---------------------------------------------------------------- options


def complete(names: Iterable[str]) -> Callable[[str], list[str]] | None:
    """The function that typer calls for the names which begin like `incomplete`."""
    if not names:
        return None
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def option(default: Any, text: str, *names: str, choices: Iterable[str] = (), **more: Any) -> Any:
    """An option; its default is `...` where it is shared, as an annotation."""
    return typer.Option(default, *names, help=text, autocompletion=complete(choices), **more)


def folder(default: Any, text: str, **more: Any) -> Any:
    """The path of a folder."""
    return option(default, text, metavar="DIR", parser=parse_folder, **more)


def check_outputs(
    form: str, forms: tuple[str, ...], outputs: Sequence[Path] | None, endings: tuple[str, ...]
) -> None:
    """Refuse a --format, or a file of --output, in which a command cannot write."""
    one_of("--format", form, forms)
    for path in outputs or ():
        one_of("ending of --output", path.suffix, endings)


def argument(
    default: Any, metavar: str, text: str, choices: Iterable[str] = (), **more: Any
) -> Any:
    more |= {"show_default": False, "autocompletion": complete(choices)}
    return typer.Argument(default, metavar=metavar, help=text, **more)


MODEL_FORMS = "resnet50, torchvision:NAME, timm:NAME, transformers:TYPE, file.py:factory"
parsed = partial(option, metavar="<str>")  # the `parser` says of what type it is
batch_sizes = partial(
    parsed, None, "One or several: 1,8,32.", "-b", "--batch-size", "--batch-sizes",
    parser=parse_batch_sizes,
)  # fmt: skip

Model = Annotated[str, argument(..., "MODEL", MODEL_FORMS, MODELS + SOURCES)]
Models = Annotated[list[str] | None, argument(..., "MODEL…", MODEL_FORMS, MODELS + SOURCES)]
InputSize = Annotated[
    Any,
    parsed(..., "224, or 224x320, or 3x64x64 for a model of your own.", parser=parse_input_size),
]
InputSizes = Annotated[
    Any,
    parsed(
        ...,
        "One or several: 224,320 or 224:320:32; 224x320 is height and width, 3x64x64 a shape.",
        "--input-size",
        parser=parse_sizes,
    ),
]
SeqLen = Annotated[int | None, option(..., "Tokens per sample.")]
Config = Annotated[
    Any, parsed(..., "hidden_size=1024,num_layers=4 or a config.json.", parser=parse_config)
]
Mode = Annotated[str, option(..., "infer or train.", choices=MODES)]
Precision = Annotated[str, option(..., "fp32, tf32, amp, bf16 or fp16.", choices=PRECISIONS)]
Optimizer = Annotated[
    str, option(..., "In train mode: sgd, momentum, adam, adamw, rmsprop, …", choices=OPTIMIZERS)
]
Backend = Annotated[str, option(..., "auto, cuda, mps or cpu.", choices=BACKENDS)]
Device = Annotated[int, option(..., "Which CUDA device.", metavar="N", min=0)]
Label = Annotated[
    str | None,
    option(..., "A name for it in tables and reports.", metavar="TEXT", parser=parse_label),
]
Title = Annotated[str | None, option(..., "Of the page and of report.md.")]
Notebook = Annotated[bool, option(..., "Also a notebook that reloads the data.", "--notebook")]
Figures = Annotated[bool, option(..., "Draw figures, or only join.", "--figures/--no-figures")]
Results = Annotated[Path, folder(..., "The results folder.")]
Json = Annotated[bool, option(..., "For programs, on stdout.", "--json")]
JsonFormat = Annotated[bool, option(..., "Same as --format json.", "--json")]
Outputs = Annotated[
    list[Path] | None,
    option(
        ..., "Write to a file of the form that its ending names; may be repeated.", "-o", "--output"
    ),
]
Quiet = Annotated[bool, option(..., "No progress, no advice.", "-q", "--quiet")]
Debug = Annotated[bool, option(..., "Show tracebacks.", "--debug")]

# ---------------------------------------------------------------- groups


class Group:
    """Options that several commands have: a dataclass whose fields are parameters."""

    @classmethod
    def parameters(cls, command: str) -> list[Parameter]:
        hints = get_type_hints(cls, include_extras=True)
        return [make_parameter(name, hint, getattr(cls, name)) for name, hint in hints.items()]


def make_parameter(name: str, annotation: Any, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def takes_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command: the options of a group stand where it has a parameter of that group."""
    parameters: list[Parameter] = []
    groups: dict[str, tuple[type[Group], list[str]]] = {}
    for name, parameter in signature(command, eval_str=True).parameters.items():
        group = parameter.annotation
        if isinstance(group, type) and issubclass(group, Group):
            options = group.parameters(command.__name__)
            groups[name] = group, [one.name for one in options]
            parameters += options
        else:
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))

    @wraps(command)
    def call(**values: Any) -> None:
        for name, (group, options) in groups.items():
            values[name] = group(**{option: values.pop(option) for option in options})
        command(**values)

    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    return call


@dataclass(frozen=True, kw_only=True)
class Output(Group):
    """Where results are, and what is printed of them."""

    results: Results = DEFAULT_RESULTS
    as_json: Json = False
    quiet: Quiet = False
    debug: Debug = False


@dataclass(frozen=True, kw_only=True)
class Counted(Group):
    """Models to count, and at which sizes, by the fields of CountOptions."""

    models: list[str] | None = argument(
        None, "MODEL…", f"{MODEL_FORMS}, FILE.onnx", MODELS + SOURCES
    )
    batch_sizes: Any = batch_sizes(show_default="1; an ONNX file may ask for it")
    mode: Mode = "infer"
    precision: Precision = "fp32"
    optimizer: Optimizer = "sgd"
    input_sizes: InputSizes = None
    seq_len: SeqLen = None
    config: Config = None
    dims: list[str] | None = option(
        None,
        "An open dimension of an .onnx file, or a loop's trip count; may be repeated.",
        "--dim",
        metavar="NAME=N",
    )

    def options(self, **more: Any) -> CountOptions:
        """What is not named is left to its default."""
        from ridgeline.pipeline.count_models import CountOptions

        more |= {"models": tuple(self.models or ()), "dims": parse_dims(self.dims or [])}
        values = {**vars(self), **more}
        return CountOptions(**{name: one for name, one in values.items() if one is not None})


@dataclass(frozen=True, kw_only=True)
class StoredRuns(Group):
    """Which stored runs, and under which roofs."""

    names: list[str] | None = argument(
        None, "RUN…", "Runs, labels, models or machines; all if none is named."
    )
    peak_compute: str | None = option(
        None, "TFLOP/s instead of what was measured: 8.1, fp32=8.1T.", metavar="RATE"
    )
    peak_bw: str | None = option(
        None, "GB/s of memory instead of what was measured: 300.", metavar="RATE"
    )
    peaks: Path | None = option(None, "A peaks.json with roofs by machine.", metavar="FILE")
    count_files: bool = option(
        False, "Also count networks from Python files, which runs them.", "--count"
    )

    def read(self, output: Output, label: str | None = None) -> Study:
        """The study of these runs; what to know about its numbers is printed, also if quiet."""
        from ridgeline.cli.interrupts import import_tables
        from ridgeline.cli.messages import show_notes
        from ridgeline.cli.progress import progress_bar

        import_tables()
        from ridgeline.pipeline.outputs import read_chosen

        chosen: dict[str, Any] = {**vars(self), "names": tuple(self.names or ())}
        with progress_bar(1, quiet=output.quiet, first="reading") as progress:
            progress.start("")
            study, problems = read_chosen(
                output.results, label=label, on_progress=progress.update, **chosen
            )
        show_notes([*problems, *study.problems, *study.remarks])
        return study
