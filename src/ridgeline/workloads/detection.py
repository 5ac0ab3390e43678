"""What torchvision's detectors take: a list of images, and the objects in each of them."""

from __future__ import annotations

import torch
from torch import Tensor

from ridgeline.workloads.images import CHANNELS
from ridgeline.workloads.workload import Inputs

BOXES = ((0.1, 0.1, 0.4, 0.5), (0.3, 0.2, 0.9, 0.8), (0.5, 0.5, 0.7, 0.9))  # x0 y0 x1 y1, of 1
KEYPOINTS = 17  # of a person, as COCO marks them
PEOPLE_ONLY = 1  # keypoint detectors know one class besides the background


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
    found = {"boxes": torch.tensor(boxes), "labels": classes(name)}
    if name.startswith("maskrcnn"):
        found["masks"] = masks(boxes, height, width)
    if name.startswith("keypointrcnn"):
        found["keypoints"] = keypoints(boxes)
    return found


def classes(name: str) -> Tensor:
    several = [1, 2, 3]
    one = [PEOPLE_ONLY] * len(several)
    return torch.tensor(one if name.startswith("keypointrcnn") else several, device="cpu")


def masks(boxes: list[list[float]], height: int, width: int) -> Tensor:
    """Each object fills its box."""
    filled = torch.zeros(len(boxes), height, width, dtype=torch.uint8, device="cpu")
    for mask, (x0, y0, x1, y1) in zip(filled, boxes, strict=True):
        mask[int(y0) : int(y1), int(x0) : int(x1)] = 1
    return filled


def keypoints(boxes: list[list[float]]) -> Tensor:
    """All in the middle of their box and visible: x, y, 1."""
    middles = [[(x0 + x1) / 2, (y0 + y1) / 2, 1.0] for x0, y0, x1, y1 in boxes]
    return torch.tensor([[middle] * KEYPOINTS for middle in middles])
