"""What options take: known without importing torch, which takes seconds."""

from __future__ import annotations

from collections.abc import Callable

from ridgeline.errors import RidgelineError

FORMATS = ("table", "markdown", "csv", "json")
TABLES = ("layers", "ops")
CAUSAL = ("full", "half")
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


def complete(names: tuple[str, ...]) -> Callable[[str], list[str]]:
    """The function that Typer asks for the names which begin like `incomplete`."""

    def those_that_begin(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return those_that_begin


def one_of(option: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse a value that the option does not take."""
    if value not in choices:
        raise RidgelineError(
            f"{option}: {value!r} is not known", hint=f"choose {', '.join(choices)}"
        )
