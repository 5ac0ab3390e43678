"""VGG-11 for CIFAR-10: the eight convolutions of arXiv:1409.1556, batch norm, one linear layer.

Five poolings bring 32x32 down to one pixel, so nothing but its 512 channels is left for the
head. 9,231,114 parameters.
"""

from __future__ import annotations

from torch import Tensor, nn

STAGES = ((64,), (128,), (256, 256), (512, 512), (512, 512))  # a pooling after each


class Vgg11Cifar(nn.Module):
    """Images (N, 3, 32, 32) to scores (N, classes)."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.features = nn.Sequential(*layers())
        self.head = nn.Linear(STAGES[-1][-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.features(x).mean((2, 3)))
        return scores


def layers() -> list[nn.Module]:
    made: list[nn.Module] = []
    before = 3
    for stage in STAGES:
        for after in stage:
            made += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after)]
            made += [nn.ReLU(inplace=True)]
            before = after
        made += [nn.MaxPool2d(2)]
    return made
