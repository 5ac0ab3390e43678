"""The records of a training: its settings and learning rates, results of an epoch and of all."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from ridgeline.errors import RidgelineError
from ridgeline.settings import check_momentum

LARGEST = 2**31 - 1  # beyond it, torch's own sizes and seeds overflow somewhere
USUAL_WARMUP = 500  # steps, unless that is more than a tenth of all


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """All that decides the result: the same settings on the same device give the same weights."""

    model: str = "resnet18_cifar"
    data: str = "cifar10"  # or "synthetic"
    train_images: int
    test_images: int
    epochs: int = 20
    batch_size: int = 128
    lr: float = 0.1  # the highest
    momentum: float = 0.9
    weight_decay: float = 5e-4
    label_smoothing: float = 0.0
    warmup: int | None = None  # steps; None: a tenth of all, at most 500
    seed: int = 0
    augment: bool = True
    precision: str = "fp32"  # the one that is used
    image_size: int = 32
    channels_last: bool = False
    deterministic: bool = True

    def __post_init__(self) -> None:
        for name in ("train_images", "test_images", "epochs", "batch_size", "image_size"):
            _check(name, getattr(self, name), 1, LARGEST)
        for name in ("lr", "weight_decay"):
            _check(name, getattr(self, name), 0, LARGEST)
        _check("label_smoothing", self.label_smoothing, 0, 1)
        check_momentum("momentum", {"momentum": self.momentum})
        for name in ("seed", "warmup"):
            _check(name, getattr(self, name) or 0, 0, LARGEST)

    @property
    def steps(self) -> int:
        """Of one epoch."""
        return steps_per_epoch(self.train_images, self.batch_size)

    @property
    def total_steps(self) -> int:
        return self.epochs * self.steps

    @property
    def warmup_steps(self) -> int:
        usual = min(USUAL_WARMUP, self.total_steps // 10)
        return usual if self.warmup is None else self.warmup

    def lr_at(self, step: int) -> float:
        """The learning rate of a step: a straight rise, then half a cosine down to zero.

        The first is step 0, and step `warmup_steps` has the peak. As in arXiv:1608.03983 without
        restarts, behind a warm-up as in arXiv:1706.02677.
        """
        if step < self.warmup_steps:
            return self.lr * (step + 1) / (self.warmup_steps + 1)
        decay_steps = max(1, self.total_steps - self.warmup_steps)
        return self.lr * 0.5 * (1 + math.cos(math.pi * (step - self.warmup_steps) / decay_steps))


def _check(name: str, value: float, least: int, most: int) -> None:
    if not least <= value <= most:  # also for nan
        raise RidgelineError(
            f"{name.replace('_', ' ')} {value} is not possible",
            hint=f"{least} is the least, {most} the most",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochResult:
    """One pass over the training images, then one over the test images."""

    epoch: int  # the first is 1
    train_loss: float  # mean over the images, as the weights were when each was seen
    train_accuracy: float
    test_accuracy: float
    lr: float  # of the last step
    time_s: float  # of training
    test_time_s: float
    images: int  # that were trained on

    @property
    def images_per_s(self) -> float:
        """Trained images per second; the test is not in it."""
        return self.images / self.time_s

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"images_per_s": self.images_per_s}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProgress:
    """How far an epoch is."""

    epoch: int
    step: int  # done, of this epoch
    steps: int
    loss: float  # mean of the epoch so far
    accuracy: float
    images_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """A training that went to its end."""

    settings: TrainSettings
    history: tuple[EpochResult, ...]
    epochs_before: int = 0  # of the history: trained by another process, perhaps on another day
    warnings: tuple[str, ...] = ()

    @property
    def best(self) -> EpochResult:
        """The first epoch that had the highest accuracy."""
        return max(self.history, key=lambda result: result.test_accuracy)

    @property
    def images_per_s(self) -> float:
        """Of the median epoch of this process: its first is slower, for all is new to a device."""
        return median(result.images_per_s for result in self.history[self.epochs_before :])

    @property
    def time_s(self) -> float:
        return sum(result.time_s + result.test_time_s for result in self.history)


def steps_per_epoch(count: int, batch_size: int) -> int:
    """How many batches `count` images make; a last one of a single image is left out.

    Batch norm cannot learn from one value.
    """
    whole, rest = divmod(count, batch_size)
    return max(1, whole + (rest > 1))
