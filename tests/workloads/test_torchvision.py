"""torchvision's models: the published form, the right sizes, a loss for every task."""

from typing import Any

import pytest
import torch
from tests.workloads.running import error_text, params, run_on_meta, train_on_meta, workload
from torch import Tensor
from torchvision import models

from ridgeline.workloads import Inputs, losses


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("inception_v3", (2, 3, 299, 299)),
        ("efficientnet_b7", (2, 3, 600, 600)),
        ("vit_h_14", (2, 3, 518, 518)),
        ("swin_v2_t", (2, 3, 256, 256)),
        ("fcn_resnet50", (2, 3, 520, 520)),
        ("r3d_18", (2, 3, 16, 112, 112)),
        ("mvit_v2_s", (2, 3, 16, 224, 224)),
    ],
)
def test_default_sizes_are_those_of_the_weights(name: str, shape: tuple[int, ...]) -> None:
    with torch.device("meta"):
        (images,) = workload(name).inputs(2).args
    assert tuple(images.shape) == shape
    assert images.device.type == "meta"


@pytest.mark.parametrize(
    "name", ["resnet50", "googlenet", "inception_v3", "deeplabv3_resnet50", "s3d"]
)
def test_parameters_are_those_that_torchvision_publishes(name: str) -> None:
    assert params(name) == models.get_model_weights(name)["DEFAULT"].meta["num_params"]


@pytest.mark.parametrize(
    ("name", "asked", "shape"),
    [
        ("vit_b_16", (384,), (2, 1000)),  # its constructor has to know
        ("maxvit_t", (448,), (2, 1000)),
        ("resnet18", (3, 64, 96), (2, 1000)),
        ("r3d_18", (8, 64, 64), (2, 400)),
    ],
)
def test_other_sizes(name: str, asked: tuple[int, ...], shape: tuple[int, ...]) -> None:
    output, _ = run_on_meta(workload(name, input_size=asked))
    assert tuple(output.shape) == shape


@pytest.mark.parametrize(
    "name", ["mobilenet_v2", "googlenet", "inception_v3", "fcn_resnet50", "mc3_18", "vit_b_16"]
)
def test_training_gives_one_number(name: str) -> None:
    assert train_on_meta(workload(name, mode="train")).shape == ()


DETECTORS = {
    "maskrcnn_resnet50_fpn": "loss_box_reg loss_classifier loss_mask loss_objectness"
    " loss_rpn_box_reg",
    "keypointrcnn_resnet50_fpn": "loss_box_reg loss_classifier loss_keypoint loss_objectness"
    " loss_rpn_box_reg",
    "fcos_resnet50_fpn": "bbox_ctrness bbox_regression classification",
}


@pytest.mark.parametrize("name", DETECTORS)
def test_detectors_train_on_valid_objects(name: str) -> None:
    made = workload(name, mode="train", input_size=(64,))
    inputs = made.inputs(1)
    output = made.build()(*inputs.args)
    assert sorted(output) == DETECTORS[name].split()
    assert made.loss is not None
    assert torch.isfinite(made.loss(output, inputs))


def test_integers_are_real_wherever_the_model_is() -> None:
    with torch.device("meta"):
        inputs = workload("maskrcnn_resnet50_fpn", mode="train", input_size=(10, 10)).inputs(1)
    ((images, targets), found) = inputs.args, inputs.args[1][0]
    assert targets is inputs.targets
    assert (images[0].device.type, found["boxes"].device.type) == ("meta", "meta")
    assert found["labels"].tolist() == [1, 2, 3]
    assert found["masks"].sum((1, 2)).tolist() == [12, 36, 8]  # 3x4, 6x6, 2x4 pixels


@pytest.mark.parametrize(
    ("name", "asked", "text"),
    [
        ("vit_b_16", {"input_size": (224, 256)}, "it takes square images whose side is a multiple"),
        ("mvit_v1_b", {"input_size": (128,)}, "builds it for clips of 16x224x224 only"),
        ("vit_b_16", {"input_size": (225,), "build": True}, "Input shape indivisible by patch"),
    ],
)
def test_sizes_that_do_not_fit(name: str, asked: dict[str, Any], text: str) -> None:
    assert text in error_text(name, **asked)


def even(*classes: int) -> Tensor:
    """Scores that favour none of the classes: their cross entropy is log(classes)."""
    return torch.zeros(classes)


def test_auxiliary_heads_are_weighted() -> None:
    inputs = Inputs(targets=torch.tensor([0]))
    one = torch.log(torch.tensor(4.0)).item()
    plain = losses.classify(even(1, 4), inputs)
    inception = losses.classify((even(1, 4), even(1, 4)), inputs)
    googlenet = losses.classify((even(1, 4), even(1, 4), even(1, 4)), inputs)
    assert [plain.item(), inception.item(), googlenet.item()] == pytest.approx(
        [one, 1.4 * one, 1.6 * one]
    )


def test_segmentation_counts_half_of_its_second_head() -> None:
    inputs = Inputs(targets=torch.zeros(1, 2, 2, dtype=torch.long))
    output = {"out": even(1, 4, 2, 2), "aux": even(1, 4, 2, 2)}
    one = torch.log(torch.tensor(4.0)).item()
    assert losses.segment(output, inputs).item() == pytest.approx(1.5 * one)
    assert losses.segment({"out": output["out"]}, inputs).item() == pytest.approx(one)
