"""How the detector of networks/yolo.py is trained.

Each object claims the NEAREST cells whose middles are closest to its own, always the same
number: every tensor has a size that does not depend on values, so the step can be traced with
shapes alone. Three terms: class (binary cross entropy over all cells), overlap (1 − IoU), and
the distribution of the distances (arXiv:2006.04388).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from ridgeline.workloads.networks.yolo import BINS, Predictions, corners, split_sides
from ridgeline.workloads.workload import Inputs

NEAREST = 10  # cells per object
CLASS_WEIGHT, OVERLAP_WEIGHT, DISTANCE_WEIGHT = 0.5, 7.5, 1.5


class Objects(NamedTuple):
    """M objects in each image."""

    boxes: Tensor  # (N, M, 4) corners in pixels
    classes: Tensor  # (N, M)


def yolo_loss(output: Any, inputs: Inputs) -> Tensor:
    """The weighted sum of the three terms."""
    assert isinstance(output, Predictions)
    assert isinstance(inputs.targets, Objects)
    boxes = inputs.targets.boxes.to(output.classes)
    classes = inputs.targets.classes.to(output.classes.device)
    chosen = claimed_cells(output.points, boxes)
    wanted = boxes.repeat_interleave(NEAREST, 1, output_size=boxes.shape[1] * NEAREST)
    return (
        CLASS_WEIGHT * class_term(output.classes, chosen, classes)
        + OVERLAP_WEIGHT * overlap_term(output, chosen, wanted)
        + DISTANCE_WEIGHT * distance_term(output, chosen, wanted)
    )


def claimed_cells(points: Tensor, boxes: Tensor) -> Tensor:
    """(N, M · NEAREST) numbers of the cells nearest to the middle of each box."""
    middles = (boxes[..., :2] + boxes[..., 2:]) / 2
    apart = (middles.unsqueeze(2) - points).square().sum(-1)  # (N, M, A)
    return apart.topk(NEAREST, largest=False).indices.flatten(1)


def pick(values: Tensor, chosen: Tensor) -> Tensor:
    """Rows `chosen` (N, K) of `values` (N, A, C)."""
    return values.gather(1, chosen.unsqueeze(-1).expand(-1, -1, values.shape[-1]))


def class_term(scores: Tensor, chosen: Tensor, classes: Tensor) -> Tensor:
    """Claimed cells should score their object's class and nothing else, the others nothing."""
    kinds = torch.arange(scores.shape[-1], device=scores.device)
    one_hot = (classes.unsqueeze(-1) == kinds).to(scores.dtype)
    one_hot = one_hot.repeat_interleave(NEAREST, 1, output_size=chosen.shape[1])
    where = chosen.unsqueeze(-1).expand(-1, -1, scores.shape[-1])
    wanted = torch.zeros_like(scores).scatter(1, where, one_hot)
    loss = functional.binary_cross_entropy_with_logits(scores, wanted, reduction="sum")
    return loss / chosen.numel()


def overlap_term(output: Predictions, chosen: Tensor, wanted: Tensor) -> Tensor:
    points, strides = output.points[chosen], output.strides[chosen]
    found = corners(pick(output.distances, chosen), points, strides)
    return (1 - overlap(found, wanted)).mean()


def overlap(a: Tensor, b: Tensor) -> Tensor:
    """Intersection over union of boxes in pairs."""
    shared = area(torch.maximum(a[..., :2], b[..., :2]), torch.minimum(a[..., 2:], b[..., 2:]))
    total = area(a[..., :2], a[..., 2:]) + area(b[..., :2], b[..., 2:])
    return shared / (total - shared + 1e-7)


def area(low: Tensor, high: Tensor) -> Tensor:
    return (high - low).clamp(min=0).prod(-1)


def distance_term(output: Predictions, chosen: Tensor, wanted: Tensor) -> Tensor:
    """Cross entropy with the two bins on either side of the true distance."""
    points, strides = output.points[chosen], output.strides[chosen]
    sides = torch.cat([points - wanted[..., :2], wanted[..., 2:] - points], -1) / strides
    sides = sides.clamp(0, BINS - 1.01)
    below = sides.floor().long()
    share = sides - below
    scores = split_sides(pick(output.distances, chosen)).flatten(0, 2)
    low = functional.cross_entropy(scores, below.flatten(), reduction="none")
    high = functional.cross_entropy(scores, below.flatten() + 1, reduction="none")
    return (low * (1 - share.flatten()) + high * share.flatten()).mean()
