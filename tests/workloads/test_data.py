"""Batches from real data, in the form of a workload's own batch."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from ridgeline.errors import RidgelineError
from ridgeline.workloads import Inputs, data
from ridgeline.workloads.cifar10 import Images
from ridgeline.workloads.data import Source, open_data

LABELS = torch.tensor([0, 1])
PICTURES = Inputs(args=(torch.rand(2, 3, 8, 6), "kept"), targets=LABELS)
WORDS = Inputs(args=(torch.zeros(2, 3, dtype=torch.int64),), targets=torch.zeros(2, 3).long())
UNFIT = "use --data synthetic, or data of another kind"


def picture(file: Path, red: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (12, 10), (red, 0, 0)).save(file)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Four images in two classes: cats are black, dogs are red."""
    for name in ("a", "b"):
        picture(tmp_path / "cat" / f"{name}.png", 0)
        picture(tmp_path / "dog" / f"{name}.png", 255)
    return tmp_path


def batches(source: Source, count: int) -> list[Inputs]:
    return list(islice(source.batches, count))


def opened(path: Path, template: Inputs, batch_size: int = 2, **options: Any) -> Source:
    return open_data(path, template, batch_size, **{"augment": False, **options})


def refused(
    path: Path, template: Inputs, batch_size: int = 2, loader: dict[str, Any] | None = None
) -> tuple[str, str]:
    try:  # pytest.raises would keep the loader alive, which then takes seconds to end
        next(opened(path, template, batch_size, loader=loader).batches)
    except RidgelineError as error:
        return error.problem, error.hint
    pytest.fail("nothing was refused")


# ---------------------------------------------------------------- images


def test_images_in_the_form_of_the_template(photos: Path) -> None:
    source = opened(photos, PICTURES)

    assert source.kind == "imagefolder"
    first, second = batches(source, 2)
    for batch in (first, second):
        images, kept = batch.args
        assert isinstance(batch.targets, Tensor)
        assert (images.shape, images.dtype, kept) == ((2, 3, 8, 6), torch.float32, "kept")
        # red of a cat is (0 − 0.485) / 0.229, of a dog (1 − 0.485) / 0.229
        expected = (batch.targets - 0.485) / 0.229
        assert torch.allclose(images[:, 0].mean((1, 2)), expected, atol=1e-4)
        assert torch.allclose(images[:, 1], torch.tensor(-0.456 / 0.224), atol=1e-4)
    both = torch.cat([first.targets, second.targets])  # type: ignore[list-item]
    assert sorted(both.tolist()) == [0, 0, 1, 1]  # every image once


@pytest.mark.parametrize(
    ("size", "first", "last"),
    [
        (64, 0.5, 126.5),  # all of it, two pixels in one
        (112, 8.0, 119.0),  # 112 of 128: eight are cut off at each side
    ],
)
def test_small_images_are_scaled_and_large_ones_cut_out_of_the_middle(
    tmp_path: Path, size: int, first: float, last: float
) -> None:
    values = np.zeros((128, 128, 3), dtype=np.uint8)
    values[:, :, 0] = np.arange(128)  # from left to right redder by one each pixel
    (tmp_path / "x").mkdir()
    Image.fromarray(values).save(tmp_path / "x" / "a.png")
    template = Inputs(args=(torch.zeros(1, 3, size, size),), targets=torch.zeros(1).long())

    (batch,) = batches(opened(tmp_path, template, 1), 1)

    reds = 255 * (batch.args[0][0, 0, 0] * 0.229 + 0.485)
    assert float(reds[0]) == pytest.approx(first, abs=1)
    assert float(reds[-1]) == pytest.approx(last, abs=1)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_broken_image_is_named(photos: Path, workers: int) -> None:
    broken = photos / "cat" / "a.png"
    broken.write_bytes(broken.read_bytes()[:45])  # its pixels begin there

    problem, hint = refused(photos, PICTURES, 4, {"num_workers": workers})

    assert problem.startswith(f"cannot read the image {broken}: ")
    assert hint == "remove it, or put it right"


OTHER = "images with a label each, and this model learns something else"


def images(*shape: int, targets: Tensor | None = None) -> Inputs:
    return Inputs(args=(torch.rand(shape),), targets=targets)


@pytest.mark.parametrize(
    ("template", "what"),
    [
        (WORDS, "images, and this model takes none"),
        (images(2, 3), "images, and this model takes none"),
        (Inputs(), "images, and this model takes none"),
        (images(2, 1, 8, 8), "images of 3 channels, and this model takes 1"),
        (images(2, 3, 8, 8, targets=torch.rand(2)), OTHER),
        (images(2, 3, 8, 8, targets=torch.zeros(2, 8, 8).long()), OTHER),
    ],
)
def test_a_model_that_images_do_not_fit(photos: Path, template: Inputs, what: str) -> None:
    assert refused(photos, template) == (f"this data does not fit: it holds {what}", UNFIT)


# ---------------------------------------------------------------- CIFAR-10


def test_cifar10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bright = torch.full((4, 3, 32, 32), 255, dtype=torch.uint8)
    labels = torch.tensor([3, 1, 4, 1])
    stored = Images(name="cifar10", train_images=bright, train_labels=labels,
                    test_images=bright[:1], test_labels=labels[:1])  # fmt: skip
    asked: list[Any] = []

    def load(path: Path, *, download: bool) -> Images:
        asked.append((path, download))
        return stored

    monkeypatch.setattr(data, "find_cifar10", lambda path: path)
    monkeypatch.setattr(data, "load_cifar10", load)

    source = opened(tmp_path, PICTURES, 4)

    assert source.kind == "cifar10"
    (batch,) = batches(source, 1)
    assert batch.args[0].shape == (4, 3, 8, 6)
    assert torch.allclose(batch.args[0][:, 0], torch.tensor((1 - 0.485) / 0.229))
    assert isinstance(batch.targets, Tensor)
    assert sorted(batch.targets.tolist()) == [1, 1, 3, 4]
    assert asked == [(tmp_path, False)]  # nothing is downloaded


# ---------------------------------------------------------------- what is no data


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "README.md").touch()
    (tmp_path / "code").mkdir()

    assert refused(tmp_path, PICTURES) == (
        f"no data of a known kind in {tmp_path}",
        "known are CIFAR-10 (cifar-10-batches-py/ or cifar-10-python.tar.gz) and a folder of "
        "images per class, perhaps below train/",
    )


def test_a_batch_larger_than_the_data(photos: Path) -> None:
    assert refused(photos, PICTURES, 5) == (
        "a batch of 5 is more than the 4 samples there are",
        "use a smaller --batch-size, or more data",
    )


def head(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.Linear(16, outputs), nn.Softmax(1))


@pytest.mark.parametrize("large", [head(2), nn.ReLU()])
def test_more_classes_than_the_model_tells_apart_are_refused(
    photos: Path, large: nn.Module
) -> None:
    source = opened(photos, PICTURES)
    with pytest.raises(RidgelineError, match="the data has 2 classes, and the model tells 1 apart"):
        source.check_fits(head(1))
    source.check_fits(large)  # just enough, or nothing is known
