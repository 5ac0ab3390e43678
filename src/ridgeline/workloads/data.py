"""Batches from real data: a folder of images, CIFAR-10, or tokens.

A batch from here has the shape of the workload's own made-up batch, so that the same step takes
both. What a path holds is found out by looking: CIFAR-10's files, then folders of images (one per
class, perhaps below `train/`), then files of tokens (`*.bin` of 16-bit numbers, `*.npy`, `*.txt`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, default_collate

from ridgeline.errors import RidgelineError
from ridgeline.workloads.cifar10 import find_cifar10, load_cifar10, refuse_half_a_folder
from ridgeline.workloads.inputs import CHANNELS
from ridgeline.workloads.workload import Inputs, one_line

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, as torchvision's recipes
CROP_SHARE = 0.875  # of a centre crop: 224 of 256
IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
KINDS = (
    "CIFAR-10 (cifar-10-batches-py/ or cifar-10-python.tar.gz), a folder of images per class, "
    "perhaps below train/, or tokens (*.bin of uint16, *.npy, *.txt)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """How batches are fetched."""

    batch_size: int
    workers: int = 0
    pin_memory: bool = False
    prefetch_factor: int | None = None
    augment: bool = True
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Data that was found: its kind, how many samples it has, and a loader of endless batches."""

    kind: str
    samples: int
    ids: int  # how many classes or tokens a model has to tell apart
    batches: Iterator[Inputs]

    def check_fits(self, module: nn.Module) -> None:
        """Refuse classes or tokens that a model has no place for: a GPU would just stop."""
        has = _vocabulary(module) if self.kind == "tokens" else _classes(module)
        if has is not None and self.ids > has:
            what = "tokens" if self.kind == "tokens" else "classes"
            raise RidgelineError(
                f"the data has {self.ids} {what}, and the model tells {has} apart",
                hint=f"use a model for {self.ids} {what}, or data that has fewer",
            )


def _vocabulary(module: nn.Module) -> int | None:
    """The size of the largest embedding: that of the tokens."""
    sizes = [part.num_embeddings for part in module.modules() if isinstance(part, nn.Embedding)]
    return max(sizes, default=None)


def _classes(module: nn.Module) -> int | None:
    """The outputs of the last layer that has any: that of a classifier's head."""
    names = ("out_features", "out_channels")
    sizes = [getattr(part, name, None) for part in module.modules() for name in names]
    return next((size for size in reversed(sizes) if isinstance(size, int)), None)


def open_data(path: Path, template: Inputs, loading: Loading) -> Source:
    """Batches from `path` in the form of `template`, the workload's own batch."""
    if not path.exists():
        raise RidgelineError(
            f"there is no data at {path}", hint="name a folder, or use --data synthetic"
        )
    if find_cifar10(path) is not None:
        return _images("cifar10", _cifar(path, template, loading), template, loading)
    if (folder := find_image_folder(path)) is not None:
        return _images("imagefolder", _folder(folder, template, loading), template, loading)
    if files := find_tokens(path):
        return _tokens(files, template, loading)
    if path.is_dir():
        refuse_half_a_folder(path)
    raise RidgelineError(f"no data of a known kind in {path}", hint=f"known are {KINDS}")


def find_image_folder(path: Path) -> Path | None:
    """The folder whose folders are classes: this one, or `train/` in it."""
    for folder in (path / "train", path):
        if folder.is_dir() and any(_has_image(child) for child in folder.iterdir()):
            return folder
    return None


