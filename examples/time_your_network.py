"""Where the time of a network's training step goes: measured, module by module."""

import torch
from torch import nn

import ridgeline


def make() -> nn.Module:
    """A small convolutional network; put your own in its place."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def main() -> None:
    images = torch.rand(16, 3, 64, 64)
    result = ridgeline.measure(make(), images, mode="train", iters=20, layers=True)
    print(result)
    slowest = result.layers.sort_values("time_s", ascending=False).head(3)
    for row in slowest.itertuples():
        print(f"{row.layer:<12} {row.kind:<10} {row.percentage:5.1f} % of the step")


if __name__ == "__main__":
    main()
