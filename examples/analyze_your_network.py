"""How fast a network of your own could be here, how fast it is, and what holds it back."""

from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn

import ridgeline


def make() -> nn.Module:
    """A small convolutional network; put your own in its place."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(inplace=True),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def main() -> None:
    images = torch.rand(16, 3, 64, 64)
    with TemporaryDirectory() as folder:  # name a folder of your own to keep the report
        found = ridgeline.analyze(make(), images, results=Path(folder), quick=True, iters=10)
        print(found)
        first = found.findings.iloc[0]
        print(f"most to gain: {first['layer']}, {first['share']:.0%} of the step")


if __name__ == "__main__":
    main()
