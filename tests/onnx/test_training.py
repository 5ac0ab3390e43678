"""The estimate of a training step: gradients of products exactly, the others by rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import helper
from tests.onnx.models import count, int64, model, weight, x
from torch import nn

import ridgeline
from ridgeline.count.result import CountResult
from ridgeline.onnx.training import NOTE, OPTIMIZERS
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
        ("first", "weight-grad",
         Cost(macs=2 * 3 * 4, read_bytes=(8 + 6) * F, written_bytes=12 * F)),
        ("first", "weight-grad", Cost(other_flops=8, written_bytes=4 * F)),  # of the bias
        ("first", "optimizer", Cost(other_flops=24, read_bytes=24 * F, written_bytes=12 * F)),
        ("first", "optimizer", Cost(other_flops=8, read_bytes=8 * F, written_bytes=4 * F)),
        ("second", "optimizer", Cost(other_flops=40, read_bytes=40 * F, written_bytes=20 * F)),
    ]  # fmt: skip
    assert NOTE in result.notes
    assert result.memory.gradient_bytes == (12 + 4 + 20) * F


def test_a_file_in_which_nothing_is_trained_says_so(tmp_path: Path) -> None:
    # given a·dequantised(w), with weights of 8 bits
    nodes = [helper.make_node("DequantizeLinear", ["w", "scale"], ["v"]),
             helper.make_node("MatMul", ["a", "v"], ["y"])]  # fmt: skip
    stored = {"w": np.ones((3, 4), np.int8), "scale": np.float32(0.5)}
    result = count(model(nodes, {"a": x(2, 3)}, ["y"], stored=stored), tmp_path, mode="train")
    assert (list(result.phases), result.params, result.total.macs) == (["forward"], 12, 2 * 3 * 4)
    assert result.notes == (
        "nothing in this file has a gradient, as no floating-point parameter leads to a"
        " floating-point result: there is no backward pass",
    )


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


def macs(result: CountResult) -> dict[str, int]:
    return {name: cost.macs for name, cost in result.phases.items() if cost.macs}


def test_what_is_looked_up_by_data_is_no_weight(tmp_path: Path) -> None:
    # given 2 · 6 words in a table, then layers of 16 · 32 and 32 · 8
    nodes = [helper.make_node("Gather", ["table", "ids"], ["e"], name="lookup"),
             helper.make_node("MatMul", ["e", "w1"], ["h"]),
             helper.make_node("Relu", ["h"], ["r"]),
             helper.make_node("MatMul", ["r", "w2"], ["y"])]  # fmt: skip
    stored = {"table": weight(100, 16), "w1": weight(16, 32), "w2": weight(32, 8)}
    proto = model(nodes, {"ids": int64(2, 6)}, ["y"], stored=stored)
    # when the file and the module are counted
    ours = count(proto, tmp_path, mode="train")
    layers = nn.Sequential(nn.Embedding(100, 16), nn.Linear(16, 32, bias=False), nn.ReLU(),
                           nn.Linear(32, 8, bias=False))  # fmt: skip
    theirs = ridgeline.count(layers, torch.zeros(2, 6, dtype=torch.int64), mode="train")
    # then both layers have both gradients, and the table's is a weight's
    each = 2 * 6 * (16 * 32 + 32 * 8)
    assert macs(ours) == {"forward": each, "input-grad": each, "weight-grad": each}
    assert macs(ours) == macs(theirs)
    assert [op.phase for op in ours.op_costs if op.path == "lookup"][1:] == [
        "weight-grad", "optimizer",
    ]  # fmt: skip


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.LSTM(10, 20, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.layers(inputs)[0]
        return answer


def test_a_recurrent_layer_costs_as_forward_in_both_phases(tmp_path: Path) -> None:
    # given two layers of 20 units; 9 steps of 2 sequences of 10 features
    path = tmp_path / "recurrent.onnx"
    torch.onnx.export(Recurrent(), (torch.zeros(9, 2, 10),), str(path), dynamo=False)
    result = ridgeline.count(str(path), mode="train")
    each = 9 * 2 * 4 * 20 * ((10 + 20) + (20 + 20))
    assert macs(result) == {"forward": each, "input-grad": each, "weight-grad": each}


def test_gradients_of_a_loop_are_those_of_its_body_times_the_trip_count(tmp_path: Path) -> None:
    # given h = h·w five times, from an input: w has a gradient in all, h in all but the first
    inner = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]),
         helper.make_node("MatMul", ["h", "w"], ["h2"], name="product")],
        "body",
        [helper.make_tensor_value_info("i", 7, ()), helper.make_tensor_value_info("go", 9, ()),
         helper.make_tensor_value_info("h", 1, (2, 3))],
        [helper.make_tensor_value_info("on", 9, ()),
         helper.make_tensor_value_info("h2", 1, (2, 3))],
    )  # fmt: skip
    node = helper.make_node("Loop", ["n", "", "h0"], ["y"], name="steps", body=inner)
    stored = {"w": weight(3, 3), "n": np.asarray(5)}
    proto = model([node], {"h0": x(2, 3)}, ["y"], stored=stored)
    result = count(proto, tmp_path, mode="train")
    # then both gradients are counted as often as the body runs
    assert macs(result) == dict.fromkeys(("forward", "input-grad", "weight-grad"), 5 * 2 * 9)
    # and the five gradients of w are added in four sums
    sums = [op.cost.other_flops for op in result.op_costs if op.op == "onnx::Add"]
    assert sums == [4 * 9]
