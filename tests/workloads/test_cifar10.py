"""CIFAR-10 from its archive and its folder: a small one made here."""

import hashlib
import io
import pickle
import tarfile
import urllib.error
import urllib.request
from email.message import Message
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ridgeline.errors import RidgelineError
from ridgeline.workloads import cifar10
from ridgeline.workloads.cifar10 import (
    ARCHIVE,
    FOLDER,
    Images,
    build_classifier,
    load_cifar10,
    synthetic_images,
)

IMAGES = 3  # in each batch


def batch(number: int) -> bytes:
    """Three images of one red, one green and one blue value."""
    channels = [np.full(1024, 10 * number + channel, dtype=np.uint8) for channel in range(3)]
    row = np.concatenate(channels)
    labels = [(number + image) % 10 for image in range(IMAGES)]
    stored = pickle.dumps({"data": np.stack([row] * IMAGES), "labels": labels}, protocol=2)
    return stored.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")  # as of 2009


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


@pytest.fixture
def content(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The files of a small CIFAR-10, with the checksums that the module expects set to theirs."""
    files = {name: batch(number) for number, name in enumerate(cifar10.MD5, start=1)}
    monkeypatch.setattr(cifar10, "MD5", {name: md5(data) for name, data in files.items()})
    return files


def packed(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in {**files, "readme.html": b"not for us"}.items():
            member = tarfile.TarInfo(f"{FOLDER}/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


@pytest.fixture
def archive(tmp_path: Path, content: dict[str, bytes]) -> Path:
    path = tmp_path / ARCHIVE
    path.write_bytes(packed(content))
    return path


@pytest.fixture
def folder(tmp_path: Path, content: dict[str, bytes]) -> Path:
    path = tmp_path / FOLDER
    path.mkdir()
    for name, data in content.items():
        (path / name).write_bytes(data)
    return path


def complaint(path: Path, **options: Any) -> str:
    with pytest.raises(RidgelineError) as caught:
        load_cifar10(path, **{"download": False, **options})
    return str(caught.value)


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


@pytest.mark.parametrize("inside", [False, True])
def test_the_archive(archive: Path, inside: bool) -> None:
    before = sorted(archive.parent.parent.rglob("*"))
    check_small_cifar10(load_cifar10(archive if inside else archive.parent, download=False))
    assert sorted(archive.parent.parent.rglob("*")) == before  # nothing was unpacked anywhere


@pytest.mark.parametrize("inside", [False, True])
def test_the_folder(folder: Path, inside: bool) -> None:
    check_small_cifar10(load_cifar10(folder if inside else folder.parent, download=False))


def test_another_archive_is_not_taken_for_it(archive: Path) -> None:
    other = archive.rename(archive.with_name("other.tar.gz"))
    assert "and nothing is downloaded here" in complaint(other)


def test_a_damaged_archive(archive: Path) -> None:
    archive.write_bytes(archive.read_bytes()[:100])
    assert complaint(archive.parent).startswith(f"cannot read {archive}: ")


def test_a_batch_that_is_not_the_published_one_is_not_loaded(folder: Path) -> None:
    (folder / "data_batch_3").write_bytes(b"else")
    assert complaint(folder) == (
        f"{folder} is not what was published: the MD5 sums of data_batch_3 differ\n"
        f"  hint: put {ARCHIVE} from {cifar10.URL} in its place"
    )


def test_missing_and_not_to_be_downloaded(tmp_path: Path) -> None:
    assert complaint(tmp_path / "data") == (
        f"CIFAR-10 is not in {tmp_path / 'data'}, and nothing is downloaded here\n"
        f"  hint: get {cifar10.URL} elsewhere and put it there as {tmp_path / 'data' / ARCHIVE};"
        " --data synthetic tries everything without it"
    )


# ---------------------------------------------------------------- downloading


class Answer(io.BytesIO):
    """What urlopen answers."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.headers = Message()
        self.headers["Content-Length"] = str(len(content))


def test_download(
    tmp_path: Path, content: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a server that has the archive
    data = packed(content)
    asked: list[tuple[str, float]] = []

    def urlopen(url: str, timeout: float) -> Answer:
        asked.append((url, timeout))
        return Answer(data)

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    monkeypatch.setattr(cifar10, "ARCHIVE_MD5", md5(data))
    told: list[tuple[int, int]] = []
    # when it is asked for
    images = load_cifar10(
        tmp_path / "new", download=True, progress=lambda done, total: told.append((done, total))
    )
    # then it is there, whole, and the second time nothing is downloaded
    check_small_cifar10(images)
    check_small_cifar10(load_cifar10(tmp_path / "new", download=True))
    assert [path.name for path in (tmp_path / "new").iterdir()] == [ARCHIVE]
    assert asked == [("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz", 30)]
    assert told == [(len(data), len(data))]


def test_another_file_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = b"<html>please log in</html>"
    monkeypatch.setattr(urllib.request, "urlopen", lambda url, timeout: Answer(page))
    assert "sends another file" in complaint(tmp_path, download=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (urllib.error.URLError(OSError(101, "Network is unreachable")), "Network is unreachable"),
        (TimeoutError("timed out"), "timed out"),
        (urllib.error.HTTPError("u", 403, "Forbidden", Message(), None), "Forbidden"),
    ],
)
def test_no_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, reason: str
) -> None:
    def urlopen(url: str, timeout: float) -> Answer:
        raise error

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    said = complaint(tmp_path / "data", download=True)
    assert f"CIFAR-10 is not in {tmp_path / 'data'}, and the download failed: " in said
    assert reason in said
    assert f"get {cifar10.URL} elsewhere and put it there as {tmp_path / 'data' / ARCHIVE}" in said
    assert list(tmp_path.iterdir()) == []


def test_the_checksums_are_those_of_torchvision() -> None:
    datasets = pytest.importorskip("torchvision.datasets")
    theirs = datasets.CIFAR10
    assert theirs.url == cifar10.URL
    assert (theirs.filename, theirs.tgz_md5) == (ARCHIVE, cifar10.ARCHIVE_MD5)
    assert theirs.base_folder == FOLDER
    assert [tuple(pair) for pair in theirs.train_list + theirs.test_list] == [*cifar10.MD5.items()]


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
