"""Batches from real data, in the form of a workload's own batch."""

from __future__ import annotations

import io
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


# ---------------------------------------------------------------- tokens


@pytest.fixture
def words(tmp_path: Path) -> Path:
    np.arange(13, dtype=np.uint16).tofile(tmp_path / "train.bin")  # four windows of three
    return tmp_path


def test_tokens_and_what_follows(words: Path) -> None:
    source = opened(words, WORDS)

    assert source.kind == "tokens"
    first, second = batches(source, 2)
    ids = torch.cat([first.args[0], second.args[0]])
    assert sorted(ids.tolist()) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
    assert torch.equal(first.targets, first.args[0] + 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("template", "what"),
    [
        (PICTURES, "tokens, and this model takes none"),
        (Inputs(), "tokens, and this model takes none"),
        (Inputs(args=(torch.rand(2, 3),)), "tokens, and this model takes none"),
        (
            Inputs(kwargs={"input_ids": WORDS.args[0], "labels": LABELS}, targets=LABELS),
            "tokens, each with the next, and this model learns something else",
        ),
    ],
)
def test_a_model_that_tokens_do_not_fit(words: Path, template: Inputs, what: str) -> None:
    assert refused(words, template) == (f"this data does not fit: it holds {what}", UNFIT)


# ---------------------------------------------------------------- what is no data


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "README.md").touch()
    (tmp_path / "code").mkdir()

    assert refused(tmp_path, PICTURES) == (
        f"no data of a known kind in {tmp_path}",
        "known are CIFAR-10 (cifar-10-batches-py/ or cifar-10-python.tar.gz), a folder of images "
        "per class, perhaps below train/, or tokens (*.bin of uint16, *.npy, *.txt)",
    )


def test_a_batch_larger_than_the_data(photos: Path) -> None:
    assert refused(photos, PICTURES, 5) == (
        "a batch of 5 is more than the 4 samples there are",
        "use a smaller --batch-size (of text, a smaller --seq-len), or more data",
    )


def head(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.Linear(16, outputs), nn.Softmax(1))


@pytest.mark.parametrize(
    ("name", "template", "small", "large", "what"),
    [
        ("dog", PICTURES, head(1), head(2), "2 classes, and the model tells 1 apart"),
        ("dog", PICTURES, head(1), nn.ReLU(), "2 classes, and the model tells 1 apart"),
        ("", WORDS, nn.Embedding(200, 8), nn.Embedding(201, 8),
         "201 tokens, and the model tells 200 apart"),
    ],
)  # fmt: skip
def test_more_than_the_model_tells_apart_is_refused(
    photos: Path, name: str, template: Inputs, small: nn.Module, large: nn.Module, what: str
) -> None:
    text = photos / "a.txt"
    text.write_bytes(bytes([1, 2, 200] * 10))
    source = opened(photos if name else text, template)
    with pytest.raises(RidgelineError, match=f"the data has {what}"):
        source.check_fits(small)
    source.check_fits(large)  # just enough, or nothing is known


def saved(file: Path, tokens: list[int]) -> Path:
    """The tokens in the form that the file's ending stands for."""
    if file.suffix == ".bin":
        np.array(tokens, dtype="<u2").tofile(file)
    elif file.suffix == ".npy":
        np.save(file, np.array(tokens))
    else:
        file.write_bytes(bytes(tokens))
    return file


@pytest.mark.parametrize("ending", [".bin", ".npy", ".txt"])
def test_windows_follow_one_another_file_by_file(tmp_path: Path, ending: str) -> None:
    saved(tmp_path / f"1{ending}", [0, 1, 2, 3, 4, 5, 6])  # two windows of three, and the next
    saved(tmp_path / f"2{ending}", [10, 11, 12])  # too short: there is no token that follows
    saved(tmp_path / f"3{ending}", [20, 21, 22, 23, 24])

    (batch,) = batches(opened(tmp_path, WORDS, 3), 1)

    assert isinstance(batch.targets, Tensor)
    found = zip(batch.args[0].tolist(), batch.targets.tolist(), strict=True)
    assert sorted(found) == [
        ([0, 1, 2], [1, 2, 3]), ([3, 4, 5], [4, 5, 6]), ([20, 21, 22], [21, 22, 23])
    ]  # fmt: skip


def stored(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("half.bin", b"abc"),  # one and a half tokens
        ("empty.bin", b""),
        ("empty.txt", b""),
        ("empty.npy", b""),
        ("other.npy", b"not an array"),
        ("table.npy", stored(np.zeros((2, 3), dtype=np.int64))),
        ("floats.npy", stored(np.zeros(4))),
        ("objects.npy", stored(np.array([{"a": 1}], dtype=object))),  # is not unpickled
    ],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, name: str, content: bytes) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    problem, hint = refused(file, WORDS)
    assert problem.startswith(f"cannot read tokens from {file}: ")
    assert hint == "a .bin file holds 16-bit numbers, a .npy file a row of whole numbers"
