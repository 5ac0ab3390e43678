"""torchvision's models: classification, detection, segmentation and video.

A model comes in the form of its published weights: the input size of their transforms, and
the auxiliary heads they have, so that parameters and operations can be checked against what
torchvision publishes. Quantised models are left out: their integer kernels are other programs; so
is optical flow.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torchvision import models

from ridgeline.errors import RidgelineError
from ridgeline.records import WorkloadSpec
from ridgeline.workloads import losses
from ridgeline.workloads.inputs import (
    CHANNELS,
    classification_batch,
    detection_inputs,
    height_width,
    labels,
)
from ridgeline.workloads.sources import check_name, models_of
from ridgeline.workloads.workload import (
    Inputs,
    Workload,
    check_image_options,
    size_text,
)

CLASSES = {"classification": 1000, "video": 400, "segmentation": 21}
CLIP_FRAMES = 16  # the length at which torchvision counts the operations of its video models
SCALED_TO = {  # a detector scales its images to this; given that size it has nothing to scale
    "ssd300_vgg16": 300,
    "ssdlite320_mobilenet_v3_large": 320,
    "fasterrcnn_mobilenet_v3_large_320_fpn": 320,
}
SCALED_TO_ELSE = 800
INITIALISED_SLOWLY = ("googlenet", "inception_v3")  # by a truncated normal that takes seconds
LOSSES: dict[str, Callable[[Any, Inputs], torch.Tensor]] = {
    "classification": losses.classify,
    "video": losses.classify,
    "segmentation": losses.segment,
    "detection": losses.sum_of_losses,
}


def workload(name: str, spec: WorkloadSpec) -> Workload:
    check_name("torchvision", name)
    check_image_options(spec, "torchvision")
    task = task_of(name)
    size = choose_size(name, task, spec.input_size)
    return Workload(
        name=name,
        source="torchvision",
        mode=spec.mode,
        make=partial(make, name, size, spec),
        make_inputs=partial(make_inputs, name, size, spec.mode),
        loss=LOSSES[task],
        describe={"task": task, "input_size": size},
    )


def task_of(name: str) -> str:
    """What a model is for: as the listing says."""
    return models_of("torchvision")[name]


def default_size(name: str, task: str) -> tuple[int, ...]:
    """Height and width (frames first for video) that the published weights were tested at."""
    if task == "detection":
        side = SCALED_TO.get(name, SCALED_TO_ELSE)
        return side, side
    transforms = models.get_model_weights(name)["DEFAULT"].transforms()
    sides = transforms.resize_size if task == "segmentation" else transforms.crop_size
    size = (sides[0], sides[-1])
    return (CLIP_FRAMES, *size) if task == "video" else size


def choose_size(name: str, task: str, requested: tuple[int, ...] | None) -> tuple[int, ...]:
    """The size asked for; refused where the constructor has no way to be told of it."""
    usual = default_size(name, task)
    if requested is None:
        return usual
    clip = task == "video" and len(requested) == 3
    size = requested if clip else (*usual[:-2], *height_width(requested, name))
    hint = None
    if name.startswith("mvit") and size != usual:
        hint = f"torchvision builds it for clips of {size_text(usual)} only"
    if name.startswith("vit_") and size[0] != size[1]:
        hint = f"it takes square images whose side is a multiple of its patch: {usual[0]}"
    if hint:
        raise RidgelineError(f"input size {size_text(size)} does not fit {name}", hint=hint)
    return size


def make(name: str, size: tuple[int, ...], spec: WorkloadSpec) -> nn.Module:
    """The model with random weights: asking for none keeps torchvision from fetching any.

    It has the auxiliary heads of the published form; GoogLeNet's are there only in training.
    """
    task = task_of(name)
    options: dict[str, Any] = {"weights": None, **constructor_sizes(name, size)}
    if task in ("segmentation", "detection"):
        options["weights_backbone"] = None
    if task == "segmentation" and not name.startswith("lraspp"):
        options["aux_loss"] = True
    if task == "detection" and spec.input_size and not name.startswith("ssd"):
        options |= {"min_size": min(size), "max_size": max(size)}
    if name == "googlenet":
        options["aux_logits"] = spec.mode == "train"
    if name in INITIALISED_SLOWLY:
        options["init_weights"] = False
    module: nn.Module = models.get_model(name, **options)
    return module


def constructor_sizes(name: str, size: tuple[int, ...]) -> dict[str, Any]:
    """What the constructor must know of the input's size, for models that are made for one."""
    if name.startswith("vit_"):
        return {"image_size": size[0]}
    return {"input_size": size} if name.startswith("maxvit") else {}


def make_inputs(name: str, size: tuple[int, ...], mode: str, batch_size: int) -> Inputs:
    task = task_of(name)
    if task == "detection":
        return detection_inputs(name, size, mode, batch_size)
    inputs = classification_batch(batch_size, (CHANNELS, *size), CLASSES[task], mode)
    if task == "segmentation" and mode == "train":
        return Inputs(args=inputs.args, targets=labels(batch_size, CLASSES[task], *size))
    return inputs
