"""Our own networks: parameters by hand, shapes, and a training step that needs no values."""

from typing import Any

import pytest
import torch
from tests.workloads.running import error_text, params, run_on_meta, train_on_meta, workload
from torch import Tensor

from ridgeline.workloads.workload import Inputs
from ridgeline.workloads.yolo import Objects, Predictions, Yolo, yolo_loss

LSTM_LAYER = 4 * (650 * 650 + 650 * 650 + 650 + 650)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("resnet18_cifar", 11_173_962),
        ("resnet34_cifar", 21_282_122),
        ("vgg11_cifar", 9_220_480 + 2 * 2_752 + 512 * 10 + 10),
        ("lstm", 10_000 * 650 + 2 * LSTM_LAYER + 650 * 10_000 + 10_000),
    ],
)
def test_parameters_by_hand(name: str, count: int) -> None:
    assert params(name) == count


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("resnet18_cifar", (2, 10)),
        ("vgg11_cifar", (2, 10)),
        ("lstm", (2, 35, 10_000)),
        ("yolo", (2, 80 * 80 + 40 * 40 + 20 * 20, 4 + 80)),
    ],
)
def test_output_shapes(name: str, shape: tuple[int, ...]) -> None:
    output, _ = run_on_meta(workload(name))
    assert tuple(output.shape) == shape


@pytest.mark.parametrize("name", ["resnet34_cifar", "vgg11_cifar", "lstm", "yolo"])
def test_training_needs_no_values(name: str) -> None:
    assert train_on_meta(workload(name, mode="train")).shape == ()


def test_lstm_is_configured() -> None:
    config = {"hidden_size": "8", "embedding_size": "4", "num_layers": "1", "vocab_size": "10"}
    assert params("lstm", config=config) == 10 * 4 + 4 * (8 * 4 + 8 * 8 + 8 + 8) + 8 * 10 + 10
    made = workload("lstm", config=config, seq_len=3, mode="train")
    inputs = made.inputs(2)
    assert inputs.args[0].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert isinstance(inputs.targets, Tensor)
    assert inputs.targets.tolist() == [[1, 2, 0], [4, 5, 3]]
    assert made.describe == {
        "task": "language model",
        "seq_len": 3,
        "vocab_size": 10,
        "embedding_size": 4,
        "hidden_size": 8,
        "num_layers": 1,
        "dropout": 0.5,
    }


@pytest.mark.parametrize(
    ("model", "asked", "text"),
    [
        (
            "lstm",
            {"config": {"hiden_size": "8"}},
            "unknown --config key of lstm 'hiden_size'\n  hint: did you mean hidden_size? "
            "it has vocab_size, embedding_size, hidden_size, num_layers, dropout",
        ),
        (
            "lstm",
            {"config": {"hidden_size": "big"}},
            "--config hidden_size=big is not a whole number\n"
            "  hint: the default is hidden_size=650",
        ),
        (
            "lstm",
            {"input_size": (224,)},
            "lstm has no input size\n  hint: it takes tokens: choose their number with --seq-len",
        ),
        (
            "yolo",
            {"input_size": (100,)},
            "input size 100x100 does not fit yolo\n"
            "  hint: height and width are multiples of 32: 640, or 480x640",
        ),
    ],
)
def test_wrong_wishes(model: str, asked: dict[str, Any], text: str) -> None:
    assert error_text(model, **asked) == text


def test_yolo_learns_one_picture() -> None:
    torch.manual_seed(0)
    network = Yolo(classes=2).train()
    images = torch.rand(2, 3, 64, 64)
    targets = Objects(torch.tensor([[[8.0, 8.0, 40.0, 40.0]]] * 2), torch.tensor([[0], [1]]))
    inputs = Inputs(args=(images,), targets=targets)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    losses = []
    for _ in range(8):
        output = network(images)
        assert isinstance(output, Predictions)
        loss = yolo_loss(output, inputs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
