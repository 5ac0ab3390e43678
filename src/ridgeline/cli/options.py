"""Options that several commands have, what they accept, and how their texts are parsed.

Nothing here imports torch, which takes seconds: completion and `--help` need these names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ridgeline.errors import RidgelineError
from ridgeline.records import MODES, PRECISIONS
from ridgeline.settings import BACKENDS

LARGEST = 2**31  # beyond it, torch's own sizes overflow
OPTIMIZERS = (
    "sgd", "momentum", "nesterov", "adam", "adamw", "adamax", "nadam", "radam", "rmsprop",
    "adagrad", "adadelta", "adafactor",
)  # fmt: skip
MODELS = (
    "alexnet", "bert", "convnext_base", "convnext_large", "convnext_small", "convnext_tiny",
    "deeplabv3_resnet50", "densenet121", "densenet161", "densenet169", "densenet201",
    "efficientnet_b0", "efficientnet_b1", "efficientnet_b2", "efficientnet_b3", "efficientnet_b4",
    "efficientnet_b5", "efficientnet_b6", "efficientnet_b7", "efficientnet_v2_l",
    "efficientnet_v2_m", "efficientnet_v2_s", "fasterrcnn_resnet50_fpn", "fcn_resnet50",
    "googlenet", "inception_v3", "lstm", "maskrcnn_resnet50_fpn", "maxvit_t", "mnasnet0_5",
    "mnasnet1_0", "mobilenet_v2", "mobilenet_v3_large", "mobilenet_v3_small", "regnet_x_16gf",
    "regnet_x_400mf", "regnet_x_8gf", "regnet_y_128gf", "regnet_y_16gf", "regnet_y_400mf",
    "regnet_y_8gf", "resnet101", "resnet152", "resnet18", "resnet18_cifar", "resnet34",
    "resnet34_cifar", "resnet50", "resnext101_32x8d", "resnext101_64x4d", "resnext50_32x4d",
    "retinanet_resnet50_fpn", "shufflenet_v2_x0_5", "shufflenet_v2_x1_0", "squeezenet1_0",
    "squeezenet1_1", "ssd300_vgg16", "swin_b", "swin_s", "swin_t", "swin_v2_b", "swin_v2_s",
    "swin_v2_t", "vgg11", "vgg11_bn", "vgg11_cifar", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn",
    "vgg19", "vgg19_bn", "vit_b_16", "vit_b_32", "vit_h_14", "vit_l_16", "vit_l_32",
    "wide_resnet101_2", "wide_resnet50_2", "yolo",
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


def parse_numbers(option: str, text: str, *, like: str, least: int = 1) -> tuple[int, ...]:
    """`16,32,64` as numbers, each of `least` or more."""
    try:
        numbers = tuple(int(part) for part in text.replace("x", ",").split(","))
    except ValueError:
        numbers = (least - 1,)
    if min(numbers) < least:
        raise RidgelineError(
            f"{option} {text!r} is not valid",
            hint=f"give whole numbers of {least} or more, separated by commas: {like}",
        )
    if max(numbers) > LARGEST:
        raise RidgelineError(
            f"{option} {max(numbers)} is too large", hint=f"{LARGEST} is the largest"
        )
    return numbers


def parse_input_size(text: str | None) -> tuple[int, ...] | None:
    """The sizes of --input-size."""
    if text is None:
        return None
    return parse_numbers("--input-size", text, like="224 or 224,320 or 3,64,64")


def parse_config(text: str | None) -> dict[str, Any]:
    """`a=1,b=2`, or the path of a config.json."""
    if text is None:
        return {}
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
        name, equals, number = (part.strip() for part in text.rpartition("="))
        if not equals or not name:
            raise RidgelineError(
                f"--dim {text!r} is not valid", hint="write --dim NAME=N, as in seq=128"
            )
        if not number.isdecimal():
            raise RidgelineError(
                f"--dim {text!r} is not valid",
                hint="give one whole number of 0 or more: --dim NAME=128;"
                " several sizes take a command each",
            )
        size = int(number)
        if size > LARGEST:
            raise RidgelineError(f"--dim {text} is too large", hint=f"{LARGEST} is the largest")
        if sizes.setdefault(name, size) != size:
            raise RidgelineError(
                f"--dim {name} is given twice: {sizes[name]} and {size}", hint="give one of them"
            )
    return sizes


def check_choice(option: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse a value that the option does not take."""
    if value not in choices:
        raise RidgelineError(
            f"{option}: {value!r} is not known", hint=f"choose {', '.join(choices)}"
        )


def complete(names: tuple[str, ...]) -> Callable[[str], list[str]]:
    """The function that typer calls for the names which begin like `incomplete`."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


# ---------------------------------------------------------------- options


def flag(name: str, text: str) -> Any:
    """An option that is on or off."""
    return typer.Option(name, help=text)


def choice(text: str, names: tuple[str, ...], *flags: str) -> Any:
    """An option that takes one of a few names."""
    return typer.Option(*flags, help=text, autocompletion=complete(names))


def number(text: str, default: str | bool = True, least: int | None = None) -> Any:
    """A whole number; `default` is shown where None stands for it."""
    return typer.Option(metavar="N", help=text, show_default=default, min=least)


def real(text: str, default: str) -> Any:
    """A number with a fraction."""
    return typer.Option(metavar="X", help=text, show_default=default)


def folder(text: str, default: str | bool = True) -> Any:
    """The path of a folder."""
    return typer.Option(metavar="DIR", parser=parse_folder, help=text, show_default=default)


MODEL_FORMS = "resnet50, torchvision:NAME, timm:NAME, transformers:TYPE, file.py:factory"
complete_model = complete(MODELS + SOURCES)

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help=MODEL_FORMS, autocompletion=complete_model, show_default=False
    ),
]
InputSize = Annotated[
    str | None, typer.Option(help="224, or 224,320, or 3,64,64 for a model of your own.")
]
SeqLen = Annotated[int | None, typer.Option(help="Tokens per sample.")]
Config = Annotated[str | None, typer.Option(help="hidden_size=1024,num_layers=4 or a config.json.")]
Mode = Annotated[str, choice("infer or train.", MODES)]
Precision = Annotated[str, choice("fp32, tf32, amp, bf16 or fp16.", PRECISIONS)]
Optimizer = Annotated[
    str, choice("In train mode: sgd, momentum, adam, adamw, rmsprop, …", OPTIMIZERS)
]
Backend = Annotated[
    str,
    typer.Option(metavar="NAME", help="auto, cuda, mps or cpu.", autocompletion=complete(BACKENDS)),
]
Device = Annotated[int, number("Which CUDA device.", least=0)]
Results = Annotated[
    Path, typer.Option("--results", metavar="DIR", parser=parse_folder, help="The results folder.")
]
Json = Annotated[bool, flag("--json", "For programs, on stdout.")]
JsonFormat = Annotated[bool, flag("--json", "Same as --format json.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress, no advice.")]
QuietButNotes = Annotated[
    bool, typer.Option("-q", "--quiet", help="No progress, no advice; notes on the numbers stay.")
]
Debug = Annotated[bool, flag("--debug", "Show tracebacks.")]
