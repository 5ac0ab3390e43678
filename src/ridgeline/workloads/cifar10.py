"""CIFAR-10, synthetic images in its place, and networks of ten classes for it.

CIFAR-10 is 60,000 photographs of 32x32 pixels in ten classes. It is read from the archive as its
authors publish it, or from the folder that the archive unpacks to. Both are checked by the MD5
sums that torchvision publishes before anything in them is believed. The batches are pickles, so
only arrays and plain values are let out of them. The archive is read where it is; nothing is
unpacked.

https://www.cs.toronto.edu/~kriz/cifar.html, A. Krizhevsky, 2009
"""

from __future__ import annotations

import hashlib
import io
import pickle
import re
import tarfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from ridgeline.errors import RidgelineError
from ridgeline.records import WorkloadSpec
from ridgeline.store import whole_file
from ridgeline.workloads.sources import is_file, resolve
from ridgeline.workloads.workload import Workload, one_line

URL = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
ARCHIVE = "cifar-10-python.tar.gz"
FOLDER = "cifar-10-batches-py"
ARCHIVE_MD5 = "c58f30108f718f92721af3b95e74349a"
TRAIN_MD5 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
}
TEST_MD5 = {"test_batch": "40351d587109b95175f43aff81a1287e"}

CLASSES = 10
SIDE = 32
MEAN = (0.4914, 0.4822, 0.4465)  # of the training images, by channel, as parts of 255
STD = (0.2470, 0.2435, 0.2616)

TIMEOUT_S = 30
CHUNK_BYTES = 2**20

Progress = Callable[[int, int], object]  # bytes so far, bytes in all; 0 if that is not known


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


def find_cifar10(folder: Path) -> Path | None:
    """The folder of batches or the archive, in `folder` or being it; its content is not checked."""
    for path in (folder, folder / FOLDER):
        if all((path / name).is_file() for name in TRAIN_MD5 | TEST_MD5):
            return path
    if folder.name == ARCHIVE and folder.is_file():
        return folder
    archive = folder / ARCHIVE
    return archive if archive.is_file() else None


def load_cifar10(
    folder: Path, *, download: bool, progress: Progress = lambda done, total: None
) -> Images:
    """All images, checked; downloaded to `folder` first where they are missing and may be."""
    source = find_cifar10(folder)
    if source is None:
        if not download:
            raise _not_there_error(folder, "nothing is downloaded here")
        source = _download(folder, progress)
    read = _read_archive if source.is_file() else _read_folder
    return _images(read(source))


# ---------------------------------------------------------------- reading


def _read_folder(folder: Path) -> dict[str, bytes]:
    """The batches by name, as bytes that are what they should be."""
    content = {}
    for name, md5 in (TRAIN_MD5 | TEST_MD5).items():
        with _readable(folder / name):
            content[name] = (folder / name).read_bytes()
        _check(folder / name, _md5(content[name]).hexdigest(), md5)
    return content


def _read_archive(archive: Path) -> dict[str, bytes]:
    """The batches by name, out of the archive; what else is in it is not looked at."""
    with _readable(archive), archive.open("rb") as file:
        digest = hashlib.file_digest(file, _md5).hexdigest()
    _check(archive, digest, ARCHIVE_MD5)
    members = {f"{FOLDER}/{name}": name for name in TRAIN_MD5 | TEST_MD5}
    content = {}
    with _readable(archive), tarfile.open(archive, "r:gz") as tar:
        for member in tar:
            file_in_tar = tar.extractfile(member) if member.name in members else None
            if file_in_tar is not None:
                content[members[member.name]] = file_in_tar.read()
    return content


def _md5(content: bytes = b"") -> Any:
    return hashlib.md5(content, usedforsecurity=False)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, tarfile.TarError) as error:
        raise RidgelineError(
            f"cannot read {path}: {getattr(error, 'strerror', None) or error}",
            hint="make it readable, or put another copy in its place",
        ) from error


def _check(path: Path, digest: str, expected: str) -> None:
    if digest != expected:
        raise RidgelineError(
            f"{path} is not what was published: its MD5 is {digest}, the original's is {expected}",
            hint=f"put {ARCHIVE} from {URL} in its place",
        )


def _images(content: dict[str, bytes]) -> Images:
    train, test = (
        [torch.cat(parts) for parts in zip(*(_batch(content[name]) for name in names), strict=True)]
        for names in (TRAIN_MD5, TEST_MD5)
    )
    return Images(
        name="cifar10",
        train_images=train[0],
        train_labels=train[1],
        test_images=test[0],
        test_labels=test[1],
    )


def _batch(content: bytes) -> tuple[Tensor, Tensor]:
    """Images and labels of one file: rows of 1024 red, 1024 green and 1024 blue values."""
    batch = _PlainUnpickler(io.BytesIO(content), encoding="latin1").load()
    pixels = np.ascontiguousarray(batch["data"], dtype=np.uint8)
    images = torch.from_numpy(pixels).reshape(-1, 3, SIDE, SIDE)
    return images, torch.tensor(batch["labels"], dtype=torch.int64)


_make_array = np.empty(0).__reduce__()[0]
_ALLOWED = {  # numpy has moved its maker of arrays, and a file names the place of its time
    ("numpy.core.multiarray", "_reconstruct"): _make_array,
    ("numpy._core.multiarray", "_reconstruct"): _make_array,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


class _PlainUnpickler(pickle.Unpickler):
    """Lets arrays and plain values out of a pickle, and nothing that could run."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise RidgelineError(
                f"a batch of CIFAR-10 asks for {module}.{name}, which is no array",
                hint=f"do not use this file; get {ARCHIVE} from {URL}",
            ) from None


# ---------------------------------------------------------------- downloading


def _download(folder: Path, progress: Progress) -> Path:
    """The archive, fetched under a temporary name and renamed when its checksum is right."""
    archive = folder / ARCHIVE
    try:
        with urllib.request.urlopen(URL, timeout=TIMEOUT_S) as response:
            folder.mkdir(parents=True, exist_ok=True)
            total = int(response.headers.get("Content-Length") or 0)
            with whole_file(archive) as file:
                digest = _copy(response, file, total, progress)
                if digest != ARCHIVE_MD5:
                    raise _not_there_error(folder, f"{URL} sends another file: its MD5 is {digest}")
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise _not_there_error(folder, f"the download failed: {reason}") from error
    return archive


def _copy(source: BinaryIO, target: BinaryIO, total: int, progress: Progress) -> str:
    """Copy in pieces; answers the MD5 of all of them."""
    digest, done = _md5(), 0
    while chunk := source.read(CHUNK_BYTES):
        target.write(chunk)
        digest.update(chunk)
        done += len(chunk)
        progress(done, total)
    return str(digest.hexdigest())


def _not_there_error(folder: Path, why: str) -> RidgelineError:
    return RidgelineError(
        f"CIFAR-10 is not in {folder}, and {why}",
        hint=f"get {URL} elsewhere and put it there as {folder / ARCHIVE}; "
        "--data synthetic tries everything without it",
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

SMALL_FORMS = {"resnet18": "resnet18_cifar", "resnet34": "resnet34_cifar"}
"""Made for 32x32 pixels; `train` once took the short names for them."""


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
