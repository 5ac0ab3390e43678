"""CIFAR-10, synthetic images in its place, and networks of ten classes for it.

CIFAR-10 is 60,000 photographs of 32x32 pixels in ten classes. It is read from the archive as its
authors publish it, or from the folder that the archive unpacks to; nothing is unpacked. The batches
are pickles, which can run code: none is loaded before it has the MD5 sum that torchvision
publishes.

https://www.cs.toronto.edu/~kriz/cifar.html, A. Krizhevsky, 2009
"""

from __future__ import annotations

import hashlib
import pickle
import re
import tarfile
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

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
MD5 = {  # five batches for training, one for testing
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}

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
        if all((path / name).is_file() for name in MD5):
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
    return _images(_read_batches(source))


# ---------------------------------------------------------------- reading


def _read_batches(source: Path) -> dict[str, bytes]:
    """The batches of a folder or an archive by name, each as it was published."""
    try:
        content = _read_archive(source) if source.is_file() else _read_folder(source)
    except (OSError, EOFError, tarfile.TarError) as error:
        raise RidgelineError(
            f"cannot read {source}: {getattr(error, 'strerror', None) or error}",
            hint="make it readable, or put another copy in its place",
        ) from error
    wrong = [name for name, md5 in MD5.items() if _md5(content.get(name, b"")) != md5]
    if wrong:
        raise RidgelineError(
            f"{source} is not what was published: the MD5 sums of {', '.join(wrong)} differ",
            hint=f"put {ARCHIVE} from {URL} in its place",
        )
    return content


def _read_folder(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in MD5}


def _read_archive(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive, "r:gz") as tar:
        files = {Path(member.name).name: tar.extractfile(member) for member in tar}
        return {name: file.read() for name, file in files.items() if file and name in MD5}


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def _images(content: dict[str, bytes]) -> Images:
    batches = [_read_images(content[name]) for name in MD5]
    *train, test = batches
    train_images, train_labels = map(torch.cat, zip(*train, strict=True))
    return Images(
        name="cifar10",
        train_images=train_images,
        train_labels=train_labels,
        test_images=test[0],
        test_labels=test[1],
    )


def _read_images(content: bytes) -> tuple[Tensor, Tensor]:
    """Images and labels of one file: rows of 1024 red, 1024 green and 1024 blue values."""
    batch = pickle.loads(content, encoding="latin1")
    images = torch.from_numpy(batch["data"].copy()).reshape(-1, 3, SIDE, SIDE)
    return images, torch.tensor(batch["labels"], dtype=torch.int64)


# ---------------------------------------------------------------- downloading


def _download(folder: Path, progress: Progress) -> Path:
    """The archive, fetched under a temporary name and renamed when its checksum is right."""
    archive = folder / ARCHIVE
    try:
        with urllib.request.urlopen(URL, timeout=TIMEOUT_S) as response:
            folder.mkdir(parents=True, exist_ok=True)
            total = int(response.headers.get("Content-Length") or 0)
            with whole_file(archive) as file:
                digest = hashlib.md5(usedforsecurity=False)
                while chunk := response.read(CHUNK_BYTES):
                    file.write(chunk)
                    digest.update(chunk)
                    progress(file.tell(), total)
                if digest.hexdigest() != ARCHIVE_MD5:
                    raise _not_there_error(folder, f"{URL} sends another file")
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise _not_there_error(folder, f"the download failed: {reason}") from error
    return archive


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
