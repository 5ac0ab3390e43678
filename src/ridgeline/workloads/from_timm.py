"""timm's models, with the input size of their default configuration."""

from __future__ import annotations

from functools import partial
from typing import Any

import timm
from torch import Tensor, nn

from ridgeline.records import WorkloadSpec
from ridgeline.workloads import losses
from ridgeline.workloads.inputs import CHANNELS, classification_batch, height_width
from ridgeline.workloads.sources import check_name
from ridgeline.workloads.workload import Inputs, Workload, check_image_options

USUAL_SIZE, USUAL_CLASSES = (224, 224), 1000  # where a model has no default configuration


def workload(name: str, spec: WorkloadSpec) -> Workload:
    check_name("timm", name.partition(".")[0])  # NAME.TAG is that of published weights
    check_image_options(spec, "timm")
    shape = default_shape(name)
    if spec.input_size:
        shape = (shape[0], *height_width(spec.input_size, name))
    return Workload(
        name=name,
        source="timm",
        mode=spec.mode,
        make=partial(make, name, shape[1:] if spec.input_size else None),
        make_inputs=lambda n: classification_batch(n, shape, classes_of(name), spec.mode),
        loss=loss,
        describe={"task": "classification", "input_size": shape[1:]},
    )


def default_shape(name: str) -> tuple[int, ...]:
    """Channels, height and width."""
    config = timm.models.get_pretrained_cfg(name)
    return tuple(config.input_size) if config else (CHANNELS, *USUAL_SIZE)


def classes_of(name: str) -> int:
    """How many labels there are; a model without a head gives features, and one label will do."""
    config = timm.models.get_pretrained_cfg(name)
    return max(1, config.num_classes) if config else USUAL_CLASSES


def make(name: str, requested: tuple[int, ...] | None) -> nn.Module:
    """The model with random weights, built for the size asked where its constructor takes one."""
    create = partial(timm.create_model, name, pretrained=False)
    try:
        module: nn.Module = create(img_size=requested) if requested else create()
    except TypeError as error:
        if requested is None or "img_size" not in str(error):
            raise
        module = create()
    return module


def loss(output: Any, inputs: Inputs) -> Tensor:
    """Cross entropy, the mean of it over two heads (distilled models); else the mean output."""
    heads = list(output) if isinstance(output, tuple | list) else [output]
    if all(isinstance(head, Tensor) and head.dim() == 2 for head in heads):
        first, *rest = [losses.entropy(head, inputs) for head in heads]
        return sum(rest, start=first) / len(heads)
    return losses.mean_of_outputs(output, inputs)
