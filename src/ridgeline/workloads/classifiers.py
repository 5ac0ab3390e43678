"""Networks that sort images into ten classes, by name, ready to be trained.

`resnet18` and `resnet34` are the forms made for 32x32 pixels: here they are what people mean.
Other bare names are torchvision's, with a head for ten classes; `torchvision:resnet18` is its
form for large images. A Python file or another source is taken if its network gives ten scores.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor, nn

from ridgeline.errors import RidgelineError
from ridgeline.records import WorkloadSpec
from ridgeline.workloads.cifar10 import CLASSES
from ridgeline.workloads.sources import is_file, resolve
from ridgeline.workloads.workload import Workload, one_line

OURS = {"resnet18": "resnet18_cifar", "resnet34": "resnet34_cifar"}


def build_classifier(model: str, image_size: int) -> nn.Module:
    """The network, with random weights, on the CPU; it has been seen to take such images."""
    size = (3, image_size, image_size) if is_file(model) else (image_size,)
    spec = WorkloadSpec(model=OURS.get(model, model), mode="train", input_size=size)
    try:
        workload = resolve(spec)
    except RidgelineError as error:
        if "--input-size" not in error.problem:
            raise
        raise RidgelineError(
            f"{model} takes no images",
            hint="choose a classifier: `ridgeline count --list` says what each model is for",
        ) from error
    try:
        network = _with_ten_classes(workload, image_size)
        scores = _try(network, image_size)
    except RidgelineError:
        raise
    except Exception as error:
        raise RidgelineError(
            f"{model} cannot take images of {image_size}x{image_size}: {one_line(error)}",
            hint="--image-size 224 scales them up; resnet18 and resnet34 are made for 32",
        ) from error
    _check_scores(model, scores)
    return network.train()


def file_stem(model: str) -> str:
    """The name of a model as a part of a file's name: `nets/net.py:make` is `net_make`."""
    name = model.replace("\\", "/").rpartition("/")[2].replace(".py", "")
    return re.sub(r"[^A-Za-z0-9.-]+", "_", name).strip("_.") or "model"


def _with_ten_classes(workload: Workload, image_size: int) -> nn.Module:
    if workload.source != "torchvision":
        return workload.build()
    if workload.describe["task"] != "classification":
        raise RidgelineError(
            f"{workload.name} is for {workload.describe['task']}, not for classes",
            hint="choose a classifier: `ridgeline count --list` says what each model is for",
        )
    from torchvision import models

    network: nn.Module = models.get_model(
        workload.name, weights=None, num_classes=CLASSES, **_options(workload.name, image_size)
    )
    return network


def _options(name: str, image_size: int) -> dict[str, Any]:
    """What a constructor must know of the image's size, or asks about its initial weights."""
    if name.startswith("vit_"):
        return {"image_size": image_size}
    if name.startswith("maxvit"):
        return {"input_size": (image_size, image_size)}
    if name in ("googlenet", "inception_v3"):
        return {"init_weights": True}
    return {}


def _try(network: nn.Module, image_size: int) -> Any:
    """What it answers to two black images; neither its state nor the random numbers change."""
    with torch.random.fork_rng(devices=()), torch.no_grad():
        return network.eval()(torch.zeros(2, 3, image_size, image_size))


def _check_scores(model: str, scores: object) -> None:
    shape = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
    if shape != (2, CLASSES):
        raise RidgelineError(
            f"{model} answers two images with {shape}, not with {CLASSES} scores for each",
            hint=f"give it a last layer with {CLASSES} outputs, or choose a torchvision classifier",
        )
