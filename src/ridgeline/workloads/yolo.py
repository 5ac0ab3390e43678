"""A one-stage detector in the style of YOLO, about as large as the nano models of that family.

Our own code, after the published ideas: a backbone of cross-stage-partial blocks
(arXiv:1911.11929), a neck that carries features down and up again (arXiv:1803.01534), and at
strides 8, 16 and 32 a head with separate branches for box and class and no anchor boxes: each
cell predicts its distance to the four sides of a box as a distribution (arXiv:2006.04388). It is
not the network of any YOLO release: its cost is of their kind, its numbers are its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from ridgeline.workloads.workload import Inputs

BINS = 16  # a distance is a distribution over 0…15 strides
STRIDES = (8, 16, 32)
WIDTHS = (16, 32, 64, 128, 256)  # channels after each halving of the image


class Predictions(NamedTuple):
    """What training needs: one row per cell of the three grids, A cells in all."""

    distances: Tensor  # (N, A, 4 · BINS) scores of left, top, right, bottom
    classes: Tensor  # (N, A, classes) scores
    points: Tensor  # (A, 2) the middle of each cell, in pixels
    strides: Tensor  # (A, 1) pixels per cell


class ConvUnit(nn.Sequential):
    """Convolution, batch norm, SiLU."""

    def __init__(self, before: int, after: int, kernel: int = 1, stride: int = 1) -> None:
        conv = nn.Conv2d(before, after, kernel, stride, kernel // 2, bias=False)
        super().__init__(conv, nn.BatchNorm2d(after), nn.SiLU(inplace=True))


class Residual(nn.Module):
    """Two 3x3 convolutions, added to what came in."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(ConvUnit(channels, channels, 3), ConvUnit(channels, channels, 3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.add(x, self.body(x))


class CspBlock(nn.Module):
    """Half of the channels go through the residuals, the other half around them."""

    def __init__(self, before: int, after: int, depth: int = 1) -> None:
        super().__init__()
        half = after // 2
        self.through = nn.Sequential(
            ConvUnit(before, half), *[Residual(half) for _ in range(depth)]
        )
        self.around = ConvUnit(before, half)
        self.join = ConvUnit(after, after)

    def forward(self, x: Tensor) -> Tensor:
        joined: Tensor = self.join(torch.cat([self.through(x), self.around(x)], 1))
        return joined


