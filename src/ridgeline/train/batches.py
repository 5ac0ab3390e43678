"""Batches for training: which images, how they are cropped and mirrored, in which order.

All of an epoch's chances are drawn at once from the seed and the number of the epoch, and from
nothing else. So a batch is the same whoever makes it: this process, one of several workers, or
a training that was killed and begins the epoch again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import torch
from torch import Generator, Tensor
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from ridgeline.workloads.cifar10 import MEAN, STD

PADDING = 4  # pixels on each side before a crop of the image's own size
EPOCHS_APART = 1_000_003  # between the seeds of two trainings whose seeds are neighbours

Batch = tuple[Tensor, Tensor]  # uint8 images and labels


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochPlan:
    """What chance decides in an epoch: a row per place in it."""

    order: Tensor  # which image
    moves: Tensor | None  # where its crop begins, down and right; None: not augmented
    mirrored: Tensor | None

    def to(self, device: torch.device) -> EpochPlan:
        return EpochPlan(
            order=self.order.to(device),
            moves=None if self.moves is None else self.moves.to(device),
            mirrored=None if self.mirrored is None else self.mirrored.to(device),
        )


def plan_epoch(count: int, *, seed: int, epoch: int, augment: bool) -> EpochPlan:
    """The order of `count` images in an epoch, and what is done to each."""
    generator = Generator().manual_seed((seed * EPOCHS_APART + epoch) % 2**63)
    order = torch.randperm(count, generator=generator)
    if not augment:
        return EpochPlan(order=order, moves=None, mirrored=None)
    moves = torch.randint(0, 2 * PADDING + 1, (count, 2), generator=generator)
    mirrored = torch.rand(count, generator=generator) < 0.5
    return EpochPlan(order=order, moves=moves, mirrored=mirrored)


def augmented(images: Tensor, moves: Tensor, mirrored: Tensor) -> Tensor:
    """Each image (N, 3, H, W) in a black frame, cropped at its `moves`, and perhaps mirrored."""
    count, channels, height, width = images.shape
    framed = functional.pad(images, (PADDING,) * 4)
    rows = moves[:, :1] + torch.arange(height, device=images.device)
    columns = moves[:, 1:] + torch.arange(width, device=images.device)
    columns = torch.where(mirrored[:, None], columns.flip(1), columns)
    image = torch.arange(count, device=images.device)[:, None, None, None]
    channel = torch.arange(channels, device=images.device)[:, None, None]
    return framed[image, channel, rows[:, None, :, None], columns[:, None, None, :]]


def normalized(images: Tensor, dtype: torch.dtype) -> Tensor:
    """Bytes to numbers around 0 with a spread of about 1."""
    mean, std = _mean_and_std(images.device)
    return ((images.float() - mean) / std).to(dtype)


@cache  # to copy them in every step would make the device wait for the host
def _mean_and_std(device: torch.device) -> tuple[Tensor, Tensor]:
    mean, std = (torch.tensor(values, device=device) * 255 for values in (MEAN, STD))
    return mean[:, None, None], std[:, None, None]


def steps_per_epoch(count: int, batch_size: int) -> int:
    """How many batches `count` images make; a last one of a single image is left out.

    Batch norm cannot learn from one value.
    """
    whole, rest = divmod(count, batch_size)
    return max(1, whole + (rest > 1))


class TrainBatches(Dataset[Batch]):
    """The batches of a training, by epoch and number."""

    def __init__(
        self, images: Tensor, labels: Tensor, *, batch_size: int, seed: int, augment: bool
    ) -> None:
        self.images, self.labels = images, labels
        self.batch_size, self.seed, self.augment = batch_size, seed, augment
        self._planned: tuple[int, EpochPlan] | None = None

    @property
    def steps(self) -> int:
        return steps_per_epoch(len(self.labels), self.batch_size)

    def __getitem__(self, position: tuple[int, int]) -> Batch:
        epoch, number = position
        plan = self._plan(epoch)
        here = slice(number * self.batch_size, (number + 1) * self.batch_size)
        chosen = plan.order[here]
        images = self.images[chosen]
        if plan.moves is not None and plan.mirrored is not None:
            images = augmented(images, plan.moves[here], plan.mirrored[here])
        return images, self.labels[chosen]

    def _plan(self, epoch: int) -> EpochPlan:
        if self._planned is None or self._planned[0] != epoch:
            plan = plan_epoch(len(self.labels), seed=self.seed, epoch=epoch, augment=self.augment)
            self._planned = (epoch, plan.to(self.labels.device))
        return self._planned[1]


class Feed:
    """Brings batches to a device: made there, or by worker processes and then copied."""

    def __init__(self, batches: TrainBatches, device: torch.device, workers: int = 0) -> None:
        self.batches, self.device = batches, device
        self._places: list[tuple[int, int]] = []  # epoch and number of the batches to come
        self._loader = self._make_loader(workers) if workers else None
        if not workers:
            batches.images = batches.images.to(device)
            batches.labels = batches.labels.to(device)

    def _make_loader(self, workers: int) -> DataLoader[Batch]:
        return DataLoader(
            self.batches,
            batch_size=None,  # an item is a batch already
            sampler=self._places,
            num_workers=workers,
            pin_memory=self.device.type == "cuda",
            persistent_workers=True,
            generator=Generator(),  # or it would take numbers from those of the model
        )

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of an epoch, on the device."""
        self._places[:] = [(number, step) for step in range(self.batches.steps)]
        if self._loader is None:
            yield from (self.batches[position] for position in self._places)
            return
        for images, labels in self._loader:
            yield (
                images.to(self.device, non_blocking=True),
                labels.to(self.device, non_blocking=True),
            )
