"""Small networks for the goldens: one plain, one that recomputes a block in backward."""

from __future__ import annotations

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Checkpointed(nn.Module):
    """A stem, a block under activation checkpointing, a head."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Linear(4, width)
        self.block = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
        self.head = nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = checkpoint(self.block, self.stem(x), use_reentrant=False)
        output: Tensor = self.head(hidden)
        return output


def make(width: int = 8) -> nn.Module:
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2))


def make_checkpointed(width: int = 8) -> nn.Module:
    return Checkpointed(width)


def make_classifier() -> nn.Module:
    """For images of CIFAR-10."""
    return nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(48, 10))
