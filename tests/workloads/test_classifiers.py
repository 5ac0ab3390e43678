"""Classifiers by name: which network a name means, ten classes, and what is refused."""

from pathlib import Path

import pytest
import torch

from ridgeline.errors import RidgelineError
from ridgeline.workloads.classifiers import build_classifier, file_stem

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


def test_resnet18_is_the_form_for_small_images() -> None:
    assert params("resnet18") == params("resnet18_cifar") == 11_173_962


def test_torchvision_gets_ten_classes() -> None:
    # ResNet-18 for ImageNet has 11,689,512 parameters; its head shrinks by 990 rows of 512 + 1
    assert params("torchvision:resnet18") == 11_689_512 - 990 * 513


def test_a_file(net: str) -> None:
    assert params(f"{net}:make") == 3 * 32 * 32 * 10 + 10


def test_building_draws_the_same_numbers_each_time(net: str) -> None:
    states = []
    for _ in range(2):
        torch.manual_seed(5)
        build_classifier(f"{net}:make", 32)
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


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


@pytest.mark.parametrize(
    ("model", "stem"),
    [
        ("resnet18", "resnet18"),
        ("torchvision:resnet18", "torchvision_resnet18"),
        ("nets/net.py:make", "net_make"),
        ("../..", "model"),
    ],
)
def test_names_for_files(model: str, stem: str) -> None:
    assert file_stem(model) == stem
