"""ResNet-18 and ResNet-34 for CIFAR-10: a 3x3 stem and no pooling, for images of 32x32.

The ImageNet form would shrink such an image to one pixel. Blocks as in arXiv:1512.03385,
with a 1x1 convolution on the way around where the shape changes. 11,173,962 parameters
with 18 layers, 21,282,122 with 34.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

STAGE_CHANNELS = (64, 128, 256, 512)
BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}  # by depth: each block is two layers


class Block(nn.Module):
    """Two 3x3 convolutions and the way around them."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = conv3x3(before, after, stride)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = conv3x3(after, after, 1)
        self.norm2 = nn.BatchNorm2d(after)
        self.around = nn.Identity() if before == after else resize(before, after, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        y = y + self.around(x)
        return torch.relu(y)


class ResNetCifar(nn.Module):
    """Images (N, 3, 32, 32) to scores (N, classes)."""

    def __init__(self, depth: int, classes: int = 10) -> None:
        super().__init__()
        first = STAGE_CHANNELS[0]
        self.stem = nn.Sequential(
            conv3x3(3, first, 1), nn.BatchNorm2d(first), nn.ReLU(inplace=True)
        )
        before = (first, *STAGE_CHANNELS)
        self.stages = nn.Sequential(
            *[
                stage(before[i], after, count, stride=1 if i == 0 else 2)
                for i, (after, count) in enumerate(zip(STAGE_CHANNELS, BLOCKS[depth], strict=True))
            ]
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(STAGE_CHANNELS[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        features = self.pool(self.stages(self.stem(x)))
        scores: Tensor = self.head(features.flatten(1))
        return scores


def stage(before: int, after: int, count: int, stride: int) -> nn.Sequential:
    """`count` blocks; the first changes the shape."""
    rest = [Block(after, after, 1) for _ in range(count - 1)]
    return nn.Sequential(Block(before, after, stride), *rest)


def conv3x3(before: int, after: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)


def resize(before: int, after: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(before, after, 1, stride=stride, bias=False), nn.BatchNorm2d(after)
    )
