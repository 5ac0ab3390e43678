"""Small images made here, for a try without CIFAR-10.

Each class has one smooth pattern of colours. An image is that pattern, moved a few pixels, in some
contrast, at times mirrored, under noise: enough that a network has to learn, little enough
that a few hundred images show it. They are the same on every machine and in every run.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor
from torch.nn import functional

from ridgeline.workloads.cifar10 import CLASSES, SIDE, Images

TRAIN, TEST = 2000, 500
SEED = 20_090_408
COARSE = 8  # a pattern is smooth between 8x8 random colours
SHIFT = 8  # pixels, in each direction
PATTERN, NOISE = 45.0, 45.0  # standard deviations, of 255


def synthetic_images(train: int = TRAIN, test: int = TEST) -> Images:
    """As many images as asked, the classes in turn."""
    generator = Generator().manual_seed(SEED)
    coarse = torch.randn(CLASSES, 3, COARSE, COARSE, generator=generator)
    patterns = functional.interpolate(coarse, size=(SIDE, SIDE), mode="bilinear")
    train_labels, test_labels = (torch.arange(count) % CLASSES for count in (train, test))
    return Images(
        name="synthetic",
        train_images=_drawn(patterns, train_labels, generator),
        train_labels=train_labels,
        test_images=_drawn(patterns, test_labels, generator),
        test_labels=test_labels,
    )


def _drawn(patterns: Tensor, labels: Tensor, generator: Generator) -> Tensor:
    """One image for each label."""
    count = len(labels)
    moves = torch.randint(-SHIFT, SHIFT + 1, (count, 2), generator=generator).tolist()
    contrast = 0.5 + torch.rand(count, 1, 1, 1, generator=generator)
    mirrored = torch.rand(count, 1, 1, 1, generator=generator) < 0.5
    moved = [
        patterns[label].roll((down, right), (1, 2))
        for label, (down, right) in zip(labels.tolist(), moves, strict=True)
    ]
    images = torch.stack(moved) if moved else patterns[:0]
    images = torch.where(mirrored, images.flip(3), images)
    noise = torch.randn(images.shape, generator=generator)
    return (128 + PATTERN * contrast * images + NOISE * noise).clamp(0, 255).to(torch.uint8)
