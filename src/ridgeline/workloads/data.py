"""Batches from real data: a folder of images, or CIFAR-10.

A batch from here has the shape of the workload's own made-up batch, so that the same step takes
both. What a path holds is found out by looking: CIFAR-10's files, then folders of images (one per
class, perhaps below `train/`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, default_collate

from ridgeline.errors import RidgelineError
from ridgeline.workloads.cifar10 import find_cifar10, load_cifar10
from ridgeline.workloads.inputs import CHANNELS
from ridgeline.workloads.workload import Inputs, one_line

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, as torchvision's recipes
CROP_SHARE = 0.875  # of a centre crop: 224 of 256
IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
KINDS = (
    "CIFAR-10 (cifar-10-batches-py/ or cifar-10-python.tar.gz) and a folder of images per class, "
    "perhaps below train/"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Data that was found, and a loader of endless batches."""

    kind: str
    classes: int  # that a model has to tell apart
    batches: Iterator[Inputs]

    def check_fits(self, module: nn.Module) -> None:
        """Refuse classes that a model has no place for: a GPU would just stop."""
        has = _count_classes(module)
        if has is not None and self.classes > has:
            raise RidgelineError(
                f"the data has {self.classes} classes, and the model tells {has} apart",
                hint=f"use a model for {self.classes} classes, or data that has fewer",
            )


def _count_classes(module: nn.Module) -> int | None:
    """The outputs of the last layer that has any: that of a classifier's head."""
    names = ("out_features", "out_channels")
    sizes = [getattr(part, name, None) for part in module.modules() for name in names]
    return next((size for size in reversed(sizes) if isinstance(size, int)), None)


def open_data(
    path: Path,
    template: Inputs,
    batch_size: int,
    *,
    augment: bool = True,
    seed: int = 0,
    loader: Mapping[str, Any] | None = None,
) -> Source:
    """Batches from `path` in the form of `template`, the workload's own batch.

    `loader` are further arguments of torch's DataLoader.
    """
    dataset: CifarImages | ImageFiles
    if find_cifar10(path) is not None:
        kind, dataset = "cifar10", CifarImages(path, image_transform(template, augment))
    elif (folder := find_image_folder(path)) is not None:
        kind, dataset = "imagefolder", ImageFiles(folder, image_transform(template, augment))
    else:
        raise RidgelineError(f"no data of a known kind in {path}", hint=f"known are {KINDS}")
    if len(dataset) < batch_size:
        raise RidgelineError(
            f"a batch of {batch_size} is more than the {len(dataset)} samples there are",
            hint="use a smaller --batch-size, or more data",
        )
    batches = DataLoader(
        dataset,
        batch_size=batch_size,
        shuffle=True,
        drop_last=True,
        collate_fn=_collate,
        generator=torch.Generator().manual_seed(seed),
        **(loader or {}),
    )
    return Source(kind=kind, classes=dataset.classes, batches=_repeat_for_ever(batches, template))


def _collate(samples: list[Any]) -> Any:
    """A batch; or a sample that could not be read."""
    broken = next((one for one in samples if isinstance(one, OSError)), None)
    return broken or default_collate(samples)


def _repeat_for_ever(loader: DataLoader[Any], template: Inputs) -> Iterator[Inputs]:
    while True:
        for batch in loader:
            if isinstance(batch, OSError):
                raise RidgelineError(str(batch), hint="remove it, or put it right")
            yield with_data(template, *batch)


def with_data(template: Inputs, images: Tensor, labels: Tensor) -> Inputs:
    """The template with another batch in it."""
    if IMAGES in template.kwargs:
        kwargs = {**template.kwargs, IMAGES: images}
        if "labels" in kwargs:
            kwargs["labels"] = labels
        return replace(template, kwargs=kwargs, targets=kwargs.get("labels"))
    targets = labels if template.targets is not None else None
    return replace(template, args=(images, *template.args[1:]), targets=targets)


def _unfit_error(problem: str) -> RidgelineError:
    return RidgelineError(
        f"this data does not fit: it holds {problem}",
        hint="use --data synthetic, or data of another kind",
    )


# ---------------------------------------------------------------- images

IMAGES = "pixel_values"  # as Hugging Face's models name them


def find_image_folder(path: Path) -> Path | None:
    """The folder whose folders are classes: this one, or `train/` in it."""
    for folder in (path / "train", path):
        if folder.is_dir() and any(_has_image(child) for child in folder.iterdir()):
            return folder
    return None


def _has_image(folder: Path) -> bool:
    files = folder.iterdir() if folder.is_dir() else ()
    return any(file.suffix.lower() in IMAGE_ENDINGS for file in files)


class CifarImages(Dataset[Any]):
    """CIFAR-10's images for training, in memory."""

    def __init__(self, path: Path, transform: Callable[[Tensor], Tensor]) -> None:
        images = load_cifar10(path, download=False)
        self.images, self.labels = images.train_images, images.train_labels
        self.transform, self.classes = transform, int(images.train_labels.max()) + 1

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(self.images[index]), int(self.labels[index])


class ImageFiles(Dataset[Any]):
    """A folder of images per class.

    An error comes in place of an image: of one that is raised in another process only text is left.
    """

    def __init__(self, path: Path, transform: Callable[[Any], Tensor]) -> None:
        from torchvision.datasets import ImageFolder

        try:
            self.folder = ImageFolder(str(path), transform)
        except OSError as error:  # a folder without images, or one that may not be read
            raise RidgelineError(
                f"cannot use the images in {path}: {one_line(error)}",
                hint="every folder in it is a class and has images; remove those that have none",
            ) from error
        self.classes = len(self.folder.classes)

    def __len__(self) -> int:
        return len(self.folder)

    def __getitem__(self, index: int) -> tuple[Tensor, int] | OSError:
        try:
            sample: tuple[Tensor, int] = self.folder[index]
        except (OSError, ValueError, SyntaxError) as error:
            return OSError(f"cannot read the image {self.folder.samples[index][0]}: {error}")
        return sample


def image_transform(template: Inputs, augment: bool) -> Callable[[Any], Tensor]:
    """What torchvision's recipes do: random crop and flip for training, else the middle."""
    from torchvision.transforms import v2

    height, width = size = image_size(template)
    if augment:
        fitted = [v2.RandomResizedCrop(size, antialias=True), v2.RandomHorizontalFlip()]
    else:
        side = round(min(size) / CROP_SHARE) if min(size) > 64 else size
        fitted = [v2.Resize(side, antialias=True), v2.CenterCrop((height, width))]
    numbers = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    compose: Callable[[Any], Tensor] = v2.Compose([*fitted, *numbers])
    return compose


def image_size(template: Inputs) -> tuple[int, int]:
    """Height and width; RidgelineError for a model that does not learn to label such images."""
    images = template.kwargs.get(IMAGES, template.args[0] if template.args else None)
    targets = template.targets
    if not isinstance(images, Tensor) or images.dim() != 4 or not images.is_floating_point():
        raise _unfit_error("images, and this model takes none")
    if images.shape[1] != CHANNELS:
        raise _unfit_error(f"images of 3 channels, and this model takes {images.shape[1]}")
    if targets is not None and not (
        isinstance(targets, Tensor) and targets.dim() == 1 and not targets.is_floating_point()
    ):
        raise _unfit_error("images with a label each, and this model learns something else")
    return int(images.shape[2]), int(images.shape[3])
