"""CIFAR-10 by torchvision, from its archive and its folder: a small one made here."""

import hashlib
import io
import pickle
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision.datasets import CIFAR10

from ridgeline.errors import RidgelineError
from ridgeline.workloads import cifar10
from ridgeline.workloads.cifar10 import (
    ARCHIVE,
    FOLDER,
    Images,
    build_classifier,
    find_cifar10,
    load_cifar10,
    synthetic_images,
)

IMAGES = 3  # in each batch


def batch(number: int) -> bytes:
    """Three images of one red, one green and one blue value."""
    channels = [np.full(1024, 10 * number + channel, dtype=np.uint8) for channel in range(3)]
    labels = [(number + image) % 10 for image in range(IMAGES)]
    return pickle.dumps({"data": np.stack([np.concatenate(channels)] * IMAGES), "labels": labels})


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small CIFAR-10, with the checksums that torchvision expects set to its own."""
    names = [name for name, _ in CIFAR10.train_list + CIFAR10.test_list]
    files = {name: batch(number) for number, name in enumerate(names, start=1)}
    files["batches.meta"] = pickle.dumps({"label_names": list("abcdefghij")})
    sums = [(name, md5(data)) for name, data in files.items()]
    path = tmp_path / ARCHIVE
    with tarfile.open(path, mode="w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(f"{FOLDER}/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    monkeypatch.setattr(CIFAR10, "train_list", sums[:5])
    monkeypatch.setattr(CIFAR10, "test_list", sums[5:6])
    monkeypatch.setattr(CIFAR10, "meta", {**CIFAR10.meta, "md5": sums[6][1]})
    monkeypatch.setattr(CIFAR10, "tgz_md5", md5(path.read_bytes()))
    return path


def check_small_cifar10(images: cifar10.Images) -> None:
    assert images.name == "cifar10"
    assert images.train_images.shape == (5 * IMAGES, 3, 32, 32)
    assert images.train_images.dtype == torch.uint8
    assert images.train_images[:, :, 7, 9].tolist() == [
        [10 * number, 10 * number + 1, 10 * number + 2]
        for number in range(1, 6)
        for _ in range(IMAGES)
    ]
    assert images.train_labels.tolist() == [1, 2, 3, 2, 3, 4, 3, 4, 5, 4, 5, 6, 5, 6, 7]
    assert images.test_images[:, 0, 0, 0].tolist() == [60, 60, 60]
    assert images.test_labels.tolist() == [6, 7, 8]


def test_the_archive_then_the_folder(archive: Path) -> None:
    check_small_cifar10(load_cifar10(archive, download=False))
    archive.unlink()
    check_small_cifar10(load_cifar10(archive.parent, download=False))
    check_small_cifar10(load_cifar10(archive.parent / FOLDER, download=False))


def test_what_is_not_the_published_one_is_not_loaded(archive: Path) -> None:
    archive.write_bytes(archive.read_bytes()[:100])
    with pytest.raises(RidgelineError, match=f"CIFAR-10 cannot be had from {archive.parent}: "):
        load_cifar10(archive.parent, download=False)


def test_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def urlopen(*_: object, **__: object) -> None:
        raise urllib.error.URLError(OSError(101, "Network is unreachable"))

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    with pytest.raises(RidgelineError) as caught:
        load_cifar10(tmp_path / "data", download=True)
    assert find_cifar10(tmp_path / "data") is None
    assert "Network is unreachable" in caught.value.problem
    assert caught.value.hint == (
        f"get {CIFAR10.url} elsewhere and put it there as {tmp_path / 'data' / CIFAR10.filename};"
        " --data synthetic tries everything without it"
    )


def nearest_mean_accuracy(images: Images) -> float:
    """How many test images are nearest to the mean image of their class."""
    train, test = images.train_images.flatten(1).float(), images.test_images.flatten(1).float()
    means = torch.stack([train[images.train_labels == label].mean(0) for label in range(10)])
    nearest = torch.cdist(test, means).argmin(1)
    return (nearest == images.test_labels).float().mean().item()


def test_there_is_something_to_learn_and_it_is_not_all_in_the_mean() -> None:
    assert 0.6 < nearest_mean_accuracy(synthetic_images()) < 0.9


NET = """
from torch import nn

def make():
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10))

def wide():
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 11))
"""


@pytest.fixture
def net(tmp_path: Path) -> str:
    (tmp_path / "net.py").write_text(NET)
    return str(tmp_path / "net.py")


def params(model: str, image_size: int = 32) -> int:
    return sum(p.numel() for p in build_classifier(model, image_size).parameters())


def test_resnet18_is_torchvision_s_with_ten_classes() -> None:
    assert params("resnet18_cifar") == 11_173_962
    # ResNet-18 for ImageNet has 11,689,512 parameters; its head shrinks by 990 rows of 512 + 1
    assert params("resnet18") == params("torchvision:resnet18") == 11_689_512 - 990 * 513


def test_a_file(net: str) -> None:
    assert params(f"{net}:make") == 3 * 32 * 32 * 10 + 10


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        ("alexnet", "alexnet cannot take images of 32x32: RuntimeError"),
        ("fcn_resnet50", "fcn_resnet50 is for segmentation, not for classes"),
        ("resnet19", "unknown model 'resnet19'"),
        ("NET:wide", "answers two images with (2, 11), not with 10 scores for each"),
    ],
)
def test_what_is_refused(net: str, model: str, problem: str) -> None:
    with pytest.raises(RidgelineError) as caught:
        build_classifier(model.replace("NET", net), 32)
    assert problem in caught.value.problem