class PooledContext(nn.Module):
    """The same pooling once, twice and three times: four views of growing width, side by side."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.narrow = ConvUnit(channels, channels // 2)
        self.pool = nn.MaxPool2d(5, stride=1, padding=2)
        self.join = ConvUnit(channels // 2 * 4, channels)

    def forward(self, x: Tensor) -> Tensor:
        views = [self.narrow(x)]
        for _ in range(3):
            views.append(self.pool(views[-1]))
        joined: Tensor = self.join(torch.cat(views, 1))
        return joined


class Backbone(nn.Module):
    """An image to its features at strides 8, 16 and 32."""

    def __init__(self) -> None:
        super().__init__()
        w1, w2, w3, w4, w5 = WIDTHS
        self.stem = nn.Sequential(
            ConvUnit(3, w1, 3, 2), ConvUnit(w1, w2, 3, 2), CspBlock(w2, w2, 1)
        )
        self.stage3 = nn.Sequential(ConvUnit(w2, w3, 3, 2), CspBlock(w3, w3, 2))
        self.stage4 = nn.Sequential(ConvUnit(w3, w4, 3, 2), CspBlock(w4, w4, 2))
        self.stage5 = nn.Sequential(ConvUnit(w4, w5, 3, 2), CspBlock(w5, w5, 1), PooledContext(w5))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        at8 = self.stage3(self.stem(x))
        at16 = self.stage4(at8)
        return at8, at16, self.stage5(at16)


class Neck(nn.Module):
    """Coarse features down to the fine grid, then back up."""

    def __init__(self) -> None:
        super().__init__()
        _, _, w3, w4, w5 = WIDTHS
        self.widen = nn.Upsample(scale_factor=2, mode="nearest")
        self.down16 = CspBlock(w5 + w4, w4)
        self.down8 = CspBlock(w4 + w3, w3)
        self.halve8 = ConvUnit(w3, w3, 3, 2)
        self.up16 = CspBlock(w3 + w4, w4)
        self.halve16 = ConvUnit(w4, w4, 3, 2)
        self.up32 = CspBlock(w4 + w5, w5)

    def forward(self, at8: Tensor, at16: Tensor, at32: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mid16 = self.down16(torch.cat([self.widen(at32), at16], 1))
        out8 = self.down8(torch.cat([self.widen(mid16), at8], 1))
        out16 = self.up16(torch.cat([self.halve8(out8), mid16], 1))
        out32 = self.up32(torch.cat([self.halve16(out16), at32], 1))
        return out8, out16, out32


class Head(nn.Module):
    """The predictions of one grid: a branch for the box, a branch for the class."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.box, self.kind = (
            nn.Sequential(ConvUnit(channels, n, 3), ConvUnit(n, n, 3), nn.Conv2d(n, after, 1))
            for n, after in ((64, 4 * BINS), (max(64, classes), classes))
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Both as (N, H · W, channels)."""
        return self.box(x).flatten(2).transpose(1, 2), self.kind(x).flatten(2).transpose(1, 2)


class Yolo(nn.Module):
    """Images (N, 3, H, W), H and W multiples of 32.

    In training the raw Predictions; else (N, A, 4 + classes): corners in pixels, then scores.
    """

    def __init__(self, classes: int = 80) -> None:
        super().__init__()
        self.backbone = Backbone()
        self.neck = Neck()
        self.heads = nn.ModuleList([Head(width, classes) for width in WIDTHS[2:]])

    def forward(self, images: Tensor) -> Predictions | Tensor:
        grids = self.neck(*self.backbone(images))
        predicted = [head(grid) for head, grid in zip(self.heads, grids, strict=True)]
        points, strides = cells(grids)
        predictions = Predictions(
            distances=torch.cat([distances for distances, _ in predicted], 1),
            classes=torch.cat([classes for _, classes in predicted], 1),
            points=points,
            strides=strides,
        )
        if self.training:
            return predictions
        boxes = corners(predictions.distances, points, strides)
        return torch.cat([boxes, predictions.classes.sigmoid()], -1)


def cells(grids: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """The middle of every cell and its stride, both in pixels, grid after grid."""
    points, strides = [], []
    for grid, stride in zip(grids, STRIDES, strict=True):
        height, width = grid.shape[-2:]
        ys = (torch.arange(height, device=grid.device, dtype=grid.dtype) + 0.5) * stride
        xs = (torch.arange(width, device=grid.device, dtype=grid.dtype) + 0.5) * stride
        y, x = torch.meshgrid(ys, xs, indexing="ij")
        points.append(torch.stack([x, y], -1).flatten(0, 1))
        strides.append(x.new_full((height * width, 1), stride))
    return torch.cat(points), torch.cat(strides)


def corners(distances: Tensor, points: Tensor, strides: Tensor) -> Tensor:
    """The boxes that distributions of distances mean: x0, y0, x1, y1 in pixels."""
    shares = split_sides(distances).softmax(-1)
    bins = torch.arange(BINS, device=shares.device, dtype=shares.dtype)
    sides = (shares * bins).sum(-1) * strides
    return torch.cat([points - sides[..., :2], points + sides[..., 2:]], -1)


def split_sides(distances: Tensor) -> Tensor:
    """(…, 4 · BINS) to (…, 4, BINS)."""
    return distances.reshape(*distances.shape[:-1], 4, BINS)


# ---------------------------------------------------------------- training
# Each object claims the NEAREST cells whose middles are closest to its own, always the same
# number: every tensor has a size that does not depend on values, so the step can be traced with
# shapes alone. Three terms: class (binary cross entropy over all cells), overlap (1 − IoU), and
# the distribution of the distances (arXiv:2006.04388).

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
    targets = boxes.repeat_interleave(NEAREST, 1, output_size=boxes.shape[1] * NEAREST)
    return (
        CLASS_WEIGHT * class_term(output.classes, chosen, classes)
        + OVERLAP_WEIGHT * overlap_term(output, chosen, targets)
        + DISTANCE_WEIGHT * distance_term(output, chosen, targets)
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
    targets = torch.zeros_like(scores).scatter(1, where, one_hot)
    loss = functional.binary_cross_entropy_with_logits(scores, targets, reduction="sum")
    return loss / chosen.numel()


def overlap_term(output: Predictions, chosen: Tensor, targets: Tensor) -> Tensor:
    points, strides = output.points[chosen], output.strides[chosen]
    predicted = corners(pick(output.distances, chosen), points, strides)
    return (1 - overlap(predicted, targets)).mean()


def overlap(a: Tensor, b: Tensor) -> Tensor:
    """Intersection over union of boxes in pairs."""
    low, high = torch.maximum(a[..., :2], b[..., :2]), torch.minimum(a[..., 2:], b[..., 2:])
    shared, area_a, area_b = (
        (to - start).clamp(min=0).prod(-1)
        for start, to in ((low, high), (a[..., :2], a[..., 2:]), (b[..., :2], b[..., 2:]))
    )
    return shared / (area_a + area_b - shared + 1e-7)


def distance_term(output: Predictions, chosen: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy with the two bins on either side of the true distance."""
    points, strides = output.points[chosen], output.strides[chosen]
    sides = torch.cat([points - targets[..., :2], targets[..., 2:] - points], -1) / strides
    sides = sides.clamp(0, BINS - 1.01)
    below = sides.floor().long()
    share = sides - below
    scores = split_sides(pick(output.distances, chosen)).flatten(0, 2)
    low = functional.cross_entropy(scores, below.flatten(), reduction="none")
    high = functional.cross_entropy(scores, below.flatten() + 1, reduction="none")
    return (low * (1 - share.flatten()) + high * share.flatten()).mean()
