"""A network of your own, for `ridgeline count examples/your_network.py:make`.

`inputs` tells ridgeline what to feed it; without that, give --input-size 1,28,28.
"""

import torch
from torch import nn


def make(width: int = 32) -> nn.Module:
    """Change the width with `--config width=64`."""
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1, groups=width),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, 10),
    )


def inputs(batch_size: int) -> torch.Tensor:
    return torch.empty(batch_size, 1, 28, 28)


if __name__ == "__main__":
    import ridgeline

    result = ridgeline.count(make(), inputs(8), mode="train", optimizer="adam")
    for name, cost in result.phases.items():
        print(f"{name:<12} {cost.flops:>12} FLOPs {cost.read_bytes + cost.written_bytes:>10} bytes")
