"""Images and their sizes, as every vision source needs them."""

from __future__ import annotations

import torch
from torch import Tensor

from ridgeline.errors import RidgelineError
from ridgeline.workloads.checks import size_text
from ridgeline.workloads.workload import Inputs

CHANNELS = 3


def height_width(asked: tuple[int, ...], model: str) -> tuple[int, int]:
    """224 → (224, 224); 480x640 as it is; 3x480x640 without its channels."""
    if len(asked) == 3 and asked[0] == CHANNELS:
        asked = asked[1:]
    if len(asked) == 1:
        return asked[0], asked[0]
    if len(asked) == 2:
        return asked[0], asked[1]
    raise RidgelineError(
        f"input size {size_text(asked)} does not fit {model}",
        hint="it takes images of three channels: give 224, or 480x640 for height and width",
    )


def labels(batch_size: int, classes: int, *rest: int) -> Tensor:
    """Labels 0, 1, 2, … round and round: valid for any number of classes, the same each time."""
    shape = (batch_size, *rest)
    count = torch.Size(shape).numel()
    return torch.arange(count, device="cpu").remainder(classes).reshape(shape)


def classified(batch_size: int, shape: tuple[int, ...], classes: int, mode: str) -> Inputs:
    """A batch of float images (or clips) of `shape`, and a label for each when training."""
    targets = labels(batch_size, classes) if mode == "train" else None
    return Inputs(args=(torch.rand(batch_size, *shape),), targets=targets)
