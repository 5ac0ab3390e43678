"""CIFAR-10, synthetic images in its place, and networks of ten classes for it.

CIFAR-10 is 60,000 photographs of 32x32 pixels in ten classes. torchvision reads it, and unpacks or
downloads its archive. The batches are pickles, which can run code: none is loaded before it has the
MD5 sum that torchvision knows.

https://www.cs.toronto.edu/~kriz/cifar.html, A. Krizhevsky, 2009
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from ridgeline.errors import RidgelineError
from ridgeline.records import WorkloadSpec
from ridgeline.workloads.offline import refuse_downloads
from ridgeline.workloads.sources import is_file, resolve
from ridgeline.workloads.workload import Workload, one_line

URL = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
ARCHIVE = "cifar-10-python.tar.gz"
FOLDER = "cifar-10-batches-py"

CLASSES = 10
SIDE = 32
MEAN = (0.4914, 0.4822, 0.4465)  # of the training images, by channel, as parts of 255
STD = (0.2470, 0.2435, 0.2616)


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """Labelled images, in memory: uint8 (N, 3, 32, 32) and int64 (N,)."""

    name: str
    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor

    def limited(self, train: int | None, test: int | None) -> Images:
        """The first `train` and `test` of them; None takes all."""
        return Images(
            name=self.name,
            train_images=self.train_images[:train],
            train_labels=self.train_labels[:train],
            test_images=self.test_images[:test],
            test_labels=self.test_labels[:test],
        )


def find_cifar10(path: Path) -> Path | None:
    """The folder with the batches' folder or the archive: `path`, or the one that it is in."""
    root = path.parent if path.name in (FOLDER, ARCHIVE) else path
    is_there = (root / FOLDER / "test_batch").is_file() or (root / ARCHIVE).is_file()
    return root if is_there else None


def load_cifar10(path: Path, *, download: bool) -> Images:
    """All images, checked; downloaded to `path` first where they are missing and may be."""
    from torchvision.datasets import CIFAR10

    root = find_cifar10(path) or path
    may_unpack = download or (root / ARCHIVE).is_file()
    try:
        with nullcontext() if download else refuse_downloads("CIFAR-10"):
            train = CIFAR10(str(root), train=True, download=may_unpack)
            test = CIFAR10(str(root), train=False)
    except (OSError, RuntimeError, EOFError, RidgelineError) as error:
        raise RidgelineError(
            f"CIFAR-10 cannot be had from {root}: {one_line(error)}",
            hint=f"get {URL} elsewhere and put it there as {root / ARCHIVE}; --data synthetic tries"
            " everything without it",
        ) from error
    train_images, test_images = (
        torch.from_numpy(part.data).permute(0, 3, 1, 2).contiguous() for part in (train, test)
    )
    return Images(
        name="cifar10",
        train_images=train_images,
        train_labels=torch.tensor(train.targets),
        test_images=test_images,
        test_labels=torch.tensor(test.targets),
    )


# ---------------------------------------------------------------- synthetic images
# Each class has one smooth pattern of colours. An image is that pattern, moved a few pixels, in
# some contrast, at times mirrored, under noise: enough that a network has to learn, little enough
# that a few hundred images show it. They are the same on every machine and in every run.

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
        train_images=_draw_images(patterns, train_labels, generator),
        train_labels=train_labels,
        test_images=_draw_images(patterns, test_labels, generator),
        test_labels=test_labels,
    )


def _draw_images(patterns: Tensor, labels: Tensor, generator: Generator) -> Tensor:
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


# ---------------------------------------------------------------- classifiers
# torchvision's get a head for ten classes. A Python file or another source is taken if its network
# gives ten scores.


def build_classifier(model: str, image_size: int) -> nn.Module:
    """The network, with random weights, on the CPU; it has been seen to take such images."""
    size = (3, image_size, image_size) if is_file(model) else (image_size,)
    spec = WorkloadSpec(model=model, mode="train", input_size=size)
    workload = resolve(spec)
    try:
        network = _with_ten_classes(workload, image_size)
        with torch.random.fork_rng(devices=()), torch.no_grad():  # the random numbers stay
            scores = network.eval()(torch.zeros(2, 3, image_size, image_size))
    except RidgelineError:
        raise
    except Exception as error:
        raise RidgelineError(
            f"{model} cannot take images of {image_size}x{image_size}: {one_line(error)}",
            hint="--image-size 224 scales them up; resnet18_cifar is made for 32x32",
        ) from error
    shape = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
    if shape != (2, CLASSES):
        raise RidgelineError(
            f"{model} answers two images with {shape}, not with {CLASSES} scores for each",
            hint=f"give it a last layer with {CLASSES} outputs, or choose a torchvision classifier",
        )
    return network.train()


def file_stem(model: str) -> str:
    """The name of a model as a part of a file's name: `nets/net.py:make` is `net_make`."""
    name = model.replace("\\", "/").rpartition("/")[2].replace(".py", "")
    return re.sub(r"[^A-Za-z0-9.-]+", "_", name).strip("_.") or "model"


def _with_ten_classes(workload: Workload, image_size: int) -> nn.Module:
    if workload.source != "torchvision":
        return workload.build()
    if workload.describe["task"] != "classification":
        raise RidgelineError(
            f"{workload.name} is for {workload.describe['task']}, not for classes",
            hint="choose a classifier: `ridgeline count --list` says what each model is for",
        )
    from torchvision import models

    from ridgeline.workloads.from_torchvision import constructor_sizes

    options = constructor_sizes(workload.name, (image_size, image_size))
    if workload.name in ("googlenet", "inception_v3"):
        options["init_weights"] = True  # else torchvision warns
    network: nn.Module = models.get_model(
        workload.name, weights=None, num_classes=CLASSES, **options
    )
    return network
