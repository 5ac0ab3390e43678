"""Synthetic inputs: images and their sizes, labels, and the objects that detectors learn."""

from __future__ import annotations

import torch
from torch import Tensor

from ridgeline.errors import RidgelineError
from ridgeline.workloads.workload import Inputs, size_text

CHANNELS = 3


def height_width(requested: tuple[int, ...], model: str) -> tuple[int, int]:
    """224 → (224, 224); 480x640 as it is; 3x480x640 without its channels."""
    if len(requested) == 3 and requested[0] == CHANNELS:
        requested = requested[1:]
    if len(requested) == 1:
        return requested[0], requested[0]
    if len(requested) == 2:
        return requested[0], requested[1]
    raise RidgelineError(
        f"input size {size_text(requested)} does not fit {model}",
        hint="it takes images of three channels: give 224, or 480x640 for height and width",
    )


def labels(batch_size: int, classes: int, *rest: int) -> Tensor:
    """Labels 0, 1, 2, … round and round: valid for any number of classes, the same each time."""
    shape = (batch_size, *rest)
    count = torch.Size(shape).numel()
    return torch.arange(count, device="cpu").remainder(classes).reshape(shape)


def classification_batch(
    batch_size: int, shape: tuple[int, ...], classes: int, mode: str
) -> Inputs:
    """A batch of float images (or clips) of `shape`, and a label for each when training."""
    targets = labels(batch_size, classes) if mode == "train" else None
    return Inputs(args=(torch.rand(batch_size, *shape),), targets=targets)


BOXES = ((0.1, 0.1, 0.4, 0.5), (0.3, 0.2, 0.9, 0.8), (0.5, 0.5, 0.7, 0.9))  # x0 y0 x1 y1, of 1
KEYPOINTS = 17  # of a person, as COCO marks them


def detection_inputs(name: str, size: tuple[int, ...], mode: str, batch_size: int) -> Inputs:
    """Images as a list, since a detector lets them differ; in training three objects in each."""
    images = [torch.rand(CHANNELS, *size) for _ in range(batch_size)]
    if mode != "train":
        return Inputs(args=(images,))
    targets = [objects(name, size) for _ in images]
    return Inputs(args=(images, targets), targets=targets)


def objects(name: str, size: tuple[int, ...]) -> dict[str, Tensor]:
    """Valid objects in one image, with masks or keypoints for the detectors that learn them."""
    height, width = size
    scale = (width, height, width, height)
    boxes = [[part * side for part, side in zip(box, scale, strict=True)] for box in BOXES]
    has_people = name.startswith("keypointrcnn")  # which know one class besides the background
    targets = {
        "boxes": torch.tensor(boxes),
        "labels": torch.tensor([1, 1, 1] if has_people else [1, 2, 3], device="cpu"),
    }
    if name.startswith("maskrcnn"):
        targets["masks"] = masks(boxes, height, width)
    if has_people:  # all points in the middle of their box and visible: x, y, 1
        middles = [[(x0 + x1) / 2, (y0 + y1) / 2, 1.0] for x0, y0, x1, y1 in boxes]
        targets["keypoints"] = torch.tensor([[middle] * KEYPOINTS for middle in middles])
    return targets


def masks(boxes: list[list[float]], height: int, width: int) -> Tensor:
    """Each object fills its box."""
    filled = torch.zeros(len(boxes), height, width, dtype=torch.uint8, device="cpu")
    for mask, (x0, y0, x1, y1) in zip(filled, boxes, strict=True):
        mask[int(y0) : int(y1), int(x0) : int(x1)] = 1
    return filled