def _has_image(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    return any(file.suffix.lower() in IMAGE_ENDINGS for file in folder.iterdir())


# ---------------------------------------------------------------- images


def _cifar(path: Path, template: Inputs, loading: Loading) -> Dataset[Any]:
    images = load_cifar10(path, download=False)
    return Labelled(
        images.train_images, images.train_labels, _transform(image_size(template), loading.augment)
    )


def _folder(path: Path, template: Inputs, loading: Loading) -> Dataset[Any]:
    from torchvision.datasets import ImageFolder

    transform = _transform(image_size(template), loading.augment)
    try:
        return _Opened(ImageFolder(str(path)), transform)
    except OSError as error:  # a folder without images, or one that may not be read
        raise RidgelineError(
            f"cannot use the images in {path}: {one_line(error)}",
            hint="every folder in it is a class and has images; remove those that have none",
        ) from error


class Labelled(Dataset[Any]):
    """Images that are in memory, as bytes, and their labels."""

    def __init__(
        self, images: Tensor, labels: Tensor, transform: Callable[[Tensor], Tensor]
    ) -> None:
        self.images, self.labels, self.transform = images, labels, transform
        self.ids = int(labels.max()) + 1

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(self.images[index]), int(self.labels[index])


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Comes in place of a sample: of an error in another process only the text would come back."""

    problem: str


class _Opened(Dataset[Any]):
    """Image files; one that cannot be read is named."""

    def __init__(self, folder: Any, transform: Callable[[Any], Tensor]) -> None:
        self.folder, self.transform = folder, transform
        self.ids = len(folder.classes)

    def __len__(self) -> int:
        return len(self.folder)

    def __getitem__(self, index: int) -> tuple[Tensor, int] | Unreadable:
        try:
            image, label = self.folder[index]
            return self.transform(image), label
        except (OSError, ValueError, SyntaxError) as error:
            return Unreadable(f"cannot read the image {self.folder.samples[index][0]}: {error}")


def _transform(size: tuple[int, int], augment: bool) -> Callable[[Any], Tensor]:
    """What torchvision's recipes do: random crop and flip for training, else the middle."""
    from torchvision.transforms import v2

    height, width = size
    if augment:
        fitted = [v2.RandomResizedCrop(size, antialias=True), v2.RandomHorizontalFlip()]
    else:
        side = round(min(size) / CROP_SHARE) if min(size) > 64 else size
        fitted = [v2.Resize(side, antialias=True), v2.CenterCrop((height, width))]
    numbers = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    compose: Callable[[Any], Tensor] = v2.Compose([*fitted, *numbers])
    return compose


def image_size(template: Inputs) -> tuple[int, int]:
    height, width = image_of(template).shape[-2:]
    return int(height), int(width)


def image_of(template: Inputs) -> Tensor:
    """The batch of images in the template; RidgelineError for a model that takes no images."""
    for value in (*template.args[:1], template.kwargs.get("pixel_values")):
        if isinstance(value, Tensor) and value.dim() == 4 and value.is_floating_point():
            if value.shape[1] != CHANNELS:
                raise _unfit_error(f"images of 3 channels, and this model takes {value.shape[1]}")
            return value
    raise _unfit_error("images, and this model takes none")


def with_images(template: Inputs, images: Tensor, labels: Tensor) -> Inputs:
    """The template with other images and labels."""
    targets = labels if template.targets is not None else None
    if "pixel_values" in template.kwargs:
        kwargs = {**template.kwargs, "pixel_values": images}
        if "labels" in kwargs:
            kwargs["labels"] = labels
        return replace(template, kwargs=kwargs, targets=targets)
    return replace(template, args=(images, *template.args[1:]), targets=targets)


def _images(kind: str, dataset: Dataset[Any], template: Inputs, loading: Loading) -> Source:
    image_of(template)
    _check_labels(template)
    return _source(kind, dataset, loading, lambda pair: with_images(template, *pair))


def _check_labels(template: Inputs) -> None:
    """Labelled images train a classifier: one whole number per image."""
    targets = template.targets
    if targets is None:
        return
    if not isinstance(targets, Tensor) or targets.dim() != 1 or targets.is_floating_point():
        raise _unfit_error("images with a label each, and this model learns something else")


# ---------------------------------------------------------------- tokens


def _tokens(files: list[Path], template: Inputs, loading: Loading) -> Source:
    ids = template.kwargs.get("input_ids", template.args[0] if template.args else None)
    if not isinstance(ids, Tensor) or ids.is_floating_point() or ids.dim() != 2:
        raise _unfit_error("tokens, and this model takes none")
    targets = template.targets
    if targets is not None and not (isinstance(targets, Tensor) and targets.shape == ids.shape):
        raise _unfit_error("tokens, each with the next, and this model learns something else")
    length = int(ids.shape[1])
    windows = TokenWindows(files, length)
    return _source("tokens", windows, loading, lambda pair: with_tokens(template, *pair))


def with_tokens(template: Inputs, ids: Tensor, following: Tensor) -> Inputs:
    """The template with other tokens. Hugging Face's models shift the labels themselves."""
    if "input_ids" in template.kwargs:
        kwargs = {**template.kwargs, "input_ids": ids}
        if "labels" in kwargs:
            kwargs["labels"] = ids
        return replace(template, kwargs=kwargs, targets=kwargs.get("labels"))
    targets = following if template.targets is not None else None
    return replace(template, args=(ids, *template.args[1:]), targets=targets)


# ---------------------------------------------------------------- loading


def _source(
    kind: str, dataset: Any, loading: Loading, to_inputs: Callable[[Any], Inputs]
) -> Source:
    """`dataset` says with `ids` how many classes or tokens it has."""
    if not len(dataset):
        raise RidgelineError(
            "the data are shorter than one sample",
            hint="of text, take a smaller --seq-len or more of it",
        )
    if len(dataset) < loading.batch_size:
        raise RidgelineError(
            f"a batch of {loading.batch_size} is more than the {len(dataset)} samples there are",
            hint="use a smaller --batch-size, or more data",
        )
    loader = DataLoader(
        dataset,
        batch_size=loading.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=loading.workers,
        pin_memory=loading.pin_memory,
        prefetch_factor=loading.prefetch_factor,
        persistent_workers=loading.workers > 0,
        collate_fn=_collate,
        generator=torch.Generator().manual_seed(loading.seed),
    )
    return Source(
        kind=kind,
        samples=len(dataset),
        ids=dataset.ids,
        batches=map(to_inputs, _repeat_for_ever(loader)),
    )


def _collate(samples: list[Any]) -> Any:
    broken = next((one for one in samples if isinstance(one, Unreadable)), None)
    return broken or default_collate(samples)


def _repeat_for_ever(loader: DataLoader[Any]) -> Iterator[Any]:
    while True:
        for batch in loader:
            if isinstance(batch, Unreadable):
                raise RidgelineError(batch.problem, hint="remove it, or put it right")
            yield batch


def _unfit_error(problem: str) -> RidgelineError:
    return RidgelineError(
        f"this data does not fit: it holds {problem}",
        hint="use --data synthetic, or data of another kind",
    )


# ---------------------------------------------------------------- files of tokens
# `*.bin` holds 16-bit numbers without a header, as nanoGPT's preparation writes them; `*.npy` an
# array of whole numbers; of `*.txt` every byte is a token.

ENDINGS = (".bin", ".npy", ".txt")
LOOKED_AT = 10_000_000  # tokens of a file, to learn how many kinds there are: enough, and quick


def find_tokens(path: Path) -> list[Path]:
    """The files of tokens at a path: itself, or all of one kind in a folder."""
    if path.is_file():
        return [path] if path.suffix in ENDINGS else []
    for ending in ENDINGS:
        if files := sorted(path.glob(f"*{ending}")):
            return files
    return []


def read_tokens(file: Path) -> Any:
    """The tokens of a file as an array, mapped rather than read where that is possible."""
    try:
        if file.suffix == ".npy":
            tokens = np.load(file, mmap_mode="r", allow_pickle=False)
        else:
            kind = np.uint16 if file.suffix == ".bin" else np.uint8
            tokens = np.memmap(file, dtype=kind, mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise RidgelineError(
            f"cannot read tokens from {file}: {error}",
            hint="a .bin file holds 16-bit numbers, a .npy file an array of whole numbers",
        ) from error
    if tokens.ndim != 1 or not np.issubdtype(tokens.dtype, np.integer):
        raise RidgelineError(
            f"{file} does not hold a row of tokens but {tokens.dtype} of shape {tokens.shape}",
            hint="save them as a one-dimensional array of whole numbers",
        )
    return tokens


class TokenWindows(Dataset[tuple[Tensor, Tensor]]):
    """Stretches of `length` tokens, one after another, and the same moved on by one."""

    def __init__(self, files: list[Path], length: int) -> None:
        self.length = length
        self.parts = [read_tokens(file) for file in files]
        self.counts = [max(0, (len(part) - 1) // length) for part in self.parts]
        looked_at = [part[:LOOKED_AT] for part in self.parts if len(part)]
        self.ids = max((int(part.max()) + 1 for part in looked_at), default=0)

    def __len__(self) -> int:
        return sum(self.counts)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        for part, count in zip(self.parts, self.counts, strict=True):
            if index < count:
                start = index * self.length
                taken = torch.from_numpy(part[start : start + self.length + 1].astype(np.int64))
                return taken[:-1], taken[1:]
            index -= count
        raise IndexError(index)
