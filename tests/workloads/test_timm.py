"""timm's models: sizes from their configuration, --input-size passed on where it can be."""

import pytest
import torch
from tests.workloads.running import error_text, run_on_meta, train_on_meta, workload

from ridgeline.workloads import Inputs, from_timm


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("resnet18", (224, 224)),
        ("efficientnet_b3", (288, 288)),
        ("vit_tiny_patch16_224", (224, 224)),
        ("swin_base_patch4_window12_384", (384, 384)),
    ],
)
def test_default_sizes(name: str, size: tuple[int, int]) -> None:
    made = workload(f"timm:{name}")
    assert made.describe == {"task": "classification", "input_size": size}
    assert tuple(made.inputs(1).args[0].shape) == (1, 3, *size)


@pytest.mark.parametrize("name", ["resnet18", "vit_tiny_patch16_224"])  # without and with img_size
def test_other_sizes(name: str) -> None:
    output, _ = run_on_meta(workload(f"timm:{name}", input_size=(96, 160)))
    assert tuple(output.shape) == (2, 1000)


@pytest.mark.parametrize("name", ["mobilenetv3_small_050", "vit_small_patch14_dinov2"])
def test_training_gives_one_number(name: str) -> None:
    assert train_on_meta(workload(f"timm:{name}", mode="train", input_size=(56,))).shape == ()


def test_two_heads_count_alike() -> None:
    scores = torch.zeros(1, 4)
    inputs = Inputs(targets=torch.tensor([0]))
    assert from_timm.loss((scores, scores), inputs) == from_timm.loss(scores, inputs)


def test_unknown() -> None:
    assert error_text("timm:resnet5000") == (
        "unknown timm model 'resnet5000'\n  hint: did you mean resnet50, resnet50t or resnet50s? "
        "`ridgeline count --list PATTERN` lists the models"
    )
