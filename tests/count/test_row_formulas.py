"""Formulas beside FLOPs: what they show adds up to the FLOPs of their row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.count.cases import Net, x
from torch import nn
from torch.utils.checkpoint import checkpoint

import ridgeline
from ridgeline.count.result import CountResult


def twice() -> nn.Module:
    """Calls one layer twice."""
    return Net(lambda n, rows: n.layer(n.layer(rows)), layer=nn.Linear(4, 4))


def residual() -> nn.Module:
    """A convolution with bias, and a skip addition of its own."""
    return Net(lambda n, images: n.conv(images) + images, conv=nn.Conv2d(3, 3, 3, padding=1))


def checkpointed() -> nn.Module:
    return Net(
        lambda n, rows: checkpoint(n.block, rows, use_reentrant=False),
        block=nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)),
    )


def attention() -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=True)


IMAGES = (2, 3, 8, 8)
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "conv": (lambda: nn.Conv2d(3, 4, 3), IMAGES),
    "conv without bias": (lambda: nn.Conv2d(3, 4, 3, bias=False), IMAGES),
    "transposed conv": (lambda: nn.ConvTranspose2d(3, 4, 3), IMAGES),
    "linear": (lambda: nn.Linear(4, 5), (2, 4)),
    "batch norm": (lambda: nn.BatchNorm2d(3), IMAGES),
    "max pool": (lambda: nn.MaxPool2d(2), IMAGES),
    "average pool": (lambda: nn.AvgPool2d(2), IMAGES),
    "adaptive pool": (lambda: nn.AdaptiveAvgPool2d(3), IMAGES),
    "softmax": (lambda: nn.Softmax(-1), (2, 4)),
    "lstm": (lambda: nn.LSTM(4, 5), (3, 2, 4)),
    "attention": (attention, (2, 5, 8)),
    "called twice": (twice, (2, 4)),
    "residual": (residual, IMAGES),
    "checkpointed": (checkpointed, (2, 4)),
}


def check_formulas(result: CountResult) -> None:
    """Each row with FLOPs of an operator of its own has a formula; it has the FLOPs of the row."""
    own = {op.path or "(model)" for op in result.op_costs if op.formula and op.phase == "forward"}
    rows = [*result.layers().to_dict("records"), *result.ops.to_dict("records")]
    shown = {row["path"] for row in rows if "depth" in row and row["formula"]}
    assert shown == own
    for row in rows:
        if row["formula"]:
            sides: list[str] = row["formula"].split(" = ")
            assert int(sides[-1]) == row["flops"], row
            if len(sides) == 3:
                numbers = sides[1]
                assert eval(numbers.replace("·", "*")) == row["flops"], row["formula"]


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_formula_of_every_row_gives_its_flops(name: str, mode: str) -> None:
    make, shape = NETWORKS[name]
    given = x(*shape).requires_grad_(mode == "train")
    result = ridgeline.count(make(), given, mode=mode)
    assert any(op.formula for op in result.op_costs)
    check_formulas(result)


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_the_formulas_of_a_whole_network(mode: str) -> None:
    result = ridgeline.count("resnet18", batch_size=2, mode=mode)
    check_formulas(result)
    table = result.layers()
    kinds = set(table.loc[table["formula"].ne(""), "type"])
    assert kinds >= {"Conv2d", "BatchNorm2d", "ReLU", "MaxPool2d", "BasicBlock",
                     "AdaptiveAvgPool2d", "Linear"}  # fmt: skip


def formulas(model: nn.Module, shape: tuple[int, ...], **settings: Any) -> dict[str, str]:
    table = ridgeline.count(model, x(*shape), **settings).layers()
    pairs: dict[str, str] = dict(zip(table["path"], table["formula"], strict=True))
    return {path: formula for path, formula in pairs.items() if formula}


def test_a_bias_is_a_term() -> None:
    # 2 rows, 4 inputs, 5 outputs; an addition for each of the 10 results
    assert formulas(nn.Linear(4, 5), (2, 4)) == {"(model)": "2·M·N·K + bias = 2·2·5·4 + 10 = 90"}


def test_calls_are_a_factor() -> None:
    assert formulas(twice(), (2, 4)) == {
        "layer": "2·calls·M·N·K + calls·bias = 2·2·2·4·4 + 2·8 = 144"
    }


def test_a_skip_addition_and_the_modules_inside() -> None:
    product = 2 * 1 * 3 * 4 * 4 * 3 * 3 * 3  # 2592, and a bias of 48
    assert formulas(residual(), (1, 3, 4, 4)) == {
        "(model)": f"n + submodules = 48 + {product + 48} = {product + 96}",
        "conv": "2·N·Cout·Hout·Wout·(Cin/g)·Kh·Kw + bias = 2·1·3·4·4·3·3·3 + 48 = 2640",
    }


def test_training_adds_backward_and_the_optimizer() -> None:
    # the first layer has a weight's gradient alone: 80 FLOP, and for the bias a sum of 2 rows
    model = nn.Linear(4, 5)
    assert formulas(model, (2, 4), mode="train", optimizer="sgd") == {
        "(model)": "2·M·N·K (forward) + bias + backward + optimizer = 2·2·5·4 + 10 + 90 + 50 = 230"
    }
    # and with recomputation, that is backward too
    first = formulas(checkpointed(), (2, 4), mode="train", optimizer="sgd")["block.0"]
    assert first == (
        "2·M·N·K (forward) + bias + backward + optimizer = 2·2·4·4 + 8 + 144 + 40 = 256"
    )
