"""The estimate of a training step: gradients of products exactly, the others by rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from onnx import helper
from tests.count.onnx.models import count, model, weight, x
from torch import nn

import ridgeline
from ridgeline.count.onnx.optimizers import OPTIMIZERS
from ridgeline.count.onnx.training import NOTE
from ridgeline.count.per_element import RMS_NORM_BACKWARD
from ridgeline.errors import RidgelineError
from ridgeline.records import Cost

F = 4


def two_layers() -> Any:
    """relu(a·w1 + b1)·w2"""
    nodes = [
        helper.make_node("Gemm", ["a", "w1", "b1"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "w2"], ["y"], name="second"),
    ]
    stored = {"w1": weight(3, 4), "b1": weight(4), "w2": weight(4, 5)}
    return model(nodes, {"a": x(2, 3)}, ["y"], stored=stored)


def test_gradients_of_two_layers(tmp_path: Path) -> None:
    result = count(two_layers(), tmp_path, mode="train")

    rows = [(op.path, op.phase, op.cost) for op in result.op_costs if op.phase != "forward"]
    assert rows == [
        ("second", "input-grad",
         Cost(macs=2 * 4 * 5, read_bytes=(10 + 20) * F, written_bytes=8 * F)),
        ("second", "weight-grad",
         Cost(macs=2 * 4 * 5, read_bytes=(10 + 8) * F, written_bytes=20 * F)),
        ("relu", "input-grad", Cost(other_flops=8, read_bytes=16 * F, written_bytes=8 * F)),
        # nobody needs the gradient of the input
        ("first", "weight-grad", Cost(macs=2 * 3 * 4, other_flops=8, read_bytes=(8 + 6) * F,
                                      written_bytes=(12 + 4) * F)),
        ("first", "optimizer", Cost(other_flops=24, read_bytes=24 * F, written_bytes=12 * F)),
        ("first", "optimizer", Cost(other_flops=8, read_bytes=8 * F, written_bytes=4 * F)),
        ("second", "optimizer", Cost(other_flops=40, read_bytes=40 * F, written_bytes=20 * F)),
    ]  # fmt: skip
    assert NOTE in result.notes
    assert result.memory.gradient_bytes == (12 + 4 + 20) * F


@pytest.mark.parametrize("op", ["RMSNormalization", "SimplifiedLayerNormalization"])
def test_one_norm_under_two_names(op: str, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["a", "w"], ["h"], name="product"),
        helper.make_node(op, ["h", "g"], ["y"], name="norm"),
    ]
    stored = {"w": weight(3, 4), "g": weight(4)}
    proto = model(nodes, {"a": x(2, 3)}, ["y"], stored=stored, opset=23)
    result = count(proto, tmp_path, mode="train")
    # 7 FLOPs an element: 6 and one more for the weight
    [cost] = [op.cost for op in result.op_costs if (op.path, op.phase) == ("norm", "input-grad")]
    assert cost.other_flops == (RMS_NORM_BACKWARD[0] + 1) * 8


def test_gradients_of_a_residual_are_added(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["a", "w"], ["h"], name="product"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("Add", ["h", "r"], ["y"], name="sum"),
    ]
    proto = model(nodes, {"a": x(2, 3)}, ["y"], stored={"w": weight(3, 4)})

    result = count(proto, tmp_path, mode="train")

    backward = [(op.path, op.phase, op.cost.flops) for op in result.op_costs if "grad" in op.phase]
    assert backward == [
        ("relu", "input-grad", 8),
        ("product", "input-grad", 8),  # h has two gradients
        ("product", "weight-grad", 2 * 2 * 3 * 4),
    ]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_as_pytorch_runs_them(name: str, tmp_path: Path) -> None:
    # GIVEN the same layer as a module and as a file
    layer = nn.Linear(30, 40, bias=False)
    proto = model([helper.make_node("MatMul", ["a", "w"], ["y"])], {"a": x(2, 30)}, ["y"],
                  stored={"w": weight(30, 40)})  # fmt: skip

    theirs = ridgeline.count(layer, torch.empty(2, 30), mode="train", optimizer=name)
    ours = count(proto, tmp_path, mode="train", optimizer=name)

    steps = 16  # a step counter and what is done to it: a few FLOPs and bytes
    expected, found = theirs.phase("optimizer"), ours.phase("optimizer")
    assert 0 <= expected.flops - found.flops <= steps
    assert expected.transcendentals == found.transcendentals
    assert 0 <= expected.moved_bytes - found.moved_bytes <= 8 * steps
    assert 0 <= theirs.memory.optimizer_bytes - ours.memory.optimizer_bytes <= steps


def test_an_optimizer_without_a_rule(tmp_path: Path) -> None:
    with pytest.raises(RidgelineError, match="adafactor cannot be counted for an ONNX file"):
        count(two_layers(), tmp_path, mode="train", optimizer="adafactor")


def test_an_optimizer_without_a_rule_in_a_file_without_weights(tmp_path: Path) -> None:
    proto = model([helper.make_node("Relu", ["a"], ["y"])], {"a": x(2)}, ["y"])
    with pytest.raises(RidgelineError, match="sdg cannot be counted for an ONNX file"):
        count(proto, tmp_path, mode="train", optimizer="sdg")


class Small(nn.Module):
    """Convolutions, one of them grouped, attention's products and linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(3, 8, 3, padding=1)
        self.two = nn.Conv2d(8, 8, 3, groups=4, stride=2)
        self.lin = nn.Linear(8, 16)
        self.out = nn.Linear(16, 4)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        maps = self.two(torch.relu(self.one(image))).flatten(2).transpose(1, 2)
        keys = self.lin(maps)
        seen = torch.softmax(keys @ keys.transpose(1, 2), -1) @ keys
        answer: torch.Tensor = self.out(seen.mean(1))
        return answer


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_the_same_network_through_both(mode: str, tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    module = Small().eval()
    torch.onnx.export(module, (torch.randn(2, 3, 9, 9),), str(path), dynamo=False,
                      input_names=["x"], dynamic_axes={"x": {0: "batch"}})  # fmt: skip

    theirs = ridgeline.count(module, torch.empty(5, 3, 9, 9), mode=mode)
    ours = ridgeline.count(str(path), batch_size=5, mode=mode)

    phases = {name: cost.macs for name, cost in theirs.phases.items()}
    assert {name: cost.macs for name, cost in ours.phases.items()} == phases
    assert ours.params == theirs.params
